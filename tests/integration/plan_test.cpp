// SPDX-License-Identifier: MIT
// `finetune plan`: its prediction compared with what a run uses.
#include <algorithm>
#include <cmath>

#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using Keys = TinyRun::Keys;

// Large enough to outweigh the program itself, small enough for a test.
std::string model_of(int64_t vocabulary, int64_t hidden, int64_t layers,
                     const std::string& more = "") {
  return "{vocab_size: " + std::to_string(vocabulary) + ", hidden_size: " + std::to_string(hidden) +
         ", num_hidden_layers: " + std::to_string(layers) +
         ", num_attention_heads: 8, intermediate_size: " + std::to_string(4 * hidden) +
         ", max_position_embeddings: 130, type_vocab_size: 1" + more + "}";
}

Keys planned(Keys keys) {
  keys.insert({{"config_overrides", model_of(50000, 384, 4)},
               {"max_seq_length", "64"},
               {"per_device_train_batch_size", "8"},
               {"gradient_accumulation_steps", "1"},
               {"eval_strategy", "\"no\""},
               {"eval_steps", ""},
               {"dataloader_num_workers", "0"}});
  return keys;
}

// Activations dominate.
Keys many_tokens(int64_t layers, Keys keys = {}) {
  keys.insert({{"config_overrides", model_of(4000, 128, layers)},
               {"max_seq_length", "128"},
               {"per_device_train_batch_size", "128"}});
  return keys;
}

Keys labelled(const std::string& task, const std::string& data, Keys keys = {}) {
  keys.insert({{"task", task},
               {"train_file", kTasks + data + "-train.jsonl"},
               {"validation_file", kTasks + data + "-valid.jsonl"},
               {"per_device_train_batch_size", "16"}});
  return keys;
}

// A decoder of 4 layers with 16 x 128 tokens.
Keys decoder(const std::string& family, Keys keys = {}, const std::string& more = "") {
  const std::string gpt2 = "{n_embd: 384, n_layer: 4, n_head: 6, n_positions: 128}";
  const std::string others =
      "{hidden_size: 384, num_hidden_layers: 4, num_attention_heads: 6, num_key_value_heads: 2, "
      "intermediate_size: 1024, max_position_embeddings: 128" +
      more + "}";
  keys.insert({{"task", "clm"},
               {"model_type", family},
               {"config_overrides", family == "gpt2" ? gpt2 : others},
               {"max_seq_length", "128"},
               {"per_device_train_batch_size", "16"}});
  return keys;
}

// An encoder with rotations or with distances in its scores, 16 x 128 tokens.
Keys newer_encoder(const std::string& family, Keys keys = {}) {
  const std::string own =
      family == "modernbert"
          ? "local_attention: 32"
          : "relative_attention: true, share_att_key: true, position_buckets: 64, "
            "pos_att_type: [p2c, c2p], norm_rel_ebd: layer_norm, position_biased_input: false";
  keys.insert({{"model_type", family},
               {"config_overrides",
                "{hidden_size: 384, num_hidden_layers: 4, num_attention_heads: 6, "
                "intermediate_size: 1024, max_position_embeddings: 128, pad_token_id: 1, " +
                    own + "}"},
               {"max_seq_length", "128"},
               {"per_device_train_batch_size", "16"}});
  return keys;
}

struct Case {
  std::string name;
  Keys keys;

  // A plan is for rows as long as the longest. Padding takes no memory, and samples with labels are
  // of any length.
  [[nodiscard]] double tolerance() const { return keys.contains("validation_file") ? 0.1 : 0.05; }
};

TEST(Plan, ExitsWith2WhereNotEvenOneRowFits) {
  const TinyRun run(planned({{"config_overrides", model_of(4000, 128, 2)}}));
  const ProcessResult refused = finetune({"plan", run.config(), "--memory", "50MiB"});
  EXPECT_EQ(refused.code, 2) << refused.out;
  EXPECT_THAT(refused.out, ::testing::HasSubstr("within 50 MiB: none"));
  EXPECT_THAT(refused.err,
              ::testing::HasSubstr("error: no batch fits in 50 MiB: one row at a time needs "));
  EXPECT_EQ(finetune({"plan", run.config(), "--memory", "2GiB"}).code, 0);
}

class PlanPrediction : public ::testing::TestWithParam<Case> {};

TEST_P(PlanPrediction, IsWithinATwentiethOfTheMeasuredPeak) {
  const TinyRun run(planned(GetParam().keys));
  const ProcessResult result = finetune({"plan", run.config(), "--measure", "1", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json plan = parse_json(result.out, "plan");
  const auto predicted = plan.at("peak").get<double>();
  const auto measured = plan.at("measured_peak").get<double>();
  RecordProperty("predicted_mib", static_cast<int>(predicted / 0x1p20));
  RecordProperty("measured_mib", static_cast<int>(measured / 0x1p20));
  EXPECT_NEAR(predicted / measured, 1.0, GetParam().tolerance())
      << predicted / 0x1p20 << " MiB predicted, " << measured / 0x1p20 << " measured\n"
      << plan.at("parts").dump(1);
}

INSTANTIATE_TEST_SUITE_P(
    Configurations, PlanPrediction,
    ::testing::Values(
        Case{"Plain", {}},
        Case{"AccumulatedSgd",
             {{"per_device_train_batch_size", "4"},
              {"gradient_accumulation_steps", "3"},
              {"optim", "sgd"},
              {"optim_args", "momentum=0.9"}}},
        Case{"ManyTokens", many_tokens(8)},
        Case{"EveryLayerAgain", many_tokens(8, {{"gradient_checkpointing", "true"}})},
        Case{"GroupsOffloaded", many_tokens(4, {{"gradient_checkpointing", "true"},
                                                {"gradient_checkpointing_kwargs",
                                                 "{every_n_layers: 2, offload: true}"}})},
        Case{"Selective", many_tokens(4, {{"gradient_checkpointing", "true"},
                                          {"gradient_checkpointing_kwargs", "{selective: true}"}})},
        Case{"EightBitStates", {{"optim", "adamw_8bit"}, {"grad_accum_dtype", "bfloat16"}}},
        Case{"CompandedAndSplit",
             {{"optim", "adamw_companded_8bit"},
              {"param_dtype", "bfloat16+int8"},
              {"grad_accum_dtype", "bfloat16"}}},
        Case{"UpdatedInTheBackwardPass",
             {{"optimizer_in_backward", "true"},
              {"max_grad_norm", "0"},
              {"param_dtype", "bfloat16"}}},
        Case{"UntiedBert",
             {{"model_type", "bert"},
              {"config_overrides", model_of(50000, 256, 4, ", tie_word_embeddings: false")}}},
        Case{"AdafactorOfXlmRoberta",
             {{"model_type", "xlm-roberta"},
              {"config_overrides", model_of(50000, 512, 2)},
              {"optim", "adafactor"}}},
        Case{"BFloat16",
             {{"bf16", "true"},
              {"config_overrides", model_of(20000, 256, 4)},
              {"max_seq_length", "128"},
              {"per_device_train_batch_size", "64"}}},
        Case{"Float16", {{"fp16", "true"}, {"per_device_train_batch_size", "16"}}},
        Case{"Classification",
             labelled("sequence_classification", "weather", {{"model_type", "bert"}})},
        Case{"NamesInTheBackwardPass",
             labelled("token_classification", "names",
                      {{"optimizer_in_backward", "true"}, {"max_grad_norm", "0"}})}),
    [](const auto& shown) { return shown.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Decoders, PlanPrediction,
    ::testing::Values(
        Case{"Gpt2", decoder("gpt2")}, Case{"Llama", decoder("llama")},
        Case{"Gemma2", decoder("gemma2", {}, ", head_dim: 64, sliding_window: 32")},
        Case{"Gemma3InBFloat16",
             decoder("gemma3_text", {{"bf16", "true"}}, ", head_dim: 64, sliding_window: 32")},
        Case{"Olmo2Again", decoder("olmo2", {{"gradient_checkpointing", "true"}})},
        Case{"Phi3EightBitStates",
             decoder("phi3", {{"optim", "adamw_8bit"}, {"param_dtype", "bfloat16"}})},
        Case{"Qwen3Offloaded",
             decoder("qwen3",
                     {{"gradient_checkpointing", "true"},
                      {"gradient_checkpointing_kwargs", "{every_n_layers: 2, offload: true}"}},
                     ", head_dim: 64")},
        Case{"SmolLm3Selective",
             decoder("smollm3", {{"gradient_checkpointing", "true"},
                                 {"gradient_checkpointing_kwargs", "{selective: true}"}})},
        Case{"Gpt2InTheBackwardPass", decoder("gpt2", {{"optimizer_in_backward", "true"},
                                                       {"max_grad_norm", "0"},
                                                       {"gradient_checkpointing", "true"},
                                                       {"param_dtype", "bfloat16"}})}),
    [](const auto& shown) { return shown.param.name; });

INSTANTIATE_TEST_SUITE_P(
    NewerEncoders, PlanPrediction,
    ::testing::Values(
        Case{"ModernBert", newer_encoder("modernbert")},
        Case{"ModernBertEightBitStates",
             newer_encoder("modernbert", {{"optim", "adamw_8bit"}, {"param_dtype", "bfloat16"}})},
        Case{"ModernBertInBFloat16", newer_encoder("modernbert", {{"bf16", "true"}})},
        Case{"ModernBertClasses",
             labelled("sequence_classification", "weather", newer_encoder("modernbert"))},
        Case{"Deberta", newer_encoder("deberta-v2")},
        Case{"DebertaAgain", newer_encoder("deberta-v2", {{"gradient_checkpointing", "true"}})},
        Case{"DebertaInFloat16", newer_encoder("deberta-v2", {{"fp16", "true"}})},
        Case{"DebertaEntities",
             labelled("token_classification", "names", newer_encoder("deberta-v2"))}),
    [](const auto& shown) { return shown.param.name; });

TEST(Plan, SaysWhatAnswersWithoutWritingAnything) {
  const TinyRun run(planned({{"config_overrides", model_of(4000, 128, 2)}}));
  const ProcessResult result = finetune({"plan", run.config(), "--memory", "1GiB"});
  ASSERT_EQ(result.code, 0) << result.err;
  for (const char* part : {"8 x 1 samples an update, up to 64 tokens each", "\nweights ",
                           "\noptimizer states ", "\nlibtorch and program ", "\npredicted peak ",
                           "\nfits: ", "\nlargest per_device_train_batch_size within 1024 MiB: ",
                           "\nlongest row, one at a time, on a GPU of 8 GB: 128, 12 GB: 128, "}) {
    EXPECT_THAT(result.out, ::testing::HasSubstr(part));
  }
  EXPECT_TRUE(std::filesystem::is_empty(run.out()));
}

// Before anything is rented.
TEST(Plan, NamesTheLongestRowOnGpusOfSomeSizes) {
  const auto rows = [](const TinyRun::Keys& more) {
    TinyRun::Keys keys = {{"task", "clm"},
                          {"model_type", "llama"},
                          {"config_overrides",
                           "{hidden_size: 2048, num_hidden_layers: 16, num_attention_heads: 32, "
                           "num_key_value_heads: 8, intermediate_size: 8192, "
                           "max_position_embeddings: 8192}"}};
    for (const auto& [key, value] : more) keys[key] = value;
    const TinyRun run(planned(keys));
    const ProcessResult result = finetune({"plan", run.config(), "--json", "--memory", "1GiB"});
    const auto plan = parse_json(result.out, "plan");
    std::vector<int64_t> lengths;
    for (const auto& [name, length] : plan.at("longest_rows").items()) {
      lengths.push_back(length.get<int64_t>());
    }
    return lengths;
  };
  const std::vector<int64_t> usual = rows({{"bf16", "true"}});
  ASSERT_EQ(usual.size(), 5U);
  EXPECT_EQ(usual.front(), 0);  // 1.0 billion weights with their moments take 16 GB
  EXPECT_GT(usual.back(), 0);
  const std::vector<int64_t> lean = rows({{"bf16", "true"}, {"gradient_checkpointing", "true"}});
  EXPECT_GT(lean.back(), usual.back());
}

TEST(Plan, FindsALargerBatchInMoreMemory) {
  const TinyRun run(planned({{"config_overrides", model_of(4000, 128, 2)}}));
  const auto largest = [&](const std::string& memory) {
    const ProcessResult result = finetune({"plan", run.config(), "--json", "--memory", memory});
    const auto batch = parse_json(result.out, "plan").at("largest_batch").get<int64_t>();
    EXPECT_EQ(result.code, batch > 0 ? 0 : 2) << result.err;
    return batch;
  };
  EXPECT_EQ(largest("50MiB"), 0);
  const int64_t few = largest("300MiB");
  EXPECT_GT(few, 8);
  EXPECT_GT(largest("1GiB"), few);
}

TEST(Plan, CountsTheSavesToABucketWithTheLast) {
  const auto saves = [](Keys keys) {
    keys.insert({"mirror_dir", "s3://bucket/run"});
    const TinyRun run(keys);
    const ProcessResult result = finetune({"plan", run.config(), "--json"});
    return parse_json(result.out, "plan").at("bucket").at("saves").get<int64_t>();
  };
  EXPECT_EQ(saves({}), 6);  // after 7, 14, ..., 35 and 40 steps
  EXPECT_EQ(saves({{"save_steps", "8"}}), 5);
  EXPECT_EQ(saves({{"save_steps", "0.3"}}), 4);
  EXPECT_EQ(saves({{"save_strategy", "\"no\""}}), 1);
  // 865 samples in batches of 8 are 109 steps an epoch.
  EXPECT_EQ(saves({{"save_strategy", "epoch"}}), 1);
  EXPECT_EQ(saves({{"save_strategy", "epoch"}, {"max_steps", "110"}}), 2);
}

TEST(Plan, RefusesAMemoryThatIsNoSize) {
  const TinyRun run;
  const ProcessResult result = finetune({"plan", run.config(), "--memory", "much"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, ::testing::HasSubstr("--memory must be a size such as 1000MiB"));
  const ProcessResult bytes = finetune({"plan", run.config(), "--memory", "4"});
  EXPECT_EQ(bytes.code, 2);
  EXPECT_THAT(bytes.err, ::testing::HasSubstr("counts bytes (did you mean 4GiB?)"));
}

}  // namespace
}  // namespace finetune::testing
