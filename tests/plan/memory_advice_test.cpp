// SPDX-License-Identifier: MIT
#include "finetune/plan/memory_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "finetune/plan/memory_text.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

MemoryWorkload small_bert(int64_t batch) {
  ModelConfig model;
  model.vocab_size = 30000;
  model.num_hidden_layers = 6;
  model.max_position_embeddings = 514;
  MemoryWorkload workload;
  workload.model = model;
  workload.effective_batch = batch;
  workload.eval_batch = 8;
  return workload;
}

TEST(MemorySavings, AreThoseOfThePlanMostFirst) {
  const MemoryWorkload workload = small_bert(16);
  const MemoryChoices choices{.micro_batch = 16};
  const int64_t peak = predict_memory(workload, choices).peak();
  const std::vector<MemorySaving> savings = memory_savings(workload, choices, 10);
  ASSERT_GE(savings.size(), 4U);
  for (size_t i = 1; i < savings.size(); ++i) EXPECT_GE(savings[i - 1].bytes, savings[i].bytes);
  MemoryChoices checkpointing = choices;
  checkpointing.checkpointing = {.enabled = true};
  MemoryChoices eight_bits = choices;
  eight_bits.optimizer = {.kind = "adamw_8bit"};
  int found = 0;
  for (const MemorySaving& saving : savings) {
    const MemoryChoices* change = saving.change == "gradient_checkpointing: true" ? &checkpointing
                                  : saving.change == "optim: adamw_8bit"          ? &eight_bits
                                                                                  : nullptr;
    if (change == nullptr) continue;
    ++found;
    EXPECT_EQ(saving.bytes, peak - predict_memory(workload, *change).peak()) << saving.change;
  }
  EXPECT_EQ(found, 2);
  EXPECT_EQ(memory_savings(workload, choices).size(), 3U);
}

TEST(MemorySavings, NameOnlyWhatIsNotDoneAlready) {
  MemoryChoices choices{.micro_batch = 1};
  choices.checkpointing = {.enabled = true};
  choices.optimizer = {.kind = "adamw_8bit"};
  for (const MemorySaving& saving : memory_savings(small_bert(8), choices, 10)) {
    EXPECT_NE(saving.change, "gradient_checkpointing: true");
    EXPECT_NE(saving.change, "optim: adamw_8bit");
    EXPECT_EQ(saving.change.find("per_device_train_batch_size"), std::string::npos);
    EXPECT_NE(saving.change, "optimizer_in_backward: true");  // excludes accumulation
  }
}

TEST(MemoryAdvice, HasShortLinesWithThePeakOfEachSetting) {
  const MemoryWorkload workload = small_bert(16);
  const MemoryChoices choices{.micro_batch = 16};
  const std::string text = memory_advice(workload, choices, int64_t{512} << 20);
  EXPECT_THAT(text, MatchesRegex("\n  needed: about [0-9]+ MiB, estimated with 16 samples at a time"
                                 "\n  attainable: 512 MiB"
                                 "\n  settings that help, with the estimated peak of each alone:"
                                 "(\n    [^\n]+ -> about [0-9]+ MiB){3}"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
  const MemorySaving best = memory_savings(workload, choices).front();
  const int64_t peak = predict_memory(workload, choices).peak();
  EXPECT_THAT(text, HasSubstr(best.change + " -> about " + mebibytes(peak - best.bytes)));
}

TEST(MemoryAdvice, IsForTheSamplesAtATimeThatFailed) {
  const std::string text = memory_advice(small_bert(16), {.micro_batch = 1}, 0);
  EXPECT_THAT(text, HasSubstr("estimated with 1 sample at a time"));
  EXPECT_THAT(text, Not(HasSubstr("per_device_train_batch_size")));
  EXPECT_THAT(text, Not(HasSubstr("attainable")));
}

}  // namespace
}  // namespace finetune
