#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compiles the CUDA kernels with NVRTC of CUDA 12 and 13 for every architecture by one of them, without
a GPU.

NVRTC comes from PyPI's packages, cached in --cache. Exit 77: they could not be downloaded.
"""

import argparse
import pathlib
import subprocess
import sys
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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--cache", required=True, type=pathlib.Path)
    parser.add_argument("--cuda", choices=PACKAGES, action="append")
    parser.add_argument("--architecture", action="append")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    failed = False
    for cuda in options.cuda or PACKAGES:
        path = library(PACKAGES[cuda], options.cache / PACKAGES[cuda].replace("==", "-"))
        if path is None:
            print(f"{PACKAGES[cuda]} cannot be downloaded", file=sys.stderr)
            return 77
        command = [options.program, str(path), *(options.architecture or ARCHITECTURES[cuda])]
        failed |= subprocess.run(command, check=False).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
