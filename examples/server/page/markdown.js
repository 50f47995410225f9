// Turns the Markdown that models write into elements. Text becomes text nodes only, so that
// nothing that a model says can become markup of another kind.

const inlinePattern = /(`+)([\s\S]+?)\1(?!`)|\*\*([^\s*](?:[\s\S]*?[^\s])?)\*\*|(?<![\w*])\*([^\s*](?:[^*]*?[^\s*])?)\*(?![\w*])|\[([^\]\n]+)\]\((https?:\/\/[^\s)]+)\)/;

function inline(parent, text) {
  for (;;) {
    const found = inlinePattern.exec(text);
    if (!found) break;
    parent.append(text.slice(0, found.index));
    const [all, , code, strong, em, label, address] = found;
    if (code !== undefined) {
      const e = document.createElement('code');
      e.textContent = code.trim() || code;
      parent.append(e);
    } else if (address !== undefined) {
      const e = document.createElement('a');
      e.href = address;
      e.target = '_blank';
      e.rel = 'noopener noreferrer';
      e.textContent = label;
      parent.append(e);
    } else {
      const e = document.createElement(strong !== undefined ? 'strong' : 'em');
      inline(e, strong !== undefined ? strong : em);
      parent.append(e);
    }
    text = text.slice(found.index + all.length);
  }
  parent.append(text);
}

function lines(parent, list) {
  list.forEach((line, i) => {
    if (i > 0) parent.append(document.createElement('br'));
    inline(parent, line);
  });
}

const fence = /^\s*(```+|~~~+)\s*([\w+#.-]*)/;
const heading = /^(#{1,6})\s+(.*)/;
const bullet = /^\s*[-*+]\s+(.*)/;
const number = /^\s*(\d{1,9})[.)]\s+(.*)/;
const quote = /^>\s?(.*)/;

// render returns the elements for a text that may still be growing.
export function render(text) {
  const out = document.createDocumentFragment();
  const rest = text.split('\n');
  const take = (pattern) => {
    const taken = [];
    while (rest.length && pattern.test(rest[0])) taken.push(pattern.exec(rest.shift()));
    return taken;
  };
  while (rest.length) {
    const line = rest[0];
    let m;
    if (line.trim() === '') {
      rest.shift();
    } else if ((m = fence.exec(line))) {
      rest.shift();
      const body = [];
      while (rest.length && !rest[0].trim().startsWith(m[1])) body.push(rest.shift());
      rest.shift();
      const pre = document.createElement('pre');
      const code = document.createElement('code');
      if (m[2]) code.dataset.language = m[2];
      code.textContent = body.join('\n');
      pre.tabIndex = 0; // so that the keyboard can scroll it
      pre.append(code);
      out.append(pre);
    } else if ((m = heading.exec(line))) {
      rest.shift();
      const e = document.createElement('h' + Math.min(m[1].length + 2, 5));
      inline(e, m[2]);
      out.append(e);
    } else if (bullet.test(line) || number.test(line)) {
      const ordered = !bullet.test(line);
      const items = take(ordered ? number : bullet);
      const list = document.createElement(ordered ? 'ol' : 'ul');
      if (ordered && items[0][1] !== '1') list.start = Number(items[0][1]);
      for (const item of items) {
        const e = document.createElement('li');
        inline(e, item[ordered ? 2 : 1]);
        list.append(e);
      }
      out.append(list);
    } else if (quote.test(line)) {
      const e = document.createElement('blockquote');
      lines(e, take(quote).map((q) => q[1]));
      out.append(e);
    } else {
      const body = [];
      while (rest.length && rest[0].trim() !== '' && ![fence, heading, bullet, number, quote].some((p) => p.test(rest[0]))) body.push(rest.shift());
      const e = document.createElement('p');
      lines(e, body);
      out.append(e);
    }
  }
  return out;
}
