// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace finetune {

// A label such as "B-PER" as seqeval reads it: the prefix is the first character, the type the text
// after the first "-" that follows ("_" if there is none). Labels of another form ("PER") are read
// in the same way.
struct Tag {
  explicit Tag(std::string_view label);
  std::string prefix;  // of one character
  std::string type;
};

struct Entity {
  std::string type;
  int64_t begin = 0;  // first and last token, counted over all rows and their separators
  int64_t end = 0;
  bool operator==(const Entity&) const = default;
};

// Finds entities in a stream of tags as seqeval's get_entities does by default: B and S start an
// entity, E and S end it, and so does a change of type. Rows are separated by an "O".
class EntityFinder {
 public:
  // Returns the entity that ended before this tag, if any.
  [[nodiscard]] std::optional<Entity> next(const Tag& tag);

 private:
  std::string prefix_ = "O";
  std::string type_;
  int64_t begin_ = 0;
  int64_t position_ = 0;
};

}  // namespace finetune
