// SPDX-License-Identifier: Apache-2.0
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
    this.interrupts = 0; // that init has sent
    this.begun = false; // the step's code
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
    for (let i = 0; i < INTS; i++)
      crypto.randomInt(2);
    if (Math.random === this.random)
      this.random = Math.random = makeRandom();
  }

  ready(missing) {
    this.link.write(frame(READY, u32(missing.length), ...missing.map(string)));
  }

  /* Interrupts, exits and errors, wherever they come from */

  /* init sends none before it was told that a step has begun: what comes until
   * then was for the step before. */
  interrupted() {
    if (this.begun)
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

  /* A SIGINT in the last moment of guarded() is kept by node for the next time:
   * this one. */
  drain() {
    return this.run((finish) => {
      const until = now() + DRAIN_MS;
      const outcome = this.guarded(() => {
        while (now() < until)
          ;
      });
      finish({ value: 0 });
      if (outcome.interrupted)
        throw new Exit();
    });
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
      this.begun = true;
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
    const interrupts = r.u32(); // until now
    const display = r.u8() === 1;
    this.artifacts.begin(r.u32(), r.u32());
    r.string(); // the entry's name
    const source = r.string().toString().replace(/^\ufeff/, '');
    const files = [];
    for (let n = r.u32(); n > 0; n--)
      files.push([r.string().toString(), r.string()]);
    if (interrupts !== this.interrupts)
      await this.drain();
    this.interrupts = interrupts;
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
    this.left = this.begun = false;
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
