# SPDX-License-Identifier: MIT
"""Model folders in every format that transformers and torch write give the same answers; hostile and
broken ones are refused in one sentence."""

import json
import os
import pickle
import shutil
from collections import OrderedDict

import torch
from safetensors.torch import load_file, save_file
from support import MLM, TRAJECTORIES, ParityTest, run_binary, run_for_code, weights

TEXTS = ["I lit the <mask> at seven o'clock.", "<mask> fog came in from the sea."]


def model():
    from transformers import RobertaForMaskedLM

    return RobertaForMaskedLM.from_pretrained(MLM / "model")


def answers(folder):
    said = run_binary("predict", folder, "--use_cpu", "--text", *TEXTS)
    return [json.loads(line) for line in said.decode().splitlines()]


class WeightsTest(ParityTest):
    def make(self, name="model"):
        """Returns a folder with config.json and the tokenizer but without weights."""
        folder = self.folder / name
        shutil.copytree(MLM / "model", folder, ignore=shutil.ignore_patterns("*.safetensors"))
        return folder

    def save_index(self, folder, index, weight_map):
        text = json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map})
        (folder / index).write_text(text)

    def save_shards(self, folder, save, pattern, index, count=3):
        """Splits the state dictionary as transformers 4 did; returns the index's weight_map."""
        state = list(model().state_dict().items())
        weight_map = {}
        for i in range(count):
            name = pattern.format(i + 1, count)
            part = OrderedDict(state[i::count])
            save(part, folder / name)
            weight_map.update(dict.fromkeys(part, name))
        self.save_index(folder, index, weight_map)
        return weight_map


def save_legacy(state, path):
    torch.save(state, path, _use_new_zipfile_serialization=False)


def save_safetensors(state, path):
    save_file({n: t.clone().contiguous() for n, t in state.items()}, path, metadata={"format": "pt"})


class Formats(WeightsTest):
    @classmethod
    def setUpClass(cls):
        cls.golden = answers(MLM / "model")

    def test_one_safetensors_file(self):
        folder = self.make()
        model().save_pretrained(folder)
        self.assertEqual(answers(folder), self.golden)

    def test_safetensors_shards_of_transformers(self):
        folder = self.make()
        model().save_pretrained(folder, max_shard_size="20KB")
        self.assertTrue((folder / "model.safetensors.index.json").exists())
        self.assertGreater(len(list(folder.glob("model-*.safetensors"))), 2)
        self.assertEqual(answers(folder), self.golden)

    def test_a_pickled_file_of_either_format(self):
        for name, save in {"zip": torch.save, "legacy": save_legacy}.items():
            with self.subTest(name):
                folder = self.make(name)
                save(model().state_dict(), folder / "pytorch_model.bin")
                self.assertEqual(answers(folder), self.golden)

    def test_pickled_shards_of_either_format(self):
        for name, save in {"zip": torch.save, "legacy": save_legacy}.items():
            with self.subTest(name):
                folder = self.make(name)
                self.save_shards(
                    folder, save, "pytorch_model-{:05}-of-{:05}.bin", "pytorch_model.bin.index.json"
                )
                self.assertEqual(answers(folder), self.golden)

    def test_a_dictionary_around_the_weights(self):
        folder = self.make()
        torch.save({"epoch": 3, "state_dict": model().state_dict()}, folder / "pytorch_model.bin")
        self.assertEqual(answers(folder), self.golden)

    def test_parameters_views_and_shared_storages(self):
        state = OrderedDict(model().named_parameters())
        for name in list(state)[::2]:
            wide = torch.empty(*state[name].shape, 2)
            wide[..., 1] = state[name].detach()
            state[name] = wide[..., 1]  # every second element of the storage
        for name, save in {"zip": torch.save, "legacy": save_legacy}.items():
            with self.subTest(name):
                folder = self.make(name)
                save(state, folder / "pytorch_model.bin")
                self.assertEqual(answers(folder), self.golden)

    def test_safetensors_go_before_pickled_weights(self):
        folder = self.make()
        model().save_pretrained(folder)
        torch.save({"x": torch.zeros(1)}, folder / "pytorch_model.bin")
        self.assertEqual(answers(folder), self.golden)

    def test_half_precision_is_widened(self):
        from transformers import AutoTokenizer, RobertaForMaskedLM, pipeline

        for dtype in (torch.float16, torch.bfloat16, torch.float64):
            for kind in ("safetensors", "bin"):
                with self.subTest(dtype=dtype, kind=kind):
                    folder = self.make(f"{dtype}-{kind}")
                    narrow = model().to(dtype)
                    narrow.save_pretrained(folder)
                    if kind == "bin":
                        (folder / "model.safetensors").unlink()
                        torch.save(narrow.state_dict(), folder / "pytorch_model.bin")
                    wide = RobertaForMaskedLM.from_pretrained(folder, dtype=torch.float32).eval()
                    tokenizer = AutoTokenizer.from_pretrained(folder)
                    fill = pipeline("fill-mask", model=wide, tokenizer=tokenizer, device="cpu")
                    for ours, text in zip(answers(folder), TEXTS):
                        theirs = fill(text)
                        for mine, golden in zip(ours, theirs, strict=True):
                            self.assertAlmostEqual(mine["score"], golden["score"], delta=1e-5)

    def test_a_folder_of_the_hub_cache(self):
        cache = self.folder / "models--org--tiny"
        snapshot = cache / "snapshots" / "0123abcd"
        plain = self.make("plain")
        model().save_pretrained(plain, max_shard_size="20KB")
        (cache / "blobs").mkdir(parents=True)
        snapshot.mkdir(parents=True)
        for file in plain.iterdir():
            blob = "blob-" + file.name.split(".")[0]
            shutil.move(file, cache / "blobs" / (blob + file.suffix))
            os.symlink(f"../../blobs/{blob}{file.suffix}", snapshot / file.name)
        self.assertEqual(answers(snapshot), self.golden)

    def test_a_base_model_gets_a_fresh_head(self):
        """Names without the encoder's prefix; at a learning rate of 0 the weights end unchanged."""
        from transformers import RobertaModel

        base = RobertaModel.from_pretrained(MLM / "model", add_pooling_layer=False)
        for name, save in {"safetensors": None, "legacy": save_legacy}.items():
            with self.subTest(name):
                folder = self.make(name)
                if save is None:
                    base.save_pretrained(folder)
                else:
                    save(base.state_dict(), folder / "pytorch_model.bin")
                run = self.train(
                    TRAJECTORIES["linear"]["config"],
                    f"run-{name}",
                    model_name_or_path=str(folder),
                    learning_rate=1e-12,
                    max_steps=1,
                )
                ours = weights(run)
                for tensor_name, tensor in base.state_dict().items():
                    if tensor_name.endswith(("position_ids", "token_type_ids")):
                        continue
                    mine = ours["roberta." + tensor_name]
                    self.assertLessEqual(float((mine - tensor).abs().max()), 1e-9, tensor_name)


class Calls:
    """torch.load would run a command when it unpickles this."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


class Refusals(WeightsTest):
    def refusal(self, folder):
        """Returns the error about a folder: one sentence, exit code 1, no answer."""
        done = run_for_code("predict", folder, "--use_cpu", "--text", TEXTS[0])
        said = done.stderr
        self.assertEqual(done.returncode, 1, said)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(said.strip().splitlines()), 1, said)
        return said

    def test_nothing_is_executed(self):
        marker = self.folder / "executed"
        call = Calls(f"touch {marker}")
        for name, save in {"zip": torch.save, "legacy": save_legacy}.items():
            for place, content in {
                "root": call,
                "value": {"a": torch.zeros(1), "b": call},
                "key": {(call,): torch.zeros(1)},
            }.items():
                with self.subTest(name=name, place=place):
                    folder = self.make(f"{name}-{place}")
                    save(content, folder / "pytorch_model.bin")
                    self.assertIn("posix.system", self.refusal(folder))
        folder = self.make("raw")
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(call, 2))
        self.refusal(folder)
        self.assertFalse(marker.exists())

    def test_objects_are_named(self):
        folder = self.make()
        torch.save(model(), folder / "pytorch_model.bin")
        self.assertIn("transformers.models.roberta", self.refusal(folder))

    def test_an_index_names_files_beside_it(self):
        elsewhere = self.folder / "elsewhere.safetensors"
        save_safetensors(model().state_dict(), elsewhere)
        for i, name in enumerate(
            ["../elsewhere.safetensors", str(elsewhere), "a/../../elsewhere.safetensors", "", 7]
        ):
            with self.subTest(name=name):
                folder = self.make(f"index-{i}")
                weight_map = dict.fromkeys(model().state_dict(), name)
                self.save_index(folder, "model.safetensors.index.json", weight_map)
                self.assertIn("plain name of a .safetensors file", self.refusal(folder))
        folder = self.make("link")
        os.symlink("../elsewhere.safetensors", folder / "model-1.safetensors")
        weight_map = dict.fromkeys(model().state_dict(), "model-1.safetensors")
        self.save_index(folder, "model.safetensors.index.json", weight_map)
        self.assertIn("leads out of its folder", self.refusal(folder))

    def test_an_index_agrees_with_its_shards(self):
        names = "model-{:05}-of-{:05}.safetensors", "model.safetensors.index.json"
        folder = self.make("duplicate")
        self.save_shards(folder, save_safetensors, *names)
        first = folder / "model-00001-of-00003.safetensors"
        second = folder / "model-00002-of-00003.safetensors"
        both = {**load_file(first), **dict(list(load_file(second).items())[:1])}
        save_safetensors(both, first)
        self.assertIn("another shard", self.refusal(folder))

        folder = self.make("promised")
        weight_map = self.save_shards(folder, save_safetensors, *names)
        weight_map["ghost.weight"] = "model-00002-of-00003.safetensors"
        self.save_index(folder, names[1], weight_map)
        self.assertIn("'ghost.weight'", self.refusal(folder))

        folder = self.make("missing")
        self.save_shards(folder, save_safetensors, *names)
        (folder / "model-00002-of-00003.safetensors").unlink()
        self.assertIn("model-00002-of-00003.safetensors' is missing", self.refusal(folder))

    def test_files_that_are_cut_short(self):
        for name, save in {
            "model.safetensors": save_safetensors,
            "pytorch_model.bin": torch.save,
            "pytorch_model.bin-legacy": save_legacy,
        }.items():
            with self.subTest(name):
                folder = self.make("cut-" + name)
                path = folder / name.removesuffix("-legacy")
                save(model().state_dict(), path)
                content = path.read_bytes()
                for size in (0, 1, 100, len(content) // 2, len(content) - 1):
                    path.write_bytes(content[:size])
                    self.assertIn(path.name, self.refusal(folder))

    def test_a_folder_without_weights(self):
        folder = self.make()
        self.assertIn("pytorch_model.bin", self.refusal(folder))
        (folder / "tf_model.h5").write_bytes(b"\x89HDF")
        self.assertIn("TensorFlow", self.refusal(folder))
