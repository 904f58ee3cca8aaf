# SPDX-License-Identifier: MIT
"""The same weights and the same data give the same training, step by step."""

import copy
import json

import torch
from safetensors.torch import load_file
from support import MLM, TRAJECTORIES, ParityTest, load_strictly, state, weights

TOLERANCE = 2e-3  # of final weights


class Trajectory(ParityTest):
    """One test for each variant of scripts/make_goldens.py, added below."""

    def check(self, name):
        golden = TRAJECTORIES[name]
        output = self.train(golden["config"])
        final = state(output)
        self.assertEqual(final["global_step"], golden["global_step"])
        self.assert_same_log(final["log_history"], golden["log"])
        summary = [r for r in final["log_history"] if "train_loss" in r]
        self.assertEqual(len(summary), 1, "one summary line with train_loss")
        self.assert_relative(summary[0]["train_loss"], golden["train_loss"], 1e-3, "train_loss")

        ours = weights(output)
        for tensor, norm in golden["norms"].items():
            if "key.bias" not in tensor:
                what = f"norm of {tensor}"
                self.assert_relative(float(ours[tensor].norm()), norm, TOLERANCE, what)
        kept = MLM / f"final-{name}.safetensors"
        if kept.exists():
            self.assert_same_weights(ours, load_file(kept), TOLERANCE)


def add_variant(name):
    setattr(Trajectory, f"test_{name}", lambda self: self.check(name))


for variant in TRAJECTORIES:
    add_variant(variant)


class Tolerances(ParityTest):
    """The comparisons above must detect the mistakes that they exist for."""

    def test_a_run_without_decay_groups_is_noticed(self):
        with self.assertRaises(AssertionError):
            self.assert_same_weights(
                load_file(MLM / "final-linear.safetensors"),
                load_file(MLM / "final-weight_decay.safetensors"),
                TOLERANCE,
            )

    def test_a_wrong_schedule_is_noticed(self):
        for other in ("polynomial", "cosine", "label_smoothing"):
            with self.assertRaises(AssertionError, msg=other):
                self.assert_same_log(TRAJECTORIES[other]["log"], TRAJECTORIES["linear"]["log"])

    def test_a_missing_evaluation_is_noticed(self):
        log = copy.deepcopy(TRAJECTORIES["linear"]["log"])
        log.pop()
        with self.assertRaises(AssertionError):
            self.assert_same_log(log, TRAJECTORIES["linear"]["log"])


class Accumulation(ParityTest):
    """Micro-batches with unequal numbers of masks equal one large batch."""

    CONFIG = {
        **TRAJECTORIES["unequal"]["config"],
        "weight_decay": 0.1,
    }

    def run_cut(self, name, rows, accumulation, **more):
        output = self.train(
            self.CONFIG,
            name,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=accumulation,
            **more,
        )
        return state(output)["log_history"], weights(output)

    def check_equal_to_one_batch(self, rows, accumulation, **more):
        whole_log, whole = self.run_cut("whole", 8, 1, **more)
        cut_log, cut = self.run_cut("cut", rows, accumulation, **more)
        for ours, theirs in zip(
            [r for r in cut_log if "loss" in r], [r for r in whole_log if "loss" in r], strict=True
        ):
            what = f"loss of step {theirs['step']}"
            self.assert_relative(ours["loss"], theirs["loss"], 1e-5, what)
            what = f"grad_norm of step {theirs['step']}"
            self.assert_relative(ours["grad_norm"], theirs["grad_norm"], 1e-4, what)
        self.assert_same_weights(cut, whole, 1e-5)

    def test_four_times_two_rows_equal_eight_rows(self):
        self.check_equal_to_one_batch(2, 4)

    def test_eight_times_one_row_equals_eight_rows(self):
        self.check_equal_to_one_batch(1, 8)

    def test_label_smoothing_is_averaged_over_all_micro_batches(self):
        self.check_equal_to_one_batch(2, 4, label_smoothing_factor=0.1)

    def test_four_times_two_rows_equal_one_large_batch_of_transformers(self):
        golden = TRAJECTORIES["unequal"]
        output = self.train(
            golden["config"], per_device_train_batch_size=2, gradient_accumulation_steps=4
        )
        # epoch counts micro-batches, and there are more of them here.
        mine = [{**row, "epoch": 0} for row in state(output)["log_history"]]
        theirs = [{**row, "epoch": 0} for row in golden["log"]]
        self.assert_same_log(mine, theirs)


class Logits(ParityTest):
    def test_the_untrained_model_still_gives_the_golden_logits(self):
        """Checks the goldens against other versions of transformers."""
        golden = load_file(MLM / "logits.safetensors")
        model = load_strictly(MLM / "model")
        with torch.no_grad():
            logits = model(golden["input_ids"], attention_mask=golden["attention_mask"]).logits
        attended = golden["attention_mask"].bool()
        worst = float((logits - golden["logits"])[attended].abs().max())
        self.assertLess(worst, 1e-4)

    def test_evaluate_gives_the_loss_of_the_model(self):
        """eval_loss of `finetune evaluate`: batch means weighted by rows."""
        from make_goldens import collate
        from support import run_binary

        rows = [json.loads(x) for x in (MLM / "eval_unequal.jsonl").read_text().splitlines()]
        model = load_strictly(MLM / "model")
        total = 0.0
        for start in range(0, len(rows), 8):
            batch = rows[start : start + 8]
            with torch.no_grad():
                total += float(model(**collate(batch)).loss) * len(batch)
        config = self.folder / "evaluate.json"
        config.write_text(
            json.dumps(
                {
                    "model_name_or_path": str(MLM / "model"),
                    "validation_file": str(MLM / "eval_unequal.jsonl"),
                    "per_device_eval_batch_size": 8,
                    "output_dir": str(self.folder / "out"),
                    "cache_dir": str(self.folder / "cache"),
                    "use_cpu": True,
                }
            )
        )
        said = run_binary("evaluate", config)
        results = json.loads((self.folder / "out" / "eval_results.json").read_text())
        self.assert_relative(results["eval_loss"], total / len(rows), 1e-5, "eval_loss")
        self.assert_relative(json.loads(said)["eval_loss"], total / len(rows), 1e-5, "on stdout")
