# SPDX-License-Identifier: MIT
"""Compares exports with PEFT's merge_and_unload() and with the gguf package: names, values, logits."""

import json
import re
import shutil

import torch
from safetensors.torch import load_file, save_file
from support import ParityTest, run_binary, run_for_code
from test_clm import EXPERTS, TOKENIZER, known_families, make_base

# One multiplication and addition in float32, in another order.
VALUES = 1e-6
LOGITS = 1e-4


class Export(ParityTest):
    def setUp(self):
        super().setUp()
        self.bases = {family: make_base(family, self.folder / family) for family in known_families()}

    def adapter(self, base, model, **options):
        """A folder with an adapter of random numbers, and its model."""
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(**{"r": 4, "lora_alpha": 16, "target_modules": "all-linear", **options}))
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.requires_grad:
                    noise = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
                    if "magnitude" in name:
                        parameter.mul_(1 + 0.1 * noise)
                    else:
                        parameter.add_(0.05 * noise)
        folder = self.folder / "adapter"
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        return folder, model

    def export(self, source, *more, out="merged"):
        folder = self.folder / out
        shutil.rmtree(folder, ignore_errors=True)
        run_binary("export", source, folder, *more)
        return folder

    def logits(self, model):
        model.eval()
        with torch.no_grad():
            return model(input_ids=torch.tensor([[5, 6, 7, 300, 20, 21, 99, 3]])).logits.float()

    def check_merged(self, base, make_class, dtype=torch.float32, **options):
        model = make_class.from_pretrained(base, dtype=dtype)
        folder, model = self.adapter(base, model, **options)
        adapted = self.logits(model)
        merged = self.export(folder)
        loaded, info = make_class.from_pretrained(merged, dtype=torch.float32, output_loading_info=True)
        self.assertFalse(info["missing_keys"] or info["unexpected_keys"], info)
        scale = adapted.abs().max()
        if dtype == torch.float32:
            self.assertLess((self.logits(loaded) - adapted).abs().max() / scale, LOGITS)
        return model, loaded

    def check_values(self, peft_model, loaded, tolerance=VALUES):
        theirs = peft_model.merge_and_unload().state_dict()
        ours = loaded.state_dict()
        self.assertEqual(set(ours), set(theirs))
        for name, value in ours.items():
            gold = theirs[name].float()
            error = (value.float() - gold).abs().max() / gold.abs().max().clamp_min(1e-6)
            self.assertLess(error, tolerance, name)

    def test_every_family(self):
        from transformers import AutoModelForCausalLM

        for family, base in self.bases.items():
            # For PEFT all-linear has routers, too, as target_parameters, which are refused.
            own = {"target_modules": ["q_proj", "o_proj"]} if family in EXPERTS else {}
            with self.subTest(family):
                self.check_values(*self.check_merged(base, AutoModelForCausalLM, task_type="CAUSAL_LM", **own))

    OPTIONS = {
        "rslora": ("llama", {"use_rslora": True}),
        "dora": ("llama", {"use_dora": True}),
        "dora of transposed layers": ("gpt2", {"use_dora": True}),
        "patterns": ("llama", {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"v_proj": 7}}),
        "biases": ("qwen2", {"target_modules": ["q_proj", "o_proj"], "bias": "all"}),
        "whole": ("mistral", {"modules_to_save": ["lm_head", "input_layernorm"]}),
        "embedding": ("mistral", {"target_modules": ["embed_tokens", "q_proj"]}),
        "experts": ("gpt_oss", {"target_modules": ["q_proj"],
                                "target_parameters": ["experts.gate_up_proj", "experts.down_proj"]}),
        "experts' last": ("granitemoe", {"target_modules": [], "target_parameters": ["experts.down_proj"]}),
        "experts apart": ("qwen3_moe", {"target_modules": ["q_proj"],
                                        "target_parameters": ["experts.gate_up_proj", "experts.down_proj"]}),
        "tied": ("llama", {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True}),
    }

    def test_every_kind_of_adapter(self):
        from transformers import AutoModelForCausalLM

        for name, (family, options) in self.OPTIONS.items():
            with self.subTest(name):
                self.check_values(*self.check_merged(self.bases[family], AutoModelForCausalLM, task_type="CAUSAL_LM", **options))

    def test_shared_weights_that_were_trained_apart_are_written_apart(self):
        """PEFT's own merge keeps one tensor for both, and loses what was trained."""
        from transformers import AutoModelForCausalLM

        for options in ({"modules_to_save": ["lm_head"]}, {"target_modules": ["embed_tokens", "q_proj"]}):
            with self.subTest(str(options)):
                self.assertTrue(json.loads((self.bases["llama"] / "config.json").read_text())["tie_word_embeddings"])
                self.check_merged(self.bases["llama"], AutoModelForCausalLM, task_type="CAUSAL_LM", **options)
                merged = self.folder / "merged"
                self.assertFalse(json.loads((merged / "config.json").read_text())["tie_word_embeddings"])
                tensors = load_file(merged / "model.safetensors")
                self.assertFalse(torch.equal(tensors["lm_head.weight"], tensors["model.embed_tokens.weight"]))

    def test_shared_weights_with_a_shared_adapter_stay_shared(self):
        """PEFT's merge adds the adapter to the one tensor twice; the logits before it are the reference."""
        from transformers import AutoModelForCausalLM

        options = {"target_modules": ["embed_tokens", "q_proj"], "ensure_weight_tying": True}
        self.check_merged(self.bases["llama"], AutoModelForCausalLM, task_type="CAUSAL_LM", **options)
        self.assertTrue(json.loads((self.folder / "merged" / "config.json").read_text())["tie_word_embeddings"])

    def test_output_layers_of_other_shapes(self):
        """GPT-2's is no Conv1D; BERT's has a bias with two names, which are written once the weight is not shared."""
        from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, BertConfig

        self.check_merged(self.bases["gpt2"], AutoModelForCausalLM, task_type="CAUSAL_LM", target_modules=["lm_head", "c_attn"])
        torch.manual_seed(0)
        base = self.folder / "masked"
        AutoModelForMaskedLM.from_config(
            BertConfig(vocab_size=600, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
        ).save_pretrained(base)
        for file in TOKENIZER.iterdir():
            shutil.copy(file, base)
        for target in ("word_embeddings", "decoder"):
            self.check_merged(base, AutoModelForMaskedLM, target_modules=[target, "query"])

    def test_adapters_that_are_not_whole_are_refused(self):
        from transformers import AutoModelForCausalLM

        base = self.bases["llama"]
        folder, _ = self.adapter(base, AutoModelForCausalLM.from_pretrained(base), task_type="CAUSAL_LM")
        file, config = folder / "adapter_model.safetensors", folder / "adapter_config.json"
        tensors, keys = load_file(file), json.loads(config.read_text())
        without = {name: value for name, value in tensors.items() if "layers.1.mlp.up_proj" not in name}
        for changed, more, text in (
            ({}, {}, "holds no adapter|lacks"),
            (without, {}, "lacks .*up_proj.*its file is truncated"),
            (tensors, {"r": 8}, "does not fit"),
            (tensors, {"use_dora": True}, "lacks"),
        ):
            save_file(changed, file, metadata={"format": "pt"})
            config.write_text(json.dumps({**keys, **more}))
            done = run_for_code("export", folder, self.folder / "no")
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertRegex(done.stderr, text)

    def test_a_base_of_bfloat16_stays_bfloat16(self):
        from transformers import AutoModelForCausalLM

        narrow = self.folder / "narrow"
        AutoModelForCausalLM.from_pretrained(self.bases["mistral"], dtype=torch.bfloat16).save_pretrained(narrow)
        for file in TOKENIZER.iterdir():
            shutil.copy(file, narrow)
        model, loaded = self.check_merged(narrow, AutoModelForCausalLM, dtype=torch.bfloat16, task_type="CAUSAL_LM")
        tensors = load_file(self.folder / "merged" / "model.safetensors")
        self.assertEqual({tensor.dtype for tensor in tensors.values()}, {torch.bfloat16})
        self.check_values(model, loaded, 2.0**-7)  # theirs rounds the product first
        for name, dtype in (("f32", torch.float32), ("f16", torch.float16)):
            wide = load_file(self.export(self.folder / "adapter", "--outtype", name, out="wide") / "model.safetensors")
            self.assertEqual({tensor.dtype for tensor in wide.values()}, {dtype})
            for key, value in wide.items():  # each is rounded once
                self.assertTrue(torch.equal(value.to(torch.bfloat16), tensors[key]) or dtype == torch.float16, key)

    def test_a_folder_without_an_adapter_is_copied(self):
        base = self.bases["qwen3"]
        copy = self.export(base)
        ours, theirs = load_file(copy / "model.safetensors"), load_file(base / "model.safetensors")
        self.assertEqual(set(ours), set(theirs))
        self.assertTrue(all(torch.equal(ours[name], theirs[name]) for name in ours))

    def test_heads_of_encoders(self):
        from transformers import (
            AutoModelForSequenceClassification,
            AutoModelForTokenClassification,
            BertConfig,
            DebertaV2Config,
            RobertaConfig,
        )

        size = dict(vocab_size=600, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                    max_position_embeddings=64, num_labels=3)  # fmt: skip
        for config, kind, task in (
            (BertConfig(**size), AutoModelForSequenceClassification, "SEQ_CLS"),
            (RobertaConfig(**size), AutoModelForTokenClassification, "TOKEN_CLS"),
            (DebertaV2Config(**size), AutoModelForSequenceClassification, "SEQ_CLS"),
        ):
            with self.subTest(config.model_type):
                torch.manual_seed(0)
                base = self.folder / f"base-{config.model_type}"
                kind.from_config(config).save_pretrained(base)
                for file in TOKENIZER.iterdir():
                    shutil.copy(file, base)
                # PEFT names no linear layer of these heads all-linear; the head is trained whole.
                targets = ["query_proj", "value_proj"] if config.model_type == "deberta-v2" else ["query", "value"]
                self.check_values(*self.check_merged(base, kind, task_type=task, target_modules=targets))

    def test_what_is_refused(self):
        from transformers import AutoModelForCausalLM

        folder, _ = self.adapter(self.bases["llama"], AutoModelForCausalLM.from_pretrained(self.bases["llama"]),
                                 task_type="CAUSAL_LM")  # fmt: skip
        over_base = run_for_code("export", folder, self.bases["llama"], "--overwrite")
        self.assertEqual(over_base.returncode, 2, over_base.stderr)
        self.assertIn("is or contains", over_base.stderr)
        config = json.loads((folder / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = str(self.bases["gpt2"])
        (folder / "adapter_config.json").write_text(json.dumps(config))
        out = self.folder / "refused"
        for words, code, text in (
            ([folder, out], 1, "does not fit the base's|has no place for|lacks"),
            ([self.bases["llama"], self.bases["llama"]], 2, "is or contains"),
            ([self.bases["llama"], self.bases["llama"] / "deep"], 2, "is in the folder of the model"),
            ([self.bases["llama"], out, "--outtype", "q8_0"], 2, "let OUT end in .gguf"),
            ([self.folder / "nowhere", out], 2, "there is no folder"),
            ([self.bases["llama"], self.folder / "checkpoint-5"], 2, "name of a run's checkpoint"),
        ):
            done = run_for_code("export", *words)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertRegex(done.stderr, text)
            self.assertFalse(list(self.folder.glob("refused*")))

    def gguf(self, source, outtype, name="model.gguf"):
        from gguf import GGUFReader

        file = self.folder / name
        run_binary("export", source, file, "--outtype", outtype, "--overwrite")
        return GGUFReader(file)

    # What transformers 5.23 reads.
    READ_BY_TRANSFORMERS = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "gpt2",
                            "stablelm", "starcoder2", "lfm2")  # fmt: skip

    def test_gguf_gives_the_logits_of_the_folder(self):
        from transformers import AutoConfig, AutoModelForCausalLM

        for family in self.READ_BY_TRANSFORMERS:
            with self.subTest(family):
                base = self.bases[family]
                self.gguf(base, "f32")
                # Its config comes from the folder: the loader of GGUF leaves fields at their defaults.
                config = {} if family == "mistral" else {"config": AutoConfig.from_pretrained(base)}
                loaded = AutoModelForCausalLM.from_pretrained(self.folder, gguf_file="model.gguf", dtype=torch.float32, **config)
                gold = self.logits(AutoModelForCausalLM.from_pretrained(base))
                self.assertLess((self.logits(loaded) - gold).abs().max(), LOGITS)

    def test_gguf_of_the_other_families(self):
        """Values by the formulas of llama.cpp's converter, which are not applied to each other's families."""
        for family, norms, permutes in (("gemma", 1.0, False), ("olmo2", 0.0, False), ("smollm3", 0.0, True)):
            with self.subTest(family):
                base = self.bases[family]
                config = json.loads((base / "config.json").read_text())
                if family == "smollm3":  # the pattern that its readers have
                    config["no_rope_layers"] = None
                    config["no_rope_layer_interval"] = 4
                    (base / "config.json").write_text(json.dumps(config))
                file = {tensor.name: torch.tensor(tensor.data.copy()) for tensor in self.gguf(base, "f32").tensors}
                source = load_file(base / "model.safetensors")
                self.assertEqual(len(file), len(source))
                names = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output",
                         "q_norm": "attn_q_norm", "k_norm": "attn_k_norm", "gate_proj": "ffn_gate", "up_proj": "ffn_up",
                         "down_proj": "ffn_down", "input_layernorm": "attn_norm",
                         "post_attention_layernorm": "post_attention_norm" if family == "olmo2" else "ffn_norm",
                         "post_feedforward_layernorm": "post_ffw_norm"}  # fmt: skip
                for name, value in source.items():
                    parts = name.split(".")
                    if parts[1] == "layers":
                        mine = file.pop(f"blk.{parts[2]}.{names[parts[-2]]}.{parts[-1]}")
                    else:
                        ends = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
                        mine = file.pop(ends[parts[-2]] + ".weight")
                    if "norm" in name:
                        value = value + norms
                    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
                    if permutes and parts[-2] in heads:
                        value = value.view(heads[parts[-2]], 2, -1, value.shape[1]).transpose(1, 2).reshape(value.shape)
                    self.assertTrue(torch.equal(mine, value), name)

    def test_gguf_orders_heads_as_its_readers_have_them(self):
        """By the formulas of llama.cpp's converter, of which transformers has no reader."""

        def files(family):
            file = {tensor.name: torch.tensor(tensor.data.copy()) for tensor in self.gguf(self.bases[family], "f32").tensors}
            return file, load_file(self.bases[family] / "model.safetensors")

        file, source = files("gpt_neox")
        for end in ("weight", "bias"):
            value = source[f"gpt_neox.layers.1.attention.query_key_value.{end}"]
            by_head = value.view(4, 3, 8, -1)  # heads, then queries, keys and values
            self.assertTrue(torch.equal(file[f"blk.1.attn_qkv.{end}"], by_head.transpose(0, 1).reshape(value.shape)))

        file, source = files("qwen3_5_text")
        name = "model.layers.0.linear_attn."
        tiled = lambda value, size: value.view(2, 2, size, -1).transpose(0, 1).reshape(value.shape)
        after_keys = lambda value: torch.cat([value[:32], tiled(value[32:], 8)])
        for theirs, expected in {
            "attn_qkv.weight": after_keys(source[name + "in_proj_qkv.weight"]),
            "ssm_conv1d.weight": after_keys(source[name + "conv1d.weight"].squeeze(1)),
            "attn_gate.weight": tiled(source[name + "in_proj_z.weight"], 8),
            "ssm_alpha.weight": tiled(source[name + "in_proj_a.weight"], 1),
            "ssm_beta.weight": tiled(source[name + "in_proj_b.weight"], 1),
            "ssm_dt.bias": tiled(source[name + "dt_bias"], 1),
            "ssm_out.weight": tiled(source[name + "out_proj.weight"].T, 8).T,
            "ssm_norm.weight": source[name + "norm.weight"],
            "attn_norm.weight": source["model.layers.0.input_layernorm.weight"] + 1,
        }.items():
            self.assertTrue(torch.equal(file["blk.0." + theirs], expected), theirs)
        decays = -tiled(source[name + "A_log"], 1).exp()
        torch.testing.assert_close(file["blk.0.ssm_a"], decays, rtol=1e-6, atol=0.0)  # two exp() of float32

    WITHOUT_GGUF = {"helium", "ministral", "modernbert-decoder", "nanochat"}

    def test_gguf_restores_each_family_that_its_readers_have(self):
        """What a file holds, put back into the order of the folder; tests/llama_cpp/run.py asks llama.cpp itself."""
        for family, base in self.bases.items():
            with self.subTest(family):
                change = {
                    "exaone4": {"sliding_window": None, "layer_types": ["full_attention"] * 2},  # which its readers have
                    "olmo3": {"layer_types": ["sliding_attention"] * 2},
                    "gpt_oss": {"swiglu_limit": 7.0},
                    "smollm3": {"no_rope_layers": None, "no_rope_layer_interval": 4},
                    "gemma3_text": {"layer_types": ["sliding_attention"] * 2},
                    "ministral3": {}, "starcoder2": {},
                }.get(family, {})  # fmt: skip
                config = json.loads((base / "config.json").read_text()) | change
                (base / "config.json").write_text(json.dumps(config))
                done = run_for_code(
                    "export", base, self.folder / "model.gguf", "--outtype", "f32", "--overwrite", "--verify", "logits"
                )
                if family in self.WITHOUT_GGUF:
                    self.assertIn("cannot be written as GGUF", done.stderr)
                    continue
                if family == "gemma3n_text":  # whose sizes are fixed there
                    self.assertIn("GGUF cannot hold this gemma3n_text: it has ", done.stderr)
                    continue
                self.assertEqual(done.returncode, 0, done.stderr)
                apart = float(re.search(r"tokens: (\S+) apart", done.stdout + done.stderr).group(1))
                self.assertLess(apart, LOGITS)

    def test_types_of_gguf_are_those_of_the_gguf_package(self):
        import numpy
        from gguf import quants

        base = self.bases["mistral"]
        wide = {tensor.name: tensor for tensor in self.gguf(base, "f32").tensors}
        for outtype in ("f16", "bf16", "q8_0", "q4_0"):
            with self.subTest(outtype):
                for tensor in self.gguf(base, outtype).tensors:
                    values = numpy.asarray(wide[tensor.name].data)
                    expected = quants.quantize(values, tensor.tensor_type)
                    self.assertTrue(
                        numpy.array_equal(numpy.asarray(tensor.data).view(numpy.uint8), expected.view(numpy.uint8)), tensor.name
                    )
                kinds = {tensor.name: tensor.tensor_type.name.lower() for tensor in self.gguf(base, outtype).tensors}
                self.assertEqual(kinds["blk.0.attn_q.weight"], outtype)
                self.assertEqual(kinds["output_norm.weight"], "f32")

    MIXED = "The keeper's lamp: 12 of 1,234 nights!\n\n  Ĉu ŝi venos? 朝 👩‍🚀 don't\tstop..."

    def test_the_tokenizer_in_gguf(self):
        from tokenizers import Tokenizer, decoders, models, normalizers, trainers
        from transformers import AutoTokenizer, PreTrainedTokenizerFast

        # SentencePiece's BPE, as Llama 2 and Mistral have it.
        pieces = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        pieces.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        pieces.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
        text = "the keeper keeps the lamp and the ships see the light of the lamp in the night " * 20
        pieces.train_from_iterator([text], trainers.BpeTrainer(vocab_size=400, special_tokens=special))
        content = json.loads(pieces.to_str())
        content["added_tokens"] = [token for token in content["added_tokens"] if token["id"] < 3]
        folder = self.bases["mistral"]
        for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
            (folder / name).unlink(missing_ok=True)
        PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer.from_str(json.dumps(content)), bos_token="<s>", eos_token="</s>", unk_token="<unk>"
        ).save_pretrained(folder)
        for family in ("llama", "mistral"):
            with self.subTest(family):
                fields = self.gguf(self.bases[family], "f32").fields
                config = json.loads((self.bases[family] / "config.json").read_text())
                self.assertEqual(len(fields["tokenizer.ggml.tokens"].contents()), config["vocab_size"])
                theirs = AutoTokenizer.from_pretrained(self.bases[family])
                ours = AutoTokenizer.from_pretrained(self.folder, gguf_file="model.gguf")
                # The loader's tokenizer of SentencePiece's adds no space after a special token.
                lines = (self.MIXED, text, "lamp keeper", *(["<s>a</s> b"] if family == "llama" else []))
                for line in lines:
                    self.assertEqual(
                        ours.encode(line, add_special_tokens=False), theirs.encode(line, add_special_tokens=False), line
                    )
        merges = [tuple(merge) for merge in content["model"]["merges"]]
        fields = self.gguf(folder, "f32").fields
        scores = dict(zip(fields["tokenizer.ggml.tokens"].contents(), fields["tokenizer.ggml.scores"].contents()))
        ranks = [scores[left + right] for left, right in merges]
        self.assertEqual(ranks, sorted(ranks, reverse=True))

    def test_templates_and_ends_in_gguf_and_modelfile(self):
        folder = self.folder / "chat"
        shutil.copytree(self.bases["llama"], folder)
        (folder / "chat_template.jinja").write_text("default")
        more = folder / "additional_chat_templates"
        more.mkdir()
        (more / "tool_use.jinja").write_text("with tools")
        (more / "notes.txt").write_text("no template")
        generation = {"eos_token_id": [2, 5, 7]}
        (folder / "generation_config.json").write_text(json.dumps(generation))
        fields = self.gguf(folder, "f32").fields
        found = {
            name: fields[f"tokenizer.{name}"].contents() for name in ("chat_template", "chat_template.tool_use", "chat_templates")
        }
        self.assertEqual(
            found, {"chat_template": "default", "chat_template.tool_use": "with tools", "chat_templates": ["tool_use"]}
        )
        merged = self.export(folder)
        self.assertEqual((merged / "additional_chat_templates" / "tool_use.jinja").read_text(), "with tools")
        self.export(folder, "--overwrite")
        lines = (self.folder / "model.Modelfile").read_text().splitlines()
        tokens = fields["tokenizer.ggml.tokens"].contents()
        stops = [json.loads(line.removeprefix("PARAMETER stop ")) for line in lines[1:]]
        self.assertEqual(set(stops), {tokens[i] for i in generation["eos_token_id"]})
        self.assertEqual(len(stops), 3)

    def test_what_llama_cpp_does_not_compute_is_refused(self):
        """Each has been a file with which llama.cpp answers otherwise, or which it does not load."""
        from transformers import AutoConfig, AutoModelForCausalLM

        windows = {"sliding_window": 8, "layer_types": ["sliding_attention"] * 3 + ["full_attention"], "num_hidden_layers": 4}
        thetas = {
            kind: {"rope_type": "default", "rope_theta": theta}
            for kind, theta in (("full_attention", 1000.0), ("sliding_attention", 500.0))
        }
        for family, changes, text in (
            ("olmo3", {}, "layer_types other than its family's"),
            ("olmo3", {**windows, "rope_parameters": thetas}, "another rope_theta of sliding layers"),
            ("exaone4", {}, "sliding_attention and not 64 layers"),
            ("starcoder2", {"use_bias": False}, "no biases"),
            ("gpt_neox", {"attention_bias": False}, "no biases"),
            ("arcee", {"mlp_bias": True}, "biases"),
            ("ernie4_5", {"use_bias": True}, "biases"),
            ("glm4", {"hidden_act": "gelu"}, "the activation gelu"),
            ("lfm2", {"conv_bias": True}, "biases"),
        ):
            with self.subTest(f"{family}: {text}"):
                folder = self.folder / "changed"
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(self.bases[family], folder)
                AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder, **changes)).save_pretrained(folder)
                done = run_for_code("export", folder, self.folder / "no.gguf", "--outtype", "f32")
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(text, done.stderr)

    def test_what_gguf_cannot_hold_is_refused(self):
        folder = self.folder / "changed"
        shutil.copytree(self.bases["llama"], folder)
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        tokenizer["pre_tokenizer"] = {"type": "Whitespace"}
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        huge = self.folder / "huge"
        shutil.copytree(self.bases["llama"], huge)
        tensors = load_file(huge / "model.safetensors")
        tensors["model.layers.0.self_attn.q_proj.weight"][0, 0] = 1e6
        save_file(tensors, huge / "model.safetensors", metadata={"format": "pt"})
        pieces = self.folder / "pieces"
        shutil.copytree(self.bases["llama"], pieces)
        tokenizer["pre_tokenizer"] = {"type": "Whitespace"}
        tokenizer["model"]["byte_fallback"] = True
        (pieces / "tokenizer.json").write_text(json.dumps(tokenizer))
        empty = self.folder / "empty"
        shutil.copytree(self.bases["llama"], empty)
        tokenizer["model"]["vocab"] = {}
        (empty / "tokenizer.json").write_text(json.dumps(tokenizer))
        for source, words, text in (
            (folder, ["--outtype", "f16"], "pre-tokenizer"),
            (pieces, ["--outtype", "f16"], "pre-tokenizer"),
            (empty, ["--outtype", "f16"], "has no vocab"),
            (huge, ["--outtype", "f16"], "has values that f16 cannot hold"),
            (self.bases["llama"], ["--outtype", "q5_k"], "a GGUF file holds auto"),
        ):
            done = run_for_code("export", source, self.folder / "no.gguf", *words)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(text, done.stderr)
            self.assertFalse(list(self.folder.glob("no.gguf*")))
