#!/usr/bin/env bash
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

# --document changes only the blocks of what was measured, and refuses figures of a bench that failed.
mkdir "$folder/bench"
printf 'a\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nb\n<!-- bench-growth:begin -->\n<!-- bench-growth:end -->\nc\n' \
  >"$folder/page.md"
results() {
  python3 - "$folder/bench/bench.json" "$1" <<'PYTHON'
import json, sys
both = {"finetune": {"cpu_seconds": [1.5, 2, 9], "peak_mib": [10]}, "transformers": {"cpu_seconds": [5.0]}}
update = {"title": "an update & more", "unit": "CPU s", "figure": "cpu_seconds", **both, "limit": 1.6, "limit_is": "products"}
growth = {"table": "| grown |", "curves": {"batch": [[4, 1.0], [8, 1.9], [16, 4.1]]}}
rows = {"update": update, "growth": growth}
exec(sys.argv[2])
about = {"cpu": "a processor", "threads": 2, "torch": "2", "transformers": "5", "date": "2026-01-02", "load": 0.5}
for row in rows.values():
    row.update(load=0.5, commit="0123abc", date="2026-01-02")
growth["date"] = "2026-01-01"
json.dump({"about": {**about, "commit": "0123abc"}, "rows": rows}, open(sys.argv[1], "w"))
PYTHON
}
document() { python3 "$root/scripts/bench" --document --output "$folder/bench" --page "$folder/page.md" >"$folder/said" 2>&1; }
results 'pass'
document
grep -q '^| an update & more, CPU s | 2 | 5 | 2.50 | 1.6 | 1.25 | products | 10 |$' "$folder/page.md"
grep -q '^| grown |$' "$folder/page.md"
grep -q '^2026-01-01, commit 0123abc.$' "$folder/page.md"
grep -q '^2026-01-01 and 2026-01-02, commit 0123abc, a processor' "$folder/page.md"
if grep -q old "$folder/page.md"; then exit 1; fi
[ "$(grep -c '^[abc]$' "$folder/page.md")" = 3 ]
grep -q 'an update &amp; more' "$folder/bench.svg"
grep -q 'batch: slope 1.0' "$folder/growth.svg"
python3 -c 'import sys, xml.dom.minidom as d; [d.parse(f) for f in sys.argv[1:]]' "$folder/bench.svg" "$folder/growth.svg"
cp "$folder/page.md" "$folder/once.md"
document
cmp "$folder/page.md" "$folder/once.md"
results 'rows["resume"] = {"error": "no disk"}'
if document; then exit 1; fi
grep -q 'error: resume failed' "$folder/said"
results 'rows["saves"] = {"table": "| x |"}'
if document; then exit 1; fi
grep -q "no '<!-- bench-saves:begin -->'" "$folder/said"
cmp "$folder/page.md" "$folder/once.md"

# A part of SQuAD's file has that many questions, whatever the articles are.
python3 - "$root" "$folder" <<'PYTHON'
import json, pathlib, sys, types

sys.path.insert(0, sys.argv[1] + "/scripts/bench")
import speed

folder = pathlib.Path(sys.argv[2])
article = {"title": "t", "paragraphs": [{"context": "c", "qas": [{"id": i} for i in range(3)]} for _ in range(2)]}
(folder / "squad.json").write_text(json.dumps({"version": "1", "data": [article, article]}))
bench = speed.Bench(types.SimpleNamespace(data=folder, threads=1), folder)
for samples, wanted in ((1, [[1]]), (3, [[3]]), (8, [[3, 3], [2]]), (20, [[3, 3], [3, 3]])):
    data = json.loads(bench.part_of({"file": "squad.json"}, samples).read_text())["data"]
    assert [[len(p["qas"]) for p in a["paragraphs"]] for a in data] == wanted, (samples, data)

# A bench may follow another one that made the same model.
bench.tokenizer = lambda size: folder
bench.peer = lambda job, model, **more: (model.mkdir(), {"parameters": 7})
for _ in range(2):
    bench.model("tiny", dict(speed.TRAININGS["tiny"]))
    assert bench.parameters == {"tiny": 7}
PYTHON

# The attention's table of a session with one length, of which no curve can be drawn.
for name in ours ours_dropout flash transformers module; do
  printf '{"session": "s", "name": "%s", "tokens": 64, "hidden": 8, "heads": 2, "cpu": "a processor", ' "$name"
  printf '"seconds": [0.5], "processor": [1.0], "extra_bytes": 1048576}\n'
done >"$folder/bigbird.jsonl"
python3 "$root/scripts/bench/bigbird.py" --report --results "$folder/bigbird.jsonl" >"$folder/said"
grep -q '^| block-sparse, here | 0.500 | 1.000 | 1.0 | 1 |$' "$folder/said"
