#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# scripts/bench/memory.py measures a small model and reports the result.
set -eu
binary=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

bench() {
  python3 "$root/scripts/bench/memory.py" --binary "$binary" --model tiny \
    --output "$folder/memory.jsonl" --svg "$folder/memory.svg" "$@"
}
bench --program ours --rung plain accumulation --updates 3 --threads 1
python3 - "$folder/memory.jsonl" <<'PYTHON'
import json, sys
runs = [json.loads(line) for line in open(sys.argv[1])]
assert [r["rung"] for r in runs] == ["plain", "accumulation"], runs
for run in runs:
    assert run["exit_code"] == 0 and len(run["update_seconds"]) == 2, run
    assert min(run["update_seconds"]) > 0 and 50 < run["peak_rss_mib"] < 2000, run
PYTHON
bench --report >"$folder/table"
grep -q '^| accumulation | [0-9]' "$folder/table"
grep -q '</svg>' "$folder/memory.svg"

# A run that fails is in the records, and the script fails.
cat >"$folder/failing" <<SHELL
#!/bin/sh
if [ "\$1" = tokenizer ]; then exec "$binary" "\$@"; fi
echo 'error: no' >&2
exit 2
SHELL
chmod +x "$folder/failing"
if bench --program ours --rung plain --binary "$folder/failing"; then exit 1; fi
tail -n 1 "$folder/memory.jsonl" | grep -q '"exit_code": 2.*"error": \["error: no"\]'

if bench --program ours --rung plain --data "$folder/absent" 2>"$folder/error"; then exit 1; fi
grep -q 'absent' "$folder/error"
