#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The cost of data: tokenising, batches, and training with 0, 2 and 8 workers, and that of the peers.

ninja data_benchmark builds what measures ours. Tokenisers are compared on the files of --data: ours
on --megabytes of them, one thread; Hugging Face's and the sentencepiece package on a part, as they
would take minutes, where all ids are compared. Every speed is of CPU seconds, programs' start and
reading of vocabularies apart, the fastest of a few turns. The last table is an experiment of 2020, which
nearly halved its time with 8 workers for 2, as Python tokenised every sample whenever it was drawn:
the same model, text and number of updates with transformers' Trainer and here, interleaved.
Writes results/data.json; --report prints Markdown. Needs transformers, accelerate, sentencepiece.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from memory import machine

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULTS = HERE / "results" / "data.json"
SPECIAL_TOKENS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
WORKERS = (0, 2, 8)


def ours(build, *words):
    said = subprocess.run(
        [build / "data_benchmark", *map(str, words)], capture_output=True, text=True
    )
    if said.returncode != 0:
        sys.exit(f"data_benchmark {' '.join(map(str, words))}: {said.stderr}")
    return json.loads(said.stdout)


def cpu_seconds(work):
    begin = time.process_time()
    result = work()
    return time.process_time() - begin, result


def fastest(turns, work):
    """Of a few turns, as others use the machine: (CPU seconds, result)."""
    return min((cpu_seconds(work) for _ in range(turns)), key=lambda found: found[0])


def child_seconds(command, **options):
    """(CPU seconds, seconds) of a command and all that it starts."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    after, end = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    if done.returncode != 0:
        sys.exit(f"{command}: {done.stderr[-3000:]}")
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return cpu, end - begin, done.stdout


def repeated(files, megabytes, target):
    """A file of about this number of megabytes: the files again and again."""
    content = b"".join(f.read_bytes().rstrip(b"\n") + b"\n" for f in files)
    times = max(1, round(megabytes * 1e6 / len(content)))
    with open(target, "wb") as out:
        for _ in range(times):
            out.write(content)
    return target


def part_of(path, megabytes):
    with open(path, "rb") as file:
        return file.read(int(megabytes * 1e6)).decode(errors="ignore").split("\n")[:-1]


def without_special_tokens(path, target):
    """The file without the [SEP] of its titles, which are text to the sentencepiece package alone."""
    target.write_text(path.read_text().replace(" [SEP] ", " "))
    return target


def measure_training(arguments, scratch, latin):
    """Byte-level BPE, trained by both, compared in what they learn."""
    from tokenizers import ByteLevelBPETokenizer

    rows = []
    for megabytes, name in ((0, "bpe"), (arguments.megabytes, "bpe-large")):
        text = repeated(latin, megabytes, scratch / "text")
        bpe = ByteLevelBPETokenizer()
        turns = arguments.turns if megabytes == 0 else 1
        theirs, _ = fastest(
            turns,
            lambda: bpe.train(
                files=[str(text)], vocab_size=52000, min_frequency=2, show_progress=False,
                special_tokens=SPECIAL_TOKENS,
            ),
        )  # fmt: skip
        folder, hf = scratch / name, scratch / f"hf-{name}"
        folder.mkdir()
        hf.mkdir()
        mine = min(
            ours(arguments.build, "train", 52000, folder, text)["cpu_seconds"] for _ in range(turns)
        )
        bpe.save_model(str(hf))
        merges = json.loads((folder / "tokenizer.json").read_text())["model"]["merges"]
        lines = (hf / "merges.txt").read_text().split("\n")[1:]
        rows.append(
            {
                "vocab_size": 52000,
                "megabytes": text.stat().st_size / 1e6,
                "cpu_seconds": mine,
                "peer_cpu_seconds": theirs,
                "equal_merges": merges == [x.split(" ") for x in lines if x],
            }
        )
        print(rows[-1], file=sys.stderr)
    return rows


def measure_tokenizers(arguments, scratch):
    import numpy
    from tokenizers import BertWordPieceTokenizer, Tokenizer
    from transformers import BertTokenizerFast

    build, binary = arguments.build, arguments.build / "finetune"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"
    latin = [arguments.data / n for n in ("esperanto.txt", "shakespeare.txt")]
    japanese = without_special_tokens(arguments.data / "japanese.txt", scratch / "japanese")
    rows = []

    def compare(name, folder, files, encode, peer):
        for megabytes in (0, arguments.megabytes):
            text = repeated(files, megabytes, scratch / "text")
            mine = min(
                (ours(build, "encode", folder, text, 1) for _ in range(arguments.turns)),
                key=lambda found: found["cpu_seconds"],
            )
            sample = part_of(text, arguments.peer_megabytes)
            seconds, ids = fastest(arguments.turns, lambda: encode(sample))
            size = sum(len(x.encode()) + 1 for x in sample)
            (scratch / "sample").write_text("\n".join(sample) + "\n")
            ours(build, "ids", folder, scratch / "sample", scratch / "ids")
            check = numpy.fromfile(scratch / "ids", dtype=numpy.int32)
            rows.append(
                {
                    "name": name,
                    "megabytes": round(mine["bytes"] / 1e6, 1),
                    "mb_per_cpu_second": mine["bytes"] / 1e6 / mine["cpu_seconds"],
                    "peer": peer,
                    "peer_mb_per_cpu_second": size / 1e6 / seconds,
                    "equal_ids": numpy.array_equal(check, numpy.concatenate(ids)),
                }
            )
            print(rows[-1], file=sys.stderr)

    training = measure_training(arguments, scratch, latin)
    folder = scratch / "bpe"
    hf = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def encode_hf(tokenizer):
        return lambda text: [
            x.ids for x in tokenizer.encode_batch_fast(text, add_special_tokens=False)
        ]

    compare("byte-level BPE, 52,000", folder, latin, encode_hf(hf), "tokenizers")

    wordpiece = BertWordPieceTokenizer(lowercase=True)
    wordpiece.train(files=[str(x) for x in latin], vocab_size=16000, show_progress=False)
    (scratch / "wordpiece").mkdir()
    wordpiece.save_model(str(scratch / "wordpiece"))
    BertTokenizerFast(vocab=str(scratch / "wordpiece" / "vocab.txt")).save_pretrained(
        scratch / "bert"
    )
    hf = Tokenizer.from_file(str(scratch / "bert" / "tokenizer.json"))
    compare("WordPiece, 16,000", scratch / "bert", latin, encode_hf(hf), "tokenizers")

    import sentencepiece

    for kind, files in (("unigram", [japanese]), ("unigram", latin), ("bpe", latin)):
        folder = scratch / f"{kind}-{len(files)}"
        child_seconds(
            [binary, "tokenizer", "train", "--type", f"sentencepiece_{kind}", "--vocab_size", 8000,
             "--output", folder, *files]
        )  # fmt: skip
        library = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
        language = "Japanese" if files == [japanese] else "Latin script"
        compare(
            f"SentencePiece {kind}, 8,000, {language}", folder, files,
            lambda text: library.encode(text, num_threads=1), "sentencepiece",
        )  # fmt: skip
    return training, rows


def measure_batches(arguments, scratch):
    rows = []
    text = repeated([arguments.data / "esperanto.txt"], 5, scratch / "text")
    for workers in (0, 2):
        found = ours(arguments.build, "batches", scratch / "bpe", text, 16, 128, workers, 300)
        rows.append({"workers": workers, **found})
        print(rows[-1], file=sys.stderr)
    return rows


def peer_trains(text, tokenizer, workers, updates, batch):
    """The program of 2020: a sample is tokenised whenever it is drawn."""
    import torch
    from transformers import (
        DataCollatorForLanguageModeling,
        RobertaConfig,
        RobertaForMaskedLM,
        RobertaTokenizerFast,
        Trainer,
        TrainingArguments,
    )

    torch.set_num_threads(1)
    words = RobertaTokenizerFast.from_pretrained(tokenizer)

    class Lines(torch.utils.data.Dataset):
        def __init__(self):
            self.lines = [x for x in Path(text).read_text().split("\n") if x.strip()]

        def __len__(self):
            return len(self.lines)

        def __getitem__(self, index):
            return words(self.lines[index], truncation=True, max_length=128)

    model = RobertaForMaskedLM(
        RobertaConfig(
            vocab_size=len(words), num_hidden_layers=2, num_attention_heads=4, hidden_size=64,
            intermediate_size=256, max_position_embeddings=130, type_vocab_size=1,
        )
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder, max_steps=updates, per_device_train_batch_size=batch, use_cpu=True,
            dataloader_num_workers=workers, save_strategy="no", report_to="none", seed=1,
            disable_tqdm=True,
        )  # fmt: skip
        trainer = Trainer(
            model=model,
            args=settings,
            train_dataset=Lines(),
            data_collator=DataCollatorForLanguageModeling(words),
        )
        begin = time.perf_counter()
        trainer.train()
        print(json.dumps({"seconds": time.perf_counter() - begin}))


def our_training(arguments, scratch, text, workers, name):
    config = {
        "output_dir": str(scratch / name),
        "cache_dir": str(scratch / "cache"),
        "model_type": "roberta",
        "tokenizer_name": str(scratch / "small"),
        "config_overrides": {
            "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64,
            "intermediate_size": 256, "max_position_embeddings": 130, "type_vocab_size": 1,
        },
        "train_file": str(text),
        "line_by_line": True,
        "max_seq_length": 128,
        "max_steps": arguments.updates,
        "per_device_train_batch_size": arguments.batch,
        "dataloader_num_workers": workers,
        "save_strategy": "no",
        "do_eval": False,
        "eval_strategy": "no",
        "report_to": "none",
        "seed": 1,
    }  # fmt: skip
    path = scratch / f"{name}.json"
    path.write_text(json.dumps(config))
    child_seconds(
        [arguments.build / "finetune", "train", path], env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    results = json.loads((scratch / name / "train_results.json").read_text())
    return results["train_runtime"], (scratch / name / "model.safetensors").read_bytes()


def measure_workers(arguments, scratch):
    text = arguments.data / "esperanto.txt"
    child_seconds(
        [arguments.build / "finetune", "tokenizer", "train", "--type", "byte_level_bpe",
         "--vocab_size", 4000, "--output", scratch / "small", text]
    )  # fmt: skip
    rows = [{"workers": w, "seconds": [], "peer_seconds": []} for w in WORKERS]
    models = set()
    for turn in range(arguments.rounds):
        for row in rows:
            workers = row["workers"]
            seconds, model = our_training(arguments, scratch, text, workers, f"{turn}-{workers}")
            row["seconds"].append(seconds)
            models.add(model)
            _, _, said = child_seconds(
                [sys.executable, __file__, "--peer", text, scratch / "small", workers,
                 arguments.updates, arguments.batch]
            )  # fmt: skip
            row["peer_seconds"].append(json.loads(said.strip().split("\n")[-1])["seconds"])
            print(row, file=sys.stderr)
    return rows, len(models) == 1


def report(found, only_tokenizers):
    print(
        "| one core, CPU seconds | text | MB/s | peer | MB/s | times | ids |\n"
        "|---|---|---|---|---|---|---|"
    )
    for row in found["tokenizers"]:
        mine, peer = row["mb_per_cpu_second"], row["peer_mb_per_cpu_second"]
        print(
            f"| {row['name']} | {row['megabytes']:,} MB | {mine:.1f} | {row['peer']} | {peer:.1f} "
            f"| {mine / peer:.1f} | {'the same' if row['equal_ids'] else 'OTHER'} |"
        )
    print("\n| training byte-level BPE | CPU s | tokenizers, CPU s | merges |\n|---|---|---|---|")
    for row in found["training"]:
        print(
            f"| {row['vocab_size']:,} of {row['megabytes']:.1f} MB | {row['cpu_seconds']:.2f} "
            f"| {row['peer_cpu_seconds']:.2f} | {'the same' if row['equal_merges'] else 'OTHER'} |"
        )
    if only_tokenizers:
        return
    print()
    for row in found["batches"]:
        print(
            f"A masked batch of 16 x 128, {row['workers']} workers: {row['microseconds']:.0f} us of "
            f"the training thread, {row['allocations']:.0f} allocations."
        )
    print("\n| workers | finetune, s | transformers, s |\n|---|---|---|")
    for row in found["workers"]:
        print(f"| {row['workers']} | {min(row['seconds']):.1f} | {min(row['peer_seconds']):.1f} |")
    print(f"\nequal models for any number of workers: {found['equal_models']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--data", type=Path, help="folder of esperanto.txt, shakespeare.txt, ...")
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--peer_megabytes", type=float, default=4)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=3, help="of which the fastest counts")
    parser.add_argument(
        "--only_tokenizers", action="store_true", help="keep what is known of all else"
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--peer", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peer:
        text, tokenizer, *numbers = arguments.peer
        return peer_trains(text, tokenizer, *map(int, numbers))
    if arguments.report:
        return report(json.loads(arguments.results.read_text()), arguments.only_tokenizers)
    if not arguments.data:
        parser.error("--data names no folder")
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        known = arguments.only_tokenizers and arguments.results.is_file()
        found = json.loads(arguments.results.read_text()) if known else {}
        found["machine"] = machine()
        found["training"], found["tokenizers"] = measure_tokenizers(arguments, scratch)
        if not arguments.only_tokenizers:
            found["batches"] = measure_batches(arguments, scratch)
            found["workers"], found["equal_models"] = measure_workers(arguments, scratch)
    arguments.results.write_text(json.dumps(found, indent=1) + "\n")
    report(found, arguments.only_tokenizers)


if __name__ == "__main__":
    main()
