#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the numbers that tests/parity/test_tasks.py compares with: tests/fixtures/parity/tasks.

Tiny models of each family with random weights and no dropout are trained by transformers' Trainer
on the files of tests/fixtures/tasks, prepared as run_glue, run_swag, run_ner, run_qa and run_mlm do,
read in order; evaluated with those scripts' metrics (scikit-learn, SciPy, seqeval). Needs
tests/requirements.txt, scikit-learn, scipy and seqeval; run it again only when transformers itself
changes, or with names of families to write theirs alone.

    FAMILY/tokenizer/        the family's kind of tokenizer
    FAMILY/WORK/             config.json, model.safetensors
    trajectories.json        for each FAMILY/WORK: configuration, log_history, norms of final tensors
"""

import collections
import json
import os
import shutil
import string
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import make_goldens
import numpy
import torch
import transformers
from transformers import Trainer, TrainingArguments

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "tests" / "fixtures" / "parity" / "tasks"
DATA = ROOT / "tests" / "fixtures" / "tasks"
TEXT = ROOT / "tests" / "fixtures" / "text" / "lighthouse.txt"
FAMILIES = {
    "bert": "Bert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "big_bird": "BigBird",
    "modernbert": "ModernBert",
    "deberta-v2": "DebertaV2",
    "gpt2": "GPT2",
    "llama": "Llama",
    "gemma2": "Gemma2",
}
# Decoders, which have fewer heads, and their tokenizer's first token; none: text alone.
DECODERS = {"gpt2": None, "llama": "<s>", "gemma2": "<bos>"}
OF_DECODERS = ["weather", "topics", "likeness", "names"]
VOCAB_SIZE = 220
SIZES = dict(
    num_hidden_layers=2,
    hidden_size=24,
    num_attention_heads=4,
    intermediate_size=36,
    initializer_range=0.1,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
BASE = dict(
    max_steps=12,
    per_device_train_batch_size=8,
    per_device_eval_batch_size=5,
    learning_rate=3e-3,
    weight_decay=0.05,
    warmup_steps=2,
    logging_steps=1,
    eval_strategy="steps",
    eval_steps=6,
    train_sampling_strategy="sequential",
    seed=1,
)


# What only some families' configurations say; windows and buckets are shorter than the texts.
OWN_SETTINGS = {
    "modernbert": dict(num_hidden_layers=3, local_attention=8),
    "deberta-v2": dict(
        type_vocab_size=0,
        relative_attention=True,
        position_buckets=8,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
    ),
}
OWN_TRAINING = {family: dict(max_steps=20, eval_steps=10) for family in OWN_SETTINGS}


def rows_of(name):
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


# ---- tokenizers -------------------------------------------------------------------------------


def texts():
    yield from TEXT.read_text().splitlines()
    for file in sorted(DATA.glob("*-train.*")):
        if file.stem != "voyages-train":  # of an example alone
            yield file.read_text()


def make_tokenizer(family, folder):
    """A vocabulary of the family's kind in the file that its tokenizer class is loaded from."""
    import tokenizers

    with tempfile.TemporaryDirectory() as scratch:
        if family == "roberta":
            bpe = tokenizers.ByteLevelBPETokenizer()
            bpe.train_from_iterator(
                texts(),
                vocab_size=300,
                special_tokens=make_goldens.SPECIAL_TOKENS,
                show_progress=False,
            )
            bpe.save_model(scratch)
            tokenizer = transformers.RobertaTokenizerFast(
                vocab=f"{scratch}/vocab.json", merges=f"{scratch}/merges.txt", add_prefix_space=True
            )
        elif family == "bert":
            wordpiece = tokenizers.BertWordPieceTokenizer()
            wordpiece.train_from_iterator(texts(), vocab_size=VOCAB_SIZE, show_progress=False)
            wordpiece.save_model(scratch)
            tokenizer = transformers.BertTokenizerFast(vocab=f"{scratch}/vocab.txt")
        elif family == "modernbert":
            tokenizer = make_neox_tokenizer()
        elif family in DECODERS:
            tokenizer = make_causal_tokenizer(DECODERS[family])
        else:
            tokenizer = make_unigram(family, scratch)
    tokenizer.save_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


def make_neox_tokenizer():
    """ModernBERT's: GPT-NeoX's BPE of bytes with BERT's special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["[UNK]", "[CLS]", "[SEP]", "[PAD]"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.add_special_tokens([AddedToken("[MASK]", lstrip=True, special=True)])
    special = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special
    )
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "cls", "sep", "pad", "mask")}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=["input_ids", "attention_mask"], **names
    )


def make_causal_tokenizer(first):
    """BPE of bytes with its own padding token and, before each text, `first`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<pad>", "</s>", *([first] if first else [])],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(), trainer)
    names = dict(pad_token="<pad>", eos_token="</s>")
    if first:
        names["bos_token"] = first
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{first} $A",
            pair=f"{first} $A {first} $B",
            special_tokens=[(first, tokenizer.token_to_id(first))],
        )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=["input_ids", "attention_mask"], **names
    )


def make_unigram(family, scratch):
    import sentencepiece

    lines = [line for text in texts() for line in text.splitlines() if len(line) < 1000]
    big_bird = family == "big_bird"
    more = (
        dict(
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=3,
            eos_piece="</s>",
            control_symbols="[CLS],[SEP],[MASK]",
        )
        if big_bird
        else dict(
            pad_id=0,
            bos_id=1,
            eos_id=2,
            unk_id=3,
            pad_piece="[PAD]",
            bos_piece="[CLS]",
            eos_piece="[SEP]",
            unk_piece="[UNK]",
        )
        if family == "deberta-v2"
        else {}
    )
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=f"{scratch}/spiece",
        vocab_size=VOCAB_SIZE,
        minloglevel=2,
        num_threads=1,
        **more,
    )
    if big_bird:
        return transformers.BigBirdTokenizer.from_pretrained(scratch)
    if family == "deberta-v2":
        os.rename(f"{scratch}/spiece.model", f"{scratch}/spm.model")
        return transformers.DebertaV2Tokenizer.from_pretrained(scratch)
    os.rename(f"{scratch}/spiece.model", f"{scratch}/sentencepiece.bpe.model")
    return transformers.XLMRobertaTokenizer.from_pretrained(scratch)


# ---- works: a task on one kind of file --------------------------------------------------------


class Work:
    """Files, keys of the configuration, features, collation and metrics of one kind of work."""

    head = ""
    keys = {}
    settings = {}

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def collate(self, features):
        return transformers.DataCollatorWithPadding(self.tokenizer)(features)

    def metrics(self, prediction):
        raise NotImplementedError


class Weather(Work):
    head = "SequenceClassification"
    keys = dict(
        task="sequence_classification",
        train_file="weather-train.jsonl",
        validation_file="weather-valid.jsonl",
        text_column="text",
        label_column="label",
        max_seq_length=24,
    )
    settings = dict(id2label={0: "calm", 1: "rough"}, label2id={"calm": 0, "rough": 1})

    def features(self, name):
        return [
            {
                **self.tokenizer(r["text"], truncation=True, max_length=24),
                "label": self.settings["label2id"][r["label"]],
            }
            for r in rows_of(name)
        ]

    def metrics(self, prediction):
        from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

        predicted = prediction.predictions.argmax(-1)
        true = prediction.label_ids
        return {
            "accuracy": accuracy_score(true, predicted),
            "f1": f1_score(true, predicted),
            "matthews_correlation": matthews_corrcoef(true, predicted),
        }


class Topics(Work):
    head = "SequenceClassification"
    keys = dict(
        task="sequence_classification",
        train_file="topics-train.jsonl",
        validation_file="topics-valid.jsonl",
        text_column="text",
        label_column="label",
        max_seq_length=24,
    )
    LABELS = ["calm", "company", "light", "rough"]
    settings = dict(
        id2label=dict(enumerate(LABELS)),
        label2id={n: i for i, n in enumerate(LABELS)},
        problem_type="multi_label_classification",
    )

    def features(self, name):
        return [
            {
                **self.tokenizer(r["text"], truncation=True, max_length=24),
                "label": [float(n in r["label"]) for n in self.LABELS],
            }
            for r in rows_of(name)
        ]

    def metrics(self, prediction):
        from sklearn.metrics import f1_score

        predicted = (prediction.predictions > 0).astype(int)
        return {"f1": f1_score(prediction.label_ids.astype(int), predicted, average="micro")}


class Likeness(Work):
    head = "SequenceClassification"
    keys = dict(
        task="sequence_classification",
        train_file="likeness-train.jsonl",
        validation_file="likeness-valid.jsonl",
        text_column="sentence1",
        text_pair_column="sentence2",
        label_column="label",
        max_seq_length=44,
    )
    settings = dict(num_labels=1)

    def features(self, name):
        return [
            {
                **self.tokenizer(r["sentence1"], r["sentence2"], truncation=True, max_length=44),
                "label": float(r["label"]),
            }
            for r in rows_of(name)
        ]

    def metrics(self, prediction):
        from scipy.stats import pearsonr, spearmanr

        predicted = numpy.squeeze(prediction.predictions)
        true = prediction.label_ids
        return {
            "mse": float(((predicted - true) ** 2).mean()),
            "pearson": float(pearsonr(predicted, true)[0]),
            "spearmanr": float(spearmanr(predicted, true)[0]),
        }


class Choices(Work):
    head = "MultipleChoice"
    keys = dict(
        task="multiple_choice",
        train_file="choices-train.jsonl",
        validation_file="choices-valid.jsonl",
        context_column="question",
        choice_columns=["choice0", "choice1", "choice2", "choice3"],
        label_column="label",
        max_seq_length=24,
    )

    def features(self, name):
        return [
            {
                "label": r["label"],
                "choices": [
                    dict(
                        self.tokenizer(
                            r["question"], r[f"choice{i}"], truncation=True, max_length=24
                        )
                    )
                    for i in range(4)
                ],
            }
            for r in rows_of(name)
        ]

    def collate(self, features):
        flat = [choice for f in features for choice in f["choices"]]
        batch = self.tokenizer.pad(flat, padding=True, return_tensors="pt")
        batch = {k: v.view(len(features), 4, -1) for k, v in batch.items()}
        return {**batch, "labels": torch.tensor([f["label"] for f in features])}

    def metrics(self, prediction):
        return {
            "accuracy": float((prediction.predictions.argmax(1) == prediction.label_ids).mean())
        }


class Names(Work):
    head = "TokenClassification"
    keys = dict(
        task="token_classification",
        train_file="names-train.jsonl",
        validation_file="names-valid.jsonl",
        text_column="tokens",
        label_column="ner_tags",
        max_seq_length=24,
    )
    LABELS = ["B-LOC", "B-PER", "B-SHIP", "I-LOC", "I-PER", "I-SHIP", "O"]
    settings = dict(id2label=dict(enumerate(LABELS)), label2id={n: i for i, n in enumerate(LABELS)})

    def features(self, name):
        from tokenizers import pre_tokenizers

        # Words begin with a space, as in a text. run_ner asks for that by the names of families,
        # to which ModernBERT has not been added.
        backend = self.tokenizer.backend_tokenizer
        if isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel):
            backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        features = []
        for row in rows_of(name):
            encoded = self.tokenizer(
                row["tokens"], is_split_into_words=True, truncation=True, max_length=24
            )
            labels, last = [], None
            for word in encoded.word_ids():
                fresh = word is not None and word != last
                labels.append(self.LABELS.index(row["ner_tags"][word]) if fresh else -100)
                last = word
            features.append({**encoded, "labels": labels})
        return features

    def collate(self, features):
        return transformers.DataCollatorForTokenClassification(self.tokenizer)(features)

    def metrics(self, prediction):
        from seqeval.metrics import accuracy_score, f1_score, precision_score, recall_score

        predicted = prediction.predictions.argmax(-1)
        pairs = [
            [(self.LABELS[p], self.LABELS[l]) for p, l in zip(ps, ls) if l != -100]
            for ps, ls in zip(predicted, prediction.label_ids)
        ]
        said, true = ([[pair[i] for pair in row] for row in pairs] for i in (0, 1))
        return {
            "precision": precision_score(true, said),
            "recall": recall_score(true, said),
            "f1": f1_score(true, said),
            "accuracy": accuracy_score(true, said),
        }


class Cargo(Work):
    head = "QuestionAnswering"
    keys = dict(
        task="question_answering",
        train_file="cargo-train.json",
        validation_file="cargo-valid.json",
        max_seq_length=48,
        doc_stride=12,
        max_answer_length=8,
        n_best_size=10,
    )

    @staticmethod
    def questions(name):
        for article in json.loads((DATA / name).read_text())["data"]:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    yield {**question, "context": paragraph["context"]}

    def features(self, name):
        features = []
        for number, row in enumerate(self.questions(name)):
            encoded = self.tokenizer(
                row["question"].lstrip(),
                row["context"],
                truncation="only_second",
                max_length=48,
                stride=12,
                return_overflowing_tokens=True,
                return_offsets_mapping=True,
            )
            first = row["answers"][0]["answer_start"]
            last = first + len(row["answers"][0]["text"])
            for i in range(len(encoded["input_ids"])):
                features.append(self.window(encoded, i, number, first, last))
        return features

    def window(self, encoded, i, number, first, last):
        offsets = encoded["offset_mapping"][i]
        sides = encoded.sequence_ids(i)
        ids = encoded["input_ids"][i]
        cls = ids.index(self.tokenizer.cls_token_id)
        begin = sides.index(1)
        end = len(sides) - 1 - sides[::-1].index(1)
        start_position = end_position = cls
        if offsets[begin][0] <= first and offsets[end][1] >= last:
            # run_qa searches on after the context, where the offset is (0, 0): an answer that begins
            # with the window's last token would begin at [SEP]. That slip is not followed.
            context_end = end
            while begin <= context_end and offsets[begin][0] <= first:
                begin += 1
            start_position = begin - 1
            while offsets[end][1] >= last:
                end -= 1
            end_position = end + 1
        feature = {k: encoded[k][i] for k in self.tokenizer.model_input_names if k in encoded}
        self.offsets.setdefault(number, []).append(
            [o if s == 1 else None for o, s in zip(offsets, sides)]
        )
        return {**feature, "start_positions": start_position, "end_positions": end_position}

    @property
    def offsets(self):
        self.__dict__.setdefault("_offsets", {})
        return self._offsets

    def metrics(self, prediction):
        starts, ends = prediction.predictions
        exact = f1 = 0.0
        place = 0
        rows = list(self.questions(self.keys["validation_file"]))
        for number, row in enumerate(rows):
            candidates = []
            for offsets in self.offsets[number]:
                candidates += self.candidates(starts[place], ends[place], offsets)
                place += 1
            candidates.sort(key=lambda c: c[0], reverse=True)
            text = ""
            if candidates:
                begin, end = candidates[0][1]
                text = row["context"][begin:end]
            gold = [a["text"] for a in row["answers"]]
            exact += max(normalise(text) == normalise(g) for g in gold)
            f1 += max(overlap(text, g) for g in gold)
        return {"exact_match": 100 * exact / len(rows), "f1": 100 * f1 / len(rows)}

    @staticmethod
    def candidates(starts, ends, offsets):
        best = lambda logits: numpy.argsort(logits)[-1 : -10 - 1 : -1].tolist()
        found = []
        for i in best(starts):
            for j in best(ends):
                if (
                    i >= len(offsets)
                    or j >= len(offsets)
                    or offsets[i] is None
                    or offsets[j] is None
                ):
                    continue
                if j < i or j - i + 1 > 8:
                    continue
                found.append((starts[i] + ends[j], (offsets[i][0], offsets[j][1])))
        return found


def normalise(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(w for w in text.split() if w not in ("a", "an", "the"))


def overlap(said, true):
    said, true = normalise(said).split(), normalise(true).split()
    same = sum((collections.Counter(said) & collections.Counter(true)).values())
    return 2 * same / (len(said) + len(true)) if same else 0.0


class Words(Work):
    """Masked language modelling on rows that are masked beforehand."""

    head = "MaskedLM"
    keys = dict(task="mlm", train_file="words-train.jsonl", validation_file="words-valid.jsonl")

    def prepare(self, folder):
        import random

        rng = random.Random(7)
        lines = [line for line in TEXT.read_text().splitlines() if len(line) > 40]
        for name, part in (("train", lines[:96]), ("valid", lines[96:112])):
            rows = []
            for line in part:
                ids = self.tokenizer(line, truncation=True, max_length=24)["input_ids"]
                special = self.tokenizer.get_special_tokens_mask(
                    ids, already_has_special_tokens=True
                )
                plain = [i for i, s in enumerate(special) if not s]
                chosen = set(rng.sample(plain, max(1, len(plain) // 6)))
                rows.append(
                    {
                        "input_ids": [
                            self.tokenizer.mask_token_id if i in chosen else t
                            for i, t in enumerate(ids)
                        ],
                        "attention_mask": [1] * len(ids),
                        "labels": [t if i in chosen else -100 for i, t in enumerate(ids)],
                    }
                )
            make_goldens.write_jsonl(folder / f"words-{name}.jsonl", rows)
        self.folder = folder

    def features(self, name):
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]

    def collate(self, features):
        return transformers.DataCollatorForTokenClassification(self.tokenizer)(features)

    def metrics(self, prediction):
        kept = prediction.label_ids != -100
        return {
            "accuracy": float(
                (prediction.predictions.argmax(-1) == prediction.label_ids)[kept].mean()
            )
        }


WORKS = {w.__name__.lower(): w for w in (Weather, Topics, Likeness, Choices, Names, Cargo, Words)}


def decoder_sizes(family):
    sizes = dict(initializer_range=0.1, classifier_dropout=0.0)
    if family == "gpt2":
        no_dropout = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
        return dict(sizes, n_layer=2, n_embd=24, n_head=4, n_inner=36, **no_dropout)
    sizes.update(num_hidden_layers=2, hidden_size=24, num_attention_heads=4)
    sizes.update(num_key_value_heads=2, intermediate_size=36)
    return dict(sizes, head_dim=8, sliding_window=8) if family == "gemma2" else sizes


def make_model(family, work, tokenizer, folder):
    prefix = FAMILIES[family]
    sizes = {
        **SIZES,
        "type_vocab_size": 1 if "roberta" in family else 2,
        **OWN_SETTINGS.get(family, {}),
    }
    if family == "modernbert":
        for name in ("type_vocab_size", "hidden_dropout_prob", "attention_probs_dropout_prob"):
            del sizes[name]
        sizes["cls_token_id"] = tokenizer.cls_token_id
        sizes["sep_token_id"] = tokenizer.sep_token_id
    if family in DECODERS:
        sizes = decoder_sizes(family)
    config = getattr(transformers, f"{prefix}Config")(
        vocab_size=len(tokenizer),
        max_position_embeddings=50 + (2 if family in ("roberta", "xlm-roberta") else 0),
        **sizes,
        **work.settings,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        **(
            dict(attention_type="original_full", sep_token_id=tokenizer.sep_token_id)
            if family == "big_bird"
            else {}
        ),
    )
    torch.manual_seed(20)
    model = getattr(transformers, f"{prefix}For{work.head}")(config)
    # Biases and norms start at 0 and 1: a reader that mixed them up would not be found out.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder)
    return model


def make_trainer(family, work_name, output_dir, folder=OUTPUT, **overrides):
    """transformers' Trainer for one work; tests/parity resumes checkpoints with it too."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / family / "tokenizer")
    work = WORKS[work_name](tokenizer)
    if work_name == "words":
        work.folder = folder / family
    model = getattr(transformers, f"AutoModelFor{work.head}").from_pretrained(
        folder / family / work_name
    )
    settings = {"save_strategy": "no", **BASE, **OWN_TRAINING.get(family, {}), **overrides}
    train = work.features(work.keys["train_file"])
    work.__dict__.pop("_offsets", None)  # those of the evaluation data are needed
    return Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(output_dir),
            optim="adamw_torch",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            remove_unused_columns=False,
            **settings,
        ),
        train_dataset=train,
        eval_dataset=work.features(work.keys["validation_file"]),
        data_collator=work.collate,
        compute_metrics=work.metrics,
    )


def trajectory(family, name):
    with tempfile.TemporaryDirectory() as scratch:
        trainer = make_trainer(family, name, scratch)
        trainer.train()
    speed = ("runtime", "_per_second", "total_flos", "train_loss")
    log = [
        {k: v for k, v in row.items() if not any(s in k for s in speed)}
        for row in trainer.state.log_history
        if "loss" in row or "eval_loss" in row
    ]
    return {
        "config": {**BASE, **OWN_TRAINING.get(family, {}), **WORKS[name].keys},
        "log": log,
        "global_step": trainer.state.global_step,
        "norms": make_goldens.norms(trainer.model),
    }


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    families = sys.argv[1:] or list(FAMILIES)
    known = OUTPUT / "trajectories.json"
    trajectories = json.loads(known.read_text()) if sys.argv[1:] else {}
    for family in families:
        folder = OUTPUT / family
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        tokenizer = make_tokenizer(family, folder / "tokenizer")
        for name, kind in WORKS.items():
            if family in DECODERS and name not in OF_DECODERS:
                continue
            work = kind(tokenizer)
            if name == "words":
                work.prepare(folder)
            make_model(family, work, tokenizer, folder / name)
            trajectories[f"{family}/{name}"] = trajectory(family, name)
            last = [r for r in trajectories[f"{family}/{name}"]["log"] if "eval_loss" in r][-1]
            print(
                family,
                name,
                {k: v if isinstance(v, str) else round(v, 4) for k, v in last.items()},
                flush=True,
            )
    known.write_text(make_goldens.format_trajectories(trajectories))


if __name__ == "__main__":
    main()
