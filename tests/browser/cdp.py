# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, spoken to over its DevTools pipe: messages of JSON that
end in NUL, on its descriptors 3 and 4. No driver, no WebSocket."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="isobox-browser-")
        self.log = open(os.path.join(self.profile, "log"), "wb")
        # A test runs as root, where Chromium's own sandbox does not work; the
        # page is ours.
        argv = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu",
                "--disable-dev-shm-usage", "--no-first-run", "--mute-audio",
                "--disable-background-networking", "--disable-component-update",
                "--disable-sync", "--disable-extensions",
                "--user-data-dir=" + self.profile, "--window-size=1000,800",
                "--remote-debugging-pipe", "about:blank"]
        to_read, self.to_browser = os.pipe()
        self.from_browser, to_write = os.pipe()

        def place():
            # Above 4 first, so that neither overwrites the other.
            a, b = os.dup(to_read), os.dup(to_write)
            os.dup2(a, 3)
            os.dup2(b, 4)
        self.process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            pass_fds=(3, 4, to_read, to_write), preexec_fn=place,
            env=dict(os.environ, HOME=self.profile), start_new_session=True)
        os.close(to_read)
        os.close(to_write)
        self.pending = b""
        self.last_id = 0
        self.session = None
        self.events = []  # (method, params), in order of arrival

    def close(self):
        if self.process.poll() is None:
            try:
                self.command("Browser.close", session=None, timeout=5)
                self.process.wait(10)
            except (OSError, AssertionError, subprocess.TimeoutExpired):
                self.process.kill()
        self.process.wait()
        os.close(self.to_browser)
        os.close(self.from_browser)
        self.log.close()
        shutil.rmtree(self.profile, ignore_errors=True)

    def message(self, timeout):
        """The next message, or None."""
        until = time.monotonic() + timeout
        while b"\0" not in self.pending:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.from_browser], [], [],
                                              left)[0]:
                return None
            data = os.read(self.from_browser, 1 << 20)
            if not data:
                with open(self.log.name, "rb") as f:
                    raise AssertionError("the browser ended: %s"
                                         % f.read()[-2000:].decode())
            self.pending += data
        text, self.pending = self.pending.split(b"\0", 1)
        return json.loads(text)

    def command(self, method, params=None, session="page", timeout=30):
        self.last_id += 1
        call = {"id": self.last_id, "method": method, "params": params or {}}
        if session == "page":
            call["sessionId"] = self.session
        os.write(self.to_browser, json.dumps(call).encode() + b"\0")
        until = time.monotonic() + timeout
        while True:
            message = self.message(until - time.monotonic())
            if message is None:
                raise AssertionError("no answer to %s" % method)
            if message.get("id") == self.last_id:
                if "error" in message:
                    raise AssertionError("%s: %s" % (method,
                                                     message["error"]))
                return message["result"]
            self.note(message)

    def note(self, message):
        if "method" in message:
            self.events.append((message["method"], message["params"]))

    def open(self, url):
        """A page; its console, errors and requests are collected."""
        target = self.command("Target.createTarget", {"url": "about:blank"},
                              None)["targetId"]
        self.session = self.command(
            "Target.attachToTarget", {"targetId": target, "flatten": True},
            None)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(domain + ".enable")
        self.command("Page.navigate", {"url": url})
        self.wait_for("document.readyState === 'complete'")

    def evaluate(self, expression):
        result = self.command("Runtime.evaluate", {
            "expression": expression, "returnByValue": True,
            "awaitPromise": True})
        if "exceptionDetails" in result:
            raise AssertionError(result["exceptionDetails"])
        return result["result"].get("value")

    def wait_for(self, expression, timeout=30):
        until = time.monotonic() + timeout
        while True:
            value = self.evaluate(expression)
            if value:
                return value
            if time.monotonic() > until:
                raise AssertionError("never true: %s" % expression)
            time.sleep(0.02)

    def focus_and_clear(self, selector):
        self.evaluate("(() => { const e = document.querySelector(%s);"
                      "e.focus(); e.select(); })()" % json.dumps(selector))

    def type(self, text):
        self.command("Input.insertText", {"text": text})

    def click(self, selector):
        """A real click in the middle of the element, as it is laid out."""
        x, y = self.evaluate(
            "(() => { const e = document.querySelector(%s);"
            "e.scrollIntoView({block: 'center'});"
            "const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
            % json.dumps(selector))
        for kind in ("mousePressed", "mouseReleased"):
            self.command("Input.dispatchMouseEvent", {
                "type": kind, "x": x, "y": y, "button": "left",
                "clickCount": 1})

    def screenshot(self, path):
        """The whole page, not only what the window shows."""
        size = self.command("Page.getLayoutMetrics")["cssContentSize"]
        data = self.command("Page.captureScreenshot", {
            "captureBeyondViewport": True,
            "clip": dict(size, scale=1)})["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))

    def complaints(self):
        """Errors and warnings of the console, exceptions, failed requests."""
        found = []
        while True:
            message = self.message(0.2)
            if message is None:
                break
            self.note(message)
        for method, params in self.events:
            if method == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"])
            elif method == "Runtime.consoleAPICalled":
                if params["type"] in ("error", "warning", "assert"):
                    found.append(params["args"])
            elif method == "Log.entryAdded":
                if params["entry"]["level"] in ("error", "warning"):
                    found.append(params["entry"])
            elif method == "Network.loadingFailed":
                if not params.get("canceled"):
                    found.append(params)
        return found
