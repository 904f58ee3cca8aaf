# SPDX-License-Identifier: MIT
"""Folders and files that `datasets` reads and writes give the rows that it gives, in its order.

`prepare --rows` prints the texts of the samples that training reads.
"""

import json
import shutil

import pyarrow
import pyarrow.parquet
from datasets import (
    Array2D,
    ClassLabel,
    Dataset,
    DatasetDict,
    Features,
    Json,
    LargeList,
    List,
    Sequence,
    Value,
    load_dataset,
    load_from_disk,
)
from datasets.utils.logging import disable_progress_bar
from support import ROOT, ParityTest, run_binary

disable_progress_bar()
TOKENIZER = ROOT / "tests" / "fixtures" / "tokenizers" / "causal"
TINY = dict(
    vocab_size=800,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=2,
    hidden_size=16,
    intermediate_size=32,
    max_position_embeddings=512,
)


class Reader(ParityTest):
    def texts(self, train_file, name, **more):
        """The texts of the samples of sft."""
        keys = {
            "task": "sft",
            "train_file": str(train_file),
            "tokenizer_name": str(TOKENIZER),
            "model_type": "llama",
            "config_overrides": TINY,
            "max_seq_length": 512,
            "output_dir": str(self.folder / f"run-{name}"),
            "cache_dir": str(self.folder / "cache"),
            "report_to": "none",
            "use_cpu": True,
            **more,
        }
        config = self.folder / f"{name}.json"
        config.write_text(json.dumps(keys))
        out = self.folder / f"{name}-rows.jsonl"
        run_binary("prepare", config, "--rows", out)
        texts = [json.loads(line)["text"] for line in out.read_text().splitlines()]
        return [text.removeprefix("<s>").removesuffix("</s>") for text in texts]  # of plain text


def rows(first, count=4):
    return Dataset.from_dict({"text": [f"The lamp was lit {first + i} times." for i in range(count)]})


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    {".parquet": data.to_parquet, ".jsonl": data.to_json, ".csv": data.to_csv}[path.suffix](str(path))


def card(folder, configs):
    (folder / "README.md").write_text(f"---\nlicense: mit\nconfigs:\n{configs}---\n# A data set\n\nText of the card.\n")


def hub(folder):
    for shard in range(2):
        write(folder / f"data/train-0000{shard}-of-00002.parquet", rows(10 * shard))
    write(folder / "data/test-00000-of-00001.parquet", rows(50))
    (folder / "README.md").write_text("# A data set\n\nText of the card.\n")
    (folder / ".gitattributes").write_text("*.parquet filter=lfs\n")


def flat(folder):
    write(folder / "train.jsonl", rows(0))
    (folder / "README.md").write_text("# A data set\n")
    (folder / "LICENSE").write_text("MIT\n")


def single(folder):
    write(folder / "keeper.csv", rows(0))
    (folder / "README.md").write_text("# A data set\n")


def split_names(folder):
    for name in ("train_2", "train_10", "my_training-1", "dev", "test"):
        write(folder / f"{name}.jsonl", rows(len(name)))


def split_folders(folder):
    for name in ("train/b", "train/deep/a", "validation/c", "test/d"):
        write(folder / f"{name}.jsonl", rows(len(name)))


def shards(folder):
    for number in (0, 1, 2, 10):
        write(folder / f"part-{number}.jsonl", rows(number))


def subfolders(folder):
    for name in ("b/x", "a/y", "a/b/z"):
        write(folder / f"{name}.jsonl", rows(len(name)))
    write(folder / "__cache__/w.jsonl", rows(9))
    write(folder / ".hidden/v.jsonl", rows(9))


def card_patterns(folder):
    write(folder / "one/x.jsonl", rows(0))
    write(folder / "two/y.jsonl", rows(5))
    write(folder / "other.jsonl", rows(9))
    card(folder, "- config_name: default\n  data_files:\n  - split: train\n    path:\n    - two/*\n    - one/*\n")


def card_text(folder):
    write(folder / "one/x.jsonl", rows(0))
    write(folder / "other.jsonl", rows(9))
    card(folder, "- config_name: only\n  data_files: one/*.jsonl\n")


def card_folder(folder):
    write(folder / "one/train.jsonl", rows(0))
    write(folder / "one/test.jsonl", rows(3))
    write(folder / "two/train.jsonl", rows(9))
    card(folder, "- config_name: only\n  data_dir: one\n")


def saved(folder):
    rows(0, 9).save_to_disk(str(folder), num_shards=2)
    shutil.copy(folder / "data-00000-of-00002.arrow", folder / "cache-12ab.arrow")


def saved_dict(folder):
    DatasetDict({"train": rows(0), "test": rows(9)}).save_to_disk(str(folder))


LAYOUTS = (
    hub,
    flat,
    single,
    split_names,
    split_folders,
    shards,
    subfolders,
    card_patterns,
    card_text,
    card_folder,
    saved,
    saved_dict,
)


class Folders(Reader):
    def test_layouts(self):
        for layout in LAYOUTS:
            with self.subTest(layout.__name__):
                folder = self.folder / layout.__name__
                folder.mkdir()
                layout(folder)
                if layout in (saved, saved_dict):
                    data = load_from_disk(str(folder))
                    data = data["train"] if isinstance(data, dict) else data
                else:
                    data = load_dataset(str(folder), cache_dir=str(self.folder / "hf"))["train"]
                self.assertEqual(self.texts(folder, layout.__name__), data["text"][:])


CALL = [{"type": "function", "function": {"name": "ring", "arguments": {"times": 2}}}]
OTHER_CALL = [{"type": "function", "function": {"name": "light", "arguments": {"lamp": "north", "high": True}}}]
TOOLS = [
    {
        "type": "function",
        "function": {"name": "ring", "parameters": {"type": "object", "properties": {"times": {"type": "integer"}}}},
    },
    {
        "type": "function",
        "function": {"name": "light", "parameters": {"type": "object", "properties": {"lamp": {"type": "string"}}}},
    },
]
CHAT = [
    {
        "messages": [
            {"role": "user", "content": "Ring."},
            {"role": "assistant", "content": None, "tool_calls": CALL},
            {"role": "tool", "content": "ok"},
        ],
        "tools": TOOLS,
    },
    {
        "messages": [{"role": "user", "content": "Light."}, {"role": "assistant", "content": "Yes.", "tool_calls": OTHER_CALL}],
        "tools": TOOLS[1:],
    },
    {"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "The keeper."}], "tools": []},
]
# Shows every key of a message, so that one too many is seen.
TEMPLATE = "{% for m in messages %}{{ m | tojson }}{{ '\\n' }}{% endfor %}{{ tools | tojson if tools else '' }}"


class Files(Reader):
    def test_every_source_gives_the_same_conversation(self):
        template = self.folder / "all.jinja"
        template.write_text(TEMPLATE)
        plain = self.folder / "plain.jsonl"
        plain.write_text("".join(json.dumps(row) + "\n" for row in CHAT))
        data = Dataset.from_list(CHAT)  # structs, padded with nulls
        as_json = Dataset.from_list(CHAT, features=Features({"messages": List(Json()), "tools": List(Json())}))
        data.to_parquet(str(self.folder / "padded.parquet"))
        as_json.to_parquet(str(self.folder / "json.parquet"))
        data.save_to_disk(str(self.folder / "saved"))
        as_json.save_to_disk(str(self.folder / "saved-json"))
        with (self.folder / "cells.csv").open("w") as out:
            import csv

            writer = csv.writer(out)
            writer.writerow(["messages", "tools"])
            writer.writerows([json.dumps(row["messages"]), json.dumps(row["tools"])] for row in CHAT)
        more = {"chat_template_path": str(template)}
        expected = [json.loads("[" + text.strip().replace("\n", ",") + "]") for text in self.texts(plain, "plain", **more)]
        for name in ("padded.parquet", "json.parquet", "saved", "saved-json", "cells.csv"):
            with self.subTest(name):
                texts = self.texts(self.folder / name, name, **more)
                self.assertEqual([json.loads("[" + text.strip().replace("\n", ",") + "]") for text in texts], expected)

    def labels_of(self, data, name, kind, label):
        """Labels of a model that is trained on the file, and the labels of predicted rows."""
        path = self.folder / f"{name}.parquet"
        if isinstance(data, pyarrow.Table):
            pyarrow.parquet.write_table(data, path)
        else:
            data.to_parquet(str(path))
        out = self.folder / f"run-{name}"
        run_binary(
            "train", "--task", kind, "--train_file", path, "--label_column", label, "--model_type", "bert",
            "--tokenizer_name", ROOT / "tests" / "fixtures" / "tokenizers" / "words", "--config_overrides",
            "hidden_size=16,num_hidden_layers=1,num_attention_heads=2,intermediate_size=32,vocab_size=2000",
            "--max_steps", "1", "--save_strategy", "no", "--report_to", "none", "--use_cpu", "true",
            "--cache_dir", self.folder / "cache", "--output_dir", out,
        )  # fmt: skip
        names = json.loads((out / "config.json").read_text())["id2label"]
        return [names[str(i)] for i in range(len(names))]

    def test_names_of_classes_are_those_of_the_schema_in_its_order(self):
        text = ["the sea was calm", "a storm broke the glass"] * 4
        names = ["rough", "calm", "unused"]
        features = Features({"text": Value("string"), "label": ClassLabel(names=names)})
        data = Dataset.from_dict({"text": text, "label": [1, 0] * 4}, features=features)
        self.assertEqual(self.labels_of(data, "class", "sequence_classification", "label"), names)
        words = [["the", "sea"], ["a", "storm"]] * 4
        tags = ["O", "B-SEA", "I-SEA"]
        for kind in (List, Sequence, LargeList):
            with self.subTest(kind.__name__):
                features = Features({"tokens": kind(Value("string")), "ner_tags": kind(ClassLabel(names=tags))})
                data = Dataset.from_dict({"tokens": words, "ner_tags": [[0, 1], [0, 0]] * 4}, features=features)
                self.assertEqual(self.labels_of(data, kind.__name__, "token_classification", "ner_tags"), tags)

    def test_the_schema_of_datasets_4_and_before(self):
        """Sequences were written as {"feature": ..., "_type": "Sequence"}, and lists as [...]."""
        tags = {"names": ["O", "B-SEA", "I-SEA"], "_type": "ClassLabel"}
        words = [["the", "sea"], ["a", "storm"]] * 4
        for name, feature in (("sequence", {"feature": tags, "_type": "Sequence"}), ("list", [tags])):
            with self.subTest(name):
                info = {"info": {"features": {"ner_tags": feature}}}
                table = pyarrow.table({"tokens": words, "ner_tags": [[0, 1], [0, 0]] * 4})
                table = table.replace_schema_metadata({"huggingface": json.dumps(info)})
                self.assertEqual(self.labels_of(table, name, "token_classification", "ner_tags"), tags["names"])

    def test_values_of_extension_types(self):
        template = self.folder / "all.jinja"
        template.write_text("{{ messages[0].content }}|{{ extra | tojson }}")
        features = Features(
            {
                "messages": List({"role": Value("string"), "content": Value("string")}),
                "chat_template_kwargs": {"extra": Json()},
                "grid": Array2D((1, 2), "int32"),
            }
        )
        row = {
            "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
            "chat_template_kwargs": {"extra": {"x": [1, None]}},
            "grid": [[1, 2]],
        }
        path = self.folder / "types.parquet"
        Dataset.from_list([row], features=features).to_parquet(str(path))
        self.assertEqual(self.texts(path, "types", chat_template_path=str(template)), ['a|{"x": [1, null]}'])


if __name__ == "__main__":
    import unittest

    unittest.main()
