# SPDX-License-Identifier: MIT
"""The masked language model of every family trains as in transformers, fused and plain."""

import json
import shutil

import torch
import transformers
from make_goldens import BASE, collate
from support import MLM, ParityTest, load_strictly, state

TOLERANCE = 2e-3  # of final weights
FAMILIES = {
    "bert": dict(prefix="Bert", hidden_act="gelu_new"),
    "xlm-roberta": dict(prefix="XLMRoberta"),
    "big_bird": dict(prefix="BigBird", attention_type="original_full", rescale_embeddings=True),
    # Sequences so short that transformers switches to full attention too.
    "big_bird_sparse": dict(prefix="BigBird", attention_type="block_sparse", use_bias=False),
    "untied": dict(prefix="Roberta", tie_word_embeddings=False),
    "modernbert": dict(prefix="ModernBert", local_attention=8, cls_token_id=0, sep_token_id=2),
    "deberta-v2": dict(
        prefix="DebertaV2",
        relative_attention=True,
        position_buckets=8,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
    ),
    "distilbert": dict(prefix="DistilBert", hidden_dim=48, dropout=0.0, attention_dropout=0.0),
    "electra": dict(prefix="Electra", embedding_size=16),
    "camembert": dict(prefix="Camembert"),
    "ernie": dict(prefix="Ernie", use_task_id=True),
    "mpnet": dict(prefix="MPNet"),
    "xlm-roberta-xl": dict(prefix="XLMRobertaXL"),
    "nomic_bert": dict(prefix="NomicBert", hidden_act="gelu"),
    "gte": dict(prefix="Gte"),
    "roformer": dict(prefix="RoFormer", embedding_size=16),
    "eurobert": dict(prefix="EuroBert", num_key_value_heads=2, mask_token_id=4),
}
# Rows of different lengths, so that there is padding.
CONFIG = {
    **BASE,
    "max_steps": 12,
    "weight_decay": 0.5,
    "save_strategy": "steps",
    "save_steps": 6,
}


def make_model(family, folder):
    settings = dict(FAMILIES[family])
    prefix = settings.pop("prefix")
    torch.manual_seed(5)
    if family == "distilbert":
        others = {}
    else:
        others = dict(intermediate_size=48, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    config = getattr(transformers, f"{prefix}Config")(
        vocab_size=300,
        num_hidden_layers=2,
        hidden_size=32,
        num_attention_heads=4,
        max_position_embeddings=66,
        initializer_range=0.05,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        **others,
        **settings,
    )
    model = getattr(transformers, f"{prefix}ForMaskedLM")(config)
    model.save_pretrained(folder)
    for path in (MLM / "model").glob("tokenizer*"):
        shutil.copy(path, folder)


def read_rows(name):
    return [json.loads(x) for x in (MLM / name).read_text().splitlines()]


class Models(ParityTest):
    """One test of each kind for every family, added below."""

    def set_up(self, family):
        self.model = self.folder / "model"
        make_model(family, self.model)

    def ours(self, name="ours", **more):
        return self.train(
            CONFIG,
            name,
            model_name_or_path=str(self.model),
            train_file="train_unequal.jsonl",
            validation_file="eval_unequal.jsonl",
            **more,
        )

    def theirs(self, resume=None):
        from transformers import AutoModelForMaskedLM, Trainer, TrainingArguments

        trainer = Trainer(
            model=AutoModelForMaskedLM.from_pretrained(self.model),
            args=TrainingArguments(
                output_dir=str(self.folder / "theirs"),
                optim="adamw_torch",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
                **CONFIG,
            ),
            train_dataset=read_rows("train_unequal.jsonl"),
            eval_dataset=read_rows("eval_unequal.jsonl"),
            data_collator=collate,
        )
        trainer.train(resume_from_checkpoint=resume)
        return trainer

    def assert_same_run(self, output, trainer, first_step=1, family=None):
        log = state(output)["log_history"]
        self.assert_same_log(log, trainer.state.log_history, first_step, family)
        trained = load_strictly(output)
        final = dict(trainer.model.named_parameters())
        self.assert_same_weights(dict(trained.named_parameters()), final, TOLERANCE)

    def check_trajectory(self, family):
        self.set_up(family)
        output, trainer = self.ours(), self.theirs()
        self.assert_same_run(output, trainer, family=family)
        given = json.loads((self.model / "config.json").read_text())
        given.pop("transformers_version")
        written = json.loads((output / "config.json").read_text())
        if family == "big_bird_sparse":
            self.assertEqual(written.pop("random_blocks_seed"), CONFIG["seed"])
        self.assertEqual(written, given)
        theirs = torch.load(self.folder / "theirs/checkpoint-12/optimizer.pt", weights_only=True)
        ours = torch.load(output / "checkpoint-12/optimizer.pt", weights_only=True)
        self.assertEqual(set(ours["state"]), set(theirs["state"]), "parameters with a state")
        for number, entry in theirs["state"].items():
            self.assertEqual(ours["state"][number]["exp_avg"].shape, entry["exp_avg"].shape)

    def check_both_ways(self, family):
        self.set_up(family)
        output, trainer = self.ours(), self.theirs()
        half = self.folder / "theirs" / "checkpoint-6"
        resumed = self.ours("resumed", resume_from_checkpoint=str(half))
        self.assert_same_run(resumed, trainer, first_step=7)
        again = self.theirs(resume=str(output / "checkpoint-6"))
        self.assert_same_run(output, again, first_step=7)


def add_family(family):
    name = family.replace("-", "_")
    setattr(Models, f"test_{name}_trains", lambda self: self.check_trajectory(family))
    setattr(Models, f"test_{name}_resumes", lambda self: self.check_both_ways(family))


for each in FAMILIES:
    add_family(each)
