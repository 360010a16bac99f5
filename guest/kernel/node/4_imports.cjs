// SPDX-License-Identifier: Apache-2.0
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
