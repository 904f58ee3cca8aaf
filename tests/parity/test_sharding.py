# SPDX-License-Identifier: MIT
"""Compares zero_stage 2 and 3 in two processes with torch's FSDP2 over Gloo."""

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from safetensors.torch import load_file
from support import TEXT, ParityTest, run_binary, state, weights
from test_clm import BLOCK, TOKENIZER, blocks_of, maker

RANKS, STEPS, BATCH, RATE = 2, 12, 8, 1e-3


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Sharding(ParityTest):
    def test_trains_as_fsdp2(self):
        model = self.folder / "model"
        # Large enough that matrices and vocabulary are divided.
        maker("llama", hidden_size=128, intermediate_size=256, tie_word_embeddings=True)(model)
        for file in TOKENIZER.iterdir():
            shutil.copy(file, model)
        blocks = self.folder / "blocks.json"
        blocks.write_text(json.dumps(blocks_of(TEXT / "lighthouse.txt")))
        port = str(free_port())
        ranks = [
            subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("fsdp2.py")), str(model), str(blocks), str(rank),
                 str(RANKS), port, str(STEPS), str(BATCH), str(RATE)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for rank in range(RANKS)
        ]
        said = [rank.communicate(timeout=300) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0] * RANKS, said[0][1][-2000:])
        theirs = json.loads(said[0][0].splitlines()[-1])
        expected = load_file(model / "fsdp2.safetensors")
        (model / "fsdp2.safetensors").unlink()
        for stage in (2, 3):
            output = self.folder / f"stage{stage}"
            config = {
                "task": "clm",
                "model_name_or_path": str(model),
                "train_file": str(TEXT / "lighthouse.txt"),
                "block_size": BLOCK,
                "validation_file": str(TEXT / "lighthouse-valid.txt"),  # else a part of the text is held out
                "eval_strategy": "no",
                "output_dir": str(output),
                "cache_dir": str(self.folder / "cache"),
                "train_sampling_strategy": "sequential",
                "max_steps": STEPS,
                "per_device_train_batch_size": BATCH // RANKS,
                "num_processes": RANKS,
                "zero_stage": stage,
                "learning_rate": RATE,
                "lr_scheduler_type": "constant",
                "weight_decay": 0.0,
                "logging_steps": 1,
                "save_strategy": "no",
                "report_to": "none",
                "use_cpu": True,
            }
            path = self.folder / f"stage{stage}.json"
            path.write_text(json.dumps(config))
            run_binary("train", path)
            ours = [row["loss"] for row in state(output)["log_history"] if "loss" in row]
            self.assertEqual(len(ours), STEPS)
            for step, (our, their) in enumerate(zip(ours, theirs)):
                self.assertAlmostEqual(our, their, delta=1e-4, msg=f"stage {stage}, step {step + 1}")
            # Sums in another order, through twelve steps of Adam.
            self.assert_same_weights(weights(output), expected, 2e-3)
