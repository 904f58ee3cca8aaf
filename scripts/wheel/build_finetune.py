# SPDX-License-Identifier: MIT
"""Build backend of the wheel: scikit-build-core, told which torch to compile for.

libtorch's C++ interface changes with each minor version of torch, so a wheel serves one of them: the
one that is installed where pip builds, or the one that an environment variable names. It is part of
the wheel's version ("0.1.0+torch2.13") and dependencies ("torch>=2.13,<2.14").

  FINETUNE_TORCH_DIR      a folder site-packages/torch
  FINETUNE_PYTHON         an interpreter that has torch
  FINETUNE_TORCH_VERSION  where no torch is installed: what pip fetches to compile against
  FINETUNE_PREBUILT       a build folder of CMake: package its binary, compile nothing
"""

import importlib.util
import os
import pathlib
import re
import shutil
import site
import subprocess
import sysconfig
import tempfile

from scikit_build_core import build as backend
from scikit_build_core.build import build_sdist, get_requires_for_build_sdist  # noqa: F401

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MINIMUM = (2, 11)
DEFAULT = "2.13"


def torch_folder():
    """The folder of the Python package torch, which is not imported; None without one."""
    named = os.environ.get("FINETUNE_TORCH_DIR")
    if named:
        return pathlib.Path(named)
    interpreter = os.environ.get("FINETUNE_PYTHON")
    if interpreter:
        code = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
        found = subprocess.run([interpreter, "-c", code], capture_output=True, text=True)
        if found.returncode != 0:
            raise SystemExit(f"error: FINETUNE_PYTHON: {interpreter} has no torch")
        return pathlib.Path(found.stdout.strip())
    # pip hides the environment's packages from a build, but not where they are.
    places = [sysconfig.get_path(name) for name in ("purelib", "platlib")]
    for place in places + [site.getusersitepackages()]:
        if pathlib.Path(place, "torch", "lib", "libtorch_cpu.so").exists():
            return pathlib.Path(place, "torch")
    spec = importlib.util.find_spec("torch")
    return pathlib.Path(spec.submodule_search_locations[0]) if spec else None


def torch_minor():
    """The minor version of torch that is compiled for: (2, 13)."""
    prebuilt = os.environ.get("FINETUNE_PREBUILT")
    if prebuilt:
        text = pathlib.Path(prebuilt, "torch_version").read_text()
    else:
        folder = torch_folder()
        if folder:
            text = re.search(r"__version__ = '([^']+)'", (folder / "version.py").read_text())[1]
        else:
            text = os.environ.get("FINETUNE_TORCH_VERSION", DEFAULT)
    version = tuple(int(number) for number in text.split(".")[:2])
    if version < MINIMUM:
        raise SystemExit(f"error: torch {text} is older than {MINIMUM[0]}.{MINIMUM[1]}: "
                         "install a newer one, or name another Python with FINETUNE_PYTHON")
    return version


def dynamic_metadata(field, settings):
    major, minor = torch_minor()
    if field == "dependencies":
        return [f"torch>={major}.{minor},<{major}.{minor + 1}"]
    text = (ROOT / "CMakeLists.txt").read_text()
    return re.search(r"project\(finetune VERSION ([0-9.]+)", text)[1] + f"+torch{major}.{minor}"


def get_requires_for_build_wheel(config_settings=None):
    requires = list(backend.get_requires_for_build_wheel(config_settings))
    if os.environ.get("FINETUNE_PREBUILT") or torch_folder():
        return requires
    major, minor = torch_minor()
    return requires + [f"torch=={major}.{minor}.*"]


def _environment():
    prebuilt = os.environ.get("FINETUNE_PREBUILT")
    if prebuilt:
        folder = pathlib.Path(prebuilt).resolve()
        os.environ["SKBUILD_CMAKE_SOURCE_DIR"] = str(ROOT / "scripts/wheel/prebuilt")
        os.environ["SKBUILD_BUILD_TARGETS"] = "all"
        os.environ["SKBUILD_BUILD_DIR"] = tempfile.mkdtemp(prefix="finetune-wheel-")
        defines = f"FINETUNE_PREBUILT={folder}"
    else:
        defines = f"FINETUNE_TORCH_DIR={torch_folder()}"
    given = os.environ.get("SKBUILD_CMAKE_DEFINE")
    os.environ["SKBUILD_CMAKE_DEFINE"] = f"{given};{defines}" if given else defines


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    return backend.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def _require_compiler():
    """Ends with the line that installs what compiling needs, before CMake fails in its own words."""
    packages = re.search(r"^build_packages=\(([^)]+)\)", (ROOT / "scripts/setup.sh").read_text(), re.M)
    line = f"apt install g++ cmake ninja-build pkg-config {' '.join(packages[1].split())}"
    if not shutil.which(os.environ.get("CXX", "c++")):
        raise SystemExit("error: there is no C++ compiler (g++ 11 or newer): pip compiles finetune from "
                         f"this checkout; on Debian and Ubuntu: {line}")
    print(f"Libraries that the system lacks are fetched from the web; to use its own: {line}", flush=True)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    if not os.environ.get("FINETUNE_PREBUILT"):
        _require_compiler()
    _environment()
    return backend.build_wheel(wheel_directory, config_settings, metadata_directory)
