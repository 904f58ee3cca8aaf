# SPDX-License-Identifier: MIT
"""task: embedding beside sentence-transformers: losses, weights, vectors, metrics and folders."""

import json

import torch
from support import ROOT, ParityTest, adam_steps, run_binary, weights

TASKS = ROOT / "tests" / "fixtures" / "parity" / "tasks"
STEPS, BATCH, RATE = 12, 8, 2e-4
# float32 sums in another order, over twelve steps of Adam.
LOSS, WEIGHT, VECTOR, METRIC = 1e-4, 2e-3, 1e-5, 1e-4
SCORED = {
    "CoSENTLoss",
    "AnglELoss",
    "CosineSimilarityLoss",
    "ContrastiveLoss",
    "OnlineContrastiveLoss",
    "MarginMSELoss",
}


def rows_for(loss):
    """Texts of the classification fixture: pairs or triplets, with a label where the loss reads one."""
    lines = (ROOT / "tests/fixtures/tasks/likeness-train.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    out = []
    for i, row in enumerate(rows):
        sample = {"anchor": row["sentence1"], "positive": row["sentence2"]}
        if loss in ("TripletLoss", "MarginMSELoss"):
            sample["negative"] = rows[(i + 7) % len(rows)]["sentence1"]
        if loss in SCORED:
            is_binary = "Contrastive" in loss
            sample["label"] = float(row["label"] > 2) if is_binary else row["label"] / 5
        out.append(sample)
    return out


def sentence_transformer(folder, pooling="mean", normalize=False, dense=()):
    """A model of sentence-transformers around the tiny BERT, saved to `folder`."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Pooling, Transformer
    from transformers import AutoModel, AutoTokenizer

    bert = AutoModel.from_pretrained(TASKS / "bert" / "likeness")
    bert.config.hidden_dropout_prob = bert.config.attention_probs_dropout_prob = 0.0
    bert.save_pretrained(folder / "bert")
    AutoTokenizer.from_pretrained(TASKS / "bert" / "tokenizer").save_pretrained(folder / "bert")
    transformer = Transformer(str(folder / "bert"), max_seq_length=32)
    modules = [transformer, Pooling(bert.config.hidden_size, pooling_mode=pooling)]
    modules.extend(dense)
    if normalize:
        modules.append(Normalize())
    model = SentenceTransformer(modules=modules, device="cpu")
    model.save(str(folder / "start"))
    return model


def train_theirs(model, rows, loss_name, **arguments):
    """Steps over the rows in order; returns the losses."""
    from sentence_transformers.sentence_transformer import losses

    return steps(model, getattr(losses, loss_name)(model, **arguments), rows)


def steps(model, loss, rows):
    def loss_of(batch):
        columns = [name for name in batch[0] if name != "label"]
        features = [model.preprocess([row[name] for row in batch]) for name in columns]
        labels = torch.tensor([row["label"] for row in batch]) if "label" in batch[0] else None
        return loss(features, labels)

    return adam_steps(model, STEPS, BATCH, rows, RATE, loss_of)


BASE = {
    "task": "embedding",
    "per_device_train_batch_size": BATCH,
    "max_steps": STEPS,
    "learning_rate": RATE,
}


class Embedding(ParityTest):
    def train_ours(self, rows, **keys):
        return self.train_rows(rows, **{**BASE, **keys})

    def check_weights(self, folder, model, loss=""):
        theirs = dict(model[0].auto_model.state_dict())
        self.assertEqual(set(theirs), set(weights(folder)))
        if loss == "TripletLoss":  # of distances, in which it cancels: what Adam gets is noise
            del theirs["encoder.layer.1.output.LayerNorm.bias"]
        self.assert_same_weights(weights(folder), theirs, WEIGHT)

    def check_loss(self, name, **arguments):
        model = sentence_transformer(self.folder)
        rows = rows_for(name)
        theirs = train_theirs(model, rows, name, **arguments)
        kwargs = {key: value for key, value in arguments.items() if isinstance(value, (int, float))}
        keys = {"loss_type": name}
        if kwargs:
            keys["loss_kwargs"] = kwargs
        ours = self.train_ours(rows, **keys)
        # Exponentials of 20 times a difference of cosines.
        self.assert_same_losses(
            ours, theirs, 3 * LOSS if name in ("CoSENTLoss", "AnglELoss") else LOSS
        )
        self.check_weights(ours, model, name)

    def test_a_guide_leaves_out_what_it_finds_similar(self):
        from sentence_transformers import SentenceTransformer

        guide = self.folder / "guide"
        guide.mkdir()
        sentence_transformer(guide, "cls")
        model = sentence_transformer(self.folder)
        rows = rows_for("")
        arguments = {"temperature": 0.05, "margin": 0.01}
        theirs = train_theirs(
            model, rows, "GISTEmbedLoss", guide=SentenceTransformer(str(guide / "start"), device="cpu"), **arguments
        )
        kwargs = {"guide": str(guide / "start"), **arguments}
        ours = self.train_ours(rows, loss_type="GISTEmbedLoss", loss_kwargs=kwargs)
        self.assert_same_losses(ours, theirs, 3 * LOSS)
        self.check_weights(ours, model)

    def test_matryoshka(self):
        from sentence_transformers.sentence_transformer import losses

        model = sentence_transformer(self.folder)
        size = model.get_embedding_dimension()
        dims = [size, size // 2, size // 4]
        inner = losses.MultipleNegativesRankingLoss(model)
        rows = rows_for("MultipleNegativesRankingLoss")
        theirs = steps(model, losses.MatryoshkaLoss(model, inner, dims), rows)
        ours = self.train_ours(rows, matryoshka_dims=dims, per_device_train_batch_size=2,
                               effective_batch_size=BATCH)  # fmt: skip
        self.assert_same_losses(ours, theirs, LOSS)

    def test_folders_give_the_same_vectors(self):
        from sentence_transformers import SentenceTransformer

        texts = [row["anchor"] for row in rows_for("")[:6]] + ["A long text of many words. " * 40]
        for pooling, normalize in (("mean", True), ("cls", False), ("lasttoken", True),
                                   ("weightedmean", False)):  # fmt: skip
            with self.subTest(pooling):
                model = sentence_transformer(self.folder, pooling, normalize)
                self.check_vectors(self.folder / "start", model, texts)
        model = sentence_transformer(self.folder, "cls", True)
        run = self.train_ours(rows_for(""))
        self.check_vectors(run, SentenceTransformer(str(run), device="cpu"), texts)

    def test_dense_layers_are_trained_and_written_as_modules(self):
        from safetensors.torch import load_file
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.models import Dense

        torch.manual_seed(1)
        size = 24
        dense = [
            Dense(size, 32),
            Dense(32, 16, bias=False, activation_function=torch.nn.Identity()),
        ]
        model = sentence_transformer(self.folder, "mean", True, dense)
        texts = [row["anchor"] for row in rows_for("")[:6]]
        self.check_vectors(self.folder / "start", model, texts)
        rows = rows_for("")
        theirs = train_theirs(model, rows, "MultipleNegativesRankingLoss")
        run = self.train_ours(rows)
        self.assert_same_losses(run, theirs, LOSS)
        self.check_weights(run, model)
        for i, name in ((2, "2_Dense"), (3, "3_Dense")):
            own = load_file(run / name / "model.safetensors")
            self.assert_same_weights(own, model[i].state_dict(), WEIGHT)
        again = SentenceTransformer(str(run), device="cpu")
        self.assertEqual([type(module).__name__ for module in again],
                         ["Transformer", "Pooling", "Dense", "Dense", "Normalize"])  # fmt: skip
        self.check_vectors(run, again, texts)
        self.check_first_dimensions(run, again, 5, texts)

    def test_a_new_dense_layer_goes_with_whole_models_and_adapters(self):
        from sentence_transformers import SentenceTransformer

        sentence_transformer(self.folder)
        texts = [row["anchor"] for row in rows_for("")[:6]]
        keys = {"dense": {"out_features": 12, "activation_function": "torch.nn.modules.linear.Identity"}}
        run = self.train_ours(rows_for(""), **keys)
        self.check_vectors(run, SentenceTransformer(str(run), device="cpu"), texts)
        run = self.train_ours(
            rows_for(""), use_peft=True, output_dir=str(self.folder / "adapter"), **keys
        )
        merged = self.folder / "merged"
        run_binary("export", run, merged)
        model = SentenceTransformer(str(merged), device="cpu")
        self.assertEqual(model.get_embedding_dimension(), 12)
        self.check_vectors(run, model, texts)
        self.check_vectors(merged, model, texts)

    def test_an_export_of_the_first_dimensions(self):
        for normalize in (False, True):
            model = sentence_transformer(self.folder, "cls", normalize)
            texts = [row["anchor"] for row in rows_for("")[:6]]
            self.check_first_dimensions(self.folder / "start", model, 10, texts)

    def test_a_model_that_is_truncated_is_exported_as_what_is_used_of_it(self):
        from sentence_transformers import SentenceTransformer

        sentence_transformer(self.folder)
        SentenceTransformer(str(self.folder / "start"), device="cpu", truncate_dim=10).save(
            str(self.folder / "start")
        )
        texts = [row["anchor"] for row in rows_for("")[:6]]
        run_binary("predict", self.folder / "start", "--text", "x", expect=1)
        run_binary("export", self.folder / "start", self.folder / "out", "--dims", 15, expect=2)
        run_binary("export", self.folder / "start", self.folder / "out", "--dims", 7)
        model = SentenceTransformer(str(self.folder / "out"), device="cpu")
        self.assertEqual(model.encode(texts).shape[1], 7)
        self.check_vectors(self.folder / "out", model, texts)

    def check_first_dimensions(self, folder, model, dims, texts):
        from sentence_transformers import SentenceTransformer

        out = self.folder / "first"
        run_binary("export", folder, out, "--dims", dims, "--overwrite")
        first = SentenceTransformer(str(out), device="cpu")
        whole = torch.tensor(model.encode(texts))[:, :dims]
        if type(model[-1]).__name__ == "Normalize":
            whole = torch.nn.functional.normalize(whole, dim=1)
        worst = float((torch.tensor(first.encode(texts)) - whole).abs().max())
        self.assertLessEqual(worst, VECTOR)
        self.check_vectors(out, first, texts)

    def check_vectors(self, folder, model, texts):
        theirs = model.encode(texts)
        lines = run_binary("predict", folder, "--use_cpu", "--text", *texts).splitlines()
        for text, line, other in zip(texts, lines, theirs, strict=True):
            own = torch.tensor(json.loads(line)["embedding"])
            worst = float((own - torch.tensor(other)).abs().max())
            self.assertLessEqual(worst, VECTOR, text)

    def evaluate_ours(self, rows):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (self.folder / "valid.jsonl").write_text(text)
        run = self.train_ours(
            rows_for(""),
            validation_file=str(self.folder / "valid.jsonl"),
            eval_strategy="steps",
            eval_steps=STEPS,
        )
        results = json.loads((run / "eval_results.json").read_text())
        return run, {key.removeprefix("eval_"): value for key, value in results.items()}

    def check_metrics(self, ours, theirs):
        compared = 0
        for name, value in theirs.items():
            own = name.removeprefix("x_")
            if own in ours:
                # Ranks: of almost equal cosines, neighbours may be swapped.
                delta = 10 * METRIC if "spearman" in own else METRIC
                self.assertAlmostEqual(ours[own], value, delta=delta, msg=own)
                compared += 1
        return compared

    def test_metrics_of_pairs_are_those_of_the_evaluators(self):
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer import evaluation

        sentence_transformer(self.folder)
        rows = rows_for("CoSENTLoss")
        run, ours = self.evaluate_ours(rows)
        model = SentenceTransformer(str(run), device="cpu")
        evaluator = evaluation.EmbeddingSimilarityEvaluator(
            [row["anchor"] for row in rows],
            [row["positive"] for row in rows],
            [row["label"] for row in rows],
            name="x",
        )
        self.assertEqual(self.check_metrics(ours, evaluator(model)), 2)

    def test_metrics_of_retrieval_are_those_of_the_evaluators(self):
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer import evaluation

        sentence_transformer(self.folder)
        rows = rows_for("TripletLoss")
        run, ours = self.evaluate_ours(rows)
        model = SentenceTransformer(str(run), device="cpu")
        texts = sorted({row[name] for row in rows for name in ("positive", "negative")})
        number = {text: str(i) for i, text in enumerate(texts)}
        relevant = {}
        for row in rows:
            relevant.setdefault(row["anchor"], set()).add(number[row["positive"]])
        retrieval = evaluation.InformationRetrievalEvaluator(
            {text: text for text in relevant},
            {key: text for text, key in number.items()},
            relevant,
            name="x",
        )
        self.assertEqual(self.check_metrics(ours, retrieval(model)), 15)
        triplets = evaluation.TripletEvaluator(
            [row["anchor"] for row in rows],
            [row["positive"] for row in rows],
            [row["negative"] for row in rows],
            name="x",
        )
        self.assertEqual(self.check_metrics(ours, triplets(model)), 1)

    def test_metrics_of_a_corpus_are_those_of_the_evaluator(self):
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer import evaluation

        sentence_transformer(self.folder)
        rows = rows_for("")
        corpus = {f"d{i}": ("" if i % 3 else f"Part {i}", row["positive"]) for i, row in enumerate(rows)}
        queries = {f"q{i}": row["anchor"] for i, row in enumerate(rows[:30])}
        relevant = {f"q{i}": {f"d{i}", f"d{(i * 7) % len(rows)}"} for i in range(0, 30, 2)}
        relevant["q0"].add("lost")  # cut out of the corpus
        folder = self.folder / "beir"
        (folder / "qrels").mkdir(parents=True)
        lines = [json.dumps({"_id": key, "title": title, "text": text, "metadata": {}})
                 for key, (title, text) in corpus.items()]  # fmt: skip
        (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
        lines = [json.dumps({"_id": key, "text": text}) for key, text in queries.items()]
        (folder / "queries.jsonl").write_text("\n".join(lines) + "\n")
        judged = [f"{query}\t{document}\t1" for query, own in relevant.items() for document in sorted(own)]
        judged.append("q1\td4\t0")  # does not answer it
        (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(judged) + "\n")
        run = self.train_ours(rows, validation_file=str(folder), eval_strategy="steps", eval_steps=STEPS,
                              matryoshka_dims=[24, 8])  # fmt: skip
        results = json.loads((run / "eval_results.json").read_text())
        self.assertNotIn("eval_loss", results)
        ours = {key.removeprefix("eval_"): value for key, value in results.items()}
        texts = {key: f"{title} {text}".strip() for key, (title, text) in corpus.items()}
        model = SentenceTransformer(str(run), device="cpu")
        evaluator = evaluation.InformationRetrievalEvaluator(queries, texts, relevant, name="x")
        self.assertEqual(self.check_metrics(ours, evaluator(model)), 15)
        evaluator = evaluation.InformationRetrievalEvaluator(queries, texts, relevant, name="dim_8", truncate_dim=8)
        self.assertEqual(self.check_metrics(ours, evaluator(model)), 1)
        worst = json.loads((run / "worst_samples.json").read_text())
        self.assertEqual((worst["measure"], worst["samples"]), ("rank", len(relevant)))
        self.assertEqual(len(worst["worst"]), round(len(relevant) * (1 - ours["cosine_accuracy@1"])))

    def test_hard_negatives_are_those_of_mine_hard_negatives(self):
        from datasets import Dataset
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.util import mine_hard_negatives

        sentence_transformer(self.folder)
        model = SentenceTransformer(str(self.folder / "start"), device="cpu")
        rows = rows_for("")
        rows.append({"anchor": rows[0]["anchor"], "positive": rows[5]["positive"]})
        data = self.folder / "pairs.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        compared = 0
        for options in ({"num_negatives": 2}, {"num_negatives": 3, "range_min": 4, "absolute_margin": 0.02},
                        {"num_negatives": 1, "relative_margin": 0.002, "min_score": 0.1},
                        {"num_negatives": 2, "range_max": 40, "max_score": 0.985}):  # fmt: skip
            with self.subTest(options):
                theirs = mine_hard_negatives(
                    Dataset.from_list(rows), model, output_format="n-tuple", verbose=False, **options
                ).to_list()
                given = {"hard_negatives" if key == "num_negatives" else key: str(value)
                         for key, value in options.items()}  # fmt: skip
                words = [word for key, value in given.items() for word in ("--" + key, value)]
                found = self.folder / "mined.jsonl"
                run_binary(
                    "prepare", "--task", "embedding", "--model_name_or_path", self.folder / "start",
                    "--train_file", data, "--cache_dir", self.folder / "cache", "--output_dir", self.folder / "out",
                    "--use_cpu", "true", "--rows", found, *words,
                )  # fmt: skip
                ours = [json.loads(line) for line in found.read_text().splitlines()]
                self.assertEqual(ours, theirs)
                compared += len(ours)
        self.assertGreater(compared, len(rows))


def add_loss(name, **arguments):
    def test(self):
        self.check_loss(name, **arguments)

    setattr(Embedding, f"test_{name}", test)


add_loss("MultipleNegativesRankingLoss", scale=10.0)
add_loss("MultipleNegativesSymmetricRankingLoss")
add_loss("CachedMultipleNegativesRankingLoss")
add_loss("CoSENTLoss")
add_loss("AnglELoss")
add_loss("CosineSimilarityLoss")
add_loss("ContrastiveLoss")
add_loss("OnlineContrastiveLoss", margin=0.9)
add_loss("TripletLoss", triplet_margin=2.0)
add_loss("MarginMSELoss")
