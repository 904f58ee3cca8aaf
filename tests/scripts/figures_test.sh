#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# scripts/check_figures.py warns of figures that are older than its limits, and only of these.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
check() { python3 "$root/scripts/check_figures.py" --file "$folder/first_loss.json" --page "$folder/page.md" "$@"; }
measured() {  # measured DATE
  printf '<!-- build:begin -->\n| table |\n\n%s, commit 0000000, a clone\n<!-- build:end -->\n' "$1" >"$folder/page.md"
  printf '[{"what": "wheel", "date": "%s", "commit": "0000000"}]\n' "$1" >"$folder/first_loss.json"
}
measured "$(date +%F)"
check
measured "$(date +%F -d '90 days ago')"
output=$(check) && exit 1
[[ $output == "warning: the build times are 90 days old; measure again: scripts/bench/build_time.py
warning: the seconds to the first loss of 'wheel' are 90 days old; measure again: scripts/bench/first_loss.py wheel (as root)" ]]
check --days 100
# Measured this year, but many commits ago.
measured "$(date +%F)"
if commit=$(git -C "$root" rev-parse --short HEAD~3 2>/dev/null); then
  sed -i "s/0000000/$commit/" "$folder/page.md"
  output=$(check --commits 2) && exit 1
  [[ $output == *"the build times are "*" commits old"* ]]
fi
rm "$folder/first_loss.json"
output=$(check) && exit 1
[[ $output == *"no seconds to the first loss were measured: scripts/bench/first_loss.py checkout"* ]]
sed -i 's/commit/of/' "$folder/page.md"
output=$(check 2>&1) && exit 1
[[ $output == "error: $folder/page.md names no date and commit of its build times" ]]
