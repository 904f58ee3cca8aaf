#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures, in a bare Debian root, what a new user waits for: the first loss line.

    scripts/bench/first_loss.py wheel --wheel dist/finetune_cpp-*.whl --torch DIR [--suite trixie]
        installs the wheel into a fresh virtual environment that already has torch (DIR is a folder
        site-packages/torch; its libraries serve every Python) and trains configs/smoke.yaml
    scripts/bench/first_loss.py deb --deb dist/finetune_*.deb --torch DIR
        the same with dpkg and the system's Python
    scripts/bench/first_loss.py checkout
        clones this checkout into the root and runs scripts/quickstart there: packages, torch and all

As root; debootstrap makes the root once and keeps it (--root, default build-roots/SUITE). Each result,
with its date, commit, cores and load, goes to scripts/bench/results/first_loss.json (--no-record leaves
it out); scripts/test warns when they are old.
"""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "scripts/bench/results/first_loss.json"


def make_root(root, suite):
    if (root / "usr/bin/python3").exists():
        return
    if not shutil.which("debootstrap"):
        sys.exit("error: debootstrap is missing: apt-get install debootstrap")
    print(f"making a Debian {suite} in {root} (once)", file=sys.stderr)
    root.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["debootstrap", "--variant=minbase", "--include=python3,python3-venv,ca-certificates,git",
                    suite, str(root)], check=True, stdout=subprocess.DEVNULL)  # fmt: skip


class Chroot:
    """The root with /proc and /dev mounted and the network's and pip's settings of this machine."""

    def __init__(self, root):
        self.root = root
        self.mounted = []

    def __enter__(self):
        for kind, place in (("proc", "proc"), ("--bind", "dev")):
            source = ["-t", "proc", "proc"] if kind == "proc" else ["--bind", "/dev"]
            subprocess.run(["mount", *source, str(self.root / place)], check=True)
            self.mounted.append(self.root / place)
        for file in ("/etc/resolv.conf", "/etc/hosts"):
            shutil.copy(file, self.root / file[1:])
        return self

    def __exit__(self, *_):
        for place in reversed(self.mounted):
            subprocess.run(["umount", "-l", str(place)], check=True)

    def command(self, script):
        return ["chroot", str(self.root), "/bin/bash", "-e", "-c", script]

    def run(self, script):
        subprocess.run(self.command(script), check=True, stdout=sys.stderr)

    def seconds_to_first_loss(self, script):
        """Runs the script to its end; seconds until a line with a loss."""
        start, found = time.monotonic(), None
        lines = []
        environment = {k: v for k, v in os.environ.items() if k.startswith("PIP_") or k.endswith("_proxy")}
        environment.update(PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", HOME="/root")
        run = subprocess.Popen(self.command(script), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, env=environment)  # fmt: skip
        for line in run.stdout:
            lines.append(line)
            if found is None and " loss " in line:
                found = time.monotonic() - start
        if run.wait() != 0 or found is None:
            sys.exit("".join(lines[-30:]) + f"exit code {run.returncode}")
        return found


def copy_torch(folder, site):
    """Hard links where that is possible: torch has some hundred MB."""
    shutil.rmtree(site / "torch", ignore_errors=True)
    link = subprocess.run(["cp", "-al", str(folder.resolve()), str(site / "torch")], capture_output=True)
    if link.returncode != 0:
        shutil.rmtree(site / "torch", ignore_errors=True)
        subprocess.run(["cp", "-a", str(folder.resolve()), str(site / "torch")], check=True)


def put_examples(root):
    for path in ("configs", "tests/fixtures/text", "tests/fixtures/tokenizers"):
        shutil.copytree(ROOT / path, root / "examples" / path, dirs_exist_ok=True)


SMOKE = "train /examples/configs/smoke.yaml --output_dir /run-of-first-loss --cache_dir /cache-of-first-loss"


def measure(arguments, root, chroot):
    chroot.run("rm -rf /env /examples /run-of-first-loss /cache-of-first-loss")
    if arguments.what == "checkout":
        chroot.run("rm -rf /checkout")
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(root / "checkout")], check=True)
        return chroot.seconds_to_first_loss("cd /checkout && scripts/quickstart")
    put_examples(root)
    chroot.run("python3 -m venv /env")
    (site,) = root.glob("env/lib/python3*/site-packages")
    copy_torch(arguments.torch, site)
    file = arguments.wheel if arguments.what == "wheel" else arguments.deb
    shutil.copy(file, root / "tmp" / file.name)
    if arguments.what == "wheel":
        return chroot.seconds_to_first_loss(
            f"/env/bin/pip install --quiet --no-index --no-deps /tmp/{file.name} && "
            f"/env/bin/finetune --version && /env/bin/finetune doctor && /env/bin/finetune {SMOKE}")
    return chroot.seconds_to_first_loss(
        f"dpkg -i /tmp/{file.name} && . /env/bin/activate && finetune doctor && finetune {SMOKE} && "
        f"test -s /usr/share/man/man1/finetune.1.gz && dpkg -r finetune && ! test -e /usr/bin/finetune")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("wheel", "deb", "checkout"))
    parser.add_argument("--wheel", type=pathlib.Path)
    parser.add_argument("--deb", type=pathlib.Path)
    parser.add_argument("--torch", type=pathlib.Path, help="a folder site-packages/torch")
    parser.add_argument("--suite", default="bookworm")
    parser.add_argument("--root", type=pathlib.Path)
    parser.add_argument("--no-record", action="store_true")
    arguments = parser.parse_args()
    if arguments.what != "checkout" and not (arguments.torch and getattr(arguments, arguments.what)):
        parser.error(f"{arguments.what} takes --{arguments.what} and --torch")
    root = (arguments.root or ROOT / "build-roots" / arguments.suite).resolve()
    make_root(root, arguments.suite)
    load = os.getloadavg()[0]
    with Chroot(root) as chroot:
        seconds = measure(arguments, root, chroot)
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short=7", "HEAD"],
                            capture_output=True, text=True).stdout.strip()  # fmt: skip
    row = {"what": arguments.what, "suite": arguments.suite, "seconds": round(seconds, 1),
           "cores": len(os.sched_getaffinity(0)), "load_before": round(load, 1), "commit": commit,
           "date": datetime.date.today().isoformat()}  # fmt: skip
    print(json.dumps(row))
    if not arguments.no_record:
        rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
        rows = [r for r in rows if (r["what"], r["suite"]) != (row["what"], row["suite"])] + [row]
        RESULTS.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
