// SPDX-License-Identifier: Apache-2.0
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
