// SPDX-License-Identifier: MIT
#include "finetune/predict/fill_mask.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/utf8.h"
#include "finetune/model/model.h"
#include "finetune/model/model_folder.h"
#include "finetune/task/task.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/out_of_memory.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {

using Json = nlohmann::ordered_json;

struct FillMask::State {
  c10::Device device{c10::kCPU};
  std::shared_ptr<const Tokenizer> tokenizer;
  ModelConfig config;
  std::unique_ptr<MaskedLmModel> model;
  SpecialTokens::Token mask;

  [[nodiscard]] std::vector<int32_t> encode(const Text& text) const;
  [[nodiscard]] std::vector<Json> fill(const std::vector<Text>& texts, int64_t top_k,
                                       int64_t batch_size) const;
  [[nodiscard]] Batch make_batch(const std::vector<std::vector<int32_t>>& rows) const;
  [[nodiscard]] Json answer(std::vector<int32_t> row, int64_t place, const Tensor& scores,
                            const Tensor& tokens) const;
};

FillMask::FillMask(const std::string& model_folder, bool use_cpu)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.device = pick_device(use_cpu);
  const std::string folder = resolve_model_folder(model_folder, "MODEL_DIR");
  s.config = read_model_config(folder);
  s.tokenizer = load_tokenizer(folder);
  if (!s.tokenizer->special_tokens().mask) {
    throw Error(ErrorKind::kData, folder + ": its tokenizer names no mask token");
  }
  s.mask = *s.tokenizer->special_tokens().mask;
  s.model = make_masked_lm(s.config, 0, s.device);
  const LoadReport report = load_folder_weights(*s.model, folder);
  if (!report.missing.empty()) {
    throw Error(ErrorKind::kData, folder + ": the tensor '" + report.missing[0] + "' and " +
                                      std::to_string(report.missing.size() - 1) +
                                      " more are missing; is it a masked language model?");
  }
}

FillMask::~FillMask() = default;

const std::string& FillMask::mask_token() const { return state_->mask.text; }

std::vector<int32_t> FillMask::State::encode(const Text& input) const {
  const std::string& text = input.text;
  const std::string& where = input.where;
  const size_t invalid = utf8::find_invalid(text);
  if (invalid != std::string::npos) {
    throw Error(ErrorKind::kData, where + ": byte " + std::to_string(invalid + 1) +
                                      " is not valid UTF-8; convert the text to UTF-8");
  }
  std::vector<int32_t> ids = tokenizer->add_special_tokens(tokenizer->encode(text));
  if (std::find(ids.begin(), ids.end(), mask.id) == ids.end()) {
    throw Error(ErrorKind::kData,
                where + ": has no mask; write " + mask.text + " where a word is to be filled in");
  }
  if (static_cast<int64_t>(ids.size()) > config.max_length()) {
    throw Error(ErrorKind::kData, where + ": has " + std::to_string(ids.size()) +
                                      " tokens, the model takes " +
                                      std::to_string(config.max_length()) + "; shorten it");
  }
  for (const int32_t id : ids) {
    if (id >= config.vocab_size) {
      throw Error(ErrorKind::kData, where + ": token id " + std::to_string(id) +
                                        " is beyond the model's vocabulary of " +
                                        std::to_string(config.vocab_size) +
                                        "; this is not the model's tokenizer");
    }
  }
  return ids;
}

Batch FillMask::State::make_batch(const std::vector<std::vector<int32_t>>& rows) const {
  Batch batch;
  batch.rows = static_cast<int64_t>(rows.size());
  for (const auto& row : rows) {
    batch.length = std::max(batch.length, static_cast<int64_t>(row.size()));
    batch.tokens += static_cast<int64_t>(row.size());
  }
  const auto cells = static_cast<size_t>(batch.rows * batch.length);
  batch.input_ids.assign(cells, config.pad_token_id);
  batch.attention_mask.assign(cells, 0);
  for (size_t r = 0; r < rows.size(); ++r) {
    const size_t start = r * static_cast<size_t>(batch.length);
    for (size_t t = 0; t < rows[r].size(); ++t) {
      batch.input_ids[start + t] = rows[r][t];
      batch.attention_mask[start + t] = 1;
    }
  }
  return batch;
}

// scores and tokens: [k] of the mask at `place`.
Json FillMask::State::answer(std::vector<int32_t> row, int64_t place, const Tensor& scores,
                             const Tensor& tokens) const {
  // As transformers' pipeline: a text with several masks keeps its special tokens.
  const bool single = std::count(row.begin(), row.end(), mask.id) == 1;
  Json list = Json::array();
  for (int64_t k = 0; k < tokens.numel(); ++k) {
    const auto token = static_cast<int32_t>(tokens[k].item<int64_t>());
    row[static_cast<size_t>(place)] = token;
    list.push_back({{"score", scores[k].item<float>()},
                    {"token", token},
                    {"token_str", tokenizer->decode(std::vector<int32_t>{token}, false)},
                    {"sequence", tokenizer->decode(row, single)}});
  }
  return list;
}

std::vector<Json> FillMask::operator()(const std::vector<Text>& texts, int64_t top_k,
                                       int64_t batch_size) const {
  return explaining_lack_of_memory("lower --batch_size",
                                   [&] { return state_->fill(texts, top_k, batch_size); });
}

std::vector<Json> FillMask::State::fill(const std::vector<Text>& texts, int64_t top_k,
                                        int64_t batch_size) const {
  const c10::NoGradGuard no_grad;
  const State& s = *this;
  std::vector<std::vector<int32_t>> encoded;
  for (const Text& text : texts) encoded.push_back(s.encode(text));
  std::vector<Json> answers;
  for (size_t first = 0; first < encoded.size(); first += static_cast<size_t>(batch_size)) {
    const size_t last = std::min(encoded.size(), first + static_cast<size_t>(batch_size));
    const std::vector<std::vector<int32_t>> rows(
        encoded.begin() + static_cast<std::ptrdiff_t>(first),
        encoded.begin() + static_cast<std::ptrdiff_t>(last));
    const Batch batch = s.make_batch(rows);
    std::vector<int64_t> positions;
    for (int64_t i = 0; i < batch.rows * batch.length; ++i) {
      if (batch.input_ids[static_cast<size_t>(i)] == s.mask.id) positions.push_back(i);
    }
    const Tensor where = at::from_blob(positions.data(), {static_cast<int64_t>(positions.size())},
                                       at::TensorOptions().dtype(at::kLong))
                             .clone()
                             .to(s.device);
    const Tensor logits =
        s.model->logits(make_model_input(batch, s.device, std::nullopt), where);  // [N, V]
    const auto [scores, tokens] =
        at::softmax(logits, -1).topk(std::min(top_k, logits.size(-1)), -1);  // [N, k]
    const Tensor host_scores = scores.cpu();
    const Tensor host_tokens = tokens.cpu();
    std::vector<Json> by_row(rows.size(), Json::array());
    for (size_t n = 0; n < positions.size(); ++n) {
      const auto row = static_cast<size_t>(positions[n] / batch.length);
      by_row[row].push_back(s.answer(rows[row], positions[n] % batch.length,
                                     host_scores[static_cast<int64_t>(n)],
                                     host_tokens[static_cast<int64_t>(n)]));
    }
    for (Json& masks : by_row) answers.push_back(masks.size() == 1 ? masks[0] : masks);
  }
  return answers;
}

}  // namespace finetune
