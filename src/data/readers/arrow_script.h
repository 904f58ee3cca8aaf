// SPDX-License-Identifier: MIT
#pragma once

namespace finetune {

// Arguments: the file, its kind (parquet or arrow), the first row. Writes one JSON value per line,
// after a letter: "C" [number of rows, or null if unknown], "R" a row as an object, "D" the number
// of rows at the end, "N" the reason why pyarrow is missing, "E" the reason why the file cannot be
// read. Checksums are verified if the file has them and pyarrow supports it. Bytes that are not
// UTF-8 are written unchanged; the reader of the row rejects or replaces them. NaN becomes null,
// and dates become text as Python prints them.
inline constexpr const char* kArrowScript = R"python(
import sys
sys.path[:] = [folder for folder in sys.path if folder]
import json, math, os
path, kind = sys.argv[1:3]
first = int(sys.argv[3])
out = sys.stdout.buffer
def say(letter, value):
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=plain)
    out.write((letter + text + "\n").encode("utf-8"))
def plain(value):
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode("utf-8", "surrogateescape")
    return str(value)
def finite(value):
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(x) for key, x in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(x) for x in value]
    return value
def text_of(row):
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False, default=plain)
    except (ValueError, TypeError):
        return json.dumps(finite(row), ensure_ascii=False, allow_nan=False, default=plain)
most = 16 << 20  # of a row, as data/line_reader.h has it
def too_long(name):
    raise ValueError("column %r holds a value of more than 16 MiB" % name)
def values_of(name, column):
    values = list_of(name, column)
    for value in values:
        if isinstance(value, (str, bytes)) and len(value) > most:
            too_long(name)
    return values
def list_of(name, column):
    import pyarrow
    if column.nbytes > most and len(column) == 1:
        too_long(name)
    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        if pyarrow.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        for text, plain in ((pyarrow.string(), pyarrow.binary()),
                            (pyarrow.large_string(), pyarrow.large_binary())):
            if column.type == text:
                return column.cast(plain).to_pylist()
        raise ValueError("column %r holds bytes that are no UTF-8 text" % name)
def rows_of(batches, count=0):
    for batch in batches:
        if count + batch.num_rows <= first:
            count += batch.num_rows
            continue
        if count < first:
            batch = batch.slice(first - count)
            count = first
        names = batch.schema.names
        if len(set(names)) != len(names):
            raise ValueError("two columns have one name")
        columns = [values_of(*column) for column in zip(names, batch.columns)]
        lines = []
        for values in zip(*columns):
            row = dict(zip(names, values))
            count += 1
            lines.append("R" + text_of(row) + "\n")
        out.write("".join(lines).encode("utf-8", "surrogateescape"))
    return count
# The batches of a Parquet file's row groups, of at most some 16 MiB. A row group whose values have
# more on average is not read at all: it would take several times that.
def batches_of(file, groups):
    for index in groups:
        group = file.metadata.row_group(index)
        rows = max(1, group.num_rows)
        for i in range(group.num_columns):
            if group.column(i).total_uncompressed_size // rows > most:
                too_long(group.column(i).path_in_schema)
        mean = max(1, group.total_byte_size // rows)
        yield from file.iter_batches(max(1, min(1000, most // mean)), [index])
def main():
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        return say("N", str(error))
    if tuple(int(x) for x in pyarrow.__version__.split(".")[:2]) < (14, 1):
        # CVE-2023-47248: older ones execute what a file names.
        return say("N", "pyarrow %s is older than 14.0.1" % pyarrow.__version__)
    try:
        packing = {".gz": "gzip", ".zst": "zstd"}.get(os.path.splitext(path)[1].lower())
        if packing:
            with pyarrow.input_stream(path, compression=packing) as stream:
                source = pyarrow.BufferReader(stream.read())
        else:
            source = pyarrow.memory_map(path)
        if kind == "parquet":
            try:
                file = pyarrow.parquet.ParquetFile(source, page_checksum_verification=True)
            except TypeError:
                file = pyarrow.parquet.ParquetFile(source)
            say("C", [file.metadata.num_rows])
            groups, skipped = list(range(file.num_row_groups)), 0
            while groups:
                rows = file.metadata.row_group(groups[0]).num_rows
                if skipped + rows > first:
                    break
                skipped += rows
                del groups[0]
            return say("D", rows_of(batches_of(file, groups), skipped) if groups else skipped)
        try:
            file = pyarrow.ipc.open_file(source)
        except pyarrow.ArrowInvalid:
            source.seek(0)
            say("C", [None])
            return say("D", rows_of(pyarrow.ipc.open_stream(source)))
        batches = (file.get_batch(i) for i in range(file.num_record_batches))
        say("C", [None])
        return say("D", rows_of(batches))
    except BrokenPipeError:
        raise
    except Exception as error:
        return say("E", str(error).split("\n")[0] or type(error).__name__)
try:
    main()
    out.flush()
except BrokenPipeError:
    os._exit(0)
)python";

}  // namespace finetune
