# SPDX-License-Identifier: MIT
"""Tiny runs in many configurations, for classes of faults that scripts/soak repeats for hours.

A session starts in a session_server: with the release binary (`starts`), or in a fork of the warm
server (`forks`), which takes a twentieth of the time.
"""

import hashlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ROOT / "tests" / "fixtures" / "checkpoints" / "v1" / "float32"
HANG_SECONDS = 300

BASE = {
    "model_type": "bert",
    "tokenizer_name": str(DATA / "tokenizer"),
    "train_file": str(DATA / "train.txt"),
    "validation_file": str(DATA / "valid.txt"),
    "config_overrides": {
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "hidden_size": 16,
        "intermediate_size": 16,
        "max_position_embeddings": 12,
    },
    "line_by_line": True,
    "max_seq_length": 12,
    "mlm_probability": 0.3,
    "preprocessing_num_workers": 1,
    "max_steps": 16,
    "save_steps": 2,
    "save_total_limit": 2,
    "per_device_train_batch_size": 4,
    "learning_rate": 1e-2,
    "logging_steps": 1,
    "eval_strategy": "steps",
    "eval_steps": 4,
    "use_cpu": True,
    "report_to": "none",
}
# With these the best evaluation is neither the first nor the last.
BEST = {
    "learning_rate": 5e-2,
    "load_best_model_at_end": True,
    "metric_for_best_model": "eval_loss",
    "eval_steps": 2,
}
# {mirror}: a folder next to output_dir. There is no dropout, so all configurations have the same
# masks.
CONFIGURATIONS = {
    "sync": {"async_save": False, "save_steps": 1, "save_total_limit": 1},
    "async": {"save_steps": 1, "save_total_limit": 1},
    "async_limit_2": {"save_steps": 1},
    "best_limit_1": {**BEST, "save_total_limit": 1},
    "best_limit_2": BEST,
    "mirror_limit_1": {"mirror_dir": "{mirror}", "save_total_limit": 1},
    "mirror_limit_3": {"mirror_dir": "{mirror}", "save_total_limit": 3},
    "fp16_adamw_8bit": {
        "fp16": True,
        "optim": "adamw_8bit",
        "optim_args": "embeddings_in_8bit=true,min_8bit_size=64",
    },
    "bf16_weights_companded": {"param_dtype": "bfloat16", "optim": "adamw_companded_8bit"},
    "adafactor_epochs": {
        "optim": "adafactor",
        "max_steps": -1,
        "num_train_epochs": 4,
        "save_strategy": "epoch",
        "eval_strategy": "epoch",
    },
    "two_full_determinism": {
        "num_processes": 2,
        "full_determinism": True,
        "effective_batch_size": 4,
        "per_device_train_batch_size": 1,
    },
    "two_zero_mirror": {
        "num_processes": 2,
        "zero_stage": 1,
        "effective_batch_size": 4,
        "per_device_train_batch_size": 2,
        "mirror_dir": "{mirror}",
    },
    "packing_tensorboard": {"packing": True, "line_by_line": False, "report_to": "tensorboard"},
    "accumulation_save_minutes": {
        "gradient_accumulation_steps": 4,
        "per_device_train_batch_size": 1,
        "save_minutes": 0.0002,
    },
    "save_minutes": {"save_minutes": 0.0002, "save_steps": 1000, "max_steps": 100},
    "plateau_early_stopping": {
        **BEST,
        "lr_scheduler_type": "reduce_lr_on_plateau",
        "early_stopping_patience": 3,
        "max_steps": 24,
    },
    # The reference is computed and kept in these sessions, too, since each start may find none.
    "pairs": {
        "task": "dpo",
        "model_type": "llama",
        "config_overrides": {
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "hidden_size": 16,
            "intermediate_size": 16,
            "max_position_embeddings": 24,
        },
        "train_file": str(Path(__file__).resolve().parent / "pairs.jsonl"),
        "validation_file": str(Path(__file__).resolve().parent / "pairs.jsonl"),
        "max_seq_length": 24,
        "line_by_line": None,
        "mlm_probability": None,
        "cache_dir": "{mirror}/../cache",
    },
    # Runs a supervisor and its child.
    "hooks": {"on_finish_command": ["true"], "on_interrupt_command": ["true"]},
}


class SoakedRun:
    """The files of one configuration, in a separate folder."""

    def __init__(self, name, folder, **keys):
        self.name, self.folder = name, Path(folder)
        self.out = self.folder / "out"
        self.mirror = self.folder / "mirror"
        self.keys = {
            **BASE,
            "output_dir": str(self.out),
            **{k: v.replace("{mirror}", str(self.mirror)) if isinstance(v, str) else v
               for k, v in CONFIGURATIONS[name].items()},
            **keys,
        }  # fmt: skip
        self.keys = {key: value for key, value in self.keys.items() if value is not None}

    def words(self, config):
        Path(config).write_text(json.dumps(self.keys))
        return ["train", str(config)]

    def begin_again(self):
        for path in (self.out, self.mirror, self.folder / "cache"):
            shutil.rmtree(path, ignore_errors=True)

    def committed(self):
        """Returns the newest visible checkpoint, or 0."""
        return max(self.steps(), default=0)

    def steps(self):
        names = os.listdir(self.out) if self.out.is_dir() else []
        return [int(name[11:]) for name in names if re.fullmatch(r"checkpoint-\d+", name)]

    def outcome(self):
        """Returns the final state without times and the output folder's name."""
        state = json.loads((self.out / "trainer_state.json").read_text())
        found = {
            "model": digest(self.out / "model.safetensors"),
            "log": [without_times(entry) for entry in state["log_history"]],
            "best": [state.get("best_metric"), state.get("best_global_step")],
            "step": state["global_step"],
            "results": without_times(json.loads((self.out / "all_results.json").read_text())),
            # No line damaged, missing or twice. A restored line has no time.
            "metrics.jsonl": [
                {key: line[key] for key in ("step", "loss", "eval_loss", "train_loss") if key in line}
                for line in json_lines(self.out / "metrics.jsonl")
            ],
        }
        json_lines(self.out / "sessions.jsonl")
        last = self.out / f"checkpoint-{state['global_step']}"
        if last.is_dir():
            for path in sorted(last.iterdir()):
                if path.suffix in (".pt", ".safetensors"):
                    found[f"checkpoint {path.name}"] = digest(path)
            # A checkpoint saved by a signal precedes the step's evaluation, which the next session
            # made; a plateau schedule counts evaluations.
            if json.loads((last / "finetune_state.json").read_text())["evaluation_pending"]:
                found.pop("checkpoint scheduler.pt", None)
        return found

    def invalid(self, server):
        """Returns what `finetune checkpoints --verify` reports about the remaining checkpoints, or
        nothing."""
        for folder in (self.out, self.mirror):
            if folder.is_dir():
                listing = server.run(["checkpoints", folder, "--verify"], True, "listing")
                if listing.code != 0:
                    return f"checkpoints --verify ended with {listing.code}: {listing.said()}"
        return ""

    def left_over(self):
        return [f"{folder.name}/{name}" for folder in (self.out, self.mirror) if folder.is_dir()
                for name in os.listdir(folder)
                if name.startswith((".tmp", ".trash")) or ".bad" in name]  # fmt: skip


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def json_lines(path):
    """Returns the lines; ValueError names the first that is no JSON."""
    lines = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            lines.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"{path.name}:{number}: {error}") from error
    return lines


def without_times(entry):
    return {k: v for k, v in entry.items() if "runtime" not in k and "per_second" not in k}


def difference(ended, expected):
    """Returns the first difference, or nothing. The last checkpoint may have been rotated or not saved."""
    wanted = {k: v for k, v in expected.items() if k in ended or not k.startswith("checkpoint ")}
    different = [k for k in {**ended, **wanted} if ended.get(k) != wanted.get(k)]
    return f"differs: {sorted(different)}" if different else ""


class Session:
    def __init__(self, server, said, process):
        self.server, self.said_path, self.process = server, said, process
        self.code = None

    def wait(self, seconds=HANG_SECONDS):
        """Waits until no process of the session is left. Returns the exit code, negative for a signal."""
        line = self.server.line(seconds)
        if line is None:
            self.kill_all()
            self.server.line(HANG_SECONDS)
            self.code = "hangs"
        else:
            self.code = int(line.split()[1])
        return self.code

    def is_over(self, seconds):
        """Waits at most that long; returns whether the session ended."""
        return self.server.has_line(seconds)

    def kill_all(self, number=signal.SIGKILL):
        try:
            os.killpg(self.process, number)
        except ProcessLookupError:
            pass

    def kill_first(self, number=signal.SIGKILL):
        self.kill_one(self.process, number)

    @staticmethod
    def kill_one(process, number=signal.SIGKILL):
        try:
            os.kill(process, number)
        except ProcessLookupError:
            pass

    def children(self):
        found = []
        for thread in Path(f"/proc/{self.process}/task").glob("*/children"):
            try:
                found += [int(word) for word in thread.read_text().split()]
            except OSError:
                pass  # it ended in the meantime
        return found

    def said(self):
        return self.said_path.read_text(errors="replace")

    def resumed(self):
        """Returns the step it resumed from, 0 for a new run; None: it ended before that."""
        said = self.said()
        found = re.search(r"resuming from \S+ at step (\d+)", said)
        if found:
            return int(found[1])
        return 0 if re.search(r"^training \d+ steps", said, re.MULTILINE) else None

    def found_finished(self):
        return "already finished" in self.said()


class SessionServer:
    def __init__(self, server, binary, folder):
        self.folder, self.binary = Path(folder), str(binary)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.buffer = b""
        warm = SoakedRun("async", self.folder / "warm")
        warm.keys["cache_dir"] = str(self.folder / "cache")
        warm.folder.mkdir(exist_ok=True)
        words = warm.words(self.folder / "warm.json")
        log = open(self.folder / "server.log", "wb")
        self.process = subprocess.Popen(
            [str(server), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        )
        if self.line(HANG_SECONDS) != "ready":
            raise RuntimeError(f"the server did not start: {Path(log.name).read_text()}")

    def start(self, words, is_fork, said="said"):
        path = self.folder / said
        path.write_text("")  # a session that is killed at once writes nothing
        line = "\t".join([str(path), "" if is_fork else self.binary, *map(str, words)])
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        answer = self.line(HANG_SECONDS)
        if answer is None or not answer.startswith("started "):
            raise RuntimeError(f"the server answered {answer}")
        return Session(self, path, int(answer.split()[1]))

    def run(self, words, is_fork, said="said"):
        session = self.start(words, is_fork, said)
        session.wait()
        return session

    def has_line(self, seconds):
        if b"\n" not in self.buffer and select.select([self.process.stdout], [], [], seconds)[0]:
            piece = os.read(self.process.stdout.fileno(), 4096)
            if not piece:
                raise RuntimeError("the server is gone")
            self.buffer += piece
        return b"\n" in self.buffer

    def line(self, seconds):
        end = time.monotonic() + seconds
        while not self.has_line(max(0.0, end - time.monotonic())):
            if time.monotonic() > end:
                return None
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Tally:
    """Counts of one row, stored in a file that scripts/bench/reliability_merge.py accumulates."""

    def __init__(self, row, options):
        self.row, self.options = row, options
        self.cases = self.failures = 0
        self.started = time.monotonic()
        self.seconds = 0.0

    def add(self, what, problem):
        self.cases += 1
        if problem:
            self.failures += 1
            print(f"{self.row}, {what}: {problem}", flush=True)

    def save(self):
        if not self.options.results or self.cases == 0:
            return
        result = {
            "row": self.row,
            "cases": self.cases,
            "failures": self.failures,
            "seed": self.options.seed,
            "seconds": round(self.seconds, 1),
            "commit": self.options.commit,
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
        }
        path = self.options.results / f"{self.row.replace(' ', '-')}.json"
        staging = path.with_suffix(".tmp")
        staging.write_text(json.dumps(result) + "\n")
        staging.rename(path)


def temporary_folder(prefix):
    """Returns a folder in memory where possible: nothing here needs a durable disk."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix=prefix, dir=place))


def add_options(parser):
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--server", type=Path, default=ROOT / "build" / "finetune_session_server")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e6, help="begin nothing after M minutes")
    parser.add_argument("--commit", default="", help="of the binary, for the results")
    parser.add_argument("--results", type=Path, help="folder for the counts")
    parser.add_argument("--keep", type=Path, help="folder for what failed (default: a new one)")
    parser.add_argument("--only", default="", help="regular expression of configurations")


def chosen(names, only):
    return [name for name in names if re.search(only, name)]


def report(tallies, options):
    """Prints the counts and returns the exit code."""
    for tally in tallies:
        print(f"{tally.row} {tally.cases} cases, {tally.failures} failures, {tally.seconds:.0f} s")
    if options.keep and not any(options.keep.iterdir()):
        options.keep.rmdir()
    return 1 if any(tally.failures for tally in tallies) or not tallies else 0
