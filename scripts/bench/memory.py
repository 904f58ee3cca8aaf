#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Peak memory and time of an update for each technique that saves memory, beside transformers.

Every rung is a separate process: `finetune train` with a generated configuration, and
memory_peer.py with transformers' Trainer, one after the other. Both are watched alike: from the
line that they write after each update, its seconds and CPU seconds; from the kernel, the peak of
the resident set. One JSON line a run is appended to results/memory.jsonl; --report makes a Markdown
table and docs/memory.svg of the newest runs. Times are those of the updates after the first.

memory.py --model tiny tries the script out in seconds. Needs nothing but the standard library;
the peer needs transformers, and bitsandbytes for 8-bit AdamW.
"""

import argparse
import datetime
import json
import os
import platform
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from memory_report import report
from memory_rungs import MODELS, RUNGS, SEQUENCE, keys_of, model_of

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MIB = 2**20


def status_of(pid):
    """(CPU seconds, peak resident bytes so far) of a running process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return cpu, int(peak[1]) * 1024 if peak else 0


def watch(command, env, log):
    """Runs a process to its end; what it took, from its lines "train STEP/STEPS ..."."""
    start = time.monotonic()
    marks = []
    process = subprocess.Popen(
        [str(c) for c in command], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    with open(log, "wb") as copy:
        for line in process.stderr:
            now = time.monotonic()
            copy.write(line)
            step = re.match(rb"train (\d+)/\d+ ", line)
            if step and int(step[1]) == len(marks) + 1:
                marks.append((now, *status_of(process.pid)))
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    result = {
        "exit_code": process.returncode,
        "process_seconds": time.monotonic() - start,
        "process_cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_rss_mib": usage.ru_maxrss / 1024,
        "peak_rss_of_updates_mib": marks[-1][2] / MIB if marks else None,
    }
    pairs = list(zip(marks, marks[1:]))
    result["update_seconds"] = [later[0] - earlier[0] for earlier, later in pairs]
    result["update_cpu_seconds"] = [later[1] - earlier[1] for earlier, later in pairs]
    return result


def make_text(path, words):
    """Lines of made-up words, the same in every run."""
    rng = random.Random(0)
    syllables = [a + b for a in "bcdfghjklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "oj")]
    lexicon = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(20000)]
    chosen = rng.choices(lexicon, k=words)
    lines = (" ".join(chosen[i : i + 12]) for i in range(0, words, 12))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def make_tokenizer(args, work, text, vocab_size):
    """A byte-level BPE tokenizer, filled up to `vocab_size` with tokens that no text has."""
    folder = work / f"tokenizer-{vocab_size}"
    command = [args.binary, "tokenizer", "train", "--type", "byte_level_bpe", "--overwrite"]
    command += ["--vocab_size", min(vocab_size, 2000), "--output", folder, text]
    subprocess.run([str(c) for c in command], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)  # fmt: skip
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    for i in range(vocab_size - len(vocabulary)):
        vocabulary[f"<unused{i}>"] = len(vocabulary)
    path.write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    return folder


def prepare(args, work, vocab_sizes):
    work.mkdir(parents=True, exist_ok=True)
    text = work / "text.txt"
    if args.data:
        texts = [args.data] if args.data.is_file() else sorted(args.data.glob("*.txt"))
        if not texts:
            raise SystemExit(f"{args.data} holds no *.txt")
        text.write_bytes(b"".join(t.read_bytes() for t in texts))
    else:
        make_text(text, words=60000)
    return text, {size: make_tokenizer(args, work, text, size) for size in vocab_sizes}


def train_ours(args, rung, work, text, tokenizers, env):
    shape = MODELS[model_of(rung, args.model)]["shape"]
    with tempfile.TemporaryDirectory(dir=work) as output:
        config = {
            "model_type": "roberta",
            "config_overrides": shape,
            "tokenizer_name": str(tokenizers[shape["vocab_size"]]),
            "train_file": str(text),
            "max_seq_length": SEQUENCE,
            "mlm_probability": 0.15,
            "use_cpu": True,
            "logging_steps": 1,
            "output_dir": str(Path(output) / "run"),
            **keys_of(rung, "ours", args.model, args.updates),
        }
        path = work / f"{rung}.json"
        path.write_text(json.dumps(config, indent=1))
        return watch([args.binary, "train", path], env, work / f"{rung}.log")


def train_peer(args, rung, work, env):
    model = MODELS[model_of(rung, args.model)]
    path = work / f"{rung}-peer.json"
    asked = {
        "shape": model["shape"],
        "sequence": SEQUENCE,
        "keys": keys_of(rung, "peer", args.model, args.updates),
    }
    path.write_text(json.dumps(asked, indent=1))
    return watch([args.peer_python, HERE / "memory_peer.py", path], env, work / f"{rung}-peer.log")


def machine():
    names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    flags = re.search(r"flags\s*: (.*)", Path("/proc/cpuinfo").read_text())
    wanted = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16")
    return {
        "cpu": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "instructions": [f for f in wanted if flags and f in flags[1].split()],
    }


def versions(args):
    code = """
import importlib.metadata as m, json
names = ("torch", "transformers", "accelerate", "bitsandbytes")
print(json.dumps({n: m.version(n) for n in names if m.packages_distributions().get(n)}))
"""
    peer = subprocess.run([args.peer_python, "-c", code], capture_output=True, text=True)
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    )
    return {
        "finetune": commit.stdout.strip() or None,
        **(json.loads(peer.stdout) if peer.returncode == 0 else {}),
    }


def measure(args, work):
    rungs = args.rung or [r for r in RUNGS if args.model is None or not r.startswith("1.1b")]
    sizes = {MODELS[model_of(r, args.model)]["shape"]["vocab_size"] for r in rungs}
    ours = "ours" in args.program
    text, tokenizers = prepare(args, work, sizes if ours else [])
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads), HF_HUB_OFFLINE="1")
    env["TOKENIZERS_PARALLELISM"] = "false"
    about = {
        "session": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "threads": args.threads,
        **machine(),
        "versions": versions(args),
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    failed = False
    for repeat in range(args.repeats):
        for rung in rungs:
            for program in args.program:
                if program not in RUNGS[rung]:
                    continue
                print(f"{rung}, {program}, repeat {repeat} ...", file=sys.stderr)
                if program == "ours":
                    result = train_ours(args, rung, work, text, tokenizers, env)
                else:
                    result = train_peer(args, rung, work, env)
                record = {
                    "rung": rung,
                    "program": program,
                    "model": model_of(rung, args.model),
                    "repeat": repeat,
                    "batch": MODELS[model_of(rung, args.model)]["batch"],
                    "keys": keys_of(rung, program, args.model, args.updates),
                    **{k: rounded(v) for k, v in result.items()},
                    "load": round(os.getloadavg()[0], 2),
                    **about,
                }
                if result["exit_code"] != 0:
                    log = work / (f"{rung}.log" if program == "ours" else f"{rung}-peer.log")
                    record["error"] = log.read_text(errors="replace").strip().splitlines()[-1:]
                    print(f"  failed: {record['error']}", file=sys.stderr)
                    failed = failed or program == "ours"
                print(f"  {record['peak_rss_mib']:.0f} MiB, {record['update_seconds']} s, "
                      f"{record['update_cpu_seconds']} CPU s", file=sys.stderr)  # fmt: skip
                with open(args.output, "a", encoding="utf-8") as out:
                    out.write(json.dumps(record) + "\n")
    return 1 if failed else 0


def rounded(value):
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return round(value, 3) if isinstance(value, float) else value


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--peer_python", default=sys.executable)
    parser.add_argument("--data", type=Path, help="a text file, or a folder of *.txt (made up)")
    parser.add_argument("--rung", nargs="+", choices=RUNGS, help="these alone")
    parser.add_argument("--program", nargs="+", choices=["peer", "ours"], default=["peer", "ours"])
    parser.add_argument("--model", choices=MODELS, help="this one in every rung")
    parser.add_argument("--updates", type=int, default=2, help="the first is not timed")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--work_dir", type=Path, help="keep configurations and logs here")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "memory.jsonl")
    parser.add_argument("--svg", type=Path, default=ROOT / "docs" / "memory.svg")
    parser.add_argument("--report", action="store_true", help="table and SVG from --output")
    args = parser.parse_args()
    if args.report:
        return report(args.output, args.svg, args.model)
    if args.updates < 2:
        parser.error("two updates at least: the first is not timed")
    with tempfile.TemporaryDirectory(prefix="memory-") as scratch:
        return measure(args, (args.work_dir or Path(scratch)).resolve())


if __name__ == "__main__":
    sys.exit(main())
