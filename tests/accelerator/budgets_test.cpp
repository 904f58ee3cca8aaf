// SPDX-License-Identifier: MIT
// The cost of one update on a device: kernels, bytes, waits of the host, calls of AdamW and peak
// memory must equal the figures in budgets.json, which may only decrease. The test fails if a
// figure rises, and asks for the lower figure if one fell by more than 2 %. `finetune plan` must
// predict the allocator's peak within 5 %.
//
// The model has the layers (6), heads (12) and vocabulary (52,000) of a RoBERTa of 84 million
// parameters with an eighth of its width (96, 384), and 16 rows of 32 tokens instead of 128, of
// which 60 % instead of 15 % are predicted: as many predicted tokens, and as many kernels except in
// the head, whose vocabulary blocks are 8 times as long (5 instead of 39). An update takes a
// second. With the kernels of src/kernels/cuda/, where every thread is a fiber, the vocabulary has
// 4,000 tokens: as many kernels, because the head takes it at once. A decoder has torch's
// attention, each pass of which counts as one kernel; on a GPU it also launches sums, fills and
// conversions: a backward pass some three in float32, six in 16 bits. In encoders heads of 32
// values are computed in tiles in 16 bits, those of 8 by the row kernel. A conversion of sort keys
// counts as a launch, the passes of the sort that it saves on a GPU do not. With bfloat16 gradients
// the whole width takes more launches: products wait for their rounding up to 16 MiB (8 more), and
// those of the vocabulary are rounded in 10 parts (18 more).
#include <optional>

#include "accelerator/accelerator.h"

namespace finetune::testing {
namespace {

struct Case {
  std::string name;
  TinyRun::Keys keys;
  bool has_kernels = false;  // of src/kernels/cuda/, run on the CPU; else torch's operators alone
  bool has_adapter = false;  // LoRA on a model with these keys
  friend void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }
};

const TinyRun::Keys kModel = {
    {"config_overrides",
     "{vocab_size: 52000, num_hidden_layers: 6, num_attention_heads: 12, hidden_size: 96, "
     "intermediate_size: 384, max_position_embeddings: 514, type_vocab_size: 1}"},
    {"tokenizer_name", source_dir() + "/tests/fixtures/tokenizers/lighthouse"},
    {"mlm_probability", "0.6"},
    {"per_device_train_batch_size", "16"},
    {"gradient_accumulation_steps", "1"},
    {"save_strategy", "no"},
    {"save_steps", ""},
    {"eval_strategy", "no"},
    {"eval_steps", ""},
    {"validation_file", ""},
    {"dataloader_num_workers", "0"}};

const std::vector<Case> kFormats = {{"fp32", {}},
                                    {"fp32_without_dropout", {}},  // keys below
                                    {"fp16", {{"fp16", "true"}}},  // bf16 costs the same
                                    {"adamw_8bit", {{"optim", "adamw_8bit"}}},
                                    {"all_techniques",
                                     {{"bf16", "true"},
                                      {"optim", "adamw_companded_8bit"},
                                      {"param_dtype", "bfloat16+int8"},
                                      {"grad_accum_dtype", "bfloat16"},
                                      {"gradient_checkpointing", "true"},
                                      {"gradient_checkpointing_kwargs", "{selective: true}"}}},
                                    {"offload",
                                     {{"fp16", "true"},
                                      {"gradient_checkpointing", "true"},
                                      {"gradient_checkpointing_kwargs", "{offload: true}"}}}};

// The encoder and a Llama of the same sizes with heads of 32 values, an adapter on that, and
// a DeBERTa and a BigBird of two layers, the latter with block-sparse attention.
std::vector<Case> other_families() {
  const TinyRun::Keys llama = {
      {"task", "clm"},
      {"model_type", "llama"},
      {"mlm_probability", ""},
      {"config_overrides",
       "{vocab_size: 52000, num_hidden_layers: 6, num_attention_heads: 3, num_key_value_heads: 1, "
       "hidden_size: 96, intermediate_size: 256, max_position_embeddings: 514}"}};
  TinyRun::Keys in_bf16 = llama;
  in_bf16["bf16"] = "true";
  const TinyRun::Keys big_bird = {
      {"model_type", "big_bird"},
      {"config_overrides",
       "{vocab_size: 52000, num_hidden_layers: 2, num_attention_heads: 12, hidden_size: 96, "
       "intermediate_size: 384, max_position_embeddings: 514, block_size: 4, "
       "num_random_blocks: 1}"}};
  const TinyRun::Keys deberta = {
      {"model_type", "deberta-v2"},
      {"max_seq_length", "128"},
      {"per_device_train_batch_size", "4"},
      {"config_overrides",
       "{vocab_size: 52000, num_hidden_layers: 2, num_attention_heads: 12, hidden_size: 96, "
       "intermediate_size: 384, max_position_embeddings: 514, type_vocab_size: 0, "
       "relative_attention: true, position_buckets: 16, share_att_key: true, "
       "pos_att_type: [p2c, c2p], norm_rel_ebd: layer_norm, position_biased_input: false}"}};
  // Two gated delta nets; short convolutions.
  TinyRun::Keys delta_nets = llama;
  delta_nets["model_type"] = "qwen3_5_text";
  delta_nets["config_overrides"] =
      "{vocab_size: 52000, num_hidden_layers: 2, num_attention_heads: 3, num_key_value_heads: 1, "
      "head_dim: 32, hidden_size: 96, intermediate_size: 256, max_position_embeddings: 514, "
      "linear_num_key_heads: 2, linear_num_value_heads: 4, linear_key_head_dim: 16, "
      "linear_value_head_dim: 16}";
  TinyRun::Keys convolutions = llama;
  convolutions["model_type"] = "lfm2";
  convolutions["config_overrides"] =
      "{vocab_size: 52000, num_hidden_layers: 2, num_attention_heads: 3, num_key_value_heads: 1, "
      "hidden_size: 96, intermediate_size: 256, max_position_embeddings: 514, "
      "block_auto_adjust_ff_dim: false, layer_types: [conv, conv]}";
  TinyRun::Keys tiled = kModel;
  tiled["fp16"] = "true";
  std::string& heads = tiled["config_overrides"];
  heads.replace(heads.find("num_attention_heads: 12"), 23, "num_attention_heads: 3");
  return {{"cuda_fp16_tiled", tiled, true},   {"cuda_llama_fp32", llama, true},
          {"cuda_llama_bf16", in_bf16, true}, {"cuda_llama_lora", in_bf16, true, true},
          {"cuda_deberta", deberta, true},    {"cuda_big_bird", big_bird, true},
          {"cuda_qwen3_5", delta_nets, true}, {"cuda_lfm2", convolutions, true}};
}

std::vector<Case> cases() {
  std::vector<Case> all = kFormats;
  for (const Case& one : kFormats) {
    if (one.name == "fp32_without_dropout" || one.name == "adamw_8bit") continue;  // as fp32
    all.push_back({"cuda_" + one.name, one.keys, true});
  }
  for (const Case& one : other_families()) all.push_back(one);
  return all;
}

bool is_decoder(const Case& one) {
  return one.keys.contains("task") && one.keys.at("task") == "clm";
}

Accelerator::Environment environment_of(const Case& one) {
  if (!one.has_kernels) return {};
  Accelerator::Environment cuda = {{"PRETEND_ACCELERATOR_KERNELS", "cuda"}};
  if (is_decoder(one)) cuda["PRETEND_ACCELERATOR_CAPABILITY"] = "8.0 108";
  return cuda;
}

TinyRun::Keys keys_of(const Case& one) {
  TinyRun::Keys keys = kModel;
  for (const auto& [key, value] : one.keys) keys[key] = value;
  std::string& model = keys["config_overrides"];
  if (one.has_kernels) model.replace(model.find("52000"), 5, "4000");
  if (one.name == "fp32_without_dropout") {
    model.insert(model.size() - 1, ", hidden_dropout_prob: 0.0, attention_probs_dropout_prob: 0.0");
  }
  return keys;
}

// Of the adapter of a base, which is trained for one update on the CPU.
TinyRun::Keys adapter_keys(TinyRun::Keys keys, const TinyRun& base) {
  for (const char* of_base : {"model_type", "config_overrides", "tokenizer_name"})
    keys[of_base] = "";
  keys["model_name_or_path"] = base.out();
  keys["use_peft"] = "true";
  keys["dtype"] = "bfloat16";
  return keys;
}

// The third update: the first two differ where memory is first allocated.
std::map<std::string, int64_t> cost_of_an_update(const TinyRun& run, const Case& one) {
  Accelerator accelerator;
  const auto report_of = [&](const std::string& steps) {
    const ProcessResult result =
        accelerator.train(run, {"--max_steps", steps, "--restart"}, environment_of(one));
    EXPECT_EQ(result.code, 0) << result.err;
    return accelerator.report();
  };
  const AcceleratorReport two = report_of("2");
  AcceleratorReport three = report_of("3");
  if (one.has_kernels) {
    EXPECT_TRUE(three.calls.contains("cuda::sum_of_squares")) << "other kernels than those named";
  }
  const std::string adamw = "aten::_fused_adamw_";
  const int64_t before = two.calls.contains(adamw) ? two.calls.at(adamw) : 0;
  return {{"kernels", three.kernels - two.kernels},
          {"bytes", three.bytes - two.bytes},
          {"waits", three.waits - two.waits},
          {"adamw_calls", three.calls[adamw] - before},
          {"peak_bytes", three.peak_bytes}};
}

// By `finetune plan` for the device.
double predicted_peak(const TinyRun& run, const Case& one) {
  Accelerator accelerator;
  const ProcessResult plan = accelerator.run(
      finetune_command({"plan", run.config(), "--max_steps", "3", "--json"}), environment_of(one));
  EXPECT_EQ(plan.code, 0) << plan.err;
  if (plan.code != 0) return 0.0;
  // Of cuBLAS (product_workspace_bytes(), below compute capability 9.0), which is not there.
  constexpr double kWorkspaces = 2 * 1024.0 * (4096 * 2 + 16 * 8);
  return parse_json(plan.out, "plan", ErrorKind::kData)["peak"].get<double>() -
         (is_decoder(one) ? kWorkspaces : 0.0);
}

class AcceleratorBudgets : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Of, AcceleratorBudgets, ::testing::ValuesIn(cases()),
                         [](const auto& one) { return one.param.name; });

TEST_P(AcceleratorBudgets, OnlyGoDown) {
  const std::string path = source_dir() + "/tests/accelerator/budgets.json";
  const Json budgets = parse_json(read_file(path), path, ErrorKind::kData);
  const Json budget = budgets.value(GetParam().name, Json::object());
  TinyRun::Keys keys = keys_of(GetParam());
  std::optional<TinyRun> base;
  if (GetParam().has_adapter) {
    base.emplace(keys);
    const ProcessResult made = base->train({"--max_steps", "1"});
    ASSERT_EQ(made.code, 0) << made.err;
    keys = adapter_keys(keys, *base);
  }
  const TinyRun run(keys);
  Json counted;
  for (const auto& [name, value] : cost_of_an_update(run, GetParam())) {
    counted[name] = value;
    const int64_t allowed = budget.value(name, int64_t{0});
    EXPECT_LE(value, allowed) << name << " rose: an update on a GPU costs more";
    EXPECT_GE(static_cast<double>(value), 0.98 * static_cast<double>(allowed))
        << name << " fell: lower it in budgets.json";
  }
  const auto peak = counted["peak_bytes"].get<double>();
  EXPECT_NEAR(predicted_peak(run, GetParam()) / peak, 1.0, 0.05) << "of " << peak;
  if (HasFailure()) std::cout << '"' << GetParam().name << "\": " << counted.dump() << "\n";
}

}  // namespace
}  // namespace finetune::testing
