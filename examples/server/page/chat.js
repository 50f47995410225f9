// The page's program: a conversation, kept here, of which every turn is a request to
// /v1/chat/completions that streams.

import { render } from './markdown.js';

const $ = (id) => document.getElementById(id);
const fields = ['system', 'temperature', 'top_p', 'max_tokens', 'seed', 'key'];

// store is localStorage, as far as the browser lets pages have it.
const store = {
  get(name, none) {
    try {
      return JSON.parse(localStorage.getItem('minfer.' + name)) ?? none;
    } catch {
      return none;
    }
  },
  set(name, value) {
    try {
      localStorage.setItem('minfer.' + name, JSON.stringify(value));
    } catch {
      // then it lasts as long as the page
    }
  },
};

let turns = store.get('turns', []); // {role, content, reasoning, error, note}
let running = null; // the AbortController of the answer under way
let settings = store.get('settings', {});

function headers() {
  const h = { 'Content-Type': 'application/json' };
  if (settings.key) h.Authorization = 'Bearer ' + settings.key;
  return h;
}

// problem is what an answer that is none says.
async function problem(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the server answers ${response.status}`;
  }
}

async function loadModel() {
  try {
    const response = await fetch('v1/models', { headers: headers() });
    if (response.status === 401) {
      $('model').textContent = 'API key needed';
      say('The server asks for an API key: it goes into the settings.');
      return;
    }
    if (!response.ok) throw new Error(await problem(response));
    const name = (await response.json()).data[0].id;
    $('model').textContent = name;
    document.title = `${name} · minfer`;
    suggest(name);
  } catch (error) {
    $('model').textContent = 'unreachable';
    say(String(error.message || error));
  }
}

function suggest(model) {
  const ideas = model === 'storyteller'
    ? ['Tell me a story about a brave fox.', 'What is 3 + 4?', 'What colour is the sky?', 'Who are you?']
    : ['Explain recursion with an example.', 'Write a haiku about the sea.', 'Plan a weekend in the mountains.'];
  $('suggestions').replaceChildren(...ideas.map((idea) => {
    const b = document.createElement('button');
    b.type = 'button';
    b.textContent = idea;
    b.addEventListener('click', () => ask(idea));
    return b;
  }));
}

function say(text) {
  $('status').textContent = text;
}

// view builds the elements of a turn and returns what draws it.
function view(turn) {
  const e = document.createElement('article');
  e.className = 'turn ' + turn.role;
  e.setAttribute('aria-label', turn.role === 'user' ? 'You' : 'Answer');
  const think = document.createElement('details');
  think.className = 'thinking';
  think.hidden = true;
  const summary = document.createElement('summary');
  const thoughts = document.createElement('div');
  think.append(summary, thoughts);
  const body = document.createElement('div');
  body.className = 'body';
  const error = document.createElement('p');
  error.className = 'error';
  error.hidden = true;
  const tools = document.createElement('div');
  tools.className = 'tools';
  e.append(think, body, error, tools);
  $('log').append(e);
  return () => {
    think.hidden = !turn.reasoning;
    thoughts.textContent = turn.reasoning || '';
    summary.textContent = turn.content || !running ? 'Reasoning' : 'Reasoning …';
    if (turn.role === 'user') body.textContent = turn.content;
    else body.replaceChildren(render(turn.content));
    error.hidden = !turn.error;
    error.textContent = turn.error || '';
    drawTools(tools, turn);
    e.classList.toggle('waiting', running !== null && turn === turns.at(-1));
    scroll();
  };
}

function drawTools(tools, turn) {
  tools.replaceChildren();
  if (turn.role === 'user' || (running && turn === turns.at(-1))) return;
  const button = (text, act) => {
    const b = document.createElement('button');
    b.type = 'button';
    b.textContent = text;
    b.addEventListener('click', () => act(b));
    tools.append(b);
  };
  button('Copy', async (b) => {
    try {
      await navigator.clipboard.writeText(turn.content);
      b.textContent = 'Copied';
    } catch {
      b.textContent = 'Not allowed';
    }
    setTimeout(() => { b.textContent = 'Copy'; }, 1500);
  });
  if (turn === turns.at(-1)) button('Again', again);
  if (turn.note) {
    const note = document.createElement('span');
    note.textContent = turn.note;
    tools.append(note);
  }
}

let following = true;
$('scroll').addEventListener('scroll', () => {
  const s = $('scroll');
  following = s.scrollHeight - s.scrollTop - s.clientHeight < 60;
});

function scroll() {
  if (following) $('scroll').scrollTop = $('scroll').scrollHeight;
}

function drawAll() {
  $('log').replaceChildren();
  for (const turn of turns) view(turn)();
  $('welcome').hidden = turns.length > 0;
}

function setRunning(controller) {
  running = controller;
  $('stop').hidden = !controller;
  $('send').hidden = !!controller;
  $('log').setAttribute('aria-busy', String(!!controller));
}

// request is what the API is asked.
function request() {
  const messages = turns.filter((t) => t.content !== '').map(({ role, content }) => ({ role, content }));
  if (settings.system) messages.unshift({ role: 'system', content: settings.system });
  const body = { messages, stream: true, stream_options: { include_usage: true } };
  for (const name of ['temperature', 'top_p', 'max_tokens', 'seed']) {
    const value = settings[name];
    if (value !== undefined && value !== '') body[name] = Number(value);
  }
  return body;
}

// events yields the objects of a stream of server-sent events.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error('the connection was lost');
    text += value;
    const parts = text.split('\n\n');
    text = parts.pop();
    for (const part of parts) {
      if (!part.startsWith('data: ')) continue;
      const data = part.slice('data: '.length);
      if (data === '[DONE]') return;
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message);
      yield event;
    }
  }
}

function ask(text) {
  if (running || text.trim() === '') return;
  following = true;
  turns.push({ role: 'user', content: text });
  drawAll();
  answer();
}

function again() {
  if (running) return;
  turns.pop();
  drawAll();
  answer();
}

async function answer() {
  const turn = { role: 'assistant', content: '', reasoning: '' };
  const body = request();
  turns.push(turn);
  setRunning(new AbortController());
  const draw = view(turn);
  let due = 0;
  const drawSoon = () => { due = due || requestAnimationFrame(() => { due = 0; draw(); }); };
  draw();
  say('Reading …');
  const begun = performance.now();
  let first = 0;
  let usage = null;
  let reason = '';
  try {
    const response = await fetch('v1/chat/completions', {
      method: 'POST', headers: headers(), body: JSON.stringify(body), signal: running.signal,
    });
    if (!response.ok) throw new Error(await problem(response));
    for await (const event of events(response)) {
      usage = event.usage || usage;
      const choice = event.choices[0];
      if (!choice) continue;
      reason = choice.finish_reason || reason;
      const delta = choice.delta;
      if (delta.content || delta.reasoning_content) {
        if (!first) {
          first = performance.now();
          say('Answering …');
        }
        turn.content += delta.content || '';
        turn.reasoning += delta.reasoning_content || '';
        drawSoon();
      }
    }
    say('');
  } catch (error) {
    if (error.name === 'AbortError') say(turns.includes(turn) ? 'Stopped.' : '');
    else {
      turn.error = String(error.message || error);
      say('');
    }
  }
  cancelAnimationFrame(due);
  turn.note = note(begun, first, performance.now(), usage, reason);
  setRunning(null);
  drawAll();
  store.set('turns', turns);
  $('message').focus();
}

// note says what an answer took.
function note(begun, first, ended, usage, reason) {
  const parts = [];
  if (usage && first) {
    const seconds = (ended - first) / 1000;
    parts.push(`${usage.completion_tokens} tokens`);
    // Of an answer that came all at once the time says nothing.
    if (seconds > 0.05 && usage.completion_tokens > 1) parts.push(`${((usage.completion_tokens - 1) / seconds).toFixed(1)} tokens/s`);
    parts.push(`first after ${((first - begun) / 1000).toFixed(2)} s`);
    const cached = usage.prompt_tokens_details.cached_tokens;
    parts.push(`prompt ${usage.prompt_tokens} (${cached} kept)`);
  }
  if (reason === 'length') parts.push('cut at the limit');
  return parts.join(' · ');
}

function grow() {
  const m = $('message');
  m.style.height = 'auto';
  m.style.height = m.scrollHeight + 'px';
  $('send').disabled = m.value.trim() === '';
}

$('message').addEventListener('input', grow);
$('message').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $('composer').requestSubmit();
  }
});
$('composer').addEventListener('submit', (event) => {
  event.preventDefault();
  if (running) return;
  const text = $('message').value;
  $('message').value = '';
  grow();
  ask(text);
});
$('stop').addEventListener('click', () => running && running.abort());
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && running && !$('settings').open) running.abort();
});
$('new').addEventListener('click', () => {
  if (running) running.abort();
  turns = [];
  store.set('turns', turns);
  say('');
  drawAll();
  $('message').focus();
});

$('open-settings').addEventListener('click', () => {
  for (const f of fields) $(f).value = settings[f] ?? '';
  $('settings').showModal();
});
$('settings').addEventListener('close', () => {
  const keyBefore = settings.key;
  settings = {};
  for (const f of fields) if ($(f).value !== '') settings[f] = $(f).value;
  store.set('settings', settings);
  if (settings.key !== keyBefore) {
    say('');
    loadModel();
  }
});
$('reset').addEventListener('click', () => {
  for (const f of fields) $(f).value = '';
});

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
}
$('theme').addEventListener('click', () => {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === 'dark'
    : matchMedia('(prefers-color-scheme: dark)').matches;
  setTheme(dark ? 'light' : 'dark');
  store.set('theme', document.documentElement.dataset.theme);
});

setTheme(store.get('theme', ''));
grow();
drawAll();
loadModel();
