// SPDX-License-Identifier: MIT
#include "tokenizer/unicode/unicode_forms.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>

#include "finetune/base/error.h"
#include "finetune/base/utf8.h"

namespace finetune::tokenizer {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};

// Code points unknown to the tables of the tokenizers package but known (or reserved) in utf8proc:
// they are unchanged, and nothing is reordered or composed across them.
constexpr Range kFrozen[] = {
    {0x7FD, 0x7FD},     {0x897, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},
    {0x1ABF, 0x1AEB},   {0x1DF6, 0x1DFA},   {0x32FF, 0x32FF},   {0xA7F1, 0xA7F4},
    {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x105C0, 0x105FF}, {0x10781, 0x107BA},
    {0x10D24, 0x10D27}, {0x10D40, 0x10D8F}, {0x10EAB, 0x10EAC}, {0x10EFA, 0x10EFF},
    {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B},
    {0x11380, 0x113FF}, {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11930, 0x11930},
    {0x11935, 0x11935}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943},
    {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99},
    {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42},
    {0x16100, 0x1613F}, {0x16D40, 0x16D7F}, {0x16FF0, 0x16FF1}, {0x1CCD6, 0x1CCF9},
    {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE},
    {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1E5D0, 0x1E5FF}, {0x1F16C, 0x1F16C},
    {0x1FBF0, 0x1FBF9},
};

bool is_frozen(char32_t c) {
  const auto* range =
      std::upper_bound(std::begin(kFrozen), std::end(kFrozen), c,
                       [](char32_t value, const Range& r) { return value < r.first; });
  return range != std::begin(kFrozen) && c <= std::prev(range)->last;
}

constexpr char32_t kHangulBase = 0xAC00, kHangulEnd = 0xD7A4;
constexpr char32_t kLeadBase = 0x1100, kVowelBase = 0x1161, kTailBase = 0x11A7;
constexpr char32_t kLeads = 19, kVowels = 21, kTails = 28;

uint8_t combining_class(char32_t c) {
  if (c < 0x300 || is_frozen(c)) return 0;
  return static_cast<uint8_t>(
      utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class);
}

// Decomposes `c` into its characters, in order; `c` itself if it has no decomposition.
size_t decompose(char32_t c, bool compatible, std::array<utf8proc_int32_t, 32>& parts) {
  parts[0] = static_cast<utf8proc_int32_t>(c);
  if (c < 0xA0 || is_frozen(c)) return 1;
  int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
  if (compatible) options |= UTF8PROC_COMPAT;
  int boundary = 0;
  const auto count =
      utf8proc_decompose_char(parts[0], parts.data(), static_cast<utf8proc_ssize_t>(parts.size()),
                              static_cast<utf8proc_option_t>(options), &boundary);
  FT_CHECK(count >= 1 && count <= static_cast<utf8proc_ssize_t>(parts.size()),
           "a character decomposes into too many");
  return static_cast<size_t>(count);
}

// Returns the pairs of characters that compose to one, except Hangul.
std::unordered_map<uint64_t, char32_t> make_compositions() {
  std::unordered_map<uint64_t, char32_t> compositions;
  std::array<utf8proc_int32_t, 32> parts{};
  for (char32_t c = 0xC0; c < 0x30000; ++c) {
    if (c >= kHangulBase && c < 0xE000) continue;
    const size_t count = decompose(c, false, parts);
    if (count < 2) continue;
    // Keeps pairs that compose back to c; the first of a pair is the composition of all parts but
    // the last.
    constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    std::array<utf8proc_int32_t, 32> whole = parts;
    if (utf8proc_normalize_utf32(whole.data(), static_cast<utf8proc_ssize_t>(count), kCompose) !=
            1 ||
        whole[0] != static_cast<utf8proc_int32_t>(c)) {
      continue;
    }
    std::array<utf8proc_int32_t, 32> front = parts;
    const auto size =
        utf8proc_normalize_utf32(front.data(), static_cast<utf8proc_ssize_t>(count - 1), kCompose);
    if (size != 1) continue;
    compositions.emplace(static_cast<uint64_t>(front[0]) << 32 |
                             static_cast<uint64_t>(static_cast<uint32_t>(parts[count - 1])),
                         c);
  }
  return compositions;
}

using Compositions = std::unordered_map<uint64_t, char32_t>;

const Compositions& compositions() {
  static const Compositions kCompositions = make_compositions();
  return kCompositions;
}

std::optional<char32_t> compose(char32_t first, char32_t second) {
  if (first >= kLeadBase && first < kLeadBase + kLeads && second >= kVowelBase &&
      second < kVowelBase + kVowels) {
    return kHangulBase + ((first - kLeadBase) * kVowels + (second - kVowelBase)) * kTails;
  }
  if (first >= kHangulBase && first < kHangulEnd && (first - kHangulBase) % kTails == 0 &&
      second > kTailBase && second < kTailBase + kTails) {
    return first + (second - kTailBase);
  }
  const auto found = compositions().find(uint64_t{first} << 32 | uint64_t{second});
  if (found == compositions().end()) return std::nullopt;
  return found->second;
}

// Code points below this are in the table; those above (variation selectors) are treated as not
// inert.
constexpr char32_t kEndOfInert = 0x30000;

// Returns for each character whether NFC keeps it whatever its neighbours are: class 0, already
// composed, and never the second of a pair.
std::vector<bool> make_nfc_inert() {
  std::vector<bool> inert(kEndOfInert, true);
  std::array<utf8proc_int32_t, 32> parts{};
  for (char32_t c = 0xA0; c < kEndOfInert; ++c) {
    if (c >= kHangulBase && c < kHangulEnd) continue;
    if (combining_class(c) != 0) inert[c] = false;
    const size_t count = decompose(c, false, parts);
    if (count == 1 && parts[0] == static_cast<utf8proc_int32_t>(c)) continue;
    char32_t whole = static_cast<char32_t>(parts[0]);
    for (size_t i = 1; i < count; ++i) {
      whole = compose(whole, static_cast<char32_t>(parts[i])).value_or(0);
    }
    if (whole != c) inert[c] = false;
  }
  for (const auto& [pair, whole] : compositions()) inert[static_cast<uint32_t>(pair)] = false;
  for (char32_t c = kVowelBase; c < kTailBase + kTails; ++c) inert[c] = false;
  return inert;
}

std::vector<CharChange> decompose_all(std::string_view text, bool compatible) {
  struct Classed {
    CharChange character;
    uint8_t combining_class;
  };
  std::vector<CharChange> result;
  result.reserve(text.size());
  std::vector<Classed> pending;  // marks after a character, in text order
  const auto flush = [&] {
    std::stable_sort(pending.begin(), pending.end(), [](const Classed& a, const Classed& b) {
      return a.combining_class < b.combining_class;
    });
    for (const Classed& mark : pending) result.push_back(mark.character);
    pending.clear();
  };
  std::array<utf8proc_int32_t, 32> parts{};
  for (size_t offset = 0; offset < text.size();) {
    const size_t count = decompose(utf8::decode(text, offset), compatible, parts);
    for (size_t i = 0; i < count; ++i) {
      const auto c = static_cast<char32_t>(parts[i]);
      const uint8_t its_class = combining_class(c);
      if (its_class == 0) flush();
      pending.push_back({{c, i == 0 ? 0 : 1}, its_class});
    }
  }
  flush();
  return result;
}

std::vector<CharChange> compose_all(const std::vector<CharChange>& characters) {
  std::vector<CharChange> result;
  result.reserve(characters.size());
  std::optional<CharChange> base;
  std::vector<CharChange> marks;  // marks after the base that did not combine with it
  std::optional<uint8_t> last_class;
  for (const CharChange& next : characters) {
    const uint8_t its_class = combining_class(next.c);
    if (!base) {
      if (its_class != 0) {
        result.push_back(next);
      } else {
        base = next;
      }
      continue;
    }
    const bool blocked = last_class && *last_class >= its_class;
    if (!blocked) {
      if (const auto joined = compose(base->c, next.c)) {
        base = CharChange{*joined, base->change + next.change - 1};
        continue;
      }
    }
    if (its_class == 0) {
      result.push_back(*base);
      result.insert(result.end(), marks.begin(), marks.end());
      marks.clear();
      last_class.reset();
      base = next;
    } else {
      marks.push_back(next);
      last_class = its_class;
    }
  }
  if (base) result.push_back(*base);
  result.insert(result.end(), marks.begin(), marks.end());
  return result;
}

}  // namespace

bool is_surely_nfc(std::string_view text) {
  static const std::vector<bool> kInert = make_nfc_inert();
  for (size_t offset = 0; offset < text.size();) {
    if (static_cast<uint8_t>(text[offset]) < 128) {
      ++offset;
      continue;
    }
    const char32_t c = utf8::decode(text, offset);
    if (c >= kEndOfInert || !kInert[c]) return false;
  }
  return true;
}

std::vector<CharChange> normalization_changes(std::string_view text, UnicodeForm form) {
  const bool compatible = form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
  std::vector<CharChange> characters = decompose_all(text, compatible);
  const bool composes = form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc;
  return composes ? compose_all(characters) : characters;
}

}  // namespace finetune::tokenizer
