#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Building the tokenised cache, and starting with it: seconds, MB/s and peak memory.

A corpus of the wanted size is made of the texts in --data, a byte-level BPE trained on it, and
`finetune prepare` run on a quarter, a half and all of the corpus (memory must not grow), each twice
(the second time the cache is found), then a training of one update on all of it and on 1 MB of it
(what a large corpus costs from the start to the first batch is the difference), each three times.
CPU seconds are those of all threads: where a machine is busy with other work, they are what can be
compared. One JSON line is printed. Corpora and caches are in the folder for temporary files, which
TMPDIR names; `--parts whole` leaves the quarter and the half out.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MB = 1_000_000
OVERRIDES = (
    "num_hidden_layers=1,num_attention_heads=2,hidden_size=32,intermediate_size=32,"
    "max_position_embeddings=514"
)


def make_corpus(path, texts, size):
    written = 0
    with open(path, "wb") as file:
        while written < size:
            for text in texts:
                part = text[: size - written]
                file.write(part)
                written += len(part)


def watch_own_memory(process, peak):
    """Keeps in peak[0] the most kB that are the process's own, mapped files left out."""
    while process.returncode is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            return
        for line in status.splitlines():
            if line.startswith("RssAnon:"):
                peak[0] = max(peak[0], int(line.split()[1]))
        time.sleep(0.02)


def timed(command):
    """Seconds, CPU seconds and peak MB of a command that must succeed."""
    begun = time.perf_counter()
    own = [0]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen([str(word) for word in command], stdout=said, stderr=said)
        watcher = threading.Thread(target=watch_own_memory, args=(process, own))
        watcher.start()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        watcher.join()
        if process.returncode != 0:
            said.seek(0)
            sys.exit(said.read().decode())
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_mb": round(usage.ru_maxrss * 1024 / MB),
        "own_peak_mb": round(own[0] * 1024 / MB),
    }


class Bench:
    def __init__(self, options, folder):
        self.options = options
        self.folder = Path(folder)
        self.tokenizer = self.folder / "tokenizer"

    def config(self, corpus, block):
        path = self.folder / f"{corpus.stem}.yaml"
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        path.write_text(
            f"output_dir: {self.folder / 'out'}\ncache_dir: {self.folder / 'cache'}\n"
            f"model_type: roberta\ntokenizer_name: {self.tokenizer}\ntrain_file: {corpus}\n"
            f'config_overrides: "{OVERRIDES}"\nmax_seq_length: 128\n'
            f"line_by_line: {str(not block).lower()}\nvalidation_split_percentage: 0\n"
            f"preprocessing_num_workers: {self.options.threads}\nuse_cpu: true\nmax_steps: 1\n"
            "per_device_train_batch_size: 16\nsave_strategy: no\nreport_to: none\n"
        )
        return path

    def prepare(self, corpus, block):
        command = [self.options.binary, "prepare", self.config(corpus, block)]
        built = timed(command)
        size = corpus.stat().st_size / MB
        found = timed(command)
        return {
            "mb": round(size),
            "block": block,
            **built,
            "mb_per_cpu_second": round(size / built["cpu_seconds"], 1),
            "again_seconds": found["seconds"],
            "again_cpu_seconds": found["cpu_seconds"],
        }

    def train(self, corpus, block):
        return timed([self.options.binary, "train", self.config(corpus, block)])

    def run(self):
        options = self.options
        texts = [(options.data / name).read_bytes() for name in options.texts]
        whole = options.megabytes
        sizes = {"small": 1, "quarter": whole // 4, "half": whole // 2, "whole": whole}
        sizes = {name: size for name, size in sizes.items() if name in ("small", *options.parts)}
        corpora = {}
        for name, size in sizes.items():
            corpora[name] = self.folder / f"{name}.txt"
            make_corpus(corpora[name], texts, size * MB)
        words = ["--type", "byte_level_bpe", "--vocab_size"]
        train = [options.binary, "tokenizer", "train", *words, options.vocabulary]
        timed(
            [*train, "--output", self.tokenizer, *(options.data / name for name in options.texts)]
        )
        result = {"threads": options.threads, "vocabulary": options.vocabulary, "build": []}
        for corpus in corpora.values():
            result["build"].append(self.prepare(corpus, not options.lines))
        result["cache_mb"] = round(
            sum(f.stat().st_size for f in (self.folder / "cache").rglob("*") if f.is_file()) / MB
        )
        for name in ("small", "whole"):
            starts = [self.train(corpora[name], not options.lines) for _ in "123"]
            result[f"start_{name}"] = min(starts, key=lambda start: start["seconds"])
            result[f"starts_{name}_seconds"] = [start["seconds"] for start in starts]
        return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--texts", nargs="+", default=["esperanto.txt", "shakespeare.txt"])
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--vocabulary", type=int, default=16000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--parts", nargs="+", default=["quarter", "half", "whole"])
    parser.add_argument("--lines", action="store_true", help="line_by_line in place of blocks")
    with tempfile.TemporaryDirectory(prefix="token-cache-") as folder:
        print(json.dumps(Bench(parser.parse_args(), folder).run()))


if __name__ == "__main__":
    main()
