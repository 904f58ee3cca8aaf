#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints the table of text_dataset_golden_test.cpp: what run_mlm's preprocessing (datasets' text
loader, batched map, group_texts) makes of the text that the test writes, with a tokenizer of bytes.

Needs transformers, tokenizers, datasets, numpy and xxhash.
"""
import os
import tempfile
from itertools import chain

import numpy
import xxhash
from datasets import disable_caching, disable_progress_bars, load_dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

WORDS = ["saluton", "mondo", "ĉu", "vi", "地図", "ok"]


def sample_text():
    text = "\ufeff"
    for i in range(2500):
        if i % 7 == 3:
            pass
        elif i % 11 == 5:
            text += "  \u3000"
        else:
            text += " ".join(WORDS[(i * 5 + j * 3 + j // 4) % 6] for j in range((i * 37) % 23 + 1))
        text += "\r\n" if i % 5 == 0 else "\r" if i % 97 == 1 else "\n"
    return text + "fino"


def byte_tokenizer():
    vocab = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 4}
    vocab.update({char: 5 + byte for byte, char in bytes_to_unicode().items()})
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0),
                                                            add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>",
                                   unk_token="<unk>", pad_token="<pad>", mask_token="<mask>")


def preprocess(rows, tokenizer, line_by_line, max_seq_length):
    if line_by_line:
        def tokenize(examples):
            lines = [line for line in examples["text"] if len(line) > 0 and not line.isspace()]
            return tokenizer(lines, truncation=True, max_length=max_seq_length,
                             return_special_tokens_mask=True)

        return rows.map(tokenize, batched=True, remove_columns=["text"])
    tokens = rows.map(lambda examples: tokenizer(examples["text"], return_special_tokens_mask=True),
                      batched=True, remove_columns=["text"])

    def group_texts(examples):
        joined = {key: list(chain(*examples[key])) for key in examples.keys()}
        total = len(joined[list(examples.keys())[0]]) // max_seq_length * max_seq_length
        return {key: [values[i:i + max_seq_length] for i in range(0, total, max_seq_length)]
                for key, values in joined.items()}

    return tokens.map(group_texts, batched=True)


def main():
    disable_caching()
    disable_progress_bars()
    tokenizer = byte_tokenizer()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "text.txt")
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(sample_text())
        parts = {name: load_dataset("text", data_files={"train": path}, split=split,
                                    cache_dir=folder)
                 for name, split in [("kAll", "train"), ("kTrain", "train[5%:]"),
                                     ("kValidation", "train[:5%]")]}
        for part, rows in parts.items():
            for line_by_line, length in [(True, 24), (False, 128), (False, 1000)]:
                samples = preprocess(rows, tokenizer, line_by_line, length)["input_ids"]
                ids = numpy.array(list(chain(*samples)), dtype="<i4")
                digest = xxhash.xxh3_128_hexdigest(ids.tobytes())
                print(f'{{Part::{part}, {str(line_by_line).lower()}, {length}, {len(rows)}, '
                      f'{len(samples)}, {len(ids)}, "{digest}"}},')


if __name__ == "__main__":
    main()
