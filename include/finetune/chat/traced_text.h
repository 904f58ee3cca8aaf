// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/chat/limits.h"

namespace finetune::chat {

// Where a piece of rendered text comes from.
struct Source {
  static constexpr int32_t kTemplate = -1;
  int32_t message = kTemplate;  // index of the message whose field it is; kTemplate: none's
  int32_t field = 0;            // which field of the message; the caller numbers them
  bool generated = false;       // written inside {% generation %}
  bool operator==(const Source&) const = default;
};

// Bytes [begin, end) of a text.
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const ByteRange&) const = default;
};

// UTF-8 text in which each byte knows its source. Slices, concatenation and str methods keep the
// sources, so that a mask over the rendered text needs no second rendering.
class TracedText {
 public:
  struct Piece : ByteRange {
    Source source;
  };

  TracedText() = default;
  explicit TracedText(std::string text);  // from the template
  TracedText(std::string text, Source source);

  [[nodiscard]] const std::string& str() const { return text_; }
  [[nodiscard]] size_t size() const { return text_.size(); }
  [[nodiscard]] bool empty() const { return text_.empty(); }
  // Covers the text without gaps; adjacent pieces have different sources.
  [[nodiscard]] std::vector<Piece> pieces() const;
  [[nodiscard]] Source source_at(size_t offset) const;

  void append(std::string_view text, Source source = {});
  void append(const TracedText& other);
  void append(const TracedText& other, size_t begin, size_t end);  // bytes [begin, end) of it
  // Marks the text as one of |safe (markupsafe.Markup): + escapes what is added to it. Texts that
  // are made of it are plain, but for copies and slices.
  [[nodiscard]] TracedText as_markup() const;
  [[nodiscard]] bool is_markup() const { return is_markup_; }
  // Marks the text as written inside {% generation %}.
  void mark_generated();
  [[nodiscard]] TracedText slice(size_t begin, size_t end) const;

 private:
  void extend(size_t bytes, Source source);
  void count_memory();

  CountedMemory memory_;  // first: a copy is counted before it is made
  std::string text_;
  std::vector<Piece> pieces_;  // empty: all from the template
  bool is_markup_ = false;
};

}  // namespace finetune::chat
