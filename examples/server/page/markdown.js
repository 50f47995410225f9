// Turns the Markdown that models write into elements. Text becomes text nodes only, so that
// nothing that a model says can become markup of another kind.

// A span of emphasis or code has to close within so many characters, which keeps the time for a
// text in proportion to its length, whatever is in it.
const longest = 2000;
const deepest = 4; // spans in spans

const link = /\[([^\]\n]{1,500})\]\((https?:\/\/[^\s)]{1,1000})\)/y;
const ticks = /`+/y;

function element(name, text) {
  const e = document.createElement(name);
  e.textContent = text;
  return e;
}

// code returns the code span at text[i], or null.
function code(text, i) {
  ticks.lastIndex = i;
  const mark = ticks.exec(text)[0];
  const within = text.slice(i + mark.length, i + mark.length + longest);
  for (let at = within.indexOf(mark); at >= 0;) {
    let end = at;
    while (within[end] === '`') end++;
    if (end - at === mark.length && at > 0) {
      const inside = within.slice(0, at);
      return { node: element('code', inside.trim() || inside), end: i + 2 * mark.length + at };
    }
    at = within.indexOf(mark, end);
  }
  return { node: document.createTextNode(mark), end: i + mark.length };
}

// emphasis returns the span between marks at text[i], or null.
function emphasis(text, i, mark, name, depth) {
  const from = i + mark.length;
  if (depth >= deepest || /[\s*]|^$/.test(text.charAt(from)) || (mark === '*' && /\w/.test(text.charAt(i - 1)))) return null;
  const within = text.slice(from, from + longest);
  for (let at = within.indexOf(mark); at >= 0; at = within.indexOf(mark, at + mark.length)) {
    const after = within.charAt(at + mark.length);
    if (at === 0 || /\s/.test(within.charAt(at - 1)) || (mark === '*' && /[\w*]/.test(after))) continue;
    const e = document.createElement(name);
    inline(e, within.slice(0, at), depth + 1);
    return { node: e, end: from + at + mark.length };
  }
  return null;
}

function anchor(text, i) {
  link.lastIndex = i;
  const found = link.exec(text);
  if (!found) return null;
  const e = element('a', found[1]);
  e.href = found[2];
  e.target = '_blank';
  e.rel = 'noopener noreferrer';
  return { node: e, end: link.lastIndex };
}

function inline(parent, text, depth = 0) {
  let done = 0;
  for (let i = 0; i < text.length;) {
    let span = null;
    if (text[i] === '`') span = code(text, i);
    else if (text.startsWith('**', i)) span = emphasis(text, i, '**', 'strong', depth);
    else if (text[i] === '*') span = emphasis(text, i, '*', 'em', depth);
    else if (text[i] === '[') span = anchor(text, i);
    if (!span) {
      i += text.startsWith('**', i) ? 2 : 1;
      continue;
    }
    parent.append(text.slice(done, i), span.node);
    i = done = span.end;
  }
  parent.append(text.slice(done));
  parent.normalize();
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
