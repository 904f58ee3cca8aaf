# SPDX-License-Identifier: MIT
"""decision_head: laya beside laya's trainer and agent: prompts, losses, weights, folders, answers."""

import json
import shutil
import warnings

import torch
from support import MLM, ROOT, ParityTest, adam_steps, run_binary, run_for_code, weights

TASKS = ROOT / "tests" / "fixtures" / "tasks"
STEPS, BATCH, RATE = 12, 8, 3e-4
# float32 sums in another order, over twelve steps of Adam; laya prints four digits.
LOSS, WEIGHT, ANSWER = 1e-4, 2e-3, 1.1e-4
MAX_LEN, HEAD_MAX_LEN = 200, 96
SETTINGS = {"encoder": "tiny", "head_layers": 2, "act_costs": {"escalate": 0.5}, "max_len": MAX_LEN,
            "head_max_len": HEAD_MAX_LEN, "dropout": 0.0, "temperature": [1.5, 0.75, 9.0],
            "temperature_by_options": {"choice:2": 0.1, "score:3-5": 1.25}}  # fmt: skip


def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(MLM / "model")


def encoder_config(words):
    from transformers import ModernBertConfig

    return ModernBertConfig(
        vocab_size=len(words), hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=512, pad_token_id=words.pad_token_id,
        global_attn_every_n_layers=2, local_attention=32)  # fmt: skip


def start(folder, **settings):
    """A folder of laya, as its save_checkpoint() writes it; returns its model as its load_checkpoint() does."""
    from laya.common import DecisionModel
    from laya.train import load_checkpoint, save_checkpoint
    from transformers import AutoModel

    words = tokenizer()
    cfg = {**SETTINGS, **settings}
    torch.manual_seed(11)
    encoder = AutoModel.from_config(encoder_config(words))
    model = DecisionModel(encoder, cfg["head_layers"], n_act=len(cfg["act_costs"]) + 1, dropout=0.0)
    save_checkpoint(model, words, cfg, folder / "start")
    model, words, cfg = load_checkpoint(str(folder / "start"))
    for module in model.modules():  # a new one has 0.1 whatever the settings say
        if hasattr(module, "dropout") and isinstance(module.dropout, float):
            module.dropout = 0.0
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model, words


def rows_of(part):
    """Some whose options, states or both are cut, and those of the fixtures."""
    rows = []
    tone = {"type": "choice", "instructions": "What is <mask> the tone?", "criteria": ["kind", "rude", "n/a"]}
    many = {"type": "choice", "instructions": "Which one? " * 20,
            "criteria": {f"{i} is a number": "very " * (3 * i) + "long" for i in range(14)}}  # fmt: skip
    levels = {"type": "score", "instructions": {"ask": "Wie dringend, ä?"}, "criteria": ["low", {"a": [1, 2.5]}]}
    rows.append({"state": "the sea is calm <mask> " * 60, "questions": {"tone": tone, "many": many},
                 "expected": {"tone": "rude", "many": "3 is a number"}})  # fmt: skip
    rows.append({"state": {"ä": ["x", None, 2.0, True]}, "questions": {"tone": tone, "levels": levels},
                 "gold": {"tone": {"probabilities": {"kind": 0.25, "rude": 0.75}},
                          "levels": {"probabilities": {"0": 0.4, "1": 0.6}}}})  # fmt: skip
    return rows + [json.loads(line) for line in (TASKS / f"watches-{part}.jsonl").read_text().splitlines()]


def answers_of(agent, request):
    said = agent.predict(request["state"], request["questions"])
    return said.get("answers", said)


class Laya(ParityTest):
    def train_ours(self, rows, **keys):
        valid = self.folder / "valid.jsonl"
        shutil.copy(TASKS / "watches-valid.jsonl", valid)
        fixed = dict(
            task="decision", decision_head="laya", validation_file=str(valid), shuffle_options=False,
            per_device_train_batch_size=BATCH // 2, effective_batch_size=BATCH, max_steps=STEPS,
            learning_rate=RATE, weight_decay=0.0)  # fmt: skip
        return self.train_rows(rows, **{**fixed, **keys})

    def check_answers(self, folder):
        """predict beside laya's agent on the folder."""
        import laya

        requests = [{name: row[name] for name in ("state", "questions")} for row in rows_of("test")]
        path = self.folder / "requests.jsonl"
        path.write_text("".join(json.dumps(request) + "\n" for request in requests))
        ours = [json.loads(line) for line in run_binary("predict", folder, "--input", path).splitlines()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            agent = laya.load(str(folder), device="cpu")
            for mine, request in zip(ours, requests, strict=True):
                theirs = answers_of(agent, request)
                self.assertEqual(list(mine), list(theirs))
                for name, other in theirs.items():
                    self.assertEqual(mine[name]["type"], other["type"])
                    if other["type"] == "noul":
                        self.assertAlmostEqual(mine[name]["noul"], other["noul"], delta=ANSWER, msg=name)
                        continue
                    self.assertEqual(list(mine[name]["probabilities"]), list(other["probabilities"]))
                    for option, p in other["probabilities"].items():
                        self.assertAlmostEqual(
                            mine[name]["probabilities"][option], p, delta=ANSWER, msg=f"{name}: {option}")  # fmt: skip

    def items(self, rows, words):
        from laya.train import encode_item, items_from_rows

        items, skipped = items_from_rows(words, rows, MAX_LEN, HEAD_MAX_LEN)
        self.assertEqual(skipped, {})
        return [encode_item(words, item, MAX_LEN, HEAD_MAX_LEN) for item in items]

    def test_trains_as_laya(self):
        from laya.common import collate_items
        from laya.train import soft_ce_loss

        model, words = start(self.folder)
        rows = rows_of("train")

        def loss(items):
            batch = collate_items([items], words.pad_token_id)
            logits, _ = model(*(batch[name] for name in (
                "input_ids", "attention_mask", "marker_pos", "marker_mask", "qtype")))  # fmt: skip
            return soft_ce_loss(logits, batch["target"], batch["marker_mask"])

        before = {name: value.clone() for name, value in model.state_dict().items()}
        run = self.train_ours(rows)
        theirs = adam_steps(model, STEPS, BATCH, self.items(rows, words), RATE, loss)
        self.assert_same_losses(run, theirs, LOSS)
        ours = weights(run)
        self.assertEqual(set(ours), set(before))
        # The gradient of the keys' bias is zero, and Adam amplifies noise.
        size = model.encoder.config.hidden_size
        expected = model.state_dict()
        for name in [name for name in expected if name.endswith("in_proj_bias")]:
            expected[name][size : 2 * size] = ours[name][size : 2 * size]
        self.assert_same_weights(ours, expected, WEIGHT)
        for name in ("temperature", "act_head.0.weight", "act_head.2.bias"):
            self.assertTrue(torch.equal(ours[name], before[name]), name)
        written = json.loads((run / "rl_agent_config.json").read_text())
        self.assertEqual(written["act_costs"], SETTINGS["act_costs"])
        self.assertNotIn("temperature_by_options", written)
        self.assertEqual(len(written["temperature"]), 3)
        self.check_answers(run)

    def test_answers_with_the_temperatures_of_a_folder(self):
        start(self.folder)
        self.check_answers(self.folder / "start")

    def test_a_new_head_on_an_encoder(self):
        from transformers import AutoTokenizer, ModernBertForMaskedLM

        words = tokenizer()
        words.save_pretrained(self.folder / "start")
        model = ModernBertForMaskedLM(encoder_config(words))
        model.save_pretrained(self.folder / "start")
        run = self.train_ours(rows_of("train"), learning_rate=1e-5, max_seq_length=220)
        ours = weights(run)
        for name, value in model.model.state_dict().items():
            self.assertLess(float((ours[f"encoder.{name}"] - value).abs().max()), 1e-3, name)
        self.assertEqual(json.loads((run / "rl_agent_config.json").read_text())["max_len"], 220)
        self.assertEqual(len(AutoTokenizer.from_pretrained(run / "tokenizer")), len(words))
        self.check_answers(run)

    def test_a_head_without_layers_on_a_bert(self):
        """Whose encoder has a pooler, which laya's file needs."""
        from laya.common import DecisionModel
        from laya.train import save_checkpoint
        from transformers import AutoModel, BertConfig

        words = tokenizer()
        config = BertConfig(vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                            num_attention_heads=2, pad_token_id=words.pad_token_id)  # fmt: skip
        torch.manual_seed(2)
        model = DecisionModel(AutoModel.from_config(config), 0, n_act=1)
        save_checkpoint(model, words, {**SETTINGS, "head_layers": 0, "act_costs": {}}, self.folder / "start")
        self.check_answers(self.folder / "start")
        run = self.train_ours(rows_of("train"))
        self.check_answers(run)

    def test_exported_to_onnx(self):
        """onnxruntime's logits at the marks are those of laya's model."""
        try:
            import onnxruntime
        except ImportError:
            self.skipTest("onnxruntime needs a newer Python")
        from laya.common import collate_items

        model, words = start(self.folder)
        run_binary("export", self.folder / "start", self.folder / "model.onnx")
        session = onnxruntime.InferenceSession(self.folder / "model.onnx")
        batch = collate_items([self.items(rows_of("train")[:8], words)], words.pad_token_id)
        names = ("input_ids", "attention_mask", "qtype")
        (logits,) = session.run(["logits"], {name: batch[name].numpy() for name in names})
        with torch.no_grad():
            theirs, _ = model.eval()(*(batch[name] for name in (
                "input_ids", "attention_mask", "marker_pos", "marker_mask", "qtype")))  # fmt: skip
        ours = torch.from_numpy(logits)[:, :, 0].gather(1, batch["marker_pos"])
        mask = batch["marker_mask"]
        self.assertLess(float((ours - theirs)[mask].abs().max()), 1e-4)
        self.assertTrue((self.folder / "rl_agent_config.json").exists())

    def test_layers_that_the_settings_leave_out_are_refused(self):
        start(self.folder)
        path = self.folder / "start" / "rl_agent_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "head_layers": 1}))
        question = {"type": "noul", "instructions": "ok?"}
        request = json.dumps({"state": "x", "questions": {"a": question}})
        for command in (("predict", self.folder / "start", "--text", request),
                        ("export", self.folder / "start", self.folder / "out"),
                        ("export", self.folder / "start", self.folder / "out" / "model.onnx")):  # fmt: skip
            done = run_for_code(*command)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("head.layers.1.", done.stderr)

    def test_what_is_not_available_is_refused(self):
        start(self.folder, option_layout="parallel")
        done = run_for_code("predict", self.folder / "start", "--text", "{}")
        self.assertEqual(done.returncode, 1)
        self.assertIn("option_layout 'parallel'", done.stderr)


if __name__ == "__main__":
    import unittest

    unittest.main()
