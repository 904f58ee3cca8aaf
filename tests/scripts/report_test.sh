#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The page of `finetune report` in a real browser: drawings, widths, keyboard, and an empty console.
# REPORT_PICTURES=FOLDER stores the screenshots.
set -eu
binary=$1
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [[ -z $browser ]]; then
  echo "skipped: no chromium on PATH (scripts/setup.sh installs it for the tests)"
  [[ ${CI:-} == true ]] && exit 1
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
pictures=${REPORT_PICTURES:-$folder}

python3 - "$folder" <<'PYTHON'
import json, math, pathlib, random, sys

# A file with labels and what was predicted of it; texts that would be markup.
labelled = [{"text": f"Review {i}: <b>not</b> </script> & so on", "label": ["negative", "positive"][i % 2]} for i in range(60)]
predicted = [["negative", "positive"][(i % 2) ^ (i % 7 == 0)] for i in range(60)]
wrong = [i for i in range(60) if predicted[i] != labelled[i]["label"]]
worst = [{"sample": i, "score": 0.01 + place / 100, "label": labelled[i]["label"], "predicted": predicted[i],
          "predicted_score": 0.99 - place / 100} for place, i in enumerate(wrong)]

# Two runs as the program leaves them: five interruptions, a rollback, a changed learning rate.
random.seed(7)
begin = 1763900000
for run, rate in (("bert-base", 5e-5), ("bert-large", 3e-5)):
    out = pathlib.Path(sys.argv[1]) / run
    out.mkdir()
    config = {"task": "sequence_classification", "model_name_or_path": run, "learning_rate": rate,
              "train_file": ["/data/reviews/train.jsonl"], "max_steps": 6000, "save_steps": 500,
              "test_file": [str(pathlib.Path(sys.argv[1]) / "test.jsonl")]}
    ends = [(0, 900, None), (500, 1700, 75), (1700, 2600, None), (2500, 3900, None), (3500, 4700, 1),
            (4500, 6000, 0)]
    events, lines, time = [], [], begin
    for session, (first, last, code) in enumerate(ends, 1):
        if session == 4:
            config = {**config, "learning_rate": rate / 2}
        events.append({"event": "start", "time": time, "session": session, "run_id": run,
                       "step": first, "max_steps": 6000, "host": "node-3", "pid": 7, "device": "Tesla T4",
                       "parameters": 109483778, "config": config,
                       "data": {"train": {"samples": 25000, "looked_at": 2000, "mean_length": 190.2,
                                          "median_length": 160, "longest": 509, "bin_width": 26,
                                          "lengths": [4, 40, 160, 310, 380, 330, 240, 170, 110, 80, 55,
                                                      40, 25, 18, 12, 10, 7, 5, 3, 1],
                                          "labels": {"0": 990, "1": 1010}},
                                "validation": {"samples": 2000}}})
        lines = [line for line in lines if line["step"] <= first]
        if session == 4:
            events.append({"event": "rollback", "time": time + 600, "from": 3101, "to": 3000,
                           "reason": "step 3102: the loss is NaN"})
        for step in range(first + 10, last + 1, 10):
            scale = 1 if run == "bert-base" else 0.93
            shared = {"step": step, "epoch": step / 1562, "time": time + (step - first) * 0.9,
                      "session": session, "tokens_per_second": 8400 + random.gauss(0, 40) + session * 60,
                      "memory_mib": 3900 + 120 * (step > 2500)}
            lines.append({**shared, "loss": scale * (0.25 + 0.5 * math.exp(-step / 900))
                          + random.gauss(0, 0.02), "grad_norm": 1.2 + abs(random.gauss(0, 0.5)),
                          "learning_rate": config["learning_rate"] * (1 - step / 6000)})
            if step % 500 == 0:
                lines.append({**shared, "eval_loss": scale * (0.31 + 0.4 * math.exp(-step / 800)),
                              "eval_accuracy": 0.93 - 0.35 * math.exp(-step / 700)})
                if step == 6000:
                    lines[-1]["eval_mean_token_accuracy"] = 0.87  # evaluated once, with a long name
                    results = {"eval_matthews_correlation": 0.86, "train_samples_per_second": 8.5}
                    (out / "all_results.json").write_text(json.dumps(results))
        time += (last - first) * 0.9
        if code in (0, 75):
            events.append({"event": "end", "time": time, "code": code, "step": last,
                           "reason": "stopped by SIGTERM" if code else "finished"})
        if code == 1:
            events.append({"event": "error", "time": time, "message": "no space left on device"})
        time += 400 * session
    for name, rows in (("metrics", lines), ("sessions", events)):
        (out / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    state = {"global_step": 6000, "max_steps": 6000, "best_metric": 0.9295, "best_global_step": 6000}
    (out / "trainer_state.json").write_text(json.dumps(state))
    (out / "finetune_state.json").write_text(json.dumps({"finished": True, "seconds": 5400}))
    (out / "config.json").write_text(json.dumps({"id2label": {"0": "negative", "1": "positive"}}))
    record = {"task": "sequence_classification", "columns": {"text_column": "text", "label_column": "label"}}
    (out / "finetune_data.json").write_text(json.dumps(record))
    (out / "predict_results.txt").write_text(
        "index\tprediction\n" + "".join(f"{i}\t{label}\n" for i, label in enumerate(predicted)))
    (out / "worst_samples.json").write_text(json.dumps(
        {"split": "test", "measure": "probability", "samples": 60, "worst": worst}))
(pathlib.Path(sys.argv[1]) / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in labelled))
PYTHON

"$binary" report "$folder/bert-base" -o "$folder/one.html" 2>/dev/null
"$binary" report "$folder/bert-base" "$folder/bert-large" -o "$folder/two.html" 2>/dev/null

# browse PAGE WIDTH HEIGHT OPTION...: prints the console's messages and the output of the options.
browse() {
  local page=$1 width=$2 height=$3
  shift 3
  timeout 120 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
    --user-data-dir="$folder/profile" --hide-scrollbars --enable-logging=stderr --v=0 \
    --window-size="$width,$height" --virtual-time-budget=4000 "$@" "file://$page"
}
problems() { grep -E "CONSOLE|Uncaught" "$1" && { echo "the browser complains"; exit 1; } || true; }
expect() {  # expect COUNT REGEX FILE
  local found
  found=$(grep -oE "$2" "$3" | wc -l)
  [[ $found == "$1" ]] || { echo "expected $1 of $2 in ${3##*/}, found $found"; exit 1; }
}

# Operates the page and writes the results into the document.
cat >"$folder/exercise.js" <<'SCRIPT'
window.addEventListener('load', () => {
  const found = [];
  const svg = document.querySelector('figure svg[tabindex]');
  svg.focus();
  svg.dispatchEvent(new KeyboardEvent('keydown', {key: 'End', bubbles: true}));
  found.push('end: ' + document.getElementById('tip').textContent);
  svg.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowLeft', bubbles: true}));
  found.push('left: ' + document.getElementById('tip').textContent);
  const box = svg.getBoundingClientRect();
  svg.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + box.width / 2, clientY: box.top + 50}));
  found.push('hover: ' + (document.getElementById('tip').hidden ? 'nothing' : 'shown'));
  const set = (id, change) => { const node = document.getElementById(id); change(node); node.dispatchEvent(new Event(node.type === 'range' ? 'input' : 'change')); };
  set('log', (node) => { node.checked = true; });
  set('smooth', (node) => { node.value = '0.9'; });
  set('axis', (node) => { node.value = 'time'; });
  found.push('raw: ' + document.querySelectorAll('path.raw').length);
  const labels = [...svg.ownerDocument.querySelectorAll('figure svg[tabindex]')].map((one) => [...one.querySelectorAll('text')].filter((t) => t.getAttribute('y') === '221').map((t) => t.textContent));
  found.push('repeated labels: ' + labels.filter((list) => list.length < 2 || new Set(list).size !== list.length).length);
  const narrow = [...document.querySelectorAll('.compare td:first-child, .compare th:first-child')].filter((cell) => cell.textContent && cell.clientWidth < 80);
  found.push('squeezed cells: ' + narrow.length);
  const halved = innerWidth < 701 ? [] : [...document.querySelectorAll('.compare td:first-child')].filter((cell) => cell.clientHeight > 40);
  found.push('halved names: ' + halved.length);
  const cut = [...document.querySelectorAll('.compare')].filter((one) => !['auto', 'scroll'].includes(getComputedStyle(one.parentElement).overflowX));
  found.push('cut tables: ' + cut.length);
  const outside = [...document.querySelectorAll('.card span, .card b, figcaption h3')].filter((name) => {
    const range = document.createRange();
    range.selectNodeContents(name);
    return range.getBoundingClientRect().right > name.closest('.card, figure').getBoundingClientRect().right;
  });
  found.push('texts outside their tile: ' + outside.length);
  const samples = [...document.querySelectorAll('tr.worst')];
  const named = (cell) => innerWidth > 640 || getComputedStyle(cell, '::before').content === `"${cell.dataset.name}"`;
  const visible = (cell) => cell.clientWidth > 0 && cell.getBoundingClientRect().right <= innerWidth && named(cell);
  found.push('hidden predictions: ' + samples.filter((row) => ![...row.cells].every(visible)).length + ' of ' + samples.length);
  const cutRows = [...document.querySelectorAll('.stack')].filter((one) => one.parentElement.scrollWidth > one.parentElement.clientWidth);
  found.push('cut rows: ' + cutRows.length);
  found.push('single values: ' + [...document.querySelectorAll('.single')].map((one) => one.textContent));
  const broken = [];
  for (const cell of document.querySelectorAll('td, th')) {
    if (cell.querySelector('.sample') || cell.clientWidth === 0) continue;
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), range = document.createRange();
    while (texts.nextNode()) {
      for (const word of texts.currentNode.data.matchAll(/[A-Za-z0-9.,]+/g)) {
        range.setStart(texts.currentNode, word.index);
        range.setEnd(texts.currentNode, word.index + word[0].length);
        if (new Set([...range.getClientRects()].map((box) => box.top)).size > 1) broken.push(word[0]);
      }
    }
  }
  found.push('broken words: ' + broken.length + ' ' + broken.slice(0, 5));
  found.push('curves: ' + document.querySelectorAll('path.curve').length);
  found.push('overflow: ' + (document.documentElement.scrollWidth > document.documentElement.clientWidth));
  const bad = [...document.querySelectorAll('path')].filter((path) => /NaN|Infinity/.test(path.getAttribute('d')));
  found.push('bad paths: ' + bad.length);
  document.title = found.join(' | ');
});
SCRIPT
for page in one two; do
  python3 - "$folder" $page <<'PYTHON'
import pathlib, sys
folder = pathlib.Path(sys.argv[1])
page = (folder / f"{sys.argv[2]}.html").read_text()
script = (folder / "exercise.js").read_text()
(folder / f"{sys.argv[2]}-tried.html").write_text(page.replace("</body>", f"<script>{script}</script></body>"))
PYTHON
  for width in 1000 390 360; do
    browse "$folder/$page.html" $width 900 --dump-dom >"$folder/dom" 2>"$folder/messages"
    problems "$folder/messages"
    browse "$folder/$page-tried.html" $width 900 --dump-dom >"$folder/tried" 2>"$folder/messages"
    problems "$folder/messages"
    expect 1 "overflow: false" "$folder/tried"
    expect 1 "bad paths: 0" "$folder/tried"
    expect 1 "hover: shown" "$folder/tried"
    expect 1 "repeated labels: 0" "$folder/tried"
    expect 1 "squeezed cells: 0" "$folder/tried"
    expect 1 "broken words: 0" "$folder/tried"
    expect 1 "cut tables: 0" "$folder/tried"
    expect 1 "halved names: 0" "$folder/tried"
    expect 1 "texts outside their tile: 0" "$folder/tried"
    expect 1 "cut rows: 0" "$folder/tried"
    if [[ $page == one ]]; then
      expect 7 'class="curve"' "$folder/dom"  # loss twice, accuracy, rate, norm, speed, memory
      expect 0 'class="raw"' "$folder/dom"
      expect 6 'class="session"' "$folder/dom"
      expect 22 'class="bar"' "$folder/dom"   # 20 lengths and 2 labels
      expect 1 ">↶<" "$folder/dom"
      expect 4 'class="heat"' "$folder/dom"
      expect 9 'class="worst"' "$folder/dom"  # every seventh of 60
      expect 9 "Review [0-9]+: &lt;b&gt;not&lt;/b&gt; &lt;/script&gt; &amp; so on" "$folder/dom"
      expect 1 "end: step 6,000training: [0-9.]+evaluation: [0-9.]+ \|" "$folder/tried"
      expect 1 "left: step 5,990" "$folder/tried"
      expect 1 "raw: 7 \|" "$folder/tried"
      expect 1 "curves: 7" "$folder/tried"
      expect 1 "hidden predictions: 0 of 9" "$folder/tried"
      expect 1 "single values: 0.87 at step 6,000" "$folder/tried"
    else
      expect 14 'class="curve"' "$folder/dom"
      expect 12 'class="session"' "$folder/dom"
      expect 1 "Keys that differ<" "$folder/dom"
    fi
  done
done

# A run of 50 seconds with three sessions whose throughput begins again, at several widths: no two
# labels of a drawing touch, steps are whole, and each session is its own part of the curve.
python3 - "$folder" <<'PYTHON'
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
out = folder / "short"
out.mkdir()
events, lines = [], []
for session, (first, last, begin) in enumerate([(0, 3, 0), (3, 4, 11.5), (4, 9, 22)], 1):
    labels = {"train": {"samples": 40, "looked_at": 40, "labels": {str(i): 8 - i for i in range(5)}}}
    events.append({"event": "start", "time": 1763900000 + begin, "session": session, "step": first, "data": labels})
    for step in range(first + 1, last + 1):
        line = {"step": step, "time": 1763900000 + begin + 5 * (step - first), "session": session}
        lines.append({**line, "tokens_per_second": 800 + 90 * step, "loss": 3 / step})
        lines.append({**line, "tokens_per_second": 300, "eval_loss": 3 / step})
events.append({"event": "end", "time": 1763900050, "code": 0, "step": 9, "reason": "finished"})
for name, rows in (("metrics", lines), ("sessions", events)):
    (out / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
(out / "config.json").write_text(json.dumps({"id2label": {str(i): f"Speaker number {i} of the play" for i in range(5)}}))
PYTHON
cat >"$folder/labels.js" <<'SCRIPT'
window.addEventListener('load', () => {
  const touching = [...document.querySelectorAll('svg')].flatMap((svg) => {
    const boxes = [...svg.querySelectorAll('text')].map((label) => [label.textContent, label.getBoundingClientRect()]);
    const meet = (a, b) => a.left < b.right + 2 && b.left < a.right + 2 && a.top + 3 < b.bottom && b.top + 3 < a.bottom;
    return boxes.flatMap(([a, one], i) => boxes.slice(i + 1).filter(([, other]) => meet(one, other)).map(([b]) => a + '/' + b));
  });
  const outside = [...document.querySelectorAll('svg')].flatMap((svg) => {
    const frame = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('text')].filter((label) => label.getBoundingClientRect().left < frame.left - 1 || label.getBoundingClientRect().right > frame.right + 1);
  });
  const figure = [...document.querySelectorAll('figure')].find((one) => one.textContent.includes('Throughput'));
  const parts = (figure.querySelector('path.curve').getAttribute('d').match(/M/g) || []).length;
  const fractions = [...figure.querySelectorAll('text.label')].filter((label) => label.textContent.includes('.'));
  document.title = `touching: ${touching.length} | outside: ${outside.length} | parts: ${parts} | fractions: ${fractions.length} | ${touching.join(' ')}`;
});
SCRIPT
"$binary" report "$folder/short" -o "$folder/short.html" 2>/dev/null
python3 - "$folder" <<'PYTHON'
import pathlib, sys
folder = pathlib.Path(sys.argv[1])
script = "<script>" + (folder / "labels.js").read_text() + "</script>"
for page in ("one", "short"):
    (folder / f"{page}-labels.html").write_text((folder / f"{page}.html").read_text().replace("</body>", script + "</body>"))
PYTHON
for width in 1000 600 390 300; do
  for page in one short; do
    browse "$folder/$page-labels.html" $width 900 --dump-dom >"$folder/labels" 2>"$folder/messages"
    problems "$folder/messages"
    grep -o "<title>touching.*</title>" "$folder/labels"
    expect 1 "touching: 0 \|" "$folder/labels"
    expect 1 "outside: 0 \|" "$folder/labels"
    [[ $page == one ]] || expect 1 "parts: 3 \| fractions: 0" "$folder/labels"
  done
done

# A notebook cell shows the page in a frame; two cells may.
python3 - "$folder" <<'PYTHON'
import html, pathlib, sys
folder = pathlib.Path(sys.argv[1])
page = html.escape((folder / "one.html").read_text())
frame = f'<iframe srcdoc="{page}" width="100%" height="900"></iframe>'
counted = """<script>window.addEventListener('load', () => { document.title = 'framed: ' +
[...document.querySelectorAll('iframe')].map((f) => f.contentDocument.querySelectorAll('path.curve').length).join(' '); });</script>"""
(folder / "framed.html").write_text(f"<!doctype html><title>cells</title>{frame}{frame}{counted}")
PYTHON
browse "$folder/framed.html" 1100 900 --dump-dom >"$folder/dom" 2>"$folder/messages"
problems "$folder/messages"
expect 1 "framed: 7 7" "$folder/dom"
# The script twice in one document, as notebooks that use no frame have it.
python3 - "$folder" <<'PYTHON'
import pathlib, sys
folder = pathlib.Path(sys.argv[1])
page = (folder / "one.html").read_text()
(folder / "twice.html").write_text(page + page[page.index("<body>"):])
PYTHON
browse "$folder/twice.html" 1100 900 --dump-dom >"$folder/dom" 2>"$folder/messages"
problems "$folder/messages"

# A run of 150 seconds with a constant value, and three runs with long names on a phone.
python3 - "$folder" <<'PYTHON'
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
for name in ("experiment-with-a-long-name-learning-rate-5e-5", "experiment-with-a-long-name-learning-rate-3e-5", "third"):
    (folder / name).mkdir()
    (folder / name / "metrics.jsonl").write_text("".join(json.dumps(
        {"step": step, "time": 1763900000 + step * 1.5, "loss": 2 / step, "grad_norm": 0.1}) + "\n" for step in range(1, 101)))
script = """<script>window.addEventListener('load', () => {
const set = (id, change) => { const node = document.getElementById(id); change(node); node.dispatchEvent(new Event(node.type === 'range' ? 'input' : 'change')); };
set('smooth', (node) => { node.value = '0.9'; });
const flat = [...document.querySelectorAll('figure')].find((figure) => figure.textContent.includes('Gradient norm'));
const heights = new Set([...flat.querySelector('path.curve').getAttribute('d').matchAll(/[ML]([0-9.]+) ([0-9.]+)/g)].map((m) => m[2]));
document.title = 'heights of the constant: ' + heights.size;
});</script>"""
(folder / "script.html").write_text(script)
PYTHON
"$binary" report "$folder"/experiment* "$folder/third" -o "$folder/long.html" 2>/dev/null
"$binary" report "$folder/third" -o "$folder/flat.html" 2>/dev/null
python3 - "$folder" <<'PYTHON'
import pathlib, sys
folder = pathlib.Path(sys.argv[1])
for page, script in (("long", "<script>" + (folder / "exercise.js").read_text() + "</script>"), ("flat", (folder / "script.html").read_text())):
    text = (folder / f"{page}.html").read_text()
    (folder / f"{page}-tried.html").write_text(text.replace("</body>", script + "</body>"))
PYTHON
for page in long flat; do
  browse "$folder/$page-tried.html" 400 900 --dump-dom >"$folder/$page-dom" 2>"$folder/messages"
  problems "$folder/messages"
done
expect 1 "overflow: false" "$folder/long-dom"
expect 1 "repeated labels: 0" "$folder/long-dom"
expect 1 "squeezed cells: 0" "$folder/long-dom"
expect 1 "broken words: 0" "$folder/long-dom"
expect 1 "cut tables: 0" "$folder/long-dom"
expect 1 "heights of the constant: 1" "$folder/flat-dom"

shoot() {  # shoot NAME PAGE WIDTH HEIGHT OPTION...
  local name=$1
  browse "$folder/$2.html" "$3" "$4" --screenshot="$pictures/$name.png" "${@:5}" 2>"$folder/messages" >/dev/null
  problems "$folder/messages"
  [[ $(stat -c %s "$pictures/$name.png") -gt 20000 ]] || { echo "$name.png is empty"; exit 1; }
}
shoot report one 1000 1500
shoot report-dark two 1000 1300 --blink-settings=preferredColorScheme=0
shoot report-phone one 390 1400
cmp -s "$pictures/report.png" "$pictures/report-dark.png" && { echo "dark is light"; exit 1; }
echo "passed"
