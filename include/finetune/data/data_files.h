// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace finetune {

// Next to the shards that `finetune prepare` writes: what they were made from, and how many there
// are (write_shards()).
inline constexpr char kShardManifest[] = "prepare.json";

enum class FileKind { kText, kJsonLines, kJson, kCsv, kTsv, kConll, kParquet, kArrow, kTfRecord };

// Returns the format by the name's ending: .jsonl and .ndjson contain one JSON object per line;
// .json a list of objects, {"data": [...]} or a sequence of objects; .csv, .tsv; .conll, .iob and
// .bio; .parquet; .arrow and .feather (Arrow's file and stream formats); TFRecord's
// (is_tf_record()). Endings of unsupported formats are Error(kData); everything else is plain text.
// All may be compressed (.jsonl.gz, .txt.zst).
[[nodiscard]] FileKind file_kind(const std::string& path);
// The same for endings that are usual for data (.txt, .text, .tokens and .raw of plain text);
// nullopt for others.
[[nodiscard]] std::optional<FileKind> kind_by_ending(const std::string& path);

enum class Quoting {
  kAuto,  // as kStandard; but kNone for tab-separated files in which quotes do not enclose fields
  kStandard,  // RFC 4180: a quoted field may contain separators, line ends and doubled quotes
  kNone,      // quotes are ordinary text: GLUE's TSV files
};

// Whether plain text with a word and its tag on each line is read as CoNLL.
enum class ConllText {
  kNever,
  kEntities,  // if all tags are O, B-..., I-... and the like
  kAny,
};

// Details that a file's ending does not determine; unset ones are decided from the first rows.
struct ReadingOptions {
  std::optional<char> delimiter = {};  // of CSV and TSV, like the next two
  Quoting quoting = Quoting::kAuto;
  bool header = true;  // false: columns are named column_1, column_2, ...
  ConllText conll_text = ConllText::kNever;

  friend bool operator==(const ReadingOptions&, const ReadingOptions&) = default;
};

// Whether the rows of this file are its lines. Throws as file_kind() does, and Error(kIo).
[[nodiscard]] bool is_plain_text(const std::string& path, const ReadingOptions& reading);

// Returns the files that a configuration key names: paths in the given order, globs (* ? [...] and
// ** for any number of folders) replaced by their matches in byte order, and folders by the data
// files in them, as load_dataset() and load_from_disk() of `datasets` find them: the key decides
// the split. Logs what was taken and left out once. Throws Error(kConfig), which names `key`, if a
// glob or folder yields nothing or files of two kinds, or a path is missing; Error(kData) for an
// empty file; Interrupted.
[[nodiscard]] std::vector<std::string> expand_files(const std::vector<std::string>& patterns,
                                                    const std::string& key);

// Counts the rows of all files: lines of plain text, objects of JSON (of SQuAD: articles), records
// of CSV and TSV after their header, sentences of CoNLL, rows of Parquet and Arrow, records of
// TFRecord. `progress` receives the fraction of the bytes read. Throws as expand_files does, and
// Interrupted.
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

// A random part of `total` rows. Whether a row belongs to it is a function of (total, seed, row),
// so parts with adjacent ranges are disjoint and need no list of rows.
struct RowShare {
  int64_t total = 0;
  uint64_t seed = 0;
  RowRange positions;  // of the rows in a permutation
};

// Takes the first `percentage` % of the rows for validation and the rest for training, rounded like
// datasets' "train[:5%]". Throws Error(kConfig) if a part would be empty.
[[nodiscard]] RowSplit split_rows(int64_t rows, int64_t percentage);

}  // namespace finetune
