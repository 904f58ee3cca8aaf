#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compiles the CUDA kernels with NVRTC of CUDA 12 and 13 for every architecture by one of them, without
a GPU. The registers, bytes of shared memory and bytes of stack that the worst entry of a kernel takes
are compared with resources.json next to this file: a figure that rose is a failure, unless --write
replaces the file's.

NVRTC comes from PyPI's packages, cached in --cache. Exit 77: they could not be downloaded. Where there is
ccache, what the compiler said about a program is kept with its objects for two months after its last use.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import time
import zipfile

# The oldest tested version of each; a CUDA build of torch has its own.
PACKAGES = {"12": "nvidia-cuda-nvrtc-cu12==12.8.93", "13": "nvidia-cuda-nvrtc==13.0.88"}
# Colab's GPUs (T4, A100, L4) have the torch of CUDA 12. A compilation takes about a minute.
ARCHITECTURES = {"12": ["75", "80", "89"], "13": ["86", "90", "100", "120"]}


def library(package, folder):
    """Returns the path of a package's libnvrtc.so.*, downloading it if necessary."""
    if not folder.is_dir():
        wheels = folder.with_suffix(".wheels")
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels), package]
        if subprocess.run(download, check=False).returncode != 0:
            return None
        unpacked = folder.with_suffix(".part")
        for wheel in wheels.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(unpacked)
        unpacked.rename(folder)
    found = [path for path in folder.rglob("libnvrtc.so.*") if "alt" not in path.name]
    return found[0]


def results_folder(package):
    """Returns a folder for the compiler's results, "" without ccache."""
    if shutil.which("ccache") is None:
        return ""
    shown = subprocess.run(["ccache", "--get-config", "cache_dir"], capture_output=True, text=True, check=False)
    if shown.returncode != 0:
        return ""
    folder = pathlib.Path(shown.stdout.strip(), "finetune-nvrtc", package.replace("==", "-"))
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        if time.time() - file.stat().st_mtime > 60 * 86400:
            file.unlink(missing_ok=True)
    return str(folder)


TABLE = pathlib.Path(__file__).with_name("resources.json")
LINE = re.compile(r"NVRTC \S+ (sm_\d+) (\w+): \d+ entries, (\d+) registers, (\d+) bytes shared, (\d+) bytes stack")
WORDS = ("registers", "bytes of shared memory", "bytes of stack")


def compare(found, table):
    """Prints each figure above the table's. Returns how many there are."""
    rose = 0
    for architecture, kernels in found.items():
        for kernel, figures in kernels.items():
            allowed = table.get(architecture, {}).get(kernel, [0, 0, 0])
            for figure, limit, word in zip(figures, allowed, WORDS):
                if figure > limit:
                    print(f"{architecture} {kernel}: {figure} {word}, more than {limit} in {TABLE.name}")
                    rose += 1
                elif figure < limit:
                    print(f"{architecture} {kernel}: only {figure} {word}: lower {limit} in {TABLE.name} (--write)")
    return rose


def written(table):
    """A line for each kernel."""
    architectures = []
    for name, kernels in sorted(table.items(), key=lambda item: int(item[0][3:])):
        lines = ",\n".join(f'  "{kernel}": {figures}' for kernel, figures in kernels.items())
        architectures.append(f'"{name}": {{\n{lines}\n }}')
    return "{\n " + ",\n ".join(architectures) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--cache", required=True, type=pathlib.Path)
    parser.add_argument("--cuda", choices=PACKAGES, action="append")
    parser.add_argument("--architecture", action="append")
    parser.add_argument("--write", action="store_true", help="replace the table's figures")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    failed = False
    found = {}
    for cuda in options.cuda or PACKAGES:
        path = library(PACKAGES[cuda], options.cache / PACKAGES[cuda].replace("==", "-"))
        if path is None:
            print(f"{PACKAGES[cuda]} cannot be downloaded", file=sys.stderr)
            return 77
        command = [options.program, str(path), results_folder(PACKAGES[cuda]), *(options.architecture or ARCHITECTURES[cuda])]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            for line in running.stdout:
                print(line, end="", flush=True)
                if match := LINE.match(line):
                    found.setdefault(match[1], {})[match[2]] = [int(number) for number in match.groups()[2:]]
        failed |= running.returncode != 0
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    if options.write:
        TABLE.write_text(written({**table, **found}))
    elif compare(found, table) > 0:
        failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
