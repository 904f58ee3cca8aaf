#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains on TorchTPU without a TPU (docs/tpu.md): programs run on XLA's plugin for CPUs, behind plugin.c.

    run.py --binary finetune --packages SITE-PACKAGES --plugin plugin.so [NAME ...]

SITE-PACKAGES has torch, torch_tpu, libtpu and lammps_jax_pjrt_cpu (scripts/ci/tpu installs them).
With --topology v5e:1x1 libtpu compiles every program for that TPU too. Exit 1 if a check fails.
"""

import argparse
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TEXT = ROOT / "tests/fixtures/text/lighthouse.txt"
STEPS = 12
TINY = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32, "intermediate_size": 64}
BASE = {
    "tokenizer_name": str(ROOT / "tests/fixtures/tokenizers/lighthouse_300"),
    "train_file": str(TEXT),
    "max_steps": STEPS,
    "per_device_train_batch_size": 4,
    "max_seq_length": 32,
    "pad_to_max_length": True,
    "learning_rate": 1e-3,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
}
LLAMA = {**TINY, "num_key_value_heads": 2, "max_position_embeddings": 64}
SAVES = {"save_strategy": "steps", "save_steps": 3}
CASES = {
    "roberta_mlm": {"model_type": "roberta", "config_overrides": {**TINY, "max_position_embeddings": 66}, "task": "mlm"},
    "bert_classification": {
        "model_type": "bert",
        "config_overrides": {**TINY, "max_position_embeddings": 64},
        "task": "sequence_classification",
        "train_file": str(ROOT / "tests/fixtures/tasks/topics-train.jsonl"),
    },
    "bigbird_sparse": {
        "model_type": "big_bird",
        "config_overrides": {
            **TINY,
            "max_position_embeddings": 256,
            "block_size": 8,
            "num_random_blocks": 1,
            "attention_type": "block_sparse",
        },
        "task": "mlm",
        "max_seq_length": 128,
        "activation_checkpointing": True,
    },
    "llama_clm": {"model_type": "llama", "config_overrides": LLAMA, "task": "clm", "packing": True, "pad_to_max_length": False},
    # SmolLM2's architecture: a Llama of grouped keys whose head is the embeddings.
    "smollm2_lora": {
        "base": {
            "model_type": "llama",
            "config_overrides": {**LLAMA, "tie_word_embeddings": True},
            "task": "clm",
            "packing": True,
            "pad_to_max_length": False,
            "tokenizer_name": str(ROOT / "tests/fixtures/tokenizers/causal"),
        },
        "task": "sft",
        "use_peft": True,
        "lora_r": 4,
        "lora_target_modules": "all-linear",
        "train_file": str(ROOT / "tests/fixtures/tasks/keeper-train.jsonl"),
        "assistant_only_loss": True,
        "chat_template_path": "alpaca",
        "max_seq_length": 64,
    },
    # Rows padded to one of three lengths, and a smaller batch at the end of each epoch.
    "bert_lengths": {
        "model_type": "bert",
        "config_overrides": {**TINY, "max_position_embeddings": 64},
        "task": "sequence_classification",
        "train_file": str(ROOT / "tests/fixtures/tasks/topics-train.jsonl"),
        "max_seq_length": 48,
        "pad_to_max_length": False,
        "per_device_train_batch_size": 7,
        "max_steps": 60,
        "settled": 40,
    },
}
# Of real size, for their memory; two updates of each take minutes.
BASE_SIZE = {"num_attention_heads": 12, "hidden_size": 768, "intermediate_size": 3072}
MODELS = {
    "roberta_6_layers": {
        "model_type": "roberta",
        "config_overrides": {**BASE_SIZE, "num_hidden_layers": 6, "max_position_embeddings": 514, "vocab_size": 52000},
        "task": "mlm",
        "per_device_train_batch_size": 16,
        "max_seq_length": 128,
    },
    "bert_base": {
        "model_type": "bert",
        "config_overrides": {**BASE_SIZE, "num_hidden_layers": 12, "vocab_size": 30522},
        "task": "sequence_classification",
        "train_file": str(ROOT / "tests/fixtures/tasks/topics-train.jsonl"),
        "per_device_train_batch_size": 16,
        "max_seq_length": 128,
    },
    # configs/bigbird_pretraining.yaml with a tokenizer that is here, and one micro-batch an update.
    "bigbird_4096": {
        "model_type": "big_bird",
        "config_overrides": {
            **BASE_SIZE,
            "num_hidden_layers": 12,
            "max_position_embeddings": 4096,
            "vocab_size": 32000,
            "attention_type": "block_sparse",
            "block_size": 64,
            "num_random_blocks": 3,
        },
        "task": "pretraining",
        "max_predictions_per_seq": 600,
        "use_nsp": True,
        "per_device_train_batch_size": 2,
        "max_seq_length": 4096,
        "gradient_checkpointing": True,
    },
    "smollm2_135m": {
        "model_type": "llama",
        "config_overrides": {
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "max_position_embeddings": 2048,
            "vocab_size": 49152,
            "tie_word_embeddings": True,
        },
        "task": "clm",
        "tokenizer_name": str(ROOT / "tests/fixtures/tokenizers/causal"),
        "bf16": True,
        "per_device_train_batch_size": 2,
        "max_seq_length": 512,
        "pad_to_max_length": False,
    },
}
# Of the losses, relative: another order of sums, and in bfloat16 another place of rounding.
TOLERANCES = {"float32": 1e-4, "bf16": 2e-3}
MOST_PROGRAMS = 400  # of a run


class Machine:
    def __init__(self, options, folder, compiles):
        self.options, self.folder = options, folder
        packages = options.packages
        self.environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "LD_LIBRARY_PATH": str(packages / "torch/lib"),
        }
        self.on_tpu = {
            **self.environment,
            "TPU_LIBRARY_PATH": str(options.plugin),
            "FINETUNE_TPU_CPU": str(packages / "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so"),
        }
        if compiles and options.topology:  # one process at a time may use libtpu
            self.on_tpu |= {
                "FINETUNE_TPU_COMPILER": str(packages / "libtpu/libtpu.so"),
                "FINETUNE_TPU_TOPOLOGY": options.topology,
                "TPU_SKIP_MDS_QUERY": "1",
                "TPU_WORKER_HOSTNAMES": "localhost",
                "TPU_ACCELERATOR_TYPE": "v5litepod-1",
            }

    def command(self, name, keys, *words):
        keys = {key: value for key, value in {**BASE, **keys}.items() if value is not None}
        keys = {**keys, "output_dir": str(self.folder / name), "cache_dir": str(self.folder / "cache" / name)}
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(keys))
        return [str(self.options.binary), "train", str(path), *words]

    def train(self, name, keys, *words, code=0, on_tpu=True):
        """Returns standard error and how many programs were compiled before the line of each step."""
        log = self.folder / f"{name}.log"
        environment = {**(self.on_tpu if on_tpu else self.environment), "FINETUNE_TPU_LOG": str(log)}
        with subprocess.Popen(
            self.command(name, keys, *words), stderr=subprocess.PIPE, text=True, env=environment
        ) as process:
            said, programs = "", {}
            for line in process.stderr:
                said += line
                if step := re.match(r"train (\d+)/", line):
                    programs[int(step[1])] = count_lines(log)
        if process.returncode != code:
            raise AssertionError(f"{name}: exit code {process.returncode}\n{said[-3000:]}")
        programs["all"] = count_lines(log)
        return said, programs

    def losses(self, name):
        state = json.loads((self.folder / name / "trainer_state.json").read_text())
        return [entry["loss"] for entry in state["log_history"] if "loss" in entry]

    def weights(self, name):
        return (self.folder / name / "model.safetensors").read_bytes()


def count_lines(path):
    return path.read_text().count("\n") if path.exists() else 0


def with_base(machine, name, keys):
    """Trains the model that an adapter is for, on the CPU."""
    keys = dict(keys)
    base = keys.pop("base", None)
    if base:
        machine.train(f"{name}-base", base, on_tpu=False)
        keys |= {"model_name_or_path": str(machine.folder / f"{name}-base")}
        keys["tokenizer_name"] = None
    return keys


def check_losses(machine, name, keys):
    """The CPU's losses, few programs, and none that is new after the second update."""
    keys = with_base(machine, name, keys)
    steps, settled = keys.get("max_steps", STEPS), keys.pop("settled", 2)
    for kind, more in {"float32": {}, "bf16": {"bf16": True}}.items():
        said, programs = machine.train(f"{name}-{kind}", {**keys, **more})
        machine.train(f"{name}-{kind}-cpu", {**keys, **more, "accelerator": "cpu"}, on_tpu=False)
        found, expected = machine.losses(f"{name}-{kind}"), machine.losses(f"{name}-{kind}-cpu")
        assert len(found) == len(expected) == steps, (found, expected)
        worst = max(abs(a - b) / abs(b) for a, b in zip(found, expected))
        new = programs[steps - 1] - programs[settled]
        print(f"{name} {kind}: {programs['all']} programs, {new} new after update {settled}, losses differ by {worst:.1e}")
        assert "TPU of" in said, said
        assert worst <= TOLERANCES[kind], (found, expected)
        assert new == 0, programs
        assert programs["all"] <= MOST_PROGRAMS, programs
        if machine.options.topology:
            check_compiled(machine, f"{name}-{kind}")


def check_compiled(machine, name):
    lines = (machine.folder / f"{name}.log").read_text().splitlines()
    failed = [line for line in lines if " failed " in line]
    print(f"{name}: libtpu compiled {len(lines) - len(failed)} of {len(lines)} programs for {machine.options.topology}")
    assert not failed, failed[0]


def check_memory(machine, name, keys):
    """plan's peak beside what libtpu's programs need on a TPU (plugin.c, FINETUNE_TPU_MEMORY)."""
    keys = {**keys, "max_steps": 2}
    if not machine.options.topology:
        print(f"{name}: skipped, it needs --topology")
        return
    if keys["task"] == "pretraining":  # of two documents
        lines = TEXT.read_text().splitlines(keepends=True)
        documents = machine.folder / "documents.txt"
        documents.write_text("".join([*lines[: len(lines) // 2], "\n", *lines[len(lines) // 2 :]]))
        keys["train_file"] = str(documents)
    peak = machine.folder / "peak"
    machine.on_tpu["FINETUNE_TPU_MEMORY"] = str(peak)
    machine.on_tpu["OMP_NUM_THREADS"] = str(os.cpu_count())
    machine.train(name, keys)
    check_compiled(machine, name)
    found = int(peak.read_text().split()[1])
    command = machine.command(name, keys)
    command[1:2] = ["plan", "--json", "--memory", "16GiB"]
    environment = {key: value for key, value in machine.on_tpu.items() if key != "FINETUNE_TPU_COMPILER"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    predicted = json.loads(done.stdout)["peak"]
    print(f"{name}: {found / 2**20:.0f} MiB, plan says {predicted / 2**20:.0f}: {100 * (predicted / found - 1):+.1f} %")
    assert abs(predicted / found - 1) <= 0.1, (predicted, found)


def check_resume(machine, name, keys):
    """Killed ten times at random moments, and ended by a signal once: the bits of the whole run."""
    machine.train(f"{name}-whole", keys)
    start = time.monotonic()
    machine.train(f"{name}-again", keys)  # compiles its programs again
    seconds = time.monotonic() - start
    machine.train(f"{name}-killed", keys, "--stop_at_step", "2", code=75)
    chance, kills = random.Random(20261128), 0
    for _ in range(60):
        if kills == 10:
            break
        process = subprocess.Popen(
            machine.command(f"{name}-killed", keys), stderr=subprocess.DEVNULL, env=machine.on_tpu
        )
        try:
            process.wait(timeout=chance.random() * seconds / 2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
            continue
        seconds /= 2
        machine.train(f"{name}-killed", keys, "--restart", "--stop_at_step", "2", code=75)
    machine.train(f"{name}-killed", keys)
    print(f"{name}: killed {kills} times")
    assert kills == 10
    assert machine.weights(f"{name}-killed") == machine.weights(f"{name}-whole")
    assert machine.weights(f"{name}-again") == machine.weights(f"{name}-whole")


def check_cache(machine, name, keys):
    """A second session takes the programs from cache_dir."""
    machine.train(f"{name}-cache", keys)
    log = machine.folder / f"{name}-cache.log"
    log.unlink(missing_ok=True)
    for _ in range(2):
        said, programs = machine.train(f"{name}-cache", keys, "--restart")
        assert programs["all"] == 0, programs
        assert "XLA compiled" not in said, said
    print(f"{name}: {programs['all']} programs compiled in other sessions")


def check_processes(machine, name, keys):
    """Two processes, each with its own device, whose gradients are summed in host memory."""
    rows = {"per_device_train_batch_size": 2, "num_processes": 2}
    said, _ = machine.train(f"{name}-both", {**keys, **rows})
    machine.train(f"{name}-cpu", {**keys, **rows, "accelerator": "cpu"}, on_tpu=False)
    found, expected = machine.losses(f"{name}-both"), machine.losses(f"{name}-cpu")
    worst = max(abs(a - b) / abs(b) for a, b in zip(found, expected))
    print(f"{name}: two processes, losses differ by {worst:.1e}")
    assert "this is a TPU" in said, said
    assert len(found) == STEPS and worst <= TOLERANCES["float32"], (found, expected)
    machine.train(f"{name}-halves", {**keys, **rows, **SAVES}, "--stop_at_step", "5", code=75)
    machine.train(f"{name}-halves", {**keys, **rows, **SAVES})
    assert machine.weights(f"{name}-halves") == machine.weights(f"{name}-both")


def check_failures(machine, name, keys):
    """A TPU in use, too little memory while compiling and while running, and a chip that is lost."""

    def run_of(plan):
        return f"{name}-" + "-".join(plan.split()[:2])

    def train(plan, code):
        machine.on_tpu["FINETUNE_TPU_FAIL"] = plan
        said, _ = machine.train(run_of(plan), keys, code=code)
        del machine.on_tpu["FINETUNE_TPU_FAIL"]
        print(f"{name}: {plan}: exit code {code}")
        return said

    library = machine.on_tpu["TPU_LIBRARY_PATH"]
    machine.on_tpu["TPU_LIBRARY_PATH"] = str(TEXT)
    said, _ = machine.train(f"{name}-library", keys, code=2)
    assert "is no library of a TPU" in said, said
    machine.on_tpu["TPU_LIBRARY_PATH"] = library
    machine.train(f"{name}-whole", keys)
    whole = machine.losses(f"{name}-whole")
    said = train("create 1 9 The TPU is already in use by process with pid 77.", 1)
    assert "error: the TPU cannot be used: The TPU is already in use by process with pid 77; " in said, said
    for call in ("compile", "execute"):
        plan = f"{call} {100 if call == 'compile' else 1500} 1 Ran out of memory in memory space hbm"
        said = train(plan, 0)
        assert "2 x 2 samples instead of 4" in said, said
        found = machine.losses(run_of(plan))
        assert max(abs(a - b) / abs(b) for a, b in zip(found, whole)) <= TOLERANCES["float32"], (found, whole)
    said = train("execute 4700 1 the chip is lost", 75)
    assert "error: the TPU failed" in said and "run the same command again" in said, said
    said = train("compile 50 1 this operator is unknown", 1)
    assert "this operator is unknown" in said, said


def check_moves(machine, name, keys):
    """A run that continues on another device says so."""
    machine.train(f"{name}-moved", keys, "--stop_at_step", "4", code=75)
    said, _ = machine.train(f"{name}-moved", {**keys, "accelerator": "cpu"}, on_tpu=False)
    assert "not bit-exact from here" in said, said
    print(f"{name}: moved to the CPU")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    parser.add_argument("--packages", type=pathlib.Path, required=True)
    parser.add_argument("--plugin", type=pathlib.Path, required=True)
    parser.add_argument("--topology", help="what libtpu compiles for, such as v5e:1x1")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"cases: {', '.join([*CASES, *MODELS])} (the last {len(MODELS)} only if named); and resume, cache, processes, failures, moves")
    options = parser.parse_args()
    checks = {name: (check_losses, name, keys) for name, keys in CASES.items()}
    checks |= {name: (check_memory, name, keys) for name, keys in MODELS.items()}
    checks["resume"] = (check_resume, "resume", {**CASES["roberta_mlm"], **SAVES})
    checks["cache"] = (check_cache, "cache", CASES["llama_clm"])
    checks["processes"] = (check_processes, "processes", CASES["roberta_mlm"])
    checks["failures"] = (check_failures, "failures", CASES["roberta_mlm"])
    checks["moves"] = (check_moves, "moves", {**CASES["roberta_mlm"], **SAVES})
    failed = []
    for name in options.names or [name for name in checks if name not in MODELS]:
        function, *words = checks[name]
        with tempfile.TemporaryDirectory(prefix="finetune-tpu-") as folder:
            try:
                function(Machine(options, pathlib.Path(folder), compiles=name in CASES or name in MODELS), *words)
            except AssertionError as error:
                print(f"FAILED {name}: {error}", file=sys.stderr)
                failed.append(name)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
