#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# For a notebook cell: trains CONFIG, stores everything that must outlive the machine in FOLDER, and
# resumes from there when the cell runs again.
#
#   scripts/colab_cell.sh CONFIG [FOLDER] [--key value ...]
#
# FOLDER: default /content/drive/MyDrive/finetune; any folder will do, in a notebook or elsewhere.
#   FOLDER/bin   wheels of finetune (scripts/package), of which the one for this torch is used. Without
#                one a binary is compiled once, in about 10 minutes on 2 cores, and kept there.
#   FOLDER/runs  the run, under the name of CONFIG, unless --output_dir says otherwise
# FINETUNE_WHEEL names a wheel elsewhere. On a machine with a TPU, TorchTPU is installed too. The exit
# code is finetune's: 75 means that the same command resumes the run.
source "$(dirname "$0")/setup.sh"

if [[ $# == 0 || $1 == -h || $1 == --help ]]; then
  sed -n '3,13s/^# \{0,1\}//p' "$0"
  [[ $# != 0 ]]
  exit
fi

config=$1
shift
[[ -f $config ]] || fail "there is no configuration $config"
folder=/content/drive/MyDrive/finetune
if [[ $# != 0 && $1 != --* ]]; then
  folder=$1
  shift
elif [[ ! -d /content/drive/MyDrive ]]; then
  # Mounting asks the user in the notebook, which only works from the notebook's own Python.
  python3 -c "from google.colab import drive; drive.mount('/content/drive')" 2>/dev/null ||
    fail "Drive is not mounted. Run this in a cell, then the same line again:  from google.colab import drive; drive.mount('/content/drive')   (or name a folder: scripts/colab_cell.sh $config FOLDER)"
fi
mkdir -p "$folder/bin" "$folder/runs" || fail "$folder cannot be written"
folder=$(cd "$folder" && pwd)

ensure_torch
ensure_tpu_packages
torch_minor=$(cut -d. -f1,2 <<<"$found_torch")
SECONDS=0

# The last resort: compiles, and keeps the binary for the next machine.
use_kept_or_compiled() {
  # What the binary depends on: torch and its place (the loader looks there), the system, the sources.
  local sources system place key archive local_copy staged
  sources=$(cd "$root" && find CMakeLists.txt cmake include src -type f -print0 | sort -z |
    xargs -0 sha256sum | sha256sum)
  system=$(. /etc/os-release && echo "${ID:-linux}${VERSION_ID:-}")-$(uname -m)
  place=$("$python" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')
  key=$system-torch$found_torch-$(printf '%s %s' "$sources" "$place" | sha256sum | cut -c1-12)
  archive=$folder/bin/finetune-$key.tar.gz
  local_copy=${XDG_CACHE_HOME:-$HOME/.cache}/finetune/bin/$key
  binary=$local_copy/finetune

  # A mounted Drive keeps no permission to execute: the binary runs from a local copy, with the few
  # libraries that a fresh machine lacks next to it.
  export LD_LIBRARY_PATH=$local_copy/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  runs() { "$binary" --version >/dev/null 2>&1; }
  unpack() { mkdir -p "$local_copy" && tar -xzf "$archive" -C "$local_copy"; }

  if [[ -f $archive ]] && unpack 2>/dev/null && runs; then
    say "==> using ${archive##*/} from ${folder}/bin"
  else
    if [[ -f $archive ]]; then
      say "==> ${archive##*/} does not run here: building again"
    fi
    say "==> no wheel for torch $torch_minor in $folder/bin and none in FINETUNE_WHEEL: compiling, about 10 minutes on 2 cores"
    "$root/scripts/build"
    staged=$(mktemp -d)
    mkdir -p "$staged/lib"
    cp "$build_dir"/finetune "$build_dir"/libfinetune_*.so "$staged/" 2>/dev/null || cp "$build_dir/finetune" "$staged/"
    ldd "$build_dir/finetune" |
      awk '/lib(spdlog|fmt|yaml-cpp|utf8proc|xxhash|zstd)[.-]/ && $3 ~ /^\// {print $3}' |
      xargs -r cp -L -t "$staged/lib"
    tar -czf "$archive.part" -C "$staged" .
    mv "$archive.part" "$archive"
    rm -rf "$staged"
    unpack
    runs || fail "the binary that was just built does not start: $binary --version"
    say "==> kept as ${archive##*/}: the next machine starts without building"
  fi
}

wheel=${FINETUNE_WHEEL:-}
if [[ -z $wheel ]]; then
  for file in "$folder"/bin/finetune_cpp-*"+torch$torch_minor-"*.whl; do
    if [[ -f $file && ( -z $wheel || $file -nt $wheel ) ]]; then wheel=$file; fi
  done
fi
if [[ -n $wheel ]]; then
  say "==> using the wheel $wheel"
  install_wheel "$wheel" "${XDG_CACHE_HOME:-$HOME/.cache}/finetune/wheel"
else
  use_kept_or_compiled
fi
say "==> finetune was ready after $SECONDS s"

name=$(basename "$config")
say "==> finetune train $config --output_dir $folder/runs/${name%.*} $*"
exec "$binary" train "$config" --output_dir "$folder/runs/${name%.*}" "$@"
