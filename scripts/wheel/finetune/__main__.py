# SPDX-License-Identifier: MIT
"""Starts the binary next to this file with the libtorch of this Python's torch.

Run as the console entry of the wheel, as `python -m finetune`, and by /usr/bin/finetune of the .deb
(`python3 /usr/lib/finetune`). The process is replaced by the binary: signals and exit codes are its.
"""

import importlib.util
import os
import pathlib
import re
import sys
import sysconfig

HERE = pathlib.Path(__file__).resolve().parent


def minor(version):
    return ".".join(version.split(".")[:2])


def install_command(wanted):
    """What installs torch for this program: pip, or a virtual environment where pip is missing or may
    not change this Python (PEP 668, as on Debian)."""
    package = f"'torch=={wanted}.*'"
    in_environment = sys.prefix != sys.base_prefix
    managed = pathlib.Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED").exists()
    if importlib.util.find_spec("pip") and (in_environment or not managed):
        return f"{sys.executable} -m pip install {package}"
    home = pathlib.Path("~/finetune-env/bin/python").expanduser()
    if home.exists() and "FINETUNE_PYTHON" not in os.environ:
        return (f"~/finetune-env/bin/pip install {package} && "
                "export FINETUNE_PYTHON=~/finetune-env/bin/python   # a line for ~/.profile")
    # On Debian and Ubuntu, python3 -m venv names the package that it needs.
    return (f"python3 -m venv ~/finetune-env && ~/finetune-env/bin/pip install {package} && "
            "export FINETUNE_PYTHON=~/finetune-env/bin/python   # the last part is a line for ~/.profile")


def problem_with(torch, found, wanted):
    """One sentence where this torch does not fit; None where it does."""
    install = install_command(wanted)
    if torch is None:
        return (f"finetune needs torch {wanted}, which {sys.executable} does not have; "
                f"install it with: {install}")
    if minor(found) != wanted:
        return (f"this finetune was built for torch {wanted}, and {torch} is torch {found}; install "
                f"the wheel of finetune for torch {minor(found)}, or torch {wanted} with: {install}")
    return None


def main():
    wanted = minor((HERE / "torch_version").read_text().strip())
    spec = importlib.util.find_spec("torch")  # found without importing it, which takes seconds
    torch = found = None
    if spec is not None and spec.submodule_search_locations:
        torch = pathlib.Path(spec.submodule_search_locations[0])
        version = torch / "version.py"
        match = version.exists() and re.search(r"__version__ = '([^']+)'", version.read_text())
        found = match[1] if match else "of an unknown version"
    problem = problem_with(torch, found, wanted)
    if problem:
        sys.exit(f"error: {problem}")
    library = torch / "lib"
    # The binary looks in ../../torch/lib from where it is; a torch elsewhere has to be named.
    beside = HERE.parent / "torch" / "lib"
    if not (beside.exists() and beside.samefile(library)):
        others = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = f"{library}:{others}" if others else str(library)
    os.environ.setdefault("FINETUNE_PYTHON", sys.executable)  # whose pyarrow reads Parquet files
    # How hints for the user begin.
    called = sys.argv[0]  # the folder where that is what Python runs
    if called.endswith("__main__.py") or os.path.isdir(called):
        is_installed = importlib.util.find_spec("finetune") is not None
        called = "python3 -m finetune" if is_installed else f"{sys.executable} {HERE}"
    os.environ.setdefault("FINETUNE_COMMAND", called)
    binary = str(HERE / "bin" / "finetune")
    try:
        os.execv(binary, [binary] + sys.argv[1:])
    except OSError as error:
        sys.exit(f"error: {binary} cannot be started: {error.strerror}; install finetune again")


if __name__ == "__main__":
    main()
