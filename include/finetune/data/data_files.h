// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace finetune {

enum class FileKind { kText, kJsonLines, kJson, kCsv, kTsv, kConll, kParquet, kArrow, kTfRecord };

// By the name's ending: .jsonl and .ndjson hold one JSON object a line; .json one list of objects,
// {"data": [...]} or objects one after the other; .csv, .tsv; .conll, .iob and .bio; .parquet;
// .arrow and .feather (Arrow's file and stream formats); TFRecord's (is_tf_record()). Endings of
// kinds that cannot be read are Error(kData), everything else is plain text. Each may be packed
// (.jsonl.gz, .txt.zst).
[[nodiscard]] FileKind file_kind(const std::string& path);

enum class Quoting {
  kAuto,      // as kStandard; of tab-separated files as kNone where quotes fit no field
  kStandard,  // RFC 4180: a field in quotes may hold separators, line ends and doubled quotes
  kNone,      // quotes are text: GLUE's TSV files
};

// Whether plain text whose lines all hold a word and its tag is CoNLL.
enum class ConllText {
  kNever,
  kEntities,  // where all tags are O, B-..., I-... and the like
  kAny,
};

// Format of files whose ending does not determine it; unset: decided by the first rows.
struct ReadingOptions {
  std::optional<char> delimiter = {};  // of CSV and TSV, as what follows
  Quoting quoting = Quoting::kAuto;
  bool header = true;  // false: columns are called column_1, column_2, ...
  ConllText conll_text = ConllText::kNever;

  friend bool operator==(const ReadingOptions&, const ReadingOptions&) = default;
};

// Whether the rows of this file are its lines. Throws as file_kind() does, and Error(kIo).
[[nodiscard]] bool is_plain_text(const std::string& path, const ReadingOptions& reading);

// The files that a configuration key names: paths in the order given, globs (* ? [...]) replaced by
// what they match in byte order, folders by the files in them, hidden ones and prepare.json left
// out, in byte order. Throws Error(kData), which names `key`, where a glob or folder holds nothing
// or a path is missing or an empty file.
[[nodiscard]] std::vector<std::string> expand_files(const std::vector<std::string>& patterns,
                                                    const std::string& key);

// Rows of all files together: lines of plain text, objects of JSON (of SQuAD's: articles), records
// of CSV and TSV after their header, sentences of CoNLL, rows of Parquet and Arrow, records of
// TFRecord.
// `progress` receives the fraction of the bytes read. Throws as expand_files does, and Interrupted.
[[nodiscard]] int64_t count_rows(const std::vector<std::string>& patterns, const std::string& key,
                                 const std::function<void(double)>& progress = {},
                                 const ReadingOptions& reading = {});

struct RowRange {
  int64_t begin = 0;
  int64_t end = INT64_MAX;
};

struct RowSplit {
  RowRange train;
  RowRange validation;
};

// The first `percentage` % of the rows for validation, the rest for training, rounded as
// datasets' "train[:5%]" is. Throws Error(kConfig) where a part would be empty.
[[nodiscard]] RowSplit split_rows(int64_t rows, int64_t percentage);

}  // namespace finetune
