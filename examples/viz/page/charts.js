// Small pictures of numbers.
import { number } from './data.js';

// el makes an element: el('td', { class: 'n' }, 'text'). What is false, null or undefined is left out.
export function el(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes)) {
    if (k.startsWith('on')) e[k] = v;
    else if (v !== undefined && v !== false) e.setAttribute(k, v === true ? '' : v);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined && c !== false));
  return e;
}

const handlers = ['onclick', 'onchange', 'onpointermove'];

// show makes an element's children like those given, and touches only what differs: then little is
// laid out anew, and what has the focus, is open or is scrolled stays so.
export function show(parent, children) {
  let old = parent.firstChild;
  for (const fresh of children) {
    const next = old?.nextSibling;
    if (old) become(old, fresh);
    else parent.append(fresh);
    old = next;
  }
  while (old) {
    const next = old.nextSibling;
    old.remove();
    old = next;
  }
}

function become(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE && fresh.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.nodeName !== fresh.nodeName || old.nodeName === 'CANVAS') {
    old.replaceWith(fresh);
    return;
  }
  for (const name of new Set([...old.getAttributeNames(), ...fresh.getAttributeNames()])) {
    const value = fresh.getAttribute(name);
    if (name === 'open' || old.getAttribute(name) === value) continue; // whoever reads says what is open
    if (name === 'style') old.style.cssText = fresh.style.cssText;
    else if (value === null) old.removeAttribute(name);
    else old.setAttribute(name, value);
  }
  for (const h of handlers) if (old[h] !== fresh[h]) old[h] = fresh[h];
  const { value } = fresh;
  show(old, [...fresh.childNodes]);
  if (value !== undefined && old !== document.activeElement) old.value = value;
}

const svg = (tag, attributes = {}, ...children) => {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
};

const brief = (x) => (x === 0 ? '0' : Math.abs(x) >= 1e4 || Math.abs(x) < 1e-3 ? x.toExponential(1) : (+x.toPrecision(3)).toString());

// histogram draws counts between two ends, on a scale of logarithms, for values have long tails.
export function histogram(counts, min, max) {
  const width = 400, height = 90, most = Math.log1p(Math.max(...counts));
  const chart = svg('svg', { viewBox: `0 0 ${width} ${height + 16}`, class: 'chart', role: 'img', 'aria-label': `Histogram from ${brief(min)} to ${brief(max)}` });
  const w = width / counts.length;
  counts.forEach((c, i) => {
    const h = c === 0 ? 0 : Math.max(1.5, (Math.log1p(c) / most) * (height - 4));
    const bar = svg('rect', { x: i * w + 1, y: height - h, width: w - 2, height: h, rx: 1.5, fill: 'var(--accent)' });
    bar.append(svg('title', {}, `${brief(min + ((max - min) * i) / counts.length)} to ${brief(min + ((max - min) * (i + 1)) / counts.length)}: ${c}`));
    chart.append(bar);
  });
  chart.append(svg('line', { x1: 0, y1: height, x2: width, y2: height, stroke: 'var(--line)' }));
  chart.append(svg('text', { x: 0, y: height + 13 }, brief(min)), svg('text', { x: width, y: height + 13, 'text-anchor': 'end' }, brief(max)));
  if (min < 0 && max > 0) {
    const x = (width * -min) / (max - min);
    chart.append(svg('line', { x1: x, y1: 0, x2: x, y2: height, stroke: 'var(--muted)', 'stroke-dasharray': '2 3' }));
    if (x > 60 && x < width - 60) chart.append(svg('text', { x, y: height + 13, 'text-anchor': 'middle' }, '0'));
  }
  return chart;
}

// line draws values over steps, with a mark at one of them.
export function line(values, at, text, choose) {
  const width = 400, height = 60, finite = values.filter((v) => Number.isFinite(v));
  const chart = svg('svg', { viewBox: `0 0 ${width} ${height + 14}`, class: 'chart', role: 'img' });
  if (finite.length === 0) return chart;
  const top = Math.max(...finite), x = (i) => (values.length < 2 ? width / 2 : (i * width) / (values.length - 1)), y = (v) => height - 2 - (v / (top || 1)) * (height - 8);
  const d = values.map((v, i) => (Number.isFinite(v) ? `${i > 0 && Number.isFinite(values[i - 1]) ? 'L' : 'M'}${x(i).toFixed(1)} ${y(v).toFixed(1)}` : '')).join('');
  chart.append(svg('line', { x1: 0, y1: height, x2: width, y2: height, stroke: 'var(--line)' }), svg('path', { d, fill: 'none', stroke: 'var(--accent)', 'stroke-width': 1.8, 'stroke-linejoin': 'round' }));
  if (Number.isFinite(values[at])) chart.append(svg('circle', { cx: x(at), cy: y(values[at]), r: 4, fill: 'var(--accent)', stroke: 'var(--panel)', 'stroke-width': 1.5 }));
  chart.append(svg('text', { x: 0, y: height + 12 }, `0 to ${text(top)}`));
  if (choose) {
    chart.style.cursor = 'pointer';
    chart.onclick = (e) => {
      const r = e.currentTarget.getBoundingClientRect();
      choose(Math.round(((e.clientX - r.left) / r.width) * (values.length - 1)));
    };
  }
  return chart;
}

const dark = matchMedia('(prefers-color-scheme: dark)');
const mix = (a, b, t) => a.map((c, i) => c + (b[i] - c) * t);

// diverging colours a value between -1 and 1: blue, what the page is like, red.
const diverging = (t) => {
  if (Number.isNaN(t)) return [40, 200, 60];
  const [below, zero, above] = dark.matches ? [[90, 170, 250], [38, 46, 55], [250, 105, 95]] : [[40, 120, 190], [245, 245, 245], [200, 55, 50]];
  return mix(zero, t < 0 ? below : above, Math.min(1, Math.abs(t)) ** 0.7);
};

// heatMap draws rows of values, blue below 0, red above; what is no number is green.
// A single row is folded into a square.
export function heatMap(values, columns, rows) {
  if (rows === 1 && columns > 96) {
    const folded = Math.ceil(Math.sqrt(columns * 2.5));
    rows = Math.ceil(columns / folded);
    columns = folded;
  }
  const canvas = el('canvas', { class: 'heat', width: columns, height: rows, role: 'img', 'aria-label': `Heat map of ${values.length} values` });
  const shown = values.map(number), most = shown.reduce((m, v) => (Number.isFinite(v) ? Math.max(m, Math.abs(v)) : m), 0) || 1;
  const c = canvas.getContext('2d'), image = c.createImageData(columns, rows);
  shown.forEach((v, i) => image.data.set([...diverging(v / most), 255], 4 * i));
  c.putImageData(image, 0, 0);
  canvas.style.height = `${Math.min(260, Math.max(24, rows * Math.max(4, 400 / columns)))}px`;
  canvas.title = `−${brief(most)} (blue) to ${brief(most)} (red)`;
  return canvas;
}

// Colours of attention by weight, as the bytes of a pixel, and that of keys that come after the query.
const pixel = (...rgba) => new Uint32Array(new Uint8ClampedArray(rgba).buffer)[0];
const inksFrom = (none, all) => Uint32Array.from({ length: 256 }, (_, w) => pixel(...mix(none, all, Math.sqrt(w / 255)), 255));
const inksOf = { light: inksFrom([255, 252, 240], [20, 92, 145]), dark: inksFrom([30, 38, 48], [150, 230, 255]) };
const later = pixel(128, 128, 140, 40);

// attentionMap draws weights by query, downwards, and key, to the right. Within limit pixels each way,
// a pixel stands for several and has the strongest of them.
export function attentionMap(rows, positions, limit) {
  const step = Math.ceil(positions / limit), across = Math.ceil(positions / step);
  const strongest = new Uint8Array(across * across), known = new Uint8Array(across);
  for (const [query, weights] of rows) {
    const row = Math.floor(query / step), from = row * across;
    if (query >= positions) continue;
    known[row] = 1;
    if (step === 1) strongest.set(weights.subarray(0, across), from);
    else for (let k = 0; k < weights.length; k++) strongest[from + Math.floor(k / step)] = Math.max(strongest[from + Math.floor(k / step)], weights[k]);
  }
  const canvas = el('canvas', { class: 'heat', width: across, height: across, role: 'img', 'aria-label': 'Attention by query and key' });
  const inks = dark.matches ? inksOf.dark : inksOf.light;
  const c = canvas.getContext('2d'), image = c.createImageData(across, across), pixels = new Uint32Array(image.data.buffer);
  for (let q = 0; q < across; q++) {
    if (!known[q]) continue;
    for (let k = 0; k < across; k++) pixels[q * across + k] = k > q ? later : inks[strongest[q * across + k]];
  }
  c.putImageData(image, 0, 0);
  return canvas;
}
