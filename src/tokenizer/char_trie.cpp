// SPDX-License-Identifier: MIT
#include "tokenizer/char_trie.h"

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/base/utf8.h"

namespace finetune::tokenizer {

CharTrie::CharTrie(std::span<const std::pair<std::string_view, int32_t>> strings,
                   const std::string& where, size_t most) {
  for (const auto& [string, value] : strings) {
    if (utf8::find_invalid(string) != std::string_view::npos || add(string, value, most)) continue;
    throw Error(ErrorKind::kData,
                format_text("{}: the tokens have more than {} characters, prefixes that they share "
                            "counted once, which no vocabulary of words needs; choose another "
                            "tokenizer, or train one with a smaller vocab_size",
                            where, most));
  }
}

bool CharTrie::add(std::string_view string, int32_t value, size_t most) {
  uint32_t node = kRoot;
  for (size_t at = 0; at < string.size();) {
    const char32_t character = utf8::decode(string, at);
    if (count_ == most && find(node, character) == nullptr) return false;
    Step& step = find_or_add(node, character);
    if (at == string.size()) {
      step.value = value;
    } else {
      if (step.node == kRoot) step.node = ++nodes_;
      node = step.node;
    }
  }
  return true;
}

CharTrie::Step& CharTrie::find_or_add(uint32_t node, char32_t character) {
  if (4 * (count_ + 1) > 3 * steps_.size()) grow();
  size_t i = slot(node, character);
  for (; steps_[i].character != kNoCharacter; i = (i + 1) & (steps_.size() - 1)) {
    if (steps_[i].character == character && steps_[i].parent == node) return steps_[i];
  }
  ++count_;
  steps_[i] = {.parent = node, .character = character};
  return steps_[i];
}

void CharTrie::grow() {
  std::vector<Step> old = std::move(steps_);
  steps_.assign(old.size() * 2, {});
  --shift_;
  for (const Step& step : old) {
    if (step.character == kNoCharacter) continue;
    size_t i = slot(step.parent, step.character);
    while (steps_[i].character != kNoCharacter) i = (i + 1) & (steps_.size() - 1);
    steps_[i] = step;
  }
}

}  // namespace finetune::tokenizer
