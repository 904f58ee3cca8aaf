# SPDX-License-Identifier: MIT
"""Compares `finetune predict` with transformers' pipelines, on random models of two families."""

import json

import torch
import transformers
from support import MLM, TEXT, ParityTest, run_binary
from transformers import pipeline

LENGTH = 48  # tokens that the models accept
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "initializer_range": 0.3,  # so that answers differ
}
LINES = [line for line in (TEXT / "lighthouse.txt").read_text().split("\n") if line]
TEXTS = [
    LINES[0],
    "The keeper",
    "",
    "Naïve café: 東京 is far,  isn't it? 🙂 x\tq",
    " ".join(LINES[:8]),  # longer than the models accept
    LINES[3],
]
ENTITIES = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "MISC"]


def bert_tokenizer():
    from tokenizers import BertWordPieceTokenizer

    trained = BertWordPieceTokenizer()
    trained.train([str(TEXT / "lighthouse.txt")], vocab_size=300, show_progress=False)
    vocab = trained.get_vocab()
    return transformers.BertTokenizerFast(vocab=vocab, model_max_length=LENGTH)


def roberta_tokenizer():
    tokenizer = transformers.AutoTokenizer.from_pretrained(MLM / "model")
    tokenizer.model_max_length = LENGTH
    return tokenizer


def unigram_pieces():
    from tokenizers import SentencePieceUnigramTokenizer

    trained = SentencePieceUnigramTokenizer()
    trained.train([str(TEXT / "lighthouse.txt")], vocab_size=250, show_progress=False)
    model = json.loads(trained.to_str())["model"]
    return [(piece, score) for piece, score in model["vocab"] if piece != "<unk>"]


def xlm_roberta_tokenizer():
    special = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    vocab = special + unigram_pieces() + [("<mask>", 0.0)]
    return transformers.XLMRobertaTokenizer(vocab=vocab, model_max_length=LENGTH)


def big_bird_tokenizer():
    special = [(token, 0.0) for token in ("<pad>", "</s>", "<s>", "<unk>")]
    last = [(token, 0.0) for token in ("[CLS]", "[SEP]", "[MASK]")]
    vocab = special + unigram_pieces() + last
    return transformers.BigBirdTokenizer(vocab=vocab, model_max_length=LENGTH)


class Bert:
    tokenizer = staticmethod(bert_tokenizer)
    name = "Bert"
    more = {"max_position_embeddings": LENGTH}


class Roberta:
    tokenizer = staticmethod(roberta_tokenizer)
    name = "Roberta"
    more = {"max_position_embeddings": LENGTH + 2}


class XLMRoberta:
    tokenizer = staticmethod(xlm_roberta_tokenizer)
    name = "XLMRoberta"
    more = {"max_position_embeddings": LENGTH + 2, "type_vocab_size": 1}


class BigBird:
    tokenizer = staticmethod(big_bird_tokenizer)
    name = "BigBird"
    more = {"max_position_embeddings": LENGTH, "attention_type": "original_full"}


FAMILIES = (Bert, Roberta, XLMRoberta, BigBird)


def make_model(folder, family, head, **config):
    """A random model and its tokenizer, saved by transformers; returns (folder, model, tokenizer)."""
    tokenizer = family.tokenizer()
    config = getattr(transformers, f"{family.name}Config")(
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        sep_token_id=tokenizer.sep_token_id,
        **SIZES,
        **family.more,
        **config,
    )
    torch.manual_seed(7)
    model = getattr(transformers, f"{family.name}{head}")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.3)
    path = folder / f"{family.name}-{head}"
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path, model, tokenizer


def predict(path, *arguments, rows=None, folder=None):
    if rows is not None:
        file = folder / "rows.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        arguments = ("--input", file, *arguments)
    said = run_binary("predict", path, *arguments, "--use_cpu", "--batch_size", 3)
    return [json.loads(line) for line in said.decode().splitlines()]


class PredictTest(ParityTest):
    def assert_same(self, ours, theirs, what):
        """Compares shapes and words exactly, and floating-point numbers within 1e-5."""
        if isinstance(theirs, (list, tuple)):
            self.assertIsInstance(ours, list, what)
            self.assertEqual(len(ours), len(theirs), f"{what}: {ours} {theirs}")
            for number, (mine, golden) in enumerate(zip(ours, theirs)):
                self.assert_same(mine, golden, f"{what}[{number}]")
        elif isinstance(theirs, dict):
            self.assertEqual(list(ours), list(theirs), what)
            for key in theirs:
                self.assert_same(ours[key], theirs[key], f"{what}.{key}")
        elif isinstance(theirs, (bool, int, str)):
            self.assertEqual(ours, theirs, what)
        else:
            self.assertAlmostEqual(ours, float(theirs), delta=1e-5, msg=what)

    def test_predict_fills_masks(self):
        for family in FAMILIES:
            path, model, tokenizer = make_model(self.folder, family, "ForMaskedLM")
            mask = tokenizer.mask_token
            texts = [f"the {mask} was lit", f"a {mask} of the {mask} at sea, and more of it"]
            theirs = pipeline("fill-mask", model=model, tokenizer=tokenizer)(texts, top_k=3)
            ours = predict(path, "--top_k", 3, "--text", *texts)
            self.assert_same(ours, theirs, family.name)

    def test_predict_classifies_texts_and_pairs(self):
        labels = {"id2label": {0: "bad", 1: "so so", 2: "good"}}
        for family in FAMILIES:
            path, model, tokenizer = make_model(
                self.folder, family, "ForSequenceClassification", **labels
            )
            pipe = pipeline("text-classification", model=model, tokenizer=tokenizer)
            long = {"truncation": True, "max_length": LENGTH}
            theirs = [pipe(text, top_k=1, **long) for text in TEXTS]
            self.assert_same(predict(path, "--text", *TEXTS), theirs, family.name)
            rows = [{"text": a, "text_pair": b} for a, b in zip(TEXTS, reversed(TEXTS))]
            for function in ("default", "sigmoid", "none"):
                # To truncate a pair, tokenizers need text on both sides.
                chosen = [row for row in rows if row["text"] and row["text_pair"]]
                extra = {} if function == "default" else {"function_to_apply": function}
                theirs = [pipe(row, top_k=3, **long, **extra) for row in chosen]
                options = ("--top_k", 5, "--function_to_apply", function)
                ours = predict(path, *options, rows=chosen, folder=self.folder)
                self.assert_same(ours, theirs, f"{family.name} {function}")

    def test_predict_applies_the_function_of_the_problem(self):
        problems = {
            "regression": 1,
            "multi_label_classification": 3,
            "single_label_classification": 3,
            None: 1,
        }
        for problem, labels in problems.items():
            path, model, tokenizer = make_model(
                self.folder,
                Roberta,
                "ForSequenceClassification",
                num_labels=labels,
                problem_type=problem,
            )
            pipe = pipeline("text-classification", model=model, tokenizer=tokenizer)
            texts = [TEXTS[1], TEXTS[3]]
            theirs = pipe(texts, top_k=3)
            self.assert_same(predict(path, "--top_k", 3, "--text", *texts), theirs, problem)

    def test_predict_tags_tokens(self):
        labels = {"id2label": dict(enumerate(ENTITIES))}
        for family in FAMILIES:
            path, model, tokenizer = make_model(
                self.folder, family, "ForTokenClassification", **labels
            )
            for strategy in ("none", "simple", "first", "average", "max"):
                pipe = pipeline(
                    "token-classification",
                    model=model,
                    tokenizer=tokenizer,
                    aggregation_strategy=strategy,
                )
                theirs = [pipe(text) for text in TEXTS]
                options = ("--aggregation_strategy", strategy)
                ours = predict(path, *options, "--text", *TEXTS)
                self.assertGreater(sum(map(len, theirs)), 20 if strategy == "none" else 0)
                if strategy in ("first", "average", "max"):
                    # The pipeline decodes text that was already decoded: "é" becomes a broken byte
                    # in byte-level words, and SentencePiece's words lose the spaces between them.
                    for mine, golden in zip(sum(ours, []), sum(theirs, [])):
                        if family in (XLMRoberta, BigBird) or not mine["word"].isascii():
                            mine["word"] = golden["word"]
                self.assert_same(ours, theirs, f"{family.name} {strategy}")

    def test_predict_tags_words(self):
        rows = [text.split() for text in TEXTS if text]
        labels = {"id2label": dict(enumerate(ENTITIES))}
        for family in FAMILIES:
            path, model, tokenizer = make_model(
                self.folder, family, "ForTokenClassification", **labels
            )
            if family is Roberta:
                tokenizer = transformers.AutoTokenizer.from_pretrained(path, add_prefix_space=True)
                tokenizer.save_pretrained(path)
            pipe = pipeline("token-classification", model=model, tokenizer=tokenizer)
            theirs = [pipe([words], is_split_into_words=True)[0] for words in rows]
            tagged = [{"tokens": words} for words in rows]
            ours = predict(path, rows=tagged, folder=self.folder)
            self.assert_same(ours, theirs, family.name)

    def test_predict_chooses(self):
        rows = [
            {"question": LINES[0], "choices": ["a lamp", "the sea at night", "x"]},
            {"question": " ".join(LINES[:9]), "choices": [LINES[2], "no"]},
            {"question": "who?", "choices": ["the keeper", "the boat", "nobody", LINES[4]]},
        ]
        for family in FAMILIES:
            path, model, tokenizer = make_model(self.folder, family, "ForMultipleChoice")
            theirs = []
            for row in rows:
                texts = [row["question"]] * len(row["choices"])
                batch = tokenizer(
                    texts, row["choices"], truncation=True, padding=True, return_tensors="pt"
                )
                with torch.no_grad():
                    logits = model(**{k: v[None] for k, v in batch.items()}).logits[0]
                best = int(logits.argmax())
                scores = logits.softmax(-1).tolist()
                theirs.append({"label": best, "choice": row["choices"][best], "scores": scores})
            ours = predict(path, rows=rows, folder=self.folder)
            self.assert_same(ours, theirs, family.name)
            choices = [word for choice in rows[0]["choices"] for word in ("--choice", choice)]
            ours = predict(path, "--text", rows[0]["question"], *choices)
            self.assert_same(ours, theirs[:1], family.name)

    def test_predict_answers_questions(self):
        rows = [
            {"question": " Who lit the lamp?", "context": " ".join(LINES[:12])},
            {"question": "where?", "context": TEXTS[3]},
            {"question": "What is at sea, and what is it for?", "context": LINES[5]},
        ]
        for family in FAMILIES:
            path, model, tokenizer = make_model(self.folder, family, "ForQuestionAnswering")
            for impossible in (False, True):
                options = {"doc_stride": 8, "max_answer_len": 6, "top_k": 4}
                words = [x for key, value in options.items() for x in (f"--{key}", value)]
                if impossible:
                    words.append("--handle_impossible_answer")
                theirs = [find_answers(model, tokenizer, row, impossible, **options) for row in rows]
                ours = predict(path, *words, rows=rows, folder=self.folder)
                self.assert_same(ours, theirs, f"{family.name} {impossible}")
            one = predict(path, "--question", "where?", "--context", TEXTS[3])
            theirs = find_answers(model, tokenizer, rows[1], False, 24, 15, 1)
            self.assert_same(one, theirs, family.name)


def find_answers(model, tokenizer, row, impossible, doc_stride, max_answer_len, top_k):
    """Returns the answers of run_qa's rule in the format of the pipeline."""
    windows = tokenizer(
        row["question"].lstrip(),
        row["context"],
        truncation="only_second",
        max_length=LENGTH,
        stride=doc_stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    spans, null = [], None
    for number, (ids, offsets) in enumerate(zip(windows["input_ids"], windows["offset_mapping"])):
        inputs = {"input_ids": torch.tensor([ids])}
        if "token_type_ids" in windows:
            inputs["token_type_ids"] = torch.tensor([windows["token_type_ids"][number]])
        with torch.no_grad():
            said = model(**inputs)
        starts, ends = said.start_logits[0].numpy(), said.end_logits[0].numpy()
        if null is None or starts[0] + ends[0] < null[0]:
            null = (starts[0] + ends[0], 0, 0)
        in_context = [which == 1 for which in windows.sequence_ids(number)]
        for first in starts.argsort()[::-1][:20].tolist():
            for last in ends.argsort()[::-1][:20].tolist():
                if not (in_context[first] and in_context[last]):
                    continue
                if first <= last < first + max_answer_len:
                    score = starts[first] + ends[last]
                    spans.append((score, offsets[first][0], offsets[last][1]))
    spans = sorted(spans + [null] * impossible, key=lambda span: -span[0])[:20]
    if impossible and null not in spans:
        spans.append(null)
    scores = torch.tensor([float(span[0]) for span in spans]).softmax(-1).tolist()
    return [
        {"score": score, "start": start, "end": end, "answer": row["context"][start:end]}
        for score, (_, start, end) in zip(scores, spans)
    ][:top_k]
