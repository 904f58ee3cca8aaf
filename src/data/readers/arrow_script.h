// SPDX-License-Identifier: MIT
#pragma once

namespace finetune {

// Arguments: the file, its kind (parquet or arrow), the first row. Writes one JSON value per line,
// after a letter: "C" [number of rows, or null if unknown, {column: its class names}], "R" a row as
// an object, "D" the number of rows at the end, "N" the reason why pyarrow is missing, "E" the
// reason why the file cannot be read. Checksums are verified if the file has them and pyarrow
// supports it. Bytes that are not UTF-8 are written unchanged; the reader of the row rejects or
// replaces them. NaN becomes null, and dates become text as Python prints them.
//
// A file that `datasets` wrote is read as `datasets` reads it, by the features in its schema: class
// numbers as their names (-1, no class, stays), JSON columns as values. A null field of a struct is
// left out, because Arrow pads the structs of a list with the fields of all others; only a
// message's own "content" stays, whose null is an empty answer. Maps become objects.
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
# What turns the values of a type into those of a row; None: nothing to do. `feature` is what
# datasets' schema says of it, `depth` the number of structs around it.
def reader_of(type, field, feature, depth=0):
    import pyarrow
    types = pyarrow.types
    feature = feature if isinstance(feature, (dict, list)) else {}
    kind = feature.get("_type") if isinstance(feature, dict) else None
    kind = kind if isinstance(kind, str) else None
    name = getattr(type, "extension_name", None)
    metadata = (field.metadata if field is not None else None) or {}
    name = name or metadata.get(b"ARROW:extension:name", b"").decode("utf-8", "replace")
    if kind == "ClassLabel" and isinstance(feature.get("names"), list):
        names = feature["names"]
        return lambda x: names[x] if isinstance(x, int) and 0 <= x < len(names) else x
    if name == "arrow.json" or kind == "Json":
        return lambda x: json.loads(x) if isinstance(x, (str, bytes)) else x
    if isinstance(type, pyarrow.BaseExtensionType):
        return reader_of(type.storage_type, None, feature, depth)
    if types.is_struct(type):
        return struct_reader(type, feature, kind, depth)
    if types.is_map(type):
        item = reader_of(type.item_type, type.item_field, None, depth + 1) or (lambda x: x)
        return lambda x: None if x is None else {str(k): item(v) for k, v in x}
    if any(test(type) for test in list_tests(types)):
        inner = feature[0] if isinstance(feature, list) and feature else None
        if kind in ("List", "Sequence", "LargeList"):
            inner = feature.get("feature")
        item = reader_of(type.value_type, type.value_field, inner, depth)
        return item and (lambda x: None if x is None else [item(y) for y in x])
    if types.is_dictionary(type):
        return reader_of(type.value_type, None, feature, depth)
    return None
def list_tests(types):
    names = ("is_list", "is_large_list", "is_fixed_size_list", "is_list_view", "is_large_list_view")
    return [getattr(types, name) for name in names if hasattr(types, name)]
def struct_reader(type, feature, kind, depth):
    # datasets stores Sequence({...}) as a struct of lists.
    inner = feature.get("feature") if kind == "Sequence" else feature
    inner = inner if isinstance(inner, dict) else {}
    readers = {}
    for field in (type.field(i) for i in range(type.num_fields)):
        own = inner.get(field.name)
        if kind == "Sequence":
            own = {"_type": "Sequence", "feature": own}
        readers[field.name] = reader_of(field.type, field, own, depth + 1) or (lambda x: x)
    kept = "content" if depth == 0 else None
    def read(x):
        if x is None:
            return None
        return {k: readers[k](v) for k, v in x.items() if v is not None or k == kept}
    return read
# What the schema says of datasets' features, a dict of columns.
def features_of(schema):
    try:
        text = (schema.metadata or {}).get(b"huggingface", b"{}")
        features = json.loads(text.decode("utf-8"))["info"]["features"]
        return features if isinstance(features, dict) else {}
    except (ValueError, KeyError, TypeError):
        return {}
# The names of a column's classes, if it holds classes or lists of them; None if not.
def classes_of(feature):
    while isinstance(feature, list) and feature:
        feature = feature[0]
    if not isinstance(feature, dict):
        return None
    names = feature.get("names")
    if feature.get("_type") == "ClassLabel" and isinstance(names, list):
        return [str(name) for name in names]
    nested = feature.get("_type") in ("List", "Sequence", "LargeList")
    return classes_of(feature.get("feature")) if nested else None
def say_start(rows, schema):
    named = {key: classes_of(feature) for key, feature in features_of(schema).items()}
    say("C", [rows, {key: names for key, names in named.items() if names}])
readers = None
def read_columns(schema, columns):
    global readers
    if readers is None:
        features = features_of(schema)
        readers = [reader_of(field.type, field, features.get(field.name)) for field in schema]
    for i, reader in enumerate(readers):
        if reader is None:
            continue
        try:
            columns[i] = [reader(x) for x in columns[i]]
        except ValueError as error:
            raise ValueError("column %r: %s" % (schema.names[i], error))
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
        read_columns(batch.schema, columns)
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
            say_start(file.metadata.num_rows, file.schema_arrow)
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
            file = pyarrow.ipc.open_stream(source)
            say_start(None, file.schema)
            return say("D", rows_of(file))
        batches = (file.get_batch(i) for i in range(file.num_record_batches))
        say_start(None, file.schema)
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
