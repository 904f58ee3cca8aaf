// SPDX-License-Identifier: MIT
// task: reranker for users. tests/parity compares what is learned.
#include "integration/launched.h"
#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;

// A query with a right document and a wrong one.
class RerankerRun : public TinyRun {
 public:
  explicit RerankerRun(const Keys& keys = {}) {
    Keys all = {{"task", "reranker"},
                {"train_file", kTasks + "answers-train.jsonl"},
                {"validation_file", kTasks + "answers-valid.jsonl"},
                {"max_steps", "12"},
                {"eval_steps", "6"},
                {"save_steps", "5"}};
    for (const auto& [key, value] : keys) all[key] = value;
    set(all);
  }
};

TEST(Reranker, EndsAlikeWithAndWithoutInterruptionsAndInProcesses) {
  const TinyRun::Keys exact = {{"full_determinism", "true"}};
  const RerankerRun whole(exact);
  ASSERT_EQ(whole.train().code, 0);
  const RerankerRun stopped(exact);
  stopped.train_until(4);
  ASSERT_EQ(stopped.train({"--num_processes", "2"}).code, 0);
  EXPECT_TRUE(read_file(whole.out("model.safetensors")) ==
              read_file(stopped.out("model.safetensors")));
  const Json results = parse_json(read_file(whole.out("eval_results.json")), "");
  for (const char* name : {"eval_map", "eval_mrr@10", "eval_ndcg@10", "eval_loss"}) {
    EXPECT_TRUE(results.contains(name)) << name;
  }
}

TEST(Reranker, VerifyResumeFindsEqualBits) {
  const RerankerRun run;
  const ProcessResult result = testing::run(
      finetune_command({"verify-resume", run.config(), "--steps", "6", "--interrupt_at", "3"}));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out + result.err, HasSubstr("bit for bit"));
}

TEST(Reranker, PredictPrintsTheScoreOfAPair) {
  const RerankerRun run;
  ASSERT_EQ(run.train().code, 0);
  const Arguments words = finetune_command(
      {"predict", run.out(), "--use_cpu", "--text", "who?", "--text_pair", "the keeper"});
  const ProcessResult scored = testing::run(words);
  EXPECT_EQ(scored.code, 0) << scored.err;
  const double score = parse_json(scored.out, "")["score"].get<double>();
  EXPECT_TRUE(score > 0.0 && score < 1.0) << score;
  const ProcessResult alone =
      testing::run(finetune_command({"predict", run.out(), "--text", "who?"}));
  EXPECT_EQ(alone.code, 1);
  EXPECT_THAT(alone.err, HasSubstr("--text_pair"));
}

struct Refusal {
  const char* rows;
  TinyRun::Keys keys;
  int code;
  std::vector<std::string> facts;
};

TEST(Reranker, RefusesWhatItCannotLearn) {
  const std::vector<Refusal> refusals = {
      {R"({"q": "x", "d": "y"})", {}, 2, {"label_column"}},
      {R"({"q": "x", "label": 1})", {}, 1, {"train.jsonl:1", "text_columns"}},
      {R"({"q": "x", "d": "y", "label": 3})", {}, 2, {"BinaryCrossEntropyLoss"}},
      {R"({"q": "x", "d": "y", "label": 1})", {{"loss_type", "LambdaLoss"}}, 2, {"LambdaLoss"}},
      {R"({"q": "x", "d": ["y", "z"], "label": 1})", {}, 2, {"1 labels", "2 documents"}},
      {R"({"q": "x", "d": "y", "label": 1})", {{"loss_type", "CoSENTLoss"}}, 2, {"CoSENTLoss"}},
      {R"({"q": "x", "d": "y", "label": 1})", {{"loss_kwargs", "{k: 3}"}}, 2, {"'k'"}}};
  for (const Refusal& refusal : refusals) {
    TinyRun::Keys keys = refusal.keys;
    keys["eval_strategy"] = "no";
    RerankerRun run(keys);
    run.set({{"train_file", run.folder() / "train.jsonl"}});
    run.folder().write("train.jsonl", std::string(refusal.rows) + "\n");
    const ProcessResult result = run.train();
    EXPECT_EQ(result.code, refusal.code) << refusal.rows << "\n" << result.err;
    for (const std::string& fact : refusal.facts) EXPECT_THAT(result.err, HasSubstr(fact));
  }
}

}  // namespace
}  // namespace finetune::testing
