# SPDX-License-Identifier: MIT
# scripts/bench --check fails if a figure grew and reports what is not comparable. Nothing is
# measured here; the ctest entry bench.check measures.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# change EXPRESSION: makes a copy of the stored figures with a change in Python.
change() {
  python3 - "$root/scripts/bench/results/regression.json" "$folder/measured.json" "$1" <<'PYTHON'
import json, sys
figures = json.load(open(sys.argv[1]))
mlm, conditions = figures["runs"]["mlm"], figures["conditions"]
exec(sys.argv[3])
json.dump(figures, open(sys.argv[2], "w"))
PYTHON
}
check() { python3 "$root/scripts/bench" --check --measured "$folder/measured.json" "$@" >"$folder/said" 2>&1; }

change 'pass'
check
grep -q '^ok   mlm: instructions, finetune: ' "$folder/said"
grep -q '^ok   corpus: peak memory' "$folder/said"

# Each figure fails by itself just above the tolerance, and the message names it.
for figure in finetune torch system start heap_kib; do
  change "mlm['$figure'] = round(mlm['$figure'] * 1.04)"
  if check; then exit 1; fi
  grep -q '^GREW mlm: ' "$folder/said"
  grep -q '^error: 1 figures grew by more than 3%' "$folder/said"
done
change "mlm['finetune'] *= 2; mlm['functions']['finetune::planted()'] = mlm['finetune'] // 2"
if check; then exit 1; fi
grep -q '+[0-9,]* finetune::planted() (new, or small before)' "$folder/said"

# Nothing fails within the tolerance or below.
change "mlm['finetune'] = round(mlm['finetune'] * 1.02); mlm['torch'] //= 2"
check
grep -q '^fell mlm: instructions, torch: ' "$folder/said"
grep -q 'record them' "$folder/said"

# Another compiler, torch or processor is reported, and only the rest is compared.
change "conditions['compiler'] = 'other'; mlm['finetune'] *= 2"
check
grep -q "^note: compiler is 'other'.*not compared: finetune$" "$folder/said"
grep -q '^ok   mlm: instructions, torch' "$folder/said"
change "conditions['torch'] = 'other'; mlm['torch'] *= 2; mlm['heap_kib'] *= 2"
check
grep -q '^ok   mlm: instructions, finetune' "$folder/said"
if grep -q 'instructions, torch:' "$folder/said"; then exit 1; fi
change "conditions['torch'] = 'other'; mlm['finetune'] *= 2"
if check; then exit 1; fi
change "conditions.update(processor='other', torch='other')"
check
grep -q 'nothing is comparable here' "$folder/said"

if check --figures "$folder/absent"; then exit 1; fi
grep -q 'error: there is no .*absent' "$folder/said"
if python3 "$root/scripts/bench" --check typo 2>"$folder/said"; then exit 1; fi
grep -q "no run 'typo'" "$folder/said"
