// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "finetune/data/long_step.h"
#include "finetune/data/rows.h"
#include "finetune/data/token_span.h"

namespace finetune {

class Tokenizer;

class CachedTokens;
class Hasher;

// Tokenised documents as lists of sentences, none of them empty: in memory, or in a cache's blocks,
// of which the system keeps as much in memory as it has room for.
struct Documents {
  std::vector<int32_t> ids = {};
  std::vector<int64_t> sentences = {0};  // sentence i is ids[sentences[i], sentences[i + 1])
  std::vector<int64_t> documents = {0};  // document i: sentences [documents[i], documents[i + 1])
  // Not null: its samples are the sentences, and the two lists above stay empty.
  std::shared_ptr<const CachedTokens> kept = {};

  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(documents.size()) - 1; }
  [[nodiscard]] int64_t token_count() const;
  // What follows throws Error(kData) where a block is damaged.
  [[nodiscard]] int64_t length(int64_t sentence) const;
  // The ids of sentences [begin, end) of one document.
  [[nodiscard]] TokenSpan tokens(int64_t begin, int64_t end) const;
  // Adds the content to a hash; the same bytes whether it is in memory or mapped.
  void hash_into(Hasher& hasher, const ShowStep& show = {}) const;
  [[nodiscard]] int64_t memory_bytes() const;
};

struct DocumentOptions : SampleOptions {
  std::optional<std::string> text_column;  // of JSON, CSV and TSV; guessed where not set
  bool lines_are_documents = false;        // of plain text
  // End a sentence, as a line's end does; see split_sentences().
  std::vector<std::string> sentence_delimiters;
  int64_t longest_sentence = 0;  // tokens; longer ones become several of about the same length
};

// Reads documents. In plain text they are separated by blank lines (and file ends); in every other
// format each row is one. Special tokens in the text become their ids. Documents without tokens are
// dropped. max_seq_length and max_samples are ignored.
//
// Throws Error(kData) with file and line for unusable input or if no document remains, and
// Interrupted between blocks of rows.
[[nodiscard]] Documents read_documents(const std::vector<std::string>& files,
                                       const Tokenizer& tokenizer, const DocumentOptions& options);

}  // namespace finetune
