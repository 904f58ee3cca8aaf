#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes docs/chat-masks.md: what is learned of TRL's original templates, which mark nothing, beside
the marks of TRL's patched copies.

Needs the packages of tests/requirements.txt and a built binary. Run it again when the rule in
src/chat/chat_renderer.cpp or TRL's templates change; the result is committed."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import trl
from tokenizers import AddedToken, Tokenizer

ROOT = Path(__file__).resolve().parent.parent
BINARY = ROOT / "build" / "finetune"
TEMPLATES = Path(trl.__file__).parent / "chat_templates"
TOKENIZER = ROOT / "tests" / "fixtures" / "tokenizers" / "causal"
SPECIAL = re.compile(r"<[|｜][^<>\s]*?[|｜]>|<\w+_of_turn>|<turn\|>|<\|turn>|\[/?INST\]")
MULTIMODAL = {"idefics3", "llava_next", "smolvlm", "lfm2_2_5_vl", "qwen2_5_vl", "qwen3_vl"}
ROWS = [
    [{"role": "user", "content": "Q1"}, {"role": "assistant", "content": "A1."}, {"role": "user", "content": "Q2"},
     {"role": "assistant", "content": "A2."}],
    [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A.", "reasoning_content": "R"}],
]  # fmt: skip


def learned(folder, template, special_of):
    """The learned parts of each row, as text."""
    tokenizer = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in sorted(set(SPECIAL.findall(special_of.read_text())))])
    (folder / "tokenizer").mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer" / "tokenizer.json"))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(names))
    (folder / "rows.jsonl").write_text("".join(json.dumps({"messages": row}) + "\n" for row in ROWS))
    (folder / "config.json").write_text(json.dumps({
        "task": "sft", "train_file": str(folder / "rows.jsonl"), "assistant_only_loss": True, "max_steps": 1,
        "chat_template_path": str(template), "tokenizer_name": str(folder / "tokenizer"), "model_type": "llama",
        "config_overrides": {"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 16,
                             "num_attention_heads": 2, "max_position_embeddings": 8192},
        "max_seq_length": 8192, "output_dir": str(folder / "out"), "cache_dir": str(folder / "cache"),
    }))  # fmt: skip
    subprocess.run([BINARY, "prepare", folder / "config.json", "--rows", folder / "out.jsonl"], check=True, capture_output=True)
    rows = []
    for line in (folder / "out.jsonl").read_text().splitlines():
        row = json.loads(line)
        parts, ids = [], []
        for token, label in [*zip(row["input_ids"], row["labels"]), (0, -100)]:
            if label != -100:
                ids.append(token)
            elif ids:
                parts.append(tokenizer.decode(ids, skip_special_tokens=False))
                ids = []
        rows.append(parts)
    return rows


def cell(rows):
    def shown(text):
        return "`" + json.dumps(text, ensure_ascii=False)[1:-1].replace("|", "&#124;") + "`"

    text = "<br>".join(", ".join(shown(part) for part in row) for row in rows)
    # A code span shows the entity as it is spelled; <code> does not.
    return re.sub(r"`([^`]*)`", lambda m: "<code>" + m[1].replace("<", "&lt;") + "</code>", text)


def main():
    lines = []
    same = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in sorted(TEMPLATES.glob("*.jinja")):
            patched = path.with_name(path.stem + "_training.jinja")
            if path.stem in MULTIMODAL or path.stem.endswith("_training") or not patched.exists():
                continue
            ours, marks = learned(folder, path, path), learned(folder, patched, path)
            same += ours == marks
            lines.append(f"| {path.stem} | {cell(ours)} | {'the same' if ours == marks else cell(marks)} |")
    page = f"""# What is learned of known templates

`scripts/make_chat_masks.py` writes this page. TRL has {len(lines)} templates of text models that mark nothing, and a patched copy of each with
`{{% generation %}}`. The table has what [`assistant_only_loss`](tasks/sft.md#what-is-learned-with-assistant_only_loss) learns of the original, and what the marks
of the copy say, for two conversations: one of two turns, and one whose answer has reasoning. In {same} both are equal; elsewhere the marks add
the white space after the turn, the header before it, or what the generation prompt already supplies.

| template | the original here | the marks of TRL's copy |
|---|---|---|
""" + "\n".join(lines) + "\n"  # fmt: skip
    (ROOT / "docs" / "chat-masks.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.exit(main())
