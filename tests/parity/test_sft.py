# SPDX-License-Identifier: MIT
"""Chat data: rendered text, ids, labels and training are those of TRL's SFTTrainer.

The templates of TRL's package (61 of text models) are rendered with conversations of every kind;
labels are compared where a template marks what the assistant says.
"""

import json
import random
import re
import sys
import unittest
from pathlib import Path

import torch
import trl
from support import ROOT, ParityTest, run_binary, state
from tokenizers import AddedToken, Tokenizer

TEMPLATES = Path(trl.__file__).parent / "chat_templates"
# The templates of real models in llama.cpp's sources, which scripts/setup.sh takes out of a package on PyPI.
MORE_TEMPLATES = Path(sys.prefix) / "chat_templates"
TOKENIZER = ROOT / "tests" / "fixtures" / "tokenizers" / "causal"
SPECIAL = re.compile(r"<[|｜][^<>\s]*?[|｜]>|<\w+_of_turn>|<turn\|>|<\|turn>|\[/?INST\]")
MULTIMODAL = {"idefics3", "llava_next", "smolvlm", "lfm2_2_5_vl", "qwen2_5_vl", "qwen3_vl"}
TINY = dict(
    vocab_size=640,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    hidden_size=64,
    intermediate_size=128,
    max_position_embeddings=512,
)
CHAT = [
    {"role": "system", "content": "Answer briefly."},
    {"role": "user", "content": "Who keeps the lighthouse?"},
    {"role": "assistant", "content": "The old keeper."},
    {"role": "user", "content": "Where does he live?"},
    {"role": "assistant", "content": "In the tower, above the sea."},
]


def text_templates():
    """Name and path of each template of a text model."""
    for path in sorted(TEMPLATES.glob("*.jinja")):
        if path.stem.removesuffix("_training") not in MULTIMODAL:
            yield path.stem, path


def conversations(count, seed=20261125):
    """Rows with tools, reasoning, parts, null, Unicode, and roles in and out of order."""
    pick = random.Random(seed)
    pool = ["hello", "world", "  ", "\n", "<b>&'\"", "日本語", "naïve", "{{ x }}", "\\", "\t", "😀", "</think>", "end "]

    def words(most):
        return "".join(pick.choice(pool) for _ in range(pick.randint(0, most)))

    def call():
        arguments = pick.choice([{}, {"city": words(2)}, {"n": 3, "deep": {"a": [1, 2.5, None], "b": True}}])
        return {"type": "function", "function": {"name": "f", "arguments": pick.choice([arguments, json.dumps(arguments)])}}

    def content():
        return [{"type": "text", "text": words(4)}] if pick.random() < 0.1 else words(6)

    rows = []
    for _ in range(count):
        messages = [{"role": "system", "content": words(4)}] if pick.random() < 0.5 else []
        for _ in range(pick.randint(1, 3)):
            messages.append({"role": "user", "content": content()})
            answer = {"role": "assistant", "content": content()}
            if pick.random() < 0.3:
                answer["reasoning_content"] = words(4)
            if pick.random() < 0.2:
                answer["tool_calls"] = [call() for _ in range(pick.randint(1, 2))]
            messages.append(answer)
            if "tool_calls" in answer:
                messages.append({"role": "tool", "content": words(3), "name": "f"})
        if pick.random() < 0.1:
            pick.shuffle(messages)
        row = {"messages": messages}
        if pick.random() < 0.2:
            row["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": "f",
                        "description": words(3),
                        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
                    },
                }
            ]
        if pick.random() < 0.3:
            add_nulls(row["messages"], pick)
        rows.append(row)
    return rows


def add_nulls(messages, pick):
    """Keys with null, as OpenAI writes them, and as Arrow pads the messages of a column."""
    for message in messages:
        for key in ("tool_calls", "name", "reasoning_content", "function_call"):
            if key not in message and pick.random() < 0.7:
                message[key] = None
        if "tool_calls" in message and message["tool_calls"] and pick.random() < 0.7:
            message["content"] = None


class Sft(ParityTest):
    def setUp(self):
        super().setUp()
        self.tokenizer_folder = self.folder / "tokenizer"
        self.make_tokenizer(self.tokenizer_folder, ["<|im_start|>", "<|im_end|>"])

    def make_tokenizer(self, folder, special):
        """The causal tokenizer with more special tokens, as AutoTokenizer reads it."""
        from transformers import PreTrainedTokenizerFast

        tokenizer = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))
        tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>").save_pretrained(
            folder
        )

    def config(self, name, rows, **more):
        data = self.folder / "rows.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        keys = {
            "task": "sft",
            "train_file": str(data),
            "tokenizer_name": str(self.tokenizer_folder),
            "model_type": "llama",
            "config_overrides": {**TINY, "vocab_size": 800},
            "max_seq_length": 512,
            "output_dir": str(self.folder / name),
            "cache_dir": str(self.folder / "cache"),
            "report_to": "none",
            "use_cpu": True,
            "seed": 1,
            **more,
        }
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(keys))
        return path

    def prepared(self, name, rows, **more):
        """The rows that training reads: input_ids, labels, text."""
        out = self.folder / f"{name}-out.jsonl"
        run_binary("prepare", self.config(name, rows, **more), "--rows", out)
        return [json.loads(line) for line in out.read_text().splitlines()]

    def test_templates_of_trl(self):
        """Every text, and every mask where the template has marks, is transformers'."""
        compared, masks = self.compare_templates(text_templates(), conversations(60))
        self.assertGreater(compared, 2000)
        self.assertGreater(masks, 800)

    def test_templates_of_real_models(self):
        paths = [(path.stem, path) for path in sorted(MORE_TEMPLATES.glob("*.jinja"))]
        self.assertGreaterEqual(len(paths), 70, f"{MORE_TEMPLATES}: scripts/setup.sh fetches them")
        compared, _ = self.compare_templates(paths, conversations(40, seed=20261128))
        self.assertGreater(compared, 1400)

    def compare_templates(self, templates, rows):
        """Returns how many samples, and how many masks, are the same."""
        from transformers import AutoTokenizer

        compared = masks = 0
        for name, path in templates:
            with self.subTest(name):
                template = path.read_text()
                folder = self.folder / f"tokenizer-{name}"
                self.make_tokenizer(folder, sorted(set(SPECIAL.findall(template))))
                self.tokenizer_folder = folder
                tokenizer = AutoTokenizer.from_pretrained(folder)
                has_marks = "generation %}" in template or "generation -%}" in template
                theirs = []
                for row in rows:
                    try:
                        encoded = tokenizer.apply_chat_template(
                            row["messages"],
                            tools=row.get("tools"),
                            chat_template=template,
                            tokenize=True,
                            return_dict=True,
                            return_assistant_tokens_mask=has_marks,
                        )
                    except Exception:  # the template refuses the conversation
                        continue
                    labels = encoded["input_ids"]
                    if has_marks:
                        labels = [i if m else -100 for i, m in zip(labels, encoded["assistant_masks"])]
                        self.complete_characters(labels, encoded["input_ids"], tokenizer, template, row)
                    if any(label != -100 for label in labels[1:]):
                        theirs.append((encoded["input_ids"], labels))
                keys = {
                    "chat_template_path": str(path),
                    "assistant_only_loss": has_marks,
                    "skip_bad_rows": True,
                    "max_seq_length": 8192,
                    "config_overrides": {**TINY, "vocab_size": 800, "max_position_embeddings": 8192},
                }
                if not theirs:  # written for other conversations: both refuse every one of these
                    run_binary("prepare", self.config(name, rows, **keys), expect=2)
                    continue
                ours = self.prepared(name, rows, **keys)
                self.assertEqual([(row["input_ids"], row["labels"]) for row in ours], theirs)
                compared += len(ours)
                masks += len(ours) if has_marks else 0
        return compared, masks

    def test_a_template_of_its_own_for_tools(self):
        """Of a list of templates transformers takes "tool_use" for conversations with tools, as here, also from
        the folder that is the result."""
        from transformers import AutoTokenizer

        names = {
            "default": (TEMPLATES / "qwen2_5_training.jinja").read_text(),
            "tool_use": "  {# calls #}\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}\n"
            "{%- for m in messages %}\n  {{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}\r\n",
        }
        path = self.tokenizer_folder / "tokenizer_config.json"
        config = json.loads(path.read_text())
        config["chat_template"] = [{"name": name, "template": text} for name, text in names.items()]
        path.write_text(json.dumps(config))
        tools = [{"type": "function", "function": {"name": "lamp", "parameters": {}}}]
        rows = [{"messages": CHAT}, {"messages": CHAT, "tools": tools}]
        tokenizer = AutoTokenizer.from_pretrained(self.tokenizer_folder)
        self.assertEqual(sorted(tokenizer.chat_template), ["default", "tool_use"])

        def rendered(of):
            return [of.apply_chat_template(r["messages"], tools=r.get("tools"), tokenize=False) for r in rows]

        theirs = rendered(tokenizer)
        self.assertIn("lamp", theirs[1])
        run_binary("train", self.config("list", rows, max_steps=1, per_device_train_batch_size=2))
        self.assertEqual([row["text"] for row in self.prepared("list", rows)], theirs)
        self.assertEqual(rendered(AutoTokenizer.from_pretrained(self.folder / "list")), theirs)
        # The marks of one template say nothing of the other.
        answers = self.prepared("answers", rows, assistant_only_loss=True)
        self.assertEqual([any(label != -100 for label in row["labels"]) for row in answers], [True, True])
        (path.parent / "chat_template.jinja").write_text(names["default"])
        more = path.parent / "additional_chat_templates"
        more.mkdir()
        (more / "tool_use.jinja").write_text(names["tool_use"])
        self.assertEqual([row["text"] for row in self.prepared("folder", rows)], theirs)

    def complete_characters(self, labels, ids, tokenizer, template, row):
        """transformers leaves out the last tokens of a character that ends what is marked."""
        text = tokenizer.apply_chat_template(row["messages"], tools=row.get("tools"), chat_template=template, tokenize=False)
        spans = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        for i in range(1, len(ids)):
            if spans[i] == spans[i - 1] and labels[i - 1] != -100:
                labels[i] = ids[i]

    def sft_dataset(self, rows, template, **more):
        """What SFTTrainer prepares."""
        return self.sft_trainer(rows, template, self.folder / "theirs", **more).train_dataset

    def sft_trainer(self, rows, template, output, model=None, peft_config=None, **more):
        from datasets import Dataset
        from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

        tokenizer = AutoTokenizer.from_pretrained(self.tokenizer_folder)
        tokenizer.chat_template = template
        if model is None:
            model = LlamaForCausalLM(LlamaConfig(**{**TINY, "vocab_size": 800}))
        arguments = dict(
            output_dir=str(output),
            report_to="none",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            max_length=512,
            disable_tqdm=True,
            save_strategy="no",
            dataset_num_proc=None,
        )
        return trl.SFTTrainer(
            model=model,
            args=trl.SFTConfig(**{**arguments, **more}),
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            peft_config=peft_config,
        )

    def check_rows(self, rows, template, ours_keys, theirs_keys):
        path = self.folder / "template.jinja"
        path.write_text(template)
        ours = self.prepared("rows", rows, chat_template_path=str(path), **ours_keys)
        theirs = self.sft_dataset(rows, template, **theirs_keys)
        self.assertEqual([row["input_ids"] for row in ours], list(theirs["input_ids"]))
        self.assertEqual([row["labels"] for row in ours], list(theirs["labels"]))

    def test_rows_of_every_shape(self):
        template = (TEMPLATES / "qwen2_5_training.jinja").read_text()
        messages = [{"messages": CHAT}, {"messages": CHAT[1:3]}]
        completion = [{"prompt": CHAT[:2], "completion": CHAT[2:3]}, {"prompt": CHAT[1:4], "completion": CHAT[4:]}]
        text = [{"prompt": "The sea is", "completion": " wide and deep."}, {"prompt": "A boat", "completion": " brings oil."}]
        plain = [{"text": "The lamp was lit every night."}, {"text": "The bell rang.</s>"}]
        for name, rows, keys in [
            ("messages", messages, {}),
            ("assistant only", messages, {"assistant_only_loss": True}),
            ("prompt and completion as messages", completion, {}),
            ("both", completion, {"assistant_only_loss": True}),
            ("whole", completion, {"completion_only_loss": False}),
            ("prompt and completion", text, {}),
            ("text", plain, {}),
        ]:
            with self.subTest(name):
                self.check_rows(rows, template, keys, keys)
        with self.subTest("wrapped"):
            keys = {"packing": True, "packing_strategy": "wrapped"}
            self.check_rows(messages * 3, template, {**keys, "max_seq_length": 50}, {**keys, "max_length": 50})
        with self.subTest("ShareGPT"):
            share_gpt = [{"conversations": [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Hi"}]}]
            as_messages = [{"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]}]
            path = self.folder / "template.jinja"
            path.write_text(template)
            ours = self.prepared("share_gpt", share_gpt, chat_template_path=str(path), assistant_only_loss=True)
            theirs = self.sft_dataset(as_messages, template, assistant_only_loss=True)
            self.assertEqual(ours[0]["labels"], theirs["labels"][0])

    def check_training(self, name, ours_keys, peft_config=None):
        """12 updates: losses within 1e-3, gradient norms within 1e-2 (float32 sums in another order)."""
        from transformers import LlamaConfig, LlamaForCausalLM

        template = (TEMPLATES / "qwen2_5_training.jinja").read_text()
        path = self.folder / "template.jinja"
        path.write_text(template)
        rows = [{"messages": CHAT[: 3 if i % 2 else 5]} for i in range(8)]
        for i, row in enumerate(rows):
            row["messages"] = [dict(m, content=m["content"] + " " + "very" * (i % 3)) for m in row["messages"]]
        torch.manual_seed(0)
        start = self.folder / f"start-{name}"
        LlamaForCausalLM(LlamaConfig(**{**TINY, "vocab_size": 800}, eos_token_id=2, pad_token_id=1)).save_pretrained(start)
        model = LlamaForCausalLM.from_pretrained(start, dtype=torch.float32)
        shared = dict(
            max_steps=12,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            learning_rate=1e-3,
            logging_steps=1,
            assistant_only_loss=True,
            train_sampling_strategy="sequential",
        )
        trainer = self.sft_trainer(rows, template, self.folder / "theirs", model=model, peft_config=peft_config, **shared)
        extra = {}
        if peft_config is not None:
            trainer.model.save_pretrained(self.folder / "adapter")
            extra = {"use_peft": True, "adapter_name_or_path": str(self.folder / "adapter")}
        trainer.train()
        theirs_eval = trainer.evaluate(trainer.train_dataset)
        config = self.config(
            f"ours-{name}",
            rows,
            **shared,
            **extra,
            **ours_keys,
            model_name_or_path=str(start),
            model_type=None,
            config_overrides=None,
            chat_template_path=str(path),
            save_strategy="no",
            validation_file=str(self.folder / "rows.jsonl"),
            eval_strategy="steps",
            eval_steps=12,
            per_device_eval_batch_size=len(rows),
        )
        run_binary("train", config)
        ours = state(self.folder / f"ours-{name}")["log_history"]
        theirs = trainer.state.log_history
        for mine, golden in zip(ours[:12], theirs[:12]):
            self.assertEqual(mine["step"], golden["step"])
            self.assert_relative(mine["loss"], golden["loss"], 1e-3, f"step {golden['step']}: loss")
            self.assert_relative(mine["grad_norm"], golden["grad_norm"], 1e-2, f"step {golden['step']}: norm")
        evaluated = next(one for one in ours if "eval_loss" in one)
        for key in ("eval_loss", "eval_entropy", "eval_mean_token_accuracy"):
            self.assert_relative(evaluated[key], theirs_eval[key], 2e-3, key)

    def test_training_of_all_weights(self):
        self.check_training("full", {})

    def test_training_of_an_adapter(self):
        from peft import LoraConfig

        self.check_training(
            "lora",
            {},
            LoraConfig(
                r=4,
                lora_alpha=8,
                target_modules="all-linear",
                task_type="CAUSAL_LM",
                lora_dropout=0.0,
                init_lora_weights="gaussian",
            ),
        )

    def test_a_conversation_is_answered_as_generate_does(self):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        rows = [{"messages": CHAT[1:3]}, {"messages": CHAT[3:]}]
        config = self.config(
            "chat",
            rows,
            chat_template_path="chatml",
            assistant_only_loss=True,
            max_steps=30,
            learning_rate=3e-3,
            per_device_train_batch_size=2,
        )
        run_binary("train", config)
        folder = self.folder / "chat"
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        self.assertIn(tokenizer.convert_tokens_to_ids("<|im_end|>"), model.generation_config.eos_token_id)
        for row in rows:
            ids = tokenizer.apply_chat_template(
                row["messages"][:1], add_generation_prompt=True, return_tensors="pt", return_dict=True
            )["input_ids"]
            with torch.no_grad():
                theirs = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=32, do_sample=False)[
                    0, ids.shape[1] :
                ]
            out = run_binary("predict", folder, "--chat", "--max_new_tokens", 32, "--text", row["messages"][0]["content"])
            answer = json.loads(out)["messages"][-1]["content"]
            self.assertEqual(answer, tokenizer.decode(theirs, skip_special_tokens=True))


if __name__ == "__main__":
    unittest.main()
