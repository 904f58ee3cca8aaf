#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The faults of tests/faults put into transformers' Trainer, where it can take them.

A tiny BERT on fixed data, two saves of eight steps, killed all over one save, damaged,
starved and stopped. "Survives": the same script, started again, resumes from a checkpoint without
anybody's help and ends in the weights of the run that nothing happened to.

  scripts/bench/reliability_peer.py --shim build/libfinetune_fault_shim.so
"""

import argparse
import ctypes
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Peer:
    steps, save_steps, limit = 8, 4, 2

    def __init__(self, shim):
        self.root = Path(tempfile.mkdtemp(prefix="reliability-peer-"))
        self.out = self.root / "out"
        self.shim = shim
        self.reference = None

    def train(self, jit=False):
        import torch
        from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments
        from transformers.trainer_utils import get_last_checkpoint

        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=64,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=16,
        )
        torch.manual_seed(1)
        rows = torch.randint(5, 64, (32, 12))
        data = [{"input_ids": row, "labels": row} for row in rows]
        arguments = TrainingArguments(
            output_dir=str(self.out),
            max_steps=self.steps,
            save_steps=self.save_steps,
            save_total_limit=self.limit,
            logging_steps=1,
            per_device_train_batch_size=4,
            learning_rate=1e-2,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            enable_jit_checkpoint=jit,
        )
        trainer = Trainer(BertForMaskedLM(config), arguments, train_dataset=data)
        last = get_last_checkpoint(str(self.out)) if self.out.is_dir() else None
        trainer.train(resume_from_checkpoint=last)
        trainer.save_model(str(self.root / "final"))

    def start(self, rule="", **options):
        """One start in a fork: its exit code, negative where a signal ended it, and calls counted."""
        shutil.rmtree(self.root / "final", ignore_errors=True)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(120)
                said = os.open(self.root / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(said, 1)
                os.dup2(said, 2)
                self.shim.finetune_fault_set(rule.encode(), str(self.out).encode())
                self.train(**options)
                calls = self.shim.finetune_fault_set(b"", b"")
                (self.root / "calls").write_text(str(calls))
                code = 0
            except BaseException as error:
                code = error.code if isinstance(error, SystemExit) and error.code else code
                if isinstance(error, SystemExit) and not error.code:
                    code = 0
                print(type(error).__name__, error)
            finally:
                os._exit(code)
        return child

    def end(self, child):
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)

    def run(self, rule="", **options):
        return self.end(self.start(rule, **options))

    def outcome(self):
        path = self.root / "final" / "model.safetensors"
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None

    def begin_anew(self):
        shutil.rmtree(self.out, ignore_errors=True)

    def survives(self):
        """What the next start makes of it: same, other, or what it said."""
        code = self.run()
        if code == 0:
            return "same" if self.outcome() == self.reference else "other weights"
        lines = (self.root / "said").read_text(errors="replace").strip().splitlines()
        last = lines[-1].replace(f"{self.root}/", "") if lines else str(code)
        return "dies: " + last[:120]

    def keep(self, name):
        shutil.rmtree(self.root / name, ignore_errors=True)
        shutil.copytree(self.out, self.root / name)

    def take(self, name):
        self.begin_anew()
        shutil.copytree(self.root / name, self.out)


class Counts:
    def __init__(self):
        self.rows = []

    def add(self, row, what, results):
        good = sum(r == "same" for r in results)
        reasons = {}
        for r in results:
            reasons[r] = reasons.get(r, 0) + 1
        line = {"row": row, "what": what, "cases": len(results), "survived": good, "ends": reasons}
        self.rows.append(line)
        print(json.dumps(line), flush=True)


def damage(path, kind, chance):
    data = bytearray(path.read_bytes())
    if kind == "bit flip":
        # After the header, where the numbers are.
        at = chance.randrange(len(data) // 3, len(data) * 9 // 10)
        data[at] ^= 1 << chance.randrange(8)
    elif kind == "last page zeroed":
        data[-4096:] = bytes(min(4096, len(data)))
    elif kind == "truncated":
        del data[chance.randrange(len(data)) :]
    path.write_bytes(bytes(data))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shim", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "reliability_peer.json")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=55)
    parser.add_argument("--minutes", type=float, default=15)
    args = parser.parse_args()
    if os.environ.get("LD_PRELOAD") != str(args.shim.resolve()):
        os.environ.update(LD_PRELOAD=str(args.shim.resolve()), OMP_NUM_THREADS="1")
        os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
        os.execv(sys.executable, [sys.executable, *sys.argv])
    import torch
    import transformers

    # Here, so that no child has to.
    from transformers import BertForMaskedLM, Trainer  # noqa: F401

    torch.set_num_threads(1)
    shim = ctypes.CDLL(str(args.shim.resolve()))
    shim.finetune_fault_set.restype = ctypes.c_long
    peer, chance, counts = Peer(shim), random.Random(args.seed), Counts()
    end = time.monotonic() + args.minutes * 60

    def spent():
        return time.monotonic() > end

    if peer.run("change@0=0") != 0:
        sys.exit((peer.root / "said").read_text())
    peer.reference = peer.outcome()
    peer.keep("whole")
    changes = int((peer.root / "calls").read_text())

    # One good older checkpoint is there; the second save is killed at places all over it.
    def begins_second_save(n):
        peer.begin_anew()
        peer.run(f"change@{n}=kill")
        return (peer.out / "checkpoint-8").exists()

    low, high = 1, changes
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if begins_second_save(middle) else (middle + 1, high)
    results = []
    for i in range(args.kills):
        n = low + i * (changes - low) // (args.kills - 1)
        if spent():
            break
        peer.begin_anew()
        if peer.run(f"change@{n}=kill") != 0:
            results.append(peer.survives())
    counts.add("R1", "kill -9 inside the second save, with an older checkpoint", results)

    results = []
    for _ in range(12):
        if spent():
            break
        peer.begin_anew()
        peer.run(f"write@{1 + chance.randrange(changes)}+0=28")
        results.append(peer.survives())
    counts.add("R5", "disk full from a random write on, then space again", results)

    for name in ("model.safetensors", "optimizer.pt"):
        for kind, times in (("bit flip", 12), ("truncated", 4), ("last page zeroed", 1)):
            results = []
            for _ in range(times):
                if spent():
                    break
                peer.take("whole")
                shutil.rmtree(peer.out / "checkpoint-8")
                peer.keep("half")
                damage(peer.out / "checkpoint-4" / name, kind, chance)
                results.append(peer.survives())
            if results:
                counts.add("R10", f"{name}: {kind} in the newest checkpoint", results)
    for name in (
        "optimizer.pt",
        "scheduler.pt",
        "rng_state.pth",
        "trainer_state.json",
        "config.json",
    ):
        peer.take("whole")
        shutil.rmtree(peer.out / "checkpoint-8")
        (peer.out / "checkpoint-4" / name).unlink()
        counts.add("R10", f"{name} missing in the newest checkpoint", [peer.survives()])

    for jit in (False, True):
        peer.begin_anew()
        child = peer.start(f"write@{changes // 3}=signal:{int(signal.SIGTERM)}", jit=jit)
        code = peer.end(child)
        ended = peer.survives()
        what = f"SIGTERM{', enable_jit_checkpoint' if jit else ''}: exit code {code}"
        counts.add("R8", what, [ended])

    record = {
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "changes_of_a_run": changes,
        "seed": args.seed,
        "rows": counts.rows,
    }
    args.out.write_text(json.dumps(record, indent=1) + "\n")
    shutil.rmtree(peer.root)


if __name__ == "__main__":
    main()
