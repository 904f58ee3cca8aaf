#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a decision costs: answers a second on one core, one request at a time, with transformers' pipeline in turns.

    python3 scripts/bench/decision.py [--layers N] [--rounds N]

A JevForDecision on a ModernBERT of the base size with random weights, which cost what trained ones do; requests
of one question whose prompt has about 128 tokens of the small tokenizer of the tests. Each program
answers few and more requests, and the difference takes the start off: CPU seconds of `predict` in float32 and with
--quantize int8, of transformers' pipeline, and of onnxruntime with the exported model in int8, for which
the prompts are tokens already. Needs the packages of tests/requirements.txt. Prints a Markdown table.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TOKENIZER = ROOT / "tests" / "fixtures" / "tokenizers" / "causal"
FEW, MORE = 4, 44
TOKENS = 128


def make_model(folder, layers):
    import torch
    from transformers import AutoTokenizer, JevConfig, JevForDecision, ModernBertConfig
    from transformers.decision import DecisionConfig
    from transformers.models.jev.configuration_jev import JEV_TEMPLATE

    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    torch.manual_seed(1)
    sizes = {} if layers is None else {"num_hidden_layers": layers}
    text = ModernBertConfig(vocab_size=50368, pad_token_id=tokenizer.pad_token_id, cls_token_id=0, sep_token_id=1,
                            **sizes)  # fmt: skip
    config = JevConfig(hidden_size=text.hidden_size, num_verbalizers=268,
                       offsets={"noul": 0, "score": 2, "choice": 12}, text_config=text.to_dict())  # fmt: skip
    model = JevForDecision(config)
    model.decision_config = DecisionConfig(chat_template=JEV_TEMPLATE)
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")


def write_requests(folder):
    """Requests whose prompts have TOKENS tokens, or up to two fewer."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    words = (ROOT / "tests" / "fixtures" / "text" / "lighthouse.txt").read_text().split()
    question = {"rough": {"type": "noul", "instructions": "Is the weather rough?"}}
    rows, first = [], 0
    while len(rows) < MORE:
        # What the template adds is about 40 tokens.
        count = 1
        while len(tokenizer(" ".join(words[first : first + count + 1]))["input_ids"]) < TOKENS - 40:
            count += 1
        rows.append({"state": " ".join(words[first : first + count]), "questions": question})
        first = (first + count) % (len(words) - TOKENS)
    for number in (FEW, MORE):
        lines = [json.dumps(row) for row in rows[:number]]
        (folder / f"requests-{number}.jsonl").write_text("\n".join(lines) + "\n")


def make(args):
    """The command of a process: writes model and requests."""
    make_model(args.folder, args.layers)
    write_requests(args.folder)


def peer(args):
    """The command of a process: transformers' pipeline answers the requests."""
    import torch
    from transformers import pipeline

    torch.set_num_threads(1)
    decide = pipeline("decision", model=str(args.folder / "model"), dtype="float32", device="cpu")
    for line in (args.folder / f"requests-{args.requests}.jsonl").read_text().splitlines():
        decide(json.loads(line))


def runtime(args):
    """The command of a process: onnxruntime computes as many prompts of TOKENS tokens."""
    import numpy
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(args.folder / "onnx" / "model.onnx"), options)
    draw = numpy.random.default_rng(0)
    for _ in range(args.requests):
        ids = draw.integers(5, 600, (1, TOKENS))
        session.run(None, {"input_ids": ids, "attention_mask": numpy.ones_like(ids)})


def cpu_seconds(command, threads=1):
    """Runs a command; returns its CPU seconds and its peak in MiB."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(said.decode(errors="replace")[-2000:])
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def commands(args, folder):
    def ours(number, *more):
        return [args.binary, "predict", str(folder / "model"), "--use_cpu", "--batch_size", "1", *more,
                "--input", str(folder / f"requests-{number}.jsonl")]  # fmt: skip

    def python(role, number):
        return [sys.executable, __file__, "--role", role, "--folder", str(folder), "--requests", str(number)]

    return {
        "transformers' pipeline, float32": lambda number: python("peer", number),
        "`predict`, float32": ours,
        "`predict --quantize int8`": lambda number: ours(number, "--quantize", "int8"),
        "onnxruntime, int8 (without prompts)": lambda number: python("runtime", number),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", default=str(ROOT / "build" / "finetune"))
    parser.add_argument("--layers", type=int, help="of the model (22)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--role", choices=("make", "peer", "runtime"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--requests", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role:
        return {"make": make, "peer": peer, "runtime": runtime}[args.role](args)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # In another process: a child's peak begins with that of its parent.
        more = [] if args.layers is None else ["--layers", str(args.layers)]
        cpu_seconds([sys.executable, __file__, "--role", "make", "--folder", name, *more])
        subprocess.run([args.binary, "export", str(folder / "model"), str(folder / "onnx" / "model.onnx"),
                        "--quantize", "int8"], check=True, stdout=subprocess.DEVNULL)  # fmt: skip
        all_commands = commands(args, folder)
        seconds = {program: [] for program in all_commands}
        peak = {}
        for _ in range(args.rounds):
            for program, command in all_commands.items():
                few, _ = cpu_seconds(command(FEW))
                many, memory = cpu_seconds(command(MORE))
                seconds[program].append((many - few) / (MORE - FEW))
                peak[program] = max(memory, peak.get(program, 0))
        first = statistics.median(seconds[next(iter(all_commands))])
        print("| | answers a CPU second | times transformers' | peak MiB |")
        print("|---|---|---|---|")
        for program, values in seconds.items():
            value = statistics.median(values)
            print(f"| {program} | {1 / value:.2f} | {first / value:.2f} | {peak[program]:.0f} |")
    return None


if __name__ == "__main__":
    sys.exit(main())
