#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Without the right to install, the scripts name the missing packages and the command to install
# them.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)

output=$(FINETUNE_NO_INSTALL=1 CXX=/nonexistent/g++ FINETUNE_BUILD_DIR=/nonexistent \
  "$root/scripts/build" 2>&1) && { echo "succeeded"; exit 1; }
case $output in
  *"apt-get update && apt-get install -y --no-install-recommends g++"*) ;;
  *) printf '%s\n' "$output"; exit 1 ;;
esac

output=$(FINETUNE_PYTHON=/nonexistent/python3 FINETUNE_BUILD_DIR=/nonexistent \
  "$root/scripts/build" 2>&1) && { echo "succeeded"; exit 1; }
case $output in
  *"FINETUNE_PYTHON: there is no /nonexistent/python3"*) ;;
  *) printf '%s\n' "$output"; exit 1 ;;
esac

# In `pip wheel .` the variables of the outer build do not reach the pip that downloads a package.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/scripts"
cp "$root/scripts/fetch_sentencepiece" "$folder/scripts/"
cat >"$folder/python" <<'SCRIPT'
#!/bin/sh
if env | grep -qE '^(PYTHONPATH|_PYPROJECT_HOOKS_BACKEND_PATH)='; then exit 1; fi
while [ $# -gt 0 ]; do
  [ "$1" != --dest ] || echo text >"$2/sentencepiece-0.2.1.tar.gz"
  shift
done
SCRIPT
chmod +x "$folder/python"
output=$(PYTHONPATH=/outer _PYPROJECT_HOOKS_BACKEND_PATH=scripts/wheel FINETUNE_PYTHON=$folder/python \
  FINETUNE_ARCHIVES='' "$folder/scripts/fetch_sentencepiece" 2>&1) && { echo "succeeded"; exit 1; }
case $output in
  *"sentencepiece-0.2.1.tar.gz has the SHA-256 "*", not the pinned "*) ;;
  *) printf '%s\n' "$output"; exit 1 ;;
esac

# TorchTPU is installed where a chip of a TPU is on the bus; every machine of that cloud has a network
# card of the same vendor.
mkdir -p "$folder/sys/bus/pci/devices/card" "$folder/sys/bus/pci/devices/chip"
cat >"$folder/python" <<SCRIPT
#!/bin/sh
[ "\$1" = -m ] || exit 1
echo "\$@" >>$folder/pip.log
SCRIPT
printf '0x1ae0\n' | tee "$folder/sys/bus/pci/devices/card/vendor" >"$folder/sys/bus/pci/devices/chip/vendor"
printf '0x0042\n' | tee "$folder/sys/bus/pci/devices/card/device" >"$folder/sys/bus/pci/devices/chip/device"
tpu_packages() {
  # shellcheck disable=SC2016
  FINETUNE_SYS=$folder/sys bash -c 'source "$1/scripts/setup.sh"; python=$2; ensure_tpu_packages 2>&1' - \
    "$root" "$folder/python"
}
tpu_packages
test ! -e "$folder/pip.log"
printf '0x0063\n' >"$folder/sys/bus/pci/devices/chip/device"
tpu_packages >/dev/null
grep -q 'pip install .*torch-tpu==.* libtpu==' "$folder/pip.log"
