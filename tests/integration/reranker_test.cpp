// SPDX-License-Identifier: MIT
// task: reranker for users. tests/parity compares what is learned.
#include <fstream>

#include "integration/launched.h"
#include "integration/task_checks.h"
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
  expect_equal_bits_by_verify_resume(run);
}

// Which documents are drawn depends on nothing but seed, epoch and sample.
TEST(Reranker, DrawnNegativesDependOnNoBatchProcessOrInterruption) {
  const TinyRun::Keys keys = {{"full_determinism", "true"},
                              {"effective_batch_size", "8"},
                              {"gradient_accumulation_steps", ""},
                              {"per_device_train_batch_size", "2"},
                              {"loss_type", "MultipleNegativesRankingLoss"},
                              {"loss_kwargs", "{num_negatives: 3}"}};
  const RerankerRun whole(keys);
  const ProcessResult trained = whole.train();
  ASSERT_EQ(trained.code, 0) << trained.err;
  const RerankerRun stopped(keys);
  stopped.train_until(4);
  ASSERT_EQ(stopped.train({"--num_processes", "2"}).code, 0);
  EXPECT_TRUE(read_file(whole.out("model.safetensors")) ==
              read_file(stopped.out("model.safetensors")));
  EXPECT_THAT(trained.err, HasSubstr("5 documents of a query, 3 of them"));
  TinyRun::Keys others = keys;
  others["loss_kwargs"] = "{num_negatives: 2}";
  const RerankerRun other(others);
  ASSERT_EQ(other.train().code, 0);
  EXPECT_FALSE(read_file(whole.out("model.safetensors")) ==
               read_file(other.out("model.safetensors")));
}

TEST(Reranker, VerifyResumeFindsEqualBitsWithDrawnNegatives) {
  const RerankerRun run(TinyRun::Keys{{"loss_type", "MultipleNegativesRankingLoss"}});
  expect_equal_bits_by_verify_resume(run);
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

// Queries with one to four documents, the first of which is right.
std::string uneven_rows(bool has_labels) {
  std::string rows;
  std::ifstream answers(kTasks + "answers-train.jsonl");
  size_t number = 0;
  for (std::string line; std::getline(answers, line); ++number) {
    const Json row = parse_json(line, "");
    const std::vector<std::string> all = {row["answer"], row["wrong"], "a boat", "the sea"};
    const size_t count = 1 + number % 4;
    Json sample = {{"q", row["question"]},
                   {"d", std::vector<std::string>(all.begin(), all.begin() + count)}};
    for (size_t i = 0; has_labels && i < count; ++i) sample["label"].push_back(i == 0 ? 1 : 0);
    rows += sample.dump() + "\n";
  }
  return rows;
}

TEST(Reranker, QueriesMayHaveDifferentNumbersOfDocuments) {
  for (const bool has_labels : {true, false}) {
    TinyRun::Keys keys = {{"full_determinism", "true"}};
    const auto trained = [&](const Arguments& more, bool stops) {
      RerankerRun run(keys);
      run.folder().write("rows.jsonl", uneven_rows(has_labels));
      run.set({{"train_file", run.folder() / "rows.jsonl"},
               {"validation_file", run.folder() / "rows.jsonl"}});
      if (stops) run.train_until(4);
      const ProcessResult result = run.train(more);
      EXPECT_EQ(result.code, 0) << result.err;
      const Json results = parse_json(read_file(run.out("eval_results.json")), "");
      EXPECT_GT(results["eval_map"].get<double>(), 0.3);
      EXPECT_TRUE(results["eval_loss"].is_number());
      return read_file(run.out("model.safetensors"));
    };
    const std::string whole = trained({}, false);
    EXPECT_TRUE(trained({"--num_processes", "2"}, true) == whole) << has_labels;
    for (const char* loss : {"BinaryCrossEntropyLoss", "ListNetLoss", "MarginMSELoss"}) {
      keys["loss_type"] = loss;
      (void)trained({}, false);
    }
  }
}

TEST(Reranker, RefusesWhatItCannotLearn) {
  const std::vector<Refusal> refusals = {
      {R"({"q": "x", "d": "y"})", {}, 2, {"label_column"}},
      {R"({"q": "x", "label": 1})", {}, 1, {"train.jsonl:1", "text_columns"}},
      {R"({"q": "x", "d": "y", "label": 3})", {}, 2, {"BinaryCrossEntropyLoss"}},
      {R"({"q": "x", "d": "y", "label": 1})", {{"loss_type", "LambdaLoss"}}, 2, {"LambdaLoss"}},
      {R"({"q": "x", "d": ["y", "z"], "label": 1})", {}, 2, {"1 labels", "2 documents"}},
      {"{\"q\": \"x\", \"d\": [\"y\", \"z\"], \"label\": [1, 0]}\n"
       "{\"q\": \"x\", \"d\": [\"y\"], \"label\": [1, 0]}",
       {},
       1,
       {"train.jsonl:2", "2 labels", "1 documents"}},
      {"{\"q\": \"x\", \"d\": [\"y\", \"z\"], \"label\": [1, 0]}\n"
       "{\"q\": \"x\", \"d\": [], \"label\": []}",
       {},
       1,
       {"train.jsonl:2", "one text"}},
      {R"({"q": "x", "d": "y", "label": 3})",
       {{"loss_type", "BinaryCrossEntropyLoss"}},
       1,
       {"train.jsonl:1", "'label'", "0 to 1"}},
      {R"({"q": "x", "d": "y", "label": 1})", {{"loss_type", "CoSENTLoss"}}, 2, {"CoSENTLoss"}},
      {R"({"q": "x", "d": "y"})",
       {{"loss_type", "MultipleNegativesRankingLoss"}},
       2,
       {"loss_type", "one row"}},
      {"{\"q\": \"x\", \"d\": \"y\"}\n{\"q\": \"z\", \"d\": \"y\"}",
       {{"loss_type", "MultipleNegativesRankingLoss"}},
       2,
       {"train_file", "same document"}},
      {"{\"q\": \"x\", \"d\": \"y\"}\n{\"q\": \"z\", \"d\": \"w\"}",
       {{"loss_type", "MultipleNegativesRankingLoss"}, {"loss_kwargs", "{num_negatives: 0}"}},
       2,
       {"loss_type", "num_negatives"}},
      {R"({"q": "x", "d": ["y", "z"]})",
       {{"loss_type", "MultipleNegativesRankingLoss"}, {"loss_kwargs", "{num_negatives: -1}"}},
       2,
       {"loss_kwargs", "num_negatives"}},
      {R"({"q": "x", "d": "y", "label": 1})", {{"loss_kwargs", "{k: 3}"}}, 2, {"'k'"}}};
  expect_refused<RerankerRun>(refusals);
}

}  // namespace
}  // namespace finetune::testing
