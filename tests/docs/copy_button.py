#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Clicks every copy button of the documentation's site in Chromium and reads the clipboard.

Each button must copy exactly the fence of the page's Markdown source, without prompts and marks, and
no mark of run_commands.py may be visible on a page. On a phone, no table of configuration.md may be cut, and
the letters of the chat picture are at least 9 pixels high. Needs mkdocs-material in the running Python. Exit
code 77: that or Chromium is missing, which is a failure where CI=true.

    copy_button.py [--site FOLDER] [PAGE...]     default: builds the site; docs/**/*.md
"""

import argparse
import functools
import http.server
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import chromium
from run_commands import ROOT, SHELLS, fences

DOCS = ROOT / "docs"
PROMPT = re.compile(r"^\s*(\$ |# (printed|exits)\b)", re.MULTILINE)
MARK = re.compile(
    r"^ *<!--|<!-- (printed|exits with|not run)|^ *(printed|exits with [\d ]+|not run: .*)$", re.MULTILINE
)
UNCHANGED = "nothing was copied"

# Scrolls to a button and returns the point to click, or null where something covers the button.
POINT = """(() => {
  const button = document.querySelectorAll('[data-md-type=copy]')[%d];
  button.scrollIntoView({block: 'center', behavior: 'instant'});
  const box = button.getBoundingClientRect();
  const x = box.left + box.width / 2, y = box.top + box.height / 2;
  return button.contains(document.elementFromPoint(x, y)) ? [x, y] : null;
})()"""


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def build(folder):
    env = dict(os.environ, NO_MKDOCS_2_WARNING="1")
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file",
                    ROOT / "mkdocs.yml", "--site-dir", folder], check=True, env=env)  # fmt: skip


def copied(browser, number):
    """What the copy button with this index puts on the clipboard."""
    browser.evaluate(f"navigator.clipboard.writeText('{UNCHANGED}')")
    point = browser.evaluate(POINT % number)
    if point is None:
        return "(something covers the copy button)"
    browser.click(*point)
    for _ in range(40):
        text = browser.evaluate("navigator.clipboard.readText()")
        if text != UNCHANGED:
            break
        browser.evaluate("new Promise((done) => setTimeout(done, 25))")
    return text


def check(browser, address, page):
    """Returns the number of bash fences whose button was clicked, and the failures of a page."""
    name = page.relative_to(ROOT)
    browser.open(f"{address}/{page.relative_to(DOCS).with_suffix('.html')}")
    failures = []
    visible = MARK.search(browser.evaluate("document.querySelector('article').innerText"))
    if visible:
        failures.append(f"{name}: readers see a mark of the test: {visible[0]}")
    blocks = list(fences(page))
    buttons = browser.evaluate("document.querySelectorAll('[data-md-type=copy]').length")
    if buttons != len(blocks):
        return 0, [*failures, f"{name}: {buttons} copy buttons for {len(blocks)} fences"]
    shells = 0
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, (line, info, body, _) in enumerate(blocks):
        text = copied(browser, number)
        shells += info.split(" ")[0] in ("bash", *SHELLS)
        indent = len(lines[line - 1]) - len(lines[line - 1].lstrip())
        source = "\n".join(text[indent:] for text in body).rstrip()
        if text != source:
            failures.append(f"{name}:{line}: copied {text!r} instead of {source!r}")
        if PROMPT.search(text) or MARK.search(text):
            failures.append(f"{name}:{line}: the copy button copies a prompt or a mark: {text!r}")
    return shells, failures


# Tables of configuration.html that are wider than their boxes; at least one table must be there.
CUT_TABLES = """(() => {
  const boxes = [...document.querySelectorAll('article table')].map((table) => table.closest('.md-typeset__scrollwrap'));
  return boxes.length === 0 ? -1 : boxes.filter((box) => !box || box.scrollWidth > box.clientWidth).length;
})()"""
# The height in pixels of the picture's letters, which are 13 units high.
LETTERS = """(async () => {
  const picture = document.querySelector('img[src$="chat-sample.svg"]');
  const [, width] = (await (await fetch(picture.src)).text()).match(/viewBox="0 0 ([0-9]+)/);
  return 13 * picture.getBoundingClientRect().width / width;
})()"""


def check_phone(browser, address):
    """The failures of pages that once could not be read on a phone."""
    browser.resize(390, 844)
    failures = []
    browser.open(f"{address}/configuration.html")
    cut = browser.evaluate(CUT_TABLES)
    if cut != 0:
        failures.append(f"docs/configuration.md: {cut} tables are cut at 390 pixels")
    browser.open(f"{address}/tasks/sft.html")
    letters = browser.evaluate(LETTERS)
    if letters < 9:
        failures.append(f"docs/tasks/sft.md: the picture's letters are {letters:.1f} pixels high")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--site", type=Path, help="a built site instead of a new one")
    parser.add_argument("page", type=Path, nargs="*")
    args = parser.parse_args()
    program = chromium.find()
    missing = "chromium on PATH" if program is None else None
    if args.site is None and importlib.util.find_spec("material") is None:
        missing = "mkdocs-material"
    if missing:
        print(f"skipped: no {missing} (scripts/setup.sh installs it for the tests)")
        return 1 if os.environ.get("CI") == "true" else 77
    pages = [page.resolve() for page in args.page] or sorted(DOCS.rglob("*.md"))
    failures, shells = [], 0
    with tempfile.TemporaryDirectory(prefix="finetune-site-") as folder:
        site = args.site
        if site is None:
            site = Path(folder)
            build(site)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(site)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        with chromium.Chromium(program) as browser:
            browser.call("Browser.grantPermissions", origin=address,
                         permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])  # fmt: skip
            browser.call("Emulation.setFocusEmulationEnabled", enabled=True)
            browser.resize(1280, 900)
            for page in pages:
                count, found = check(browser, address, page)
                shells += count
                failures += found
            failures += check_phone(browser, address)
        server.shutdown()
    print(f"{shells} buttons of bash fences on {len(pages)} pages, {len(failures)} failures", file=sys.stderr)
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures or (not args.page and shells < 40) else 0


if __name__ == "__main__":
    sys.exit(main())
