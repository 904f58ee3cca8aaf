#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The cell builds once. The next machine (no build folder, nothing unpacked) starts from the stored
# binary, finds the finished run and prints that.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cell() {  # cell HOME: what a machine with this home prints
  HOME=$1 XDG_CACHE_HOME=$1/cache "$root/scripts/colab_cell.sh" "$root/configs/smoke.yaml" \
    "$folder/drive" --max_steps 4 --cache_dir "$1/tokens" 2>&1
}
expect() {  # expect TEXT IN_OUTPUT
  case $2 in
    *"$1"*) ;;
    *)
      printf '%s\n' "$2"
      echo "expected: $1"
      exit 1
      ;;
  esac
}

first=$(cell "$folder/first")
expect "the next machine starts without building" "$first"
test -f "$folder/drive/runs/smoke/model.safetensors"
before=$(sha256sum "$folder/drive/runs/smoke/model.safetensors")

# If the cell tried to build, this would make it fail.
FINETUNE_BUILD_DIR=$folder/none/none
FINETUNE_NO_INSTALL=1
CXX=/nonexistent
export FINETUNE_BUILD_DIR FINETUNE_NO_INSTALL CXX
second=$(cell "$folder/second")
expect "==> using finetune-" "$second"
test "$before" = "$(sha256sum "$folder/drive/runs/smoke/model.safetensors")"
