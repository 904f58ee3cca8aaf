# SPDX-License-Identifier: MIT
"""Parquet and Arrow files contain the same as JSON lines with the same rows: trainings on both are equal
to the last bit."""

import gzip
import json
from pathlib import Path

import pyarrow
import pyarrow.feather
import pyarrow.parquet
from support import TEXT, ParityTest, run_binary, run_for_code
from test_tasks import FILES, write_config, write_short_training


def table_of(path):
    return pyarrow.Table.from_pylist([json.loads(x) for x in path.read_text().splitlines()])


def write_parquet(table, path):
    pyarrow.parquet.write_table(table, path, row_group_size=7, compression="zstd")
    return path


def write_arrow_stream(table, path):
    # In the format of datasets' cache.
    with pyarrow.OSFile(str(path), "wb") as out:
        with pyarrow.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table, max_chunksize=5)
    return path


def write_arrow_file(table, path):
    with pyarrow.OSFile(str(path), "wb") as out:
        with pyarrow.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table, max_chunksize=5)
    return path


def write_feather(table, path):
    pyarrow.feather.write_feather(table, str(path), compression="lz4")
    return path


def write_packed(table, path):
    plain = write_arrow_stream(table, path.with_name("plain"))
    path.write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    return path


WRITERS = {
    "a.parquet": write_parquet,
    "stream.arrow": write_arrow_stream,
    "file.arrow": write_arrow_file,
    "a.feather": write_feather,
    "a.arrow.gz": write_packed,
}


class Arrow(ParityTest):
    def end_of(self, config):
        run_binary("train", config)
        run = Path(json.loads(config.read_text())["output_dir"])
        return (run / "model.safetensors").read_bytes()

    def train_on(self, task, train_file, name):
        return self.end_of(write_short_training(self.folder / name, task, train_file))

    def test_every_format_trains_as_json_lines_do(self):
        source = FILES / "topics-train.jsonl"
        expected = self.train_on("topics", source, "json")
        for name, write in WRITERS.items():
            with self.subTest(name):
                path = write(table_of(source), self.folder / name)
                self.assertEqual(self.train_on("topics", path, f"run-{name}"), expected)

    def test_streams_resume_inside_every_format(self):
        source = FILES / "topics-train.jsonl"
        keys = {"streaming": True, "shuffle_buffer_size": 8, "max_steps": 12}

        def training(name, path):
            config = write_short_training(self.folder / name, "topics", path)
            config.write_text(json.dumps({**json.loads(config.read_text()), **keys}))
            return config

        expected = self.end_of(training("json", source))
        for name, write in WRITERS.items():
            with self.subTest(name):
                config = training(f"run-{name}", write(table_of(source), self.folder / name))
                for step in (3, 8):
                    done = run_for_code("train", config, "--stop_at_step", step)
                    self.assertEqual(done.returncode, 75, done.stderr)
                self.assertEqual(self.end_of(config), expected)

    def test_lists_and_choices(self):
        for task in ("names", "choices"):
            with self.subTest(task):
                source = FILES / f"{task}-train.jsonl"
                path = write_parquet(table_of(source), self.folder / f"{task}.parquet")
                expected = self.train_on(task, source, f"{task}-json")
                self.assertEqual(self.train_on(task, path, f"{task}-parquet"), expected)

    def test_a_split_counts_the_same_rows(self):
        lines = (TEXT / "lighthouse.txt").read_text().splitlines()[:80]
        table = pyarrow.table({"text": [x.strip() for x in lines]})
        (self.folder / "a.jsonl").write_text(
            "".join(json.dumps({"text": x}) + "\n" for x in table["text"].to_pylist())
        )
        write_parquet(table, self.folder / "a.parquet")
        ends = []
        for name in ("a.jsonl", "a.parquet"):
            config = self.folder / f"{name}.json"
            keys = {
                "task": "mlm",
                "model_name_or_path": str(self.model_folder()),
                "train_file": str(self.folder / name),
                "validation_split_percentage": 20,
                "line_by_line": True,
                "max_seq_length": 24,
                "max_steps": 2,
                "eval_strategy": "steps",
                "eval_steps": 2,
                "output_dir": str(self.folder / f"run-{name}"),
                "cache_dir": str(self.folder / "cache"),
                "report_to": "none",
            }
            config.write_text(json.dumps(keys))
            ends.append(self.end_of(config))
            results = json.loads((self.folder / f"run-{name}" / "all_results.json").read_text())
            ends[-1] = (ends[-1], results["eval_loss"])
        self.assertEqual(ends[0], ends[1])

    def model_folder(self):
        from test_tasks import TASKS

        keys = json.loads(
            write_config(self.folder, "bert/words", output_dir=str(self.folder / "x")).read_text()
        )
        folder = self.folder / "words-model"
        if not folder.exists():
            folder.mkdir()
            for part in (TASKS / "bert" / "words", Path(keys["tokenizer_name"])):
                for file in part.iterdir():
                    (folder / file.name).write_bytes(file.read_bytes())
        return folder

    def refused(self, path, keys=()):
        folder = self.folder / "refused"
        folder.mkdir(exist_ok=True)
        config = write_config(folder, "bert/topics")
        values = {**json.loads(config.read_text()), "train_file": str(path), **dict(keys)}
        config.write_text(json.dumps(values))
        done = run_for_code("train", config)
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stderr

    def test_damage_is_an_error_with_the_file(self):
        source = table_of(FILES / "topics-train.jsonl")
        whole = write_parquet(source, self.folder / "a.parquet").read_bytes()
        for name, content in {
            "cut.parquet": whole[: len(whole) // 2],
            "other.parquet": b"no parquet at all" * 9,
            "cut.arrow": write_arrow_file(source, self.folder / "b").read_bytes()[:400],
        }.items():
            with self.subTest(name):
                path = self.folder / name
                path.write_bytes(content)
                said = self.refused(path)
                self.assertIn(str(path), said)
                self.assertIn("pyarrow cannot read it", said)
        flipped = bytearray(whole)
        flipped[60] ^= 0x40  # in the packed data of the first page, which zstd does not checksum
        path = self.folder / "flipped.parquet"
        path.write_bytes(flipped)
        try:
            pyarrow.parquet.read_table(path)
        except Exception:
            self.assertIn("pyarrow cannot read it", self.refused(path))

    def test_values_above_16_mib_are_refused_without_being_read(self):
        long = pyarrow.table({"text": ["x" * (17 << 20)], "label": [0]})
        row = pyarrow.table({"text": ["short"] * 200 + ["x" * (17 << 20)], "label": [0] * 201})
        for name, write, table in [
            ("alone.parquet", pyarrow.parquet.write_table, long),
            ("among.parquet", pyarrow.parquet.write_table, row),
            ("file.arrow", write_arrow_file, long),
        ]:
            with self.subTest(name):
                path = self.folder / name
                write(table, path)
                self.assertIn("column 'text' holds a value of more than 16 MiB", self.refused(path))

    def test_pages_are_what_their_checksums_say(self):
        rows = table_of(FILES / "topics-train.jsonl")
        path = self.folder / "a.parquet"
        pyarrow.parquet.write_table(
            rows, path, compression="none", use_dictionary=False, write_page_checksum=True
        )
        whole = bytearray(path.read_bytes())
        # the first and the last are also in the statistics
        texts = sorted(set(rows["text"].to_pylist()))
        at = whole.index(texts[len(texts) // 2].encode())
        whole[at] ^= 1  # another letter: only a checksum can detect it
        path.write_bytes(whole)
        self.assertIn("pyarrow cannot read it", self.refused(path))

    def test_numbers_that_are_none_bytes_and_dates(self):
        import datetime

        rows = table_of(FILES / "topics-train.jsonl")
        count = rows.num_rows
        rows = rows.append_column("score", pyarrow.array([float("nan")] * count))
        rows = rows.append_column("day", pyarrow.array([datetime.date(2020, 1, 2)] * count))
        rows = rows.append_column("raw", pyarrow.array([b"text"] * count))
        expected = self.train_on("topics", FILES / "topics-train.jsonl", "json")
        path = write_parquet(rows, self.folder / "more.parquet")
        self.assertEqual(self.train_on("topics", path, "more"), expected)
        bad = rows.append_column("bytes", pyarrow.array([b"\xff"] * count))
        said = self.refused(write_parquet(bad, self.folder / "bad.parquet"))
        self.assertIn("no UTF-8", said)
