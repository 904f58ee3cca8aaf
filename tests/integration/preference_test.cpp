// SPDX-License-Identifier: MIT
// task: dpo and orpo for users. tests/parity compares what is learned.
#include <cstring>
#include <map>
#include <numeric>

#include "finetune/base/hash.h"
#include "integration/answer_run.h"
#include "integration/launched.h"
#include "integration/task_checks.h"
#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PreferenceRun : public AnswerRun {
 public:
  explicit PreferenceRun(const Keys& keys = {}) : AnswerRun(row_of, with_task(keys)) {}

  // From a trained model.
  static Keys trained() {
    static const PreferenceRun start({{"task", "orpo"}, {"eval_strategy", "no"}});
    if (!std::filesystem::exists(start.out("model.safetensors"))) {
      EXPECT_EQ(start.train().code, 0);
    }
    return {{"model_type", ""},
            {"tokenizer_name", ""},
            {"config_overrides", ""},
            {"model_name_or_path", start.out()}};
  }
  // The same with an adapter.
  static Keys adapter() {
    Keys keys = trained();
    keys.insert({{"use_peft", "true"}, {"lora_r", "4"}, {"learning_rate", "1e-2"}});
    return keys;
  }

  [[nodiscard]] std::string reference() const {
    std::string all;
    std::vector<std::string> files;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(folder() / "cache/reference")) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::ranges::sort(files);
    for (const std::string& file : files) all += read_file(file);
    return all;
  }
  void remove_reference() const { std::filesystem::remove_all(folder() / "cache/reference"); }

 private:
  static Json row_of(const Json& line) {
    return {{"prompt", line["question"]},
            {"chosen", " " + line["answer"].get<std::string>()},
            {"rejected", " " + line["wrong"].get<std::string>()}};
  }
  static Keys with_task(Keys keys) {
    keys.insert({{"task", "dpo"}, {"logging_steps", "3"}});
    return keys;
  }
};

const TinyRun::Keys kWithShards = {{"full_determinism", "true"}};

TEST(Preference, EndsAlikeWithAndWithoutInterruptionsAndInProcesses) {
  for (const char* task : {"dpo", "orpo", "kto"}) {
    TinyRun::Keys keys = kWithShards;
    keys["task"] = task;
    const PreferenceRun whole(keys);
    const ProcessResult trained = whole.train();
    ASSERT_EQ(trained.code, 0) << trained.err;
    const PreferenceRun stopped(keys);
    stopped.train_until(4);  // between two lines of the log
    stopped.remove_reference();
    const ProcessResult resumed = stopped.train({"--num_processes", "2"});
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_TRUE(read_file(whole.out("model.safetensors")) ==
                read_file(stopped.out("model.safetensors")))
        << task;
    EXPECT_EQ(log_without_times(whole.out()), log_without_times(stopped.out())) << task;
    const Json log = trainer_state(whole.out())["log_history"];
    for (const char* name :
         {"rewards/chosen", "rewards/rejected", "logps/chosen", "logps/rejected"}) {
      EXPECT_TRUE(log[0].contains(name)) << name;
    }
    const Json results = parse_json(read_file(whole.out("eval_results.json")), "");
    EXPECT_EQ(results.contains("eval_rewards/accuracies"), std::string(task) != "kto");
    EXPECT_EQ(results.contains("eval_kl"), std::string(task) == "kto");
    EXPECT_FALSE(results.contains("eval_perplexity"));
    EXPECT_EQ(results.contains("eval_log_odds_ratio"), std::string(task) == "orpo");
  }
}

// Large enough to be divided, with batches of an evaluation side by side.
TEST(Preference, OfADividedModelIsThatOfAWholeOne) {
  for (const char* task : {"dpo", "kto"}) {
    TinyRun::Keys keys = kWithShards;
    keys["task"] = task;
    keys["max_steps"] = "3";
    keys["eval_steps"] = "3";
    keys["per_device_train_batch_size"] = "2";
    keys["gradient_accumulation_steps"] = "";
    keys["effective_batch_size"] = "8";
    keys["config_overrides"] =
        "{num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 1, hidden_size: 128, "
        "intermediate_size: 256, max_position_embeddings: 64}";
    const PreferenceRun whole(keys);
    const ProcessResult trained = whole.train();
    ASSERT_EQ(trained.code, 0) << trained.err;
    const PreferenceRun divided(keys);
    const ProcessResult result = divided.train({"--num_processes", "2", "--zero_stage", "3"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(read_file(whole.out("model.safetensors")) ==
                read_file(divided.out("model.safetensors")))
        << task;
    EXPECT_EQ(log_without_times(whole.out()), log_without_times(divided.out())) << task;
  }
}

TEST(Preference, LearnsToPreferTheChosenAnswers) {
  TinyRun::Keys keys = PreferenceRun::adapter();
  keys["max_steps"] = "60";
  keys["eval_steps"] = "60";
  keys["metric_for_best_model"] = "rewards/accuracies";
  const PreferenceRun run(keys);
  const ProcessResult trained = run.train();
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Json results = parse_json(read_file(run.out("eval_results.json")), "");
  EXPECT_GT(results["eval_rewards/accuracies"], 0.85);
  EXPECT_GT(results["eval_rewards/margins"], 0.1);
  EXPECT_LT(results["eval_loss"], 0.65);
}

TEST(Preference, ReferenceDependsOnNothingButModelAndPair) {
  const auto reference = [](const TinyRun::Keys& keys, const Environment& environment) {
    TinyRun::Keys all = PreferenceRun::adapter();
    all["max_steps"] = "1";
    for (const auto& [key, value] : keys) all[key] = value;
    const PreferenceRun run(all);
    const ProcessResult result =
        run.train({}, {.environment = environment, .folder = "", .watch = ""});
    EXPECT_EQ(result.code, 0) << result.err;
    return run.reference();
  };
  const std::string first = reference({}, {});
  EXPECT_FALSE(first.empty());
  EXPECT_TRUE(first == reference({{"per_device_train_batch_size", "1"}}, {}));
  EXPECT_TRUE(first == reference({{"per_device_train_batch_size", "8"},
                                  {"gradient_accumulation_steps", "1"}},
                                 {{"OMP_NUM_THREADS", "1"}}));
  EXPECT_TRUE(first == reference({}, {{"OMP_NUM_THREADS", "4"}}));
  EXPECT_TRUE(first == reference({{"num_processes", "2"}}, {}));
  EXPECT_TRUE(first == reference({{"num_processes", "2"}, {"zero_stage", "3"}}, {}));
}

TEST(Preference, ReferenceIsComputedAgainWhereItsFileIsDamaged) {
  const PreferenceRun run(kWithShards);
  run.train_until(4);
  const std::string before = run.reference();
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(run.folder() / "cache/reference")) {
    if (!entry.is_regular_file()) continue;
    std::string bytes = read_file(entry.path());
    bytes[40] = static_cast<char>(bytes[40] ^ 1);
    write_file(entry.path(), bytes);
  }
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the reference in the cache is damaged"));
  EXPECT_TRUE(before == run.reference());
}

// As if a session had ended while it computed the reference.
TEST(Preference, ReferenceGoesOnWhereASessionEnded) {
  const PreferenceRun run(kWithShards);
  run.train_until(4);
  const std::string before = run.reference();
  std::string path;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(run.folder() / "cache/reference")) {
    if (entry.is_regular_file()) path = entry.path();
  }
  constexpr size_t kDone = 16;  // of the file's header
  constexpr size_t kHeader = 24;
  constexpr int64_t kKept = 10;
  std::string bytes = read_file(path);
  bytes.resize(bytes.size() - hash_hex("").size());
  std::memcpy(bytes.data() + kDone, &kKept, sizeof kKept);
  std::fill(bytes.begin() + kHeader + 8 * kKept, bytes.end(), '\0');
  write_file(path, bytes + hash_hex(bytes));
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("of 62 rows of train_file are computed"));
  EXPECT_TRUE(before == run.reference());
}

TEST(Preference, KilledAtAnyMomentItEndsTheSame) {
  TinyRun::Keys keys = PreferenceRun::adapter();
  keys["save_steps"] = "1";
  const PreferenceRun whole(keys);
  ASSERT_EQ(whole.train().code, 0);
  const PreferenceRun killed(keys);
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    killed.remove_reference();
    (void)kill_at_random_moments(killed, 0.3, 3, seed);
  }
  const ProcessResult last = killed.train();
  EXPECT_EQ(last.code, 0) << last.err;
  EXPECT_TRUE(whole.reference() == killed.reference());
  EXPECT_TRUE(read_file(whole.out("adapter_model.safetensors")) ==
              read_file(killed.out("adapter_model.safetensors")));
  EXPECT_EQ(log_without_times(whole.out()), log_without_times(killed.out()));
}

TEST(Preference, RefusesAnotherStartingModel) {
  const TinyRun::Keys keys = PreferenceRun::trained();
  const PreferenceRun run(keys);
  const std::string model = run.folder() / "model";
  std::filesystem::copy(keys.at("model_name_or_path"), model,
                        std::filesystem::copy_options::recursive);
  run.train_until(4);
  const ProcessResult elsewhere = run.train({"--model_name_or_path", model, "--stop_at_step", "6"});
  EXPECT_EQ(elsewhere.code, 75) << elsewhere.err;  // the same weights
  std::string weights = read_file(model + "/model.safetensors");
  weights[weights.size() - 3] = static_cast<char>(weights[weights.size() - 3] ^ 1);
  write_file(model + "/model.safetensors", weights);
  const ProcessResult other = run.train({"--model_name_or_path", model});
  EXPECT_EQ(other.code, 2) << other.err;
  EXPECT_THAT(other.err, HasSubstr("content hash"));
}

TEST(Preference, RefusesAnotherStartingAdapterByNameAndComputesNothing) {
  const PreferenceRun adapter(PreferenceRun::adapter());
  ASSERT_EQ(adapter.train().code, 0);
  TinyRun::Keys keys = PreferenceRun::adapter();
  keys["adapter_name_or_path"] = adapter.out();
  const PreferenceRun run(keys);
  run.train_until(4);
  const std::string other = run.folder() / "other";
  std::filesystem::copy(adapter.out(), other, std::filesystem::copy_options::recursive);
  const std::string same = read_file(other + "/adapter_model.safetensors");
  std::string weights = same;
  weights[weights.size() - 3] = static_cast<char>(weights[weights.size() - 3] ^ 1);
  write_file(other + "/adapter_model.safetensors", weights);
  const ProcessResult result = run.train({"--adapter_name_or_path", other});
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("adapter_name_or_path '" + adapter.out() + "'"));
  EXPECT_THAT(result.err, HasSubstr("adapter_name_or_path '" + other + "' now"));
  EXPECT_THAT(result.err, Not(HasSubstr("are computed, once")));
  write_file(other + "/adapter_model.safetensors", same);
  const ProcessResult taken = run.train({"--adapter_name_or_path", other, "--stop_at_step", "6"});
  EXPECT_EQ(taken.code, 75) << taken.err;
  run.remove_reference();
  const ProcessResult gone = run.train({"--adapter_name_or_path", other + "-gone"});
  EXPECT_EQ(gone.code, 2) << gone.err;
  EXPECT_THAT(gone.err, Not(HasSubstr("are computed, once")));
}

TEST(Preference, ResumesWithoutTheStartingModelWhereTheReferenceIsKept) {
  PreferenceRun run(PreferenceRun::trained());
  const std::string model = run.folder() / "model";
  std::filesystem::copy(PreferenceRun::trained().at("model_name_or_path"), model,
                        std::filesystem::copy_options::recursive);
  run.set({{"model_name_or_path", model}});
  run.train_until(4);
  std::filesystem::rename(model, model + "-elsewhere");
  run.train_until(8);
  run.remove_reference();
  const ProcessResult lost = run.train();
  EXPECT_EQ(lost.code, 2) << lost.err;
  EXPECT_THAT(lost.err, HasSubstr("put the model back"));
  std::filesystem::rename(model + "-elsewhere", model);
  const ProcessResult found = run.train();
  EXPECT_EQ(found.code, 0) << found.err;
  const PreferenceRun whole(PreferenceRun::trained());
  EXPECT_EQ(whole.train().code, 0);
  EXPECT_TRUE(read_file(whole.out("model.safetensors")) == read_file(run.out("model.safetensors")));
}

TEST(Preference, TrainsModulesWholeBesideAnAdapter) {
  TinyRun::Keys keys = PreferenceRun::adapter();
  keys["lora_modules_to_save"] = "[lm_head]";
  const PreferenceRun run(keys);
  const ProcessResult trained = run.train();
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(trainer_state(run.out())["log_history"][0]["step"], 3);
  keys["precompute_ref_log_probs"] = "false";
  const PreferenceRun without(keys);
  const ProcessResult refused = without.train();
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("lora_modules_to_save"));
}

TEST(Preference, EvaluationSaysWhenItMeasuresFromAnotherModel) {
  const PreferenceRun run(PreferenceRun::trained());
  ASSERT_EQ(run.train().code, 0);
  const std::string other = run.folder() / "other";
  std::filesystem::copy(run.out(), other);
  const ProcessResult same = testing::run(finetune_command({"evaluate", run.config()}));
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_EQ(same.err.find("was compared with"), std::string::npos) << same.err;
  PreferenceRun moved(PreferenceRun::trained());
  std::filesystem::remove_all(moved.out());
  std::filesystem::copy(run.out(), moved.out());
  moved.set({{"model_name_or_path", other}});
  const ProcessResult result = testing::run(finetune_command({"evaluate", moved.config()}));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("was compared with model"));
}

// Dropout is a function of a sample's index in the update, whichever micro-batch it is in.
TEST(Preference, DropoutOfKtoDoesNotDependOnTheMicroBatch) {
  const auto losses = [](const char* micro_batch) {
    TinyRun::Keys keys = PreferenceRun::adapter();
    keys.insert({{"task", "kto"},
                 {"disable_dropout", "false"},
                 {"lora_dropout", "0.5"},
                 {"logging_steps", "1"},
                 {"max_steps", "6"},
                 {"eval_strategy", "no"},
                 {"gradient_accumulation_steps", ""},
                 {"effective_batch_size", "8"},
                 {"per_device_train_batch_size", micro_batch}});
    const PreferenceRun run(keys);
    const ProcessResult trained = run.train();
    EXPECT_EQ(trained.code, 0) << trained.err;
    std::vector<double> values;
    const Json state = trainer_state(run.out());
    for (const Json& entry : state["log_history"]) {
      if (entry.contains("loss")) values.push_back(entry["loss"]);
    }
    return values;
  };
  const std::vector<double> whole = losses("8");
  const std::vector<double> cut = losses("2");
  ASSERT_EQ(whole.size(), 6U);
  ASSERT_EQ(cut.size(), 6U);
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(whole[i], cut[i], 1e-5) << i;
}

// With the reference that each update computes, too.
TEST(Preference, KtoComparesWithTheSameReferenceHoweverItIsComputed) {
  const auto log = [](const char* precompute) {
    TinyRun::Keys keys = PreferenceRun::adapter();
    keys.insert({{"task", "kto"}, {"precompute_ref_log_probs", precompute}});
    keys["logging_steps"] = "1";
    const PreferenceRun run(keys);
    const ProcessResult trained = run.train();
    EXPECT_EQ(trained.code, 0) << trained.err;
    EXPECT_EQ(std::filesystem::exists(run.folder() / "cache/reference"),
              std::string(precompute) == "true");
    return trainer_state(run.out())["log_history"];
  };
  const Json before = log("true");
  const Json each = log("false");
  ASSERT_EQ(before.size(), each.size());
  for (size_t i = 0; i < before.size(); ++i) {
    for (const auto& [name, value] : before[i].items()) {
      if (!value.is_number() || name.find("runtime") != std::string::npos ||
          name.find("per_second") != std::string::npos) {
        continue;
      }
      ASSERT_TRUE(each[i].contains(name)) << name;
      // float32 sums of another number of rows.
      EXPECT_NEAR(value.get<double>(), each[i][name].get<double>(), 1e-4) << i << " " << name;
    }
  }
}

// With one answer an update there is only one kind in each.
TEST(Preference, KtoLogsNothingOfAnswersThatAreNotThere) {
  TinyRun::Keys keys = {{"task", "kto"},
                        {"logging_steps", "1"},
                        {"gradient_accumulation_steps", ""},
                        {"per_device_train_batch_size", "1"}};
  const auto log_of = [](const TinyRun::Keys& all) {
    const PreferenceRun run(all);
    const ProcessResult trained = run.train();
    EXPECT_EQ(trained.code, 0) << trained.err;
    return trainer_state(run.out())["log_history"];
  };
  const Json single = log_of(keys);
  keys["logging_steps"] = "6";
  const Json window = log_of(keys);
  std::map<std::string, std::vector<double>> values;
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_NE(single[i].contains("rewards/chosen"), single[i].contains("rewards/rejected")) << i;
    EXPECT_FALSE(single[i].contains("rewards/margins")) << i;
    for (const char* name : {"logps/chosen", "logps/rejected", "rewards/chosen"}) {
      if (single[i].contains(name)) values[name].push_back(single[i][name]);
    }
  }
  for (const auto& [name, each] : values) {
    const double mean =
        std::accumulate(each.begin(), each.end(), 0.0) / static_cast<double>(each.size());
    EXPECT_NEAR(window[0][name].get<double>(), mean, 1e-5) << name;
  }
  EXPECT_NEAR(
      window[0]["rewards/margins"].get<double>(),
      window[0]["rewards/chosen"].get<double>() - window[0]["rewards/rejected"].get<double>(),
      1e-6);
}

// A session that was stopped before its first step leaves its progress alone.
TEST(Preference, StatusKnowsARunThatComputedItsReference) {
  const TemporaryFolder folder;
  folder.write(".finetune.progress.json", R"({"time": 1})");
  const ProcessResult status = testing::run(finetune_command({"status", folder / ""}));
  EXPECT_EQ(status.code, 75) << status.err;
  EXPECT_THAT(status.out, HasSubstr("nothing was saved yet"));
}

TEST(Preference, VerifyResumeFindsEqualBits) {
  const PreferenceRun run;
  expect_equal_bits_by_verify_resume(run);
}

TEST(Preference, RefusesRowsAndKeysThatDoNotFit) {
  const char* const kRow = R"({"prompt": "a", "chosen": " b", "rejected": " c"})";
  const std::vector<Refusal> refusals = {
      {R"({"prompt": "x", "completion": "y", "label": true})", {}, 2, {"task kto"}},
      {R"({"prompt": "x", "completion": "y"})", {{"task", "kto"}}, 1, {"'label'"}},
      {R"({"prompt": "x", "completion": "y", "label": "good"})", {{"task", "kto"}}, 1, {"'label'"}},
      {R"({"text": "x", "label": true})", {{"task", "kto"}}, 1, {"'completion'"}},
      {R"({"prompt": "x", "completion": "y", "label": true})",
       {{"task", "kto"}, {"loss_type", "sigmoid"}},
       2,
       {"apo_zero_unpaired"}},
      {R"({"chosen": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}], )"
       R"("rejected": [{"role": "user", "content": "z"}, {"role": "assistant", "content": "y"}]})",
       {{"task", "kto"}},
       1,
       {"train.jsonl:1", "begin with different messages"}},
      {R"({"prompt": "x", "completion": "y", "label": true})",
       {{"task", "kto"}, {"precompute_ref_log_probs", "false"}},
       2,
       {"precompute_ref_log_probs", "use_peft"}},
      {R"({"chosen": 3, "rejected": "y"})", {}, 1, {"train.jsonl:1", "'chosen'"}},
      {R"({"prompt": "a", "chosen": " b", "rejected": " b"})", {}, 2, {"the answers are the same"}},
      {R"({"chosen": [{"role": "user", "content": "x"}], "rejected": "y"})",
       {},
       1,
       {"train.jsonl:1"}},
      {R"({"prompt": "a", "chosen": [{"role": "assistant", "content": null}], "rejected": "b"})",
       {},
       2,
       {"without an answer"}},
      {R"({"prompt": "aaaaaaaa", "chosen": " bbbbbbbbbb c", "rejected": " bbbbbbbbbb d"})",
       {{"max_seq_length", "12"}},
       2,
       {"the answers are the same"}},
      {kRow, {{"beta", "0"}}, 2, {"beta"}},
      {kRow, {{"loss_type", "CoSENTLoss"}}, 2, {"sigmoid_norm"}},
      {kRow, {{"label_smoothing", "0.1"}}, 2, {"robust"}},
      {kRow, {{"label_smoothing", "0.6"}, {"loss_type", "robust"}}, 2, {"label_smoothing"}},
      {kRow, {{"precompute_ref_log_probs", "false"}}, 2, {"use_peft: true"}},
      {kRow, {{"packing", "true"}}, 2, {"packing"}},
      {kRow, {{"streaming", "true"}}, 2, {"streaming"}},
      {kRow, {{"task", "orpo"}, {"loss_type", "sigmoid"}}, 2, {"loss_type"}},
      {kRow,
       {{"model_type", "roberta"}, {"config_overrides", "{num_hidden_layers: 1}"}},
       2,
       {"trains decoders"}},
  };
  expect_refused<PreferenceRun>(refusals);
}

TEST(Preference, NamesThePairWhoseLossIsNotFinite) {
  const PreferenceRun run(PreferenceRun::adapter());
  const ProcessResult result = run.train({"--beta", "1e39"});
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("the loss of pair"));
}

}  // namespace
}  // namespace finetune::testing
