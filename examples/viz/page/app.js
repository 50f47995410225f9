// The page: two runs, the step that is looked at, and what shows it.
import { Run, compare, shown, spelled, duration } from './data.js';
import { View, families, familyOf, devicePalette, heat, cool, apart } from './graph.js';
import { el, show } from './charts.js';
import { nodePanel, attentionPanel, lensPanel, nextPanel, comparePanel } from './panels.js';

const $ = (id) => document.getElementById(id);
const panels = { node: nodePanel, attention: attentionPanel, lens: lensPanel, next: nextPanel, compare: comparePanel };

class App {
  runs = [new Run(), new Run()];
  first = 0; // of the runs, the one that is shown; the other is what it is compared with
  at = 0; // the step that is shown
  following = true; // the newest step
  name = null; // of the node that is selected
  tab = 'node';
  mode = 'op';
  bound = 0;
  watched = new Set();
  live = false; // there is a model to run
  busy = false;

  constructor() {
    this.view = new View($('graph'), { select: (name) => this.select(name), tip: (text, e) => this.tip(text, e), covered: () => ({ above: $('controls').offsetHeight + 14, below: $('legend').offsetHeight + 14 }) });
    this.go = (at) => {
      this.at = Math.max(0, Math.min(this.run.steps.length - 1, at));
      this.following = this.at === this.run.steps.length - 1;
      this.refresh();
    };
    this.listen();
  }

  get run() { return this.runs[this.first]; }
  get other() { return this.runs[1 - this.first]; }
  get step() { return this.run.steps[this.at]; }
  get node() { return this.name && this.step?.schedule.byName.get(this.name); }

  async start() {
    try {
      const about = await (await fetch('api/about')).json();
      this.about = about;
      this.live = true;
      this.title(about.models[0]);
      $('chat').checked = about.chat;
      $('prompt').value = about.chat ? 'What is 3 + 4?' : 'Once upon a time';
      $('other').append(...about.models.slice(1).map((m, i) => el('option', { value: i + 1 }, m)));
      this.connect();
    } catch (e) {
      this.say(`The program behind this page does not answer: ${e.message}`);
    }
    this.setMode('op');
    this.setTab('node');
  }

  // connect takes the lines of runs as they come.
  connect() {
    const events = new EventSource('api/events');
    events.addEventListener('reset', (e) => this.reset(+e.data));
    for (const slot of [0, 1]) events.addEventListener(String(slot), (e) => this.guarded(() => this.take(slot, e.data)));
    events.addEventListener('error', () => this.say('The connection to the program is lost; it comes back by itself.'));
    events.addEventListener('open', () => this.say(''));
  }

  reset(slot) {
    this.runs[slot] = new Run();
    this.first = 0;
    if (slot === 0) {
      this.at = 0;
      this.following = true;
      this.runs[1] = new Run();
    }
    $('text').replaceChildren();
    for (const s of this.run.steps) s.difference = null;
    this.later();
  }

  take(slot, line) {
    const run = this.runs[slot];
    const kind = run.take(line);
    run.pieces = null;
    if (kind === 'header' && run === this.run) this.title(run.header.model.name);
    if (run === this.run && this.following) this.at = Math.max(0, run.steps.length - 1);
    if (kind === 'pass') {
      const i = run.steps.length - 1, [a, b] = this.runs.map((r) => r.steps[i]);
      if (a && b) [a.difference, b.difference] = [compare(a, b), compare(b, a)];
    }
    this.later();
  }

  // later refreshes in the next frame, once.
  later() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.refresh();
    });
  }

  refresh() {
    const n = this.run.steps.length;
    $('empty').hidden = n > 0;
    $('step').max = Math.max(0, n - 1);
    $('step').value = this.at;
    $('compare').disabled = !this.live || n === 0 || this.busy || this.runs[0].file;
    if (n === 0 || this.run.file) $('save').removeAttribute('href'); // there is none, or it is a file already
    else $('save').href = `api/trace/${this.first}`;
    if (n === 0) {
      show($('panel'), []);
      $('stepText').textContent = '';
      return;
    }
    const step = this.step;
    $('stepText').textContent = `step ${this.at + 1} of ${n}: ${step.phase} of ${step.tokens.length}, position ${step.last}, ${duration(step.took)}`;
    this.view.show(step.schedule);
    this.paint();
    this.panel();
    this.tokens(); // last, for it asks for places, and so for the layout
  }

  // tokens lists the text; a token is where it was chosen, which is what a click shows.
  tokens() {
    const text = $('text'), steps = this.run.steps;
    if (text.childElementCount === 0 && steps.length > 0) text.append(el('span', { class: 'prompt' }, spelled(steps[0].pieces).join('').replaceAll('◦', '')));
    let i = text.childElementCount - 1;
    while (i > 0 && steps[i - 1].chosen.bytes) i--; // what follows may be the rest of a character
    const fresh = [];
    for (let k = i; k >= 0 && steps[k]?.chosen; k++) fresh.push(steps[k].chosen);
    for (const piece of spelled(fresh)) {
      const span = text.children[i + 1] || text.appendChild(el('span', { 'data-step': i, title: shown(steps[i].chosen) }));
      if (span.textContent !== piece) span.textContent = piece;
      i++;
    }
    text.querySelector('.now')?.classList.remove('now');
    const now = text.children[this.at + 1];
    now?.classList.add('now');
    now?.scrollIntoView({ block: 'nearest' });
  }

  paint() {
    const step = this.step;
    this.view.paint(step, this.mode, {
      fill: this.filler(step),
      fault: (n) => step.faults.has(n.id),
      isApart: (n) => this.mode === 'diff' && (step.difference?.get(n.name) ?? 0) > this.bound,
    });
    this.view.select(this.node ? this.node.id : null);
    this.legend();
  }

  // filler colours nodes by the mode.
  filler(step) {
    const none = '#dfe3e8', s = step.schedule;
    switch (this.mode) {
      case 'device': {
        const devices = this.devices();
        return (n) => devices.get(n.device) || none;
      }
      case 'time': {
        const most = Math.max(...s.nodes.map((n) => step.time[n.id] || 0));
        return (n) => (Number.isNaN(step.time[n.id]) ? none : heat(Math.sqrt(step.time[n.id] / most)));
      }
      case 'size':
        return (n) => (step.rms[n.id] > 0 ? cool((Math.log10(step.rms[n.id]) + 3) / 5) : none);
      case 'diff':
        return (n) => (step.difference?.has(n.name) ? apart(step.difference.get(n.name)) : none);
    }
    return (n) => familyOf.get(n.op) || families.at(-1)[1];
  }

  // devices are those of this run, with their colours, which are the same in the other.
  devices() {
    const of = (run) => [...run.schedules.values()].flatMap((s) => s.nodes.map((n) => n.device).filter(Boolean));
    const all = [...new Set(this.runs.flatMap(of))], here = new Set(of(this.run));
    return new Map(all.map((d, i) => [d, devicePalette[i % devicePalette.length]]).filter(([d]) => here.has(d)));
  }

  setMode(mode) {
    this.mode = mode;
    for (const b of document.querySelectorAll('[data-mode]')) b.setAttribute('aria-checked', b.dataset.mode === mode);
    if (this.step) this.paint();
    else this.legend();
  }

  legend() {
    const dot = (fill, text) => {
      const i = el('i');
      i.style.background = fill;
      return el('span', {}, i, text);
    };
    const legends = {
      op: () => families.filter(([, , ops]) => this.step?.schedule.nodes.some((n) => ops.includes(n.op))).map(([name, fill]) => dot(fill, name)),
      device: () => [...(this.step ? [...this.devices()].map(([d, fill]) => dot(fill, d)) : []), this.step?.schedule.copies.size > 0 && el('span', { class: 'copied' }, 'copied')],
      time: () => [dot(heat(0), 'quick'), dot(heat(0.5), ''), dot(heat(1), 'slowest of the step')],
      size: () => [dot(cool(0), 'rms 0.001'), dot(cool(0.6), '1'), dot(cool(1), '100')],
      diff: () => [dot(apart(0), 'equal'), dot(apart(1e-5), '1e-5'), dot(apart(1e-3), '1e-3'), dot(apart(1), '1, relative to the rms'), dot('#dfe3e8', 'only here')],
    };
    show($('legend'), legends[this.mode]().filter(Boolean));
  }

  // swap shows the run that this one is compared with.
  swap() {
    this.first = 1 - this.first;
    this.at = Math.max(0, Math.min(this.at, this.run.steps.length - 1));
    this.title(this.run.header.model.name);
    $('text').replaceChildren();
    this.refresh();
  }

  setTab(tab) {
    this.tab = tab;
    $('panel').scrollTop = 0;
    for (const b of document.querySelectorAll('[data-tab]')) b.setAttribute('aria-selected', b.dataset.tab === tab);
    this.panel();
  }

  panel() {
    if (this.step) show($('panel'), panels[this.tab](this).filter(Boolean));
  }

  select(name, stay) {
    this.name = name;
    if (this.node?.op === 'Attention') this.attentionNode = name;
    if (this.node) {
      this.view.select(this.node.id);
      this.view.centre(this.node);
      if (!stay && this.tab !== 'node' && !(this.tab === 'attention' && this.node.op === 'Attention')) this.setTab('node');
    }
    this.panel();
  }

  // along goes to the next or the previous layer, or node, of what the panel shows.
  along(by) {
    const next = (list, at) => list[Math.max(0, Math.min(list.length - 1, at + by))];
    if (this.tab === 'lens') {
      const layers = (this.step.lens || []).map((_, k) => k);
      this.lensLayer = next(layers, this.lensLayer ?? layers.at(-1));
    } else if (this.tab === 'attention') {
      const names = [...this.step.attention.keys()];
      this.attentionNode = next(names, names.indexOf(this.attentionNode));
    } else {
      const ran = this.step.schedule.nodes.filter((n) => !Number.isNaN(this.step.time[n.id]));
      return this.select(next(ran, ran.findIndex((n) => n.name === this.name)).name, true);
    }
    this.panel();
  }

  watch(name) {
    if (!this.watched.delete(name)) this.watched.add(name);
    this.post('watch', [...this.watched]);
    this.panel();
  }

  setBound(bound) {
    this.bound = bound;
    this.paint();
    this.panel();
  }

  firstApart() {
    for (let i = 0; i < this.run.steps.length; i++) {
      const s = this.run.steps[i];
      if (!s.difference) continue;
      for (const n of s.schedule.nodes) {
        const by = s.difference.get(n.name);
        if (by > this.bound) return { step: i, name: n.name, by };
      }
    }
    return null;
  }

  async post(path, body) {
    const answer = await fetch(`api/${path}`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body ?? null) });
    if (!answer.ok) throw new Error(await answer.text());
  }

  async ask(slot) {
    const request = {
      slot, model: slot === 0 ? 0 : +$('other').value, along: slot === 1,
      prompt: $('prompt').value, chat: $('chat').checked, tokens: +$('tokens').value, temperature: +$('temperature').value,
      attention: $('attention').checked, lens: $('lens').checked,
    };
    this.setBusy(true);
    this.say('');
    try {
      await this.post('run', request);
      if (slot === 1) {
        this.setMode('diff');
        this.setTab('compare');
      }
    } catch (e) {
      this.say(e.message);
    }
    this.setBusy(false);
  }

  setBusy(busy) {
    this.busy = busy;
    $('go').textContent = busy ? 'Stop' : 'Run';
    this.later();
  }

  // open shows traces that were kept: one, or two to be compared. Of a file that ends or breaks midway, what comes
  // before is shown.
  async open(files) {
    this.say('');
    for (const [slot, file] of [...files].slice(0, 2).entries()) {
      const lines = (await file.text()).split('\n');
      this.reset(slot);
      this.following = false;
      this.runs[slot].file = true;
      this.guarded(() => lines.forEach((line) => line && this.take(slot, line)), `${file.name}: `);
    }
    this.at = 0;
    if (files.length > 1) this.setMode('diff');
    this.refresh();
  }

  guarded(f, of = '') {
    try {
      f();
    } catch (e) {
      this.say(of + e.message);
    }
  }

  title(name) { $('title').textContent = $('title').title = document.title = name; }

  say(text) { $('note').textContent = text; }

  tip(text, e) {
    const tip = $('tip');
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    tip.style.left = `${Math.min(innerWidth - 350, e.clientX + 14)}px`;
    tip.style.top = `${Math.min(innerHeight - 90, e.clientY + 14)}px`;
  }

  play() {
    if (this.playing) {
      clearInterval(this.playing);
      this.playing = 0;
    } else {
      if (this.at >= this.run.steps.length - 1) this.go(0);
      this.playing = setInterval(() => (this.at >= this.run.steps.length - 1 ? this.play() : this.go(this.at + 1)), 350);
    }
    $('play').textContent = this.playing ? '❚❚' : '▶';
    $('play').setAttribute('aria-label', this.playing ? 'Pause' : 'Play');
  }

  listen() {
    $('ask').addEventListener('submit', (e) => {
      e.preventDefault();
      if (this.busy) this.post('stop').catch((e) => this.say(e.message));
      else this.ask(0);
    });
    $('compare').addEventListener('click', () => this.ask(1));
    $('open').addEventListener('change', (e) => this.open(e.target.files).then(() => (e.target.value = '')));
    $('step').addEventListener('input', (e) => this.go(+e.target.value));
    $('play').addEventListener('click', () => this.play());
    $('text').addEventListener('click', (e) => e.target.dataset.step && this.go(+e.target.dataset.step));
    $('fit').addEventListener('click', () => this.view.schedule && this.view.setAll(null));
    $('expand').addEventListener('click', () => this.view.schedule && this.view.setAll(true));
    $('collapse').addEventListener('click', () => this.view.schedule && this.view.setAll(false));
    for (const b of document.querySelectorAll('[data-mode]')) b.addEventListener('click', () => this.setMode(b.dataset.mode));
    for (const b of document.querySelectorAll('[data-tab]')) b.addEventListener('click', () => this.setTab(b.dataset.tab));
    addEventListener('keydown', (e) => {
      const own = e.target.matches('select, input:not([type=checkbox])') || (e.key === ' ' && e.target.matches('button, input, a, summary'));
      if (own || e.ctrlKey || e.metaKey || e.altKey) return;
      const keys = { ArrowLeft: () => this.go(this.at - 1), ArrowRight: () => this.go(this.at + 1), ArrowUp: () => this.along(this.tab === 'lens' ? 1 : -1), ArrowDown: () => this.along(this.tab === 'lens' ? -1 : 1), Home: () => this.go(0), End: () => this.go(Infinity), ' ': () => this.play(), 0: () => this.view.fit(), Escape: () => this.select(null) };
      if (keys[e.key] && this.step) {
        e.preventDefault();
        keys[e.key]();
      }
    });
  }
}

globalThis.app = new App(); // for tests, and for who wants to look
app.start();
