// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

// Unicode's general categories as in the regular expressions of the tokenizers package, independent
// of the installed Unicode version.
namespace finetune::tokenizer {

// Named as in Unicode's PropertyValueAliases.txt; Cn: unassigned.
enum class GeneralCategory : uint8_t {
  Cn,
  Cc,
  Cf,
  Co,  // others
  Lu,
  Ll,
  Lt,
  Lm,
  Lo,  // letters
  Mn,
  Mc,
  Me,  // marks
  Nd,
  Nl,
  No,  // numbers
  Pc,
  Pd,
  Ps,
  Pe,
  Pi,
  Pf,
  Po,  // punctuation
  Sm,
  Sc,
  Sk,
  So,  // symbols
  Zs,
  Zl,
  Zp  // separators
};
inline constexpr size_t kGeneralCategories = 29;

// A set of general categories: bit i is category i.
using CategorySet = uint32_t;
[[nodiscard]] constexpr CategorySet category_set(std::initializer_list<GeneralCategory> list) {
  CategorySet set = 0;
  for (const GeneralCategory category : list) set |= 1u << static_cast<unsigned>(category);
  return set;
}

// Returns the categories of \p{name}: "Lu", or a group such as "L"; nullopt for other names.
[[nodiscard]] std::optional<CategorySet> find_categories(std::string_view name);

// Character classes in the splitting patterns of real models; several may be set.
enum CharTrait : uint8_t {
  kLetterTrait = 1,        // \p{L}
  kNumberTrait = 2,        // \p{N}
  kSpaceTrait = 4,         // \s
  kMarkTrait = 8,          // \p{M}
  kUpperTrait = 16,        // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
  kLowerTrait = 32,        // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
  kPunctuationTrait = 64,  // [\p{P}\p{S}]
};

// Returns the traits of every code point below 0x110000, by code point.
[[nodiscard]] const uint8_t* char_traits();
// Returns the traits of ASCII characters.
[[nodiscard]] const std::array<uint8_t, 128>& ascii_traits();

// Ranges of code points [first, last] with a category of `set`, in order.
struct CodePointRange {
  char32_t first;
  char32_t last;
};
[[nodiscard]] std::vector<CodePointRange> ranges_of(CategorySet set);

}  // namespace finetune::tokenizer
