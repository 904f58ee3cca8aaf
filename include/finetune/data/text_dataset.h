// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "finetune/data/data_files.h"
#include "finetune/data/stream_options.h"
#include "finetune/data/token_cache.h"
#include "finetune/data/token_dataset.h"

namespace finetune {

class Tokenizer;

struct TextOptions {
  // Each line is a sample; false: texts are joined and split into blocks.
  bool line_by_line = false;
  bool keep_linebreaks = false;            // joined lines of a text file keep their "\n"
  int64_t max_seq_length = 512;            // maximum tokens of a sample, special tokens included
  std::optional<int64_t> max_samples;      // use only the first N samples
  std::optional<std::string> text_column;  // of JSON lines; guessed (and logged) if unset
  int64_t vocabulary_limit = 0;            // ids must be below the model's vocabulary; 0: no limit
  int64_t position_limit = 0;              // longest row of given ids; 0: no limit
  bool replace_broken_utf8 = false;        // see RowOptions
  ReadingOptions reading = {};             // of delimited text
  int64_t threads = 1;                     // never changes the result
  RowRange rows;                           // of all files together; see split_rows()
  std::string key = "train_file";          // the configuration key that errors name
  TokenCacheOptions cache;                 // where samples are cached between sessions
  std::function<void(double)> progress;    // fraction of the bytes read, on the caller's thread
  // If set, do not read now but during training: a SampleStream.
  std::optional<StreamOptions> stream;
};

// Reads and tokenises text as transformers' run_mlm does:
//
// - line_by_line: every line (or text of a JSON row) that is not blank becomes one sample with the
//   tokenizer's special tokens, truncated to max_seq_length;
// - otherwise every text, including empty ones, is encoded with its special tokens; each 1000 rows
//   are joined and split into samples of exactly max_seq_length, and the remainder of each 1000 is
//   dropped. With keep_linebreaks, as in run_clm, a line's text keeps its "\n".
//
// JSON rows with `input_ids` (and `attention_mask`, `labels`) are used unchanged, unless
// text_column is set; all rows of a dataset must then have the same of these columns.
//
// Throws Error(kData) with file and line for unusable input, Error(kConfig) for options that leave
// no sample, and Interrupted between blocks of rows when a stop was requested.
[[nodiscard]] std::shared_ptr<const SequenceDataset> build_text_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer, const TextOptions& options);

}  // namespace finetune
