# SPDX-License-Identifier: MIT
"""Every task with every family trains like transformers' Trainer, step by step: losses, gradient norms,
evaluation losses and metrics, final weights. Goldens: scripts/make_task_goldens.py."""

import copy
import json

from support import ROOT, ParityTest, run_binary, state, weights

TASKS = ROOT / "tests" / "fixtures" / "parity" / "tasks"
FILES = ROOT / "tests" / "fixtures" / "tasks"
GOLDENS = json.loads((TASKS / "trajectories.json").read_text())
# As in test_trajectory.py: float32 sums in another order, over twelve steps of Adam.
LOSS, NORM, METRIC, WEIGHT = 1e-3, 1e-2, 1e-3, 2e-3


def write_config(folder, name, **more):
    family, work = name.split("/")
    keys = {
        **GOLDENS[name]["config"],
        "model_name_or_path": str(TASKS / family / work),
        "tokenizer_name": str(TASKS / family / "tokenizer"),
        "output_dir": str(folder / "run"),
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        **more,
    }
    for key in ("train_file", "validation_file"):
        own = TASKS / family / keys[key]
        keys[key] = str(own if own.exists() else FILES / keys[key])
    path = folder / "run.json"
    path.write_text(json.dumps(keys, indent=1))
    return path


def write_short_training(folder, task, train_file):
    """Returns the configuration of two steps of a BERT on other data than the task's, in a new folder."""
    folder.mkdir()
    config = write_config(folder, f"bert/{task}", max_steps=2, eval_strategy="no")
    keys = json.loads(config.read_text())
    keys["train_file"] = str(train_file)
    keys.pop("validation_file")
    keys["do_eval"] = False
    config.write_text(json.dumps(keys))
    return config


class Tasks(ParityTest):
    """One test for each family and task, added below."""

    maxDiff = None

    def check_log(self, ours, theirs):
        mine = [r for r in ours if "loss" in r or "eval_loss" in r]
        self.assertEqual([r["step"] for r in mine], [r["step"] for r in theirs])
        for row, golden in zip(mine, theirs, strict=True):
            for key, value in golden.items():
                what = f"step {golden['step']}: {key}"
                self.assertIn(key, row, what)
                if key in ("loss", "eval_loss"):
                    self.assert_relative(row[key], value, LOSS, what)
                elif key == "grad_norm":
                    self.assert_relative(row[key], value, NORM, what)
                elif key == "learning_rate":
                    self.assert_relative(row[key], value, 1e-4, what)
                elif key == "epoch":
                    self.assertAlmostEqual(row[key], value, places=6, msg=what)
                elif key == "eval_spearmanr":
                    # Ranks: of 24 almost equal predictions, neighbours may be swapped.
                    self.assertAlmostEqual(row[key], value, delta=0.05, msg=what)
                elif key.startswith("eval_"):
                    # Percentages of questions are a hundred times as large as fractions.
                    scale = 100 if "exact_match" in golden or "eval_exact_match" in golden else 1
                    self.assertAlmostEqual(row[key], value, delta=METRIC * scale, msg=what)

    def check(self, name):
        run_binary("train", write_config(self.folder, name))
        golden = GOLDENS[name]
        final = state(self.folder / "run")
        self.assertEqual(final["global_step"], golden["global_step"])
        self.check_log(final["log_history"], golden["log"])
        ours = weights(self.folder / "run")
        tied = {"lm_head.decoder.weight"}  # XLM-RoBERTa's name of its word embedding
        self.assertEqual(set(golden["norms"]) - set(ours) - tied, set(), "tensors not there")
        # These have no true gradient, so Adam makes them noise: a softmax ignores a constant added
        # to all of its scores, over keys, choices or positions of an answer.
        noise = ["key.bias"]
        if name.endswith("choices"):
            noise += ["classifier.bias"]
        if name.endswith("cargo"):
            noise += ["qa_outputs.bias", "classifier.bias", "layer.1.output.LayerNorm.bias"]
        for tensor, norm in golden["norms"].items():
            if tensor in ours and not any(n in tensor for n in noise):
                self.assert_relative(float(ours[tensor].norm()), norm, WEIGHT, f"norm of {tensor}")


def add(name):
    setattr(
        Tasks, "test_" + name.replace("/", "_").replace("-", "_"), lambda self: self.check(name)
    )


for each in GOLDENS:
    add(each)


class Loading(ParityTest):
    """The Auto class loads the files of a run without a missing or unexpected tensor."""

    def check(self, name, head):
        import transformers

        run_binary("train", write_config(self.folder, name, max_steps=2, eval_strategy="no"))
        kind = getattr(transformers, f"AutoModelFor{head}")
        model, info = kind.from_pretrained(self.folder / "run", output_loading_info=True)
        self.assertEqual({k: list(v) for k, v in info.items() if v}, {})
        transformers.AutoTokenizer.from_pretrained(self.folder / "run")
        return model

    def test_labels_keep_their_names(self):
        model = self.check("bert/weather", "SequenceClassification")
        self.assertEqual(model.config.id2label, {0: "calm", 1: "rough"})
        self.assertEqual(model.config.problem_type, "single_label_classification")

    def test_a_number_is_a_regression(self):
        model = self.check("big_bird/likeness", "SequenceClassification")
        self.assertEqual(model.config.num_labels, 1)
        self.assertEqual(model.config.problem_type, "regression")

    def test_choices(self):
        self.check("xlm-roberta/choices", "MultipleChoice")

    def test_entities(self):
        model = self.check("roberta/names", "TokenClassification")
        self.assertEqual(model.config.label2id["B-PER"], 1)

    def test_answers(self):
        self.check("bert/cargo", "QuestionAnswering")


class Tolerances(ParityTest):
    """The comparison must detect the mistakes that it exists for."""

    def test_another_metric_is_noticed(self):
        theirs = GOLDENS["bert/weather"]["log"]
        ours = copy.deepcopy(theirs)
        ours[-1]["eval_f1"] += 0.01
        with self.assertRaises(AssertionError):
            Tasks.check_log(self, ours, theirs)

    def test_token_types_matter(self):
        """bert separates pairs by token types: without them 'likeness' would not match."""
        theirs = GOLDENS["bert/likeness"]["log"]
        with self.assertRaises(AssertionError):
            Tasks.check_log(self, GOLDENS["roberta/likeness"]["log"], theirs)
