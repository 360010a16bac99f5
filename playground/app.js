// SPDX-License-Identifier: Apache-2.0
//
// The playground: sends the code to /execute and shows what comes back, as it
// comes. fetch and not EventSource, which can neither POST nor stop for good.

const $ = (id) => document.getElementById(id);
const form = $("form");
const language = $("language");
const code = $("code");
const runButton = $("run");
const stopButton = $("stop");
const output = $("output");
const result = $("result");

const samples = {
	python: `import time

for i in range(1, 6):
    print(i, "squared is", i * i, flush=True)
    time.sleep(0.3)
`,
	javascript: `const sleep = (ms) => new Promise((r) => setTimeout(r, ms));

for (let i = 1; i <= 5; i++) {
	console.log(i, "squared is", i * i);
	await sleep(300);
}
`,
	typescript: `enum Level { Low = 1, High = 10 }

function say(level: Level): string {
	return \`\${Level[level]} is \${level}\`;
}

console.log(say(Level.Low));
console.log(say(Level.High));
`,
	ruby: `$stdout.sync = true

(1..5).each do |i|
  puts "#{i} squared is #{i * i}"
  sleep 0.3
end
`,
	go: `package main

import (
	"fmt"
	"time"
)

func main() {
	for i := 1; i <= 5; i++ {
		fmt.Println(i, "squared is", i*i)
		time.Sleep(300 * time.Millisecond)
	}
}
`,
	rust: `use std::{thread::sleep, time::Duration};

fn main() {
    for i in 1..=5 {
        println!("{i} squared is {}", i * i);
        sleep(Duration::from_millis(300));
    }
}
`,
};
samples["python-slim"] = samples.python;

let running = null; // the AbortController of the run in progress
let shown = ""; // the sample that was put into the editor

function setStatus(text, isError = false) {
	$("status").textContent = text;
	$("status").classList.toggle("error", isError);
}

function setRunning(controller) {
	running = controller;
	runButton.disabled = controller !== null || language.disabled;
	stopButton.disabled = controller === null;
}

// A sample never replaces what somebody wrote.
function showSample() {
	const sample = samples[language.value.split("@")[0]] ?? "";
	if (code.value === shown) {
		code.value = sample;
		shown = sample;
	}
}

async function loadRuntimes() {
	let runtimes;
	try {
		const response = await fetch("runtimes", { headers: headers() });
		if (!response.ok)
			throw new Error(await errorText(response));
		runtimes = await response.json();
	} catch (e) {
		language.options[0].textContent = "not available";
		setStatus(`The service cannot be asked for its languages: ${e.message}`,
		    true);
		return;
	}
	if (runtimes.length === 0) {
		language.options[0].textContent = "none";
		setStatus("No language is installed on this service.", true);
		return;
	}
	language.replaceChildren(...runtimes.map((r) =>
		new Option(`${r.language} (${r.version})`,
		    `${r.language}@${r.version}`)));
	const python = runtimes.find((r) => r.language === "python");
	if (python)
		language.value = `${python.language}@${python.version}`;
	language.disabled = false;
	setStatus("Not run yet.");
	setRunning(running);
	showSample();
}

function headers() {
	const key = $("key").value;
	return key ? { "X-API-Key": key } : {};
}

function requestBody() {
	const at = language.value.indexOf("@");
	const body = {
		language: language.value.slice(0, at),
		version: language.value.slice(at + 1),
		code: code.value,
		network: $("network").checked,
	};
	if ($("stdin").value)
		body.stdin = $("stdin").value;
	return JSON.stringify(body);
}

// What a refusal means, from its JSON when it has one.
async function errorText(response) {
	const text = await response.text();
	let what = text.slice(0, 200).trim();
	try {
		const { error, detail } = JSON.parse(text);
		what = detail ? `${error}: ${detail}` : error;
	} catch {
		// Not ours: the front server's own page.
	}
	const wait = response.headers.get("Retry-After");
	return `${response.status} ${what}` +
	    (wait ? ` (try again in ${wait} s)` : "");
}

function append(kind, text) {
	const follow = output.scrollTop + output.clientHeight >=
	    output.scrollHeight - 4;
	let last = output.lastElementChild;
	if (!last || last.className !== kind) {
		last = document.createElement("span");
		last.className = kind;
		output.append(last);
	}
	last.append(text);
	if (follow)
		output.scrollTop = output.scrollHeight;
}

function addFact(name, value, kind = "") {
	const box = document.createElement("div");
	const dt = document.createElement("dt");
	const dd = document.createElement("dd");
	dt.textContent = name;
	dd.textContent = value;
	box.className = kind;
	box.append(dt, dd);
	result.append(box);
}

function showResult({ language: lang, version, run, warning }) {
	const how = run.timedOut ? "Stopped: the time was up." :
	    run.oomKilled ? "Killed: out of memory." :
	    run.exitCode === 0 ? "Done." : "Done, with an error.";
	setStatus(warning ? `${how} Warning: ${warning}` : how);
	addFact("exit code", run.exitCode, run.exitCode === 0 ? "good" : "bad");
	if (run.signal)
		addFact("signal", run.signal, "bad");
	if (run.timedOut)
		addFact("timed out", "yes", "bad");
	if (run.oomKilled)
		addFact("out of memory", "yes", "bad");
	if (run.truncated)
		addFact("output cut", "yes", "bad");
	addFact("time", `${run.durationMs} ms`);
	if (typeof run.memoryPeakBytes === "number")
		addFact("memory", `${(run.memoryPeakBytes / 1048576).toFixed(1)} MiB`);
	addFact("network", run.network ? "filtered" : "off");
	addFact("runtime", `${lang} ${version}`);
	result.hidden = false;
}

// Yields { event, data } from a stream of Server-Sent Events.
async function* events(stream) {
	const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
	let rest = "";
	for (;;) {
		const { value, done } = await reader.read();
		if (done)
			return;
		const blocks = (rest + value).split("\n\n");
		rest = blocks.pop();
		for (const block of blocks) {
			let event = "message";
			const data = [];
			for (const line of block.split("\n")) {
				if (line.startsWith("event:"))
					event = line.slice(6).trim();
				else if (line.startsWith("data:"))
					data.push(line.slice(5).trimStart());
			}
			if (data.length > 0)
				yield { event, data: JSON.parse(data.join("\n")) };
		}
	}
}

async function stream(signal) {
	const response = await fetch("execute", {
		method: "POST",
		headers: {
			...headers(),
			"Content-Type": "application/json",
			Accept: "text/event-stream",
		},
		body: requestBody(),
		signal,
	});
	if (!response.ok)
		throw new Error(await errorText(response));
	for await (const { event, data } of events(response.body)) {
		switch (event) {
		case "stdout":
		case "stderr":
			append(event, data.chunk);
			break;
		case "done":
			showResult(data);
			return;
		case "error":
			throw new Error(data.detail ?
			    `${data.error}: ${data.detail}` : data.error);
		}
	}
	throw new Error("the connection ended before the run did");
}

async function start() {
	if (running !== null || language.disabled)
		return;
	const controller = new AbortController();
	setRunning(controller);
	output.replaceChildren();
	result.replaceChildren();
	result.hidden = true;
	setStatus("Running…");
	try {
		await stream(controller.signal);
	} catch (e) {
		if (controller.signal.aborted)
			setStatus("Stopped by you.");
		else
			setStatus(`Failed: ${e.message}`, true);
	} finally {
		setRunning(null);
	}
}

function showCurl() {
	if (language.disabled || !$("curl-box").open)
		return;
	const quoted = requestBody().replaceAll("'", "'\\''");
	const url = new URL("execute", location.href);
	const key = $("key").value ? " \\\n  -H \"X-API-Key: $KEY\"" : "";
	$("curl").textContent = `curl -s ${url} \\
  -H 'Content-Type: application/json'${key} \\
  -d '${quoted}'`;
}

form.addEventListener("submit", (e) => {
	e.preventDefault();
	start();
});
form.addEventListener("keydown", (e) => {
	if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) {
		e.preventDefault();
		start();
	}
});
stopButton.addEventListener("click", () => running?.abort());
language.addEventListener("change", showSample);
$("curl-box").addEventListener("toggle", showCurl);
form.addEventListener("input", showCurl);
$("key").addEventListener("change", () => {
	if (language.disabled)
		loadRuntimes();
});
loadRuntimes();
