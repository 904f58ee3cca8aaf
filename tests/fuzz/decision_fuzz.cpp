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
    const auto is_inside = [&](std::int64_t mark) { return mark >= 1 && mark <= length; };
    if (group.options < 1 || !std::ranges::all_of(group.marks, is_inside)) std::abort();
    if (group.marks.empty()) std::abort();
    if (group.target.empty()) continue;
    if (std::ssize(group.target) != group.options || !(group.weight > 0)) std::abort();
    const double sum = std::accumulate(group.target.begin(), group.target.end(), 0.0);
    if (!(std::abs(sum - 1.0) < 1e-3)) std::abort();
  }
}

const testing::ByteTokenizer& bytes() {
  static const testing::ByteTokenizer tokenizer;
  return tokenizer;
}

// Those, and laya's questions, whose tokens are cut to a budget.
std::shared_ptr<const DecisionPrompter> prompter_of(int number) {
  if (number == 2) {
    const LayaPrompterOptions options{.max_len = 400, .head_max_len = 96};
    return std::make_shared<const LayaPrompter>(bytes(), options);
  }
  const auto text = std::make_shared<chat::ChatTemplate>(kTemplates[number], "template");
  return std::make_shared<const TemplatePrompter>(
      bytes(), TemplatePrompterOptions{.decision_template = text});
}

void build(const std::string& rows, int form) {
  DecisionOptions options;
  options.json_lines = rows;
  options.settings.labels[0] = {"y", "n"};
  options.max_seq_length = 400;
  options.orders = 4;
  options.settings.has_labels = form != 2;
  options.prompter = prompter_of(form);
  const auto data = build_decision_dataset({}, bytes(), options, 1);
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
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] % 4 == 3) {
      const DecisionSettings settings = DecisionSettings::parse(text, "decision.json");
      if (DecisionSettings::parse(settings.text(), "again").text() != settings.text()) std::abort();
    } else {
      build(text, data[0] % 4);
    }
  } catch (const Error&) {  // expected for bad rows
  }
  return 0;
}
