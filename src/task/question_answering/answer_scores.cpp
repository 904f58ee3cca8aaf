// SPDX-License-Identifier: MIT
#include <utf8proc.h>

#include <algorithm>
#include <limits>
#include <map>

#include "finetune/base/utf8.h"
#include "task/question_answering/answers.h"

namespace finetune {
namespace {

utf8proc_int32_t number(char32_t c) { return static_cast<utf8proc_int32_t>(c); }

// Python's str.isspace()
bool is_space(char32_t c) {
  const utf8proc_property_t* property = utf8proc_get_property(number(c));
  switch (property->bidi_class) {
    case UTF8PROC_BIDI_CLASS_WS:
    case UTF8PROC_BIDI_CLASS_B:
    case UTF8PROC_BIDI_CLASS_S:
      return true;
    default:
      return property->category == UTF8PROC_CATEGORY_ZS;
  }
}

// Python's \w without the underscore, which was removed with the punctuation.
bool is_word(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(number(c));
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) ||
         (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

bool is_punctuation(char32_t c) {  // Python's string.punctuation
  return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) ||
         (c >= 0x7B && c <= 0x7E);
}

std::u32string lower_without_punctuation(std::string_view text) {
  const std::string valid = utf8::replace_invalid(text);
  std::u32string result;
  for (size_t offset = 0; offset < valid.size();) {
    const char32_t c = utf8::decode(valid, offset);
    if (is_punctuation(c)) continue;
    if (c == 0x130) {
      result += U"i\u0307";
    } else {
      result += static_cast<char32_t>(utf8proc_tolower(number(c)));
    }
  }
  return result;
}

// Replaces articles by a space: "the" between characters that do not belong to words.
std::u32string without_articles(const std::u32string& text) {
  std::u32string result;
  for (size_t start = 0; start < text.size();) {
    size_t end = start;
    while (end < text.size() && is_word(text[end])) ++end;
    if (end == start) {
      result += text[start++];
      continue;
    }
    const std::u32string word = text.substr(start, end - start);
    result += word == U"a" || word == U"an" || word == U"the" ? U" " : word;
    start = end;
  }
  return result;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  bool in_word = false;
  for (const char32_t c : without_articles(lower_without_punctuation(text))) {
    const bool space = is_space(c);
    if (!space && !in_word) words.emplace_back();
    if (!space) utf8::append(words.back(), c);
    in_word = !space;
  }
  return words;
}

// Returns the F1 of the token overlap. It is 0 if a side has no words; in SQuAD 2 it is 1 if both
// have none.
double overlap_f1(const std::vector<std::string>& answer, const std::vector<std::string>& right,
                  bool version_2) {
  if (version_2 && (answer.empty() || right.empty())) return answer == right ? 1.0 : 0.0;
  std::map<std::string, int64_t> counts;
  for (const std::string& word : right) ++counts[word];
  int64_t same = 0;
  for (const std::string& word : answer) {
    if (counts[word]-- > 0) ++same;
  }
  if (same == 0) return 0.0;
  const double precision = static_cast<double>(same) / static_cast<double>(answer.size());
  const double recall = static_cast<double>(same) / static_cast<double>(right.size());
  return 2 * precision * recall / (precision + recall);
}

double percent(double sum, int64_t total) {
  return total == 0 ? std::numeric_limits<double>::quiet_NaN()
                    : 100.0 * sum / static_cast<double>(total);
}

}  // namespace

std::string normalize_answer(std::string_view text) {
  std::string result;
  for (const std::string& word : words_of(text)) {
    if (!result.empty()) result += ' ';
    result += word;
  }
  return result;
}

void AnswerScores::add(std::string_view answer, std::span<const std::string> right_answers) {
  const bool has_answer = !right_answers.empty();
  if (!has_answer && !version_2_) return;
  const std::vector<std::string> words = words_of(answer);
  std::vector<std::vector<std::string>> right;
  for (const std::string& text : right_answers) {
    std::vector<std::string> right_words = words_of(text);
    if (!version_2_ || !right_words.empty()) right.push_back(std::move(right_words));
  }
  if (version_2_ && right.empty()) right.emplace_back();

  double exact = 0.0;
  double f1 = 0.0;
  for (const std::vector<std::string>& each : right) {
    exact = std::max(exact, words == each ? 1.0 : 0.0);
    f1 = std::max(f1, overlap_f1(words, each, version_2_));
  }
  Sums& sums = has_answer ? has_answer_ : no_answer_;
  sums.exact += exact;
  sums.f1 += f1;
  ++sums.total;

  const double loss = answer.empty() ? 0.0 : -1.0;
  gain_.exact += has_answer ? exact : loss;
  gain_.f1 += has_answer ? f1 : loss;
  best_gain_.exact = std::max(best_gain_.exact, gain_.exact);
  best_gain_.f1 = std::max(best_gain_.f1, gain_.f1);
}

std::vector<std::pair<std::string, double>> AnswerScores::compute() const {
  const int64_t total = has_answer_.total + no_answer_.total;
  const double exact = percent(has_answer_.exact + no_answer_.exact, total);
  const double f1 = percent(has_answer_.f1 + no_answer_.f1, total);
  if (!version_2_) return {{"exact_match", exact}, {"f1", f1}};

  std::vector<std::pair<std::string, double>> result = {
      {"exact", exact}, {"f1", f1}, {"total", static_cast<double>(total)}};
  const auto add_part = [&](const std::string& name, const Sums& sums) {
    if (sums.total == 0) return;
    result.emplace_back(name + "_exact", percent(sums.exact, sums.total));
    result.emplace_back(name + "_f1", percent(sums.f1, sums.total));
    result.emplace_back(name + "_total", static_cast<double>(sums.total));
  };
  add_part("HasAns", has_answer_);
  add_part("NoAns", no_answer_);
  // run_qa has no probabilities, so the only thresholds to try are those between questions, all at
  // probability 0.
  const auto unanswered = static_cast<double>(no_answer_.total);
  result.emplace_back("best_exact", percent(unanswered + best_gain_.exact, total));
  result.emplace_back("best_exact_thresh", 0.0);
  result.emplace_back("best_f1", percent(unanswered + best_gain_.f1, total));
  result.emplace_back("best_f1_thresh", 0.0);
  return result;
}

}  // namespace finetune
