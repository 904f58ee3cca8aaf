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

// Tokenised documents as lists of non-empty sentences: in memory, or in memory-mapped blocks of a
// cache.
struct Documents {
  std::vector<int32_t> ids = {};
  std::vector<int64_t> sentences = {0};  // sentence i is ids[sentences[i], sentences[i + 1])
  std::vector<int64_t> documents = {0};  // document i: sentences [documents[i], documents[i + 1])
  // If not null: its samples are the sentences, and `ids` and `sentences` are empty.
  std::shared_ptr<const CachedTokens> kept = {};

  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(documents.size()) - 1; }
  [[nodiscard]] int64_t token_count() const;
  // The following members throw Error(kData) if a block is damaged.
  [[nodiscard]] int64_t length(int64_t sentence) const;
  // Returns the ids of sentences [begin, end) of one document.
  [[nodiscard]] TokenSpan tokens(int64_t begin, int64_t end) const;
  // Adds the content to a hash; the result does not depend on whether it is in memory or mapped.
  void hash_into(Hasher& hasher, const ShowStep& show = {}) const;
  [[nodiscard]] int64_t memory_bytes() const;
};

struct DocumentOptions : SampleOptions {
  std::optional<std::string> text_column;  // of JSON, CSV and TSV; guessed if unset
  bool lines_are_documents = false;        // for plain text
  // Strings that end a sentence, in addition to line ends; see split_sentences().
  std::vector<std::string> sentence_delimiters;
  int64_t longest_sentence = 0;  // tokens; longer sentences are split into parts of similar length
};

// Reads documents. In plain text they are separated by blank lines (and file ends); in other
// formats each row is a document. Special tokens in the text become their ids. Documents without
// tokens are dropped. max_seq_length and max_samples are ignored.
//
// Throws Error(kData) with file and line for unusable input or if no document remains, and
// Interrupted between blocks of rows.
[[nodiscard]] Documents read_documents(const std::vector<std::string>& files,
                                       const Tokenizer& tokenizer, const DocumentOptions& options);

}  // namespace finetune
