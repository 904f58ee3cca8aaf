// SPDX-License-Identifier: MIT
#include "data/pretraining/bounded_masking.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "data/loading/mask_rules.h"
#include "finetune/base/random.h"

namespace finetune {
namespace {

// Tokens [begin, end) that are masked together.
struct Word {
  int32_t begin = 0;
  int32_t end = 0;
};

// Reused memory of the thread, which masks one example after the other.
struct Memory {
  std::vector<Word> words;
  std::vector<Word> parts;
};
thread_local Memory memory;

void find_words(const MaskingOptions& options, const std::vector<int32_t>& ids,
                std::vector<Word>& words) {
  words.clear();
  bool inside = false;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto position = static_cast<int32_t>(i);
    if (marks(options.special, ids[i])) {
      inside = false;
      continue;
    }
    if (inside && marks(options.continues_word, ids[i])) {
      words.back().end = position + 1;
    } else {
      words.push_back({position, position + 1});
    }
    inside = true;
  }
}

// Splits words that are longer than the masking limit, such as text without spaces, so that a part
// of them can be masked.
void cut(const std::vector<Word>& words, int64_t most, std::vector<Word>& parts) {
  parts.clear();
  for (const Word& word : words) {
    for (int64_t begin = word.begin; begin < word.end; begin += most) {
      const auto end = static_cast<int32_t>(std::min<int64_t>(begin + most, word.end));
      parts.push_back({static_cast<int32_t>(begin), end});
    }
  }
}

}  // namespace

void mask_example(const MaskingOptions& options, const SampleKey& key, int64_t most,
                  PretrainingExample& example) {
  std::vector<int32_t>& ids = example.input_ids;
  const double share = options.mlm_probability * static_cast<double>(ids.size());
  const int64_t wanted = std::min(most, std::max<int64_t>(1, std::llround(share)));
  find_words(options, ids, memory.words);
  std::vector<Word>& words = memory.parts;
  cut(memory.words, std::max<int64_t>(1, wanted), words);
  random::Sequence sequence(masking_key(options.seed, key));
  auto& positions = example.masked_lm_positions;
  positions.clear();
  // A Fisher-Yates shuffle that stops when enough positions are selected.
  for (size_t i = 0; i < words.size() && std::ssize(positions) < wanted; ++i) {
    const auto left = static_cast<uint32_t>(words.size() - i);
    std::swap(words[i], words[i + sequence.below(left)]);
    const Word word = words[i];
    if (std::ssize(positions) + word.end - word.begin > wanted) continue;
    for (int32_t position = word.begin; position < word.end; ++position)
      positions.push_back(position);
  }
  std::ranges::sort(positions);
  example.masked_lm_ids.clear();
  for (const int32_t position : positions) {
    int32_t& id = ids[static_cast<size_t>(position)];
    example.masked_lm_ids.push_back(id);
    id = static_cast<int32_t>(masked(options, sequence, id));
  }
}

}  // namespace finetune
