# SPDX-License-Identifier: MIT
"""TFRecord files contain the same as JSON lines with the same rows: trainings and predictions are equal to
the last bit. Messages are written by the protobuf library, records by TensorBoard's."""

import gzip
import json
import shutil

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from support import ParityTest, run_binary
from tensorboard.summary.writer.record_writer import RecordWriter
from test_tasks import FILES, TASKS, write_short_training


def example_class():
    """Returns tf.train.Example, as in TensorFlow's example.proto and feature.proto."""
    file = descriptor_pb2.FileDescriptorProto(
        name="example.proto", package="tensorflow", syntax="proto3"
    )

    def message(name, *fields, parent=file.message_type):
        found = parent.add(name=name)
        for number, (field, kind, repeated) in enumerate(fields, 1):
            added = found.field.add(name=field, number=number, label=3 if repeated else 1)
            if isinstance(kind, int):
                added.type = kind
            else:
                added.type, added.type_name = 11, ".tensorflow." + kind
        return found

    message("BytesList", ("value", 12, True))
    message("FloatList", ("value", 2, True))
    message("Int64List", ("value", 3, True))
    kinds = (("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List"))
    feature = message("Feature", *((name, kind, False) for name, kind in kinds))
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    features = message("Features", ("feature", "Features.FeatureEntry", True))
    entry = message(
        "FeatureEntry", ("key", 9, False), ("value", "Feature", False), parent=features.nested_type
    )
    entry.options.map_entry = True
    message("Example", ("features", "Features", False))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


Example = example_class()


def set_feature(example, name, value):
    values = value if isinstance(value, list) else [value]
    feature = example.features.feature[name]
    if not values or isinstance(values[0], str):
        feature.bytes_list.value.extend(x.encode() for x in values)
    elif isinstance(values[0], float):
        feature.float_list.value.extend(values)
    else:
        feature.int64_list.value.extend(values)


def write_records(rows, path):
    with open(path, "wb") as file:
        writer = RecordWriter(file)
        for row in rows:
            example = Example()
            for name, value in row.items():
                set_feature(example, name, value)
            writer.write(example.SerializeToString())
        writer.flush()
    return path


def write_packed(rows, path):
    plain = write_records(rows, path.with_name("plain"))
    path.write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    return path


def questions(path):
    """Yields SQuAD's articles in the layout of TensorFlow Datasets: one question per row."""
    for article in json.loads(path.read_text())["data"]:
        for paragraph in article["paragraphs"]:
            for asked in paragraph["qas"]:
                yield {
                    "id": asked["id"],
                    "context": paragraph["context"],
                    "question": asked["question"],
                    "answers/text": [a["text"] for a in asked["answers"]],
                    "answers/answer_start": [a["answer_start"] for a in asked["answers"]],
                }


class TfRecords(ParityTest):
    def train_on(self, task, train_file, name):
        folder = self.folder / name
        run_binary("train", write_short_training(folder, task, train_file))
        return (folder / "run" / "model.safetensors").read_bytes()

    def check(self, task, source, rows, write=write_records, ending="tfrecord"):
        expected = self.train_on(task, source, "json")
        path = write(rows, self.folder / f"a.{ending}")
        self.assertEqual(self.train_on(task, path, "records"), expected)

    def check_lines(self, task, **more):
        source = FILES / f"{task}-train.jsonl"
        if not source.exists():
            source = TASKS / "bert" / f"{task}-train.jsonl"
        rows = [json.loads(x) for x in source.read_text().splitlines()]
        self.check(task, source, rows, **more)
        return rows

    def test_several_labels_of_which_one_may_be_alone(self):
        rows = self.check_lines("topics", write=write_packed, ending="tfrecords.gz")
        self.assertIn(1, [len(row["label"]) for row in rows])

    def test_pairs_and_numbers(self):
        self.check_lines("likeness")

    def test_choices(self):
        self.check_lines("choices", ending="tfrecord-00000-of-00001")

    def test_words(self):
        self.check_lines("names")

    def test_ids(self):
        self.check_lines("words")

    def test_questions(self):
        source = FILES / "cargo-train.json"
        self.check("cargo", source, list(questions(source)))

    def test_predictions(self):
        model = self.folder / "model"
        model.mkdir()
        for part in (TASKS / "bert" / "names", TASKS / "bert" / "tokenizer"):
            for file in part.iterdir():
                shutil.copy(file, model)
        rows = [{"tokens": ["Anna"]}, {"tokens": ["Anna", "saw", "Mary"]}]
        lines = self.folder / "a.jsonl"
        lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
        said = []
        for path in (lines, write_records(rows, self.folder / "a.tfrecord")):
            said.append(run_binary("predict", model, "--input", path, "--use_cpu"))
        self.assertEqual(said[0], said[1])
        self.assertEqual(len(said[0].splitlines()), 2)
