#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/task/metric_goldens.json with the metrics of other libraries.

scikit-learn, SciPy, seqeval and Hugging Face's scripts compute them on random cases with ties, classes that
do not occur, constant numbers and labels that break the rules of their scheme.

    make_metric_goldens.py --evaluate FOLDER --utils-qa FILE

FOLDER is a checkout of huggingface/evaluate, FILE is utils_qa.py of transformers' examples. Made
with scikit-learn 1.9.1, SciPy 1.17.1, seqeval 1.2.2, numpy 2.4.6.
"""

import argparse
import importlib.util
import json
import math
import random
import sys
import types
import warnings
from pathlib import Path

import numpy as np
from scipy.stats import pearsonr, spearmanr
from seqeval.metrics import accuracy_score as token_accuracy
from seqeval.metrics import classification_report
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    matthews_corrcoef,
    mean_squared_error,
    precision_score,
    recall_score,
)

OUTPUT = Path(__file__).resolve().parent / "metric_goldens.json"
IGNORED = -100


def number(value):
    value = float(value)
    return None if math.isnan(value) else value


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def class_case(rng, samples, labels, used):
    """Logits in quarters, so that many are equal; only some classes occur."""
    logits = rng.integers(-6, 7, size=(samples, labels)) / 4
    classes = rng.choice(used, size=samples)
    predicted = np.argmax(logits, axis=1)
    average = "binary" if labels == 2 else "macro"
    more = dict(average=average, zero_division=0)
    return {
        "logits": logits.tolist(),
        "classes": classes.tolist(),
        "expected": {
            "accuracy": number(accuracy_score(classes, predicted)),
            "f1": number(f1_score(classes, predicted, **more)),
            "precision": number(precision_score(classes, predicted, **more)),
            "recall": number(recall_score(classes, predicted, **more)),
            "matthews_correlation": number(matthews_corrcoef(classes, predicted)),
        },
    }


def label_case(rng, samples, labels, chance):
    logits = rng.integers(-6, 7, size=(samples, labels)) / 4
    values = (rng.random((samples, labels)) < chance).astype(int)
    predicted = np.where(logits > 0, 1, 0)
    more = dict(average="micro", zero_division=0)
    return {
        "logits": logits.tolist(),
        "values": values.tolist(),
        "expected": {
            "accuracy": number(accuracy_score(values, predicted)),
            "f1": number(f1_score(values, predicted, **more)),
            "precision": number(precision_score(values, predicted, **more)),
            "recall": number(recall_score(values, predicted, **more)),
        },
    }


def number_case(predicted, values):
    predicted, values = np.asarray(predicted, float), np.asarray(values, float)
    pearson = spearman = float("nan")
    if len(values) > 1:
        pearson, spearman = pearsonr(predicted, values)[0], spearmanr(predicted, values)[0]
    return {
        "logits": predicted.tolist(),
        "values": values.tolist(),
        "expected": {
            "mse": number(mean_squared_error(values, predicted)),
            "pearson": number(pearson),
            "spearmanr": number(spearman),
            "combined_score": number((pearson + spearman) / 2),
        },
    }


def entity_case(random_, names, rows, error):
    """Rows of random labels; the prediction changes some of them."""
    there, predicted = [], []
    for _ in range(rows):
        row = [random_.choice(names) for _ in range(random_.randint(0, 9))]
        there.append(row)
        predicted.append([random_.choice(names) if random_.random() < error else x for x in row])
    report = classification_report(there, predicted, output_dict=True)
    expected = {}
    for type_, score in report.items():
        if type_.endswith(" avg"):
            continue
        for ours, theirs in (("precision",) * 2, ("recall",) * 2, ("f1", "f1-score")):
            expected[f"{type_}_{ours}"] = number(score[theirs])
        expected[f"{type_}_number"] = int(score["support"])
    for ours, theirs in (("precision",) * 2, ("recall",) * 2, ("f1", "f1-score")):
        expected[f"overall_{ours}"] = number(report["micro avg"][theirs])
    expected["overall_accuracy"] = number(token_accuracy(there, predicted))
    return {"names": names, "there": there, "predicted": predicted, "expected": expected}


CONTEXTS = [
    "The Tower of London is a castle on the north bank of the River Thames.",
    "東京スカイツリーの高さは634メートルで、2012年2月29日に竣工した。",
    "Él nació en Łódź, a city — the third-largest — of Poland; in 1887 …",
]


def pieces(random_, context):
    """Splits into parts of 1 to 4 code points without white space, as offsets."""
    offsets, at = [], 0
    while at < len(context):
        if context[at] == " ":
            at += 1
            continue
        end = min(at + random_.randint(1, 4), len(context))
        offsets.append((at, end))
        at = end
    return offsets


def distinct(random_, count, spread):
    """Distinct numbers for a row, because numpy's argsort does not order equal ones."""
    values = random_.sample(range(-spread * 16, spread * 16), count)
    return [value / 16 for value in values]


def question(random_, number_, version_2):
    context = CONTEXTS[number_ % len(CONTEXTS)]
    offsets = pieces(random_, context)
    windows, first = [], 0
    size, shared = random_.randint(5, 12), random_.randint(0, 3)
    while True:
        part = offsets[first : first + size]
        mapping = [None] * random_.randint(1, 4) + part + [None]
        padded = len(mapping) + random_.randint(0, 2)
        spread = random_.choice((2, 6))
        windows.append(
            {
                "offset_mapping": mapping,
                "start": distinct(random_, padded, spread),
                "end": distinct(random_, padded, spread),
            }
        )
        first += size - shared
        if first + shared >= len(offsets):
            break
    answers = []
    if not (version_2 and random_.random() < 0.4):
        for _ in range(random_.randint(1, 3)):
            a = random_.randrange(len(offsets))
            b = min(a + random_.randint(0, 4), len(offsets) - 1)
            answers.append(context[offsets[a][0] : offsets[b][1]])
    return {"id": f"q{number_}", "context": context, "answers": answers, "windows": windows}


def answer_case(random_, utils_qa, squad, squad_v2, options, questions):
    version_2 = options["version_2_with_negative"]
    cases = [question(random_, i, version_2) for i in range(questions)]
    features, starts, ends = [], [], []
    for case in cases:
        for window in case["windows"]:
            features.append(
                {"example_id": case["id"], "offset_mapping": window["offset_mapping"]}
            )
            starts.append(np.array(window["start"], np.float32))
            ends.append(np.array(window["end"], np.float32))

    class Examples(list):
        def __getitem__(self, key):
            return [x[key] for x in self] if isinstance(key, str) else super().__getitem__(key)

    written = {}
    utils_qa.os = types.SimpleNamespace(
        path=types.SimpleNamespace(isdir=lambda _: True, join=lambda _, name: name)
    )
    utils_qa.open = lambda name, _: Capture(written, name)
    utils_qa.postprocess_qa_predictions(
        Examples(cases), features, (starts, ends), output_dir="here", **options
    )
    predictions = json.loads(written["predictions.json"])
    # Some right answers are predicted ones, so that scores are not all 0.
    for i, case in enumerate(cases):
        found = predictions[case["id"]]
        if i % 3 == 0 and found and (case["answers"] or not version_2):
            case["answers"].append(f"The {found}!")
    references = [{"id": c["id"], "answers": {"text": c["answers"]}} for c in cases]
    if version_2:
        scores = squad_v2_scores(squad_v2, predictions, references)
    else:
        for reference in references:
            reference["answers"] = [{"text": t} for t in reference["answers"]["text"]]
        scores = squad.compute_score([{"paragraphs": [{"qas": references}]}], predictions)
    nbest = json.loads(written["nbest_predictions.json"])
    odds = json.loads(written["null_odds.json"]) if version_2 else {}
    for case in cases:
        case["expected"] = {
            "text": predictions[case["id"]],
            "null_odds": odds.get(case["id"]),
            "n_best": [
                [c["text"], c["start_logit"], c["end_logit"], round(c["probability"], 8)]
                for c in nbest[case["id"]]
            ],
        }
        to_bytes = [len(case["context"][:i].encode()) for i in range(len(case["context"]) + 1)]
        for window in case["windows"]:
            window["ranges"] = [
                o and [to_bytes[o[0]], to_bytes[o[1]]] for o in window.pop("offset_mapping")
            ]
    return {"options": options, "questions": cases, "scores": scores}


class Capture:
    def __init__(self, written, name):
        self.written, self.name = written, name

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def write(self, text):
        self.written[self.name] = self.written.get(self.name, "") + text


def squad_v2_scores(m, predictions, references):
    """SquadV2._compute of evaluate, with run_qa's no_answer_probability of 0."""
    dataset = [{"paragraphs": [{"qas": references}]}]
    chances = dict.fromkeys(predictions, 0.0)
    has_answer = m.make_qid_to_has_ans(dataset)
    exact_raw, f1_raw = m.get_raw_scores(dataset, predictions)
    exact = m.apply_no_ans_threshold(exact_raw, chances, has_answer, 1.0)
    f1 = m.apply_no_ans_threshold(f1_raw, chances, has_answer, 1.0)
    result = m.make_eval_dict(exact, f1)
    for name, there in (("HasAns", True), ("NoAns", False)):
        ids = [k for k, v in has_answer.items() if bool(v) == there]
        if ids:
            m.merge_eval(result, m.make_eval_dict(exact, f1, qid_list=ids), name)
    m.find_all_best_thresh(result, predictions, exact_raw, f1_raw, chances, has_answer)
    return dict(result)


TEXTS = [
    "",
    "The",
    "the  Theatre of a\tthe An",
    "a-an the_the 'a'",
    "An a\u3000のthe\u00a0aの a1 the2 \u00e9a ÉA",
    "Don't U.S.A. (1,234.5%) $5!",
    "ＴＨＥ　Ａ　「東京」、タワー。",
    "İSTANBUL ÀÉÎ ǅ ẞ Ω",
    "x\x1cy\x1fz\u2028w\u200bv \u0085u",
    "a\u0301 the\u0301 an. ½a ٣the",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--evaluate", type=Path, required=True)
    parser.add_argument("--utils-qa", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1, help="other cases, to try them once")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    sys.modules.setdefault("tqdm.auto", types.SimpleNamespace(tqdm=lambda x: x))
    squad = load(args.evaluate / "metrics/squad/compute_score.py", "squad")
    squad_v2 = load(args.evaluate / "metrics/squad_v2/compute_score.py", "squad_v2")
    utils_qa = load(args.utils_qa, "utils_qa")
    rng, random_ = np.random.default_rng(args.seed), random.Random(args.seed + 1)

    values = rng.integers(0, 11, size=12) / 2
    iob = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    schemes = [
        iob,
        ["O", "B-A", "I-A", "E-A", "S-A", "I-B-C", "E-B-C"],
        ["O", "B", "I", "E", "S", "B-", "I-x"],
        ["O", "PER", "人名", "人-名", ".", "X", "L-A", "U-A", "I-A"],
        ["A", "B-A", "-", "E-A", ".-A"],
    ]
    base = dict(
        n_best_size=20,
        max_answer_length=30,
        version_2_with_negative=False,
        null_score_diff_threshold=0.0,
    )
    goldens = {
        "classes": [
            class_case(rng, 16, 2, [0, 1]),
            class_case(rng, 9, 2, [0]),
            class_case(rng, 5, 2, [1]),
            class_case(rng, 20, 3, [0, 1, 2]),
            class_case(rng, 12, 6, [1, 4]),
            class_case(rng, 1, 3, [2]),
        ],
        "labels": [
            label_case(rng, 12, 4, 0.4),
            label_case(rng, 6, 2, 0.0),
            label_case(rng, 5, 3, 1.0),
        ],
        "numbers": [
            number_case(rng.normal(size=12).astype(np.float32), values),
            number_case(values + rng.integers(-2, 3, size=12), values),
            number_case(values, values),
            number_case(-values[:2], values[:2]),
            number_case([np.float32(0.1)] * 7, rng.integers(0, 3, size=7)),
            number_case(rng.integers(0, 3, size=7), [2.5] * 7),
            number_case([1.5], [2.0]),
        ],
        "entities": [
            entity_case(random_, names, rows, error)
            for names in schemes
            for rows, error in ((6, 0.3), (12, 0.6))
        ]
        + [entity_case(random_, ["O"], 2, 0.0), entity_case(random_, iob, 8, 0.0)],
        "normalized": [[text, squad.normalize_answer(text)] for text in TEXTS],
        "answers": [
            answer_case(random_, utils_qa, squad, squad_v2, {**base, **more}, 6)
            for more in (
                {},
                dict(n_best_size=3, max_answer_length=2),
                dict(version_2_with_negative=True, n_best_size=5),
                dict(version_2_with_negative=True, null_score_diff_threshold=-6.0, n_best_size=2),
                dict(version_2_with_negative=True, max_answer_length=1, n_best_size=1),
            )
        ],
    }
    OUTPUT.write_text(json.dumps(goldens, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(OUTPUT, OUTPUT.stat().st_size)


if __name__ == "__main__":
    main()
