// SPDX-License-Identifier: MIT
#include "task/predict/head_runner.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/model/model_folder.h"
#include "finetune/task/task.h"
#include "finetune/tensor/out_of_memory.h"
#include "task/loss/model_input.h"

namespace finetune {

void require_whole(const LoadReport& report, const std::string& folder, const std::string& what) {
  if (report.missing.empty()) return;
  const size_t more = report.missing.size() - 1;
  throw Error(ErrorKind::kData,
              folder + ": the tensor '" + report.missing[0] + "'" +
                  (more == 0 ? " is" : " and " + std::to_string(more) + " more are") +
                  " missing; is it a model for " + what + "?");
}

void require_finite(const Tensor& logits, const std::string& folder) {
  // The maximum is NaN if one of them is; -Inf is the logit of a token that is ruled out.
  if (logits.numel() == 0 || std::isfinite(logits.amax().item<float>())) return;
  throw Error(ErrorKind::kData,
              (folder.empty() ? "" : folder + ": ") +
                  "the model's outputs are NaN or Inf, so that it has no answer; its weights, or "
                  "its adapter's scale (lora_alpha), are damaged or too large");
}

std::unique_ptr<Model> load_for_prediction(std::optional<Head> head, const std::string& what,
                                           const std::string& folder, const ModelConfig& config,
                                           c10::Device device, const PredictOptions& options) {
  ModelOptions model_options = {.fused = true, .draw_weights = false};
  model_options.base = base_format(config, folder);  // as it was trained
  if (options.int8_products && (config.lora || config.is_nf4)) {
    throw Error(ErrorKind::kUsage, "--quantize int8: '" + folder +
                                       "' is an adapter or has four bits; merge it into a folder "
                                       "with 'finetune export', and predict with that");
  }
  model_options.int8_products = options.int8_products;
  auto model = make_model(head, config, 0, device, model_options);
  require_whole(load_folder_weights(*model, folder), folder, what);
  model->store().hold_factors();
  return model;
}

HeadRunner::HeadRunner(Head head, const std::string& what, const std::string& folder,
                       const PredictOptions& options)
    : folder_(resolve_model_folder(folder, "MODEL_DIR")),
      device_(pick_prediction_device(options.use_cpu)),
      model_(
          load_for_prediction(head, what, folder_, read_model_config(folder_), device_, options)),
      encoder_(folder_, model_->config()) {}

void HeadRunner::run(std::span<const ModelText> rows, int64_t batch_size,
                     const std::function<void(size_t row, const Tensor& logits)>& take,
                     int64_t unpooled) {
  const c10::NoGradGuard no_grad;
  const auto step = static_cast<size_t>(batch_size);
  for (size_t first = 0; first < rows.size(); first += step) {
    interrupt::throw_if_requested("predicting");
    const auto taken = rows.subspan(first, std::min(step, rows.size() - first));
    for (const ModelText& row : taken) {
      const auto most = std::max_element(row.token_types.begin(), row.token_types.end());
      const bool has_types = config().type_vocab_size > 0;  // else the model ignores them
      if (has_types && most != row.token_types.end() && *most >= config().type_vocab_size) {
        throw Error(ErrorKind::kData, folder_ + ": its tokenizer gives token type " +
                                          std::to_string(*most) + ", but type_vocab_size is " +
                                          std::to_string(config().type_vocab_size) +
                                          "; this is not the model's tokenizer");
      }
    }
    const Tensor logits = explaining_lack_of_memory("lower --batch_size", [&] {
      const Batch batch = make_batch(taken, config().pad_token_id);
      ModelInput input = make_model_input(batch, device_, std::nullopt);
      if (unpooled > 0) leave_out_of_pooling(std::span(&unpooled, 1), batch, device_, input);
      return model_->logits(input).to(at::kFloat).cpu();
    });
    for (size_t r = 0; r < taken.size(); ++r) {
      const Tensor row = logits.select(0, static_cast<int64_t>(r));
      const auto length = static_cast<int64_t>(taken[r].ids.size());
      const Tensor own = row.dim() == 1 ? row : row.narrow(0, 0, length);
      require_finite(own, folder_);
      take(first + r, own);
    }
  }
}

}  // namespace finetune
