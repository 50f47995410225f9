// What the page knows of a run: the lines of a trace, taken apart as far as every view needs and
// no further. A step is a forward pass; its line is parsed again when its values are looked at, so
// that hundreds of steps stay small.

// Schedule is a graph with its memory, as sched.Schedule.MarshalJSON has it.
export class Schedule {
  constructor(record) {
    this.uid = record.uid;
    this.captured = record.captured || [];
    const { graph, values, arenas, splits, regions } = record.schedule;
    Object.assign(this, { params: graph.params, nodes: graph.nodes, values: values || [], arenas: arenas || [], splits: splits || [], regions: regions || [] });
    this.byName = new Map(this.nodes.map((n) => [n.name, n]));
    this.findLayers();
    this.copies = new Map(); // of a value, to devices: by node, the splits that it is copied for
    for (const s of this.splits) for (const c of s.copies || []) this.copies.set(c.value, [...(this.copies.get(c.value) || []), { ...c, to: s.device }]);
    this.readers = this.nodes.map(() => []);
    for (const n of this.nodes) for (const s of n.sources) this.readers[s].push(n.id);
  }

  // findLayers gives each node the number of its layer, or -1. What lies between the nodes of a
  // layer belongs to it, whatever its name.
  findLayers() {
    const first = new Map(), last = new Map();
    for (const n of this.nodes) {
      const m = /^blk\.(\d+)\.(.+)$/.exec(n.name);
      n.layer = m ? +m[1] : -1;
      n.short = m ? m[2] : n.name;
      if (n.dead) continue;
      if (m) {
        if (!first.has(n.layer)) first.set(n.layer, n.id);
        last.set(n.layer, n.id);
      }
    }
    for (const [layer, from] of first) {
      for (let i = from; i <= last.get(layer); i++) if (this.nodes[i].layer < 0) this.nodes[i].layer = layer;
    }
    this.layers = [...first.keys()].sort((a, b) => a - b);
  }
}

const attentionWeights = /"weights":"[^"]*"/g; // half of a line or more, and decoded only once

// Step is a forward pass.
class Step {
  constructor(line, pass, schedule) {
    this.text = new TextEncoder().encode(line.replace(attentionWeights, '"weights":""')); // takes half of the memory of a string
    this.schedule = schedule;
    for (const key of ['pass', 'phase', 'start', 'tokens', 'positions', 'logits', 'error']) this[key] = pass[key];
    this.took = pass.time;
    this.pieces = this.tokens.map((t, i) => ({ text: pass.texts?.[i] ?? `⟨${t}⟩`, bytes: pass.bytes?.[i] }));
    const count = schedule.nodes.length;
    this.time = new Float64Array(count).fill(NaN);
    this.rms = new Float32Array(count).fill(NaN);
    this.faults = new Set(); // nodes with NaN or infinities
    this.attention = new Map(); // by name
    for (const n of pass.nodes || []) {
      this.time[n.node] = n.time;
      if (n.stats) {
        this.rms[n.node] = n.stats.rms;
        if (n.stats.nan || n.stats.inf) this.faults.add(n.node);
      }
      if (n.attention) this.attention.set(schedule.nodes[n.node].name, { ...n.attention, weights: bytes(n.attention.weights || '') });
    }
    this.chosen = null;
    this.lens = null;
    this.difference = null; // from the other run, by node; see compare
  }

  get line() { return new TextDecoder().decode(this.text); } // without weights of attention
  get last() { return this.positions[this.positions.length - 1]; }

  // values are the records of the nodes, by id.
  values() {
    if (Step.parsed?.step !== this && Step.before?.step === this) [Step.parsed, Step.before] = [Step.before, Step.parsed];
    if (Step.parsed?.step !== this) {
      Step.before = Step.parsed;
      const nodes = new Map();
      for (const n of JSON.parse(this.line).nodes || []) nodes.set(n.node, n);
      Step.parsed = { step: this, nodes };
    }
    return Step.parsed.nodes;
  }
}

// Run is a trace, complete or under way.
export class Run {
  constructor() {
    this.header = null;
    this.schedules = new Map();
    this.steps = [];
  }

  // take reads a line and returns what it was. It throws at what is no line of a trace, so that nothing else has
  // to look whether what a trace refers to is there.
  take(line) {
    const r = JSON.parse(line);
    demand(typeof r?.kind === 'string', 'This is no record of a trace.');
    if (!this.header && (r.kind !== 'header' || r.format !== 'minfer-trace' || r.version !== 1)) {
      throw new Error('This is no trace of minfer, or one of another version.');
    }
    sound[r.kind]?.(r, this);
    switch (r.kind) {
      case 'header':
        this.header = r;
        break;
      case 'graph':
        this.schedules.set(r.uid, new Schedule(r));
        break;
      case 'pass':
        this.steps.push(new Step(line, r, this.schedules.get(r.graph)));
        break;
      case 'choice': {
        const step = this.steps.findLast((s) => s.last + 1 === r.position);
        if (step) step.chosen = r;
        break;
      }
      case 'lens': {
        const step = this.steps.findLast((s) => s.pass === r.pass);
        if (step) step.lens = r.layers;
        break;
      }
    }
    return r.kind;
  }

  // tokenAt is the token at a position.
  tokenAt(position) {
    this.pieces ||= new Map();
    if (!this.pieces.has(position)) for (const s of this.steps) s.positions.forEach((p, i) => this.pieces.set(p, s.pieces[i]));
    return this.pieces.get(position) ?? '';
  }
}

const demand = (holds, what) => {
  if (!holds) throw new Error(what);
};
const whole = (x) => Number.isInteger(x) && x >= 0;
const list = (x, of) => Array.isArray(x) && x.every(of);
const numeric = (x) => x === undefined || typeof number(x) === 'number';
const candidate = (c) => typeof c?.text === 'string' && numeric(c.logit) && numeric(c.prob);

// sound checks the records that others lean on.
const sound = {
  header: (r) => demand(typeof r.model?.name === 'string', 'The header names no model.'),
  graph(r) {
    const nodes = r.schedule?.graph?.nodes;
    demand(list(nodes, (n) => typeof n?.name === 'string' && typeof n.op === 'string' && list(n.shape, whole)), `Graph ${r.uid} has no nodes, or some without name, operation and shape.`);
    demand(nodes.every((n, i) => n.id === i && list(n.sources, (s) => whole(s) && s < i)), `In graph ${r.uid}, nodes are not in order, each after those that it reads.`);
  },
  pass(r, run) {
    const nodes = run.schedules.get(r.graph)?.nodes;
    demand(nodes, `Pass ${r.pass} is of graph ${r.graph}, which does not come before it.`);
    demand(list(r.tokens, whole) && list(r.positions, whole) && r.positions.length === r.tokens.length && r.tokens.length > 0, `Pass ${r.pass} lacks tokens or their positions.`);
    for (const n of r.nodes || []) {
      demand(nodes[n.node], `Pass ${r.pass} has a node ${n.node}, and its graph has none.`);
      const { stats: t, histogram: h, sample: s, attention: a } = n;
      demand(numeric(n.time) && (!t || [t.min, t.max, t.mean, t.rms, t.nan || 0, t.inf || 0].every(Number.isFinite)) && list(h || [], whole) && list(s?.values || [], numeric), `Pass ${r.pass}, node ${n.node}: what should be a number is none.`);
      demand(!s || (list(s.rows, whole) && s.rows.length > 0 && s.values?.length % s.rows.length === 0), `Pass ${r.pass}, node ${n.node}: the sample is not of its rows.`);
      demand(!a || a.unavailable || a.heads * a.rows * a.keys === byteCount(a.weights), `Pass ${r.pass}, node ${n.node}: the weights of attention are not of its heads, rows and keys.`);
    }
    demand(list(r.logits || [], (l) => list(l?.top || [], candidate)), `Pass ${r.pass} has likely tokens that are none.`);
  },
  choice: (r) => demand(candidate(r), `At position ${r.position} what is chosen is no token.`),
  lens: (r) => demand(list(r.layers, (l) => typeof l?.node === 'string' && list(l.top, candidate)), `The lens of pass ${r.pass} has tokens that are none.`),
};

// number takes what JSON has no number for.
const numbers = new Map([['NaN', NaN], ['+Inf', Infinity], ['-Inf', -Infinity]]);
export const number = (x) => (typeof x === 'string' ? numbers.get(x) : x);

// compare measures how far the nodes of two steps are apart: the largest difference of a sampled
// element or of the root mean square, relative to the latter. Nodes are matched by name. What one
// run lacks, or has in another shape, has no distance.
export function compare(a, b) {
  const distance = new Map();
  const other = new Map();
  for (const [id, n] of b.values()) other.set(b.schedule.nodes[id].name, n);
  for (const [id, x] of a.values()) {
    const name = a.schedule.nodes[id].name;
    const y = other.get(name);
    if (!y || !x.stats || !y.stats || x.bytes !== y.bytes) continue;
    const scale = x.stats.rms || 1e-30;
    let most = Math.abs(x.stats.rms - y.stats.rms);
    if ((x.stats.nan || 0) !== (y.stats.nan || 0) || (x.stats.inf || 0) !== (y.stats.inf || 0)) most = Infinity;
    const u = x.sample?.values || [], v = y.sample?.values || [];
    if (u.length === v.length && x.sample?.stride === y.sample?.stride) {
      for (let i = 0; i < u.length; i++) {
        if (u[i] === v[i]) continue;
        const d = Math.abs(number(u[i]) - number(v[i]));
        most = Number.isNaN(d) ? Infinity : Math.max(most, d);
      }
    }
    distance.set(name, most / scale);
  }
  return distance;
}

// byteCount is how many bytes a text in base 64 has.
const byteCount = (text) => (typeof text === 'string' ? (text.length / 4) * 3 - (/=*$/.exec(text)[0].length) : -1);

// bytes decodes base 64.
function bytes(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out;
}

// attentionOf puts together what a head gives to whom, over the steps up to one: rows by position of
// the query, each of them weights by position of the key, 0 to 255.
export function attentionOf(run, until, name, head) {
  const rows = new Map();
  for (const step of run.steps.slice(0, until + 1)) {
    const a = step.attention.get(name);
    if (!a || a.unavailable) continue;
    for (let r = 0; r < a.rows; r++) {
      const position = step.positions[step.positions.length - a.rows + r];
      const at = (r * a.heads + head) * a.keys;
      rows.set(position, a.weights.subarray(at, at + Math.min(a.keys, position + 1)));
    }
  }
  return rows;
}

// Texts of numbers.
export const si = (x, unit = '') => {
  if (x === undefined || Number.isNaN(x)) return '–';
  for (const [size, prefix] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']]) if (Math.abs(x) >= size) return `${(x / size).toPrecision(3)} ${prefix}${unit}`;
  return `${+x.toPrecision(3)} ${unit}`.trim();
};
export const size = (n) => (n >= 1 << 20 ? `${(n / (1 << 20)).toFixed(2)} MiB` : n >= 1024 ? `${(n / 1024).toFixed(1)} KiB` : `${n} B`);
export const duration = (ns) => (Number.isNaN(ns) ? '–' : ns >= 1e9 ? `${(ns / 1e9).toFixed(2)} s` : ns >= 1e6 ? `${(ns / 1e6).toFixed(2)} ms` : `${(ns / 1e3).toFixed(1)} µs`);

// Texts of tokens. A token is its text, and its bytes in base 64 if that is none: a part of a character.

// shown is a token by itself, with nothing in it invisible.
export const shown = (token) => {
  if (token.bytes) return [...bytes(token.bytes)].map((b) => (b > 32 && b < 127 ? String.fromCharCode(b) : `‹${b.toString(16).toUpperCase().padStart(2, '0')}›`)).join('');
  const text = visible(token.text ?? token);
  return text === '' ? '∅' : text.replace(/\n/g, '↵').replace(/^ +| +$/g, (s) => '·'.repeat(s.length));
};

// visible gives what has no picture of its own one, but for spaces and the ends of lines.
const visible = (text) => text.replace(/\t/g, '⇥').replace(/\r/g, '␍')
  .replace(/[\0-\x09\x0b-\x1f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
  .replace(/[\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, (c) => `‹${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}›`);

// spelled is tokens as parts of a text: a character that is several of them stands at the last, and those before
// have a mark in its place.
export function spelled(tokens) {
  let decoder = null;
  return tokens.map((t, i) => {
    if (!t.bytes) return visible(t.text).replace(/\n/g, '↵\n') || '∅';
    decoder ||= new TextDecoder();
    const more = Boolean(tokens[i + 1]?.bytes), text = decoder.decode(bytes(t.bytes), { stream: more || i === tokens.length - 1 });
    if (!more) decoder = null;
    return visible(text).replace(/\n/g, '↵\n') || '◦';
  });
}

