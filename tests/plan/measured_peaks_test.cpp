// SPDX-License-Identifier: MIT
// Predictions of updates whose peak was measured on an NVIDIA H200 (docs/benchmarks.md, "On a
// GPU").
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "finetune/model/model_config.h"
#include "finetune/plan/memory_plan.h"

namespace finetune {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;
constexpr int64_t kWorkspace = 64 * kMebibyte;  // of cuBLAS, from compute capability 9.0 on

MemoryWorkload on_gpu(const std::string& type, const nlohmann::ordered_json& keys, int64_t rows,
                      int64_t length) {
  MemoryWorkload work{.model = override_model_config(default_model_config(type), keys),
                      .head = {},
                      .length = length,
                      .effective_batch = rows};
  work.is_device = work.has_kernels = work.has_flash = work.has_tiles = true;
  work.workspace = kWorkspace;
  if (is_causal(work.model)) work.predicted_share = 1.0;
  return work;
}

const nlohmann::ordered_json kEncoder = {
    {"vocab_size", 52000}, {"num_hidden_layers", 6},    {"num_attention_heads", 12},
    {"hidden_size", 768},  {"intermediate_size", 3072}, {"max_position_embeddings", 514},
    {"type_vocab_size", 1}};
const nlohmann::ordered_json kDecoder = {{"vocab_size", 49152},
                                         {"hidden_size", 576},
                                         {"intermediate_size", 1536},
                                         {"num_hidden_layers", 30},
                                         {"num_attention_heads", 9},
                                         {"num_key_value_heads", 3},
                                         {"max_position_embeddings", 8192},
                                         {"tie_word_embeddings", true}};
const nlohmann::ordered_json kQwen = {{"vocab_size", 151936},
                                      {"hidden_size", 1024},
                                      {"intermediate_size", 3072},
                                      {"num_hidden_layers", 28},
                                      {"num_attention_heads", 16},
                                      {"num_key_value_heads", 8},
                                      {"head_dim", 128},
                                      {"max_position_embeddings", 40960},
                                      {"tie_word_embeddings", true}};

void expect_peak(const MemoryWorkload& work, const MemoryChoices& choices, int64_t mebibytes,
                 const char* what, double tolerance = 0.03) {
  const MemoryParts parts = predict_memory(work, choices);
  const double ratio =
      static_cast<double>(parts.peak()) / static_cast<double>(mebibytes * kMebibyte);
  EXPECT_NEAR(ratio, 1.0, tolerance)
      << what << ": " << parts.peak() / kMebibyte << " MiB instead of " << mebibytes;
}

TEST(MeasuredPeaks, OfAnEncoder) {
  MemoryWorkload work = on_gpu("roberta", kEncoder, 64, 128);
  work.computes_all_tokens = true;  // as the program that was measured
  expect_peak(work, {.micro_batch = 64, .precision = Precision::kBFloat16}, 2830, "bf16");
  expect_peak(work, {.micro_batch = 64, .precision = Precision::kFloat16}, 2830, "fp16");
  expect_peak(work, {.micro_batch = 64}, 3790, "fp32");
  expect_peak(work,
              {.micro_batch = 64,
               .checkpointing = {.enabled = true, .selective = true},
               .weights = WeightFormat::kSplit,
               .gradients = GradientFormat::kBFloat16,
               .precision = Precision::kBFloat16,
               .optimizer = {.kind = "adamw_companded_8bit"}},
              1615, "all techniques");
}

TEST(MeasuredPeaks, OfADecoder) {
  const MemoryWorkload work = on_gpu("llama", kDecoder, 8, 1024);
  expect_peak(work, {.micro_batch = 8, .precision = Precision::kBFloat16}, 5983, "bf16");
  expect_peak(work, {.micro_batch = 8}, 7789, "fp32");
  expect_peak(on_gpu("qwen3", kQwen, 2, 2048),
              {.micro_batch = 2, .precision = Precision::kBFloat16}, 15070, "Qwen3-0.6B");
}

TEST(MeasuredPeaks, OfAnAdapter) {
  MemoryWorkload work = on_gpu("llama", kDecoder, 8, 1024);
  work.model.lora = nn::LoraConfig{.r = 16};
  work.base.weights = WeightFormat::kBFloat16;
  MemoryChoices choices{.micro_batch = 8, .precision = Precision::kBFloat16};
  expect_peak(work, choices, 4059, "LoRA");
  MemoryWorkload packed = work;
  packed.base.matrices = WeightFormat::kNf4;
  expect_peak(packed, choices, 3914, "QLoRA");
  choices.checkpointing = {.enabled = true};
  expect_peak(work, choices, 1307, "LoRA, again");
  expect_peak(packed, choices, 1162, "QLoRA, again");
}

// Qwen3-30B-A3B with an adapter on attention; no GPU has measured it.
TEST(MeasuredPeaks, AMixtureOfThirtyBillionFitsIntoTwentyFourGbInFourBits) {
  MemoryWorkload work = on_gpu("qwen3_moe",
                               {{"hidden_size", 2048},
                                {"num_hidden_layers", 48},
                                {"head_dim", 128},
                                {"norm_topk_prob", true},
                                {"max_position_embeddings", 40960}},
                               1, 2048);
  work.model.lora =
      nn::LoraConfig{.r = 16, .target_modules = {{"q_proj", "k_proj", "v_proj", "o_proj"}}};
  work.base.weights = WeightFormat::kBFloat16;
  work.base.matrices = WeightFormat::kNf4;
  const MemoryParts parts = predict_memory(
      work,
      {.micro_batch = 1, .checkpointing = {.enabled = true}, .precision = Precision::kBFloat16});
  EXPECT_LT(parts.peak(), 24 * int64_t{1'000'000'000});
  EXPECT_GT(parts.peak(), 15 * int64_t{1'000'000'000});  // 30 billion values of four bits
}

// gpt-oss-20b as OpenAI's folder has it, with an adapter on attention; no GPU has measured it.
TEST(MeasuredPeaks, GptOssOfTwentyBillionFitsIntoSixteenGbWithItsExpertsInMxfp4) {
  MemoryWorkload work =
      on_gpu("gpt_oss", {{"num_hidden_layers", 24}, {"num_local_experts", 32}}, 1, 1024);
  work.model.lora =
      nn::LoraConfig{.r = 16, .target_modules = {{"q_proj", "k_proj", "v_proj", "o_proj"}}};
  work.base.weights = WeightFormat::kBFloat16;
  for (int64_t layer = 0; layer < 24; ++layer) {
    for (const char* part : {"gate_up_proj", "down_proj"}) {
      work.base.mxfp4.push_back("model.layers." + std::to_string(layer) + ".mlp.experts." + part);
    }
  }
  const MemoryParts parts = predict_memory(
      work,
      {.micro_batch = 1, .checkpointing = {.enabled = true}, .precision = Precision::kBFloat16});
  EXPECT_LT(parts.peak(), 16 * int64_t{1'000'000'000});
  EXPECT_GT(parts.peak(), 12 * int64_t{1'000'000'000});
}

TEST(MeasuredPeaks, OfBlockSparseAttention) {
  MemoryWorkload work = on_gpu("big_bird", kEncoder, 2, 4096);
  work.computes_all_tokens = true;  // as the program that was measured
  work.model.max_position_embeddings = 4098;
  work.model.attention_type = "block_sparse";
  const MemoryChoices choices{.micro_batch = 2};
  expect_peak(work, choices, 4058, "block-sparse");
  work.model.attention_type = "original_full";
  expect_peak(work, choices, 5107, "full");
}

// What libtpu's programs of two updates need on a v5e (docs/tpu.md), where ATen's operators
// compute.
TEST(MeasuredPeaks, OnATpu) {
  const auto on_tpu = [](const std::string& type, nlohmann::ordered_json keys, int64_t rows,
                         int64_t length) {
    MemoryWorkload work = on_gpu(type, keys, rows, length);
    work.has_kernels = work.has_flash = work.has_tiles = false;
    work.compiles = true;
    work.workspace = 0;
    return work;
  };
  nlohmann::ordered_json encoder = {{"num_attention_heads", 12}, {"hidden_size", 768},
                                    {"intermediate_size", 3072}, {"num_hidden_layers", 6},
                                    {"vocab_size", 52000},       {"max_position_embeddings", 514}};
  expect_peak(on_tpu("roberta", encoder, 16, 128), {.micro_batch = 16}, 2076, "RoBERTa");
  nlohmann::ordered_json decoder = kDecoder;
  decoder["max_position_embeddings"] = 2048;
  expect_peak(on_tpu("llama", decoder, 2, 512),
              {.micro_batch = 2, .precision = Precision::kBFloat16}, 2988, "SmolLM2");
  encoder.update(
      {{"num_hidden_layers", 12}, {"vocab_size", 32000}, {"max_position_embeddings", 4096}});
  MemoryWorkload sparse = on_tpu("big_bird", encoder, 2, 4096);
  sparse.model.attention_type = "block_sparse";
  sparse.head = Head::kPretraining;
  expect_peak(sparse, {.micro_batch = 2, .checkpointing = {.enabled = true}}, 2889, "BigBird");
  encoder["vocab_size"] = 30522;
  encoder["max_position_embeddings"] = 512;
  MemoryWorkload bert = on_tpu("bert", encoder, 16, 128);
  bert.head = Head::kSequenceClassification;
  expect_peak(bert, {.micro_batch = 16}, 3049, "BERT");
}

}  // namespace
}  // namespace finetune
