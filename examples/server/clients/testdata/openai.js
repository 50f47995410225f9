// Calls the server by the npm package openai: node openai.js ADDRESS FOLDER, where FOLDER has
// the package. It exits with 0 if all is as it should be.
const assert = require('node:assert/strict');
const { createRequire } = require('node:module');
const [address, folder] = process.argv.slice(2);
const OpenAI = createRequire(folder + '/')('openai').default;

const client = new OpenAI({ baseURL: address + '/v1', apiKey: 'none', maxRetries: 0 });
const ask = (content, more) => ({ model: 'storyteller', messages: [{ role: 'user', content }], temperature: 0, ...more });
const counted = 'One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve.';

async function text(stream) {
  let all = '';
  for await (const chunk of stream) all += chunk.choices[0]?.delta?.content ?? '';
  return all;
}

async function idle() {
  for (let i = 0; i < 100; i++) {
    const health = await (await fetch(address + '/health')).json();
    if (health.busy === 0 && health.waiting === 0) return;
    await new Promise((done) => setTimeout(done, 10));
  }
  assert.fail('a slot is still in use');
}

const weather = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'Get the current weather in a city.',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
};

const tests = {
  async chat() {
    const answer = await client.chat.completions.create(ask('What is 3 + 4?'));
    assert.equal(answer.choices[0].message.content, '3 plus 4 is 7.');
    assert.equal(answer.choices[0].finish_reason, 'stop');
    assert.equal(answer.usage.completion_tokens, 9);
  },
  async stream() {
    const stream = await client.chat.completions.create(ask('Count to 12.', { stream: true, stream_options: { include_usage: true } }));
    let all = '';
    let usage;
    for await (const chunk of stream) {
      all += chunk.choices[0]?.delta?.content ?? '';
      usage = chunk.usage ?? usage;
    }
    assert.equal(all, counted);
    assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
  },
  async streamHelper() {
    const stream = client.chat.completions.stream(ask('What is 3 + 4?'));
    const pieces = [];
    stream.on('content', (delta) => pieces.push(delta));
    assert.equal(await stream.finalContent(), '3 plus 4 is 7.');
    assert.ok(pieces.length > 3);
  },
  async tools() {
    const answer = await client.chat.completions.create(ask('What is the weather in Oslo?', { tools: [weather] }));
    const { message, finish_reason: reason } = answer.choices[0];
    assert.equal(reason, 'tool_calls');
    assert.equal(message.content, null);
    assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), { city: 'Oslo' });
  },
  async runTools() {
    for (const stream of [false, true]) {
      const asked = [];
      const runner = client.chat.completions.runTools(ask('What is the weather in Oslo?', {
        stream,
        tools: [{
          type: 'function',
          function: {
            ...weather.function,
            parse: JSON.parse,
            function: ({ city }) => {
              asked.push(city);
              return 'sunny, 21 degrees';
            },
          },
        }],
      }));
      assert.equal(await runner.finalContent(), 'In Oslo it is sunny and 21 degrees.');
      assert.deepEqual(asked, ['Oslo']);
    }
  },
  async logprobs() {
    const answer = await client.chat.completions.create(ask('What is 3 + 4?', { logprobs: true, top_logprobs: 2 }));
    const tokens = answer.choices[0].logprobs.content;
    assert.equal(tokens.map((t) => t.token).join(''), '3 plus 4 is 7.');
    assert.ok(tokens.every((t) => t.top_logprobs.length === 2 && t.logprob <= 0));
  },
  async choicesAndStops() {
    const answer = await client.chat.completions.create(ask('Count to 12.', { n: 2, stop: [', four'] }));
    assert.deepEqual(answer.choices.map((c) => c.message.content), ['One, two, three', 'One, two, three']);
    const short = await client.chat.completions.create(ask('Count to 12.', { max_completion_tokens: 3 }));
    assert.equal(short.choices[0].finish_reason, 'length');
  },
  async completions() {
    const answer = await client.completions.create({ model: 'storyteller', prompt: ['One, two, three,'], max_tokens: 4, temperature: 0 });
    assert.match(answer.choices[0].text, /^ four/);
    const stream = await client.completions.create({ model: 'storyteller', prompt: 'One, two, three,', max_tokens: 4, temperature: 0, stream: true });
    let all = '';
    for await (const chunk of stream) all += chunk.choices[0].text;
    assert.equal(all, answer.choices[0].text);
  },
  async schema() {
    const schema = { type: 'object', properties: { animal: { enum: ['fox', 'owl'] }, brave: { type: 'boolean' } }, required: ['animal', 'brave'], additionalProperties: false };
    const answer = await client.chat.completions.parse(ask('Tell me about a fox.', {
      max_tokens: 100, response_format: { type: 'json_schema', json_schema: { name: 'facts', strict: true, schema } },
    }));
    const facts = JSON.parse(answer.choices[0].message.content);
    assert.ok(['fox', 'owl'].includes(facts.animal) && typeof facts.brave === 'boolean');
    const bad = { type: 'json_schema', json_schema: { name: 'x', schema: { type: 'thing' } } };
    await assert.rejects(client.chat.completions.create(ask('Hi', { response_format: bad, stream: true })), (e) => e instanceof OpenAI.BadRequestError && e.param === 'response_format.json_schema.schema');
  },
  async embeddings() {
    // The package asks for base64 and turns it into numbers.
    const answer = await client.embeddings.create({ model: 'storyteller', input: ['a brave fox', 'seven'] });
    assert.deepEqual(answer.data.map((e) => [e.index, e.embedding.length]), [[0, 256], [1, 256]]);
    const length = Math.hypot(...answer.data[0].embedding);
    assert.ok(Math.abs(length - 1) < 1e-5);
  },
  async models() {
    const names = [];
    for await (const model of client.models.list()) names.push(model.id);
    assert.deepEqual(names, ['storyteller']);
    assert.equal((await client.models.retrieve('storyteller')).id, 'storyteller');
  },
  async errors() {
    await assert.rejects(client.chat.completions.create({ ...ask('Hi'), model: 'gpt-5' }), (e) => e instanceof OpenAI.NotFoundError && e.code === 'model_not_found' && e.param === 'model');
    await assert.rejects(client.chat.completions.create(ask('Hi', { temperature: 'hot' })), (e) => e instanceof OpenAI.BadRequestError && e.param === 'temperature');
    await assert.rejects(client.chat.completions.create({ model: 'storyteller', messages: [], stream: true }), OpenAI.BadRequestError);
    await assert.rejects(client.chat.completions.create(ask('Hello. '.repeat(2000))), (e) => e.code === 'context_length_exceeded');
  },
  async aborts() {
    for (let i = 0; i < 50; i++) {
      const stream = await client.chat.completions.create(ask('Count to 12.', { stream: true, n: 4 }));
      let pieces = 0;
      for await (const chunk of stream) {
        if (chunk.choices[0]?.delta?.content && ++pieces === 3) break; // which aborts
      }
      await idle();
    }
    assert.equal(await text(await client.chat.completions.create(ask('Count to 12.', { stream: true }))), counted);
  },
  async concurrent() {
    const all = await Promise.all(Array.from({ length: 32 }, async () => text(await client.chat.completions.create(ask('Count to 12.', { stream: true })))));
    assert.deepEqual(new Set(all), new Set([counted]));
    await idle();
  },
};

(async () => {
  let failed = 0;
  for (const [name, test] of Object.entries(tests)) {
    try {
      await test();
    } catch (error) {
      failed++;
      console.log(`${name}: ${error.stack}`);
    }
  }
  process.exit(failed ? 1 : 0);
})();
