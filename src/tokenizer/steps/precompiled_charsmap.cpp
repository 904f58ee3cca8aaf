// SPDX-License-Identifier: MIT
#include "tokenizer/steps/precompiled_charsmap.h"

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/base/utf8.h"
#include "tokenizer/unicode/grapheme_splitter.h"

namespace finetune::tokenizer {
namespace {

constexpr size_t kMaxCharsmapBytes = size_t{1} << 20;
// The SentencePiece library stores this many nested matches in an array on its stack without
// checking.
constexpr int kMaxNestedRules = 32;
// In clusters of this size or longer, characters are replaced one by one.
constexpr size_t kLongCluster = 6;

// Bits of a unit of the double array.
constexpr uint32_t kLabelBits = (1u << 31) | 0xFFu;
constexpr uint32_t kEndsRule = 1u << 8;
constexpr uint32_t kValueBits = 0x7FFFFFFFu;
uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

class CharsmapFault {
 public:
  explicit CharsmapFault(const std::string& where) : where_(where) {}
  [[noreturn]] void operator()(const std::string& what) const {
    throw Error(ErrorKind::kData, where_ + ": " + what + "; fetch it again");
  }

 private:
  const std::string& where_;
};

// Checks the double array of normalisation rules: every unit that a text can reach must be inside
// it. Valid tables share the ends of rules, so nodes may be reached on several paths, but there
// must be no cycle.
class TrieCheck {
 public:
  TrieCheck(const std::vector<uint32_t>& units, std::string_view replacements,
            const CharsmapFault& fault)
      : units_(units), replacements_(replacements), fault_(fault), nested_(units.size(), kNew) {}

  void run() {
    open(offset(units_[0]), false);
    while (!path_.empty()) {
      if (path_.back().byte < 256) {
        follow(path_.back());
      } else {
        close();
      }
    }
  }

 private:
  static constexpr int kNew = -1;
  static constexpr int kOnPath = -2;

  struct Node {
    uint32_t base;
    bool ends_rule;
    uint32_t byte = 0;  // the next one to visit
    int nested = 0;     // maximum number of nested rules below
  };

  void open(uint32_t base, bool ends_rule) {
    // The array is a multiple of 256 units, so base ^ byte is inside if base is.
    if (base >= nested_.size()) fault_("its normalisation rules point outside their table");
    if (nested_[base] == kOnPath) fault_("its normalisation rules form a loop");
    if (nested_[base] != kNew) {
      add_nested(nested_[base] + (ends_rule ? 1 : 0));
      return;
    }
    nested_[base] = kOnPath;
    path_.push_back({.base = base, .ends_rule = ends_rule});
  }

  void close() {
    const Node node = path_.back();
    path_.pop_back();
    nested_[node.base] = node.nested;
    add_nested(node.nested + (node.ends_rule ? 1 : 0));
  }

  void add_nested(int rules) {
    if (rules > kMaxNestedRules) {
      fault_(format_text("more than {} of its normalisation rules nest", kMaxNestedRules));
    }
    if (path_.empty()) return;
    path_.back().nested = std::max(path_.back().nested, rules);
  }

  void follow(Node& node) {
    const uint32_t byte = node.byte++;
    const uint32_t index = node.base ^ byte;
    const uint32_t value = units_[index];
    if ((value & kLabelBits) != byte) return;
    const uint32_t base = index ^ offset(value);
    const bool ends_rule = (value & kEndsRule) != 0;
    open(base, ends_rule);
    if (!ends_rule) return;
    const uint32_t target = units_[base] & kValueBits;
    if (target >= replacements_.size() ||
        (static_cast<uint8_t>(replacements_[target]) & 0xC0) == 0x80) {
      fault_("a normalisation rule has no replacement");
    }
  }

  const std::vector<uint32_t>& units_;
  std::string_view replacements_;
  const CharsmapFault& fault_;
  std::vector<int> nested_;  // by base
  std::vector<Node> path_;
};

uint32_t read_u32(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return value;
}

struct Charsmap {
  std::vector<uint32_t> units;
  std::string_view replacements;
};

// Parses and checks: every unit that a text can reach is inside, every rule has a replacement.
Charsmap parse_charsmap(std::string_view map, const CharsmapFault& fault) {
  if (map.size() > kMaxCharsmapBytes) fault("its normalisation rules are larger than 1 MiB");
  if (map.size() < 4) fault("its normalisation rules are truncated");
  const uint32_t trie_bytes = read_u32(map);
  map.remove_prefix(4);
  if (trie_bytes < 1024 || trie_bytes % 1024 != 0 || trie_bytes >= map.size()) {
    fault("the table of its normalisation rules has an impossible size");
  }
  Charsmap parsed;
  parsed.replacements = map.substr(trie_bytes);
  if (parsed.replacements.back() != '\0' ||
      utf8::find_invalid(parsed.replacements) != std::string_view::npos) {
    fault("the replacements of its normalisation rules are damaged");
  }
  for (size_t i = 0; i < trie_bytes; i += 4) parsed.units.push_back(read_u32(map.substr(i)));
  TrieCheck(parsed.units, parsed.replacements, fault).run();
  return parsed;
}

std::optional<uint32_t> base64_digit(char c) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const size_t found = kDigits.find(c);
  if (found == std::string_view::npos) return std::nullopt;
  return static_cast<uint32_t>(found);
}

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (size_t at = 0; at < text.size(); at += 4) {
    uint32_t group = 0;
    for (size_t i = at; i < at + 4; ++i) {
      const bool padded = i >= text.size() - padding;
      const auto digit = padded ? 0u : base64_digit(text[i]);
      if (!digit) return std::nullopt;
      group = group << 6 | *digit;
    }
    for (const int shift : {16, 8, 0}) bytes += static_cast<char>(group >> shift & 0xFF);
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<uint8_t>(byte) & 0xC0) != 0x80;
  }));
}

// Returns how many bytes of the character continue in the rules; all if a rule ends within it.
// Every access is in range: see parse_charsmap().
size_t count_known(const std::vector<uint32_t>& units, std::string_view character) {
  uint32_t node = offset(units[0]);
  for (size_t i = 0; i < character.size(); ++i) {
    const auto byte = static_cast<uint8_t>(character[i]);
    node ^= byte;
    const uint32_t unit = units[node];
    if ((unit & kLabelBits) != byte) return i;
    node ^= offset(unit);
    if ((unit & kEndsRule) != 0) break;
  }
  return character.size();
}

// Returns a bit for each character that may be in one cluster with its neighbours.
template <size_t kWords>
std::array<uint64_t, kWords> joining_characters() {
  std::array<uint64_t, kWords> bits{};
  for (char32_t c = 0; c < 64 * kWords; ++c) {
    if (GraphemeSplitter::joins(c)) bits[c / 64] |= uint64_t{1} << (c % 64);
  }
  return bits;
}

// Replaces `old` by `replacement` and records changes as the tokenizers package does.
void append_replacement(std::string_view old, std::string_view replacement,
                        std::vector<CharChange>& changes) {
  for (size_t at = 0; at < replacement.size();) {
    changes.push_back({utf8::decode(replacement, at), 0});
  }
  const auto more = static_cast<int32_t>(count_characters(replacement)) -
                    static_cast<int32_t>(count_characters(old));
  if (more < 0 && !changes.empty()) changes.back().change += more;
  for (auto last = changes.rbegin(); last < changes.rbegin() + std::max(more, 0); ++last) {
    last->change = 1;
  }
}

}  // namespace

PrecompiledCharsmap::PrecompiledCharsmap(std::string_view map, const std::string& where) {
  const CharsmapFault fault(where);
  Charsmap parsed = parse_charsmap(map, fault);
  units_ = std::move(parsed.units);
  replacements_ = parsed.replacements;
  static const auto kJoining = joining_characters<kMarked / 64>();
  marked_ = kJoining;
  std::string text;
  for (char32_t c = 0; c < kMarked;) {
    text.clear();
    utf8::append(text, c);
    const size_t unknown = text.size() - count_known(units_, text);
    // A character that only longer rules start with matters if it joins another one, which is then
    // marked itself.
    if (unknown == 0 && find(text)) marked_[c / 64] |= uint64_t{1} << (c % 64);
    // Continue at the next character that differs in a known byte, or in the first unknown one.
    const char32_t same = char32_t{1} << (unknown <= 1 ? 0 : 6 * (unknown - 1));
    c = (c / same + 1) * same;
  }
}

PrecompiledCharsmap PrecompiledCharsmap::from_base64(std::string_view text,
                                                     const std::string& where) {
  const CharsmapFault fault(where);
  const auto bytes = decode_base64(text);
  if (!bytes) fault("its precompiled_charsmap is not valid base64");
  return PrecompiledCharsmap(*bytes, where);
}

// Every access is in range: see parse_charsmap().
std::optional<std::string_view> PrecompiledCharsmap::find(std::string_view text) const {
  uint32_t node = offset(units_[0]);
  for (const char byte : text) {
    if (byte == '\0') break;
    node ^= static_cast<uint8_t>(byte);
    const uint32_t unit = units_[node];
    if ((unit & kLabelBits) != static_cast<uint8_t>(byte)) break;
    node ^= offset(unit);
    if ((unit & kEndsRule) != 0) {
      const char* replacement = replacements_.c_str() + (units_[node] & kValueBits);
      return std::string_view(replacement);
    }
  }
  return std::nullopt;
}

size_t PrecompiledCharsmap::find_marked(std::string_view text, size_t from) const {
  for (size_t at = from; at < text.size();) {
    const size_t begin = at;
    if (is_marked(utf8::decode(text, at))) return begin;
  }
  return text.size();
}

void PrecompiledCharsmap::append_cluster(std::string_view cluster, std::string& result) const {
  if (const auto whole = cluster.size() < kLongCluster ? find(cluster) : std::nullopt) {
    result.append(*whole);
    return;
  }
  for (size_t at = 0; at < cluster.size();) {
    const size_t start = at;
    static_cast<void>(utf8::decode(cluster, at));
    const std::string_view character = cluster.substr(start, at - start);
    result.append(find(character).value_or(character));
  }
}

// Copies text between marked characters; only searches clusters around these.
std::string PrecompiledCharsmap::normalized(std::string_view text) const {
  std::string result;
  result.reserve(text.size() + text.size() / 8);
  size_t done = 0;
  for (size_t at = 0; (at = find_marked(text, at)) < text.size();) {
    // An unmarked character may form a cluster with the marked one after it.
    size_t begin = at;
    if (begin > done) {
      do {
        --begin;
      } while ((static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80);
    }
    result.append(text, done, begin - done);
    GraphemeSplitter clusters(text.substr(begin));
    for (done = begin; done <= at;) {
      const std::string_view cluster = *clusters.next();
      append_cluster(cluster, result);
      done += cluster.size();
      size_t after = done;
      if (done < text.size() && is_marked(utf8::decode(text, after))) at = done;
    }
    at = done;
  }
  return result.append(text, done);
}

void PrecompiledCharsmap::normalize(NormalizedText& text) const {
  if (find_marked(text.text(), 0) == text.text().size()) return;
  if (!text.has_origins()) {
    text.assign(normalized(text.text()));
    return;
  }
  std::vector<CharChange> changes;
  changes.reserve(text.text().size());
  GraphemeSplitter clusters(text.text());
  while (const auto cluster = clusters.next()) {
    const auto whole = cluster->size() < kLongCluster ? find(*cluster) : std::nullopt;
    if (whole) {
      append_replacement(*cluster, *whole, changes);
      continue;
    }
    for (size_t at = 0; at < cluster->size();) {
      const size_t start = at;
      const char32_t c = utf8::decode(*cluster, at);
      const std::string_view character = cluster->substr(start, at - start);
      if (const auto replacement = find(character)) {
        append_replacement(character, *replacement, changes);
      } else {
        changes.push_back({c, 0});
      }
    }
  }
  text.transform(changes);
}

void check_charsmap(std::string_view map, const std::string& where) {
  static_cast<void>(parse_charsmap(map, CharsmapFault(where)));
}

}  // namespace finetune::tokenizer
