// SPDX-License-Identifier: MIT
#include "task/predict/fill_mask.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/model/model.h"
#include "finetune/model/model_folder.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/out_of_memory.h"
#include "task/predict/head_runner.h"
#include "task/predict/text_encoder.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

class FillMask final : public Predictor {
 public:
  FillMask(const std::string& folder, const PredictOptions& options)
      : folder_(resolve_model_folder(folder, "MODEL_DIR")),
        config_(read_model_config(folder_)),
        encoder_(folder_, config_),
        device_(pick_prediction_device(options.use_cpu)),
        top_k_(options.top_k.value_or(5)),
        batch_size_(options.batch_size) {
    const auto& mask = encoder_.tokenizer().special_tokens().mask;
    if (!mask) throw Error(ErrorKind::kData, folder_ + ": its tokenizer names no mask token");
    mask_ = *mask;
    model_ = load_for_prediction(std::nullopt, "fill-mask", folder_, config_, device_, options);
  }

  std::vector<Json> answer(const std::vector<Query>& queries) override {
    std::vector<ModelText> rows;
    for (const Query& query : queries) rows.push_back(encode(query));
    std::vector<Json> answers;
    const auto step = static_cast<size_t>(batch_size_);
    for (size_t first = 0; first < rows.size(); first += step) {
      interrupt::throw_if_requested("predicting");
      const auto taken = std::span(rows).subspan(first, std::min(step, rows.size() - first));
      explaining_lack_of_memory("lower --batch_size", [&] {
        for (Json& masks : fill(taken)) answers.push_back(masks.size() == 1 ? masks[0] : masks);
        return true;
      });
    }
    return answers;
  }

 private:
  [[nodiscard]] ModelText encode(const Query& query) const {
    const std::vector<int32_t> ids = encoder_.ids(query.text, query.where);
    if (std::find(ids.begin(), ids.end(), mask_.id) == ids.end()) {
      throw Error(ErrorKind::kData, query.where + ": has no mask; write " + mask_.text +
                                        " where a word is to be filled in");
    }
    ModelText row = encoder_.tokenizer().combine(ids, std::nullopt);
    if (static_cast<int64_t>(row.ids.size()) > config_.max_length()) {
      throw Error(ErrorKind::kData, query.where + ": has " + std::to_string(row.ids.size()) +
                                        " tokens, the model takes " +
                                        std::to_string(config_.max_length()) + "; shorten it");
    }
    return row;
  }

  // Returns for each row a list with the answers of each mask.
  [[nodiscard]] std::vector<Json> fill(std::span<const ModelText> rows) const {
    const c10::NoGradGuard no_grad;
    const Batch batch = make_batch(rows, config_.pad_token_id);
    std::vector<int64_t> positions;
    for (int64_t i = 0; i < batch.rows * batch.length; ++i) {
      if (batch.input_ids[static_cast<size_t>(i)] == mask_.id) positions.push_back(i);
    }
    const Tensor where = at::from_blob(positions.data(), {static_cast<int64_t>(positions.size())},
                                       at::TensorOptions().dtype(at::kLong))
                             .clone()
                             .to(device_);
    const Tensor logits =
        model_->logits(make_model_input(batch, device_, std::nullopt), where);  // [N, V]
    require_finite(logits, folder_);
    const auto [scores, tokens] =
        at::softmax(logits, -1).topk(std::min(top_k_, logits.size(-1)), -1);  // [N, k]
    const Tensor host_scores = scores.cpu();
    const Tensor host_tokens = tokens.cpu();
    std::vector<Json> by_row(rows.size(), Json::array());
    for (size_t n = 0; n < positions.size(); ++n) {
      const auto row = static_cast<size_t>(positions[n] / batch.length);
      by_row[row].push_back(candidates(rows[row].ids, positions[n] % batch.length,
                                       host_scores[static_cast<int64_t>(n)],
                                       host_tokens[static_cast<int64_t>(n)]));
    }
    return by_row;
  }

  // Returns the answers for the mask at `position` from its best scores and tokens [k].
  [[nodiscard]] Json candidates(std::vector<int32_t> row, int64_t position, const Tensor& scores,
                                const Tensor& tokens) const {
    const Tokenizer& tokenizer = encoder_.tokenizer();
    // As in transformers' pipeline, a text with several masks keeps its special tokens.
    const bool single = std::count(row.begin(), row.end(), mask_.id) == 1;
    Json list = Json::array();
    for (int64_t k = 0; k < tokens.numel(); ++k) {
      const auto token = static_cast<int32_t>(tokens[k].item<int64_t>());
      row[static_cast<size_t>(position)] = token;
      list.push_back({{"score", scores[k].item<float>()},
                      {"token", token},
                      {"token_str", tokenizer.decode(std::vector<int32_t>{token}, false)},
                      {"sequence", tokenizer.decode(row, single)}});
    }
    return list;
  }

  std::string folder_;
  ModelConfig config_;
  TextEncoder encoder_;
  c10::Device device_;
  int64_t top_k_;
  int64_t batch_size_;
  std::unique_ptr<Model> model_;
  SpecialTokens::Token mask_;
};

}  // namespace

std::unique_ptr<Predictor> make_fill_mask(const std::string& folder,
                                          const PredictOptions& options) {
  return std::make_unique<FillMask>(folder, options);
}

}  // namespace finetune
