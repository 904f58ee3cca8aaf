# SPDX-License-Identifier: MIT
"""Drives a headless Chromium over the DevTools protocol, with the standard library only.

The messages travel over two pipes (--remote-debugging-pipe): JSON, each ended by a NUL byte.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find():
    """The path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """A browser with one page; use it in a `with` statement."""

    def __init__(self, program, timeout=60):
        self.timeout = timeout  # seconds, of one call
        self.profile = tempfile.TemporaryDirectory(prefix="finetune-chromium-", ignore_cleanup_errors=True)
        # Chromium reads file descriptor 3 and writes file descriptor 4.
        input_end, self.commands = os.pipe()
        self.messages, output_end = os.pipe()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--hide-scrollbars", "--no-first-run", f"--user-data-dir={self.profile.name}",
                   "--remote-debugging-pipe", "about:blank"]  # fmt: skip
        shell = f'exec "$@" 3<&{input_end} 4>&{output_end}'
        self.process = subprocess.Popen(["bash", "-c", shell, "bash", program, *options],
                                        pass_fds=(input_end, output_end), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        os.close(input_end)
        os.close(output_end)
        self.buffer = b""
        self.events = []
        self.calls = 0
        self.session = None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next((t["targetId"] for t in targets if t["type"] == "page"), None)
        page = page or self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        self.call("Page.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        os.close(self.commands)
        os.close(self.messages)
        self.profile.cleanup()

    def receive(self, deadline):
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.messages], [], [], left)[0]:
                raise TimeoutError(f"Chromium did not answer within {self.timeout} s")
            data = os.read(self.messages, 1 << 20)
            if not data:
                raise EOFError(f"Chromium exited with code {self.process.wait()}")
            self.buffer += data
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **parameters):
        """The result of a method of the protocol."""
        self.calls += 1
        message = {"id": self.calls, "method": method, "params": parameters}
        if self.session and not method.startswith(("Target.", "Browser.")):
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.commands, data) :]
        deadline = time.monotonic() + self.timeout
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.calls:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer["method"])

    def open(self, url):
        """Loads a page and waits until its resources and scripts are loaded."""
        self.events.clear()
        result = self.call("Page.navigate", url=url)
        if "errorText" in result:
            raise RuntimeError(f"{url}: {result['errorText']}")
        deadline = time.monotonic() + self.timeout
        while "Page.loadEventFired" not in self.events:
            self.events.append(self.receive(deadline).get("method"))

    def evaluate(self, expression):
        """The value of a JavaScript expression; waits for it when it is a promise."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    def click(self, x, y):
        """Presses and releases the left button at a point of the viewport."""
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def resize(self, width, height, dark=False):
        """Sets the viewport in CSS pixels and the colour scheme that pages see."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=False)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path):
        """Writes a PNG file of the viewport."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
