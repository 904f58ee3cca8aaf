#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""transformers' side of scripts/bench: one job a process, described by a JSON file, answered as JSON.

    make      writes a model with random weights, which both programs start from
    train     updates by Trainer
    evaluate  the loss and the seconds of Trainer.evaluate()
    predict   the seconds of pipeline()
    generate  the seconds and the texts of greedy generate()
    products  CPU seconds of matrix products of given shapes: the limit of a training
    memory    GB a CPU second of reading and writing memory
"""

import json
import os
import sys
import time
from pathlib import Path

CLASSES = {
    "mlm": "AutoModelForMaskedLM",
    "clm": "AutoModelForCausalLM",
    "sequence_classification": "AutoModelForSequenceClassification",
    "multiple_choice": "AutoModelForMultipleChoice",
    "question_answering": "AutoModelForQuestionAnswering",
}


def model_class(task):
    import transformers

    return getattr(transformers, CLASSES[task])


def make(job):
    import torch
    from transformers import AutoConfig, PreTrainedTokenizerFast

    torch.manual_seed(0)
    special = dict(bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", unk_token="<unk>",
                   pad_token="<pad>", mask_token="<mask>")  # fmt: skip
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=job["tokenizer"], **special)
    config = AutoConfig.for_model(
        job["family"], bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id, **job["shape"],
    )  # fmt: skip
    if job["task"] == "sequence_classification":
        config.num_labels, config.problem_type = 1, "regression"
    model = model_class(job["task"]).from_config(config)
    model.save_pretrained(job["model"])
    tokenizer.save_pretrained(job["model"])
    return {"parameters": sum(p.numel() for p in model.parameters())}


def rows_of(job, tokenizer):
    """(rows, collator) of a job, made as the run_* scripts make them."""
    import japanese_peer
    from memory_peer import MaskedRows
    from transformers import DataCollatorWithPadding

    settings = {"max_seq_length": job["length"], "doc_stride": 32}
    if job["task"] == "mlm":
        rows = MaskedRows(job["rows"] * job["steps"], job["length"], job["vocab_size"])
        return rows, None
    if job["task"] == "multiple_choice":
        rows = japanese_peer.multiple_choice_rows(tokenizer, settings, Path(job["file"]))
        return rows, japanese_peer.MultipleChoiceCollator(tokenizer)
    make_rows = japanese_peer.pair_rows if job["task"] == "sequence_classification" else japanese_peer.QuestionRows
    padding = {"padding": "max_length", "max_length": job["length"]} if job.get("padded") else {}
    return make_rows(tokenizer, settings, Path(job["file"])), DataCollatorWithPadding(tokenizer, **padding)


def trainer_of(job):
    from transformers import AutoTokenizer, Trainer, TrainingArguments

    tokenizer = AutoTokenizer.from_pretrained(job["model"])
    rows, collator = rows_of(job, tokenizer)
    arguments = TrainingArguments(
        output_dir=job["output"],
        max_steps=job.get("steps", 1),
        per_device_train_batch_size=job["rows"],
        per_device_eval_batch_size=job["rows"],
        save_strategy="steps" if job.get("save") else "no",
        save_steps=job.get("save") or 500,
        learning_rate=1e-4,
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        **({job["precision"]: True} if job.get("precision") else {}),
    )
    model = model_class(job["task"]).from_pretrained(job["model"])
    return Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows, data_collator=collator)


def train(job):
    trainer = trainer_of(job)
    trainer.train(resume_from_checkpoint=job.get("resume"))
    return {"losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]}


def evaluate(job):
    trainer = trainer_of(job)
    start, cpu = time.perf_counter(), time.process_time()
    loss = trainer.evaluate()["eval_loss"]
    return {"loss": loss, "seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu,
            "samples": len(trainer.eval_dataset)}  # fmt: skip


def predict(job):
    from transformers import pipeline

    run = pipeline("text-classification", model=job["model"], device="cpu", batch_size=job["rows"])
    texts = Path(job["file"]).read_text(encoding="utf-8").splitlines()
    run(texts[:8])
    start, cpu = time.perf_counter(), time.process_time()
    answers = run(texts, function_to_apply="none")
    return {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu,
            "scores": [answer["score"] for answer in answers[:16]], "samples": len(texts)}  # fmt: skip


def generate(job):
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(job["model"])
    model = model_class("clm").from_pretrained(job["model"], dtype=torch.float32).eval()
    texts, tokens = [], 0
    start, cpu = time.perf_counter(), time.process_time()
    for prompt in Path(job["file"]).read_text(encoding="utf-8").splitlines():
        ids = torch.tensor([tokenizer(prompt)["input_ids"]])
        made = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=job["tokens"])
        texts.append(prompt + tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True))
        tokens += made.shape[1] - ids.shape[1]
    return {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu, "tokens": tokens,
            "texts": texts}  # fmt: skip


def products(job):
    """CPU seconds of all products of `shapes`, [[m, n, k, count], ...], by the median of a few turns each.

    Of torch's two libraries, BLAS and oneDNN, the one that is faster for a shape counts."""
    import statistics

    import torch

    total, flops = 0.0, 0
    for m, n, k, count in job["shapes"]:
        dtype = torch.bfloat16 if job.get("precision") == "bf16" else torch.float32
        a, b = torch.randn(m, k, dtype=dtype), torch.randn(k, n, dtype=dtype)
        out, transposed = torch.empty(m, n, dtype=dtype), b.t().contiguous()
        turns = max(1, round(2e9 / (2 * m * n * k)))  # a clock of the process counts whole milliseconds
        seconds = []
        for product in (lambda: torch.mm(a, b, out=out),
                        lambda: torch.ops.mkldnn._linear_pointwise(a, transposed, None, "none", [], "")):  # fmt: skip
            product()
            seconds.append([])
            for _ in range(5):
                cpu = time.process_time()
                for _ in range(turns):
                    product()
                seconds[-1].append((time.process_time() - cpu) / turns)
        total += count * min(statistics.median(turns) for turns in seconds)
        flops += 2 * m * n * k * count
    return {"cpu_seconds": total, "flops": flops}


def memory(_):
    import statistics

    import torch

    x, y = torch.randn(64 * 2**20), torch.empty(64 * 2**20)
    seconds = []
    for _ in range(7):
        cpu = time.process_time()
        y.copy_(x)
        seconds.append(time.process_time() - cpu)
    return {"gb_a_cpu_second": 8 * x.numel() / 1e9 / statistics.median(seconds[1:])}


JOBS = {"make": make, "train": train, "evaluate": evaluate, "predict": predict,
        "generate": generate, "products": products, "memory": memory}  # fmt: skip


def main():
    job = json.loads(Path(sys.argv[1]).read_text())
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    import torch

    torch.set_num_threads(job["threads"])
    Path(job["answer"]).write_text(json.dumps(JOBS[job["job"]](job)))


if __name__ == "__main__":
    main()
