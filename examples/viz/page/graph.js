// The picture of a graph: a box for each layer, which opens into its nodes. Layouts are made by
// dagre, for a layer once per shape of it, and only what is in view has elements.
import { Graph, layout } from './dagre.js';
import { duration, size } from './data.js';

const svg = (tag, attributes = {}, ...children) => {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
};

const box = { width: 184, height: 42 };
const layerBox = { width: 250, height: 56 };
const frame = { side: 14, top: 28, bottom: 10 };

// Inputs that every layer reads would draw lines everywhere; the panel lists them.
const quiet = new Set(['positions', 'cells', 'spans', 'tail_ids']);

// Operations of a kind have a colour. The last is for what a trace may have that is not known here.
export const families = [
  ['input', '#d9d9d9', ['Input']],
  ['residual stream', '#9fd3c0', ['Add', 'Embed']],
  ['norm', '#f3e08a', ['RMSNorm', 'QKNorm']],
  ['product', '#8fc1e3', ['MatMul']],
  ['attention', '#f2b48a', ['Attention', 'RoPE', 'FusedQKV', 'FusedQKVNorm', 'QKVBiasRopeStore']],
  ['keys and values', '#c9b8e6', ['KVStore', 'KVLoad']],
  ['activation', '#e6a9c8', ['Silu', 'Gelu', 'SwiGLU', 'Mul', 'Scale', 'FusedFFN', 'FusedFFNDown', 'Softmax']],
  ['selection', '#b5d98f', ['TopK', 'GetRows']],
  ['rearrangement', '#bfb6a6', ['View', 'Reshape', 'Permute']],
  ['other', '#c9cfd6', []],
];
const familyOf = new Map(families.flatMap(([, fill, ops]) => ops.map((op) => [op, fill])));
export const devicePalette = ['#9ecae9', '#f7c875', '#a5dcc4', '#f0a98e', '#dcb4d2', '#ece38c', '#c8c8c8'];
const ramp = (stops, t) => {
  const x = Math.min(1, Math.max(0, t)) * (stops.length - 1), i = Math.min(stops.length - 2, Math.floor(x)), f = x - i;
  return `rgb(${stops[i].map((c, k) => Math.round(c + (stops[i + 1][k] - c) * f)).join(' ')})`;
};
export const heat = (t) => ramp([[245, 245, 240], [253, 219, 130], [248, 160, 95], [236, 112, 96]], t);
export const cool = (t) => ramp([[240, 244, 240], [150, 205, 190], [80, 160, 190], [90, 95, 170]], t);
export const apart = (d) => (d === 0 ? '#bfe3c6' : ramp([[225, 235, 190], [250, 210, 110], [240, 145, 95], [236, 105, 125]], (Math.log10(d) + 6) / 6));

export class View {
  constructor(element, handlers) {
    this.element = element;
    this.handlers = handlers;
    this.expanded = new Set();
    this.inner = new Map(); // layouts of layers, by shape
    this.elements = new Map();
    this.camera = { x: 0, y: 0, scale: 1 };
    this.world = svg('g');
    this.edgeLayer = svg('g');
    this.nodeLayer = svg('g');
    this.world.append(this.edgeLayer, this.nodeLayer);
    element.append(svg('defs', {}, svg('marker', { id: 'arrow', viewBox: '0 0 8 8', refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: 'userSpaceOnUse', orient: 'auto' }, svg('path', { d: 'M0 0L8 4L0 8z', fill: 'var(--edge)' }))), this.world);
    this.items = [];
    this.edges = [];
    this.mode = 'op';
    this.selected = null;
    this.listen();
    this.whole = false; // all is in view, and shall stay so
    new ResizeObserver(() => (this.whole ? this.setAll(null) : this.later())).observe(element);
  }

  // show sets the graph, keeping what is open and where one looks if it is the same kind of graph.
  show(schedule) {
    if (schedule === this.schedule) return;
    const first = !this.schedule;
    const kind = this.schedule?.params.Phase;
    this.schedule = schedule;
    this.arrange();
    if (first || this.whole) this.fit();
    else if (kind !== schedule.params.Phase) this.reveal();
  }

  // arrange lays the graph out.
  arrange() {
    const s = this.schedule;
    const visible = s.nodes.filter((n) => !n.dead && !quiet.has(n.name));
    const keyOf = (n) => (n.layer < 0 ? `n${n.id}` : `l${n.layer}`);
    const outer = new Graph();
    outer.setGraph({ rankdir: 'TB', nodesep: 40, ranksep: 34, marginx: 20, marginy: 20 });
    outer.setDefaultEdgeLabel(() => ({}));
    const members = new Map();
    for (const n of visible) {
      if (n.layer < 0) outer.setNode(keyOf(n), { ...box });
      else members.set(n.layer, [...(members.get(n.layer) || []), n]);
    }
    const inner = new Map();
    for (const [layer, nodes] of members) {
      const open = this.expanded.has(layer) && this.layerLayout(nodes);
      inner.set(layer, open);
      outer.setNode(`l${layer}`, open ? { width: open.width + 2 * frame.side, height: open.height + frame.top + frame.bottom } : { ...layerBox });
    }
    for (const n of visible) {
      for (const id of n.sources) {
        const from = s.nodes[id];
        if (quiet.has(from.name) || from.dead || keyOf(from) === keyOf(n)) continue;
        outer.setEdge(keyOf(from), keyOf(n), { cross: from.device !== n.device });
      }
    }
    layout(outer);
    const columns = this.wrap(outer);
    this.items = [];
    this.edges = [];
    for (const n of visible) if (n.layer < 0) this.items.push({ key: keyOf(n), node: n, ...centred(outer.node(keyOf(n))) });
    for (const [layer, nodes] of members) this.placeLayer(layer, nodes, inner.get(layer), centred(outer.node(`l${layer}`)));
    for (const e of outer.edges()) {
      const edge = outer.edge(e);
      this.edges.push({ key: `${e.v}-${e.w}`, from: e.v, to: e.w, cross: edge.cross, turns: edge.turns, points: this.meet(e, edge.points, inner) });
    }
    for (const e of this.edges) Object.assign(e, bounds(e.points));
    this.extent = columns;
    this.clear();
    this.later();
  }

  // wrap breaks a tall picture into columns that fill the stage, where no more than one edge is cut.
  // It returns the picture's extent.
  wrap(outer) {
    const gap = 56, { width, height } = outer.graph(), across = width + gap;
    const nodes = outer.nodes().map((key) => ({ key, n: outer.node(key) })).sort((a, b) => a.n.y - b.n.y);
    const rank = new Map(nodes.map(({ key }, i) => [key, i]));
    const cut = new Array(nodes.length).fill(0);
    for (const e of outer.edges()) for (let i = rank.get(e.v); i < rank.get(e.w); i++) cut[i]++;
    // columns of at most a height, as far as the edges allow
    const broken = (limit) => {
      const columns = [];
      nodes.forEach(({ n }, i) => {
        const top = n.y - n.height / 2, bottom = n.y + n.height / 2;
        if (i === 0 || (cut[i - 1] === 1 && bottom - columns.at(-1).top > limit)) columns.push({ first: i, top: top - 20, bottom: 0 });
        columns.at(-1).bottom = Math.max(columns.at(-1).bottom, bottom - columns.at(-1).top);
      });
      return columns;
    };
    const w = this.element.clientWidth, { above, below } = this.handlers.covered(), h = this.element.clientHeight - above - below;
    const scale = (columns) => Math.min(w / (columns.length * across), h / (Math.max(...columns.map((c) => c.bottom)) + 40));
    let columns = broken(Infinity);
    for (let parts = 1.5; parts < 24; parts += 0.25) {
      const others = broken(height / parts);
      if (scale(others) >= scale(columns)) columns = others; // of equals the more even
    }
    columns.forEach((c, at) => {
      for (const { n } of nodes.slice(c.first, columns[at + 1]?.first)) Object.assign(n, { column: at, x: n.x + at * across, y: n.y - c.top, top: c.top });
    });
    for (const e of outer.edges()) {
      const from = outer.node(e.v), to = outer.node(e.w), edge = outer.edge(e), dx = from.column * across;
      if (from.column === to.column) {
        edge.points = edge.points.map((p) => ({ x: p.x + dx, y: p.y - from.top }));
        continue;
      }
      const low = columns[from.column].bottom + 18, side = to.column * across - gap / 2, bottom = from.y + from.height / 2;
      edge.turns = true;
      edge.points = [{ x: from.x, y: bottom }, { x: from.x, y: low }, { x: side, y: low }, { x: side, y: 2 }, { x: to.x, y: 2 }, { x: to.x, y: to.y - to.height / 2 }];
    }
    return { width: columns.length * across - gap, height: Math.max(...columns.map((c) => c.bottom)) + 24 };
  }

  placeLayer(layer, nodes, open, at) {
    if (!open) {
      this.items.push({ key: `l${layer}`, layer, nodes, ...at });
      return;
    }
    this.items.push({ key: `f${layer}`, frame: layer, ...at });
    const x = at.x + frame.side, y = at.y + frame.top;
    nodes.forEach((n, i) => this.items.push({ key: `n${n.id}`, node: n, x: x + open.nodes[i].x, y: y + open.nodes[i].y, ...box }));
    for (const e of open.edges) {
      const from = e.from === null ? `f${layer}` : `n${nodes[e.from].id}`, to = e.to === null ? `f${layer}` : `n${nodes[e.to].id}`;
      this.edges.push({ key: `${layer}:${e.from}-${e.to}`, from, to, points: e.points.map((p) => ({ x: p.x + x, y: p.y + y })), open: e.to === null,
        cross: e.from !== null && e.to !== null && nodes[e.from].device !== nodes[e.to].device });
    }
  }

  // meet leads the ends of an edge to where an open layer takes values in and gives them out.
  meet(e, points, inner) {
    const ends = points.map((p) => ({ ...p }));
    const port = (key, side) => {
      const open = key[0] === 'l' && inner.get(+key.slice(1));
      if (!open) return null;
      const item = this.items.find((i) => i.key === `f${key.slice(1)}`);
      return { x: item.x + frame.side + open[side], y: side === 'in' ? item.y : item.y + item.height };
    };
    const from = port(e.v, 'out'), to = port(e.w, 'in');
    const last = ends.length - 1;
    // Where an edge turns a corner, the next point keeps below or above its end.
    if (from) [ends[0], ends[1].x] = [from, last > 3 && ends[1].x === ends[0].x ? from.x : ends[1].x];
    if (to) [ends[last], ends[last - 1].x] = [to, last > 3 && ends[last - 1].x === ends[last].x ? to.x : ends[last - 1].x];
    return ends;
  }

  // layerLayout lays the nodes of a layer out; layers of one shape share it.
  layerLayout(nodes) {
    const index = new Map(nodes.map((n, i) => [n.id, i]));
    const shape = nodes.map((n) => [n.op, n.sources.map((id) => index.get(id) ?? (quiet.has(this.schedule.nodes[id].name) ? '' : '^')), this.leaves(n, index)]);
    const key = JSON.stringify(shape);
    if (this.inner.has(key)) return this.inner.get(key);
    const g = new Graph();
    g.setGraph({ rankdir: 'TB', nodesep: 24, ranksep: 26 });
    g.setDefaultEdgeLabel(() => ({}));
    nodes.forEach((n, i) => g.setNode(String(i), { ...box }));
    nodes.forEach((n, i) => {
      for (const source of shape[i][1]) {
        if (source === '^') g.setNode('in', { width: 1, height: 1 }), g.setEdge('in', String(i));
        else if (source !== '') g.setEdge(String(source), String(i));
      }
      if (shape[i][2]) g.setNode('out', { width: 1, height: 1 }), g.setEdge(String(i), 'out');
    });
    layout(g);
    const end = (v) => (v === 'in' || v === 'out' ? null : +v);
    const result = {
      width: g.graph().width, height: g.graph().height,
      in: g.node('in')?.x ?? g.graph().width / 2, out: g.node('out')?.x ?? g.graph().width / 2,
      nodes: nodes.map((n, i) => centred(g.node(String(i)))),
      edges: g.edges().map((e) => {
        const points = g.edge(e).points.map((p) => ({ ...p }));
        if (e.v === 'in') points[0] = { x: g.node('in').x, y: -frame.top };
        if (e.w === 'out') points[points.length - 1] = { x: g.node('out').x, y: g.graph().height + frame.bottom };
        return { from: end(e.v), to: end(e.w), points };
      }),
    };
    this.inner.set(key, result);
    return result;
  }

  // leaves says whether nodes outside of the layer read a node.
  leaves(n, index) { return this.schedule.readers[n.id].some((id) => !index.has(id) && !this.schedule.nodes[id].dead); }

  clear() {
    this.elements.clear();
    this.edgeLayer.replaceChildren();
    this.nodeLayer.replaceChildren();
  }

  // later draws in the next frame, once.
  later() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  // draw gives elements to what is in view, and takes them from what is not.
  draw() {
    const { x, y, scale } = this.camera;
    this.world.setAttribute('transform', `translate(${x} ${y}) scale(${scale})`);
    const margin = 80, view = { x: -x / scale - margin, y: -y / scale - margin, width: this.element.clientWidth / scale + 2 * margin, height: this.element.clientHeight / scale + 2 * margin };
    const seen = new Set();
    for (const [list, make, parent] of [[this.edges, this.makeEdge, this.edgeLayer], [this.items, this.makeItem, this.nodeLayer]]) {
      for (const i of list) {
        if (!meets(i, view)) continue;
        seen.add(i.key);
        if (this.elements.has(i.key)) continue;
        const e = make.call(this, i);
        this.elements.set(i.key, { e, item: i });
        parent.append(e);
        this.paintOne(i, e);
      }
    }
    for (const [key, { e }] of this.elements) {
      if (!seen.has(key)) {
        e.remove();
        this.elements.delete(key);
      }
    }
  }

  makeEdge(edge) {
    const p = edge.points;
    let d = `M${p[0].x} ${p[0].y}`;
    if (edge.turns) d += p.slice(1, -1).map((q) => `L${q.x} ${q.y}`).join('');
    else for (let i = 1; i < p.length - 1; i++) d += `Q${p[i].x} ${p[i].y} ${(p[i].x + p[i + 1].x) / 2} ${(p[i].y + p[i + 1].y) / 2}`;
    d += `L${p.at(-1).x} ${p.at(-1).y}`;
    return svg('path', { d, class: `edge${edge.cross ? ' cross' : ''}`, ...(edge.open ? {} : { 'marker-end': 'url(#arrow)' }) });
  }

  makeItem(i) {
    if (i.frame !== undefined) {
      const label = svg('text', { x: i.x + 10, y: i.y + 18, class: 'frameLabel' }, `▾ layer ${i.frame}`);
      label.addEventListener('click', () => this.toggle(i.frame));
      return svg('g', {}, svg('rect', { x: i.x, y: i.y, width: i.width, height: i.height, rx: 10, class: 'frame' }), label);
    }
    const g = svg('g', { class: i.node ? 'node' : 'node layer', transform: `translate(${i.x} ${i.y})`, tabindex: 0, role: 'button' });
    g.append(svg('rect', { width: i.width, height: i.height, rx: i.node?.op === 'Input' ? 20 : 7, class: 'box' }));
    if (i.node) {
      const n = i.node;
      g.setAttribute('aria-label', n.name);
      g.append(svg('text', { x: i.width / 2, y: 17, 'text-anchor': 'middle', class: 'name' }, clip(n.short, 23)), svg('text', { x: i.width / 2, y: 32, 'text-anchor': 'middle', class: 'sub' }, clip(about(n), 31)));
    } else {
      g.setAttribute('aria-label', `layer ${i.layer}`);
      g.append(svg('text', { x: 10, y: 20, class: 'name' }, `▸ layer ${i.layer}`));
      i.computed = i.nodes.filter((n) => !['Input', 'KVLoad', 'View', 'Reshape'].includes(n.op));
      const cell = Math.min(30, (i.width - 20) / i.computed.length);
      i.cells = i.computed.map((n, k) => {
        const c = svg('rect', { x: 10 + k * cell, y: 31, width: Math.max(1, cell - 2), height: 15, rx: 2, stroke: '#0003' });
        c.append(svg('title', {}, `${n.short} (${n.op})`));
        c.addEventListener('click', (e) => {
          e.stopPropagation();
          this.handlers.select(n.name);
        });
        return c;
      });
      i.label = svg('text', { x: i.width - 10, y: 20, 'text-anchor': 'end', class: 'sub' });
      g.append(i.label, ...i.cells);
    }
    const act = () => (this.handlers.tip(null), i.node ? this.handlers.select(i.node.name) : this.toggle(i.layer));
    g.addEventListener('click', () => this.moved || act());
    g.addEventListener('keydown', (e) => (e.key === 'Enter' || e.key === ' ') && (e.preventDefault(), e.stopPropagation(), act()));
    g.addEventListener('pointerenter', (e) => this.handlers.tip(this.tipOf(i), e));
    g.addEventListener('pointerleave', () => this.handlers.tip(null));
    return g;
  }

  tipOf(i) {
    const step = this.step;
    if (i.node) {
      const n = i.node;
      return `${n.name}\n${n.op} ${n.dtype} [${n.shape.filter((d, k) => d !== 1 || k === 0).join(' ')}]${n.device ? ` on ${n.device}` : ''}` +
        (step && !Number.isNaN(step.time[n.id]) ? `\n${duration(step.time[n.id])}, rms ${fixed(step.rms[n.id])}` : '');
    }
    return `layer ${i.layer}: ${i.nodes.length} nodes; click to open`;
  }

  // paint colours everything for a step.
  paint(step, mode, colours) {
    this.step = step;
    this.mode = mode;
    this.colours = colours;
    for (const { e, item } of this.elements.values()) this.paintOne(item, e);
  }

  // paintOne colours an element; what has its colour already is not touched.
  paintOne(i, e) {
    const colour = (shape, fill) => shape.colour !== fill && shape.setAttribute('fill', (shape.colour = fill));
    if (!this.colours || i.points) {
      if (i.points) e.classList.toggle('lit', this.selected !== null && (i.from === this.selected || i.to === this.selected));
      return;
    }
    const { fill, fault, isApart } = this.colours;
    if (i.node) {
      colour(e.firstChild, fill(i.node));
      e.classList.toggle('selected', i.key === this.selected);
      e.classList.toggle('fault', fault(i.node));
      e.classList.toggle('apart', isApart(i.node));
    } else if (i.layer !== undefined) {
      i.computed.forEach((n, k) => colour(i.cells[k], fill(n)));
      e.classList.toggle('fault', i.nodes.some(fault));
      e.classList.toggle('apart', i.nodes.some(isApart));
      e.classList.toggle('selected', i.nodes.some((n) => `n${n.id}` === this.selected));
      if (this.step) i.label.textContent = duration(i.computed.reduce((sum, n) => sum + (this.step.time[n.id] || 0), 0));
    }
  }

  select(id) {
    this.selected = id === null ? null : `n${id}`;
    for (const { e, item } of this.elements.values()) this.paintOne(item, e);
  }

  toggle(layer) {
    this.whole = false;
    const before = this.items.find((i) => i.key === `l${layer}` || i.key === `f${layer}`);
    if (!this.expanded.delete(layer)) this.expanded.add(layer);
    this.arrange();
    // What was clicked stays under the pointer.
    const after = this.items.find((i) => i.key === `l${layer}` || i.key === `f${layer}`);
    this.camera.x += (before.x + before.width / 2 - after.x - after.width / 2) * this.camera.scale;
    this.camera.y += (before.y - after.y) * this.camera.scale;
    if (this.expanded.has(layer)) this.contain(after);
    this.reveal();
    this.later();
  }

  // contain moves and shrinks the picture until an item is in view, unless it would be too small to
  // read.
  contain(item) {
    const c = this.camera, { clientWidth: w, clientHeight: h } = this.element, top = 56, bottom = 34;
    const scale = Math.min(c.scale, Math.max(0.45, (h - top - bottom) / item.height));
    this.zoom(scale / c.scale, { x: (item.x + item.width / 2) * c.scale + c.x, y: item.y * c.scale + c.y });
    const y = item.y * c.scale + c.y, x = item.x * c.scale + c.x;
    c.y += y < top ? top - y : Math.max(Math.min(0, h - bottom - y - item.height * c.scale), top - y);
    c.x += x < 20 ? 20 - x : Math.min(0, w - 20 - x - item.width * c.scale);
  }

  // setAll opens or closes all layers, or leaves them with null, and shows all of the graph.
  setAll(open) {
    if (open !== null) this.expanded = new Set(open ? this.schedule.layers : []);
    this.arrange();
    this.fit();
  }

  // fit shows all of the graph.
  fit() {
    this.whole = true;
    const w = this.element.clientWidth, { above, below } = this.handlers.covered(), h = this.element.clientHeight - above - below;
    const scale = Math.min(1.1, w / this.extent.width, h / this.extent.height);
    this.camera = { scale, x: (w - this.extent.width * scale) / 2, y: above + (h - this.extent.height * scale) / 2 };
    this.later();
  }

  // reveal moves back to the graph if it has moved out of view.
  reveal() {
    const c = this.camera, { clientWidth: w, clientHeight: h } = this.element;
    c.x = Math.min(w - 60, Math.max(60 - this.extent.width * c.scale, c.x));
    c.y = Math.min(h - 60, Math.max(60 - this.extent.height * c.scale, c.y));
    this.later();
  }

  // centre brings a node into view, in its layer if that is closed.
  centre(node) {
    const i = this.items.find((x) => x.key === `n${node.id}`) || this.items.find((x) => x.key === `l${node.layer}`);
    if (!i) return;
    const { scale } = this.camera, { clientWidth: w, clientHeight: h } = this.element;
    const sx = (i.x + i.width / 2) * scale + this.camera.x, sy = (i.y + i.height / 2) * scale + this.camera.y;
    if (sx > 80 && sx < w - 80 && sy > 70 && sy < h - 70) return;
    this.whole = false;
    this.camera.x += w / 2 - sx;
    this.camera.y += h / 2 - sy;
    this.later();
  }

  zoom(factor, at) {
    const c = this.camera, scale = Math.min(3, Math.max(0.04, c.scale * factor)), f = scale / c.scale;
    Object.assign(c, { scale, x: at.x - (at.x - c.x) * f, y: at.y - (at.y - c.y) * f });
    this.later();
  }

  listen() {
    const at = (e) => {
      const r = this.element.getBoundingClientRect();
      return { x: e.clientX - r.left, y: e.clientY - r.top };
    };
    this.element.addEventListener('wheel', (e) => {
      e.preventDefault();
      if (!this.schedule) return;
      this.whole = false;
      if (e.ctrlKey || e.metaKey || e.altKey || Math.abs(e.deltaY) >= 50 && e.deltaX === 0 && !e.shiftKey) this.zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0016)), at(e));
      else {
        this.camera.x -= e.deltaX;
        this.camera.y -= e.deltaY;
        this.later();
      }
    }, { passive: false });
    this.element.addEventListener('pointerdown', (e) => {
      this.drag = { ...at(e), id: e.pointerId };
      this.moved = false;
    });
    this.element.addEventListener('pointermove', (e) => {
      if (!this.drag) return;
      const p = at(e), dx = p.x - this.drag.x, dy = p.y - this.drag.y;
      if (!this.moved && Math.hypot(dx, dy) < 4) return;
      if (!this.moved) this.element.setPointerCapture(e.pointerId);
      this.moved = true;
      this.whole = false;
      this.element.classList.add('dragging');
      this.camera.x += dx;
      this.camera.y += dy;
      Object.assign(this.drag, p);
      this.later();
    });
    for (const end of ['pointerup', 'pointercancel']) {
      this.element.addEventListener(end, () => {
        this.drag = null;
        this.element.classList.remove('dragging');
        setTimeout(() => (this.moved = false));
      });
    }
  }
}

const centred = (n) => ({ x: n.x - n.width / 2, y: n.y - n.height / 2, width: n.width, height: n.height });
const meets = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
const bounds = (points) => {
  const xs = points.map((p) => p.x), ys = points.map((p) => p.y), x = Math.min(...xs), y = Math.min(...ys);
  return { x, y, width: Math.max(...xs) - x + 1, height: Math.max(...ys) - y + 1 };
};
const clip = (text, n) => (text.length > n ? `${text.slice(0, n - 1)}…` : text);
const fixed = (x) => (Number.isNaN(x) ? '–' : (+x.toPrecision(3)).toString());
const about = (n) => {
  const w = (n.weights || []).find((x) => x.type);
  return w ? `${n.op} ${w.in}→${w.out} ${w.type}` : `${n.op} [${n.shape.filter((d, k) => d !== 1 || k === 0).join(' ')}]`;
};
export { size, familyOf };
