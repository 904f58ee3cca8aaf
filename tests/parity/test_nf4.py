# SPDX-License-Identifier: MIT
"""Compares bases of four bits (QLoRA) with bitsandbytes': codes and scales are its, PEFT's models compute what
ours do, and transformers' Trainer continues a run of ours at the next step."""

import json
import shutil

import bitsandbytes_on_cpu  # noqa: F401  before PEFT imports it
import torch
from safetensors.torch import load_file
from support import TEXT, ParityTest, run_binary, state
from test_adapter import WEIGHTS
from test_clm import BLOCK, BOTH, EXPERTS, STEPS, TOKENIZER, Samples, blocks_of, known_families, make_base, mean_loss

# Families with torch.nn.Linear; GPT-2's Conv1D and experts are not quantised.
REFUSED = {"gpt2", *EXPERTS}


def quantized_model(folder, nested=False, dtype=torch.float32):
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    settings = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=dtype,
        bnb_4bit_use_double_quant=nested,
    )
    with torch.inference_mode(False):
        return AutoModelForCausalLM.from_pretrained(folder, quantization_config=settings, dtype=dtype, device_map="cpu")


class Nf4(ParityTest):
    def setUp(self):
        super().setUp()
        torch.set_num_threads(1)  # the mean of the scales depends on the number of threads
        self.bases = {family: make_base(family, self.folder / family) for family in known_families()}

    def configured(self, name, base, **more):
        config = {
            "task": "clm",
            "model_name_or_path": str(base),
            "train_file": str(TEXT / "lighthouse.txt"),
            "validation_file": str(TEXT / "lighthouse-valid.txt"),
            "block_size": BLOCK,
            "output_dir": str(self.folder / name),
            "cache_dir": str(self.folder / "cache"),
            **BOTH,
            "use_peft": True,
            "load_in_4bit": True,
            "lora_r": 4,
            "lora_dropout": 0.0,
            "learning_rate": 1e-2,
            **more,
        }
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(config, indent=1))
        return path

    def peft_model(self, base, folder, nested=False, is_trainable=False):
        from peft import PeftModel

        return PeftModel.from_pretrained(quantized_model(base, nested), folder, is_trainable=is_trainable)

    def check_tensors(self, base, nested):
        name = f"{base.name}-nf4-{nested}"
        run_binary("export", base, self.folder / name, "--outtype", "nf4", "--use_bnb_nested_quant", str(nested).lower())
        quantized_model(base, nested).save_pretrained(self.folder / f"{name}-theirs")
        ours, theirs = (load_file(self.folder / folder / "model.safetensors") for folder in (name, f"{name}-theirs"))
        # GPT-NeoX's old name, which transformers still writes.
        theirs = {
            "lm_head." + key.removeprefix("embed_out.") if key.startswith("embed_out.") else key: tensor
            for key, tensor in theirs.items()
        }
        self.assertEqual(sorted(ours), sorted(theirs))
        self.assertTrue(any(key.endswith("bitsandbytes__nf4") for key in ours))
        for key, expected in theirs.items():
            if key.endswith("bitsandbytes__nf4"):
                one, other = (json.loads(bytes(tensor.tolist())) for tensor in (ours[key], expected))
                self.assertEqual(one, other, key)
            elif key.endswith("nested_quant_map"):  # the last bit of torch.linspace differs between processors
                torch.testing.assert_close(ours[key], expected, rtol=1e-6, atol=0)
            else:
                self.assertEqual(ours[key].dtype, expected.dtype, key)
                self.assertTrue(torch.equal(ours[key], expected), key)
        return self.folder / name, self.folder / f"{name}-theirs"

    def test_every_tensor_is_bitsandbytes(self):
        for family, base in self.bases.items():
            if family in REFUSED:
                continue
            for nested in (False, True):
                with self.subTest(family=family, nested=nested):
                    self.check_tensors(base, nested)

    def check_training(self, family, base, **more):
        from transformers import Trainer, TrainingArguments

        name = f"ours-{family}-{'-'.join(more)}"
        nested = more.get("use_bnb_nested_quant", False)
        output = self.folder / name
        run_binary("train", self.configured(name, base, **more))
        log = state(output)["log_history"]
        losses = [row["eval_loss"] for row in log if "eval_loss" in row]
        model = self.peft_model(base, output, nested)
        self.assert_relative(mean_loss(model), losses[-1], 1e-4, family)
        run_binary("export", output, self.folder / f"{name}-merged", "--merge_base", "trained")
        from transformers import AutoModelForCausalLM

        merged = AutoModelForCausalLM.from_pretrained(self.folder / f"{name}-merged", dtype=torch.float32)
        self.assert_relative(mean_loss(merged), losses[-1], 1e-4, family)
        checkpoint = output / "checkpoint-10"
        settings = {**BOTH, "learning_rate": 1e-2, "disable_tqdm": True}
        trainer = Trainer(
            model=self.peft_model(base, checkpoint, nested, is_trainable=True),
            args=TrainingArguments(output_dir=str(self.folder / f"theirs-{name}"), **settings),
            train_dataset=Samples(blocks_of(TEXT / "lighthouse.txt")),
            eval_dataset=Samples(blocks_of(TEXT / "lighthouse-valid.txt")),
        )
        trainer._loss_shifts_labels = True
        trainer.train(resume_from_checkpoint=str(checkpoint))
        self.assert_same_log(trainer.state.log_history, log, first_step=11)
        theirs = load_file(self.folder / f"theirs-{name}" / f"checkpoint-{STEPS}" / "adapter_model.safetensors")
        self.assert_same_weights(load_file(output / "adapter_model.safetensors"), theirs, WEIGHTS)
        return load_file(output / "adapter_model.safetensors")

    def test_trains_and_resumes_as_peft_does(self):
        for family in ("llama", "qwen3", "gemma2"):
            with self.subTest(family):
                self.check_training(family, self.bases[family])
        with self.subTest("nested"):
            self.check_training("llama", self.bases["llama"], use_bnb_nested_quant=True)

    def test_a_run_of_trainer_with_bitsandbytes_goes_on_here(self):
        from peft import LoraConfig, get_peft_model
        from transformers import Trainer, TrainingArguments

        base = self.bases["llama"]
        model = get_peft_model(
            quantized_model(base),
            LoraConfig(r=4, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"),
        )
        trainer = Trainer(
            model=model,
            args=TrainingArguments(output_dir=str(self.folder / "theirs"), **{**BOTH, "learning_rate": 1e-2}, disable_tqdm=True),
            train_dataset=Samples(blocks_of(TEXT / "lighthouse.txt")),
            eval_dataset=Samples(blocks_of(TEXT / "lighthouse-valid.txt")),
        )
        trainer._loss_shifts_labels = True
        trainer.train()
        checkpoint = self.folder / "theirs" / "checkpoint-10"
        run_binary("train", self.configured("ours", base, resume_from_checkpoint=str(checkpoint)))
        ours = [row for row in state(self.folder / "ours")["log_history"] if row["step"] > 10]
        self.assert_same_log(ours, trainer.state.log_history, first_step=11)

    def losses_of_trl(self, output, **more):
        """The losses of SFTTrainer's steps 12 to 22 on a base of four bits."""
        import trl
        from datasets import Dataset
        from peft import LoraConfig
        from transformers import AutoTokenizer

        base = self.bases["llama"]
        lines = (TEXT / "lighthouse.txt").read_text(encoding="utf-8").splitlines()
        trainer = trl.SFTTrainer(
            model=quantized_model(base),
            args=trl.SFTConfig(
                output_dir=str(self.folder / output), max_steps=22, save_steps=11, logging_steps=1, learning_rate=1e-2,
                per_device_train_batch_size=4, max_length=64, report_to="none", use_cpu=True, bf16=False,
                gradient_checkpointing=False, disable_tqdm=True,
            ),
            train_dataset=Dataset.from_list([{"text": line} for line in lines if line]),
            processing_class=AutoTokenizer.from_pretrained(base),
            peft_config=LoraConfig(r=4, target_modules="all-linear", lora_dropout=0.0, task_type="CAUSAL_LM"),
        )  # fmt: skip
        trainer.train(**more)
        return [row["loss"] for row in trainer.state.log_history if "loss" in row][-11:]

    def test_all_losses_after_a_resume_are_those_of_the_whole_run_but_not_trls(self):
        keys = {"max_steps": 22, "save_steps": 11, "eval_strategy": "no", "validation_file": None}
        config = self.configured("ours", self.bases["llama"], **keys)
        output = self.folder / "ours"
        runs = []
        for _ in range(2):
            run_binary("train", config)
            losses = [row["loss"] for row in state(output)["log_history"] if "loss" in row][-11:]
            runs.append((losses, (output / "adapter_model.safetensors").read_bytes()))
            # As if the machine had gone after the first save.
            for path in output.iterdir():
                if path.name != "checkpoint-11":
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.assertEqual(len(runs[0][0]), 11)
        self.assertTrue(runs[0] == runs[1], runs[0][0])

        whole = self.losses_of_trl("theirs")
        resumed = self.losses_of_trl("theirs", resume_from_checkpoint=str(self.folder / "theirs" / "checkpoint-11"))
        self.assertEqual(len(resumed), 11)
        # What docs/tasks/lora.md says of it: bfloat16 before, float32 after.
        self.assertLess(sum(one == other for one, other in zip(whole, resumed)), 11)

    def test_quantized_folders_train_to_the_same_bits(self):
        base = self.bases["llama"]
        for nested in (False, True):
            folders = self.check_tensors(base, nested)
            adapters = []
            for i, source in enumerate((base, *folders)):
                name = f"run-{nested}-{i}"
                keys = {"use_bnb_nested_quant": nested} if source == base else {"load_in_4bit": False}
                if i == 2:
                    for file in TOKENIZER.iterdir():
                        shutil.copy(file, source)
                run_binary("train", self.configured(name, source, **keys))
                adapters.append((self.folder / name / "adapter_model.safetensors").read_bytes())
            self.assertEqual(adapters[0], adapters[1])
            if not nested:  # their map has other last bits
                self.assertEqual(adapters[0], adapters[2])
