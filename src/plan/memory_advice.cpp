// SPDX-License-Identifier: MIT
#include "finetune/plan/memory_advice.h"

#include <algorithm>

#include "finetune/base/text.h"
#include "finetune/plan/memory_text.h"
#include "plan/memory_techniques.h"

namespace finetune {

std::vector<MemorySaving> memory_savings(const MemoryWorkload& workload,
                                         const MemoryChoices& choices, size_t most) {
  const int64_t peak = predict_memory(workload, choices).peak();
  std::vector<MemorySaving> savings;
  const auto try_change = [&](const std::string& text, const MemoryWorkload& less_work,
                              const MemoryChoices& other) {
    const int64_t saved = peak - predict_memory(less_work, other).peak();
    if (saved >= int64_t{1} << 20) savings.push_back({.change = text, .bytes = saved});
  };
  for (const MemoryTechnique& technique : memory_techniques()) {
    if (!technique.save) continue;
    MemoryChoices other = choices;
    const std::string text = technique.save(workload, other);
    if (other != choices) try_change(text, workload, other);
  }
  if (workload.length >= 32) {
    MemoryWorkload shorter = workload;
    shorter.length = workload.length / 2;
    try_change(format_text("max_seq_length: {} (now {})", shorter.length, workload.length), shorter,
               choices);
  }
  if (workload.eval_batch > 1) {
    MemoryWorkload fewer = workload;
    fewer.eval_batch = 1;
    try_change("per_device_eval_batch_size: 1", fewer, choices);
  }
  std::ranges::stable_sort(
      savings, [](const MemorySaving& a, const MemorySaving& b) { return a.bytes > b.bytes; });
  if (savings.size() > most) savings.resize(most);
  return savings;
}

std::string memory_advice(const MemoryWorkload& workload, const MemoryChoices& choices,
                          int64_t attainable) {
  const int64_t peak = predict_memory(workload, choices).peak();
  std::string text = "\n  needed: about " + mebibytes(peak) +
                     format_text(", estimated with {} {} at a time", choices.micro_batch,
                                 choices.micro_batch == 1 ? "sample" : "samples");
  if (attainable > 0) text += "\n  attainable: " + mebibytes(attainable);
  const std::vector<MemorySaving> savings = memory_savings(workload, choices);
  if (!savings.empty()) text += "\n  settings that help, with the estimated peak of each alone:";
  for (const MemorySaving& saving : savings) {
    text += "\n    " + saving.change + " -> about " + mebibytes(peak - saving.bytes);
  }
  return text;
}

}  // namespace finetune
