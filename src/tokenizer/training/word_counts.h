// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "tokenizer/models/word_cache.h"

namespace finetune::tokenizer {

// Counts of distinct words, in the order of their first occurrence.
class WordCounts {
 public:
  struct Word {
    uint64_t hash;
    uint64_t offset;  // into the words' bytes
    uint64_t size;
    int64_t count;
  };

  void add(std::string_view word) {
    if (2 * (words_.size() + 1) > table_.size()) grow();
    const uint64_t hash = hash_word(word);
    uint64_t i = hash & (table_.size() - 1);
    for (; table_[i] != 0; i = (i + 1) & (table_.size() - 1)) {
      Word& known = words_[table_[i] - 1];
      if (known.hash == hash && text(known) == word) {
        ++known.count;
        return;
      }
    }
    words_.push_back({hash, bytes_.size(), word.size(), 1});
    bytes_.insert(bytes_.end(), word.begin(), word.end());
    table_[i] = words_.size();
  }

  [[nodiscard]] const std::vector<Word>& words() const { return words_; }
  [[nodiscard]] std::string_view text(const Word& word) const {
    return {bytes_.data() + word.offset, word.size};
  }

 private:
  void grow() {
    table_.assign(table_.size() * 2, 0);
    for (size_t w = 0; w < words_.size(); ++w) {
      uint64_t i = words_[w].hash & (table_.size() - 1);
      while (table_[i] != 0) i = (i + 1) & (table_.size() - 1);
      table_[i] = w + 1;
    }
  }

  std::vector<Word> words_;
  std::vector<char> bytes_;
  std::vector<uint64_t> table_ = std::vector<uint64_t>(1024);  // 1 + index, 0: empty
};

}  // namespace finetune::tokenizer
