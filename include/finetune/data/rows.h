// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "finetune/data/data_files.h"
#include "finetune/data/stream_options.h"
#include "finetune/data/token_cache.h"

namespace finetune {

// Selects rows of data files. All tasks read the same formats: lines of JSON, JSON (a list of
// objects, or {"data": [...]}), CSV and TSV (RFC 4180 with a header line), Parquet and Arrow (by
// Python's pyarrow, in a separate process), TFRecord of tf.train.Example, plain text (a row
// {"text": line}) and CoNLL (a row {"tokens": [...], "ner_tags": [...]} for each sentence).
struct RowOptions {
  std::string key = "train_file";      // the configuration key that errors name
  std::optional<RowShare> share = {};  // of the rows of all files together; unset: all
  RowRange rows;                       // of all files together or of that share; see split_rows()
  ReadingOptions reading = {};         // of delimited text
  bool replace_broken_utf8 = false;  // with U+FFFD, like Python's errors="replace"; false: an error
  std::optional<std::string> json_lines;  // rows in memory, read instead of the files
  std::function<void(double)> progress;   // fraction of the bytes read, on the caller's thread
};

// Common options of making samples from rows.
struct SampleOptions : RowOptions {
  std::optional<int64_t> max_samples;
  int64_t max_seq_length = 128;  // maximum tokens of a sequence, special tokens included
  int64_t vocabulary_limit = 0;  // ids must be below the model's vocabulary; 0: no limit
  bool labels_required = true;   // false: rows may lack labels
  int64_t threads = 1;           // never changes the result
  TokenCacheOptions cache;       // where samples are cached between sessions
  // If set, and a row makes one sample: do not read now but during training (SampleStream).
  std::optional<StreamOptions> stream;
};

// One row of a data file.
struct DataRow {
  const nlohmann::ordered_json& columns;  // an object
  const std::string& position;  // "file:line", or the row's number if the format has no lines
  bool typed;                   // false: every value is text (CSV, TSV)
  bool bare_lists = false;      // a list of one value may be given as the value itself (TFRecord)
};

// Calls `visit` with every row in order until it returns false. A row is valid during the call.
// Memory is bounded by the largest row. Throws Error(kData) with file and line for unreadable rows,
// and Interrupted.
void visit_rows(const std::vector<std::string>& files, const RowOptions& options,
                const std::function<bool(const DataRow&)>& visit);

}  // namespace finetune
