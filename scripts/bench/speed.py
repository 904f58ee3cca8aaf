# SPDX-License-Identifier: MIT
"""Benches that run `finetune` and transformers alternately on the same files and weights.

A training's update is the difference between a run of many and a run of few updates, divided by the
difference in updates, so that starting a process counts for neither program. Before anything is
timed, both programs compute the loss of the same model on the same rows; they must agree.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The losses of two programs that add in another order; masks of mlm differ, hence its own bound.
SAME_LOSS = 1e-3
SAME_LOSS_IN_16_BITS = 1e-2
SAME_LOSS_OF_MASKS = 0.05

ENCODER = dict(num_hidden_layers=6, num_attention_heads=12, hidden_size=768, intermediate_size=3072,
               max_position_embeddings=514, type_vocab_size=1, vocab_size=8000)  # fmt: skip
TRAININGS = {
    "update-84m": dict(
        title="84M update, 16 x 128", task="mlm", family="roberta", shape={**ENCODER, "vocab_size": 52000},
        length=128, rows=16, steps=(1, 4), file="esperanto.txt",
    ),
    "classification": dict(
        title="classification, real lengths", task="sequence_classification", family="roberta", shape=ENCODER,
        length=128, rows=32, steps=(2, 12), file="jsts-train.jsonl",
    ),
    "choices": dict(
        title="multiple choice, real lengths", task="multiple_choice", family="roberta", shape=ENCODER,
        length=64, rows=8, steps=(2, 10), file="jcommonsenseqa-train.jsonl",
    ),
    "answers": dict(
        title="question answering, real lengths", task="question_answering", family="roberta", shape=ENCODER,
        length=384, rows=8, steps=(1, 5), file="jsquad-valid.json",
    ),
    "bigbird": dict(
        title="BigBird, 1 x 4,096", task="mlm", family="big_bird",
        shape=dict(num_hidden_layers=2, num_attention_heads=4, hidden_size=256, intermediate_size=1024,
                   max_position_embeddings=4098, vocab_size=8000, attention_type="block_sparse", block_size=64,
                   num_random_blocks=3),
        length=4096, rows=1, steps=(1, 4), file="esperanto.txt",
    ),
    "tiny": dict(
        title="tiny model (3 x 128), 8 x 32", task="mlm", family="roberta",
        shape=dict(num_hidden_layers=3, num_attention_heads=4, hidden_size=128, intermediate_size=512,
                   max_position_embeddings=66, type_vocab_size=1, vocab_size=1000),
        length=32, rows=8, steps=(20, 320), file="esperanto.txt",
    ),
}  # fmt: skip
# run_glue and run_qa pad to max_seq_length unless pad_to_max_length is set to false.
TRAININGS["run-glue"] = dict(
    TRAININGS["classification"], title="classification, padded to 128 as run_glue does by default", padded=True
)
TRAININGS["run-qa"] = dict(
    TRAININGS["answers"], title="question answering, padded to 384 as run_qa does by default", padded=True
)
# Both programs compute in bfloat16: for processors with AVX512-BF16 or AMX, and many times slower on others.
for base, padding in (("update-84m", ""), ("classification", ", real lengths")):
    TRAININGS[f"{base}-bf16"] = dict(
        TRAININGS[base], title=TRAININGS[base]["title"].removesuffix(padding) + f" in bf16{padding}", precision="bf16"
    )
# The shape of SmolLM2-135M. Its head is not tied to the embeddings, as with random weights every token would predict
# itself.
DECODER = dict(
    task="clm", family="llama",
    shape=dict(num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3, hidden_size=576,
               intermediate_size=1536, max_position_embeddings=2048, vocab_size=49152, tie_word_embeddings=False),
)  # fmt: skip
COLUMNS = {
    "mlm": {},
    "sequence_classification": dict(text_column="sentence1", text_pair_column="sentence2", label_column="label",
                                    problem_type="regression"),
    "multiple_choice": dict(context_column="question", choice_columns=[f"choice{i}" for i in range(5)],
                            label_column="label"),
    "question_answering": dict(doc_stride=32),
}  # fmt: skip


class Bench:
    """One run of scripts/bench: where things are, and how programs are started."""

    def __init__(self, args, folder):
        self.args, self.folder, self.parameters = args, folder, {}
        self.env = {**os.environ, "OMP_NUM_THREADS": str(args.threads), "HF_HUB_OFFLINE": "1",
                    "TOKENIZERS_PARALLELISM": "false"}  # fmt: skip

    def run(self, command):
        """(seconds, CPU seconds, peak MiB, standard output) of a process, which must exit with 0."""
        log = self.folder / "log"
        start = time.monotonic()
        with open(log, "wb") as errors:
            process = subprocess.Popen([str(c) for c in command], env=self.env, stdout=subprocess.PIPE, stderr=errors)
            output = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"error: {' '.join(map(str, command))} exited with {process.returncode}:\n"
                             + log.read_text(errors="replace")[-3000:])  # fmt: skip
        return time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, output

    def peer(self, job, **more):
        """(what run() returns, the answer) of a job of trainer_peer.py."""
        answer, file = self.folder / "answer.json", self.folder / "job.json"
        settings = {"job": job, "threads": self.args.threads, "answer": str(answer), **more}
        settings = {k: str(v) if isinstance(v, Path) else v for k, v in settings.items()}
        file.write_text(json.dumps(settings))
        usage = self.run([self.args.python, HERE / "trainer_peer.py", file])
        return usage, json.loads(answer.read_text())

    def ours(self, command, name, keys, fresh=True):
        """run() of a command with these keys; `fresh`: without what an earlier run left in output_dir."""
        if fresh and command == "train":
            shutil.rmtree(keys["output_dir"], ignore_errors=True)
        config = self.folder / f"{name}.json"
        keys = {k: str(v) if isinstance(v, Path) else v for k, v in keys.items()}
        config.write_text(json.dumps({"use_cpu": True, "report_to": "none", "disable_tqdm": True, **keys}))
        return self.run([self.args.binary, command, config])

    def data(self, name):
        path = self.args.data / name
        if not path.is_file():
            raise SystemExit(f"error: {path} does not exist: name a folder that has it with --data")
        return path

    def tokenizer(self, size):
        """tokenizer.json of a byte-level BPE, filled with unused tokens to `size`."""
        from memory import make_tokenizer

        texts = [self.data(n) for n in ("esperanto.txt", "japanese.txt")]
        text = self.folder / "text.txt"
        text.write_bytes(b"".join(t.read_bytes() for t in texts))
        return make_tokenizer(self.args, self.folder, text, size) / "tokenizer.json"

    def model(self, name, spec):
        """A folder with random weights and the tokenizer, made once."""
        folder = self.folder / f"model-{name}"
        if not folder.exists():
            shape = spec["shape"]
            _, made = self.peer("make", task=spec["task"], family=spec["family"], shape=shape, model=folder,
                                tokenizer=self.tokenizer(shape["vocab_size"]))  # fmt: skip
            self.parameters[name] = made["parameters"]
        return folder

    def keys(self, name, spec):
        """Keys of the configuration that say the same as the peer's job."""
        return {
            "task": spec["task"],
            "model_name_or_path": self.model(name, spec),
            "train_file": self.data(spec["file"]),
            "max_seq_length": spec["length"],
            "per_device_train_batch_size": spec["rows"],
            "per_device_eval_batch_size": spec["rows"],
            "learning_rate": 1e-4,
            "logging_steps": 1,
            "save_strategy": "no",
            "eval_strategy": "no",
            "cache_dir": self.folder / "cache",
            "output_dir": self.folder / f"out-{name}",
            "pad_to_max_length": spec.get("padded", False),
            **({spec["precision"]: True} if "precision" in spec else {}),
            **({"validation_split_percentage": 0} if spec["task"] == "mlm" else COLUMNS[spec["task"]]),
        }

    def job(self, name, spec, file=None):
        return {
            "task": spec["task"], "model": self.model(name, spec), "output": self.folder / "peer-out",
            "length": spec["length"], "rows": spec["rows"], "vocab_size": spec["shape"]["vocab_size"],
            "file": file or self.data(spec["file"]), "padded": spec.get("padded", False),
            "precision": spec.get("precision"),
        }  # fmt: skip

    def part_of(self, spec, samples):
        """A file with the first samples of a task's file."""
        source = self.data(spec["file"])
        path = self.folder / f"part-{samples}-{source.name}"
        if source.suffix == ".json":
            content, left = json.loads(source.read_text(encoding="utf-8")), samples
            for paragraph in (p for article in content["data"] for p in article["paragraphs"]):
                paragraph["qas"] = paragraph["qas"][:left]
                left -= len(paragraph["qas"])
            for article in content["data"]:
                article["paragraphs"] = [p for p in article["paragraphs"] if p["qas"]]
            content["data"] = [article for article in content["data"] if article["paragraphs"]]
            path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        else:
            lines = source.read_text(encoding="utf-8").splitlines()[:samples]
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path


def same_loss(bench, name, spec):
    """The losses that both programs compute before anything is trained, which must agree."""
    file = bench.part_of(spec, 64)
    keys = {**bench.keys(name, spec), "validation_file": file, "do_train": False}
    keys["output_dir"] = bench.folder / f"evaluated-{name}"
    if spec["task"] == "mlm":
        # Masks are random in both: only that both read the same weights can be seen.
        keys.update(max_steps=1, learning_rate=0.0, train_file=bench.data(spec["file"]))
        keys.pop("do_train"), keys.pop("validation_file")
        bench.ours("train", "same", keys)
        log = json.loads((bench.folder / f"evaluated-{name}" / "trainer_state.json").read_text())["log_history"]
        ours = next(entry["loss"] for entry in log if "loss" in entry)
        theirs = bench.peer("train", **bench.job(name, spec), steps=1)[1]["losses"][0]
        bound = SAME_LOSS_OF_MASKS
    else:
        output = bench.ours("evaluate", "same", keys)[3]
        ours = json.loads(output)["eval_loss"]
        theirs = bench.peer("evaluate", **bench.job(name, spec, file))[1]["loss"]
        bound = SAME_LOSS_IN_16_BITS if "precision" in spec else SAME_LOSS
    if abs(ours - theirs) > bound * max(1, abs(theirs)):
        raise SystemExit(f"error: {name}: finetune computes the loss {ours}, transformers {theirs}: not comparable")
    return {"finetune": ours, "transformers": theirs, "bound": bound}


def tokens_of(bench, name, spec):
    """Mean tokens of a sample without padding, by the peer's tokenizer."""
    if spec["task"] == "mlm":
        return spec["length"]
    code = (
        "import json, statistics, sys\nsys.path.insert(0, sys.argv[2])\nimport trainer_peer as p\n"
        "from transformers import AutoTokenizer\njob = json.load(open(sys.argv[1]))\n"
        "rows, _ = p.rows_of(job, AutoTokenizer.from_pretrained(job['model']))\n"
        "size = lambda ids: sum(map(len, ids)) if isinstance(ids[0], list) else len(ids)\n"
        "print(statistics.mean(size(rows[i]['input_ids']) for i in range(len(rows))))\n"
    )
    job = {k: str(v) if isinstance(v, Path) else v for k, v in bench.job(name, spec, bench.part_of(spec, 400)).items()}
    file = bench.folder / "tokens.json"
    file.write_text(json.dumps({**job, "steps": 1}))
    return float(bench.run([bench.args.python, "-c", code, file, HERE])[3])


def tokens_of_updates(output_dir, few, many):
    """Mean tokens, without padding, of the updates after the first `few`, which are the timed ones."""
    log = json.loads((output_dir / "trainer_state.json").read_text())["log_history"]
    seen = {entry["step"]: entry["num_input_tokens_seen"] for entry in log if "loss" in entry}
    return (seen[many] - seen[few]) / (many - few)


def products_of(spec, tokens):
    """[[m, n, k, count], ...] of the matrix products of an update: forward, and two of the same size backward."""
    shape = spec["shape"]
    rows = round(spec["rows"] * tokens)
    hidden, inner, layers = shape["hidden_size"], shape["intermediate_size"], shape["num_hidden_layers"]

    def three(m, n, k, count):
        return [[m, n, k, count], [m, k, n, count], [n, k, m, count]]

    shapes = three(rows, hidden, hidden, 4 * layers)
    shapes += three(rows, inner, hidden, layers) + three(rows, hidden, inner, layers)
    if spec["task"] == "mlm":
        predicted = round(0.15 * rows)
        shapes += three(predicted, hidden, hidden, 1) + three(predicted, shape["vocab_size"], hidden, 1)
    else:
        shapes += three(spec["rows"], hidden, hidden, 1)
    sequences = spec["rows"] * (5 if spec["task"] == "multiple_choice" else 1)
    length = round(rows / sequences)
    heads = shape["num_attention_heads"]
    seen = min(length, 8 * 64) if spec["family"] == "big_bird" else length  # BigBird: eight blocks of 64
    shapes += three(length, seen, hidden // heads, 2 * sequences * heads * layers)
    return shapes


def training(bench, name):
    spec = dict(TRAININGS[name])
    same = same_loss(bench, name, spec)
    keys, job = bench.keys(name, spec), bench.job(name, spec)
    keys["include_num_input_tokens_seen"] = "non_padding"
    found = {p: {"seconds": [], "cpu_seconds": [], "peak_mib": []} for p in ("finetune", "transformers")}
    few, many = spec["steps"] if not bench.args.quick else (1, 3)
    for _ in range(bench.args.rounds):
        for program, figures in found.items():
            usage = {}
            for steps in (few, many):
                if program == "finetune":
                    usage[steps] = bench.ours("train", name, {**keys, "max_steps": steps})
                else:
                    usage[steps] = bench.peer("train", **job, steps=steps)[0]
            figures["seconds"].append((usage[many][0] - usage[few][0]) / (many - few))
            figures["cpu_seconds"].append((usage[many][1] - usage[few][1]) / (many - few))
            figures["peak_mib"].append(usage[many][2])
            print(f"{name}, {program}: {figures['cpu_seconds'][-1]:.4f} CPU s an update", file=sys.stderr)
    tokens = tokens_of_updates(keys["output_dir"], few, many) / spec["rows"]
    limit = bench.peer("products", shapes=products_of(spec, tokens), precision=spec.get("precision"))[1]
    bandwidth = bench.peer("memory")[1]["gb_a_cpu_second"]
    parameters = bench.parameters[name]
    # AdamW reads weight, gradient and two moments and writes all but the gradient; the gradient is written once.
    adamw = parameters * 4 * 8 / 1e9 / bandwidth
    return {
        "title": spec["title"], "unit": "CPU s an update", "figure": "cpu_seconds", "same_loss": same, **found,
        "limit": limit["cpu_seconds"] + adamw,
        "limit_is": f"products {limit['cpu_seconds']:.4f} s, weights and moments {adamw:.4f} s at {bandwidth:.1f} GB/s",
        "parameters": parameters, "tokens_of_an_update": round(tokens * spec["rows"]),
    }  # fmt: skip


def start(bench):
    """Process start to the end of a run of one update of the tiny model; the limit is loading libtorch alone."""
    spec = dict(TRAININGS["tiny"])
    keys, job = {**bench.keys("tiny", spec), "max_steps": 1}, bench.job("tiny", spec)
    bench.ours("train", "start", keys)  # tokenised data are kept from here on, as in every further session
    found = {p: {"seconds": [], "cpu_seconds": [], "peak_mib": []} for p in ("finetune", "transformers", "limit")}
    for _ in range(bench.args.rounds):
        for program, figures in found.items():
            if program == "finetune":
                usage = bench.ours("train", "start", keys)
            elif program == "transformers":
                usage = bench.peer("train", **job, steps=1)[0]
            else:
                usage = bench.run([bench.args.binary, "--version"])
            for figure, value in zip(figures, usage):
                figures[figure].append(value)
    limit = found.pop("limit")["seconds"]
    return {"title": "process start, one update, end", "unit": "s", "figure": "seconds", **found,
            "limit": statistics.median(limit), "limit_is": "loading libtorch (finetune --version)"}  # fmt: skip


def resume(bench):
    """Process start to the end of one further update of the 84M model, from a checkpoint with AdamW's moments."""
    spec = dict(TRAININGS["update-84m"], rows=1, length=32)
    keys = {**bench.keys("update-84m", spec), "save_strategy": "steps", "save_steps": 1, "save_total_limit": 1}
    job = bench.job("update-84m", spec)
    found = {p: {"seconds": [], "cpu_seconds": [], "peak_mib": []} for p in ("finetune", "transformers")}
    bench.ours("train", "resume", {**keys, "max_steps": 1})
    bench.peer("train", **job, steps=1, save=1)
    size = sum(f.stat().st_size for f in (bench.folder / "out-update-84m" / "checkpoint-1").iterdir())
    for turn in range(bench.args.rounds):
        for program, figures in found.items():
            if program == "finetune":
                usage = bench.ours("train", "resume", {**keys, "max_steps": turn + 2}, fresh=False)
            else:
                last = bench.folder / "peer-out" / f"checkpoint-{turn + 1}"
                usage = bench.peer("train", **job, steps=turn + 2, save=1, resume=str(last))[0]
            for figure, value in zip(figures, usage):
                figures[figure].append(value)
    big = bench.folder / "disk"
    begin = time.monotonic()
    with open(big, "wb") as file:
        file.write(b"\1" * size)
        file.flush()
        os.fsync(file.fileno())
    written = time.monotonic() - begin
    big.unlink()
    return {"title": "resume the 84M model: read, one update of 1 x 32, save, end", "unit": "s", "figure": "seconds",
            **found, "limit": written, "limit_is": f"writing and syncing {size / 1e9:.2f} GB"}  # fmt: skip


def prediction(bench):
    """Samples a CPU second of `predict` beside pipeline(), at real lengths."""
    name, spec = "classification", dict(TRAININGS["classification"])
    model = bench.model(name, spec)
    count = 100 if bench.args.quick else 1000
    rows = [json.loads(line) for line in bench.data("jsts-valid.jsonl").read_text(encoding="utf-8").splitlines()]
    texts = [row["sentence1"] for row in rows[:count]]
    file, few = bench.folder / "sentences.txt", bench.folder / "few.txt"
    file.write_text("\n".join(texts) + "\n", encoding="utf-8")
    few.write_text("\n".join(texts[:8]) + "\n", encoding="utf-8")
    answers = bench.folder / "answers.jsonl"
    command = [bench.args.binary, "predict", model, "--use_cpu", "--batch_size", 32, "--function_to_apply", "none",
               "--output", answers, "--input"]  # fmt: skip
    found = {p: {"seconds": [], "cpu_seconds": []} for p in ("finetune", "transformers")}
    for _ in range(bench.args.rounds):
        base = bench.run([*command, few])
        usage = bench.run([*command, file])
        found["finetune"]["seconds"].append((usage[0] - base[0]) / (len(texts) - 8) * 1000)
        found["finetune"]["cpu_seconds"].append((usage[1] - base[1]) / (len(texts) - 8) * 1000)
        theirs = bench.peer("predict", model=model, file=file, rows=32)[1]
        for figure in ("seconds", "cpu_seconds"):
            found["transformers"][figure].append(theirs[figure] / len(texts) * 1000)
    mine = [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()[:16]]
    scores = [(row[0] if isinstance(row, list) else row)["score"] for row in mine]
    apart = max(abs(a - b) for a, b in zip(scores, theirs["scores"]))
    if apart > 1e-4:
        raise SystemExit(f"error: predict: scores differ by {apart}: {scores[:4]} and {theirs['scores'][:4]}")
    tokens = tokens_of(bench, name, spec) / 2  # one sentence of the pair
    shapes = products_of({**spec, "rows": 32}, tokens)[::3]  # forward alone
    limit = bench.peer("products", shapes=shapes)[1]["cpu_seconds"] / 32 * 1000
    return {"title": "predict, 1,000 sentences of real lengths", "unit": "CPU s", "figure": "cpu_seconds", **found,
            "same_scores": apart, "limit": limit, "limit_is": "products of the forward pass"}  # fmt: skip


def generation(bench):
    """CPU seconds of 1,000 tokens that a decoder generates greedily, beside generate(); both make the same texts."""
    model = bench.model("generation", DECODER)
    few, many = (8, 24) if bench.args.quick else (16, 144)
    prompts, answers = bench.folder / "prompts.txt", bench.folder / "texts.jsonl"
    lines = bench.data("esperanto.txt").read_text(encoding="utf-8").splitlines()
    prompts.write_text("".join(line + "\n" for line in lines if len(line) > 40)[:400].rpartition("\n")[0] + "\n",
                       encoding="utf-8")  # fmt: skip
    found = {p: {"seconds": [], "cpu_seconds": []} for p in ("finetune", "transformers")}
    for _ in range(bench.args.rounds):
        ours, theirs = [], []
        for tokens in (few, many):
            answers.unlink(missing_ok=True)
            ours.append(bench.run([bench.args.binary, "predict", model, "--use_cpu", "--do_sample", "false",
                                   "--max_new_tokens", tokens, "--input", prompts, "--output", answers]))  # fmt: skip
            theirs.append(bench.peer("generate", model=model, file=prompts, tokens=tokens)[1])
        texts = [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()]
        texts = [(row[0] if isinstance(row, list) else row)["generated_text"] for row in texts]
        if texts != theirs[1]["texts"]:
            raise SystemExit(f"error: generation: the texts differ: {texts[:1]} and {theirs[1]['texts'][:1]}")
        made = theirs[1]["tokens"] - theirs[0]["tokens"]
        for at, figure in enumerate(found["finetune"]):
            found["finetune"][figure].append((ours[1][at] - ours[0][at]) / made * 1000)
            found["transformers"][figure].append((theirs[1][figure] - theirs[0][figure]) / made * 1000)
        print(f"generation: {found['finetune']['cpu_seconds'][-1]:.2f} and "
              f"{found['transformers']['cpu_seconds'][-1]:.2f} CPU s for 1,000 tokens", file=sys.stderr)  # fmt: skip
    shape = DECODER["shape"]
    read = 4 * (bench.parameters["generation"] - shape["vocab_size"] * shape["hidden_size"])
    bandwidth = bench.peer("memory")[1]["gb_a_cpu_second"]
    return {"title": "generate 1,000 tokens greedily, SmolLM2-135M's shape", "unit": "CPU s", "figure": "cpu_seconds",
            **found, "same_texts": len(texts), "limit": read / 1e9 / bandwidth * 1000,
            "limit_is": f"reading the weights for each token at {bandwidth:.1f} GB/s"}  # fmt: skip


def evaluation(bench, name="classification"):
    """CPU seconds of the evaluation of 1,000 samples: `finetune evaluate` beside Trainer.evaluate()."""
    spec = dict(TRAININGS[name])
    count = 128 if bench.args.quick else 1000
    file, few = bench.part_of(spec, count), bench.part_of(spec, 8)
    keys = {**bench.keys(name, spec), "output_dir": bench.folder / f"evaluated-{name}"}
    found = {p: {"seconds": [], "cpu_seconds": []} for p in ("finetune", "transformers")}
    for _ in range(bench.args.rounds):
        usage = [bench.ours("evaluate", "evaluate", {**keys, "validation_file": f}) for f in (few, file)]
        for at, figure in enumerate(found["finetune"]):
            found["finetune"][figure].append((usage[1][at] - usage[0][at]) / (count - 8) * 1000)
        theirs = bench.peer("evaluate", **bench.job(name, spec, file))[1]
        for figure in ("seconds", "cpu_seconds"):
            found["transformers"][figure].append(theirs[figure] / count * 1000)
    shapes = products_of(spec, tokens_of(bench, name, spec))[::3]
    limit = bench.peer("products", shapes=shapes)[1]["cpu_seconds"] / spec["rows"] * 1000
    padding = "padded to 128 as run_glue does by default" if spec.get("padded") else "real lengths"
    return {"title": f"evaluate, 1,000 pairs, {padding}", "unit": "CPU s", "figure": "cpu_seconds", **found,
            "limit": limit, "limit_is": "products of the forward pass"}  # fmt: skip
