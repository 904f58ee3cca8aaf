// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace finetune {

// "B-PER" as seqeval reads it: its first character, and the text after the first "-" that follows
// ("_" if there is none). Labels of another form ("PER") are read in the same way.
struct Tag {
  explicit Tag(std::string_view label);
  std::string prefix;  // of one character
  std::string type;
};

struct Entity {
  std::string type;
  int64_t begin = 0;  // first and last token, counted over all rows and the ends between them
  int64_t end = 0;
  bool operator==(const Entity&) const = default;
};

// Entities in a stream of tags, as seqeval's get_entities finds them by default: B and S start
// one, E and S end one, and so does a change of type. Rows are separated by an "O".
class EntityFinder {
 public:
  // The entity that ended before this tag, if one did.
  [[nodiscard]] std::optional<Entity> next(const Tag& tag);

 private:
  std::string prefix_ = "O";
  std::string type_;
  int64_t begin_ = 0;
  int64_t position_ = 0;
};

}  // namespace finetune
