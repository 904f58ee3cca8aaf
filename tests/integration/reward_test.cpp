// SPDX-License-Identifier: MIT
// task: reward for users. tests/parity compares what is learned.
#include "integration/answer_run.h"
#include "integration/launched.h"
#include "integration/task_checks.h"
#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;

class RewardRun : public AnswerRun {
 public:
  explicit RewardRun(const Keys& keys = {}) : AnswerRun(row_of, with_task(keys)) {}

 private:
  static Json row_of(const Json& line) {
    return {{"prompt", line["question"].get<std::string>() + " "},
            {"chosen", line["answer"]},
            {"rejected", line["wrong"]}};
  }
  static Keys with_task(Keys keys) {
    keys.insert({"task", "reward"});
    return keys;
  }
};

TEST(Reward, EndsAlikeWithAndWithoutInterruptionsAndInProcesses) {
  const TinyRun::Keys exact = {{"full_determinism", "true"}};
  const RewardRun whole(exact);
  const ProcessResult trained = whole.train();
  ASSERT_EQ(trained.code, 0) << trained.err;
  const RewardRun stopped(exact);
  stopped.train_until(4);
  ASSERT_EQ(stopped.train({"--num_processes", "2"}).code, 0);
  EXPECT_TRUE(read_file(whole.out("model.safetensors")) ==
              read_file(stopped.out("model.safetensors")));
  const Json results = parse_json(read_file(whole.out("eval_results.json")), "");
  for (const char* name : {"eval_accuracy", "eval_margin", "eval_mean_reward"}) {
    EXPECT_TRUE(results.contains(name)) << name;
  }
  const Json config = parse_json(read_file(whole.out("config.json")), "");
  EXPECT_EQ(config["architectures"][0], "LlamaForSequenceClassification");
  EXPECT_TRUE(config["pad_token_id"].is_number());
  const ProcessResult reward =
      testing::run(finetune_command({"predict", whole.out(), "--use_cpu", "--text", "the keeper",
                                     "--function_to_apply", "none"}));
  EXPECT_EQ(reward.code, 0) << reward.err;
  EXPECT_TRUE(parse_json(reward.out, "")[0]["score"].is_number());
}

TEST(Reward, VerifyResumeFindsEqualBits) {
  const RewardRun run;
  expect_equal_bits_by_verify_resume(run);
}

TEST(Reward, SaysWhichPairsAreLeftOutAndRefusesOtherRows) {
  const RewardRun few({{"max_seq_length", "24"}, {"eval_strategy", "no"}});
  const ProcessResult trained = few.train();
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("of 72 pairs of train_file are left out"));

  const std::vector<std::pair<const char*, const char*>> bad = {
      {R"({"prompt": "x", "completion": "y"})", "'chosen'"},
      {R"({"chosen": 3, "rejected": "y"})", "rows.jsonl:1"},
      {R"({"chosen": "x", "rejected": "y", "margin": "wide"})", "'margin'"},
      {R"({"chosen": [{"role": "user", "content": "x"}], "rejected": "y"})", "chat template"}};
  for (const auto& [rows, fact] : bad) {
    const RewardRun run(TinyRun::Keys{{"eval_strategy", "no"}});
    run.folder().write("rows.jsonl", std::string(rows) + "\n");
    const ProcessResult result = run.train();
    EXPECT_TRUE(result.code == 1 || result.code == 2) << rows << "\n" << result.err;
    EXPECT_THAT(result.err, HasSubstr(fact));
  }
}

}  // namespace
}  // namespace finetune::testing
