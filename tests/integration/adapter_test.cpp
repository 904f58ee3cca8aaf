// SPDX-License-Identifier: MIT
// A LoRA adapter is trained with the guarantees of a whole model, in a folder without the base.
#include <array>
#include <filesystem>

#include "integration/adapter_run.h"

namespace finetune::testing {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(AdapterRun, EndsInTheSameBitsAfterKillsAtRandomMoments) {
  const TinyRun whole(keys());
  const ProcessResult unbroken = whole.train();
  ASSERT_EQ(unbroken.code, 0) << unbroken.err;
  const TinyRun run(keys());
  EXPECT_GE(kill_at_random_moments(run, unbroken.seconds, 6, 20261125), 1);
  const ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(adapter_of(run) == adapter_of(whole));
  EXPECT_EQ(log_without_times(run.out()), log_without_times(whole.out()));
}

TEST_F(AdapterRun, EndsInTheSameBitsWithEveryPrecisionAndTechnique) {
  for (const TinyRun::Keys& more :
       std::vector<TinyRun::Keys>{{{"bf16", "true"}},
                                  {{"fp16", "true"}},
                                  {{"dtype", "bfloat16"}},
                                  {{"dtype", "float16"}, {"fp16", "true"}},
                                  {{"optim", "adamw_8bit"}, {"gradient_checkpointing", "true"}},
                                  {{"full_determinism", "true"}}}) {
    expect_same_bits_after_a_stop(more);
  }
}

// Splitting and recomputing change no bit of the result; nor does the type that holds the base.
TEST_F(AdapterRun, RecomputationChangesNoBit) {
  const auto trained = [](const TinyRun::Keys& more) {
    TinyRun::Keys all = keys(more);
    all["max_steps"] = "4";
    const TinyRun run(all);
    const ProcessResult result = run.train();
    EXPECT_EQ(result.code, 0) << result.err;
    return adapter_of(run);
  };
  const std::string plain = trained({});
  EXPECT_TRUE(trained({{"gradient_checkpointing", "true"}}) == plain);
  EXPECT_TRUE(
      trained({{"per_device_train_batch_size", "8"}, {"gradient_accumulation_steps", "1"}}) ==
      trained({{"per_device_train_batch_size", "8"},
               {"gradient_accumulation_steps", "1"},
               {"gradient_checkpointing", "true"}}));
}

TEST_F(AdapterRun, SavesTheAdapterAloneAndAnswersWithItsBase) {
  const TinyRun run(keys());
  ASSERT_EQ(run.train().code, 0);
  for (const std::string& folder : {run.out(), run.out("checkpoint-40")}) {
    EXPECT_TRUE(std::filesystem::exists(folder + "/adapter_config.json")) << folder;
    EXPECT_FALSE(std::filesystem::exists(folder + "/config.json")) << folder;
    EXPECT_FALSE(std::filesystem::exists(folder + "/model.safetensors")) << folder;
  }
  // 2 layers with q, k, v, o and gate, up, down, each with rank 4, in float32, and the header.
  const size_t values = 2 * 4 * ((32 + 32) * 2 + (32 + 16) * 2 + (32 + 64) * 3);
  const size_t bytes = adapter_of(run).size();
  EXPECT_GE(bytes, 4 * values);
  EXPECT_LE(bytes, 4 * values + 8192);
  for (const std::string& folder : {run.out(), run.out("checkpoint-40")}) {
    const ProcessResult answer =
        finetune({"predict", folder, "--text", "The lamp", "--max_new_tokens", "4"});
    EXPECT_EQ(answer.code, 0) << answer.err;
    EXPECT_THAT(answer.out, HasSubstr("generated_text"));
  }
  const ProcessResult again = run.train();
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("already finished"));
  const ProcessResult evaluated = finetune({"evaluate", run.config()});
  EXPECT_EQ(evaluated.code, 0) << evaluated.err;
}

// The loss before training.
TEST_F(AdapterRun, LeavesABaseThatIsEvaluatedByItself) {
  const TinyRun run(keys({{"max_steps", "4"}}));
  ASSERT_EQ(run.train().code, 0);
  const auto loss_of = [](const ProcessResult& result) {
    EXPECT_EQ(result.code, 0) << result.err;
    return parse_json(result.out, "").value("eval_loss", 0.0);
  };
  const TinyRun alone(keys({{"use_peft", "false"}}));
  const double expected = loss_of(finetune({"evaluate", alone.config(), "--checkpoint", "base"}));
  EXPECT_GT(expected, 0);
  for (const std::string& name : {std::string("base"), base()}) {
    EXPECT_EQ(loss_of(finetune({"evaluate", run.config(), "--checkpoint", name})), expected);
  }
  EXPECT_NE(loss_of(finetune({"evaluate", run.config()})), expected);
  EXPECT_EQ(loss_of(finetune({"evaluate", run.config(), "--checkpoint", run.out()})),
            loss_of(finetune({"evaluate", run.config()})));
}

// What PEFT's loaders accept without a word, each is an error here.
TEST_F(AdapterRun, RefusesAnotherBaseAMissingOneAndADamagedAdapter) {
  const TemporaryFolder copies;
  const std::string copy = copies / "base";
  std::filesystem::copy(base(), copy, std::filesystem::copy_options::recursive);
  for (const char* name : {"manifest.json", ".finetune.files", "finetune_state.json"}) {
    std::filesystem::remove(copy + "/" + name);
  }
  const TinyRun run(keys({{"model_name_or_path", copy}}));
  run.train_until(9);
  const std::string weights = read_file(copy + "/model.safetensors");
  std::string other = weights;
  other[other.size() - 200] = static_cast<char>(other[other.size() - 200] ^ 1);
  write_file(copy + "/model.safetensors", other);
  ProcessResult refused = run.train();
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("model_name_or_path"), HasSubstr("content hash")));

  std::filesystem::rename(copy, copy + "-away");
  refused = run.train();
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("checkpoints hold the adapter alone"));
  refused = finetune({"predict", run.out("checkpoint-9"), "--text", "The lamp"});
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.err, HasSubstr("it is the base of the adapter"));

  std::filesystem::rename(copy + "-away", copy);
  write_file(copy + "/model.safetensors", weights);
  std::string damaged = read_file(run.out("checkpoint-9/adapter_model.safetensors"));
  damaged[damaged.size() - 100] = static_cast<char>(damaged[damaged.size() - 100] ^ 1);
  write_file(run.out("checkpoint-9/adapter_model.safetensors"), damaged);
  const ProcessResult resumed = run.train();
  EXPECT_EQ(resumed.code, 0) << resumed.err;  // from the checkpoint before
  EXPECT_THAT(resumed.err, AllOf(HasSubstr("checkpoint-9 is not used"), HasSubstr("damaged")));
}

// Of each task; DeBERTa's distances are projected once more, BERT's pooler is not in the base.
TEST_F(AdapterRun, OfEveryTaskEndsInTheSameBitsAfterAStop) {
  for (const auto& [task, data, family] :
       std::vector<std::array<std::string, 3>>{{"sequence_classification", "weather", "roberta"},
                                               {"sequence_classification", "weather", "bert"},
                                               {"sequence_classification", "topics", "deberta-v2"},
                                               {"token_classification", "names", "bert"},
                                               {"multiple_choice", "choices", "roberta"},
                                               {"mlm", "", "roberta"}}) {
    SCOPED_TRACE(task + " " + family);
    TinyRun::Keys all = classifier_keys(task, data, family);
    if (task == "mlm") {
      all["train_file"] = kText + "lighthouse.txt";
      all["validation_file"] = kText + "lighthouse-valid.txt";
    }
    if (task == "multiple_choice") {
      all["context_column"] = "question";
      all["choice_columns"] = "[choice0, choice1, choice2, choice3]";
    }
    const TinyRun whole(all);
    const ProcessResult unbroken = whole.train();
    ASSERT_EQ(unbroken.code, 0) << unbroken.err;
    const TinyRun run(all);
    run.train_until(5);
    const ProcessResult result = run.train();
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(adapter_of(run) == adapter_of(whole));
    EXPECT_EQ(log_without_times(run.out()), log_without_times(whole.out()));
    const ProcessResult evaluated = finetune({"evaluate", run.config()});
    EXPECT_EQ(evaluated.code, 0) << evaluated.err;
    // Another split of the batch: the same dropout, and sums in another order.
    all["per_device_train_batch_size"] = "8";
    all["gradient_accumulation_steps"] = "1";
    const TinyRun split(all);
    ASSERT_EQ(split.train().code, 0);
    const Json log = trainer_state(split.out())["log_history"];
    const Json usual = trainer_state(whole.out())["log_history"];
    ASSERT_EQ(log.size(), usual.size());
    for (size_t i = 0; i < log.size(); ++i) {
      if (!log[i].contains("loss")) continue;
      EXPECT_NEAR(log[i]["loss"].get<double>(), usual[i]["loss"].get<double>(), 2e-4) << i;
    }
  }
}

TEST_F(AdapterRun, OfAClassifierNamesItsLabels) {
  const TinyRun run(classifier_keys("sequence_classification", "weather"));
  const ProcessResult trained = run.train();
  ASSERT_EQ(trained.code, 0) << trained.err;
  for (const std::string& folder : {run.out(), run.out("checkpoint-12")}) {
    EXPECT_FALSE(std::filesystem::exists(folder + "/config.json"));
    const ProcessResult answer =
        finetune({"predict", folder, "--text", "The sea was calm.", "--probabilities", "all"});
    ASSERT_EQ(answer.code, 0) << answer.err;
    EXPECT_THAT(answer.out, AllOf(HasSubstr("\"calm\""), HasSubstr("\"rough\"")));
  }
  const ProcessResult report = finetune({"report", run.out(), "--format", "json"});
  ASSERT_EQ(report.code, 0) << report.err;
  EXPECT_EQ(Json::parse(report.out)["runs"][0]["label_names"],
            Json({{"0", "calm"}, {"1", "rough"}}));
  // As PEFT saves it, without a file of ours: the labels have numbers.
  std::filesystem::remove(run.out("finetune_state.json"));
  std::filesystem::remove(run.out("manifest.json"));
  std::filesystem::remove(run.out(".finetune.files"));
  const ProcessResult numbered = finetune({"predict", run.out(), "--text", "The sea was calm."});
  EXPECT_EQ(numbered.code, 0) << numbered.err;
  EXPECT_THAT(numbered.out, HasSubstr("LABEL_"));
}

// More labels than the base's config.json has, and a word's tags are named.
TEST_F(AdapterRun, OfATaggerHasItsOwnNumberOfLabels) {
  const TinyRun run(classifier_keys("token_classification", "names"));
  const ProcessResult trained = run.train();
  ASSERT_EQ(trained.code, 0) << trained.err;
  const ProcessResult answer = finetune({"predict", run.out(), "--text", "Anna Hale came",
                                         "--ignore_labels", "none", "--probabilities", "all"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.out, AllOf(HasSubstr("B-PER"), HasSubstr("I-SHIP")));
}

TEST_F(AdapterRun, TrainsWhatTheBaseLacksWhole) {
  const TinyRun run(classifier_keys("sequence_classification", "weather", "bert"));
  const ProcessResult trained = run.train();
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("the base lacks bert.pooler.dense: trained whole"));
  const Json config = Json::parse(read_file(run.out("adapter_config.json")));
  EXPECT_EQ(config["modules_to_save"], Json({"classifier", "score", "bert.pooler.dense"}));
}

// DoRA's norms are held during an update, LoRA+ has four groups, biases are among the trained.
TEST_F(AdapterRun, EndsInTheSameBitsWithEveryOption) {
  for (const TinyRun::Keys& more : std::vector<TinyRun::Keys>{
           {{"use_dora", "true"}, {"gradient_accumulation_steps", "2"}},
           {{"use_dora", "true"}, {"bf16", "true"}, {"gradient_checkpointing", "true"}},
           {{"loraplus_lr_ratio", "4"}, {"weight_decay", "0.1"}},
           {{"lora_rank_pattern", "{q_proj: 2}"}, {"lora_layers_to_transform", "[1]"}},
           {{"lora_modules_to_save", "[embed_tokens]"}, {"lora_bias", "all"}},
           {{"lora_target_modules", "[embed_tokens, q_proj]"},
            {"loraplus_lr_ratio", "4"},
            {"loraplus_lr_embedding", "1e-3"},
            {"gradient_accumulation_steps", "2"}},
           {{"lora_target_modules", "[embed_tokens, q_proj]"},
            {"bf16", "true"},
            {"param_dtype", "bfloat16"},
            {"gradient_checkpointing", "true"}}}) {
    expect_same_bits_after_a_stop(more);
  }
}

TEST_F(AdapterRun, GoesOnFromAnAdapterThatItsFileDescribes) {
  const TinyRun first(keys({{"lora_alpha", "8"}, {"use_rslora", "true"}}));
  ASSERT_EQ(first.train().code, 0);
  TinyRun::Keys more = keys({{"adapter_name_or_path", first.out()}, {"eval_on_start", "true"}});
  more.erase("lora_r");
  more.erase("lora_dropout");
  const TinyRun second(more);
  second.train_until(5);
  double end = 0.0;
  const Json rows = trainer_state(first.out())["log_history"];
  for (const Json& row : rows) {
    if (row.contains("eval_loss")) end = row["eval_loss"];
  }
  const Json log = trainer_state(second.out("checkpoint-5"))["log_history"];
  EXPECT_EQ(log[0]["eval_loss"].get<double>(), end);

  // The scale is a part of the model: another one is not resumed.
  const std::string path = first.out("adapter_config.json");
  const std::string written = read_file(path);
  std::string other = written;
  other.replace(other.find("\"lora_alpha\": 8"), 15, "\"lora_alpha\": 9");
  write_file(path, other);
  const ProcessResult refused = second.train();
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("the adapter is not the one"),
                                 HasSubstr("lora_alpha was 8.0 and is now 9.0")));
  write_file(path, written);
  const ProcessResult resumed = second.train();
  EXPECT_EQ(resumed.code, 0) << resumed.err;

  // A second stage with the first one's keys. Other values than the adapter's are an error.
  const Json config = Json::parse(read_file(first.out("adapter_config.json")));
  const auto dry = [&](const TinyRun::Keys& keys_of_adapter) {
    TinyRun::Keys all = more;
    for (const auto& [key, value] : keys_of_adapter) all[key] = value;
    return TinyRun(all).train({"--dry_run"});
  };
  const ProcessResult same = dry({{"lora_r", config["r"].dump()},
                                  {"lora_dropout", config["lora_dropout"].dump()},
                                  {"lora_target_modules", "all-linear"},
                                  {"use_rslora", "true"}});
  EXPECT_EQ(same.code, 0) << same.err;
  const ProcessResult larger = dry({{"lora_r", "3"}});
  EXPECT_EQ(larger.code, 2);
  EXPECT_THAT(larger.err,
              HasSubstr("lora_r: is 3, and " + config["r"].dump() + " in the adapter_config.json"));
  const ProcessResult modules = dry({{"lora_target_modules", "[q_proj]"}});
  EXPECT_EQ(modules.code, 2);
  EXPECT_THAT(modules.err, HasSubstr("lora_target_modules: names other layers than"));
  const ProcessResult none = TinyRun(keys({{"use_peft", "false"}})).train({"--dry_run"});
  EXPECT_EQ(none.code, 0) << none.err;
}

// A resume needs neither the weights nor the configuration of the adapter that it started from.
TEST_F(AdapterRun, ContinuesWithoutTheAdapterThatItStartedFrom) {
  const TinyRun first(keys());
  ASSERT_EQ(first.train().code, 0);
  TinyRun::Keys more = keys({{"adapter_name_or_path", first.out()}});
  more.erase("lora_r");
  more.erase("lora_dropout");
  const TinyRun second(more);
  second.train_until(5);
  fs::rename(first.out(), first.out() + ".gone");
  const ProcessResult resumed = second.train();
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("step 5"));
  const ProcessResult again = second.train();
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("already finished"));
  const ProcessResult fresh = second.train({"--restart"});
  EXPECT_EQ(fresh.code, 2);
  EXPECT_THAT(fresh.err, HasSubstr("adapter_name_or_path"));
}

TEST_F(AdapterRun, RefusesAnAdapterOfAnotherBase) {
  const TinyRun first(keys());
  ASSERT_EQ(first.train().code, 0);
  const std::string other = first.out() + ".base";
  fs::copy(base(), other);
  std::string weights = read_file(other + "/model.safetensors");
  weights[weights.size() - 2] ^= 1;
  write_file(other + "/model.safetensors", weights);
  fs::remove(other + "/manifest.json");
  TinyRun::Keys more = keys({{"adapter_name_or_path", first.out()}, {"model_name_or_path", other}});
  more.erase("lora_r");
  more.erase("lora_dropout");
  const ProcessResult refused = TinyRun(more).train();
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_THAT(refused.err, AllOf(HasSubstr("adapter_name_or_path: '" + first.out()),
                                 HasSubstr("was trained on other weights than those of")));
}

// Of a base on the command line `evaluate` would show the base's loss.
TEST_F(AdapterRun, NamesACommandThatEvaluatesTheAdapter) {
  TinyRun::Keys all = keys();
  all.erase("model_name_or_path");
  const TinyRun run(all);
  const ProcessResult trained = run.train({"--model_name_or_path", base()});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const size_t begin = trained.err.find("  evaluate:");
  ASSERT_NE(begin, std::string::npos) << trained.err;
  const std::string line = trained.err.substr(begin, trained.err.find('\n', begin) - begin);
  EXPECT_THAT(line, Not(HasSubstr("--model_name_or_path")));
  const ProcessResult evaluated = finetune({"evaluate", run.config()});
  EXPECT_EQ(evaluated.code, 0) << evaluated.err;
  EXPECT_THAT(evaluated.err, HasSubstr("evaluating the trained model in"));
}

TEST_F(AdapterRun, NamesTheKeyOfEachMistake) {
  const std::vector<std::pair<TinyRun::Keys, std::string>> mistakes = {
      {{{"lora_target_modules", "[proj]"}},
       "no linear layer or embedding of the model is named 'proj'"},
      {{{"lora_target_modules", "[lm_head]"}}, "lora_modules_to_save: [lm_head]"},
      {{{"lora_r", "1000"}}, "lora_r: rank 1000 is above the size of"},
      {{{"lora_rank_pattern", "{q_proj: 300}"}}, "lora_rank_pattern: rank 300 is above the size"},
      {{{"lora_dropout", "1.0"}}, "lora_dropout"},
      {{{"lora_target_modules", "[embed_tokens]"}, {"use_dora", "true"}},
       "use_dora: is not available for embeddings"},
      {{{"loraplus_lr_embedding", "1e-3"}}, "has no effect without loraplus_lr_ratio"},
      {{{"task", "pretraining"}}, "not available for task pretraining"},
      {{{"use_peft", "false"}, {"dtype", "bfloat16"}}, "are trained it is param_dtype"},
  };
  for (const auto& [more, message] : mistakes) {
    const TinyRun run(keys(more));
    const ProcessResult result = run.train({"--dry_run"});
    EXPECT_EQ(result.code, 2) << message;
    EXPECT_THAT(result.err, HasSubstr(message));
  }
}

}  // namespace
}  // namespace finetune::testing
