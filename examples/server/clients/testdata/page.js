// Uses the server's page in a browser: node page.js ADDRESS FOLDER CHROMIUM KEY END [PICTURES].
// FOLDER has the package playwright-core, KEY is the server's, END the token that ends answers,
// and PICTURES a folder for screenshots. It exits with 0 if all is as it should be.
const assert = require('node:assert/strict');
const { createRequire } = require('node:module');
const [address, folder, executablePath, key, end, pictures] = process.argv.slice(2);
const { chromium } = createRequire(folder + '/')('playwright-core');

const story = 'Tell me a story about a brave fox.';

async function use(page, picture) {
  await page.goto(address);
  // Without the key, the page says what to do.
  await page.getByText('API key needed').waitFor();
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('API key').fill(key);
  await page.getByRole('button', { name: 'Done' }).click();
  await page.getByText('storyteller', { exact: true }).waitFor();
  assert.equal(await page.title(), 'storyteller · minfer');
  await picture('welcome');

  // A question by keyboard.
  await page.getByLabel('Message', { exact: true }).focus();
  await page.keyboard.type('What is 3 + 4?');
  await page.keyboard.press('Enter');
  const answers = page.getByRole('article', { name: 'Answer' });
  await answers.last().getByText('3 plus 4 is 7.').waitFor();
  await page.getByText('9 tokens').waitFor();
  await page.getByRole('button', { name: 'Again' }).click();
  await page.getByText(/prompt 21 \(20 kept\)/).waitFor();
  assert.equal(await answers.count(), 1);

  // It is a conversation, and it survives a reload.
  await page.getByLabel('Message', { exact: true }).fill(story);
  await page.getByRole('button', { name: 'Send' }).click();
  await answers.nth(1).getByRole('button', { name: 'Copy' }).waitFor();
  assert.match(await answers.nth(1).innerText(), /fox/);
  await picture('conversation');
  await page.reload();
  await answers.nth(1).waitFor();
  assert.equal(await page.getByRole('article').count(), 4);

  // An answer that would go on for ever is stopped.
  await page.route('**/v1/chat/completions', (route) => {
    const body = JSON.parse(route.request().postData());
    route.continue({ postData: JSON.stringify({ ...body, logit_bias: { [end]: -100 }, n: 16 }) });
  });
  await page.getByRole('button', { name: 'New chat' }).click();
  assert.equal(await answers.count(), 0);
  await page.getByRole('button', { name: story }).click();
  await answers.last().getByText('fox').waitFor();
  await picture('answering');
  await page.getByRole('button', { name: 'Stop the answer' }).click();
  await page.getByText('Stopped.').waitFor();
  await page.getByRole('button', { name: 'Send' }).waitFor();
  for (let i = 0; ; i++) {
    const health = await page.evaluate(async () => (await fetch('health')).json());
    if (health.busy === 0) break;
    assert.ok(i < 100, 'the slot is still in use');
    await page.waitForTimeout(10);
  }
  await page.unroute('**/v1/chat/completions');

  // Parameters take effect, and errors are shown.
  await page.getByRole('button', { name: 'New chat' }).click();
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('Most tokens').fill('3');
  await picture('settings');
  await page.getByRole('button', { name: 'Done' }).click();
  await page.getByLabel('Message', { exact: true }).fill('Count to 12.');
  await page.keyboard.press('Enter');
  await page.getByText('cut at the limit').waitFor();
  assert.equal(await answers.last().locator('.body').innerText(), 'One, two');
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('Temperature').fill('-1');
  await page.getByLabel('Temperature').evaluate((e) => e.removeAttribute('min'));
  await page.getByRole('button', { name: 'Done' }).click();
  await page.getByRole('button', { name: 'Again' }).click();
  await page.getByText('temperature: it is -1').waitFor();

  // Light and dark.
  const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const before = await back();
  await page.getByRole('button', { name: 'Switch between light and dark' }).click();
  assert.notEqual(await back(), before);
  await picture('other theme');
}

// markdown checks that what models write is shown as it should be, and is only ever text.
async function markdown(page) {
  const html = (text) => page.evaluate(async (t) => {
    const { render } = await import('/markdown.js');
    const e = document.createElement('div');
    e.append(render(t));
    return e.innerHTML;
  }, text);
  for (const [text, want] of [
    ['Hello', '<p>Hello</p>'],
    ['a\nb\n\nc', '<p>a<br>b</p><p>c</p>'],
    ['**bold** and *not* `code <b>`', '<p><strong>bold</strong> and <em>not</em> <code>code &lt;b&gt;</code></p>'],
    ['2 * 3 * 4 and a_b_c', '<p>2 * 3 * 4 and a_b_c</p>'],
    ['```go\nx := "<i>"\n```', '<pre tabindex="0"><code data-language="go">x := "&lt;i&gt;"</code></pre>'],
    ['```\nnot closed', '<pre tabindex="0"><code>not closed</code></pre>'],
    ['# Title\n- a\n- b\n\n3. c\n4. d', '<h3>Title</h3><ul><li>a</li><li>b</li></ul><ol start="3"><li>c</li><li>d</li></ol>'],
    ['> said\n> so', '<blockquote>said<br>so</blockquote>'],
    ['[a](https://example.org/x)', '<p><a href="https://example.org/x" target="_blank" rel="noopener noreferrer">a</a></p>'],
    ['[a](javascript:alert(1))', '<p>[a](javascript:alert(1))</p>'],
    ['<script>alert(1)</script><img src=x onerror=alert(1)>', '<p>&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;</p>'],
    ['', ''],
  ]) {
    assert.equal(await html(text), want, JSON.stringify(text));
  }
  await html('*'.repeat(20000) + '`'.repeat(20001) + '['.repeat(20000)); // in no time
}

(async () => {
  const browser = await chromium.launch({
    executablePath,
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
  let code = 0;
  try {
    for (const [name, options] of Object.entries({
      light: { colorScheme: 'light', viewport: { width: 1100, height: 760 } },
      dark: { colorScheme: 'dark', viewport: { width: 390, height: 780 } },
    })) {
      const page = await (await browser.newContext(options)).newPage();
      page.setDefaultTimeout(30000);
      const problems = [];
      page.on('pageerror', (e) => problems.push(String(e)));
      page.on('console', (m) => {
        // The key that is missing at first, and the temperature of -1, are reported so.
        if (m.type() === 'error' && !/status of 40[01]/.test(m.text())) problems.push(m.text());
      });
      page.on('request', (r) => {
        if (!r.url().startsWith(address)) problems.push('asks ' + r.url());
      });
      await use(page, async (what) => {
        if (pictures) await page.screenshot({ path: `${pictures}/${name} ${what}.png` });
      });
      await markdown(page);
      assert.deepEqual(problems, []);
    }
  } catch (error) {
    console.log(error.stack);
    code = 1;
  }
  await browser.close();
  process.exit(code);
})();
