// SPDX-License-Identifier: MIT
#include "finetune/report/learned_text.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/data/batch.h"

namespace finetune {

LearnedMarks LearnedMarks::for_output() {
  const char* terminal = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");
  const bool shows_color = isatty(STDOUT_FILENO) == 1 &&
                           (no_color == nullptr || *no_color == '\0') &&
                           (terminal == nullptr || std::string_view(terminal) != "dumb");
  if (!shows_color) return {};
  return {.begin = "\x1B[32m", .end = "\x1B[0m"};
}

namespace {

bool is_learned(const Example& example, size_t token) {
  return example.labels[token] != static_cast<int32_t>(kIgnoredLabel);
}

std::string sample_text(const Example& example, const Tokenizer& tokenizer,
                        const LearnedMarks& marks) {
  std::string text;
  const size_t size = example.labels.size();
  for (size_t begin = 0; begin < size;) {
    size_t end = begin + 1;
    while (end < size && is_learned(example, end) == is_learned(example, begin)) ++end;
    std::vector<int32_t> ids;
    for (size_t i = begin; i < end; ++i) ids.push_back(example.input_ids[i]);
    const std::string part = printable(tokenizer.decode(ids, /*skip_special_tokens=*/false));
    text += is_learned(example, begin) ? marks.begin + part + marks.end : part;
    begin = end;
  }
  // Each line is set off, so that the end of a sample is visible.
  std::string lines = "  | ";
  for (const char c : text) {
    lines += c;
    if (c == '\n') lines += "  | ";
  }
  return lines + "\n";
}

}  // namespace

std::string side_name(const Dataset& data, int64_t index, int64_t choice) {
  if (data.choices_of(index) != 2) return "";
  const std::optional<int64_t> label = data.get(index).label;
  if (!label) return choice == 0 ? "chosen" : "rejected";
  if (choice == 1) return "with another answer";
  return *label == 1 ? "desirable" : "undesirable";
}

std::string learned_text(const Dataset& data, int64_t count, const Tokenizer& tokenizer,
                         const LearnedMarks& marks) {
  std::string text;
  for (int64_t i = 0; i < std::min(count, data.size()); ++i) {
    for (int64_t choice = 0; choice < data.choices_of(i); ++choice) {
      const Example example = data.get(i, choice);
      int64_t learned = 0;
      for (size_t token = 1; token < example.labels.size(); ++token) {
        learned += is_learned(example, token) ? 1 : 0;
      }
      const std::string name = side_name(data, i, choice);
      const std::string side = name.empty() ? "" : ", " + name;
      text += format_text("sample {}{}: {} tokens, {} learned (marked {}so{})\n", i, side,
                          example.labels.size(), learned, marks.begin, marks.end);
      text += sample_text(example, tokenizer, marks);
    }
  }
  return text;
}

}  // namespace finetune
