// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "finetune/data/rows.h"

namespace finetune {

class Tokenizer;

// Tokenised documents as lists of sentences, none of them empty.
struct Documents {
  std::vector<int32_t> ids = {};
  std::vector<int64_t> sentences = {0};  // sentence i is ids[sentences[i], sentences[i + 1])
  std::vector<int64_t> documents = {0};  // document i: sentences [documents[i], documents[i + 1])

  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(documents.size()) - 1; }
  [[nodiscard]] int64_t length(int64_t sentence) const {
    const auto place = static_cast<size_t>(sentence);
    return sentences[place + 1] - sentences[place];
  }
  // The ids of sentences [begin, end).
  [[nodiscard]] std::span<const int32_t> tokens(int64_t begin, int64_t end) const {
    const auto first = static_cast<size_t>(sentences[static_cast<size_t>(begin)]);
    const auto last = static_cast<size_t>(sentences[static_cast<size_t>(end)]);
    return std::span(ids).subspan(first, last - first);
  }
};

struct DocumentOptions : SampleOptions {
  std::optional<std::string> text_column;  // of JSON, CSV and TSV; guessed where not set
  bool lines_are_documents = false;        // of plain text
  // End a sentence, as a line's end does; see split_sentences().
  std::vector<std::string> sentence_delimiters;
  int64_t longest_sentence = 0;  // tokens; longer ones become several of about the same length
};

// Reads documents: of plain text they are separated by blank lines (and by the files' ends), of
// every other kind each row is one. Special tokens that stand in the text become their ids. What
// holds no token is no document. max_seq_length and max_samples are not looked at.
//
// Throws Error(kData) with file and line for what cannot be used or where nothing is left, and
// Interrupted between blocks of rows.
[[nodiscard]] Documents read_documents(const std::vector<std::string>& files,
                                       const Tokenizer& tokenizer, const DocumentOptions& options);

}  // namespace finetune
