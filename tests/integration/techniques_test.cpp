// SPDX-License-Identifier: MIT
// Every technique that saves memory, alone and with every other: a resumed run ends with the bits
// of an uninterrupted one, or the combination is refused.
#include "integration/technique_rows.h"

namespace finetune::testing {
namespace {

struct Technique {
  const char* name;
  TinyRun::Keys keys;
};

const std::vector<Technique> kTechniques = {
    {"accumulation", {{"gradient_accumulation_steps", "2"}, {"per_device_train_batch_size", "4"}}},
    {"checkpointing", recomputation("{every_n_layers: 1}")},
    {"every_two_layers", recomputation("{every_n_layers: 2}")},
    {"offload", recomputation("{offload: true}")},
    {"selective", recomputation("{selective: true}")},
    {"fp16", {{"fp16", "true"}}},
    {"bf16", {{"bf16", "true"}}},
    {"adamw_8bit", {{"optim", "adamw_8bit"}}},
    {"adamw_companded_8bit", {{"optim", "adamw_companded_8bit"}}},
    {"adafactor", {{"optim", "adafactor"}}},
    {"sgd", {{"optim", "sgd"}, {"optim_args", "momentum=0.9"}}},
    {"in_backward", {{"optimizer_in_backward", "true"}, {"max_grad_norm", "0"}}},
    {"bfloat16_weights", {{"param_dtype", "bfloat16"}}},
    {"split_weights", {{"param_dtype", "bfloat16+int8"}}},
    {"bfloat16_gradients", {{"grad_accum_dtype", "bfloat16"}}},
};

class TechniquePairs : public ::testing::TestWithParam<TechniqueRow> {};
INSTANTIATE_TEST_SUITE_P(All, TechniquePairs, ::testing::ValuesIn(covering_rows()),
                         [](const auto& row) { return technique_name(row.param); });

TEST_P(TechniquePairs, ResumeInTheSameBits) {
  const TinyRun run(technique_keys(GetParam()));
  const ProcessResult whole = run.train();
  ASSERT_EQ(whole.code, 0) << whole.err;
  const auto expected = saved_tensors(run.out("checkpoint-4"));
  const std::string exported = read_file(run.out("model.safetensors"));
  const Json log = log_without_times(run.out());
  ASSERT_TRUE(expected.contains("model.safetensors"));
  ASSERT_NE(expected.at("model.safetensors"), read_file(run.out("checkpoint-2/model.safetensors")));

  keep_only_checkpoint(run, 2);
  const ProcessResult resumed = run.train();
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, ::testing::HasSubstr("checkpoint-2"));
  const auto actual = saved_tensors(run.out("checkpoint-4"));
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, content] : expected) {
    EXPECT_TRUE(actual.at(name) == content) << name << " has other bits";
  }
  EXPECT_TRUE(read_file(run.out("model.safetensors")) == exported);
  EXPECT_EQ(log_without_times(run.out()), log);
}

TEST(Techniques, ThatExcludeEachOtherAreRefused) {
  const TinyRun::Keys in_backward = {{"optimizer_in_backward", "true"}, {"max_grad_norm", "0"}};
  for (const TinyRun::Keys& other :
       {TinyRun::Keys{{"gradient_accumulation_steps", "2"}}, TinyRun::Keys{{"fp16", "true"}}}) {
    TinyRun run(kTechniqueBase);
    run.set(in_backward);
    run.set(other);
    const ProcessResult result = run.train();
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err, ::testing::HasSubstr("excludes"));
  }
  TinyRun run(kTechniqueBase);
  run.set({{"fp16", "true"}, {"bf16", "true"}});
  EXPECT_EQ(run.train().code, 2);
}

// With NaN in all memory that is allocated or freed: nothing reads what was never written or what
// its owner has consumed.
TEST(Techniques, ReadNoMemoryThatIsNotTheirs) {
  const TinyRun::Keys llama = {
      {"task", "clm"},
      {"model_type", "llama"},
      {"config_overrides",
       "{num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, hidden_size: 32, "
       "intermediate_size: 64, max_position_embeddings: 64}"}};
  const TinyRun::Keys deberta = {
      {"model_type", "deberta-v2"},
      {"config_overrides",
       "{num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 32, intermediate_size: 64, "
       "max_position_embeddings: 64, relative_attention: true, pos_att_type: [c2p, p2c]}"}};
  std::vector<Technique> all = kTechniques;
  all.push_back({"llama", llama});
  all.push_back({"deberta", deberta});
  for (const Technique& technique : all) {
    TinyRun run(kTechniqueBase);
    run.set({{"save_steps", "4"}});
    run.set(technique.keys);
    std::vector<std::map<std::string, std::string>> files;
    for (const char* poison : {"0", "1"}) {
      std::filesystem::remove_all(run.out());
      ProcessOptions options;
      options.environment["FINETUNE_TEST_POISON_MEMORY"] = poison;
      const ProcessResult result = run.train({}, options);
      ASSERT_EQ(result.code, 0) << technique.name << ": " << result.err;
      files.push_back(saved_tensors(run.out("checkpoint-4")));
    }
    EXPECT_TRUE(files[0] == files[1]) << technique.name;
  }
}

// Splitting, recomputing and offloading change no bit of the result.
TEST(Techniques, RecomputationChangesNoBit) {
  const auto trained = [](const TinyRun::Keys& keys) {
    TinyRun run(kTechniqueBase);
    run.set(keys);
    const ProcessResult result = run.train();
    EXPECT_EQ(result.code, 0) << result.err;
    return read_file(run.out("model.safetensors"));
  };
  const std::string plain = trained({});
  for (const size_t position : {1, 2, 3, 4}) {
    EXPECT_TRUE(trained(kTechniques[position].keys) == plain) << kTechniques[position].name;
  }
}

// A checkpoint fixes the batch, so fewer rows at a time require accumulation.
TEST(UpdateInBackward, RefusesTheAccumulationThatAResumeWouldNeed) {
  TinyRun run(kTechniqueBase);
  run.set({{"optimizer_in_backward", "true"}, {"max_grad_norm", "0"}});
  run.train_until(2);
  const ProcessResult resumed = run.train({"--per_device_train_batch_size", "2"});
  EXPECT_EQ(resumed.code, 2);
  EXPECT_THAT(resumed.err, ::testing::HasSubstr("optimizer_in_backward"));
  EXPECT_THAT(resumed.err, ::testing::HasSubstr("per_device_train_batch_size to 8"));
}

// Loss and gradient of the head are finite in float32; gradients after its large weights are not.
TEST(UpdateInBackward, SavesNothingWhereAnUpdateWasHalfApplied) {
  TinyRun run(kTechniqueBase);
  std::string rows = "text,label\n";
  for (int i = 0; i < 24; ++i) rows += "the light of tower " + std::to_string(i) + ",1.5e18\n";
  write_file(run.folder() / "rows.csv", rows);
  run.set({{"task", "sequence_classification"},
           {"problem_type", "regression"},
           {"train_file", run.folder() / "rows.csv"},
           {"config_overrides",
            "{num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 32, intermediate_size: "
            "64, max_position_embeddings: 34, type_vocab_size: 1, initializer_range: 0.5}"},
           {"per_device_train_batch_size", "1"},
           {"optimizer_in_backward", "true"},
           {"max_grad_norm", "0"}});
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.err, ::testing::HasSubstr("some weights were updated in the backward pass"));
  EXPECT_FALSE(std::filesystem::exists(run.out("checkpoint-0")));
}

TEST(SplitWeights, AreWrittenWholeWhereTheOptimizerIsNot) {
  TinyRun run(kTechniqueBase);
  run.set({{"param_dtype", "bfloat16+int8"}, {"save_only_model", "true"}});
  const ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(read_file(run.out("checkpoint-4/model.safetensors")) ==
              read_file(run.out("model.safetensors")));
}

TEST(SplitWeights, AreEvaluatedWholeFromACheckpoint) {
  TinyRun run(kTechniqueBase);
  run.set({{"param_dtype", "bfloat16+int8"},
           {"validation_file", kText + "lighthouse-valid.txt"},
           {"eval_strategy", "steps"},
           {"eval_steps", "4"}});
  ASSERT_EQ(run.train().code, 0);
  double logged = 0.0;
  for (const Json& entry : log_without_times(run.out())) {
    if (entry.contains("eval_loss")) logged = entry["eval_loss"].get<double>();
  }
  const ProcessResult result = finetune({"evaluate", run.config(), "--checkpoint", "auto"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(parse_json(result.out, "output", ErrorKind::kData)["eval_loss"].get<double>(), logged);
}

TEST(BFloat16Weights, AreNamedInTheModelsConfiguration) {
  TinyRun run(kTechniqueBase);
  const auto dtype = [&](const std::string& folder) {
    const std::string path = run.out(folder + "config.json");
    return parse_json(read_file(path), path, ErrorKind::kData)["dtype"].get<std::string>();
  };
  run.set({{"param_dtype", "bfloat16"}});
  ASSERT_EQ(run.train().code, 0);
  EXPECT_EQ(dtype(""), "bfloat16");
  run.set({{"param_dtype", "bfloat16+int8"}});
  ASSERT_EQ(run.train({"--restart"}).code, 0);
  EXPECT_EQ(dtype(""), "float32");
  EXPECT_EQ(dtype("checkpoint-4/"), "bfloat16");
}

// AdamW would not notice: its updates do not depend on the gradients' scale.
TEST(Float16, UpdatesAreNotScaledByTheLossScale) {
  const auto losses = [](const std::string& fp16) {
    TinyRun run(kTechniqueBase);
    run.set({{"fp16", fp16}, {"optim", "sgd"}, {"learning_rate", "0.1"}, {"logging_steps", "1"}});
    const ProcessResult result = run.train();
    EXPECT_EQ(result.code, 0) << result.err;
    std::vector<double> found;
    for (const Json& entry : log_without_times(run.out())) {
      if (entry.contains("loss")) found.push_back(entry["loss"]);
    }
    return found;
  };
  const std::vector<double> half = losses("true");
  const std::vector<double> full = losses("false");
  ASSERT_EQ(half.size(), full.size());
  ASSERT_GE(half.size(), 4U);
  EXPECT_LT(full.back(), full.front() - 0.01);
  for (size_t i = 0; i < half.size(); ++i) EXPECT_NEAR(half[i], full[i], 0.01) << i;
}

TEST(Float16, StopsWhereTheLossIsNone) {
  TinyRun run(kTechniqueBase);
  run.set({{"fp16", "true"}, {"learning_rate", "1000000.0"}, {"max_grad_norm", "0"}});
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.err, ::testing::HasSubstr("the update was not applied"));
}

// One label of 1e9 among small ones: its gradient exceeds float16 with any loss scale.
class Overflow : public ::testing::Test {
 protected:
  Overflow() {
    std::string rows = "text,label\n";
    for (int i = 0; i < 24; ++i) {
      rows += "the light of tower " + std::to_string(i) + "," + (i == 5 ? "1e9" : "0.5") + "\n";
    }
    write_file(run_.folder() / "rows.csv", rows);
    run_.set(kTechniqueBase);
    run_.set({{"task", "sequence_classification"},
              {"problem_type", "regression"},
              {"train_file", run_.folder() / "rows.csv"},
              {"fp16", "true"},
              {"max_steps", "6"},
              {"save_steps", "1"}});
  }

  [[nodiscard]] std::string saved(int step, const std::string& file) const {
    return read_file(run_.out("checkpoint-" + std::to_string(step) + "/" + file));
  }

  TinyRun run_;
};

TEST_F(Overflow, LeavesTheUpdateOutHalvesTheScaleAndBothSurviveAResume) {
  const ProcessResult whole = run_.train();
  ASSERT_EQ(whole.code, 0) << whole.err;
  int step = 1;
  while (step < 6 && whole.err.find("step " + std::to_string(step) +
                                    ": float16 overflowed, no "
                                    "update; the loss scale is now 32768") == std::string::npos) {
    ++step;
  }
  ASSERT_LT(step, 6) << whole.err;
  ASSERT_GT(step, 1) << "the seed puts the row into the first batch: choose another row";
  EXPECT_TRUE(saved(step, "model.safetensors") == saved(step - 1, "model.safetensors"));
  EXPECT_TRUE(saved(step, "optimizer.pt") == saved(step - 1, "optimizer.pt"));
  EXPECT_FALSE(saved(step, "scaler.pt") == saved(step - 1, "scaler.pt"));
  EXPECT_FALSE(saved(step + 1, "model.safetensors") == saved(step, "model.safetensors"));

  const auto expected = saved_tensors(run_.out("checkpoint-6"));
  for (int later = step + 1; later <= 6; ++later) {
    std::filesystem::remove_all(run_.out("checkpoint-" + std::to_string(later)));
  }
  std::filesystem::remove(run_.out("model.safetensors"));
  std::filesystem::remove(run_.out("finetune_state.json"));
  const ProcessResult resumed = run_.train();
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(resumed.err.find("the loss scale is now 32768"), std::string::npos);
  EXPECT_EQ(saved_tensors(run_.out("checkpoint-6")), expected);
}

}  // namespace
}  // namespace finetune::testing
