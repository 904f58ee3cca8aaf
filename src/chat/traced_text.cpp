// SPDX-License-Identifier: MIT
#include "finetune/chat/traced_text.h"

#include <algorithm>

namespace finetune::chat {

TracedText::TracedText(std::string text) : text_(std::move(text)) { count_memory(); }

TracedText::TracedText(std::string text, Source source) : text_(std::move(text)) {
  if (!text_.empty()) pieces_.push_back({{0, text_.size()}, source});
  count_memory();
}

void TracedText::count_memory() {
  static const size_t kInside = std::string().capacity();  // stored in the string object
  const size_t text = text_.capacity() > kInside ? text_.capacity() : 0;
  memory_.set(text + pieces_.capacity() * sizeof(Piece));
}

std::vector<TracedText::Piece> TracedText::pieces() const {
  if (!pieces_.empty() || text_.empty()) return pieces_;
  return {{{0, text_.size()}, {}}};
}

Source TracedText::source_at(size_t offset) const {
  const auto piece = std::ranges::upper_bound(pieces_, offset, {}, &Piece::end);
  return piece == pieces_.end() ? Source{} : piece->source;
}

// Records `bytes` bytes that were just added to the text.
void TracedText::extend(size_t bytes, Source source) {
  if (bytes == 0) return;
  const size_t before = text_.size() - bytes;
  if (pieces_.empty()) {
    if (source == Source{}) return;
    if (before > 0) pieces_.push_back({{0, before}, {}});
  }
  if (!pieces_.empty() && pieces_.back().source == source) {
    pieces_.back().end = text_.size();
  } else {
    pieces_.push_back({{before, text_.size()}, source});
  }
}

void TracedText::append(std::string_view text, Source source) {
  Limits::check_text(text_.size() + text.size());
  Limits::work(8 + text.size() / 8);
  text_.append(text);
  is_markup_ = false;
  extend(text.size(), source);
  count_memory();
}

void TracedText::append(const TracedText& other) { append(other, 0, other.size()); }

void TracedText::append(const TracedText& other, size_t begin, size_t end) {
  const std::string_view text = std::string_view(other.text_).substr(0, end);
  if (other.pieces_.empty()) return append(text.substr(begin));
  auto piece = std::ranges::upper_bound(other.pieces_, begin, {}, &Piece::end);
  while (begin < end) {
    const size_t stop = std::min(piece->end, end);
    append(text.substr(begin, stop - begin), piece->source);
    begin = stop;
    ++piece;
  }
}

TracedText TracedText::as_markup() const {
  TracedText result = *this;
  result.is_markup_ = true;
  return result;
}

void TracedText::mark_generated() {
  pieces_ = pieces();
  for (Piece& piece : pieces_) piece.source.generated = true;
  count_memory();
}

TracedText TracedText::slice(size_t begin, size_t end) const {
  TracedText result;
  result.append(*this, begin, end);
  result.is_markup_ = is_markup_;
  return result;
}

}  // namespace finetune::chat
