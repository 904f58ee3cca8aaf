# SPDX-License-Identifier: MIT
"""Pretraining on shards written by `prepare`: TensorBoard's reader and the protobuf library read them, and
transformers trains on them with our results."""

import json
import shutil

import torch
import transformers
from make_goldens import BASE
from support import MLM, TEXT, ParityTest, run_binary, state

LENGTH = 32
PREDICTIONS = 5
TOLERANCE = 2e-3  # of final weights
FAMILIES = {
    "bert": dict(prefix="Bert"),
    "big_bird": dict(prefix="BigBird", attention_type="original_full"),
}
CONFIG = {**BASE, "max_steps": 12, "weight_decay": 0.5, "save_strategy": "no"}
FEATURES = {
    "input_ids": LENGTH,
    "segment_ids": LENGTH,
    "masked_lm_positions": PREDICTIONS,
    "masked_lm_ids": PREDICTIONS,
    "masked_lm_weights": PREDICTIONS,
    "next_sentence_labels": 1,
}


def example_class():
    """Returns tf.train.Example, described here so that TensorFlow is not needed."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="t", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto

    def message(name, *fields, into=None):
        made = (file.message_type if into is None else into.nested_type).add(name=name)
        for number, (label, kind, field_name, type_name) in enumerate(fields, 1):
            made.field.add(
                name=field_name, number=number, label=label, type=kind, type_name=type_name
            )
        return made

    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    message("BytesList", (many, field.TYPE_BYTES, "value", None))
    message("FloatList", (many, field.TYPE_FLOAT, "value", None))
    message("Int64List", (many, field.TYPE_INT64, "value", None))
    lists = [
        (one, field.TYPE_MESSAGE, f"{x}_list", f".t.{x.title()}List") for x in ("bytes", "float")
    ]
    message("Feature", *lists, (one, field.TYPE_MESSAGE, "int64_list", ".t.Int64List"))
    features = message(
        "Features", (many, field.TYPE_MESSAGE, "feature", ".t.Features.FeatureEntry")
    )
    entry = message(
        "FeatureEntry",
        (one, field.TYPE_STRING, "key", None),
        (one, field.TYPE_MESSAGE, "value", ".t.Feature"),
        into=features,
    )
    entry.options.map_entry = True
    message("Example", (one, field.TYPE_MESSAGE, "features", ".t.Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))


def read_shards(folder):
    """Returns all records in the order of the shards' names, read with TensorBoard's reader, which checks
    CRCs."""
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New

    kind = example_class()
    rows = []
    for path in sorted(folder.glob("*.tfrecord")):
        reader = PyRecordReader_New(str(path), 0)
        while True:
            try:
                reader.GetNext()
            except Exception as error:
                assert type(error).__name__ == "OutOfRangeError", (path, error)
                break
            features = kind.FromString(reader.record()).features.feature
            lists = {
                n: f.float_list if "weights" in n else f.int64_list for n, f in features.items()
            }
            rows.append({name: list(values.value) for name, values in lists.items()})
    return rows


def as_inputs(row):
    """Converts a record as a collator of run_pretraining does; 1 is the padding id."""
    length = LENGTH
    while row["input_ids"][length - 1] == 1:
        length -= 1
    labels = [-100] * LENGTH
    for place, token, weight in zip(
        row["masked_lm_positions"], row["masked_lm_ids"], row["masked_lm_weights"]
    ):
        if weight == 1.0:
            labels[place] = token
    return {
        "input_ids": row["input_ids"],
        "token_type_ids": row["segment_ids"],
        "attention_mask": [1] * length + [0] * (LENGTH - length),
        "labels": labels,
        "next_sentence_label": row["next_sentence_labels"][0],
    }


def collate(rows):
    return {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}


class Pretraining(ParityTest):
    def set_up(self, family):
        settings = dict(FAMILIES[family])
        prefix = settings.pop("prefix")
        torch.manual_seed(5)
        config = getattr(transformers, f"{prefix}Config")(
            vocab_size=300,
            num_hidden_layers=2,
            hidden_size=32,
            num_attention_heads=4,
            intermediate_size=48,
            max_position_embeddings=LENGTH,
            initializer_range=0.05,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            pad_token_id=1,
            bos_token_id=0,
            eos_token_id=2,
            **settings,
        )
        self.kind = getattr(transformers, f"{prefix}ForPreTraining")
        self.model = self.folder / "model"
        self.kind(config).save_pretrained(self.model)
        for path in (MLM / "model").glob("tokenizer*"):
            shutil.copy(path, self.model)
        self.config = {
            "task": "pretraining",
            "model_name_or_path": str(self.model),
            "max_seq_length": LENGTH,
            "max_predictions_per_seq": PREDICTIONS,
            "dupe_factor": 2,
            "line_by_line": True,
            "cache_dir": str(self.folder / "cache"),
            "report_to": "none",
            "use_cpu": True,
            "num_shards": 3,
            **CONFIG,
        }
        self.train_rows = self.prepare("train", "lighthouse.txt")
        self.eval_rows = self.prepare("eval", "lighthouse-valid.txt", dupe_factor=1, num_shards=1)

    def write_config(self, name, **more):
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps({**self.config, **more}))
        return path

    def prepare(self, name, text, **more):
        files = dict(train_file=str(TEXT / text), validation_file=str(TEXT / text))
        folder = self.folder / f"{name}-shards"
        config = self.write_config(name, prepare_output_dir=str(folder), **files, **more)
        made = json.loads(run_binary("prepare", config))
        rows = read_shards(folder)
        self.assertEqual(len(rows), made["examples"])
        for row in rows:
            self.assertEqual({name: len(values) for name, values in row.items()}, FEATURES)
        return rows

    def shards(self):
        return dict(
            train_file=str(self.folder / "train-shards" / "*.tfrecord"),
            validation_file=str(self.folder / "eval-shards" / "*.tfrecord"),
        )

    def theirs(self):
        from transformers import Trainer, TrainingArguments

        trainer = Trainer(
            model=self.kind.from_pretrained(self.model),
            args=TrainingArguments(
                output_dir=str(self.folder / "theirs"),
                optim="adamw_torch",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
                **CONFIG,
            ),
            train_dataset=[as_inputs(row) for row in self.train_rows],
            eval_dataset=[as_inputs(row) for row in self.eval_rows],
            data_collator=collate,
        )
        trainer.train()
        return trainer

    def check_losses(self):
        """Compares both losses of a new model over all targets."""
        config = self.write_config("evaluate", **self.shards(), per_device_eval_batch_size=1000)
        ours = json.loads(run_binary("evaluate", config))
        batch = collate([as_inputs(row) for row in self.eval_rows])
        with torch.no_grad():
            out = self.kind.from_pretrained(self.model).eval()(**batch)
        loss = torch.nn.functional.cross_entropy
        words = float(loss(out.prediction_logits.flatten(0, 1), batch["labels"].flatten()))
        following = float(loss(out.seq_relationship_logits, batch["next_sentence_label"]))
        hits = out.seq_relationship_logits.argmax(-1) == batch["next_sentence_label"]
        self.assert_relative(ours["eval_masked_lm_loss"], words, 1e-5, "masked_lm_loss")
        self.assert_relative(ours["eval_next_sentence_loss"], following, 1e-5, "next_sentence_loss")
        self.assert_relative(ours["eval_loss"], float(out.loss), 1e-5, "eval_loss")
        self.assertAlmostEqual(ours["eval_next_sentence_accuracy"], float(hits.float().mean()), 6)

    def check(self, family):
        self.set_up(family)
        self.check_losses()
        output = self.folder / "ours"
        run_binary("train", self.write_config("ours", **self.shards(), output_dir=str(output)))
        trainer = self.theirs()
        self.assert_same_log(state(output)["log_history"], trainer.state.log_history)
        trained, info = self.kind.from_pretrained(output, output_loading_info=True)
        self.assertEqual({k: list(v) for k, v in info.items() if v}, {})
        final = dict(trainer.model.named_parameters())
        self.assert_same_weights(dict(trained.named_parameters()), final, TOLERANCE)
        architecture = json.loads((output / "config.json").read_text())["architectures"]
        self.assertEqual(architecture, [self.kind.__name__])

    def test_bert_learns_both_tasks(self):
        self.check("bert")

    def test_big_bird_learns_both_tasks(self):
        self.check("big_bird")
