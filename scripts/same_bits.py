#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares two builds of the binary bit for bit, over short runs of every family, task and technique.

    scripts/same_bits.py OLD NEW              run both, compare, exit 1 where a bit differs
    scripts/same_bits.py --record FILE NEW    run one and write its hashes
    scripts/same_bits.py --against FILE NEW   run one and compare it with recorded hashes

A case is a run of a few updates that is stopped once, resumed and evaluated. Compared are the bytes of
the final weights, of the last checkpoint's weights, optimizer, schedule and loss scale, every logged
number that does not come from a clock, and the predictions. Hashes are those of one kind of
processor and one version of libtorch: record and compare on the same machine.

    --only REGEX     only cases whose name matches
    --except REGEX   leave cases out, for changes that are meant to change bits
    --jobs N         runs at once (default 2; each has one thread unless its case says otherwise)
    --list           print the names of the cases
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "fixtures"
TASKS = DATA / "tasks"
TINY = {
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "type_vocab_size": 2,
}
FAMILIES = ("bert", "roberta", "xlm-roberta", "big_bird")
BASE = {
    "tokenizer_name": str(DATA / "tokenizers" / "lighthouse"),
    "train_file": str(DATA / "text" / "lighthouse.txt"),
    "validation_file": str(DATA / "text" / "lighthouse-valid.txt"),
    "max_seq_length": 32,
    "max_steps": 6,
    "per_device_train_batch_size": 4,
    "learning_rate": 1e-3,
    "logging_steps": 1,
    "eval_strategy": "steps",
    "eval_steps": 3,
    "save_steps": 2,
    "use_cpu": True,
    "report_to": "none",
    "disable_tqdm": True,
}
SPARSE = {
    "attention_type": "block_sparse",
    "block_size": 8,
    "num_random_blocks": 1,
    "max_position_embeddings": 128,
}
TASK_KEYS = {
    "classification": ("topics", "sequence_classification", {"text_column": "text"}),
    "several_labels": ("weather", "sequence_classification", {}),
    "regression": ("likeness", "sequence_classification", {}),
    "choices": ("choices", "multiple_choice", {}),
    "tokens": ("names", "token_classification", {}),
    "answers": ("cargo", "question_answering", {"doc_stride": 8, "max_seq_length": 48}),
}
TECHNIQUES = {
    "checkpointing": {"gradient_checkpointing": True},
    "every_two_layers": {
        "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"every_n_layers": 2},
    },
    "selective": {
        "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"selective": True},
    },
    "offload": {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"offload": True}},
    "fp16": {"fp16": True},
    "bf16": {"bf16": True},
    "adamw_8bit": {"optim": "adamw_8bit"},
    "adamw_companded": {"optim": "adamw_companded_8bit"},
    "adafactor": {"optim": "adafactor"},
    "sgd_momentum": {"optim": "sgd", "optim_args": "momentum=0.9"},
    "in_backward": {
        "optimizer_in_backward": True,
        "max_grad_norm": 0,
        "gradient_accumulation_steps": 1,
    },
    "bfloat16_weights": {"param_dtype": "bfloat16"},
    "split_weights": {"param_dtype": "bfloat16+int8"},
    "bfloat16_gradients": {"grad_accum_dtype": "bfloat16"},
    "memory_budget": {"memory_budget": "400MiB"},
    "accumulation": {"gradient_accumulation_steps": 3},
    "by_lines": {"line_by_line": True},
    "grouped": {"line_by_line": True, "train_sampling_strategy": "group_by_length"},
    "packing": {"line_by_line": True, "packing": True},
    "whole_words": {"whole_word_mask": True},
    "weight_decay": {"weight_decay": 0.1, "max_grad_norm": 0.1},
    "label_smoothing": {"label_smoothing_factor": 0.1},
    "cosine": {"lr_scheduler_type": "cosine", "warmup_steps": 2},
    "inverse_sqrt": {"lr_scheduler_type": "inverse_sqrt", "warmup_steps": 2},
    "plateau": {"lr_scheduler_type": "reduce_lr_on_plateau", "metric_for_best_model": "eval_loss"},
    "best_model": {"load_best_model_at_end": True, "save_steps": 3, "learning_rate": 0.3},
    "workers": {"dataloader_num_workers": 2},
    "two_threads": {"OMP_NUM_THREADS": "2"},
}


def model(family, **more):
    overrides = {**TINY, "max_position_embeddings": 66, **more}
    return {"model_type": family, "config_overrides": overrides}


def cases():
    """Name to keys. Keys in capitals are the environment."""
    result = {}
    for family in FAMILIES:
        result[f"mlm-{family}"] = model(family)
        result[f"pretraining-{family}"] = {
            **model(family),
            "task": "pretraining",
            "max_seq_length": 48,
            "dupe_factor": 2,
            "line_by_line": True,
            "use_nsp": family in ("bert", "big_bird"),
        }
        for name, (files, task, keys) in TASK_KEYS.items():
            suffix = "json" if files == "cargo" else "jsonl"
            result[f"{name}-{family}"] = {
                **model(family),
                "task": task,
                **{f"{part}_file": str(TASKS / f"{files}-{part_name}.{suffix}")
                   for part, part_name in (("train", "train"), ("validation", "valid"), ("test", "test"))},
                "do_predict": True,
                **keys,
            }  # fmt: skip
    for family in ("roberta", "big_bird"):
        for name, keys in TECHNIQUES.items():
            result[f"{name}-{family}"] = {**model(family), **keys}
    for name in ("checkpointing", "selective", "bf16", "accumulation"):
        result[f"{name}-sparse"] = {
            **model("big_bird", **SPARSE),
            "max_seq_length": 96,
            **TECHNIQUES[name],
        }
    result["mlm-sparse"] = {**model("big_bird", **SPARSE), "max_seq_length": 96}
    result["gelu_new-bert"] = model("bert", hidden_act="gelu_new")
    result["relu-bert"] = model("bert", hidden_act="relu")
    result["no_dropout-bert"] = model(
        "bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    result["all_techniques-roberta"] = {
        **model("roberta"),
        "bf16": True,
        "optim": "adamw_companded_8bit",
        "param_dtype": "bfloat16+int8",
        **TECHNIQUES["selective"],
    }
    for name, keys in {
        "two_processes": {},
        "zero": {"zero_stage": 1},
        "determinism": {"full_determinism": True},
    }.items():
        result[f"{name}-roberta"] = {
            **model("roberta"),
            "num_processes": 2,
            "effective_batch_size": 8,
            **keys,
        }
    return result


def digest(content):
    return hashlib.sha256(content).hexdigest()[:16]


def numbers_of_log(folder):
    state = json.loads((folder / "trainer_state.json").read_text())
    return [
        {k: v for k, v in entry.items() if "runtime" not in k and "per_second" not in k}
        for entry in state["log_history"]
    ]


def hashes_of(out):
    found = {}
    newest = max((int(p.name[11:]) for p in out.glob("checkpoint-*")), default=0)
    for folder, prefix in ((out, ""), (out / f"checkpoint-{newest}", "checkpoint/")):
        for path in sorted(folder.iterdir()):
            if path.suffix in (".safetensors", ".pt") or "predict" in path.stem:
                if path.name != "predict_results.json":
                    found[prefix + path.name] = digest(path.read_bytes())
    found["log"] = digest(json.dumps(numbers_of_log(out)).encode())
    return found


def run_case(binary, keys):
    """Hashes of one case, or {"error": ...} where it does not finish."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "passive",
        **{k: v for k, v in keys.items() if k.isupper()},
    }
    with tempfile.TemporaryDirectory(prefix="same-bits-") as folder:
        out = Path(folder) / "out"
        config = Path(folder) / "run.json"
        named = {k: v for k, v in keys.items() if not k.isupper()}
        config.write_text(
            json.dumps({**BASE, **named, "output_dir": str(out), "cache_dir": folder + "/cache"})
        )
        command = [binary, "train", str(config)]
        for more, expected in (["--stop_at_step", "3"], 75), ([], 0):
            try:
                done = subprocess.run(
                    [*command, *more], env=environment, capture_output=True, text=True, timeout=300
                )
            except subprocess.TimeoutExpired:
                return {"error": "no end within 300 s"}
            if done.returncode != expected:
                last = done.stderr.strip().splitlines()[-1:] or ["no output"]
                return {"error": f"exit {done.returncode} instead of {expected}: {last[0][:300]}"}
        return hashes_of(out)


def run_all(binary, chosen, jobs):
    binary = str(Path(binary).resolve())
    result = {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(run_case, binary, keys): name for name, keys in chosen.items()}
        for done in concurrent.futures.as_completed(waiting):
            name = waiting[done]
            result[name] = done.result()
            if "error" in result[name]:
                print(f"{name}: {result[name]['error']}", file=sys.stderr)
    return dict(sorted(result.items()))


def compare(old, new):
    """Prints what differs; how many cases do. An error is no result, also where both have it."""
    differing = 0
    for name, hashes in sorted(new.items()):
        if name not in old:
            print(f"{name}: not in the record")
            differing += 1
            continue
        parts = sorted(k for k in {*hashes, *old[name]} if hashes.get(k) != old[name].get(k))
        if "error" in hashes and not parts:
            parts = ["error"]
        if parts:
            differing += 1
            print(f"{name}: differs in {', '.join(parts)}")
    print(f"{len(new) - differing} of {len(new)} cases are equal bit for bit")
    return differing


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("binaries", nargs="*", metavar="BINARY")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--except", dest="left_out", default="$^")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    chosen = {
        name: keys
        for name, keys in cases().items()
        if re.search(options.only, name) and not re.search(options.left_out, name)
    }
    if options.list:
        print("\n".join(chosen))
        return 0
    wanted = 1 if options.record or options.against else 2
    if len(options.binaries) != wanted:
        parser.error(f"name {wanted} binaries")
    new = run_all(options.binaries[-1], chosen, options.jobs)
    if options.record:
        options.record.write_text(json.dumps(new, indent=1) + "\n")
        print(f"{len(new)} cases recorded in {options.record}")
        return int(any("error" in hashes for hashes in new.values()))
    if options.against:
        old = json.loads(options.against.read_text())
    else:
        old = run_all(options.binaries[0], chosen, options.jobs)
    return int(compare(old, new) > 0)


if __name__ == "__main__":
    sys.exit(main())
