// SPDX-License-Identifier: Apache-2.0
'use strict';
/*
 * The JavaScript kernel: runs one step after another in one scope. isobox-init
 * starts it as python.py beside this, and docs/guest-protocol.md says what the two
 * tell each other.
 *
 * A step is evaluated by V8's inspector in its REPL mode, in this thread: let,
 * const and class stay and may be declared again, await works at the top level,
 * and there is a value at the end. What that mode lacks is import: those are
 * found and rewritten (see Imports), by asking V8 itself what is code.
 *
 * SIGINT ends what runs synchronously (vm's breakOnSigint) and no code can catch
 * that. While a step waits, it is abandoned. What it runs after an await cannot be
 * interrupted as long as it does not wait again.
 */
(() => {
const crypto = require('crypto');
const fs = require('fs');
const inspector = require('inspector');
const net = require('net');
const path = require('path');
const stream = require('stream');
const util = require('util');
const vm = require('vm');
const { createRequire } = require('module');

const KERNEL = 40, STEP = 41, RESTORED = 43;
const STARTED = 49, READY = 64, ARTIFACT = 65, ARTIFACT_DATA = 66, STEP_DONE = 67;
const HEADER = 8, CHUNK = 65536;
const LINK = 1023; // guest/child.h
const BOX = '/box';
const WRITES = 200, WRITES_MS = 50;
const UUIDS = 256; // more than node keeps the randomness of

const { Promise, SyntaxError, setImmediate } = globalThis;
const { alloc, concat, from } = Buffer;
const { writeSync } = fs;
const now = performance.now.bind(performance);
const { nextTick, reallyExit } = process;

/* Frames: a header of u32 length and u8 type, and the payload. */

function frame(type, ...parts) {
  const payload = concat(parts);
  const header = alloc(HEADER);
  header.writeUInt32LE(payload.length, 0);
  header[4] = type;
  return concat([header, payload]);
}

function u32(value) {
  const b = alloc(4);
  b.writeUInt32LE(value >>> 0);
  return b;
}

function string(value) {
  const data = from(value);
  return concat([u32(data.length), data]);
}

class Reader {
  constructor(data) {
    this.data = data;
    this.at = 0;
  }

  u8() {
    return this.data[this.at++];
  }

  u32() {
    this.at += 4;
    return this.data.readUInt32LE(this.at - 4);
  }

  string() {
    const size = this.u32();
    this.at += size;
    return this.data.subarray(this.at - size, this.at);
  }
}

/* The streams of the program, whole before each step. node's own would close the
 * descriptors when they are ended. */

function writeAll(fd, data) {
  for (let at = 0; at < data.length;) {
    try {
      at += writeSync(fd, data, at);
    } catch (e) {
      if (e.code !== 'EAGAIN') // a child process may have made it so
        throw e;
    }
  }
}

class Output extends stream.Writable {
  constructor(fd) {
    super({ autoDestroy: false, emitClose: false });
    this.fd = fd;
    this._type = 'pipe';
    this.count = 0; // of writes, in this step
    this.due = 0;
    this.held = [];
    this.heldBytes = 0;
  }

  /* At once, unless there are many: then some of them together. Writable's own
   * would never write again if an interrupt had cut it short. */
  write(data, encoding, done) {
    if (typeof encoding === 'function')
      [encoding, done] = [undefined, encoding];
    const bytes = from(data, encoding);
    if (this.held.push(bytes) === 1 && this.count > WRITES)
      setImmediate(() => this.flush());
    this.heldBytes += bytes.length;
    if (++this.count <= WRITES || this.heldBytes > CHUNK || now() > this.due)
      this.flush();
    if (typeof done === 'function')
      nextTick(done);
    return true;
  }

  flush() {
    const data = concat(this.held);
    this.held = [];
    this.heldBytes = 0;
    writeAll(this.fd, data);
    this.due = now() + WRITES_MS;
  }

  end(data, encoding, done) {
    done = [data, encoding, done].find((f) => typeof f === 'function');
    if (typeof data !== 'function' && data !== undefined && data !== null)
      this.write(data, encoding);
    nextTick(() => this.emit('finish'));
    if (done !== undefined)
      nextTick(done);
    return this;
  }

  destroy() {
    return this;
  }
}

class Streams {
  constructor() {
    // Further descriptors of the same pipes, should the user close theirs.
    this.saved = [1, 2].map((fd) => fs.openSync(`/proc/self/fd/${fd}`, 'w'));
    this.same = this.saved.map((fd) => this.identity(fd));
    this.input = null;
    const define = (name, get) => Object.defineProperty(
      process, name, { configurable: true, enumerable: true, get });
    const [out, err] = this.own = [new Output(1), new Output(2)];
    define('stdout', () => out);
    define('stderr', () => err);
    define('stdin', () => this.input ??= new fs.ReadStream(
      null, { fd: 0, autoClose: false }));
    // Without what the inspector adds to it: that keeps all arguments.
    globalThis.console = new console.Console(out, err);
  }

  identity(fd) {
    const st = fs.fstatSync(fd, { bigint: true });
    return `${st.dev}:${st.ino}`;
  }

  begin() {
    this.input = null;
    for (const i of [0, 1]) {
      this.restore(i);
      this.own[i].count = 0;
    }
  }

  restore(i) {
    const fd = i + 1;
    try {
      if (this.identity(fd) === this.same[i])
        return;
      fs.closeSync(fd);
    } catch {
      // It is closed.
    }
    // The lowest free one is what open(2) returns.
    const below = [];
    let got;
    while ((got = fs.openSync(`/proc/self/fd/${this.saved[i]}`, 'w')) < fd)
      below.push(got);
    for (const n of got > fd ? [...below, got] : below)
      fs.closeSync(n);
  }

  flush() {
    for (const s of this.own)
      s.flush();
  }

  /* To stderr, whatever has become of process.stderr. */
  complain(text) {
    this.flush();
    writeAll(this.saved[1], from(text));
  }
}

/* What the current step shows; from its end on, what the next one does. */

const METHODS = [
  ['_repr_html_', 'text/html'], ['_repr_markdown_', 'text/markdown'],
  ['_repr_svg_', 'image/svg+xml'], ['_repr_png_', 'image/png'],
  ['_repr_latex_', 'text/latex'], ['_repr_json_', 'application/json'],
];
const BUNDLES = [Symbol.for('Jupyter.display'), '_repr_mimebundle_'];
const TYPE = /^[a-z]+\/[a-z0-9][a-z0-9.+_-]{0,63}$/;

class Artifacts {
  constructor() {
    this.items = [];
    this.begin(8, 2 << 20);
  }

  begin(count, size) {
    this.count = count;
    this.size = size;
    this.dropped = false;
  }

  add(type, data) {
    const text = typeof data === 'string';
    const bytes = from(data);
    const size = text ? bytes.length : Math.ceil(bytes.length / 3) * 4;
    if (size > this.size || this.items.length >= this.count)
      this.dropped = true;
    else if (TYPE.test(type))
      this.items.push([type, text, bytes]);
  }

  addTyped(type, data) {
    if (data === undefined || data === null)
      return false;
    if (type === 'application/json' || type.endsWith('+json'))
      data = typeof data === 'string' ? data : JSON.stringify(data);
    else if (type.startsWith('image/') && type !== 'image/svg+xml')
      data = typeof data === 'string' ? from(data, 'base64') : data;
    if (typeof data !== 'string' && !(data instanceof Uint8Array))
      return false;
    this.add(type, data);
    return true;
  }

  addBundle(bundle, plain) {
    let found = false;
    for (const [type, data] of Object.entries(bundle)) {
      if (type !== 'text/plain' || plain)
        found = this.addTyped(type, data) || found;
    }
    return found;
  }

  /* True if there was more to show than what inspect() says. */
  async addValue(value, plain) {
    let found = false;
    const rich = value !== null && (typeof value === 'object' ||
        typeof value === 'function');
    for (const key of rich ? BUNDLES : []) {
      if (!found && typeof value[key] === 'function') {
        const bundle = await value[key]();
        found = bundle ? this.addBundle(bundle, false) : false;
      }
    }
    for (const [key, type] of rich && !found ? METHODS : []) {
      if (typeof value[key] === 'function')
        found = this.addTyped(type, await value[key]()) || found;
    }
    if (plain)
      this.add('text/plain', util.inspect(value));
    return found;
  }

  /* The frames of all that was shown. */
  take() {
    const frames = [];
    for (const [type, text, data] of this.items.splice(0)) {
      frames.push(frame(ARTIFACT, string(type), from([text ? 1 : 0]),
        u32(data.length)));
      for (let i = 0; i < data.length; i += CHUNK)
        frames.push(frame(ARTIFACT_DATA, data.subarray(i, i + CHUNK)));
    }
    return frames;
  }
}

/*
 * import in code that V8 takes for a script. Where a declaration is, V8 tells by
 * its error; what follows is a small grammar. Whether an "import(" is code and no
 * text, V8 tells as well: something is put there that is an error in code only.
 */

class Imports {
  constructor(session) {
    this.session = session;
    session.connect();
    const hidden = (name, value) => Object.defineProperty(
      globalThis, name, { value, enumerable: false });
    hidden('__isobox_import', (name, options) => this.load(name, options));
    hidden('__isobox_meta', {
      url: `file://${BOX}/main.mjs`, filename: `${BOX}/main.mjs`, dirname: BOX,
      resolve: (name) => require('url').pathToFileURL(
        this.require.resolve(name)).href,
    });
    this.fromBox = this.importer(`${BOX}/main.mjs`);
    this.fromHere = this.importer(path.resolve('main.mjs'));
    this.makeRequire();
  }

  /* node warns once of the way that imports go here: not the user's affair. */
  async prepare() {
    const { emitWarning } = process;
    process.emitWarning = () => {};
    await this.fromHere('node:fs');
    process.emitWarning = emitWarning;
  }

  importer(filename) {
    return new vm.Script('(name, options) => import(name, options)', {
      filename,
      importModuleDynamically: vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
    }).runInThisContext();
  }

  /* The files of a step, or else those of the working directory. */
  isInBox(name) {
    return /^\.\.?\//.test(name) && fs.existsSync(path.join(BOX, name));
  }

  async load(name, options) {
    name = String(name);
    if (this.isInBox(name))
      return this.fromBox(name, options);
    return this.fromHere(name, options);
  }

  makeRequire() {
    const here = createRequire(path.resolve('main.js'));
    const box = createRequire(`${BOX}/main.js`);
    const choose = (name) => {
      if (typeof name !== 'string' || !/^\.\.?\//.test(name))
        return here;
      try {
        box.resolve(name);
        return box;
      } catch {
        return here;
      }
    };
    this.require = Object.assign((name) => choose(name)(name), here, {
      resolve: (name, ...rest) => choose(name).resolve(name, ...rest),
    });
  }

  /* V8's first error in code as the body of a function: {message, at} or
   * null. */
  error(code) {
    let found = null;
    const before = '(async () => {\n';
    this.session.post('Runtime.enable'); // compileScript asks for it
    this.session.post('Runtime.compileScript', {
      expression: `${before}${code}\n})`, sourceURL: '', persistScript: false,
    }, (e, result) => {
      const details = result?.exceptionDetails;
      if (details) {
        const lines = code.split('\n');
        let at = details.columnNumber;
        for (let i = 0; i < details.lineNumber - 1 && i < lines.length; i++)
          at += lines[i].length + 1;
        found = { message: details.exception?.description ?? '', at };
      }
    });
    this.session.post('Runtime.disable');
    return found;
  }

  rewrite(code) {
    if (!/\bimport\b/.test(code))
      return code;
    for (let found; (found = this.error(code)) !== null;) {
      let change = null;
      if (found.message.includes('import statement outside'))
        change = this.declaration(code, found.at);
      else if (found.message.includes("'import.meta' outside"))
        change = this.meta(code, found.at);
      if (change === null)
        break;
      code = code.slice(0, change.from) + change.text + code.slice(change.to);
    }
    return this.calls(code);
  }

  meta(code, at) {
    const m = /import\s*\.\s*$/.exec(code.slice(0, at));
    const [from, to] = m ? [m.index, at + 4] : [at, at + 11];
    if (!/^import\s*\.\s*meta$/.test(code.slice(from, to)))
      return null;
    return { from, to, text: '__isobox_meta' };
  }

  calls(code) {
    const found = [...code.matchAll(/(?<![\w$.#])import(?=\s*\()/g)];
    for (const { index } of found.reverse()) {
      const rest = code.slice(index + 6);
      const broken = `${code.slice(0, index)}@mport${rest}`;
      if (this.error(broken) !== null)
        code = `${code.slice(0, index)}__isobox_import${rest}`;
    }
    return code;
  }

  /* The declaration at from as code of a script, on as many lines. */
  declaration(code, from) {
    const t = new Tokens(code, from);
    let all = null;
    const names = [];
    if (t.next() !== 'import')
      return null;
    let word = t.next();
    if (!t.isString(word)) {
      if (t.isName(word)) {
        names.push(`default: ${word}`);
        word = t.next();
        if (word === ',')
          word = t.next();
      }
      if (word === '*') {
        if (t.next() !== 'as')
          return null;
        all = t.next();
        word = t.next();
      } else if (word === '{') {
        word = this.bindings(t, names);
      }
      if (word !== 'from')
        return null;
      word = t.next();
    }
    if (!t.isString(word))
      return null;
    const name = word;
    let to = t.at;
    let options = '';
    if (t.next() === 'with') {
      const begin = t.at;
      while (!['}', ''].includes(word = t.next()))
        ;
      options = `, {with: ${code.slice(begin, t.at)}}`;
      to = t.at;
      t.next();
    }
    if (t.last === ';')
      to = t.at;
    const load = `await __isobox_import(${name}${options})`;
    const pick = `{${names.join(', ')}}`;
    const text = all === null && names.length === 0 ? load
      : all === null ? `const ${pick} = ${load}`
        : `const ${all} = ${load}${names.length ? `, ${pick} = ${all}` : ''}`;
    const lines = code.slice(from, to).split('\n').length - 1;
    return { from, to, text: `${text};${'\n'.repeat(lines)}` };
  }

  bindings(t, names) {
    for (let word; (word = t.next()) !== '}';) {
      if (word === '')
        return '';
      if (word === ',')
        continue;
      const saved = t.at;
      if (t.next() === 'as') {
        names.push(`${word}: ${t.next()}`);
      } else {
        t.at = saved;
        names.push(word);
      }
    }
    return t.next();
  }
}

/* The words of an import declaration. */
class Tokens {
  constructor(code, at) {
    this.code = code;
    this.at = at;
    this.last = '';
  }

  next() {
    const word = /(?:\s|\/\/.*|\/\*[^]*?\*\/)*([\p{ID_Start}$_][\p{ID_Continue}$\u200c\u200d]*|'(?:[^'\\\n]|\\[^])*'|"(?:[^"\\\n]|\\[^])*"|[^])?/uy;
    word.lastIndex = this.at;
    const m = word.exec(this.code);
    this.at = word.lastIndex;
    return this.last = m?.[1] ?? '';
  }

  isString(word) {
    return /^['"]/.test(word);
  }

  isName(word) {
    return /^[\p{ID_Start}$_]/u.test(word);
  }
}

/* Thrown by process.exit() where nothing better unwinds. */
class Exit {
  [util.inspect.custom]() {
    return 'process.exit()';
  }
}

/* V8's own cannot be given a new seed. */
function makeRandom() {
  const pool = new BigUint64Array(128);
  let at = pool.length;
  return function random() {
    if (at === pool.length) {
      crypto.randomFillSync(pool);
      at = 0;
    }
    return Number(pool[at++] >> 11n) / 2 ** 53;
  };
}

class Kernel {
  constructor() {
    this.connect();
    this.imports = new Imports(new inspector.Session());
    this.pending = false; // the inspector owes the value of a step
    this.streams = new Streams();
    this.artifacts = new Artifacts();
    this.input = alloc(0);
    this.random = Math.random;
    this.left = false; // by process.exit()
    this.running = null; // ends the step early: (outcome) => void
    this.guard = new vm.Script('__isobox_run()', { filename: 'node:vm' });
    this.onInterrupt = () => this.interrupted();
    this.onError = (e) => this.stray(e);
    this.prepare();
    this.link = new net.Socket({ fd: LINK, readable: true, writable: true });
    this.link.on('data', (data) => {
      try {
        this.take(data);
      } catch {
        reallyExit(70);
      }
    });
    this.link.on('close', () => reallyExit(70));
    this.link.on('error', () => reallyExit(70));
    this.queue = Promise.resolve();
  }

  connect() {
    this.session = new inspector.Session();
    this.session.connect();
  }

  /* When a promise is collected that such a value waits for, the inspector says
   * so from within the collection, which ends the process. */
  disown() {
    if (!this.pending)
      return;
    this.session.disconnect();
    this.pending = false;
    this.connect();
  }

  prepare() {
    process.argv.length = 1;
    Object.assign(globalThis, {
      require: this.imports.require,
      module: { exports: {}, id: '.', filename: `${BOX}/main.js` },
      display: (...values) => this.display(...values),
      __filename: `${BOX}/main.js`,
      __dirname: BOX,
    });
    globalThis.exports = globalThis.module.exports;
    this.exit = (code) => this.leave(code);
  }

  take(data) {
    this.input = concat([this.input, data]);
    while (this.input.length >= HEADER) {
      const size = HEADER + this.input.readUInt32LE(0);
      if (this.input.length < size)
        break;
      const type = this.input[4];
      const payload = this.input.subarray(HEADER, size);
      this.input = this.input.subarray(size);
      this.queue = this.queue.then(() => this.serve(type, payload))
        .catch(() => reallyExit(70));
    }
  }

  async serve(type, payload) {
    if (type === STEP) {
      await this.step(new Reader(payload));
    } else if (type === RESTORED) {
      this.reseed();
      this.ready([]);
    } else if (type === KERNEL) {
      await this.imports.prepare();
      const r = new Reader(payload);
      const missing = [];
      for (let n = r.u32(); n > 0; n--) {
        const name = r.string().toString();
        try {
          await this.imports.load(name);
        } catch {
          missing.push(name);
        }
      }
      this.ready(missing);
    }
  }

  /* This process may be one of several that were restored from one. */
  reseed() {
    try {
      process.dlopen({ exports: {} }, '/proc/self/fd/0'); // reseed.c
    } catch (e) {
      if (!String(e.message).includes('did not self-register'))
        throw e;
    }
    for (let i = 0; i < UUIDS; i++)
      crypto.randomUUID();
    if (Math.random === this.random)
      this.random = Math.random = makeRandom();
  }

  ready(missing) {
    this.link.write(frame(READY, u32(missing.length), ...missing.map(string)));
  }

  /* Interrupts, exits and errors, wherever they come from */

  interrupted() {
    this.running?.({ interrupted: true });
  }

  leave(code) {
    if (this.running === null)
      return; // in the background there is nothing to leave
    if (!this.left && code !== undefined)
      process.exitCode = code;
    this.left = true; // the first time counts, should the user catch this
    this.running({ exit: true });
    throw new Exit();
  }

  stray(e) {
    if (e instanceof Exit)
      return;
    if (this.running !== null)
      this.running({ error: e, raised: true });
    else
      this.report(e);
  }

  describe(e) {
    const text = util.inspect(e, { colors: false });
    const lines = text.split('\n').filter((line) =>
      !/^\s+at .*(\[stdin\]:|node:inspector:|node:vm:|node:internal\/)/
        .test(line));
    return `Uncaught ${lines.join('\n')}\n`;
  }

  report(e) {
    let text;
    try {
      text = this.describe(e);
    } catch {
      text = 'Uncaught exception, which cannot be shown\n';
    }
    this.streams.complain(text);
  }

  /* Running the user's code */

  /* f() of the user's, which SIGINT ends: {value} or {error} or
   * {interrupted}. */
  guarded(f) {
    let outcome = { interrupted: true };
    Object.defineProperty(globalThis, '__isobox_run', {
      configurable: true,
      value: () => {
        delete globalThis.__isobox_run;
        try {
          outcome = { value: f() };
        } catch (error) {
          outcome = { error, raised: true };
        }
      },
    });
    try {
      this.guard.runInThisContext({ breakOnSigint: true });
    } catch {
      outcome = { interrupted: true };
    }
    return outcome;
  }

  /* The value that an inspector's answer stands for. */
  fetch(remote) {
    if (remote.objectId === undefined) {
      if (remote.unserializableValue === undefined)
        return remote.value;
      if (remote.type === 'bigint')
        return BigInt(remote.unserializableValue.slice(0, -1));
      return Number(remote.unserializableValue);
    }
    let value;
    Object.defineProperty(globalThis, '__isobox_take', {
      configurable: true, value: (v) => { value = v; },
    });
    this.session.post('Runtime.callFunctionOn', {
      objectId: remote.objectId, silent: true,
      functionDeclaration: 'function (v) { __isobox_take(v); }',
      arguments: [{ objectId: remote.objectId }],
    });
    delete globalThis.__isobox_take;
    return value;
  }

  post(expression, finish) {
    this.pending = true;
    this.session.post('Runtime.evaluate', {
      expression, replMode: true, awaitPromise: true, objectGroup: 'step',
    }, (e, result) => {
      this.pending = false;
      if (e?.message.includes('Cannot find context'))
        reallyExit(70); // the user's code has ended it
      else if (e)
        finish({ interrupted: true }); // "Execution was terminated"
      else if (result.exceptionDetails)
        finish({
          error: this.fetch(result.exceptionDetails.exception ?? {}),
          details: result.exceptionDetails, raised: true,
        });
      else
        finish({ value: this.fetch(result.result) });
    });
  }

  evaluate(name, source, finish) {
    const expression = `${this.imports.rewrite(source)}\n//# sourceURL=${name}`;
    const begun = frame(STARTED);
    const outcome = this.guarded(() => {
      writeSync(LINK, begun); // from now on, SIGINT is welcome
      this.post(expression, finish);
    });
    if (outcome.interrupted || outcome.raised)
      finish(outcome);
    if (outcome.interrupted)
      throw new Exit(); // has node forget the callbacks that were cut short
  }

  /* A mistake that kept the step from being run: where it is. */
  syntaxError(name, source, { error, details }) {
    const row = details.lineNumber;
    const lines = source.split('\n');
    if (row >= lines.length)
      return `Uncaught ${error.name}: ${error.message}\n    at ${name}\n`;
    return `${name}:${row + 1}\n${lines[row]}\n` +
      `${lines[row].slice(0, details.columnNumber).replace(/[^\t]/g, ' ')}^\n` +
      `Uncaught ${error.name}: ${error.message}\n`;
  }

  async step(r) {
    const number = r.u32();
    r.u32(); // the interrupts until now
    const display = r.u8() === 1;
    this.artifacts.begin(r.u32(), r.u32());
    r.string(); // the entry's name
    const source = r.string().toString().replace(/^\ufeff/, '');
    const files = [];
    for (let n = r.u32(); n > 0; n--)
      files.push([r.string().toString(), r.string()]);
    const outcome = await this.perform(
      `<step-${number}>`, source, files, display);
    for (const data of this.artifacts.take())
      this.link.write(data);
    this.link.write(frame(STEP_DONE, u32(number), u32(outcome.code),
      from([outcome.raised ? 1 : 0, outcome.interrupted ? 1 : 0,
        this.artifacts.dropped ? 1 : 0]), alloc(8)));
  }

  begin(files) {
    this.streams.begin();
    this.left = false;
    process.exit = this.exit;
    process.exitCode = undefined;
    for (const [event, handler] of [
      ['SIGINT', this.onInterrupt], ['uncaughtException', this.onError],
      ['unhandledRejection', this.onError]]) {
      if (!process.listeners(event).includes(handler))
        process.on(event, handler);
    }
    for (const [name, content] of files) {
      const file = path.join(BOX, name);
      fs.mkdirSync(path.dirname(file), { recursive: true });
      fs.writeFileSync(file, content);
    }
  }

  /* Until start's code has a value, or something ends it before; and for one
   * turn of the event loop more: that tells of rejections that nobody
   * handles. */
  run(start) {
    return new Promise((resolve) => {
      let outcome = null;
      const finish = (o) => {
        if (outcome === null) {
          outcome = o;
          setImmediate(() => {
            this.running = null;
            resolve(outcome);
          });
        } else if (this.running === finish && 'value' in outcome) {
          outcome = o;
        }
      };
      this.running = finish;
      setImmediate(start, finish);
    });
  }

  async perform(name, source, files, display) {
    let outcome;
    try {
      this.begin(files);
      outcome = await this.run(
        (finish) => this.evaluate(name, source, finish));
      if ('value' in outcome && outcome.value !== undefined) {
        const { value } = outcome;
        const shown = await this.run((finish) => {
          const done = () => finish({ value: 0 });
          const o = this.guarded(
            () => this.artifacts.addValue(value, display));
          if ('value' in o)
            o.value.then(done, done);
          else if (!o.interrupted)
            done();
          else {
            finish(o);
            throw new Exit();
          }
        });
        if (shown.interrupted)
          outcome = shown;
      }
    } catch (error) {
      outcome = { error, raised: true };
    }
    return this.finish(name, source, outcome);
  }

  finish(name, source, outcome) {
    const result = { code: 0, raised: false, interrupted: false };
    if (outcome.interrupted) {
      this.streams.complain('Interrupted\n');
      Object.assign(result, { code: 1, raised: true, interrupted: true });
    } else if (outcome.raised) {
      if (outcome.details?.scriptId !== undefined &&
          outcome.error instanceof SyntaxError &&
          outcome.details.stackTrace === undefined)
        this.streams.complain(this.syntaxError(name, source, outcome));
      else
        this.report(outcome.error);
      Object.assign(result, { code: 1, raised: true });
    } else {
      result.code = Number(process.exitCode ?? 0) & 0xff;
    }
    process.exitCode = undefined;
    this.streams.flush();
    this.disown();
    this.session.post('Runtime.releaseObjectGroup', { objectGroup: 'step' });
    return result;
  }

  async display(...values) {
    for (const value of values) {
      if (!await this.artifacts.addValue(value, false))
        this.artifacts.add('text/plain', util.inspect(value));
    }
  }
}

new Kernel();
})();
