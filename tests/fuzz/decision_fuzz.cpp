// SPDX-License-Identifier: MIT
// Rows of decisions and decision.json with any content: they become samples whose marks and
// probabilities fit, or an Error.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "../data/byte_tokenizer.h"
#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/chat/chat_template.h"
#include "finetune/data/decision_collator.h"
#include "finetune/data/decision_dataset.h"

namespace {

using namespace finetune;

// One prompt for each question, and one for all questions of a row.
constexpr const char* kTemplates[] = {
    "{{ state }} {{ question.instructions }} {% for o in question.options %}{{ o }};{% endfor %}"
    "________________________________<|mark|>",
    "{{ state|tojson }}{% for q in questions %} {{ q.name }} {{ q.options|join(';') }}"
    "____________________________:<|mark|>{% endfor %}"};

void check(const std::vector<DecisionGroup>& groups, std::int64_t length) {
  if (groups.empty()) std::abort();
  for (const DecisionGroup& group : groups) {
    if (group.mark < 1 || group.mark > length || group.options < 1) std::abort();
    if (group.target.empty()) continue;
    if (std::ssize(group.target) != group.options || !(group.weight > 0)) std::abort();
    const double sum = std::accumulate(group.target.begin(), group.target.end(), 0.0);
    if (!(std::abs(sum - 1.0) < 1e-3)) std::abort();
  }
}

void build(const std::string& rows, const char* text) {
  static const testing::ByteTokenizer tokenizer;
  DecisionOptions options;
  options.json_lines = rows;
  options.settings.labels[0] = {"y", "n"};
  options.max_seq_length = 400;
  options.orders = 4;
  options.prompter = std::make_shared<const DecisionPrompter>(
      tokenizer, DecisionPromptOptions{.decision_template =
                                           std::make_shared<chat::ChatTemplate>(text, "template")});
  const auto data = build_decision_dataset({}, tokenizer, options, 1);
  std::vector<SampleKey> keys;
  for (std::int64_t i = 0; i < data->size(); ++i) {
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) keys.push_back({.index = i, .epoch = epoch});
  }
  const Batch batch = DecisionCollator(PaddingOptions()).collate(*data, keys);
  const auto length = static_cast<std::size_t>(batch.length);
  for (std::size_t row = 0; row < keys.size(); ++row) {
    check(read_groups(std::span(batch.labels).subspan(row * length, length)), batch.length);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  log::set_level("error");
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] % 4 == 3) {
      const DecisionSettings settings = DecisionSettings::parse(bytes, "decision.json");
      if (DecisionSettings::parse(settings.text(), "again").text() != settings.text()) std::abort();
    } else {
      build(bytes, kTemplates[data[0] % 2]);
    }
  } catch (const Error&) {  // expected for bad rows
  }
  return 0;
}
