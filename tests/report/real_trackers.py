#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks what `report_to: [wandb, mlflow]` writes against the trackers' own packages.

Installs them with pip into a dedicated virtual environment (exit code 77 where that fails: no
network), trains a tiny model in three sessions, one of them killed, and reads the folders back:
MLflow's with its client, wandb's with its own protocol buffers, record by record. Every point of
metrics.jsonl has to be there once.
"""

import argparse
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile

PACKAGES = ["wandb==0.31.0", "mlflow-skinny==3.17.2"]
SKIPPED = 77
BLOCK = 32768


def records(path):
    """The records of a .wandb file: LevelDB's log format after a header of 7 bytes."""
    data = path.read_bytes()
    assert data[:4] == b":W&B", data[:4]
    at, record = 7, b""
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", data[at:at + 7])
        record += data[at + 7:at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # complete, or the last part
            yield record
            record = b""


def read_wandb(out):
    from wandb.proto import wandb_internal_pb2

    folders = sorted((out / "wandb").glob("offline-run-*"))
    assert len(folders) == 1, folders
    points, identity, code = [], None, None
    for data in records(next(folders[0].glob("*.wandb"))):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            identity = (record.run.run_id, record.run.project, record.run.display_name)
        elif kind == "exit":
            code = record.exit.exit_code
        elif kind == "history":
            row = {item.key or ".".join(item.nested_key): json.loads(item.value_json)
                   for item in record.history.item}
            step = row["train/global_step"]
            points += [(step, key, value) for key, value in row.items()
                       if not key.startswith("_") and key != "train/global_step"]
    assert code == 0, code
    return points, identity


def read_mlflow(out):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=(out / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("lighthouse")
    runs = client.search_runs([experiment.experiment_id])
    assert len(runs) == 1, runs
    run = runs[0]
    points = [(point.step, key, point.value) for key in run.data.metrics
              for point in client.get_metric_history(run.info.run_id, key)]
    return points, run


def shown_key(key):
    return "eval/" + key[5:] if key.startswith("eval_") else "train/" + key


def expected_points(out):
    points = []
    for line in (out / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        points += [(row["step"], key, value) for key, value in row.items()
                   if key not in ("step", "time", "session")]
    return points


def check(binary, folder):
    root = pathlib.Path(__file__).resolve().parents[2]
    text = root / "tests/fixtures/text/lighthouse.txt"
    subprocess.run([binary, "tokenizer", "train", "--type", "byte_level_bpe", "--vocab_size", "300",
                    "--output", folder / "tokenizer", text], check=True)
    out = folder / "out"
    command = [binary, "train", "--output_dir", out, "--cache_dir", folder / "cache",
               "--model_type", "roberta", "--tokenizer_name", folder / "tokenizer",
               "--config_overrides",
               "num_hidden_layers=1,num_attention_heads=2,hidden_size=32,intermediate_size=64,"
               "max_position_embeddings=34,type_vocab_size=1",
               "--train_file", text, "--validation_file",
               root / "tests/fixtures/text/lighthouse-valid.txt", "--max_seq_length", "32",
               "--max_steps", "12", "--logging_steps", "1", "--eval_strategy", "steps",
               "--eval_steps", "6", "--save_steps", "4", "--project", "lighthouse",
               "--report_to", "wandb", "mlflow"]
    command = [str(word) for word in command]
    environment = {**os.environ, "FINETUNE_PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}

    def train(*more, code=0):
        done = subprocess.run(command + list(more), env=environment)
        assert done.returncode == code, done.returncode

    def check_both(finished):
        expected = sorted(expected_points(out))
        points, identity = read_wandb(out)
        assert sorted(points) == sorted((s, shown_key(k), v) for s, k, v in expected), points
        points, run = read_mlflow(out)
        assert sorted(points) == expected, points
        assert run.data.tags["finetune.run_id"] == identity[0]
        assert identity[1:] == ("lighthouse", "out"), identity
        assert run.info.status == ("FINISHED" if finished else "KILLED"), run.info.status
        assert run.data.params["learning_rate"] == "5e-05", run.data.params["learning_rate"]

    train("--stop_at_step", "5", code=75)
    check_both(finished=False)
    # A session that is killed leaves the trackers' folders as they were.
    process = subprocess.Popen(command, env=environment)
    while process.poll() is None and len(expected_points(out)) < 60:
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    train()
    check_both(finished=True)
    steps = [step for step, key, _ in expected_points(out) if key == "loss"]
    assert steps == list(range(1, 13)), steps
    train()  # already finished
    check_both(finished=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--environment", required=True, type=pathlib.Path)
    parser.add_argument("--inside", action="store_true")
    arguments = parser.parse_args()
    if arguments.inside:
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
        with tempfile.TemporaryDirectory() as folder:
            check(arguments.binary, pathlib.Path(folder))
        return 0
    python = arguments.environment / "bin/python"
    wanted = arguments.environment / "installed.txt"
    if not wanted.exists() or wanted.read_text() != "\n".join(PACKAGES):
        try:
            subprocess.run([sys.executable, "-m", "venv", arguments.environment], check=True)
            subprocess.run([python, "-m", "pip", "install", "-q", "--retries", "1", "--timeout",
                            "20", *PACKAGES], check=True, timeout=900)
        except (subprocess.SubprocessError, OSError) as error:
            print(f"skipped: {error}")
            return SKIPPED
        wanted.write_text("\n".join(PACKAGES))
    return subprocess.run([python, __file__, "--binary", arguments.binary, "--environment",
                           arguments.environment, "--inside"]).returncode


if __name__ == "__main__":
    sys.exit(main())
