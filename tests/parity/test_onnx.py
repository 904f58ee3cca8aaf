# SPDX-License-Identifier: MIT
"""Compares exports to ONNX, run by onnxruntime, with transformers' logits: every family of encoders with every
head (tests/fixtures/model has what transformers computed), and heads of decoders."""

import contextlib
import io
import json
import logging
import os
import runpy
import shutil
import sys
import unittest
from pathlib import Path

import numpy
import torch
from safetensors.numpy import load_file
from support import MLM, ParityTest, run_binary, run_for_code

try:
    import onnx
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic
except ImportError as error:
    if sys.version_info >= (3, 11):
        raise
    raise unittest.SkipTest("onnx and onnxruntime of this version need Python 3.11") from error

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "model"
LOGITS = 1e-4  # float32 in another order of additions; the largest logit is about 5
HALF = 1e-2  # weights of 11 bits, and sums of them over 2 layers
onnxruntime.set_default_logger_severity(3)
logging.getLogger().setLevel(logging.ERROR)  # of the peer's quantisation


def encoders():
    """Folders of the fixtures whose model is an encoder."""
    folders = sorted(path.parent for path in FIXTURES.glob("*/expected.safetensors"))
    heads = ("ForCausalLM", "LMHeadModel")
    return [folder for folder in folders if "-" in folder.name and not architecture(folder).endswith(heads)]


def architecture(folder):
    return json.loads((folder / "config.json").read_text())["architectures"][0]


def run_onnx(path, inputs):
    """The first output, or both of question answering as [..., 2]."""
    session = onnxruntime.InferenceSession(str(path))
    feed = {}
    for port in session.get_inputs():
        values = numpy.asarray(inputs[port.name], dtype=numpy.int64)
        feed[port.name] = values[None] if len(port.shape) == 3 else values
    names = [port.name for port in session.get_outputs()]
    outputs = dict(zip(names, session.run(None, feed)))
    if "start_logits" in outputs:
        return numpy.stack([outputs["start_logits"], outputs["end_logits"]], -1)
    return outputs[names[-1]] if names[0] == "last_hidden_state" else outputs[names[0]]


def expected_of(folder):
    """What transformers read and computed."""
    expected = dict(load_file(folder / "expected.safetensors"))
    if "token_type_ids" not in expected:  # as big_bird's question answering makes them
        ids = expected["input_ids"]
        separator = json.loads((folder / "config.json").read_text()).get("sep_token_id")
        end = (ids == separator).argmax(1)[:, None] if separator is not None else 0
        expected["token_type_ids"] = (numpy.arange(ids.shape[1])[None] > end).astype(numpy.int64)
    return expected


class Onnx(ParityTest):
    def export(self, source, *more, name="onnx"):
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        run_binary("export", source, folder / "model.onnx", *more)
        onnx.checker.check_model(str(folder / "model.onnx"), full_check=True)
        return folder / "model.onnx"

    def assert_same(self, ours, theirs, tolerance):
        ours = ours.reshape(theirs.shape)
        self.assertLessEqual(float(numpy.abs(ours - theirs).max()), tolerance)

    def test_every_head_of_every_encoder_has_the_logits_of_transformers(self):
        self.assertGreater(len(encoders()), 85)
        for folder in encoders():
            with self.subTest(folder.name):
                expected = expected_of(folder)
                path = self.export(folder, "--outtype", "f32")
                logits = run_onnx(path, expected)
                self.assert_same(logits, expected["logits"], LOGITS)
                self.assert_same(
                    run_onnx(self.export(folder, "--outtype", "f16"), expected), expected["logits"], HALF * 5
                )

    def test_rows_may_have_any_number_and_length(self):
        for name in ("roberta-token_classification", "deberta-v2-masked_lm-v3", "modernbert-token_classification"):
            with self.subTest(name):
                expected = expected_of(FIXTURES / name)
                path = self.export(FIXTURES / name)
                lengths = expected["attention_mask"].sum(1)
                self.assertGreater(len(set(lengths.tolist())), 1)
                for row, length in enumerate(lengths):
                    if not expected["attention_mask"][row, :length].all():
                        continue  # padding on the left
                    inputs = {key: value[row : row + 1, :length] for key, value in expected.items()}
                    self.assert_same(run_onnx(path, inputs), inputs["logits"], LOGITS)

    def test_a_row_of_padding_alone_is_as_in_transformers(self):
        import transformers

        folder = FIXTURES / "bert-sequence_classification"
        ids = numpy.array([[5, 6, 7, 8], [0, 0, 0, 0]])
        mask = numpy.array([[1, 1, 1, 0], [0, 0, 0, 0]])
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}
        model = transformers.BertForSequenceClassification.from_pretrained(folder).eval()
        with torch.no_grad():
            theirs = model(**{name: torch.from_numpy(value) for name, value in inputs.items()}).logits
        self.assert_same(run_onnx(self.export(folder), inputs), theirs.numpy(), LOGITS)

    def test_int8_is_as_near_as_the_quantisation_of_onnxruntime(self):
        ours, theirs = [], []
        for folder in encoders():
            expected = expected_of(folder)
            whole = self.export(folder, "--outtype", "f32", name="whole")
            quantized = self.export(folder, "--quantize", "int8")
            peers = self.folder / "peers.onnx"
            quantize_dynamic(str(whole), str(peers), weight_type=QuantType.QInt8, per_channel=True)
            logits = expected["logits"]
            ours.append(numpy.square(run_onnx(quantized, expected).reshape(logits.shape) - logits).mean())
            theirs.append(numpy.square(run_onnx(peers, expected).reshape(logits.shape) - logits).mean())
        self.assertLess((numpy.mean(ours) / numpy.mean(theirs)) ** 0.5, 1.0)

    def decoder(self, name, **more):
        """A tiny decoder of transformers with this head."""
        import transformers

        settings = dict(
            vocab_size=300,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=48,
            max_position_embeddings=64,
            pad_token_id=1,
            initializer_range=0.2,
            **more,
        )
        prefix = {"llama": "Llama", "qwen3": "Qwen3", "gemma3_text": "Gemma3Text", "gpt2": "GPT2"}[name]
        if name != "gpt2":
            settings.update(num_key_value_heads=2, head_dim=8)
        return prefix, getattr(transformers, prefix + "Config")(**settings)

    def test_classifiers_on_decoders(self):
        import transformers

        ids = numpy.array([[5, 6, 7, 8, 9, 10, 11], [20, 21, 22, 23, 1, 1, 1]])
        inputs = {"input_ids": ids, "attention_mask": (ids != 1).astype(numpy.int64)}
        tensors = {name: torch.from_numpy(value) for name, value in inputs.items()}
        for name, more in {
            "llama": {},
            "qwen3": {},
            "gemma3_text": dict(sliding_window=4, layer_types=["sliding_attention", "full_attention"]),
            "gpt2": {},
        }.items():
            for head in ("SequenceClassification", "TokenClassification"):
                prefix, config = self.decoder(name, num_labels=3, **more)
                make = getattr(transformers, prefix + "For" + head, None)
                if make is None:
                    continue
                with self.subTest(name + " " + head):
                    torch.manual_seed(3)
                    model = make(config).eval()
                    model.save_pretrained(self.folder / "decoder")
                    for file in (MLM / "model").glob("tokenizer*"):
                        shutil.copy(file, self.folder / "decoder")
                    with torch.no_grad():
                        theirs = model(**tensors).logits.numpy()
                    ours = run_onnx(self.export(self.folder / "decoder"), inputs)
                    if head == "TokenClassification":
                        real = inputs["attention_mask"].astype(bool)
                        ours, theirs = ours[real], theirs[real]
                    self.assert_same(ours, theirs, LOGITS)

    def test_embeddings_are_those_of_sentence_transformers(self):
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.models import Dense, Normalize, Pooling, Transformer

        words = Transformer(str(MLM / "model"))
        texts = ["The lamp is lit.", "Nobody else knew how."]
        tokens = words.tokenizer(texts, padding=True, return_tensors="np")
        for mode in ("mean", "cls", "weightedmean", "lasttoken"):
            pooling = Pooling(words.get_word_embedding_dimension(), mode)
            torch.manual_seed(3)
            dense = Dense(words.get_word_embedding_dimension(), 8)
            model = SentenceTransformer(modules=[words, pooling, dense, Normalize()], device="cpu")
            shutil.rmtree(self.folder / "embedding", ignore_errors=True)
            model.save(str(self.folder / "embedding"))
            path = self.export(self.folder / "embedding")
            with self.subTest(mode):
                self.assert_same(run_onnx(path, tokens), model.encode(texts), LOGITS)
        names = [port.name for port in onnxruntime.InferenceSession(str(path)).get_outputs()]
        self.assertEqual(names, ["last_hidden_state", "sentence_embedding"])
        self.assertTrue((path.parent / "modules.json").exists())

    def test_a_decision_head_scores_every_token(self):
        import transformers

        torch.manual_seed(5)
        text = transformers.ModernBertConfig(
            vocab_size=300, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
            pad_token_id=1, cls_token_id=0, sep_token_id=2, local_attention=8)  # fmt: skip
        config = transformers.JevConfig(
            hidden_size=32, num_verbalizers=12, offsets={"noul": 0, "score": 2, "choice": 7}, softcap=3.0,
            text_config=text.to_dict())  # fmt: skip
        model = transformers.JevForDecision(config).eval()
        model.save_pretrained(self.folder / "jev")
        ids = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12]])
        inputs = {"input_ids": ids.numpy(), "attention_mask": numpy.ones_like(ids.numpy())}
        logits = run_onnx(self.export(self.folder / "jev"), inputs)
        self.assertEqual(logits.shape, (1, 8, 12))
        with torch.no_grad():
            hidden = model.model(input_ids=ids).last_hidden_state
            theirs = 3.0 * torch.tanh(model.proj(hidden) / 3.0)
        self.assert_same(logits, theirs.numpy(), LOGITS)

    def test_what_verify_prints_of_int8_is_what_onnxruntime_computes(self):
        text = (
            "The lighthouse keeper lit the lamp at 6:45, as he had done for 30 years; nobody else knew how. ABC 123!"
        )
        from transformers import AutoTokenizer

        ids = AutoTokenizer.from_pretrained(MLM / "model")(text, add_special_tokens=False)["input_ids"][:64]
        inputs = {"input_ids": [ids], "attention_mask": [[1] * len(ids)]}
        whole = run_onnx(self.export(MLM / "model", "--outtype", "f32", name="whole"), inputs)
        out = self.folder / "int8" / "model.onnx"
        printed = run_binary("export", MLM / "model", out, "--quantize", "int8", "--verify", "logits").decode()
        apart = float(printed.split("tokens: ")[1].split(" ")[0])
        theirs = float(numpy.abs(run_onnx(out, inputs) - whole).max())
        self.assertGreater(theirs, 0)
        # Rounded to 3 digits; a code that is rounded otherwise in one of them changes a logit by less.
        self.assertAlmostEqual(apart / theirs, 1.0, delta=0.02)

    def test_predict_in_int8_answers_as_onnxruntime_does(self):
        import transformers

        torch.manual_seed(3)
        tokenizer = transformers.AutoTokenizer.from_pretrained(MLM / "model")
        config = transformers.RobertaConfig(
            vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=48, max_position_embeddings=66, num_labels=5, initializer_range=0.3)  # fmt: skip
        transformers.RobertaForSequenceClassification(config).save_pretrained(self.folder / "classes")
        tokenizer.save_pretrained(self.folder / "classes")
        path = self.export(self.folder / "classes", "--quantize", "int8")
        for text in ("Nobody else knew how.", "The lamp is lit.", "A storm broke the glass, and 30 men came."):
            theirs = run_onnx(path, tokenizer([text], return_tensors="np"))[0]
            answers = {}
            for more in ((), ("--quantize", "int8")):
                printed = run_binary("predict", self.folder / "classes", "--text", text, "--function_to_apply", "none",
                                     "--probabilities", "all", *more)  # fmt: skip
                scores = {one["label"]: one["score"] for one in json.loads(printed)}
                answers[more] = numpy.array([scores[f"LABEL_{i}"] for i in range(5)])
            apart = numpy.abs(answers["--quantize", "int8"] - theirs).max()
            self.assertLess(apart, 0.2 * numpy.abs(answers[()] - theirs).max())

    def test_the_program_next_to_the_file_runs(self):
        path = self.export(MLM / "model")
        before = Path.cwd()
        printed = io.StringIO()
        os.chdir(path.parent)
        try:
            with contextlib.redirect_stdout(printed):
                runpy.run_path("model.py")
        finally:
            os.chdir(before)
        self.assertIn("array(", printed.getvalue())
        self.assertEqual(len((path.parent / "model.py").read_text().splitlines()), 3)

    def test_files_of_others_are_not_replaced(self):
        (self.folder / "onnx").mkdir()
        (self.folder / "onnx" / "config.json").write_text("{}")
        arguments = ("export", MLM / "model", self.folder / "onnx" / "model.onnx")
        done = run_for_code(*arguments)
        self.assertEqual(done.returncode, 2)
        self.assertIn("config.json", done.stderr)
        self.assertEqual([path.name for path in (self.folder / "onnx").iterdir()], ["config.json"])
        run_binary(*arguments, "--overwrite")
        again = run_for_code(*arguments)
        self.assertEqual(again.returncode, 2)
        self.assertIn("exists", again.stderr)

    def test_weights_are_in_the_file_once_and_int8_takes_a_quarter(self):
        import transformers

        torch.manual_seed(3)
        config = transformers.RobertaConfig(
            vocab_size=8000, hidden_size=256, num_hidden_layers=2, num_attention_heads=4, intermediate_size=1024
        )
        transformers.RobertaForMaskedLM(config).save_pretrained(self.folder / "model")
        whole = self.export(self.folder / "model", "--outtype", "f32").stat().st_size
        weights = (self.folder / "model" / "model.safetensors").stat().st_size
        self.assertLess(whole / weights, 1.01)
        quantized = self.export(self.folder / "model", "--quantize", "int8").stat().st_size
        self.assertLess(quantized / whole, 0.27)

    def test_a_model_that_computes_otherwise_for_long_texts_is_refused(self):
        import transformers

        factors = dict(short_factor=[1.0] * 4, long_factor=[4.0] * 4)
        long = dict(rope_type="longrope", factor=4.0, original_max_position_embeddings=16, **factors)
        dynamic = dict(rope_type="dynamic", factor=4.0)  # differs beyond max_position_embeddings alone
        for rope, expect in ((long, 1), (dynamic, 0)):
            _, config = self.decoder("llama", num_labels=3, rope_scaling=rope)
            transformers.LlamaForSequenceClassification(config).save_pretrained(self.folder / "decoder")
            done = run_for_code("export", self.folder / "decoder", self.folder / "rope" / "model.onnx", "--overwrite")
            self.assertEqual(done.returncode, expect, done.stderr)
            self.assertIn("depends on the length" if expect else "no tokenizer", done.stderr)

    def test_what_onnx_cannot_hold_is_refused(self):
        import transformers

        _, config = self.decoder("llama")
        transformers.LlamaForCausalLM(config).save_pretrained(self.folder / "decoder")
        out = self.folder / "none" / "model.onnx"
        for arguments, word in (
            ((self.folder / "decoder", out), ".gguf"),
            ((FIXTURES / "bert-masked_lm", out, "--outtype", "bf16"), "bf16"),
            ((FIXTURES / "bert-masked_lm", out, "--dims", "4"), "--dims"),
            ((FIXTURES / "bert-masked_lm", self.folder / "none", "--quantize", "int8"), "--quantize"),
            ((FIXTURES / "bert-masked_lm", out, "--quantize", "int4"), "--quantize"),
            ((FIXTURES / "bert-masked_lm", out, "--verify", "metrics"), "--quantize"),
        ):
            done = run_for_code("export", *arguments)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(word, done.stderr)
            self.assertFalse(out.exists())
