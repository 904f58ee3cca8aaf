// SPDX-License-Identifier: MIT
#include "export/compare_logits.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "finetune/model/model_folder.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {
namespace {

constexpr const char* kText =
    "The lighthouse keeper lit the lamp at 6:45, as he had done for 30 years; nobody else knew "
    "how. "
    "ABC 123!";

// Ids of the text, or some of the vocabulary where there is no tokenizer.
std::vector<int64_t> ids_of(const MergedModel& source) {
  std::vector<int64_t> ids;
  try {
    for (const int32_t id : load_tokenizer(source.folder)->encode(kText)) ids.push_back(id);
  } catch (const Error&) {  // the folder may hold weights alone
    ids.clear();
  }
  const auto is_outside = [&](int64_t id) { return id < 0 || id >= source.config.vocab_size; };
  if (ids.empty() || std::ranges::any_of(ids, is_outside)) {
    ids.clear();
    for (int64_t i = 0; i < 24; ++i) ids.push_back(i * 37 % source.config.vocab_size);
  }
  ids.resize(std::min(ids.size(), static_cast<size_t>(source.config.max_length())));
  return ids;
}

// Logits [N, V] in float32: of each token, or those of the head.
Tensor logits_of(const ModelConfig& config, std::optional<Head> head, const ModelOptions& options,
                 const std::vector<int64_t>& ids, const std::function<void(Model&)>& load) {
  const c10::NoGradGuard no_grad;
  const c10::Device cpu(c10::kCPU);
  const Tensor row = at::tensor(ids);
  const ModelInput input = {.input_ids = row.view({1, -1}), .attention_mask = {}};
  const Tensor positions = at::arange(row.numel(), at::kLong);
  const auto model = make_model(head, config, 0, cpu, options);
  load(*model);
  const Tensor logits = model->logits(input, predicts_words(head) ? positions : Tensor());
  return logits.to(at::kFloat).flatten(0, -2).contiguous();
}

}  // namespace

LogitsDifference compare_logits(const MergedModel& source, const ModelConfig& exported,
                                const std::function<void(Model&)>& load, bool int8_products) {
  const std::vector<int64_t> ids = ids_of(source);
  const ModelConfig config = read_model_config(source.folder);
  ModelOptions options = {.fused = true, .draw_weights = false};
  options.base = base_format(config, source.folder);
  const Tensor own = logits_of(config, source.head, options, ids, [&](Model& model) {
    (void)load_folder_weights(model, source.folder);
  });
  options.base = {};
  options.int8_products = int8_products;
  const Tensor other = logits_of(exported, source.head, options, ids, load);
  LogitsDifference result;
  result.positions = own.size(0);
  result.largest = (own - other).abs().max().item<double>();
  result.has_choice = own.size(1) > 1;
  Tensor mean = result.has_choice ? own.mean(-1, /*keepdim=*/true) : own.mean();
  if (own.numel() == 1) mean = at::zeros_like(own);
  result.spread = (own - mean).square().mean().sqrt().item<double>();
  result.same = (own.argmax(-1) == other.argmax(-1)).sum().item<int64_t>();
  return result;
}

}  // namespace finetune
