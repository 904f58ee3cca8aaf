# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Sourced by build, test, package, quickstart and colab_cell.sh: what has to be there before anything is
# compiled. Every function looks first and acts only on what is missing, so that a second call
# costs next to nothing.
#
# Environment:
#   FINETUNE_PYTHON         interpreter whose torch is linked (default: python3 on PATH where it has
#                           a fitting torch, else a virtual environment .venv in this checkout)
#   FINETUNE_TORCH_VERSION  what is installed into .venv (default below). The wheel that pip takes
#                           by default brings CUDA and several GB; pip's own variables choose
#                           another index for the CPU build (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL)
#   FINETUNE_NO_INSTALL     set: no system package is installed, the command to run is printed
#   FINETUNE_BUILD_DIR      build folder (default: build)
#   FINETUNE_JOBS           compilers at once (default: by cores and memory)

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build_dir=$(realpath -m "${FINETUNE_BUILD_DIR:-$root/build}")
venv=$root/.venv
torch_version=${FINETUNE_TORCH_VERSION:-2.13.0}
torch_minimum=2.11

say() { printf '%s\n' "$*" >&2; }
fail() {
  say "error: $*"
  exit 1
}

# ensure_room MEGABYTES FOLDER: fails where this user cannot write the folder or its disk has less.
ensure_room() {
  local folder=$2 free
  while [[ ! -e $folder ]]; do folder=$(dirname "$folder"); done
  [[ -w $folder ]] || fail "$(id -un) may not write $folder; take a checkout of your own, or FINETUNE_BUILD_DIR for the build"
  free=$(df -Pm "$folder" | awk 'NR == 2 {print $4}')
  ((free >= $1)) || fail "the disk of $folder has $free MB free, and this needs $1 MB"
}

# usage SCRIPT: prints the comment at the beginning of a script, its help, and exits.
usage() {
  sed -n '3,${/^#/!q;s/^# \{0,1\}//p}' "$1"
  exit 0
}

# need COMMAND HOW: fails where a command is not on PATH.
need() { command -v "$1" >/dev/null || fail "$1 was not found; $2"; }

# Prints the C++ compiler of clang: FINETUNE_CLANG, else the first that is installed.
find_clang() {
  local name
  for name in ${FINETUNE_CLANG:+"$FINETUNE_CLANG"} clang++ clang++-14; do
    if command -v "$name"; then return; fi
  done
  fail "clang++ was not found; install the package clang-14 or name another with FINETUNE_CLANG"
}

# The libraries that the binary links, and what the tests need besides.
build_packages=(nlohmann-json3-dev libcli11-dev libspdlog-dev libyaml-cpp-dev libutf8proc-dev
                 libpcre2-dev libxxhash-dev zlib1g-dev libzstd-dev)
test_packages=(libgtest-dev libgmock-dev strace libgloo-dev iproute2 chromium fonts-dejavu-core
               tmux valgrind xfsprogs shellcheck zstd)
# Without it the binary trains in one process only. With mold tests are linked in half the time, with ccache
# another checkout compiles in a fifth of it.
optional_packages=(libgloo-dev)

# ensure_packages [--tests] [--venv]: compiler, CMake, Ninja, Python and the libraries' headers.
ensure_packages() {
  local missing=() wanted=("${build_packages[@]}") need_venv='' option
  for option in "$@"; do
    case $option in
      --tests)
        wanted+=("${test_packages[@]}")
        optional_packages+=(mold ccache)
        ;;
      --venv) need_venv=1 ;;
    esac
  done
  # Tools may come from anywhere; only what is not on PATH is asked of the system.
  command -v "${CXX:-g++}" >/dev/null || missing+=(g++)
  command -v cmake >/dev/null || missing+=(cmake)
  command -v ninja >/dev/null || missing+=(ninja-build)
  command -v pkg-config >/dev/null || missing+=(pkg-config)
  command -v python3 >/dev/null || missing+=(python3)
  if [[ -n $need_venv && ! -x $venv/bin/python ]]; then
    python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
  fi
  if command -v dpkg-query >/dev/null; then
    local installed package
    installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null || true)
    for package in "${wanted[@]}"; do
      grep -qx "installed $package" <<<"$installed" || missing+=("$package")
    done
  fi  # elsewhere CMake finds the libraries, or fetches their pinned sources

  if ((${#missing[@]})); then
    install_packages "${missing[@]}"
  fi
  install_optional_packages
  local cmake_version
  cmake_version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')
  version_at_least "$cmake_version" 3.22 ||
    fail "cmake $cmake_version is too old, 3.22 or newer is needed ('pip install cmake' installs one)"
}

# Where that is possible without asking anybody.
install_optional_packages() {
  local package
  command -v apt-get >/dev/null && command -v dpkg-query >/dev/null || return 0
  [[ -z ${FINETUNE_NO_INSTALL:-} && $(id -u) == 0 ]] || return 0
  for package in "${optional_packages[@]}"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] && continue
    (install_packages "$package") || say "continuing without $package"
  done
}

install_packages() {
  local sudo=() command="apt-get install -y --no-install-recommends $*"
  command -v apt-get >/dev/null ||
    fail "missing: $* (Debian's names); install what this system calls them and run this again"
  if [[ $(id -u) != 0 ]]; then
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
      sudo=(sudo)
    else
      FINETUNE_NO_INSTALL=1
    fi
  fi
  if [[ -n ${FINETUNE_NO_INSTALL:-} ]]; then
    say "These packages are missing: $*"
    fail "as root, run: apt-get update && $command"
  fi
  say "==> ${sudo[*]:+sudo }$command"
  # Words of $command are meant to split; apt's errors are on stderr, its progress is of no use.
  # shellcheck disable=SC2086
  { "${sudo[@]}" apt-get update -qq &&
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive $command >/dev/null </dev/null; } ||
    fail "packages could not be installed; as root, run: apt-get update && $command"
}

version_at_least() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]; }

# Prints the version of an interpreter's torch, found without importing it; nothing where it has none.
torch_of() {
  "$1" - 2>/dev/null <<'PYTHON' || true
import importlib.util, pathlib, re
spec = importlib.util.find_spec("torch")
if spec and spec.submodule_search_locations:
    text = pathlib.Path(spec.submodule_search_locations[0], "version.py").read_text()
    print(re.search(r"__version__ = '([^']+)'", text)[1])
PYTHON
}

has_fitting_torch() {
  found_torch=$(torch_of "$1")
  [[ -n $found_torch ]] && version_at_least "$found_torch" "$torch_minimum"
}

# Sets `python` (an interpreter with a fitting torch) and `found_torch`; installs torch into .venv
# where there is none. An existing torch is never touched.
ensure_torch() {
  if [[ -n ${FINETUNE_PYTHON:-} ]]; then
    python=$(command -v "$FINETUNE_PYTHON") || fail "FINETUNE_PYTHON: there is no $FINETUNE_PYTHON"
    has_fitting_torch "$python" ||
      fail "FINETUNE_PYTHON: $python has ${found_torch:+only torch $found_torch, not }torch $torch_minimum or newer; install it with: $python -m pip install torch==$torch_version"
    return
  fi
  python=$(command -v python3)
  if has_fitting_torch "$python"; then return; fi
  if [[ -n $found_torch ]]; then
    say "torch $found_torch of $python is older than $torch_minimum; it stays as it is, .venv gets its own"
  fi
  ensure_packages --venv
  python=$venv/bin/python
  if [[ -x $python ]] && has_fitting_torch "$python"; then return; fi
  make_venv "$(command -v python3)"
  say "==> $python -m pip install torch==$torch_version   (into .venv, once)"
  # Python compiles the few modules that are imported: all of them would take longer than the download.
  "$python" -m pip install --quiet --disable-pip-version-check --no-compile "torch==$torch_version" >&2 ||
    fail "torch $torch_version could not be installed into $venv; name a Python that has it with FINETUNE_PYTHON, or another version with FINETUNE_TORCH_VERSION"
  has_fitting_torch "$python" || fail "torch was installed into $venv but is not found there"
}

# A virtual environment is used, never the system's packages: Debian 12 and later refuse those.
make_venv() {
  [[ -x $venv/bin/python ]] && return
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "$1 is older than Python 3.10, for which torch $torch_minimum exists; name another with FINETUNE_PYTHON"
  say "==> $1 -m venv .venv"
  "$1" -m venv "$venv"
}

# Installs headers of CUDA that c10d's NCCL needs and a CUDA torch's own packages lack, into .venv
# alone; without them the binary is built all the same. Requires: ensure_torch.
ensure_nccl_headers() {
  [[ $python == "$venv/bin/python" ]] || return 0
  local packages
  packages=$("$python" - 2>/dev/null <<'PYTHON' || true
import importlib.util, pathlib, re
torch = pathlib.Path(importlib.util.find_spec("torch").submodule_search_locations[0])
found = re.search(r"cuda.*= '(\d+)\.(\d+)", torch.joinpath("version.py").read_text())
beside = torch.parent / "nvidia"
if found and not any(beside.glob("*/include/cccl")):
    old = found[1] == "12"
    for name in ("nvcc-cu12" if old else "crt", "cccl-cu12" if old else "cccl"):
        print(f"nvidia-cuda-{name}=={found[1]}.{found[2]}.*")
PYTHON
  )
  [[ -n $packages ]] || return 0
  say "==> $python -m pip install ${packages//$'\n'/ }   (into .venv, once)"
  # Words of $packages are meant to split.
  # shellcheck disable=SC2086
  "$python" -m pip install --quiet --disable-pip-version-check $packages >&2 ||
    say "continuing without it: gradients of several GPUs will be summed in host memory"
}

# Sets `test_python`: an interpreter in .venv that has the torch of `python` and the packages of
# tests/requirements.txt. A torch elsewhere is made visible by a path file, not installed twice.
# Requires: ensure_torch.
ensure_test_python() {
  ensure_test_venv
  install_test_packages
}

# The first half: the interpreter, which does not have the packages yet.
ensure_test_venv() {
  test_python=$venv/bin/python
  if has_test_packages; then return; fi
  ensure_packages --venv
  if [[ $python != "$test_python" ]]; then
    make_venv "$python"
    local lent own
    lent=$("$python" -c 'import importlib.util as u, os; print(os.path.dirname(u.find_spec("torch").submodule_search_locations[0]))')
    own=$("$test_python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    printf '%s\n' "$lent" >"$own/finetune_lent_torch.pth"
    [[ $(torch_of "$test_python") == "$found_torch" ]] ||
      fail "$venv does not see the torch of $python (another Python version?): remove $venv and run this again"
  fi
}

# What the packages were installed for, as the stamp of that.
test_packages_stamp() {
  printf '%s\n' "$python $found_torch $(sha256sum <"$root/tests/requirements.txt")"
}
has_test_packages() {
  local stamp=$venv/.finetune-test-packages
  [[ -x $test_python && -f $stamp && $(<"$stamp") == "$(test_packages_stamp)" ]]
}

# The chat templates of 70 models in llama.cpp's sources, which tests compare on, into
# $venv/chat_templates: out of a source package on PyPI (77 MB); nothing in it is built.
install_chat_templates() {
  local package=llama-cpp-python==0.3.36 folder
  [[ ! -d $venv/chat_templates ]] || return 0
  say "==> $test_python -m pip download $package   (77 MB, for its chat templates, once)"
  folder=$(mktemp -d)
  "$test_python" -m pip download --quiet --disable-pip-version-check --no-deps --no-build-isolation \
    --no-binary :all: --dest "$folder" "$package" >&2 || fail "$package could not be fetched"
  tar -xzf "$folder"/llama_cpp_python-*.tar.gz -C "$folder" --wildcards '*/models/templates/*.jinja'
  mkdir -p "$folder/found"
  mv "$folder"/*/vendor/llama.cpp/models/templates/*.jinja "$folder/found"
  mv "$folder/found" "$venv/chat_templates"
  rm -rf "$folder"
}

# The second half, which may run while something else is compiled. Requires: ensure_test_venv.
install_test_packages() {
  if has_test_packages; then return; fi
  say "==> $test_python -m pip install -r tests/requirements.txt   (into .venv, once)"
  # Held where it is, without the local part (+cu130), which the package's own metadata lack.
  "$test_python" -m pip install --quiet --disable-pip-version-check --no-compile \
    -r "$root/tests/requirements.txt" "torch==${found_torch%%+*}" >&2 ||
    fail "the packages that the tests compare with could not be installed into $venv"
  # Compiled here once, not by every test that starts meanwhile, which would not even keep it where
  # PYTHONDONTWRITEBYTECODE is set: torch and transformers alone take 10 CPU seconds.
  env -u PYTHONDONTWRITEBYTECODE HF_HUB_OFFLINE=1 "$test_python" - >/dev/null 2>&1 <<'EOF' || true
import compileall, pathlib
import bitsandbytes, datasets, moto.server, peft, tensorboard.compat.proto.summary_pb2, transformers, trl
from tensorboard.backend.event_processing import event_accumulator
from transformers import Trainer, pipeline
families = '''auto bert big_bird cohere deberta deberta_v2 distilbert gemma gemma2 gemma3 gpt2 gpt_neox llama mistral
    modernbert mpnet olmo2 phi3 qwen2 qwen3 roberta smollm3 xlm_roberta'''
for family in families.split():
    compileall.compile_dir(pathlib.Path(transformers.__file__).parent / 'models' / family, quiet=2)
EOF
  install_chat_templates
  test_packages_stamp >"$venv/.finetune-test-packages"
}

# Where a TPU chip is on the PCI bus (vendor Google, a device of src/tensor/tpu.cpp), installs TorchTPU
# for the torch of `python`. Requires: ensure_torch.
tpu_packages=(torch-tpu==0.2.0 libtpu==0.0.52)
ensure_tpu_packages() {
  local device chips=' 0x005e 0x0062 0x0063 0x006f 0x0076 ' found=''
  for device in "${FINETUNE_SYS:-/sys}"/bus/pci/devices/*; do
    [[ -f $device/vendor && $(<"$device/vendor") == 0x1ae0 ]] || continue
    [[ $chips != *" $(<"$device/device") "* ]] || found=1
  done
  [[ -n $found ]] || return 0
  "$python" -c 'import importlib.util as u, sys; sys.exit(not (u.find_spec("torch_tpu") and u.find_spec("libtpu")))' 2>/dev/null && return 0
  say "==> $python -m pip install --no-deps ${tpu_packages[*]}   (this machine has a TPU; 230 MB, once)"
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps "${tpu_packages[@]}" >&2 ||
    fail "TorchTPU could not be installed; add --accelerator cpu to train without the TPU"
}

# install_wheel WHEEL FOLDER: unpacks it there and sets `binary`, a command that runs it with the torch
# of `python`. Needs neither pip nor a virtual environment. Requires: ensure_torch.
install_wheel() {
  local wheel=$1 folder=$2
  [[ -f $wheel ]] || fail "there is no wheel $wheel"
  rm -rf "$folder"
  mkdir -p "$folder/bin"
  "$python" -m zipfile -e "$wheel" "$folder" 2>/dev/null && [[ -f $folder/finetune/bin/finetune ]] ||
    fail "$wheel is not a wheel of finetune"
  chmod +x "$folder/finetune/bin/finetune"  # zip files unpacked by Python lose it
  binary=$folder/bin/finetune
  # shellcheck disable=SC2016
  printf '#!/bin/sh\nexport FINETUNE_COMMAND="${FINETUNE_COMMAND:-$0}"\nexec "%s" "%s" "$@"\n' \
    "$python" "$folder/finetune" >"$binary"
  chmod +x "$binary"
  "$binary" --version >&2 || fail "${wheel##*/} does not run here"
}

# A source that sees torch needs up to 1.5 GB of memory.
jobs() {
  local cores memory_gb
  cores=$(nproc)
  memory_gb=$(awk '/MemAvailable/ {print int($2 / 1500000)}' /proc/meminfo)
  echo "${FINETUNE_JOBS:-$((memory_gb < 1 ? 1 : memory_gb < cores ? memory_gb : cores))}"
}

# configure [-DNAME=VALUE...]: runs CMake only where the build folder does not have these values;
# Ninja itself sees changes of CMake files, of the list of sources and of torch.
# Requires: ensure_torch.
configure() {
  local options=("-DFINETUNE_PYTHON=$python" "$@") option changed=''
  for option in "${options[@]}"; do
    option=${option#-D}
    grep -qsE "^${option%%=*}:[A-Z]+=" "$build_dir/CMakeCache.txt" &&
      grep -E "^${option%%=*}:[A-Z]+=" "$build_dir/CMakeCache.txt" | grep -qF "=${option#*=}" ||
      changed=1
  done
  if [[ -f $build_dir/build.ninja && -z $changed ]]; then return; fi
  say "==> cmake -S . -B ${build_dir#"$root"/} (torch $found_torch of $python)"
  cmake -S "$root" -B "$build_dir" -G Ninja "${options[@]}" >&2
}
