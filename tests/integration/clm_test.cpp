// SPDX-License-Identifier: MIT
// Causal language models give the guarantees of encoders: however a run is split and stopped, it
// ends with the same bits.
#include <filesystem>

#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Keys of a tiny Llama on blocks of text; every key can be overridden.
TinyRun::Keys causal(const TinyRun::Keys& more = {}) {
  TinyRun::Keys keys = {
      {"task", "clm"},
      {"model_type", "llama"},
      {"config_overrides",
       "{num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, hidden_size: 32, "
       "intermediate_size: 64, max_position_embeddings: 64}"}};
  for (const auto& [key, value] : more) keys[key] = value;
  return keys;
}

TinyRun::Keys packed(const TinyRun::Keys& more = {}) {
  TinyRun::Keys keys = causal({{"line_by_line", "true"}, {"packing", "true"}});
  for (const auto& [key, value] : more) keys[key] = value;
  return keys;
}

TEST(CausalLm, EndsInTheSameBitsAfterKillsAtRandomMoments) {
  const TinyRun whole(packed());
  const ProcessResult unbroken = whole.train();
  ASSERT_EQ(unbroken.code, 0) << unbroken.err;
  const TinyRun run(packed());
  EXPECT_GE(kill_at_random_moments(run, unbroken.seconds, 8, 20261123), 1);
  const ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  expect_equal(outcome_of(run), outcome_of(whole));
}

TEST(CausalLm, EndsInTheSameBitsWithEveryPrecisionAndTechnique) {
  const std::vector<std::pair<std::string, TinyRun::Keys>> variants = {
      {"blocks", causal()},
      {"bf16", causal({{"bf16", "true"}})},
      {"fp16", packed({{"fp16", "true"}})},
      {"checkpointing", causal({{"gradient_checkpointing", "true"}})},
      {"bfloat16 weights, 8-bit states",
       packed({{"optim", "adamw_8bit"}, {"param_dtype", "bfloat16"}})}};
  for (const auto& [name, keys] : variants) {
    SCOPED_TRACE(name);
    expect_equal(stopped_at(keys, 17), uninterrupted(keys));
  }
}

TEST(CausalLm, EndsInTheSameBitsWhereTheBatchIsCutOtherwise) {
  const TinyRun::Keys keys = packed({{"full_determinism", "true"},
                                     {"per_device_train_batch_size", "2"},
                                     {"gradient_accumulation_steps", "4"}});
  TinyRun run(keys);
  run.train_until(11);
  run.set({{"num_processes", "2"}, {"gradient_accumulation_steps", "2"}});
  run.train_until(23);
  run.set({{"num_processes", "4"}, {"gradient_accumulation_steps", "1"}});
  const ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  const Outcome cut = outcome_of(run);
  const Outcome whole = uninterrupted(keys);
  EXPECT_TRUE(cut.model == whole.model) << "other weights";
  EXPECT_TRUE(cut.optimizer == whole.optimizer) << "another optimizer state";
}

TEST(CausalLm, EndsInTheSameBitsFromAStreamAndFromAMixture) {
  const TinyRun::Keys stream =
      causal({{"streaming", "true"}, {"shuffle_buffer_size", "32"}, {"max_train_samples", "150"}});
  expect_equal(stopped_at(stream, 17), uninterrupted(stream));
  const TinyRun::Keys mixture =
      causal({{"train_file", "[{path: " + kText + "lighthouse.txt, weight: 0.5}, " + kText +
                                 "lighthouse-valid.txt]"}});
  expect_equal(stopped_at(mixture, 17), uninterrupted(mixture));
}

TEST(CausalLm, IsVerifiedPlannedAndTriedDry) {
  const TinyRun run(causal());
  const ProcessResult verified =
      finetune({"verify-resume", run.config(), "--steps", "8", "--interrupt_at", "3"});
  EXPECT_EQ(verified.code, 0) << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("equal: 8 steps, interrupted at step 3"));
  const ProcessResult plan = finetune({"plan", run.config()});
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("weights"));
  const ProcessResult dry = run.train({"--dry_run"});
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_THAT(dry.out, AllOf(HasSubstr(" then "), HasSubstr("124 targets")));
}

double measured_peak(int64_t tokens) {
  const TinyRun run(causal({{"max_seq_length", std::to_string(tokens)},
                            {"config_overrides",
                             "{num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 64, "
                             "num_key_value_heads: 1, intermediate_size: 192, "
                             "max_position_embeddings: 65536}"},
                            {"per_device_train_batch_size", "1"},
                            {"gradient_accumulation_steps", "1"},
                            {"eval_strategy", "\"no\""},
                            {"eval_steps", ""},
                            {"dataloader_num_workers", "0"}}));
  const ProcessResult result = finetune({"plan", run.config(), "--measure", "1", "--json"});
  EXPECT_EQ(result.code, 0) << result.err;
  return parse_json(result.out, "plan").at("measured_peak").get<double>();
}

// scripts/bench/long_context.py does the same up to 32,768 tokens. With a score for each pair of
// tokens, twice the tokens would take four times the memory.
TEST(CausalLm, TakesMemoryAtMostLinearInTheSequenceLength) {
  const double few = measured_peak(4096);
  const double more = measured_peak(8192);
  const double most = measured_peak(16384);
  EXPECT_LT((most - more) / (more - few), 2.4)
      << few / 0x1p20 << ", " << more / 0x1p20 << ", " << most / 0x1p20 << " MiB";
}

TEST(CausalLm, LogsTokensAndPerplexity) {
  const TinyRun run(causal());
  ASSERT_EQ(run.train().code, 0);
  const Json state = trainer_state(run.out());
  double tokens = 0;
  bool has_perplexity = false;
  for (const Json& entry : state["log_history"]) {
    if (entry.contains("loss")) {
      tokens += 8 * 32;
      EXPECT_LE(entry["num_tokens"].get<double>(), tokens);
    }
    has_perplexity = has_perplexity || entry.contains("eval_perplexity");
  }
  EXPECT_TRUE(has_perplexity);
}

TEST(CausalLm, AndMaskedOnesTakeModelsOfTheirOwnKind) {
  const TinyRun encoder(TinyRun::Keys{{"task", "clm"}});
  const ProcessResult refused = encoder.train();
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("roberta predicts masked words"), HasSubstr("mlm")));
  const TinyRun decoder(causal({{"task", "mlm"}}));
  const ProcessResult other = decoder.train();
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, AllOf(HasSubstr("llama predicts the next word"), HasSubstr("clm")));
}

TEST(CausalLm, ConfigurationIsWrittenAndAccepted) {
  const TemporaryFolder folder;
  const ProcessResult initial = finetune({"config", "init", "--task", "clm"});
  EXPECT_EQ(initial.code, 0) << initial.err;
  const std::string path = folder.write("init.yaml", initial.out);
  EXPECT_EQ(finetune({"config", "check", "--no_files", path}).code, 0);
  const ProcessResult alias =
      finetune({"config", "check", "--no_files", path, "--block_size", "8"});
  EXPECT_EQ(alias.code, 0);
  EXPECT_THAT(alias.err, HasSubstr("'block_size' is called 'max_seq_length' here"));
  const ProcessResult other = finetune({"config", "check", "--no_files", path, "--task", "mlm"});
  EXPECT_THAT(other.err, Not(HasSubstr("keep_linebreaks")));
}

// transformers and the predictors read both: how a conversation is written, and which tokens end
// it.
TEST(CausalLm, KeepsChatTemplateAndGenerationConfigOfTheStartingModel) {
  const TinyRun first(causal({{"max_steps", "2"}}));
  ASSERT_EQ(first.train().code, 0);
  const std::map<std::string, std::string> kFiles = {
      {"chat_template.jinja", "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"},
      {"generation_config.json", R"({"eos_token_id": [2, 0], "max_new_tokens": 7})"}};
  // Links, as in the cache of Hugging Face's libraries.
  for (const auto& [name, content] : kFiles) {
    std::filesystem::create_symlink(first.folder().write("blob-" + name, content), first.out(name));
  }
  TinyRun second(causal({{"model_type", ""},
                         {"tokenizer_name", ""},
                         {"config_overrides", ""},
                         {"model_name_or_path", first.out()},
                         {"max_steps", "4"},
                         {"save_steps", "2"},
                         {"eval_strategy", "\"no\""}}));
  second.train_until(2);
  // A machine without the starting model: the files come from the checkpoint.
  std::filesystem::rename(first.out(), first.folder() / "gone");
  const ProcessResult result = second.train();
  ASSERT_EQ(result.code, 0) << result.err;
  for (const auto& [name, content] : kFiles) {
    for (const char* folder : {"checkpoint-2/", "checkpoint-4/", ""}) {
      EXPECT_EQ(read_file(second.out(folder + name)), content) << folder;
    }
  }
  EXPECT_EQ(second.train().code, 0);
  // A damaged file is found and restored like the rest of the model.
  write_file(second.out("generation_config.json"), "{}");
  EXPECT_EQ(second.train().code, 0);
  EXPECT_EQ(read_file(second.out("generation_config.json")), kFiles.at("generation_config.json"));
}

TEST(GenerationOptions, BelongToTextGenerationAlone) {
  const ProcessResult result =
      finetune({"predict", kMaskedLm, "--text", "a<mask>", "--max_new_tokens", "3"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("--max_new_tokens is for text-generation"));
}

}  // namespace
}  // namespace finetune::testing
