# SPDX-License-Identifier: MIT
"""Compares task clm with run_clm: the same blocks, the same training, the same generated text."""

import json
import os
import pty
import random
import select
import shutil
import subprocess
import time

import torch
from safetensors.torch import load_file
from support import ROOT, TEXT, ParityTest, run_binary, run_for_code, state, weights

TOKENIZER = ROOT / "tests" / "fixtures" / "tokenizers" / "lighthouse"
BLOCK = 32
STEPS = 20
EXPERTS = ("olmoe", "qwen3_moe")  # each a weight
# Its Trainer loads no weight that has another name in files, its own included.
RENAMED = ("granitemoe",)
# float32 sums in another order, through twenty steps of Adam.
WEIGHTS = 2e-3


def make_llama(folder, deviation=0.02):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=600,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        initializer_range=deviation,
        bos_token_id=0,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def make_gpt2(folder, deviation=0.02):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(7)
    config = GPT2Config(
        vocab_size=600,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        bos_token_id=0,
        eos_token_id=2,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        initializer_range=deviation,
    )
    GPT2LMHeadModel(config).save_pretrained(folder)


def maker(family, **more):
    """Returns a function that makes tiny models of a family with Llama's configuration names."""

    def make(folder, deviation=0.02):
        from transformers import AutoConfig, AutoModelForCausalLM

        torch.manual_seed(7)
        settings = {
            "vocab_size": 600,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 64,
            "initializer_range": deviation,
            "bos_token_id": 0,
            "eos_token_id": 2,
            "pad_token_id": 1,
            **more,
        }
        config = AutoConfig.for_model(family, **settings)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)

    return make


FAMILIES = {
    "llama": make_llama,
    "gpt2": make_gpt2,
    "mistral": maker("mistral", sliding_window=8, head_dim=8),
    "qwen2": maker("qwen2"),
    "qwen3": maker("qwen3", head_dim=16),
    "gemma": maker("gemma", head_dim=16),
    "gemma2": maker("gemma2", head_dim=16, sliding_window=8, query_pre_attn_scalar=16),
    "gemma3_text": maker("gemma3_text", head_dim=16, sliding_window=8, query_pre_attn_scalar=16),
    "phi3": maker("phi3", resid_pdrop=0.0, embd_pdrop=0.0),
    "olmo2": maker("olmo2"),
    "smollm3": maker("smollm3", no_rope_layers=[1, 0]),
    "ministral": maker("ministral", sliding_window=8, head_dim=8),
    "olmo3": maker("olmo3", sliding_window=8, layer_types=["sliding_attention", "full_attention"]),
    "granite": maker("granite", embedding_multiplier=4.0, logits_scaling=2.0, residual_multiplier=0.5,
                     attention_multiplier=0.25),
    "seed_oss": maker("seed_oss", head_dim=8, attention_dropout=0.0, residual_dropout=0.0),
    "glm4": maker("glm4", head_dim=8),
    "apertus": maker("apertus"),
    "helium": maker("helium", head_dim=8),
    "ernie4_5": maker("ernie4_5", head_dim=8),
    "starcoder2": maker("starcoder2", sliding_window=8),
    "arcee": maker("arcee"),
    "gpt_neox": maker("gpt_neox"),
    "phi": maker("phi"),
    "stablelm": maker("stablelm"),
    "exaone4": maker("exaone4", sliding_window=8, layer_types=["sliding_attention", "full_attention"]),
    "hunyuan_v1_dense": maker("hunyuan_v1_dense", head_dim=8, rope_parameters={
        "rope_type": "dynamic", "rope_theta": 1000.0, "alpha": 50.0, "factor": 1.0}),
    "ministral3": maker("ministral3", head_dim=8, rope_parameters={
        "rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "llama_4_scaling_beta": 0.5,
        "original_max_position_embeddings": 16}),
    "nanochat": maker("nanochat"),
    "qwen3_moe": maker("qwen3_moe", head_dim=8, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24,
                       norm_topk_prob=True, initializer_range=0.1),
    "olmoe": maker("olmoe", num_key_value_heads=4, num_experts=6, num_experts_per_tok=2, initializer_range=0.1),
    "granitemoe": maker("granitemoe", num_local_experts=6, num_experts_per_tok=2, initializer_range=0.1,
                        embedding_multiplier=4.0, logits_scaling=2.0, residual_multiplier=0.5,
                        attention_multiplier=0.3),
    "gpt_oss": maker("gpt_oss", head_dim=8, num_local_experts=6, num_experts_per_tok=2, initializer_range=0.1,
                     sliding_window=8, swiglu_limit=1.0, rope_parameters={
                         "rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "truncate": False,
                         "original_max_position_embeddings": 16}),
    "gemma3n_text": maker("gemma3n_text", num_hidden_layers=5, head_dim=8, num_kv_shared_layers=2, sliding_window=8,
                          layer_types=["sliding_attention", "full_attention"] * 2 + ["full_attention"],
                          activation_sparsity_pattern=[0.8, 0.8, 0.0, 0.0, 0.0], laurel_rank=4,
                          vocab_size_per_layer_input=590, hidden_size_per_layer_input=8),
    "gemma4_text": maker("gemma4_text", initializer_range=0.3, num_hidden_layers=6, head_dim=8, num_kv_shared_layers=3,
                         layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
                         per_layer_config={2: {"head_dim": 12}, 5: {"head_dim": 12}}, sliding_window=8,
                         final_logit_softcapping=30.0,
                         use_double_wide_mlp=True, vocab_size_per_layer_input=600,
                         hidden_size_per_layer_input=8),
    "lfm2": maker("lfm2", layer_types=["conv", "full_attention"], block_multiple_of=16),
    "qwen3_5_text": maker("qwen3_5_text", head_dim=8, layer_types=["linear_attention", "full_attention"],
                          linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2,
                          linear_num_value_heads=4),
    "modernbert-decoder": maker("modernbert-decoder", local_attention=16, cls_token_id=0, sep_token_id=2),
}


def known_families():
    """Returns those of these families that the binary supports."""
    schema = json.loads(run_binary("config", "schema"))
    known = schema["properties"]["model_type"]["anyOf"][0]["enum"]
    return {name: make for name, make in FAMILIES.items() if name in known}


def families_of(folders):
    """The families that a test trains: all, or those that FINETUNE_TEST_FAMILIES names."""
    named = os.environ.get("FINETUNE_TEST_FAMILIES")
    return [family for family in folders if not named or family in named.split(",")]


def make_base(family, folder):
    """A small model of a family with the tokenizer of the tests."""
    FAMILIES[family](folder, deviation=0.1)  # else all tokens are equally probable
    for file in TOKENIZER.iterdir():
        shutil.copy(file, folder)
    return folder


def mean_loss(model):
    """Of a model of transformers on the validation text."""
    model.eval()
    total = tokens = 0
    for block in blocks_of(TEXT / "lighthouse-valid.txt"):
        ids = torch.tensor([block])
        with torch.no_grad():
            logits = model(input_ids=ids).logits.float()
        total += float(torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="sum"))
        tokens += ids.numel() - 1
    return total / tokens


def blocks_of(path, keep_linebreaks=True, rows_of_group=1000):
    """run_clm's tokenize_function and group_texts."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    with path.open(encoding="utf-8") as file:
        lines = file.readlines()
    if not keep_linebreaks:
        lines = [line.rstrip("\n") for line in lines]
    blocks = []
    for start in range(0, len(lines), rows_of_group):
        group = lines[start : start + rows_of_group]
        ids = [token for line in group for token in tokenizer(line)["input_ids"]]
        blocks += [ids[i : i + BLOCK] for i in range(0, len(ids) // BLOCK * BLOCK, BLOCK)]
    return blocks


class Samples(torch.utils.data.Dataset):
    def __init__(self, blocks):
        self.blocks = blocks

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, index):
        ids = torch.tensor(self.blocks[index])
        return {"input_ids": ids, "labels": ids.clone()}


# Settings of both programs.
BOTH = {
    "train_sampling_strategy": "sequential",
    "max_steps": STEPS,
    "per_device_train_batch_size": 4,
    "per_device_eval_batch_size": 8,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "linear",
    "warmup_steps": 4,
    "weight_decay": 0.01,
    "logging_steps": 1,
    "eval_strategy": "steps",
    "eval_steps": 10,
    "save_strategy": "steps",
    "save_steps": 10,
    "report_to": "none",
    "use_cpu": True,
}


def moments(entry):
    """Returns a parameter's state; bitsandbytes adds a level to it."""
    return entry.get("__bnb_optimizer_quant_state__", entry)


class CausalLm(ParityTest):
    def setUp(self):
        super().setUp()
        self.models, self.talkers = {}, {}
        for family, make in known_families().items():
            folder = self.folder / family
            make(folder)
            for file in TOKENIZER.iterdir():
                shutil.copy(file, folder)
            self.models[family] = folder
            # Weights so large that tokens get distinct scores: generated texts do not repeat
            # themselves.
            self.talkers[family] = self.folder / f"{family}-talker"
            shutil.copytree(folder, self.talkers[family])
            make(self.talkers[family], deviation=0.5)

    def ours(self, family, name, **more):
        config = {
            "task": "clm",
            "model_name_or_path": str(self.models[family]),
            "train_file": str(TEXT / "lighthouse.txt"),
            "validation_file": str(TEXT / "lighthouse-valid.txt"),
            "block_size": BLOCK,
            "output_dir": str(self.folder / name),
            "cache_dir": str(self.folder / "cache"),
            **BOTH,
            **more,
        }
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(config, indent=1))
        run_binary("train", path)
        return self.folder / name

    def trainer(self, family, name, **more):
        from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

        torch.manual_seed(1)
        settings = {
            "output_dir": str(self.folder / name),
            **BOTH,
            "disable_tqdm": True,
            **more,
        }
        trainer = Trainer(
            model=AutoModelForCausalLM.from_pretrained(self.models[family]),
            args=TrainingArguments(**settings),
            train_dataset=Samples(blocks_of(TEXT / "lighthouse.txt")),
            eval_dataset=Samples(blocks_of(TEXT / "lighthouse-valid.txt")),
        )
        # Trainer 5.23 does not recognise that GPT2LMHeadModel's loss shifts the labels. It then
        # counts the first token of each block too: 32 targets instead of 31 here.
        trainer._loss_shifts_labels = True
        return trainer

    def check_training(self, family):
        theirs = self.trainer(family, f"theirs-{family}")
        theirs.train()
        output = self.ours(family, f"ours-{family}")
        ours = state(output)
        log = ours["log_history"]
        self.assert_same_log(log, theirs.state.log_history, family=family)
        # A sum of integers below 2^53.
        self.assertEqual(ours["total_flos"], theirs.state.total_flos)
        last = self.folder / f"theirs-{family}" / f"checkpoint-{STEPS}"
        # The file has GPT-NeoX's old name, which its own Trainer does not load again.
        final = {
            "lm_head.weight" if name == "embed_out.weight" else name: value
            for name, value in load_file(last / "model.safetensors").items()
        }
        self.assert_same_weights(weights(output), final, WEIGHTS)
        # Each step's tokens as TRL counts them; perplexity and accuracy as in run_clm.
        steps = [row for row in log if "loss" in row]
        self.assertEqual([row["num_tokens"] for row in steps], [4 * BLOCK * n for n in range(1, STEPS + 1)])
        self.check_metrics(theirs, [row for row in log if "eval_loss" in row][-1])
        self.check_both_ways(family, output, theirs)

    def test_8bit_states_are_of_the_parameters_that_bitsandbytes_quantises(self):
        """It keeps 32 bits for embeddings, whatever their names: embed_tokens, wte, wpe."""
        few = dict(optim="adamw_bnb_8bit", max_steps=2, save_steps=2, eval_strategy="no")
        for family in set(self.models) - set(EXPERTS):
            self.trainer(family, f"theirs-{family}-8bit", **few).train()
            output = self.ours(family, f"ours-{family}-8bit", **few)
            ours, theirs = (
                {
                    key: moments(entry)["state1"].dtype
                    for key, entry in torch.load(
                        folder / "checkpoint-2" / "optimizer.pt", weights_only=True
                    )["state"].items()
                }
                for folder in (output, self.folder / f"theirs-{family}-8bit")
            )
            self.assertEqual(ours, theirs, family)

    def check_metrics(self, theirs, row):
        right = total = 0
        for block in blocks_of(TEXT / "lighthouse-valid.txt"):
            ids = torch.tensor([block])
            with torch.no_grad():
                best = theirs.model(ids).logits.argmax(-1)
            right += int((best[:, :-1] == ids[:, 1:]).sum())
            total += ids.numel() - 1
        self.assertAlmostEqual(row["eval_accuracy"], right / total, delta=5e-3)
        self.assert_relative(row["eval_perplexity"], float(torch.tensor(row["eval_loss"]).exp()), 1e-5, "perplexity")

    def check_both_ways(self, family, output, theirs):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        log = theirs.state.log_history
        for folder in (output, output / "checkpoint-10"):
            _, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
            self.assertEqual({k: v for k, v in info.items() if v}, {})
            self.assertEqual(AutoTokenizer.from_pretrained(folder)("ab")["input_ids"],
                             AutoTokenizer.from_pretrained(TOKENIZER)("ab")["input_ids"])
        if family in EXPERTS:  # whose matrices are one parameter in transformers' optimizer
            self.assertFalse((output / "checkpoint-10" / "optimizer.pt").exists())
            resumed = self.ours(family, f"ours-{family}-resumed", resume_from_checkpoint=str(output / "checkpoint-10"))
            self.assert_same_weights(weights(resumed), weights(output), 0.0)
            return
        if family not in RENAMED:
            again = self.trainer(family, f"theirs-{family}-again")
            again.train(resume_from_checkpoint=str(output / "checkpoint-10"))
            self.assert_same_log(again.state.log_history, log, first_step=11)
        their_checkpoint = str(self.folder / f"theirs-{family}" / "checkpoint-10")
        resumed = self.ours(
            family, f"ours-{family}-again", resume_from_checkpoint=their_checkpoint
        )
        self.assert_same_log(state(resumed)["log_history"], log, first_step=11)

    def test_every_family_trains_as_trainer_does(self):
        self.assertIn("llama", self.models)
        for family in families_of(self.models):
            with self.subTest(family):
                self.check_training(family)

    def test_both_resume_a_sharded_bfloat16_checkpoint(self):
        """The format of a larger model in transformers: shards of bfloat16 with their index."""
        from transformers import AutoModelForCausalLM

        theirs = self.trainer("llama", "theirs")
        theirs.train()
        checkpoint = self.folder / "theirs" / "checkpoint-10"
        model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.bfloat16)
        (checkpoint / "model.safetensors").unlink()
        model.save_pretrained(checkpoint, max_shard_size="40KB")
        self.assertGreater(len(list(checkpoint.glob("model-0000*.safetensors"))), 1)
        again = self.trainer("llama", "theirs-again")
        again.train(resume_from_checkpoint=str(checkpoint))
        resumed = self.ours("llama", "ours", resume_from_checkpoint=str(checkpoint))
        self.assert_same_log(state(resumed)["log_history"], again.state.log_history, first_step=11)
        final = load_file(self.folder / "theirs-again" / f"checkpoint-{STEPS}" / "model.safetensors")
        self.assert_same_weights(weights(resumed), final, WEIGHTS)

    def test_blocks_are_run_clms(self):
        """More rows than a group has, with every kind of line ending; compares the first batch."""
        text = self.folder / "lines.txt"
        words = random.Random(3).choices(["light", "sea", "", "the keeper"], k=2500)
        text.write_bytes(b"".join(w.encode() + e for w, e in zip(words, [b"\n", b"\r\n", b"\r"] * 900)))
        for keeps in (True, False):
            blocks = blocks_of(text, keeps)
            output = self.ours("llama", f"blocks-{keeps}", train_file=str(text), max_steps=1,
                               eval_strategy="no", validation_file=str(text), do_eval=True,
                               keep_linebreaks=keeps, save_strategy="no")
            results = json.loads((output / "eval_results.json").read_text())
            self.assertEqual(results["eval_samples"], len(blocks))

    def generate(self, family, prompt, **more):
        """Greedy generation: the tokens that follow, and their text."""
        from transformers import AutoModelForCausalLM, AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(self.talkers[family])
        model = AutoModelForCausalLM.from_pretrained(self.talkers[family])
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            made = model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, pad_token_id=1, **more
            )
        made = made[0, ids.shape[1] :].tolist()
        return made, tokenizer.decode(made, skip_special_tokens=True)

    def test_greedy_text_is_transformers(self):
        prompts = ["The lighthouse", "At night the keeper", "sea"]
        for family in self.talkers:
            for more in ({}, {"repetition_penalty": 1.3}):
                options = [f"--{key}={value}" for key, value in more.items()]
                out = run_binary("predict", self.talkers[family], "--text", *prompts,
                                 "--max_new_tokens", "24", *options)
                answers = [json.loads(line) for line in out.decode().splitlines()]
                self.assertEqual(len(answers), len(prompts))
                for prompt, answer in zip(prompts, answers):
                    _, text = self.generate(family, prompt, max_new_tokens=24, **more)
                    self.assertEqual(answer, [{"generated_text": prompt + text}])

    def test_generation_config_ends_a_text(self):
        folder = self.talkers["llama"]
        ids, _ = self.generate("llama", "The lighthouse", max_new_tokens=12)
        self.assertGreater(len(set(ids)), 6)
        end = next(i for i in range(3, 12) if ids[i] not in ids[:i])
        (folder / "generation_config.json").write_text(
            json.dumps({"eos_token_id": [2, ids[end]], "max_new_tokens": 12})
        )
        made, text = self.generate("llama", "The lighthouse")
        self.assertEqual(len(made), end + 1)
        out = run_binary(
            "predict", folder, "--text", "The lighthouse", "--return_full_text", "false"
        )
        self.assertEqual(json.loads(out), [{"generated_text": text}])

    def test_sampling_is_a_function_of_seed_prompt_and_position(self):
        def sample(*prompts, seed="1", tokens="12"):
            out = run_binary("predict", self.talkers["llama"], "--text", *prompts, "--do_sample", "true",
                             "--max_new_tokens", tokens, "--seed", seed, "--return_full_text", "false")
            return [json.loads(line)[0]["generated_text"] for line in out.decode().splitlines()]

        both = sample("The sea", "The sea")
        self.assertEqual(both, sample("The sea", "The sea"))
        self.assertNotEqual(both[0], both[1], "the second prompt has its own numbers")
        self.assertEqual(both[1], sample("Something else", "The sea")[1])
        self.assertTrue(both[0].startswith(sample("The sea", tokens="4")[0]))
        self.assertNotEqual(both, sample("The sea", "The sea", seed="2"))

    def test_a_terminal_sees_the_words_as_they_come(self):
        master, slave = pty.openpty()
        command = [os.environ["FINETUNE_BINARY"], "predict", str(self.talkers["llama"]),
                   "--max_new_tokens", "8"]
        process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=subprocess.DEVNULL)
        os.close(slave)
        shown = b""

        def read_until(text, seconds=120):
            nonlocal shown
            end = time.monotonic() + seconds
            while text not in shown and time.monotonic() < end:
                if select.select([master], [], [], 1)[0]:
                    shown += os.read(master, 4096)
            self.assertIn(text, shown)

        read_until(b"> ")
        os.write(master, b"The lighthouse\n")
        _, made = self.generate("llama", "The lighthouse", max_new_tokens=8)
        read_until(made.replace("\n", "\r\n").encode() + b"\r\n> ")
        os.write(master, b"\x04")
        self.assertEqual(process.wait(timeout=60), 0)
        os.close(master)

    def test_a_prompt_without_room_is_an_error(self):
        done = run_for_code("predict", self.talkers["llama"], "--text", "ab " * 100)
        self.assertEqual(done.returncode, 1)
        self.assertIn("text 1: has ", done.stderr)
        self.assertIn("there is no room to continue", done.stderr)
