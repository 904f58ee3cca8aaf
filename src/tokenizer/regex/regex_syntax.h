// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace finetune::tokenizer {

// Translates a regular expression of a tokenizer.json, which the tokenizers package passes to
// Oniguruma with Ruby's syntax, to PCRE2: every character class is spelled out as code points of
// the package's Unicode tables, there are no captures, and "(?C)" (a callout) precedes everything
// that matching may repeat, so that work can be counted.
//
// Supports alternatives, groups (?:...) (...) (?>...), (?i:...) around ASCII, the four kinds of
// lookaround, classes with \s \d \w \p{..} and ranges, ^ $ \A \z \Z \b \B, and greedy, lazy and
// possessive quantifiers. Throws Error(kData) that starts with `where` for everything else, for
// syntax that the two engines interpret differently, and for an expression that matches only the
// empty string.
[[nodiscard]] std::string to_pcre2(std::string_view regex, const std::string& where);

// Returns the first 200 bytes of an expression, for messages.
[[nodiscard]] std::string shorten_regex(std::string_view regex);

}  // namespace finetune::tokenizer
