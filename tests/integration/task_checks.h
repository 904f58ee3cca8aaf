// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "integration/launched.h"
#include "integration/tiny_run.h"

namespace finetune::testing {

// Rows that a task cannot learn, with the keys of their run.
struct Refusal {
  const char* rows;
  TinyRun::Keys keys;
  int code;
  std::vector<std::string> facts;  // of the message
};

// `Run`: of a task, with keys.
template <class Run>
void expect_refused(const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    TinyRun::Keys keys = refusal.keys;
    keys["eval_strategy"] = "no";
    Run run(keys);
    run.set({{"train_file", run.folder() / "train.jsonl"}});
    run.folder().write("train.jsonl", std::string(refusal.rows) + "\n");
    const ProcessResult result = run.train();
    EXPECT_EQ(result.code, refusal.code) << refusal.rows << "\n" << result.err;
    for (const std::string& fact : refusal.facts) {
      EXPECT_THAT(result.err, ::testing::HasSubstr(fact));
    }
  }
}

inline void expect_equal_bits_by_verify_resume(const TinyRun& run) {
  const ProcessResult result = testing::run(
      finetune_command({"verify-resume", run.config(), "--steps", "6", "--interrupt_at", "3"}));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out + result.err, ::testing::HasSubstr("bit for bit"));
}

}  // namespace finetune::testing
