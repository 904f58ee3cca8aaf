// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/cache/token_block.h"
#include "data/columns/row.h"
#include "data/samples/block_stream.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/data/token_dataset.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {

// Makes sequences of at most max_seq_length tokens from texts, truncating the longer text first.
class SequenceMaker {
 public:
  // Throws Error(kConfig) if max_seq_length leaves no room for text.
  SequenceMaker(const Tokenizer& tokenizer, const SampleOptions& options, bool pair);

  [[nodiscard]] ModelText make(std::span<const int32_t> text) const;
  [[nodiscard]] ModelText make(std::span<const int32_t> first,
                               std::span<const int32_t> second) const;
  // Adds a sequence. Throws Error(kData) with `position` for an id outside the vocabulary.
  void add(TokenContent& content, const ModelText& text, const std::string& position) const;

 private:
  [[nodiscard]] std::span<const int32_t> cut(std::span<const int32_t> ids, int64_t length) const;

  const Tokenizer& tokenizer_;
  int64_t room_;
  int64_t vocabulary_;
  bool truncate_left_;
};

// Adds a sequence of these ids. Throws Error(kData) with `position` for an id outside the
// vocabulary (0: no limit).
void add_ids(TokenContent& content, std::span<const int32_t> ids, const std::string& position,
             int64_t vocabulary);
// The error of a bad row, with what else can be done.
[[nodiscard]] Error with_skip_advice(const Error& error);

// Appends the samples of `from` to `to`. Requires: the same kind of samples.
void append(TokenContent& to, const TokenContent& from);
[[nodiscard]] int64_t samples_of(const TokenContent& content);
// Keeps the first `samples` samples and removes the others.
void keep_first(TokenContent& content, int64_t samples);
// Drops token types that are all 0.
void drop_plain_types(TokenContent& content);

// Throws Error(kConfig) for a number of samples that is not positive.
void check_max_samples(const SampleOptions& options);
// Throws Error(kData): the range of rows or the files are empty.
[[noreturn]] void fail_without_rows(const SampleOptions& options);

// Encodes all rows on threads and passes the blocks in order to `add` until it returns false.
template <class Encoded>
void encode_rows(const std::vector<std::string>& files, const SampleOptions& options,
                 std::function<Encoded(const RowBlock&)> encode,
                 const std::function<bool(Encoded&)>& add) {
  RowSource source(files, options);
  BlockStream<Encoded> stream(source, std::move(encode), options.threads);
  Encoded block;
  bool wanted = true;
  while (wanted && stream.next(block)) {
    wanted = add(block);
    interrupt::throw_if_requested("reading and tokenising " + options.key);
    if (options.progress) options.progress(source.fraction());
  }
  if (options.progress) options.progress(1.0);
}

// How a task makes samples of its rows.
struct RowSamples {
  const std::vector<std::string>& files;
  const Tokenizer& tokenizer;
  // All inputs of the samples except files and tokenizer; begins with cache_options().
  nlohmann::ordered_json cache_options;
  TokenBlockLimits limits;                              // except for ids
  std::function<TokenContent(const RowBlock&)> encode;  // owns its data, except the tokenizer
};
[[nodiscard]] nlohmann::ordered_json cache_options(const SampleOptions& options,
                                                   const std::string& task);

// Encodes all rows, or reads the samples from the cache.
[[nodiscard]] std::shared_ptr<const SequenceDataset> build_samples(const RowSamples& samples,
                                                                   const SampleOptions& options);

}  // namespace finetune
