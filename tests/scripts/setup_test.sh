# SPDX-License-Identifier: MIT
# Without the right to install, the scripts name what is missing and the command that brings it.
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
