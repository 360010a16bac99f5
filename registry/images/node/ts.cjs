// SPDX-License-Identifier: Apache-2.0
'use strict';
/*
 * Preloaded before a TypeScript program (node --require ts.cjs main.ts): makes
 * .ts, .tsx, .mts and .cts loadable.  Node itself only strips types; enums,
 * namespaces and parameter properties need a compiler.  That is esbuild's
 * native binary: one start of it (25-40 ms in the sandbox) costs less than
 * loading Node's own stripper (90 ms) or any compiler written for Node.
 *
 * All TypeScript files beside the program are compiled in that one start; a
 * file that appears later, or whose neighbour does not compile, has a start of
 * its own when it is loaded.
 */
const fs = require('node:fs');
const path = require('node:path');
const { registerHooks, setSourceMapsSupport } = require('node:module');
const { fileURLToPath, pathToFileURL } = require('node:url');

const ESBUILD = '/usr/libexec/isobox/esbuild';
const TYPESCRIPT = /\.([cm]?ts|tsx)$/;
const DECLARATION = /\.d\.[cm]?ts$/;
/* What a relative import may leave out, or say in place of the source's. */
const OMITTED = ['.ts', '.tsx', '.mts', '.cts', '.js', '.json'];
const SPOKEN = { '.js': ['.ts', '.tsx'], '.mjs': ['.mts'], '.cjs': ['.cts'] };
/* A workspace may hold thousands of files that the program never loads. */
const MAX_FILES = 256;

const compiled = new Map();	/* path -> { mtime, size, format, source } */
let commonJs = false;		/* the program itself is CommonJS */

function isFile(file) {
	return fs.statSync(file, { throwIfNoEntry: false })?.isFile() ?? false;
}

/*
 * Which module system a file is in.  Most that say `import` are modules, as in
 * Node; one that also says `require.main === module`, say, was written for
 * TypeScript's older default, and what it imports then follows it.
 */
function wantsCommonJs(file, text) {
	if (file.endsWith('.cts'))
		return true;
	if (file.endsWith('.mts') || /\bimport\.meta\b/.test(text))
		return false;
	return commonJs ||
		/\b(require\s*[.(]|module\.|exports\.|__dirname|__filename)/
			.test(text);
}

/* Runs esbuild on files of one kind; returns its complaint or null. */
function runEsbuild(files, toCommonJs) {
	const { spawnSync } = require('node:child_process');
	const out = fs.mkdtempSync('/tmp/.isobox-ts-');
	const meta = path.join(out, 'meta.json');

	try {
		const argv = ['--platform=node', '--target=node26',
			'--sourcemap=external', '--sources-content=false',
			'--color=false', '--log-level=warning',
			'--outbase=/', `--outdir=${out}`,
			'--out-extension:.js=.js', `--metafile=${meta}`];
		if (toCommonJs)
			argv.push('--format=cjs');
		const run = spawnSync(ESBUILD, [...argv, ...files], {
			encoding: 'utf8',
			stdio: ['ignore', 'ignore', 'pipe'],
		});
		if (run.error)
			throw run.error;
		if (run.status !== 0)
			return run.stderr || `esbuild: exit ${run.status}`;
		const { inputs } = JSON.parse(fs.readFileSync(meta, 'utf8'));
		for (const file of files) {
			const key = path.relative('', file);
			const esm = inputs[key].format === 'esm';
			remember(file, out, esm && !toCommonJs);
		}
		return null;
	} finally {
		fs.rmSync(out, { recursive: true, force: true });
	}
}

function remember(file, out, esm) {
	const js = path.join(out, file.replace(/\.[^.]+$/, '.js'));
	const map = JSON.parse(fs.readFileSync(`${js}.map`, 'utf8'));
	const stat = fs.statSync(file);

	map.sources = [pathToFileURL(file).href];
	const data = Buffer.from(JSON.stringify(map)).toString('base64');
	compiled.set(file, {
		mtime: stat.mtimeMs,
		size: stat.size,
		format: esm ? 'module' : 'commonjs',
		source: `${fs.readFileSync(js, 'utf8')}
//# sourceMappingURL=data:application/json;base64,${data}
`,
	});
}

/* Compiles the files; returns the first complaint or null. */
function compile(files) {
	const kinds = [[], []];

	for (const file of files) {
		const text = fs.readFileSync(file, 'utf8');
		kinds[wantsCommonJs(file, text) ? 1 : 0].push(file);
	}
	let complaint = null;
	if (kinds[0].length)
		complaint = runEsbuild(kinds[0], false);
	if (kinds[1].length && !complaint) {
		complaint = runEsbuild(kinds[1], true);
		/* CommonJS has no top-level await: let it be a module then. */
		if (files.length === 1 &&
			complaint?.includes('Top-level await'))
			complaint = runEsbuild(kinds[1], false);
	}
	return complaint;
}

function get(file) {
	const stat = fs.statSync(file);
	const known = compiled.get(file);

	if (known && known.mtime === stat.mtimeMs && known.size === stat.size)
		return known;
	const complaint = compile([file]);
	if (complaint) {
		const error = new SyntaxError(`cannot compile ${file}`);
		error.stack = `${complaint}\n    at ${file}`;
		throw error;
	}
	return compiled.get(file);
}

function find(dir, found) {
	for (const entry of fs.readdirSync(dir, { withFileTypes: true })) {
		const name = entry.name;
		const file = path.join(dir, name);

		if (found.length >= MAX_FILES)
			return found;
		if (entry.isDirectory()) {
			if (name !== 'node_modules' && !name.startsWith('.'))
				find(file, found);
		} else if (entry.isFile() && TYPESCRIPT.test(name) &&
			!DECLARATION.test(name)) {
			found.push(file);
		}
	}
	return found;
}

/* The file that a relative specifier means, or null: as it stands. */
function guess(wanted) {
	if (isFile(wanted))
		return null;
	const ext = path.extname(wanted);
	for (const other of SPOKEN[ext] ?? []) {
		const file = wanted.slice(0, -ext.length) + other;
		if (isFile(file))
			return file;
	}
	for (const base of [wanted, path.join(wanted, 'index')])
		for (const other of OMITTED)
			if (isFile(base + other))
				return base + other;
	return null;
}

function resolve(specifier, context, next) {
	const parent = context.parentURL;

	if (/^\.{0,2}\//.test(specifier) && parent?.startsWith('file:')) {
		const from = path.dirname(fileURLToPath(parent));
		const file = guess(path.resolve(from, specifier));
		if (file)
			return { url: pathToFileURL(file).href,
				shortCircuit: true };
	}
	return next(specifier, context);
}

function load(url, context, next) {
	if (!url.startsWith('file:') || !TYPESCRIPT.test(url))
		return next(url, context);
	const { format, source } = get(fileURLToPath(url));
	return { format, source, shortCircuit: true };
}

function main() {
	const entry = process.argv[1] && path.resolve(process.argv[1]);

	setSourceMapsSupport(true);
	registerHooks({ resolve, load });
	if (!entry || !TYPESCRIPT.test(entry) || !isFile(entry))
		return;
	commonJs = wantsCommonJs(entry, fs.readFileSync(entry, 'utf8'));
	const top = entry.startsWith('/box/') ? '/box' : path.dirname(entry);
	const files = new Set(find(top, [entry]));
	if (!compile([...files]))
		return;
	/* Somebody's file is broken: only the program's own ends it here. */
	const complaint = compile([entry]);
	if (complaint) {
		process.stderr.write(complaint);
		process.exit(1);
	}
}

main();
