#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Whether a model that configs/chat.yaml taught answers in the taught form and stops by itself.

Trains SmolLM2 on 500 questions of JCommonsenseQA for each seed, answers 100 others greedily, and
counts: answers that are a number and one of the five choices, answers whose number is that choice's, right
answers, and answers that end before the limit of tokens. A seed takes 25 minutes on one core.
Prints a Markdown table; exits with 1 if a limit is exceeded.

    scripts/make_smollm2.py smollm2
    scripts/bench/chat_answers.py --model smollm2 --data FOLDER   (jcommonsenseqa-{train,valid}.jsonl)

--trl trains with TRL's SFTTrainer and answers with transformers' generate() instead (Python with trl and peft).
SFTTrainer needs the marks of {% generation %} in SmolLM2's template, which this script adds.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
QUESTIONS = 100
FORM, STOPS = 0.95, 0.99  # least shares


def count(rows, answers):
    """Returns how many answers have the form, its number, the right answer, and an end."""
    form = number = right = stops = 0
    for row, answer in zip(rows, answers, strict=True):
        question, taught = (message["content"] for message in row["messages"])
        text = answer["messages"][-1]["content"]
        choices = re.findall(r"^\d\. (.*)$", question, re.MULTILINE)
        found = re.fullmatch(r"([1-5])\. (.+)", text)
        form += bool(found) and found[2] in choices
        number += bool(found) and choices[int(found[1]) - 1] == found[2]
        right += text == taught
        stops += len(text) < 64  # 256 tokens have more characters
    return form, number, right, stops


def answer_with_trl(model_folder, files, rows, out, seed):
    """Trains and answers as configs/chat.yaml says, with TRL."""
    import torch
    import trl
    from datasets import load_dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    plain = tokenizer.chat_template
    say = "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    if say not in plain:
        sys.exit("error: this is not SmolLM2's template")
    tokenizer.chat_template = plain.replace(
        say,
        "{% if message['role'] == 'assistant' %}{{'<|im_start|>assistant\n'}}{% generation %}"
        "{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}{% else %}" + say + "{% endif %}",
    )
    trainer = trl.SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32),
        args=trl.SFTConfig(
            output_dir=str(out.parent / f"trl-{seed}"), seed=seed, assistant_only_loss=True, max_length=512,
            packing=True, num_train_epochs=3, per_device_train_batch_size=1, gradient_accumulation_steps=8,
            learning_rate=2e-4, lr_scheduler_type="cosine", warmup_steps=0.05, save_strategy="no", report_to="none",
            use_cpu=True, bf16=False, gradient_checkpointing=False, disable_tqdm=True,
        ),
        train_dataset=load_dataset("json", data_files=str(files["train"]), split="train"),
        processing_class=tokenizer,
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear"),
    )  # fmt: skip
    trainer.train()
    model = trainer.model.eval()
    with out.open("w") as lines:
        for row in rows:
            question = row["messages"][:-1]
            encoded = tokenizer.apply_chat_template(
                question, chat_template=plain, add_generation_prompt=True, return_tensors="pt", return_dict=True
            )
            with torch.no_grad():
                ids = model.generate(**encoded, max_new_tokens=256, do_sample=False)[0]
            text = tokenizer.decode(ids[encoded["input_ids"].shape[1] :], skip_special_tokens=True)
            lines.write(json.dumps({"messages": [*question, {"role": "assistant", "content": text}]}) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--trl", action="store_true", help="train with TRL's SFTTrainer")
    options = parser.parse_args()
    failed = False
    print("| seed | taught form | with the choice's number | right | stops |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for split, rows in (("train", 500), ("valid", QUESTIONS)):
            files[split] = Path(folder) / f"{split}.jsonl"
            source = options.data / f"jcommonsenseqa-{split}.jsonl"
            subprocess.run([ROOT / "scripts" / "make_chat_rows.py", source, files[split], "--rows", str(rows)], check=True)
        rows = [json.loads(line) for line in files["valid"].read_text().splitlines()]
        for seed in options.seeds:
            run, out = Path(folder) / f"run-{seed}", Path(folder) / "answers.jsonl"
            if options.trl:
                answer_with_trl(options.model, files, rows, out, seed)
            else:
                keys = {"model_name_or_path": options.model, "train_file": files["train"],
                        "validation_file": files["valid"], "output_dir": run, "seed": seed}  # fmt: skip
                words = [word for key, value in keys.items() for word in (f"--{key}", str(value))]
                subprocess.run(
                    [options.binary, "train", ROOT / "configs" / "chat.yaml", *words], check=True, stderr=subprocess.DEVNULL
                )
                subprocess.run(
                    [options.binary, "predict", run, "--chat", "--input", files["valid"], "--output", out],
                    check=True,
                    stderr=subprocess.DEVNULL,
                )
            counts = count(rows, [json.loads(line) for line in out.read_text().splitlines()])
            print(f"| {seed} | " + " | ".join(f"{one} of {len(rows)}" for one in counts) + " |", flush=True)
            failed |= counts[0] < FORM * len(rows) or counts[3] < STOPS * len(rows)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
