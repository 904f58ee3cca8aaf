# SPDX-License-Identifier: MIT
"""The models and rungs of memory.py, and the settings of both programs for each."""

SEQUENCE = 128
# "batch": rows of an update. Everything that is not named is RobertaConfig's default.
MODELS = {
    "84m": dict(
        batch=64,
        shape=dict(
            vocab_size=52000,
            num_hidden_layers=6,
            num_attention_heads=12,
            hidden_size=768,
            intermediate_size=3072,
            max_position_embeddings=514,
            type_vocab_size=1,
        ),
    ),
    "1.1b": dict(
        batch=16,
        shape=dict(
            vocab_size=52000,
            num_hidden_layers=48,
            num_attention_heads=25,
            hidden_size=1500,
            intermediate_size=4096,
            max_position_embeddings=514,
            type_vocab_size=1,
        ),
    ),
    "tiny": dict(
        batch=16,
        shape=dict(
            vocab_size=2000,
            num_hidden_layers=2,
            num_attention_heads=2,
            hidden_size=64,
            intermediate_size=128,
            max_position_embeddings=514,
            type_vocab_size=1,
        ),
    ),
}
CHECKPOINTING = dict(gradient_checkpointing=True)
SELECTIVE = dict(gradient_checkpointing_kwargs=dict(selective=True))
EIGHT_BIT = dict(optim="adamw_8bit")
COMPANDED = dict(optim="adamw_companded_8bit")
LEAN = dict(**COMPANDED, grad_accum_dtype="bfloat16")
IN_BACKWARD = dict(**COMPANDED, param_dtype="bfloat16", optimizer_in_backward=True, max_grad_norm=0)
# "ours" and "peer" are keys of the configuration. "cuts" is into how many micro-batches an update
# is cut. "target" is what the peak must not exceed, in MiB; "times_plain" the same for an update's
# CPU time as a multiple of transformers' plain one, and "peak_of" names a rung of the same peak.
RUNGS = {
    "plain": dict(title="plain", cuts=1, ours={}, peer={}),
    "checkpointing": dict(
        title="gradient checkpointing", cuts=1, ours=CHECKPOINTING, peer=CHECKPOINTING
    ),
    "accumulation": dict(title="accumulation", cuts=4, ours={}, peer={}),
    # On a CPU transformers 5.23 takes fp16 and computes in float32 all the same.
    "fp16": dict(title="fp16", cuts=1, ours=dict(fp16=True)),
    "8bit": dict(title="8-bit AdamW", cuts=1, ours=EIGHT_BIT, peer=EIGHT_BIT),
    "all_but_8bit": dict(
        title="all but 8-bit AdamW",
        cuts=4,
        ours=dict(**CHECKPOINTING, fp16=True),
        peer=CHECKPOINTING,
    ),
    "all": dict(
        title="all",
        cuts=4,
        ours=dict(**CHECKPOINTING, **EIGHT_BIT, fp16=True),
        peer=dict(**CHECKPOINTING, **EIGHT_BIT),
    ),
    "lean": dict(
        title="companded 8-bit AdamW, bf16 gradients",
        cuts=16,
        ours=LEAN,
        target=1000,
        times_plain=0.6,
    ),
    "lean_save": dict(
        title="the same, with a save after every update",
        cuts=16,
        ours=dict(**LEAN, save_strategy="steps", save_steps=1, save_total_limit=1),
        target=1000,
        peak_of="lean",
    ),
    "lean_split": dict(
        title="the same, bf16 + int8 weights",
        cuts=16,
        ours=dict(**LEAN, param_dtype="bfloat16+int8"),
        target=1000,
        times_plain=0.6,
    ),
    "least": dict(
        title="the same, GELU and attention recomputed, 2 rows at a time",
        cuts=32,
        ours=dict(**LEAN, **CHECKPOINTING, **SELECTIVE, param_dtype="bfloat16+int8"),
        target=770,
    ),
    "in_backward": dict(
        title="update in the backward pass, bf16 weights, checkpointing",
        cuts=1,
        ours=dict(**IN_BACKWARD, **CHECKPOINTING),
    ),
    "1.1b_checkpointing": dict(
        title="1.1B: checkpointing, 8-bit AdamW, float32 weights and gradients",
        model="1.1b",
        cuts=4,
        ours=dict(**CHECKPOINTING, **EIGHT_BIT),
        target=12 * 1024,
    ),
    "1.1b_lean": dict(
        title="1.1B: companded 8-bit AdamW, bf16 gradients, bf16 + int8 weights, checkpointing",
        model="1.1b",
        cuts=4,
        ours=dict(**LEAN, **CHECKPOINTING, param_dtype="bfloat16+int8"),
        target=8 * 1024,
    ),
    "1.1b_in_backward": dict(
        title="1.1B: update in the backward pass, bf16 weights, checkpointing",
        model="1.1b",
        cuts=1,
        ours=dict(**IN_BACKWARD, **CHECKPOINTING),
        target=8 * 1024,
    ),
}


def model_of(rung, model=None):
    """Of a rung, or the one that is asked for in every rung."""
    return model or RUNGS[rung].get("model", "84m")


def keys_of(rung, program, model, updates):
    """The settings of both programs."""
    batch, cuts = MODELS[model_of(rung, model)]["batch"], RUNGS[rung]["cuts"]
    return {
        "per_device_train_batch_size": batch // cuts,
        "gradient_accumulation_steps": cuts,
        "max_steps": updates,
        "learning_rate": 5e-5,
        "max_grad_norm": 1.0,
        "seed": 1,
        "save_strategy": "no",
        **RUNGS[rung][program],
    }
