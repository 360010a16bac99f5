// SPDX-License-Identifier: Apache-2.0
/*
 * The JavaScript kernel: runs one step after another in one scope. isobox-init
 * starts it like the Python kernel, the files of this directory as one function on
 * its standard input; docs/guest-protocol.md says what the two tell each other.
 *
 * A step is evaluated by V8's inspector in its REPL mode, in this thread: let,
 * const and class stay and may be declared again, await works at the top level,
 * and there is a value at the end. What that mode lacks is import: those are
 * found and rewritten (see Imports), by asking V8 itself what is code.
 *
 * SIGINT ends what runs synchronously (vm's breakOnSigint) and no code can catch
 * that. While a step waits, it is abandoned. What it runs after an await cannot be
 * interrupted as long as it does not wait again. node changes its handler when a
 * step's synchronous part ends: a SIGINT in that very moment ends the process.
 */
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
const LINK = 1022; // guest/child.h
const BOX = '/box';
const WRITES = 200, WRITES_MS = 50;
const DRAIN_MS = 20;
const UUIDS = 256; // more than node keeps the randomness of
const INTS = 1024; // of randomInt(), likewise

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
