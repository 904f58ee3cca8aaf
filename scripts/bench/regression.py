# SPDX-License-Identifier: MIT
"""The regression guard: instruction counts and peak memory of four small runs.

Instructions are counted by valgrind's callgrind, which presents the same processor (AVX2, no AVX-512)
on every machine with AVX2, so that finetune chooses the same code everywhere; environment variables fix that
of ATen, oneDNN and MKL. Counts do not depend on the load. Each run has one thread. What libtorch executes before main() is
counted separately: it is larger than a small run and would hide it. The other counts are split by
library, because they are comparable under different conditions:

    finetune  the binary's own code           same compiler
    torch     libtorch, with oneDNN and MKL   same build of torch
    system    C and C++ library, loader       same C library and build of torch
    start     everything before main()        same C library and build of torch

Peak memory is the heap's, by valgrind's massif: the resident size also has pages of libtorch's files, which depend on
the page cache by tens of MiB. A count that differs in its conditions is reported and not compared.
"""

import collections
import datetime
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FIGURES = HERE / "results" / "regression.json"
FIXTURES = ROOT / "tests" / "fixtures"
TOLERANCE = 0.03
# Below this a count is noise: paths have other lengths, a clock prints another line.
SMALLEST_COUNT = 2_000_000
FUNCTIONS = 25  # whose own counts are kept, to name what has grown

SMALL = {
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "hidden_size": 64,
    "intermediate_size": 256,
    "max_position_embeddings": 66,
}
COMMON = {
    "tokenizer_name": str(FIXTURES / "tokenizers" / "lighthouse"),
    "per_device_train_batch_size": 8,
    "max_seq_length": 64,
    "learning_rate": 1e-3,
    "logging_steps": 5,
    "save_strategy": "no",
    "eval_strategy": "no",
    "preprocessing_num_workers": 1,
    "use_cpu": True,
    "report_to": "none",
    "disable_tqdm": True,
}


def runs(folder):
    """Name to (keys of the configuration or None, words of the command). Later runs use the results of earlier ones."""
    text = folder / "corpus.txt"
    text.write_text((FIXTURES / "text" / "lighthouse.txt").read_text() * 12)
    tasks = FIXTURES / "tasks"
    rows = [json.loads(line)["text"] for line in (tasks / "topics-train.jsonl").open(encoding="utf-8")]
    (folder / "rows.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return {
        "mlm": (
            {
                "model_type": "roberta",
                "config_overrides": SMALL,
                "train_file": str(FIXTURES / "text" / "lighthouse.txt"),
                "validation_file": str(FIXTURES / "text" / "lighthouse-valid.txt"),
                "max_steps": 10,
                "save_strategy": "steps",
                "save_steps": 5,
                "eval_strategy": "steps",
                "eval_steps": 10,
            },
            ["train"],
        ),
        "classification": (
            {
                "task": "sequence_classification",
                "model_type": "bert",
                "config_overrides": SMALL,
                "train_file": str(tasks / "topics-train.jsonl"),
                "validation_file": str(tasks / "topics-valid.jsonl"),
                "text_column": "text",
                "max_steps": 20,
            },
            ["train"],
        ),
        "predict": (None, ["predict", str(folder / "classification" / "out"), "--use_cpu", "--input",
                           str(folder / "rows.txt"), "--output", "FOLDER/answers.jsonl"]),
        "corpus": ({"model_type": "roberta", "config_overrides": SMALL, "train_file": str(text)}, ["prepare"]),
    }  # fmt: skip


def command_of(binary, folder, name, keys, words):
    """The command, with an empty output folder (FOLDER in `words`) and token cache."""
    out = folder / name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    if keys is None:
        return [str(binary), *(word.replace("FOLDER", str(out)) for word in words)]
    config = out / "config.json"
    config.write_text(json.dumps({**COMMON, **keys, "output_dir": str(out / "out"), "cache_dir": str(out / "cache")}))
    return [str(binary), *words, str(config)]


def environment():
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "TMPDIR")}
    return {
        **kept,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "passive",
        # The libraries' code without fused multiply-add, which valgrind emulates a number at a time.
        "ATEN_CPU_CAPABILITY": "default",
        "DNNL_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    }


def checked(command, log):
    """Runs `command`; its output goes to `log`."""
    with open(log, "wb") as text:
        done = subprocess.run(command, env=environment(), stdout=text, stderr=text)
    if done.returncode != 0:
        raise SystemExit(f"error: {' '.join(command)} exited with {done.returncode}:\n{log.read_text()[-2000:]}")


def peak_heap(command, folder, name):
    """KiB that were allocated at once, by valgrind's massif."""
    out = folder / f"{name}.massif"
    words = ["valgrind", "--tool=massif", f"--massif-out-file={out}", "--depth=1", "--heap-admin=0", "--peak-inaccuracy=0.2"]
    checked([*words, *command], folder / f"{name}.massif.log")
    return max(int(n) for n in re.findall(r"^mem_heap_B=(\d+)$", out.read_text(), re.MULTILINE)) // 1024


def library_of(path):
    name = os.path.basename(path)
    if name == "finetune":
        return "finetune"
    return "torch" if re.match(r"lib(torch|c10|gomp|shm)", name) else "system"


def read_profile(path):
    """Instructions by library and by function of the binary, from a file of callgrind."""
    libraries, functions = collections.Counter(), collections.Counter()
    objects, names = {}, {}

    def full(text, table):
        number, _, name = text.partition(" ")
        if name:
            table[number] = name
        return table.get(number, number)

    library = function = ""
    skip = False
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("ob="):
                library = library_of(full(line[3:].rstrip(), objects))
            elif line.startswith("fn="):
                function = full(line[3:].rstrip(), names)
            elif line.startswith(("cob=", "cfn=")):
                full(line[4:].rstrip(), objects if line[1] == "o" else names)
            elif line.startswith("calls="):
                skip = True  # the next line is the cost of what was called
            elif line[:1] in "0123456789+-*" and line.strip():
                fields = line.split()
                if skip:
                    skip = False
                elif len(fields) == 2:
                    libraries[library] += int(fields[1])
                    if library == "finetune":
                        functions[function] += int(fields[1])
    return libraries, functions


def count(command, folder, name):
    """Runs `command` in callgrind: {"finetune": N, "torch": N, "system": N, "start": N}, own counts of functions."""
    out, log = folder / f"{name}.callgrind", folder / f"{name}.log"
    words = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--dump-before=main", "--dump-line=no"]
    checked([*words, *command], log)
    before = Path(f"{out}.1")
    if not before.exists():
        raise SystemExit(f"error: {command[0]} has no symbol 'main': build it without stripping")
    libraries, functions = read_profile(out)
    libraries["start"] = sum(read_profile(before)[0].values())
    return dict(libraries), dict(functions.most_common(FUNCTIONS))


def conditions(binary):
    """What the counts depend on in addition to the source."""
    content = binary.read_bytes()
    compilers = {m.decode() for m in re.findall(rb"(?:GCC: \([^)]*\) [0-9.]+|clang version [0-9.]+)", content)}
    listed = subprocess.run(["ldd", str(binary)], capture_output=True, text=True).stdout
    torch = re.search(r"=> (\S*libtorch_cpu\.so)", listed)
    if not torch:
        raise SystemExit(f"error: ldd {binary} names no libtorch_cpu.so")
    library = Path(torch[1])
    version = library.parent.parent / "version.py"
    found = re.search(r"__version__ = '([^']+)'", version.read_text()) if version.exists() else None
    flags = re.search(r"flags\s*: (.*)", Path("/proc/cpuinfo").read_text())
    valgrind = subprocess.run(["valgrind", "--version"], capture_output=True, text=True).stdout.strip()
    return {
        "compiler": " and ".join(sorted(compilers)),
        "torch": f"{found[1] if found else 'unknown'}, libtorch_cpu.so of {library.stat().st_size} bytes",
        "libc": " ".join(platform.libc_ver()),
        "valgrind": valgrind,
        "processor": f"{platform.machine()} with {'AVX2' if flags and 'avx2' in flags[1].split() else 'no AVX2'}",
    }


NEEDS = {
    "finetune": ("compiler", "valgrind", "processor"),
    "torch": ("torch", "valgrind", "processor"),
    "system": ("torch", "libc", "valgrind", "processor"),
    "start": ("torch", "libc", "valgrind", "processor"),
    "heap_kib": ("torch", "libc", "valgrind"),
}


def measure(binary, names=None):
    if not shutil.which("valgrind"):
        raise SystemExit("error: valgrind is missing: apt-get install valgrind (scripts/test installs it)")
    result = {"date": datetime.date.today().isoformat(), "commit": commit(), "conditions": conditions(binary), "runs": {}}
    with tempfile.TemporaryDirectory(prefix="finetune-check-") as scratch:
        folder = Path(scratch)
        chosen = {n: r for n, r in runs(folder).items() if not names or n in names or n == "classification"}
        if "predict" in chosen:  # with the model of this run
            keys, words = chosen["classification"]
            checked(command_of(binary, folder, "classification", keys, words), folder / "classification.log")
        with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
            counts, heaps = {}, {}
            for name, (keys, words) in chosen.items():
                command = command_of(binary, folder, f"{name}-counted", keys, words)
                counts[name] = pool.submit(count, command, folder, name)
                command = command_of(binary, folder, f"{name}-heap", keys, words)
                heaps[name] = pool.submit(peak_heap, command, folder, name)
            for name, future in counts.items():
                libraries, functions = future.result()
                result["runs"][name] = {"heap_kib": heaps[name].result(), **libraries, "functions": functions}
    return result


def commit():
    git = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    found = subprocess.run(git, capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else None


def grown(stored, measured):
    """The functions of the binary whose own counts have grown most."""
    steps = {f: n - stored.get(f, 0) for f, n in measured.items()}
    worst = sorted(((d, f) for f, d in steps.items() if d > SMALLEST_COUNT // 4), reverse=True)[:4]
    return "".join(f"\n      {d:+,} {f[:120]}{'' if f in stored else ' (new, or small before)'}" for d, f in worst)


def compare(stored, measured, say=print):
    """Prints each figure; the number of those that have grown by more than the tolerance."""
    then, now = stored["conditions"], measured["conditions"]
    differing = [k for k in now if now[k] != then.get(k)]
    for key in differing:
        figures = ", ".join(f for f, needs in NEEDS.items() if key in needs)
        say(f"note: {key} is '{now[key]}', of the stored figures '{then.get(key)}': not compared: {figures}")
    comparable = [f for f, needs in NEEDS.items() if not set(needs) & set(differing)]
    if not comparable:
        say("note: nothing is comparable here; record figures of this machine with --record --figures FILE")
    worse = better = 0
    for name, figures in measured["runs"].items():
        for figure in comparable:
            old, new = stored["runs"].get(name, {}).get(figure), figures.get(figure)
            if old is None or new is None or (figure != "heap_kib" and max(old, new) < SMALLEST_COUNT):
                continue
            change = new / old - 1
            what = "peak memory, KiB" if figure == "heap_kib" else f"instructions, {figure}"
            mark = "GREW" if change > TOLERANCE else "fell" if change < -TOLERANCE else "ok"
            say(f"{mark:5}{name}: {what}: {new:,} (stored {old:,}, {change:+.1%})")
            if mark == "GREW":
                worse += 1
                if figure == "finetune":
                    details = grown(stored["runs"][name].get("functions", {}), figures.get("functions", {}))
                    say(f"     own counts that grew most:{details}" if details else "     in many small functions")
            better += mark == "fell"
    if better:
        say(f"{better} figures fell by more than {TOLERANCE:.0%}: record them (python3 scripts/bench --check --record)")
    return worse


def check(binary, figures=FIGURES, record=False, measured=None, output=None, names=None):
    """The exit code of `--check`."""
    result = json.loads(Path(measured).read_text()) if measured else measure(binary, names)
    if output:
        Path(output).write_text(json.dumps(result, indent=1) + "\n")
    if record:
        Path(figures).write_text(json.dumps(result, indent=1) + "\n")
        print(f"recorded in {figures}")
        return 0
    if not Path(figures).exists():
        raise SystemExit(f"error: there is no {figures}: record it with --check --record")
    stored = json.loads(Path(figures).read_text())
    worse = compare(stored, result)
    if worse:
        print(f"error: {worse} figures grew by more than {TOLERANCE:.0%} since {stored['date']} ({stored['commit']}); "
              "make them smaller, or, where the growth is meant, record them and state the reason in the commit: "
              "python3 scripts/bench --check --record")  # fmt: skip
    return 1 if worse else 0
