// SPDX-License-Identifier: MIT
#include "finetune/state/run_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "finetune/base/error.h"
#include "support/golden.h"

namespace finetune {
namespace {

RunState example() {
  RunState state;
  state.run_id = "0123abcd";
  state.step = 41;
  state.updates = 40;
  state.position = {.epoch = 2, .sample = 96};
  state.effective_batch_size = 8;
  state.automatic_steps = {7, 41};
  state.window_loss = 1.0 / 3.0;
  state.total_loss = 0.1 + 0.2;
  state.last_learning_rate = 4.9e-324;
  state.evaluation_pending = true;
  state.divergence = {.skipped_updates = 3,
                      .rollbacks = 2,
                      .tries = 1,
                      .faulty_step = 40,
                      .watched_until = 39,
                      .left_out = {{.position = {.epoch = 1, .sample = 64}, .samples = 8}},
                      .recent_losses = {1.0 / 3.0, 0.1},
                      .recent_grad_norms = {4.9e-324}};
  state.cut = {.asked_train = 8, .train = 4, .asked_eval = 16, .eval = 2};
  state.identity.tokenizer = "feed";
  state.environment.threads = 2;
  return state;
}

std::string error_of(const std::string& text) {
  try {
    (void)RunState::parse(text, "c/finetune_state.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(RunState, ReadsBackEveryBit) {
  const RunState again = RunState::parse(example().to_text(), "x");
  EXPECT_EQ(again.to_text(), example().to_text());
  EXPECT_EQ(again.window_loss, 1.0 / 3.0);
  EXPECT_EQ(again.total_loss, 0.1 + 0.2);
  EXPECT_EQ(again.last_learning_rate, 4.9e-324);
  EXPECT_EQ(again.position, (Position{.epoch = 2, .sample = 96}));
  EXPECT_EQ(again.divergence.left_out, example().divergence.left_out);
  EXPECT_EQ(again.divergence.recent_losses, example().divergence.recent_losses);
  EXPECT_EQ(again.cut, example().cut);
}

TEST(RunState, ReadsFilesThatWereWrittenBeforeAFieldCame) {
  std::string text = example().to_text();
  for (const char* name : {"rollbacks", "left_out", "recent_losses", "cut_train_batch"}) {
    text = replaced(text, "\"" + std::string(name) + "\"", "\"unknown_" + std::string(name) + "\"");
  }
  const RunState state = RunState::parse(text, "x");
  EXPECT_EQ(state.divergence.rollbacks, 0);
  EXPECT_TRUE(state.divergence.left_out.empty());
  EXPECT_EQ(state.cut.train, 0);
}

TEST(RunState, ReadsTheOneAutomaticStepOfEarlierVersions) {
  const std::string text = replaced(
      example().to_text(), "\"automatic_steps\": [\n    7,\n    41\n  ]", "\"automatic_step\": 41");
  EXPECT_EQ(RunState::parse(text, "x").automatic_steps, std::vector<int64_t>{41});
  const std::string none = replaced(text, "\"automatic_step\": 41", "\"automatic_step\": null");
  EXPECT_TRUE(RunState::parse(none, "x").automatic_steps.empty());
}

TEST(RunState, RefusesAutomaticStepsThatAreNone) {
  const std::string text = replaced(example().to_text(), "    41\n", "    -41\n");
  EXPECT_GOLDEN(error_of(text));
}

TEST(RunState, RefusesAnEffectiveBatchOfNothing) {
  RunState state = example();
  state.effective_batch_size = 0;
  EXPECT_GOLDEN(error_of(state.to_text()));
}

TEST(RunState, RefusesAnotherFormatVersion) {
  EXPECT_GOLDEN(
      error_of(replaced(example().to_text(), "\"format_version\": 1", "\"format_version\": 9")));
}

TEST(RunState, ReadsWhatWasWrittenBeforeSessionsAndMachinesWereKept) {
  auto json = nlohmann::ordered_json::parse(example().to_text());
  for (const char* name : {"memory", "session", "processors", "machine_memory"}) json.erase(name);
  const RunState state = RunState::parse(json.dump(), "x");
  EXPECT_EQ(state.step, 41);
  EXPECT_TRUE(state.session.empty());
  EXPECT_EQ(state.environment.processors, 0);
}

TEST(RunState, RefusesMissingAndMistypedFieldsByName) {
  EXPECT_GOLDEN(error_of(replaced(example().to_text(), "\"updates\"", "\"update\"")));
  EXPECT_GOLDEN(error_of(replaced(example().to_text(), "\"step\": 41", "\"step\": -1")));
  EXPECT_GOLDEN(error_of(replaced(example().to_text(), "\"step\": 41", "\"step\": 1e300")));
  EXPECT_GOLDEN(error_of(
      replaced(example().to_text(), "\"recent_grad_norms\": [", "\"recent_grad_norms\": [\"x\",")));
  EXPECT_GOLDEN(error_of(replaced(example().to_text(), "\"sample\": 64", "\"sample\": -4")));
  EXPECT_GOLDEN(error_of("[]"));
}

TEST(MemoryCut, HoldsForTheSizesThatItWasFoundWith) {
  const MemoryCut saved{.asked_train = 8, .train = 4, .asked_eval = 16, .eval = 2};
  EXPECT_EQ(usable_cut(saved, 8, 16, 24), saved);
  EXPECT_EQ(usable_cut(saved, 4, 16, 24).train, 0) << "another size is asked for";
  EXPECT_EQ(usable_cut(saved, 4, 16, 24).eval, 2);
  EXPECT_EQ(usable_cut(saved, 8, 8, 24).eval, 0);
  EXPECT_EQ(usable_cut(saved, 8, 16, 6).train, 0) << "it does not divide the batch";
  EXPECT_EQ(usable_cut({}, 8, 16, 24), MemoryCut());
}

}  // namespace
}  // namespace finetune
