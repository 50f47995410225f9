// Uses the page in a browser: node page.js ADDRESS FOLDER CHROMIUM TRACE [PICTURES]. FOLDER has the
// package playwright-core, TRACE is a trace of another run, and PICTURES a folder for screenshots.
// It exits with 0 if all is as it should be.
const assert = require('node:assert/strict');
const { createRequire } = require('node:module');
const [address, folder, executablePath, trace, pictures] = process.argv.slice(2);
const { chromium } = createRequire(folder + '/')('playwright-core');

async function use(page, picture, first) {
  await page.goto(address);
  if (first) await page.getByText('Give a prompt and press Run').waitFor();
  await page.waitForFunction(() => globalThis.app?.live);
  assert.equal(await page.title(), 'storyteller');

  // A run, live.
  await page.getByLabel('Prompt').fill('What is 3 + 4?');
  await page.getByLabel('Prompt').press('Enter');
  await page.waitForFunction(() => app.run.steps.length === 9 && app.run.steps[8].lens && !app.busy);
  const tokens = page.getByLabel('Tokens', { exact: true });
  assert.match(await tokens.innerText(), /3 plus 4 is 7\./);
  assert.equal(await page.getByText('Give a prompt').isVisible(), false);
  assert.equal(await page.getByRole('button', { name: /^layer \d/ }).count(), 4);
  await page.getByText('Where the time goes').waitFor();
  await picture('run');

  // A layer opens into its nodes; a node shows what it is and what it holds.
  await page.getByRole('button', { name: 'layer 1', exact: true }).click();
  await page.getByRole('button', { name: 'blk.1.ffn_down', exact: true }).click();
  const panel = page.getByRole('tabpanel');
  await panel.getByRole('heading', { name: 'blk.1.ffn_down' }).waitFor();
  for (const text of ['blk.1.ffn_down.weight Q8_0 [512 × 256]', 'Heat map', 'rms']) {
    await panel.getByText(text, { exact: false }).first().waitFor();
  }
  await panel.getByRole('img', { name: /^Histogram from -/ }).waitFor();
  await panel.getByRole('button', { name: 'blk.1.ffn_act' }).first().click();
  await panel.getByRole('heading', { name: 'blk.1.ffn_act' }).waitFor();
  await page.getByRole('radio', { name: 'time' }).click();
  await picture('node');

  // Steps by the slider, the keys and the tokens.
  const steps = await page.evaluate(() => app.run.steps.length);
  await page.getByLabel('Step').fill('1');
  await page.getByText(`step 2 of ${steps}: decode of 1, position 21`).waitFor();
  await page.getByLabel('Step').blur();
  await page.keyboard.press('ArrowLeft');
  await page.getByText(`step 1 of ${steps}: prefill of 21`).waitFor();
  await tokens.getByText('7', { exact: true }).click();
  await page.getByRole('tab', { name: 'Next token' }).click();
  await panel.getByText(/^7$/).first().waitFor();

  // Attention and lens.
  await page.getByRole('tab', { name: 'Attention' }).click();
  await panel.getByLabel('Layer').selectOption('blk.2.attn');
  await panel.getByRole('button', { name: 'head 3' }).click();
  await panel.getByRole('heading', { name: 'Head 3' }).waitFor();
  await panel.getByRole('img', { name: 'Attention by query and key' }).first().hover({ position: { x: 4, y: 300 } });
  await panel.getByText(/gives \d+ % to/).waitFor();
  await picture('attention');
  await page.getByRole('tab', { name: 'Lens' }).click();
  await page.waitForFunction(() => app.step.lens && app.step.lens.length === 5);
  const [lens, logits] = await page.evaluate(() => [app.step.lens[4].top[0], app.step.logits[0].top[0]]);
  assert.deepEqual(lens, logits, 'the last layer of the lens is not the model');
  // The keys go through layers, nodes and steps, also when a button has the focus.
  await panel.getByRole('heading', { name: /^blk\.3\./ }).waitFor();
  await page.keyboard.press('ArrowDown');
  await panel.getByRole('heading', { name: /^blk\.2\./ }).waitFor();
  const at = await page.evaluate(() => app.at);
  await page.keyboard.press('ArrowLeft');
  await page.waitForFunction((i) => app.at === i, at - 1);
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowUp');
  await panel.getByRole('heading', { name: /^blk\.3\./ }).waitFor();
  await picture('lens');

  // A second run along the same tokens: without fused operations all that both have is equal.
  await page.getByRole('button', { name: 'Compare', exact: true }).click();
  await page.getByText(`No sampled value is further apart than 0 in ${steps} steps.`).waitFor();
  await picture('equal');
  // Of another quantisation it is not.
  await page.getByLabel('Second run').selectOption({ label: 'storyteller-q4_0' });
  await page.getByRole('button', { name: 'Compare', exact: true }).click();
  await panel.getByRole('button', { name: 'step 1, embed' }).waitFor();
  await panel.getByLabel('Bound').fill('0.3');
  await panel.getByLabel('Bound').press('Enter');
  await panel.getByText(/First apart:|No sampled value/).waitFor();
  await picture('apart');

  // On two devices, values are equal, and the other run can be looked at: which device has what, and what is
  // copied between them.
  await page.getByLabel('Second run').selectOption({ label: 'on relay,cpu' });
  await page.getByRole('button', { name: 'Compare', exact: true }).click();
  await panel.getByText('on relay,cpu, on relay, cpu').waitFor();
  await panel.getByLabel('Bound').fill('0');
  await panel.getByLabel('Bound').press('Enter');
  await panel.getByText(`No sampled value is further apart than 0 in ${steps} steps.`).waitFor();
  await panel.getByRole('button', { name: 'Show the second run' }).click();
  await page.getByRole('radio', { name: 'device' }).click();
  assert.equal(await page.title(), 'on relay,cpu');
  for (const device of ['cpu', 'relay', 'copied']) await page.locator('#legend').getByText(device, { exact: true }).waitFor();
  await page.evaluate(() => app.select('embed'));
  await panel.getByText(/^1\.0 KiB from cpu to relay$/).waitFor();
  const colour = (name) => page.getByRole('button', { name, exact: true }).locator('rect').first().getAttribute('fill');
  await page.getByRole('button', { name: 'Expand all' }).click();
  assert.notEqual(await colour('blk.1.attn_q'), await colour('blk.1.attn'), 'two devices in one colour');
  const ours = await colour('embed');
  await picture('devices');
  await page.getByRole('tab', { name: 'Compare' }).click();
  await panel.getByRole('button', { name: 'Show the second run' }).click();
  assert.equal(await page.title(), 'storyteller');
  assert.equal(await colour('embed'), ours, 'a device changes its colour from run to run');
  await page.getByRole('button', { name: 'Collapse' }).click();

  // What is watched closely comes whole from the next run on.
  await page.getByRole('tab', { name: 'Node' }).click();
  await panel.getByRole('button', { name: 'Watch closely' }).click();
  await page.getByRole('button', { name: 'Run' }).click();
  await page.waitForFunction(() => !app.busy && app.step?.values().get(app.node?.id)?.sample.stride === 1);

  // What was saved opens again, and so does what another program wrote.
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByText('Save').click()]);
  const saved = await download.path();
  const before = await page.evaluate(() => app.run.steps.map((s) => s.line));
  await page.locator('#open').setInputFiles([saved, trace]);
  await page.waitForFunction(() => app.runs[1].steps.length === 3);
  assert.deepEqual(await page.evaluate(() => app.run.steps.map((s) => s.line)), before);
  await page.locator('#open').setInputFiles(__filename);
  await page.getByText(/page\.js: .*JSON/).waitFor();
  await hostile(page);

  // A run that is stopped, once a click is quicker than the story.
  const go = page.locator('#go');
  const ended = async () => {
    await page.waitForFunction(() => !app.busy);
    return page.evaluate(() => app.run.steps.length);
  };
  await page.getByLabel('Prompt').fill('Tell me a story about a brave fox.');
  await page.getByLabel('tokens', { exact: true }).fill('900');
  await go.click();
  const whole = await ended();
  assert.ok(whole > 50, `a story in ${whole} steps`);
  do {
    await go.click();
    await go.click();
  } while (await ended() >= whole);
  assert.equal(await go.innerText(), 'Run');

  // Another page that comes later sees the same.
  const other = await page.context().newPage();
  await other.goto(address);
  await other.waitForFunction((n) => globalThis.app?.run.steps.length === n, await page.evaluate(() => app.run.steps.length));
}

// hostile opens traces that are not what they should be, or whose texts would be code if they were taken for it.
async function hostile(page) {
  const code = '<img src=x onerror="app.say(1)"><script>app.say(1)</script>"\'\u202e';
  const node = (id, op, sources) => ({ id, name: code + id, op, shape: [2], dtype: 'F32', device: code, sources, weights: [{ name: code, type: code, in: 1, out: 2 }], payload: { [code]: code } });
  const header = { kind: 'header', format: 'minfer-trace', version: 1, model: { name: code, architecture: code, devices: [code] } };
  const graph = (nodes) => ({ kind: 'graph', uid: 1, captured: [code], schedule: { graph: { params: { Phase: 0 }, nodes }, splits: [] } });
  const good = graph([node(0, 'Input', []), node(1, code, [0]), node(2, 'Attention', [1])]);
  const pass = (more, nodes) => ({ kind: 'pass', pass: 1, graph: 1, phase: code, start: 0, time: 1, tokens: [1], texts: [code], positions: [0], sessions: [1], nodes, error: code, ...more });
  const whole = [{ node: 1, time: 1, bytes: 8, stats: { min: -1, max: 2, mean: 0, rms: 1, nan: 1 }, histogram: [1], sample: { rows: [0], stride: 1, values: ['NaN', 1] } },
    { node: 2, time: 1, bytes: 8, attention: { heads: 1, rows: 1, keys: 1, weights: '/w==' } }];
  const open = (...records) => page.locator('#open').setInputFiles({ name: 'hostile.trace', mimeType: 'text/plain', buffer: Buffer.from(records.map((r) => (typeof r === 'string' ? r : JSON.stringify(r))).join('\n')) });

  await open(header, good, pass({ logits: [{ top: [{ token: 1, text: code, logit: '+Inf', prob: 'NaN' }] }] }, whole), { kind: 'choice', position: 1, token: 2, text: code }, { kind: 'lens', pass: 1, layers: [{ node: code, top: [{ text: code, prob: 1 }] }] });
  await page.waitForFunction(() => app.run.steps.length === 1);
  assert.equal(await page.title(), code);
  for (const tab of ['node', 'attention', 'lens', 'next', 'compare']) await page.evaluate((t) => app.setTab(t), tab);
  for (const mode of ['op', 'device', 'time', 'size', 'diff']) await page.evaluate((m) => app.setMode(m), mode);
  for (const id of [0, 1, 2]) await page.evaluate((name) => app.select(name), code + id);
  assert.equal(await page.locator('img, main script').count(), 0);
  assert.equal(await page.locator('#note').innerText(), '');
  assert.ok(!(await page.locator('#text').innerText()).includes('\u202e'), 'text that turns what follows it around');

  for (const [records, want] of [
    [[header, graph([node(0, 'Input', [1])])], 'nodes are not in order'],
    [[header, graph([node(0, 'Input', [0])])], 'nodes are not in order'],
    [[header, graph([{ id: 0 }])], 'some without name'],
    [[header, { kind: 'graph', uid: 1 }], 'has no nodes'],
    [[header, pass({}, [])], 'does not come before it'],
    [[header, good, pass({}, [{ node: 3 }])], 'has a node 3'],
    [[header, good, pass({}, [{ node: -1 }])], 'has a node -1'],
    [[header, good, pass({ positions: [] }, [])], 'lacks tokens'],
    [[header, good, pass({}, [{ node: 2, attention: { heads: 1e9, rows: 1, keys: 1, weights: '/w==' } }])], 'weights of attention'],
    [[header, good, pass({}, [{ node: 2, sample: { rows: [], values: [1] } }])], 'sample is not of its rows'],
    [[header, good, pass({}, whole), '{"kind":"pass"'], 'JSON'],
    [[header, good, pass({}, [{ node: 1, stats: { min: code } }])], 'is none'],
    [[header, good, pass({}, [{ node: 1, stats: { min: '-Inf', max: 1, mean: 1, rms: 1 } }])], 'is none'],
    [[header, good, pass({}, [{ node: 1, histogram: [-1] }])], 'is none'],
    [[header, { kind: 'choice', position: 1, text: 7 }], 'no token'],
    [[header, { kind: 'lens', layers: [{ node: 'x', top: [{ text: 'x', prob: code }] }] }], 'are none'],
    [[header, 'null'], 'no record'],
    [['7'], 'no record'],
    [[{ ...header, version: 2 }], 'another version'],
    [[{ ...header, model: 7 }], 'names no model'],
  ]) {
    await open(...records);
    await page.locator('#note').getByText(want).waitFor();
  }
  assert.ok((await page.locator('#note').innerText()).startsWith('hostile.trace: '));

  // Characters that are several tokens, and what cannot be seen.
  const spelled = await page.evaluate(async () => {
    const { spelled, shown } = await import('./data.js');
    const b = (...bytes) => ({ text: '\ufffd', bytes: btoa(String.fromCharCode(...bytes)) });
    const all = [{ text: 'a' }, b(0xe4), b(0xbd, 0xa0), b(0xf0, 0x9f), b(0xa6), b(0x8a), { text: '\n\t' }, b(0xff), { text: 'é' }, b(0xe4)];
    return [spelled(all), [...all, { text: ' x  ' }, { text: '' }, { text: '\u200d\0' }].map(shown)];
  });
  assert.deepEqual(spelled, [['a', '◦', '你', '◦', '◦', '🦊', '↵\n⇥', '\ufffd', 'é', '◦'], ['a', '‹E4›', '‹BD›‹A0›', '‹F0›‹9F›', '‹A6›', '‹8A›', '↵⇥', '‹FF›', 'é', '‹E4›', '·x··', '∅', '‹200D›␀']]);
}

(async () => {
  const browser = await chromium.launch({ executablePath, timeout: 0, args: ['--no-sandbox'] });
  try {
    for (const colorScheme of ['light', 'dark']) {
      const context = await browser.newContext({ colorScheme, viewport: { width: 1440, height: 860 } });
      context.setDefaultTimeout(0); // a busy machine may take its time; the test's own limit ends what hangs
      const page = await context.newPage();
      const faults = [];
      page.on('pageerror', (e) => faults.push(e.stack));
      page.on('console', (m) => m.type() === 'error' && faults.push(m.text()));
      page.on('request', (r) => new URL(r.url()).host !== new URL(address).host && !r.url().startsWith('blob:') && faults.push(`asks ${r.url()}`));
      await use(page, (name) => pictures && page.waitForTimeout(200).then(() => page.screenshot({ path: `${pictures}/viz-${name}-${colorScheme}.png` })), colorScheme === 'light');
      assert.deepEqual(faults, []);
      await context.close();
    }
  } finally {
    await browser.close();
  }
})().catch((e) => {
  console.error(e);
  process.exit(1);
});
