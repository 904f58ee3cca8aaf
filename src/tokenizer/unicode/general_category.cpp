// SPDX-License-Identifier: MIT
#include "tokenizer/unicode/general_category.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "tokenizer/unicode/char_properties.h"

namespace finetune::tokenizer {
namespace {

using enum GeneralCategory;

struct CategoryRun {
  uint32_t count;
  GeneralCategory category;
};

constexpr CategoryRun kCategoryRuns[] = {
#include "tokenizer/unicode/general_categories.inc"
};

struct NamedCategories {
  std::string_view name;
  CategorySet set;
};

constexpr CategorySet kLetters = category_set({Lu, Ll, Lt, Lm, Lo});
constexpr CategorySet kMarks = category_set({Mn, Mc, Me});
constexpr CategorySet kNumbers = category_set({Nd, Nl, No});
constexpr CategorySet kPunctuation = category_set({Pc, Pd, Ps, Pe, Pi, Pf, Po});
constexpr CategorySet kSymbols = category_set({Sm, Sc, Sk, So});
constexpr CategorySet kSeparators = category_set({Zs, Zl, Zp});

constexpr NamedCategories kGroups[] = {{"C", category_set({Cn, Cc, Cf, Co})},
                                       {"L", kLetters},
                                       {"M", kMarks},
                                       {"N", kNumbers},
                                       {"P", kPunctuation},
                                       {"S", kSymbols},
                                       {"Z", kSeparators}};
constexpr std::array<std::string_view, kGeneralCategories> kCategoryNames = {
    "Cn", "Cc", "Cf", "Co", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No",
    "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp"};

// The control characters with the property White_Space.
constexpr bool is_control_space(char32_t c) { return (c >= 0x9 && c <= 0xD) || c == 0x85; }

constexpr uint8_t traits_of(char32_t c, GeneralCategory category) {
  const CategorySet bit = category_set({category});
  uint8_t traits = 0;
  const auto add = [&](CategorySet set, CharTrait trait) {
    if ((bit & set) != 0) traits = static_cast<uint8_t>(traits | trait);
  };
  add(kLetters, kLetterTrait);
  add(kNumbers, kNumberTrait);
  add(kSeparators, kSpaceTrait);
  add(kMarks, kMarkTrait);
  add(category_set({Lu, Lt, Lm, Lo}) | kMarks, kUpperTrait);
  add(category_set({Ll, Lm, Lo}) | kMarks, kLowerTrait);
  add(kPunctuation | kSymbols, kPunctuationTrait);
  if (is_control_space(c)) traits |= kSpaceTrait;
  return traits;
}

constexpr std::array<uint8_t, 128> make_ascii_traits() {
  std::array<uint8_t, 128> traits{};
  char32_t c = 0;
  for (const CategoryRun& run : kCategoryRuns) {
    for (uint32_t i = 0; i < run.count && c < 128; ++i, ++c) traits[c] = traits_of(c, run.category);
    if (c == 128) break;
  }
  return traits;
}
constexpr std::array<uint8_t, 128> kAsciiTraits = make_ascii_traits();

constexpr char32_t kEndOfControls = 0xA0;

struct FreeMemory {
  void operator()(uint8_t* memory) const { std::free(memory); }
};
using Traits = std::unique_ptr<uint8_t, FreeMemory>;

// Every process makes the table at startup, so the work is one fill per run of a category. Pages
// that stay zero (most of Unicode is unassigned) cost neither time nor memory.
Traits make_traits() {
  Traits traits(static_cast<uint8_t*>(std::calloc(kEndOfUnicode, 1)));
  if (traits == nullptr) throw std::bad_alloc();
  char32_t begin = 0;
  for (const CategoryRun& run : kCategoryRuns) {
    const char32_t end = begin + run.count;
    // Traits depend on the code point itself only among the control characters.
    for (; begin < std::min(end, kEndOfControls); ++begin) {
      traits.get()[begin] = traits_of(begin, run.category);
    }
    if (const uint8_t same = traits_of(begin, run.category); same != 0) {
      std::fill(traits.get() + begin, traits.get() + end, same);
    }
    begin = end;
  }
  return traits;
}

}  // namespace

std::optional<CategorySet> find_categories(std::string_view name) {
  for (const NamedCategories& group : kGroups) {
    if (group.name == name) return group.set;
  }
  const auto* found = std::find(kCategoryNames.begin(), kCategoryNames.end(), name);
  if (found == kCategoryNames.end()) return std::nullopt;
  return 1u << static_cast<unsigned>(found - kCategoryNames.begin());
}

const uint8_t* char_traits() {
  static const Traits kTraits = make_traits();
  return kTraits.get();
}

const std::array<uint8_t, 128>& ascii_traits() { return kAsciiTraits; }

std::vector<CodePointRange> ranges_of(CategorySet set) {
  std::vector<CodePointRange> ranges;
  char32_t begin = 0;
  for (const CategoryRun& run : kCategoryRuns) {
    const char32_t end = begin + run.count;
    if ((category_set({run.category}) & set) != 0) {
      if (!ranges.empty() && ranges.back().last + 1 == begin) {
        ranges.back().last = end - 1;
      } else {
        ranges.push_back({begin, end - 1});
      }
    }
    begin = end;
  }
  return ranges;
}

}  // namespace finetune::tokenizer
