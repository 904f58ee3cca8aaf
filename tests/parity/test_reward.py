# SPDX-License-Identifier: MIT
"""task: reward beside TRL's RewardTrainer: ids, losses, weights, metrics."""

import json

import torch
from support import ROOT, ParityTest, adam_steps, save_tiny_llama, weights

TOKENIZER = ROOT / "tests" / "fixtures" / "parity" / "tasks" / "llama" / "tokenizer"
ANSWERS = ROOT / "tests" / "fixtures" / "tasks" / "answers-train.jsonl"
STEPS, BATCH, RATE = 12, 8, 5e-4
# float32 sums in another order, over twelve steps of Adam.
LOSS, WEIGHT, METRIC = 1e-4, 2e-3, 1e-4
TEMPLATE = (
    "{% for m in messages %}{{ '<s>' + m['role'] + ': ' + m['content'] + '</s>' }}{% endfor %}"
)


def rows_of(is_chat):
    rows = []
    for i, line in enumerate(ANSWERS.read_text().splitlines()):
        row = json.loads(line)
        if is_chat:
            said = {name: [{"role": "assistant", "content": row[name]}] for name in ("answer", "wrong")}
            prompt = [{"role": "user", "content": row["question"]}]
            rows.append({"prompt": prompt, "chosen": said["answer"], "rejected": said["wrong"],
                         "margin": 0.25 * (i % 3)})  # fmt: skip
        else:
            rows.append({"prompt": row["question"] + " ", "chosen": row["answer"], "rejected": row["wrong"]})
    return rows


def start(folder):
    save_tiny_llama(folder / "start", TOKENIZER, TEMPLATE, "LlamaForSequenceClassification", num_labels=1)


def train_theirs(folder, rows, coefficient):
    from datasets import Dataset
    from transformers import AutoTokenizer, LlamaForSequenceClassification
    from trl import RewardConfig, RewardTrainer

    model = LlamaForSequenceClassification.from_pretrained(folder / "start", num_labels=1)
    trainer = RewardTrainer(
        model=model,
        args=RewardConfig(
            output_dir=str(folder / "theirs"),
            center_rewards_coefficient=coefficient,
            report_to="none",
            use_cpu=True,
            gradient_checkpointing=False,
            bf16=False,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(folder / "start"),
    )
    data = list(trainer.train_dataset)
    values = adam_steps(
        model, STEPS, BATCH, data, RATE, lambda batch: trainer.compute_loss(model, trainer.data_collator(batch))
    )
    model.eval()
    with torch.no_grad():
        rewards = model(**trainer.data_collator(data)).logits.view(2, -1)
    return model, values, rewards


class Reward(ParityTest):
    def check(self, is_chat, coefficient):
        start(self.folder)
        rows = rows_of(is_chat)
        model, theirs, rewards = train_theirs(self.folder, rows, coefficient)
        run = self.train_rows(
            rows,
            task="reward",
            validation_file=str(self.folder / "rows.jsonl"),
            center_rewards_coefficient=coefficient,
            per_device_train_batch_size=BATCH // 2,
            effective_batch_size=BATCH,
            max_seq_length=200,
            max_steps=STEPS,
            learning_rate=RATE,
            eval_strategy="steps",
            eval_steps=STEPS,
        )
        self.assert_same_losses(run, theirs, LOSS)
        self.assert_same_weights(weights(run), model.state_dict(), WEIGHT)
        results = json.loads((run / "eval_results.json").read_text())
        chosen, rejected = rewards
        expected = {
            "accuracy": (chosen > rejected).float().mean(),
            "margin": (chosen - rejected).mean(),
            "min_reward": rewards.min(),
            "mean_reward": rewards.mean(),
            "max_reward": rewards.max(),
        }
        for name, value in expected.items():
            delta = 10 * METRIC if name != "accuracy" else 2 / len(rows)
            self.assertAlmostEqual(results[f"eval_{name}"], float(value), delta=delta, msg=name)

    def test_texts(self):
        self.check(is_chat=False, coefficient=None)

    def test_conversations_with_margins_and_centering(self):
        self.check(is_chat=True, coefficient=0.05)
