// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace finetune::tokenizer {

// A regular expression of a tokenizer.json, which the tokenizers package gives to Oniguruma with
// Ruby's syntax, as PCRE2 understands the same: every character class spelt as code points of the
// package's own Unicode tables, no captures, and "(?C)" (a callout) wherever matching may repeat
// something, so that work can be counted.
//
// Taken are: alternatives, groups (?:...) (...) (?>...), (?i:...) around ASCII, the four kinds of
// looking around, classes with \s \d \w \p{..} and ranges, ^ $ \A \z \Z \b \B, and greedy, lazy and
// possessive quantifiers. Throws Error(kData) that starts with `where` for everything else, for
// what the two engines understand differently, and for an expression that can match nothing at all.
[[nodiscard]] std::string to_pcre2(std::string_view regex, const std::string& where);

// The first 200 bytes of an expression, for messages.
[[nodiscard]] std::string shorten_regex(std::string_view regex);

}  // namespace finetune::tokenizer
