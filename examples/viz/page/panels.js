// What stands beside the graph: a node's numbers, attention, the lens, the next token, and how two
// runs differ.
import { el, histogram, line, heatMap, attentionMap } from './charts.js';
import { attentionOf, duration, number, shown, si, size } from './data.js';

const rows = (...list) => el('table', { class: 'facts' }, ...list.filter(Boolean).map(([name, value]) => el('tr', {}, el('th', {}, name), el('td', {}, value))));
const dims = (n) => `[${n.shape.filter((d, k) => d !== 1 || n.shape.slice(k + 1).some((x) => x !== 1) || k === 0).join(' × ')}]`;
const precise = (x) => (x === undefined ? '–' : typeof x === 'string' ? x : (+x.toPrecision(5)).toString());
const heading = (text, ...more) => el('h3', {}, el('span', {}, text), ...more);
const title = (text, ...more) => el('h3', { class: 'verbatim' }, el('span', {}, text), ...more); // of what is the model's

// nodePanel is everything about a node.
export function nodePanel(app) {
  const node = app.node;
  if (!node) return [el('p', { class: 'muted' }, 'Click a node of the graph, or a square in a layer, to see what it computes. Layers open and close with a click.'), ...overview(app)];
  const s = app.step.schedule, value = app.step.values().get(node.id), weights = app.run.header.model.weights || {};
  const link = (id) => el('button', { onclick: () => app.select(s.nodes[id].name) }, s.nodes[id].name);
  const out = [el('h2', {}, node.name), el('p', { class: 'muted' }, `${node.op}, node ${node.id} of ${s.nodes.length}${node.layer >= 0 ? `, layer ${node.layer}` : ''}`)];
  const memory = s.values[node.id] || {};
  const ends = memory.last === undefined ? 'to the end of the pass' : memory.last === node.id ? 'read by nobody' : `until ${s.nodes[memory.last].name}`;
  out.push(rows(
    ['value', `${node.dtype} ${dims(node)}`],
    ['device', node.device || 'none'],
    memory.kind === 'region' ? ['memory', `keys and values of layer ${node.layer}, kept from pass to pass`]
      : memory.offset !== undefined && ['memory', `${size(memory.bytes)} at ${memory.offset}, ${ends}`],
    memory.inPlace !== undefined && ['in place of', link(memory.inPlace)],
    s.copies.has(node.id) && ['copied', s.copies.get(node.id).map((c) => `${size(c.bytes)} from ${c.from} to ${c.to}`).join(', ')],
    ...(node.weights || []).map((w) => ['weight', `${w.name}${w.type ? ` ${w.type} [${w.in} × ${w.out}]` : ''}${weights[w.name] ? `, ${size(weights[w.name])}` : ''}`]),
    node.sources.length > 0 && ['reads', el('span', {}, ...node.sources.map(link))],
    s.readers[node.id].length > 0 && ['read by', el('span', {}, ...s.readers[node.id].map(link))],
  ));
  const payload = Object.entries(node.payload || {}).filter(([k, v]) => typeof v !== 'object' && v !== 0 && v !== '' && !['Weight', 'Type'].includes(k));
  if (payload.length > 0) out.push(heading('Operation'), rows(...payload.map(([k, v]) => [k, String(v)])));
  if (!value) return [...out, el('p', { class: 'muted' }, 'Nothing is computed here.')];
  const across = (pick) => app.run.steps.map((step) => {
    const n = step.schedule.byName.get(node.name);
    return n ? pick(step, n.id) : NaN;
  });
  out.push(heading('Time'), rows(
    ['this step', duration(value.time)],
    value.macs && ['multiply-adds', `${si(value.macs)} (${si(value.macs / (value.time / 1e9))}/s)`],
  ), line(across((step, id) => step.time[id]), app.at, duration, app.go));
  if (value.stats) {
    const t = value.stats;
    out.push(heading('Values'), el('table', {}, el('tr', {}, ...['min', 'max', 'mean', 'rms', 'NaN', 'inf'].map((k) => el('th', { class: 'n' }, k))),
      el('tr', {}, ...[t.min, t.max, t.mean, t.rms, t.nan || 0, t.inf || 0].map((x) => el('td', { class: 'n' }, precise(x))))));
    if (value.histogram) out.push(histogram(value.histogram, t.min, t.max));
    out.push(heading('Root mean square, step by step'), line(across((step, id) => step.rms[id]), app.at, precise, app.go));
  }
  if (value.sample) out.push(...samplePart(app, node, value.sample));
  return out;
}

function samplePart(app, node, sample) {
  const columns = sample.values.length / sample.rows.length;
  const watching = app.watched.has(node.name);
  const button = app.live && el('button', { onclick: () => app.watch(node.name), 'aria-pressed': watching }, watching ? 'Watch no longer' : 'Watch closely');
  const of = sample.rows.length > 1 ? `rows ${sample.rows[0]} to ${sample.rows.at(-1)}` : `row ${sample.rows[0]}`;
  return [
    heading('Heat map', button),
    heatMap(sample.values, columns, sample.rows.length),
    el('p', { class: 'muted' }, `${of}, ${sample.stride > 1 ? `every ${sample.stride}th element` : 'all elements'}${watching && sample.stride > 1 ? '; from the next step on there are more' : ''}`),
    el('details', {}, el('summary', { class: 'muted' }, 'numbers'), el('p', {}, sample.values.slice(0, 256).map(precise).join('  '))),
  ];
}

// overview is what there is to say of the whole.
function overview(app) {
  const s = app.step.schedule, h = app.run.header.model, time = app.step.time, by = new Map();
  let sum = 0;
  for (const n of s.nodes) {
    if (Number.isNaN(time[n.id])) continue;
    sum += time[n.id];
    by.set(n.op, (by.get(n.op) || 0) + time[n.id]);
  }
  const ops = [...by].sort((a, b) => b[1] - a[1]);
  return [
    heading('Model'),
    rows(['name', h.name], ['architecture', `${h.architecture}, ${h.layers} layers of width ${h.embedding}`], ['devices', (h.devices || []).join(', ')]),
    heading('This step'),
    rows(
      ['phase', `${app.step.phase} of ${app.step.tokens.length}`],
      ['graph', `${s.nodes.filter((n) => !n.dead).length} nodes in ${s.splits.length} ${s.splits.length === 1 ? 'split' : 'splits'}`],
      s.copies.size > 0 && ['between devices', copied(s)],
      ...s.arenas.map((a) => [`values on ${a.device}`, size(a.bytes)]),
      ['nodes take', duration(sum)],
      s.captured.length > 0 && ['off its fast path', `${s.captured.join(', ')}: node by node, so that values can be read`],
      app.step.error && ['ended with', app.step.error],
    ),
    heading('Where the time goes'),
    ...ops.map(([op, t]) => bar(op, t / ops[0][1], `${duration(t)}, ${((100 * t) / sum).toFixed(0)} %`)),
  ];
}

function copied(s) {
  const all = [...s.copies.values()].flat();
  return `${all.length} ${all.length === 1 ? 'copy' : 'copies'} of ${size(all.reduce((sum, c) => sum + c.bytes, 0))} in all`;
}

function bar(name, share, text, chosen) {
  const fill = el('i');
  fill.style.width = `${100 * share}%`;
  return el('div', { class: chosen ? 'bar chosen' : 'bar' }, fill, el('b', {}, name), el('span', {}, text));
}

// attentionPanel is whom the heads of a layer attend to.
export function attentionPanel(app) {
  const names = [...new Set(app.run.steps.slice(0, app.at + 1).flatMap((s) => [...s.attention.keys()]))];
  if (names.length === 0) return [el('p', { class: 'muted' }, 'This run has no attention recorded. Tick “attention” and run again; in a trace, set trace.Limits.Attention.')];
  if (!names.includes(app.attentionNode)) app.attentionNode = names[0];
  const last = app.run.steps.slice(0, app.at + 1).findLast((s) => s.attention.has(app.attentionNode)), a = last.attention.get(app.attentionNode);
  if (a.unavailable) return [el('p', {}, a.unavailable)];
  const positions = last.last + 1;
  const layers = el('select', { 'aria-label': 'Layer', onchange: (e) => ((app.attentionNode = e.target.value), app.panel()) }, ...names.map((n) => el('option', { value: n, selected: n === app.attentionNode }, n)));
  const out = [el('div', { class: 'row' }, layers)];
  app.head = Math.min(app.head ?? 0, a.heads - 1);
  const of = attentionOf(app.run, app.at, app.attentionNode, app.head);
  const big = attentionMap(of, positions, 800);
  big.onpointermove = (e) => {
    const r = big.getBoundingClientRect(), k = Math.floor(((e.clientX - r.left) / r.width) * positions), q = Math.floor(((e.clientY - r.top) / r.height) * positions);
    const w = of.get(q)?.[k];
    big.nextSibling.textContent = w === undefined ? `${q}: not recorded` : `“${shown(app.run.tokenAt(q))}” (${q}) gives ${((100 * w) / 255).toFixed(0)} % to “${shown(app.run.tokenAt(k))}” (${k})`;
  };
  out.push(heading(`Head ${app.head}`), big, el('p', { class: 'muted' }, 'Rows are tokens that look, columns those that they look at.'), heading('All heads'));
  const all = el('div', { class: 'heads' });
  for (let h = 0; h < a.heads; h++) {
    all.append(el('button', { 'aria-pressed': h === app.head, onclick: () => ((app.head = h), app.panel()) }, attentionMap(attentionOf(app.run, app.at, app.attentionNode, h), positions, 180), el('span', {}, `head ${h}`)));
  }
  return [...out, all];
}

const lensWidth = 6; // steps side by side

// lensPanel is what the model would say if it ended after each layer: the likeliest token by layer, for
// some steps, and more of them for the layer that is chosen.
export function lensPanel(app) {
  const recorded = app.run.steps.map((s, i) => [s, i]).filter(([s]) => s.lens);
  if (recorded.length === 0) return [el('p', { class: 'muted' }, 'This run has no lens recorded. Tick “lens” and run again.')];
  let centre = recorded.findIndex(([, i]) => i >= app.at);
  if (centre < 0) centre = recorded.length - 1;
  const from = Math.max(0, Math.min(centre - lensWidth + 2, recorded.length - lensWidth)), some = recorded.slice(from, from + lensWidth);
  const layers = some[0][0].lens.map((l) => l.node), last = layers.length - 1;
  const chosen = Math.min(app.lensLayer ?? last, last);
  const name = (n) => n.replace(/^blk\.(\d+)\..*/, '$1');
  const table = el('table', { class: 'lens' }, el('tr', {}, el('th', {}, 'after'), ...some.map(([s]) => el('td', { class: 'muted' }, shown(s.pieces.at(-1))))));
  for (let k = last; k >= 0; k--) {
    table.append(el('tr', { class: k === chosen && 'chosen' }, el('th', {}, name(layers[k])), ...some.map(([s, i]) => {
      const best = s.lens[k]?.top[0];
      const cell = el('td', { class: i === app.at && 'now', onclick: () => ((app.lensLayer = k), app.go(i)) }, best ? shown(best) : '');
      if (best) cell.style.setProperty('--sure', `${Math.round(75 * number(best.prob))}%`);
      return cell;
    })));
  }
  const top = app.step.lens?.[chosen]?.top || [];
  return [
    el('p', { class: 'muted' }, 'The likeliest token if the stream ended after a layer, the last layer at the top; the fuller the colour, the surer. A click shows more of a layer.'),
    title(layers[chosen], el('span', {}, `after “${shown(app.step.pieces.at(-1))}”`)),
    ...top.map((c) => bar(shown(c), number(c.prob), `${(100 * number(c.prob)).toFixed(1)} %`)),
    table,
  ];
}

// nextPanel is the likeliest tokens.
export function nextPanel(app) {
  const logits = app.step.logits?.at(-1);
  if (!logits?.top?.length) return [el('p', { class: 'muted' }, 'No logits are recorded for this step.')];
  const chosen = app.step.chosen, best = logits.top[0].prob || 1;
  const out = [title(`After “${shown(app.step.pieces.at(-1))}”`), ...logits.top.map((c) => bar(shown(c), number(c.prob) / best, `${(100 * number(c.prob)).toFixed(2)} %, logit ${precise(c.logit)}`, c.token === chosen?.token))];
  if (chosen && !logits.top.some((c) => c.token === chosen.token)) out.push(el('p', {}, `Chosen was “${shown(chosen)}”, which is not among these.`));
  return out;
}

// comparePanel is how the second run differs.
export function comparePanel(app) {
  const b = app.other, about = ({ model }) => `${model.name}, on ${(model.devices || []).join(', ')}`;
  if (b.steps.length === 0) return [el('p', { class: 'muted' }, 'Choose a second run above and press Compare: it goes along the same tokens, and every node is held against that of this run. Or open a second trace.')];
  const bound = el('input', { type: 'number', min: 0, step: 'any', value: app.bound, 'aria-label': 'Bound', onchange: (e) => app.setBound(+e.target.value) });
  const out = [rows(['this run', about(app.run.header)], ['second run', about(b.header)]), el('div', { class: 'row' }, el('label', {}, 'apart if beyond ', bound), el('button', { onclick: () => app.swap() }, 'Show the second run'))];
  const first = app.firstApart();
  out.push(first
    ? el('p', {}, 'First apart: ', el('button', { onclick: () => (app.go(first.step), app.select(first.name)) }, `step ${first.step + 1}, ${first.name}`), ` by ${first.by === Infinity ? 'no number' : first.by.toExponential(2)}`)
    : el('p', {}, `No sampled value is further apart than ${app.bound} in ${Math.min(b.steps.length, app.run.steps.length)} steps.`));
  const d = app.step.difference, other = b.steps[app.at];
  if (!d) return [...out, el('p', { class: 'muted' }, 'The second run has no such step.')];
  const likely = (s) => s?.logits?.at(-1)?.top?.[0];
  const [x, y] = [likely(app.step), likely(other)];
  if (x && y) out.push(rows(['likeliest here', `“${shown(x)}” ${(100 * number(x.prob)).toFixed(1)} %`], ['in the second', `“${shown(y)}” ${(100 * number(y.prob)).toFixed(1)} %`]));
  out.push(rows(['nodes take here', duration(total(app.step))], ['in the second', duration(total(other))]));
  const table = el('table', {}, el('tr', {}, el('th', {}, 'node'), el('th', { class: 'n' }, 'difference'), el('th', { class: 'n' }, 'time'), el('th', { class: 'n' }, 'second')));
  let marked = false;
  for (const n of app.step.schedule.nodes) {
    if (!d.has(n.name)) continue;
    const by = d.get(n.name), m = other.schedule.byName.get(n.name), isFirst = !marked && by > app.bound;
    marked ||= isFirst;
    table.append(el('tr', { class: `pick${isFirst ? ' first' : ''}`, onclick: () => app.select(n.name, true) }, el('td', {}, n.name), el('td', { class: 'n' }, by === 0 ? 'equal' : by.toExponential(1)), el('td', { class: 'n' }, duration(app.step.time[n.id])), el('td', { class: 'n' }, duration(other.time[m.id]))));
  }
  return [...out, heading('Node by node, this step'), table];
}

const total = (step) => step.time.reduce((sum, t) => sum + (Number.isNaN(t) ? 0 : t), 0);
