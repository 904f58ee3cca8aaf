// SPDX-License-Identifier: MIT
#include "task/token_classification/entities.h"

namespace finetune {
namespace {

bool is_one_of(const std::string& prefix, std::string_view prefixes) {
  return prefix.size() == 1 && prefixes.find(prefix[0]) != std::string_view::npos;
}

size_t first_character(std::string_view text) {
  size_t size = text.empty() ? 0 : 1;
  while (size < text.size() && (static_cast<unsigned char>(text[size]) & 0xC0U) == 0x80U) ++size;
  return size;
}

}  // namespace

Tag::Tag(std::string_view label) {
  const size_t size = first_character(label);
  prefix = label.substr(0, size);
  const std::string_view rest = label.substr(size);
  const size_t dash = rest.find('-');
  type = dash == std::string_view::npos ? rest : rest.substr(dash + 1);
  if (type.empty()) type = "_";
}

std::optional<Entity> EntityFinder::next(const Tag& tag) {
  const bool other_type = type_ != tag.type;
  const bool ends = is_one_of(prefix_, "ES") ||
                    (is_one_of(prefix_, "BI") && is_one_of(tag.prefix, "BSO")) ||
                    (!is_one_of(prefix_, "O.") && other_type);
  const bool starts = is_one_of(tag.prefix, "BS") ||
                      (is_one_of(prefix_, "ESO") && is_one_of(tag.prefix, "EI")) ||
                      (!is_one_of(tag.prefix, "O.") && other_type);
  std::optional<Entity> ended;
  if (ends) ended = Entity{type_, begin_, position_ - 1};
  if (starts) begin_ = position_;
  prefix_ = tag.prefix;
  type_ = tag.type;
  ++position_;
  return ended;
}

}  // namespace finetune
