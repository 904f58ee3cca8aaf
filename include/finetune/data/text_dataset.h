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
  bool line_by_line = false;     // a line is a sample; else texts are joined and cut into blocks
  bool keep_linebreaks = false;  // what is joined of a text file: its lines with their "\n"
  int64_t max_seq_length = 512;  // tokens of a sample at most, special tokens included
  std::optional<int64_t> max_samples;      // the first so many samples
  std::optional<std::string> text_column;  // of JSON lines; guessed (and logged) where not set
  int64_t vocabulary_limit = 0;            // ids must lie below the model's vocabulary; 0: no limit
  int64_t position_limit = 0;              // longest row that brings its ids; 0: no limit
  bool replace_broken_utf8 = false;        // see RowOptions
  ReadingOptions reading = {};             // of delimited text
  int64_t threads = 1;                     // never changes the result
  RowRange rows;                           // of all files together; see split_rows()
  std::string key = "train_file";          // the configuration key that errors name
  TokenCacheOptions cache;                 // where the samples are kept between sessions
  std::function<void(double)> progress;    // fraction of the bytes read, on the caller's thread
  std::optional<StreamOptions> stream;     // not read now but while training: a SampleStream
};

// Reads and tokenises text as transformers' run_mlm does:
//
// - line_by_line: every line (or text of a JSON row) that is not blank becomes one sample with the
//   tokenizer's special tokens, cut to max_seq_length;
// - else every text, empty ones too, is encoded with its special tokens, each 1000 rows are joined
//   and cut into samples of exactly max_seq_length, and what remains of each 1000 is dropped. With
//   keep_linebreaks as run_clm does: a line's text ends in "\n" where the line does.
//
// JSON rows that hold `input_ids` (and `attention_mask`, `labels`) are taken as they are, unless
// text_column is set; all rows of a dataset then hold the same of these columns.
//
// Throws Error(kData) with file and line for what cannot be used, Error(kConfig) for options that
// leave nothing, and Interrupted between blocks of rows when a stop was asked for.
[[nodiscard]] std::shared_ptr<const SequenceDataset> build_text_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer, const TextOptions& options);

}  // namespace finetune
