// SPDX-License-Identifier: MIT
#include "task/generate/streamed_text.h"

#include <utility>

namespace finetune {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // of bytes that are no character

}  // namespace

StreamedText::StreamedText(const Tokenizer& tokenizer, Report report)
    : tokenizer_(tokenizer), report_(std::move(report)) {}

std::string StreamedText::decode() const {
  return tokenizer_.decode(tokens_, /*skip_special_tokens=*/true);
}

void StreamedText::add(int32_t id) {
  if (!report_) return;
  tokens_.push_back(id);
  const std::string text = decode();
  // The next token may have the rest of the character.
  if (text.size() <= reported_ || text.ends_with(kReplacement)) return;
  report_(std::string_view(text).substr(reported_));
  tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(context_));
  context_ = tokens_.size();
  reported_ = decode().size();
}

void StreamedText::end() {
  if (!report_) return;
  const std::string text = decode();
  if (text.size() > reported_) report_(std::string_view(text).substr(reported_));
  tokens_.clear();
  context_ = reported_ = 0;
}

}  // namespace finetune
