#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A mirror in a bucket beside `rclone copy` of the same files, against a local S3 server (moto).

Trains one step of a BERT whose checkpoint has about the given size, with mirror_dir in the bucket, and
measures from the first request to the last byte of the manifest; then copies the same checkpoint with
`rclone copy`. Also prints the requests of a save, how deep they are (with --latency, a save of small files is
a number of round trips long) and the memory of this program beside rclone. Needs the packages of
tests/requirements.txt.

    scripts/bench/bucket.py --megabytes 1000 --rounds 3
    scripts/bench/bucket.py --megabytes 1 --latency 0.2
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "bucket"))
from server import KEYS, Proxy, Store  # noqa: E402  of the line before

TEXT = "the quick brown fox jumps over the lazy dog . " * 40


class Log:
    """The times of the requests that reach the store; each may be delayed."""

    def __init__(self, proxy, latency):
        self.requests = []
        self.lock = threading.Lock()
        forward = proxy.forward

        def logged(handler):
            begin = time.monotonic()
            time.sleep(latency)
            forward(handler)
            with self.lock:
                self.requests.append((begin, time.monotonic(), handler.command, handler.path))

        proxy.forward = logged

    def of_save(self, name):
        """The requests from the first one for a checkpoint to the end of its manifest."""
        mine = sorted(one for one in self.requests if name in one[3])
        end = max(one[1] for one in mine if "manifest.json" in one[3] and one[2] == "PUT")
        begin = min(one[0] for one in mine if one[2] == "PUT")
        return begin, end, [one for one in self.requests if begin <= one[0] <= end]


def depth(requests):
    """The longest chain of requests of which each begins after the end of the one before."""
    count, until = 0, 0.0
    for begin, end in sorted(((one[0], one[1]) for one in requests), key=lambda one: one[1]):
        if begin >= until:
            count, until = count + 1, end
    return count


def peak_kib(pid, stop, peaks):
    while not stop.is_set():
        try:
            peaks.append(int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]))
        except (OSError, TypeError):
            return
        time.sleep(0.05)


def train(options, folder, out, environment, mirror):
    hidden = max(32, round((options.megabytes * 1e6 / 12 / 12 / options.layers) ** 0.5 / 32) * 32)
    keys = {
        "task": "mlm", "model_type": "bert", "train_file": str(folder / "train.txt"), "tokenizer_name": str(
            ROOT / "tests" / "fixtures" / "tokenizers" / "lighthouse"),
        "config_overrides": {"hidden_size": hidden, "intermediate_size": 4 * hidden, "num_attention_heads": 4,
                             "num_hidden_layers": options.layers, "max_position_embeddings": 64},
        "max_seq_length": 16, "per_device_train_batch_size": 1, "max_steps": 1, "save_strategy": "steps",
        "save_steps": 1, "report_to": "none", "output_dir": str(out), "cache_dir": str(folder / "cache"),
        **({"mirror_dir": mirror} if mirror else {}),
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(keys))
    process = subprocess.Popen([options.binary, "train", folder / "run.json"], stderr=subprocess.PIPE, text=True,
                               env={**os.environ, **environment})  # fmt: skip
    stop, peaks = threading.Event(), []
    watch = threading.Thread(target=peak_kib, args=(process.pid, stop, peaks))
    watch.start()
    said = process.communicate()[1]
    stop.set()
    watch.join()
    if process.returncode:
        sys.exit(said)
    return max(peaks) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--megabytes", type=float, default=1000, help="of a checkpoint, about")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--latency", type=float, default=0, help="seconds, of each request")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    store = Store()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "train.txt").write_text(TEXT)
        print("| round | bytes | ours, s | rclone copy, s | ours / rclone | requests | depth | memory, MiB |")
        print("|---|---|---|---|---|---|---|---|")
        for i in range(options.rounds):
            proxy = Proxy(store)
            log = Log(proxy, options.latency)
            environment = {**KEYS, "AWS_ENDPOINT_URL": proxy.url}
            shutil.rmtree(folder / "plain", ignore_errors=True)
            alone = train(options, folder, folder / "plain", environment, None)
            out = folder / f"run{i}"
            peak = train(options, folder, out, environment, f"s3://{Store.bucket}/run{i}")
            begin, end, requests = log.of_save("checkpoint-1")
            checkpoint = out / "checkpoint-1"
            size = sum(file.stat().st_size for file in checkpoint.iterdir())
            start = time.monotonic()
            subprocess.run(
                ["rclone", "copy", str(checkpoint), f"F:{Store.bucket}/copy{i}"], check=True, capture_output=True,
                env={**os.environ, **KEYS, "RCLONE_CONFIG_F_TYPE": "s3", "RCLONE_CONFIG_F_ENV_AUTH": "true",
                     "RCLONE_CONFIG_F_ENDPOINT": proxy.url, "RCLONE_CONFIG_F_PROVIDER": "Other",
                     "RCLONE_CONFIG_F_NO_CHECK_BUCKET": "true"})  # fmt: skip
            peer = time.monotonic() - start
            print(f"| {i + 1} | {size / 1e6:.1f} MB | {end - begin:.2f} | {peer:.2f} | {(end - begin) / peer:.2f} | "
                  f"{len(requests)} | {depth(requests)} | {peak - alone:+.0f} |", flush=True)  # fmt: skip
            proxy.close()
            shutil.rmtree(out)
    store.close()


if __name__ == "__main__":
    main()
