#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Counts of soaks accumulate by commit and seed; repeating a seed replaces its counts.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
merge() { python3 "$root/scripts/bench/reliability_merge.py" "$folder/results" --into "$folder/all.json" "$@"; }
row() { # row FILE ROW CASES SEED [COMMIT]
  mkdir -p "$folder/results"
  printf '{"row": "%s", "cases": %s, "failures": 1, "seed": %s, "seconds": 2.5%s}\n' "$2" "$3" "$4" \
    "${5:+, \"commit\": \"$5\"}" >"$folder/results/$1.json"
}
expect() { # expect PYTHON-EXPRESSION over rows
  python3 - "$folder/all.json" "$1" <<'PYTHON'
import json, sys
rows = json.load(open(sys.argv[1]))["rows"]
assert eval(sys.argv[2]), f"{sys.argv[2]}: {rows}"
PYTHON
}

row kills "R2.forks sync" 10 1 aaa
row classic R5 7 1
merge --commit aaa
expect '[r["cases"] for r in rows] == [10, 7]'
[[ -z $(ls "$folder/results") ]] || { echo "merged files would count twice"; exit 1; }

row kills "R2.forks sync" 5 2 aaa
row classic R5 3 2
merge --commit bbb
expect '[r["cases"] for r in rows] == [15, 3]'
expect 'rows[0]["failures"] == 2 and rows[0]["seeds"] == [1, 2] and rows[0]["seconds"] == 5'
expect 'rows[1]["commit"] == "bbb"'

# Another commit has separate counts; a seed counts once.
row kills "R2.forks sync" 4 2 bbb
merge
expect '[r["cases"] for r in rows] == [15, 4, 3]'
row kills "R2.forks sync" 4 2 aaa
if merge 2>/dev/null; then
  echo "the same seed counted twice"
  exit 1
fi
expect '[r["cases"] for r in rows] == [15, 4, 3]'
[[ $(merge --next_seed R2.forks) == 3 && $(merge --next_seed R19) == 1 ]]
