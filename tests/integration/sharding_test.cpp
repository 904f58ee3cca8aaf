// SPDX-License-Identifier: MIT
// zero_stage 2 and 3: gradients and weights divided among processes, with the bits and the files of
// one process.
#include <signal.h>

#include <filesystem>

#include "integration/launched.h"
#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Large enough that layers and the vocabulary are divided; an update has 4 micro-batches, the last
// one of an epoch fewer.
class ShardedRun : public TinyRun {
 public:
  explicit ShardedRun(const Keys& keys = {}) {
    Keys all = {{"config_overrides",
                 "{num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 128, "
                 "intermediate_size: 256, max_position_embeddings: 34, type_vocab_size: 1}"},
                {"full_determinism", "true"},
                {"per_device_train_batch_size", "2"},
                {"effective_batch_size", "8"},
                {"gradient_accumulation_steps", ""},
                {"max_steps", "8"},
                {"eval_steps", "4"},
                {"save_steps", "4"},
                {"num_train_epochs", "9"},
                {"max_train_samples", "43"},
                {"dataloader_num_workers", "0"}};
    for (const auto& [key, value] : keys) all[key] = value;
    set(all);
  }

  ProcessResult train_in(int processes, int stage, const Arguments& more = {},
                         const ProcessOptions& options = {}) const {
    Arguments words = {"--num_processes", std::to_string(processes), "--zero_stage",
                       std::to_string(stage)};
    words.insert(words.end(), more.begin(), more.end());
    return train(words, options);
  }

  // Model, states and log of the finished run.
  [[nodiscard]] std::string bits() const {
    std::string text;
    for (const char* name : {"model.safetensors", "adapter_model.safetensors",
                             "checkpoint-8/optimizer.pt", "checkpoint-8/optimizer.safetensors"}) {
      if (std::filesystem::exists(out(name))) text += name + read_file(out(name));
    }
    Json log = log_without_times(out());
    for (Json& entry : log) entry.erase("epoch");
    return text + log.dump();
  }
};

std::string bits_in(int processes, int stage, const TinyRun::Keys& keys) {
  const ShardedRun run(keys);
  const ProcessResult result = run.train_in(processes, stage);
  EXPECT_EQ(result.code, 0) << result.err;
  return result.code == 0 ? run.bits() : "";
}

TEST(Sharding, GivesTheBitsOfOneProcessForAnyNumberAndStage) {
  const std::string alone = bits_in(1, 0, {});
  ASSERT_FALSE(alone.empty());
  EXPECT_TRUE(bits_in(2, 2, {}) == alone);
  EXPECT_TRUE(bits_in(2, 3, {}) == alone);
  EXPECT_TRUE(bits_in(4, 3, {}) == alone);
}

// Which token of a row asks which expert is not known before.
TEST(Sharding, OfExpertsWhoseLastLayerReadsOneTokenOfEachRow) {
  const std::string rows = source_dir() + "/tests/fixtures/tasks/weather-train.jsonl";
  const TinyRun::Keys keys = {
      {"task", "sequence_classification"},
      {"model_type", "qwen3_moe"},
      {"train_file", rows},
      {"validation_file", rows},
      {"max_train_samples", "24"},
      {"max_eval_samples", "8"},
      {"mlm_probability", ""},
      {"line_by_line", ""},
      {"config_overrides",
       "{num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 1, head_dim: 64, "
       "hidden_size: 128, intermediate_size: 256, moe_intermediate_size: 512, num_experts: 8, "
       "num_experts_per_tok: 2, max_position_embeddings: 64}"}};
  const std::string alone = bits_in(1, 0, keys);
  ASSERT_FALSE(alone.empty());
  EXPECT_TRUE(bits_in(2, 3, keys) == alone);
}

TEST(Sharding, GivesTheBitsOfOneProcessInNarrowFormats) {
  const std::vector<TinyRun::Keys> formats = {
      {{"param_dtype", "bfloat16"}, {"bf16", "true"}, {"optim", "adamw_8bit"}},
      {{"param_dtype", "bfloat16+int8"},
       {"optim", "adamw_companded_8bit"},
       {"gradient_checkpointing", "true"}},
      {{"optim", "sgd"}, {"fp16", "true"}, {"max_grad_norm", "0.01"}}};
  for (const TinyRun::Keys& keys : formats) {
    const std::string alone = bits_in(1, 0, keys);
    ASSERT_FALSE(alone.empty());
    EXPECT_TRUE(bits_in(2, 3, keys) == alone) << keys.at("optim");
  }
}

TEST(Sharding, ResumesWithAnotherNumberAndStage) {
  const std::string alone = bits_in(1, 0, {});
  const ShardedRun run;
  struct Session {
    int processes, stage, until;
  };
  for (const Session& session : {Session{2, 3, 2}, {4, 3, 3}, {1, 0, 5}, {2, 2, 6}}) {
    const ProcessResult result = run.train_in(session.processes, session.stage,
                                              {"--stop_at_step", std::to_string(session.until)});
    ASSERT_EQ(result.code, 75) << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("not bit-exact")));
  }
  const ProcessResult result = run.train_in(4, 3);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(run.bits() == alone);
}

// Without full_determinism a resumed run has the bits of an unbroken one with the same processes.
TEST(Sharding, ResumesWithEqualBitsWithoutFullDeterminism) {
  const TinyRun::Keys keys = {{"full_determinism", "false"}, {"ddp_comm_hook", "bf16"}};
  const std::string unbroken = bits_in(2, 3, keys);
  const ShardedRun run(keys);
  ASSERT_EQ(run.train_in(2, 3, {"--stop_at_step", "5"}).code, 75);
  ASSERT_EQ(run.train_in(2, 3).code, 0);
  EXPECT_TRUE(run.bits() == unbroken);
}

TEST(Sharding, SumsGradientsInBfloat16) {
  const TinyRun::Keys wide = {{"full_determinism", "false"}, {"max_steps", "16"}};
  TinyRun::Keys narrow = wide;
  narrow["grad_accum_dtype"] = "bfloat16";
  const auto last_loss = [](const ShardedRun& run) {
    const Json log = log_without_times(run.out());
    double loss = 0.0;
    for (const Json& entry : log) {
      if (entry.contains("eval_loss")) loss = entry["eval_loss"].get<double>();
    }
    return loss;
  };
  const ShardedRun expected(wide);
  ASSERT_EQ(expected.train_in(2, 3).code, 0);
  const ShardedRun unbroken(narrow);
  ASSERT_EQ(unbroken.train_in(2, 3).code, 0);
  EXPECT_NEAR(last_loss(unbroken), last_loss(expected), 0.02);
  const ShardedRun resumed(narrow);
  ASSERT_EQ(resumed.train_in(2, 3, {"--stop_at_step", "7"}).code, 75);
  ASSERT_EQ(resumed.train_in(2, 3).code, 0);
  EXPECT_TRUE(resumed.bits() == unbroken.bits());
}

TEST(Sharding, KeepsTheBestModel) {
  const TinyRun::Keys keys = {{"load_best_model_at_end", "true"},
                              {"metric_for_best_model", "eval_loss"},
                              {"learning_rate", "0.3"},
                              {"eval_steps", "2"},
                              {"save_steps", "2"},
                              {"max_grad_norm", "0"}};
  EXPECT_TRUE(bits_in(2, 3, keys) == bits_in(1, 0, keys));
}

// Of the second update rank 0 has long lines and rank 1 short ones.
TEST(Sharding, SplitsSmallerOnAllRanksAfterOneIsOutOfMemory) {
  ShardedRun run(TinyRun::Keys{{"full_determinism", "false"},
                               {"per_device_train_batch_size", "48"},
                               {"effective_batch_size", "96"},
                               {"max_train_samples", ""},
                               {"line_by_line", "true"},
                               {"train_sampling_strategy", "sequential"}});
  std::string text;
  for (int i = 0; i < 384; ++i) {
    text += i >= 96 && i < 144 ? "the light of the tower and the keeper of the light by the sea\n"
                               : "a light\n";
  }
  const std::string path = run.folder() / "lines.txt";
  write_file(path, text);
  run.set({{"train_file", path}, {"validation_file", path}, {"max_eval_samples", "16"}});
  ProcessOptions options;
  options.environment = {{"FINETUNE_TEST_ALLOCATION_LIMIT", "800000"}};
  const ProcessResult rescued = run.train_in(2, 3, {}, options);
  ASSERT_EQ(rescued.code, 0) << rescued.err;
  ASSERT_THAT(rescued.err, HasSubstr("step 2: out of memory"));
  EXPECT_THAT(rescued.err, HasSubstr("24 x 2 samples instead of 48"));
  const std::string bits = run.bits();
  std::filesystem::remove_all(run.out());
  ASSERT_EQ(run.train_in(2, 3, {"--stop_at_step", "1"}).code, 75);
  const ProcessResult result = run.train_in(2, 3, {"--per_device_train_batch_size", "24"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(run.bits() == bits);
}

TEST(Sharding, RollsBackWhereAStateIsNoNumber) {
  const ShardedRun run(TinyRun::Keys{{"divergence_policy", "rollback"}});
  ProcessOptions options;
  options.environment = {{"FINETUNE_TEST_POISON", "moment@6"}};
  const ProcessResult end = run.train_in(2, 3, {}, options);
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("contains NaN or Inf"));
}

TEST(Sharding, IsLeftWithinSecondsWhereARankIsKilledAndResumes) {
  const std::string alone = bits_in(1, 0, {});
  for (const size_t rank : {0U, 1U}) {
    const ShardedRun run;
    ProcessOptions options;
    options.watch = run.out();
    Process process(run.command({"--num_processes", "2", "--zero_stage", "3"}), options);
    ASSERT_TRUE(process.wait_for_file("checkpoint-4"));
    ::kill(children_of(process.id()).at(rank), SIGKILL);
    const ProcessResult end = process.finish();
    EXPECT_EQ(end.code, 75) << end.err;
    const ProcessResult result = run.train_in(2, 3);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(run.bits() == alone);
  }
}

TEST(Sharding, StopsAtOneStepWhereASignalReachesOneRank) {
  const std::string alone = bits_in(1, 0, {});
  const ShardedRun run;
  ProcessOptions options;
  options.watch = run.out();
  Process process(run.command({"--num_processes", "2", "--zero_stage", "3"}), options);
  ASSERT_TRUE(process.wait_for_file("checkpoint-4"));
  ::kill(children_of(process.id()).at(1), SIGTERM);
  const ProcessResult end = process.finish();
  EXPECT_EQ(end.code, 75) << end.err;
  EXPECT_THAT(end.err, HasSubstr("with everything saved"));
  ASSERT_EQ(run.train_in(4, 3).code, 0);
  EXPECT_TRUE(run.bits() == alone);
}

TEST(Sharding, EvaluatesAModelThatNoRankHas) {
  const ShardedRun trained;
  ASSERT_EQ(trained.train().code, 0);
  const auto evaluated = [&](int processes, int stage) {
    const ShardedRun run({{"model_name_or_path", trained.out()},
                          {"model_type", ""},
                          {"tokenizer_name", ""},
                          {"config_overrides", ""},
                          {"effective_batch_size", ""},
                          {"do_train", "false"},
                          {"do_eval", "true"}});
    const ProcessResult result = run.train_in(processes, stage);
    EXPECT_EQ(result.code, 0) << result.err;
    return parse_json(read_file(run.out("eval_results.json")), "")["eval_loss"].dump();
  };
  const std::string alone = evaluated(1, 0);
  EXPECT_EQ(evaluated(2, 3), alone);
  EXPECT_EQ(evaluated(3, 3), alone);
}

TEST(Sharding, NamesOptimizersThatNeedWholeMatrices) {
  const ShardedRun run(TinyRun::Keys{{"optim", "adafactor"}});
  const ProcessResult result = run.train_in(2, 3);
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("adafactor"));
  EXPECT_THAT(result.err, HasSubstr("zero_stage"));
}

}  // namespace
}  // namespace finetune::testing
