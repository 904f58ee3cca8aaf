// SPDX-License-Identifier: MIT
#include "finetune/model/model.h"

#include <ATen/Parallel.h>
#include <ATen/ops/isfinite.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <set>

#include "finetune/base/error.h"
#include "finetune/base/random.h"
#include "model/roberta.h"

namespace finetune {
namespace {

bool ends_with_norm(const std::string& name) {
  return name.find("LayerNorm.") != std::string::npos ||
         name.find("layer_norm.") != std::string::npos;
}

uint64_t hash_name(const std::string& name) {  // FNV-1a: part of what a seed means, so frozen here
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

// Row r of a matrix has numbers of its own, so that rows can be filled in parallel.
void fill_normal(const Tensor& weight, double deviation, uint64_t seed, const std::string& name) {
  const int64_t rows = weight.size(0);
  const int64_t columns = weight.numel() / std::max<int64_t>(1, rows);
  float* data = weight.mutable_data_ptr<float>();
  at::parallel_for(0, rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      random::Sequence numbers(random::make_key(seed, random::Purpose::kInitialization,
                                                hash_name(name), static_cast<uint64_t>(r)));
      for (int64_t c = 0; c < columns; ++c) {
        data[r * columns + c] = static_cast<float>(deviation * numbers.normal());
      }
    }
  });
}

void initialize(const NamedTensors& parameters, const ModelConfig& config, uint64_t seed) {
  const c10::NoGradGuard no_grad;
  for (const NamedTensor& parameter : parameters) {
    const bool is_weight = parameter.name.ends_with("weight");
    if (!is_weight) {
      parameter.tensor.zero_();
    } else if (ends_with_norm(parameter.name)) {
      parameter.tensor.fill_(1.0);
    } else {
      fill_normal(parameter.tensor, config.initializer_range, seed, parameter.name);
      const bool has_padding = parameter.name.ends_with("word_embeddings.weight") ||
                               parameter.name.ends_with("position_embeddings.weight");
      if (has_padding) parameter.tensor[config.pad_token_id].zero_();
    }
  }
}

class RobertaMaskedLm final : public MaskedLmModel {
 public:
  RobertaMaskedLm(const ModelConfig& config, uint64_t seed, c10::Device device)
      : config_(config), module_(config) {
    for (const auto& item : module_->named_parameters()) {
      parameters_.push_back({item.key(), item.value()});
    }
    initialize(parameters_, config_, seed);
    if (!device.is_cpu()) {
      module_->to(device);
      parameters_.clear();
      for (const auto& item : module_->named_parameters()) {
        parameters_.push_back({item.key(), item.value()});
      }
    }
  }

  Tensor logits(const ModelInput& input, const Tensor& positions) override {
    return module_(input, positions);
  }
  [[nodiscard]] const NamedTensors& parameters() const override { return parameters_; }
  [[nodiscard]] const ModelConfig& config() const override { return config_; }
  [[nodiscard]] std::string architecture() const override { return "RobertaForMaskedLM"; }

 private:
  ModelConfig config_;
  RobertaForMaskedLm module_;
  NamedTensors parameters_;
};

std::string shape_text(const Tensor& tensor) {
  std::string text = "[";
  for (const int64_t size : tensor.sizes()) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  }
  return text + "]";
}

}  // namespace

std::unique_ptr<MaskedLmModel> make_masked_lm(const ModelConfig& config, uint64_t seed,
                                              c10::Device device) {
  if (config.model_type != "roberta") {
    throw Error(ErrorKind::kConfig, "model_type '" + config.model_type +
                                        "' is not available in this version; use 'roberta'");
  }
  return std::make_unique<RobertaMaskedLm>(config, seed, device);
}

LoadReport load_weights(Model& model, const std::vector<std::string>& names,
                        const TensorSource& source, const std::string& where) {
  const c10::NoGradGuard no_grad;
  const std::set<std::string> available(names.begin(), names.end());
  // A checkpoint may hold the tied head again under names of its own.
  std::set<std::string> known = {"lm_head.decoder.bias"};
  if (model.config().tie_word_embeddings) known.insert("lm_head.decoder.weight");
  LoadReport report;
  for (const NamedTensor& parameter : model.parameters()) {
    known.insert(parameter.name);
    if (!available.contains(parameter.name)) {
      report.missing.push_back(parameter.name);
      continue;
    }
    const Tensor value = source(parameter.name);
    if (value.sizes() != parameter.tensor.sizes()) {
      throw Error(ErrorKind::kData, where + ": tensor '" + parameter.name + "' has the shape " +
                                        shape_text(value) + ", but config.json asks for " +
                                        shape_text(parameter.tensor) +
                                        "; the two files do not belong together");
    }
    if (!value.isfinite().all().item<bool>()) {
      throw Error(ErrorKind::kData, where + ": tensor '" + parameter.name +
                                        "' holds NaN or infinite values; this model is broken");
    }
    parameter.tensor.copy_(value);
  }
  for (const std::string& name : names) {
    if (!known.contains(name)) report.unexpected.push_back(name);
  }
  return report;
}

bool has_weight_decay(const std::string& parameter_name) {
  // transformers excludes LayerNorm modules and every name that holds "bias" or a norm's name.
  return parameter_name.find("bias") == std::string::npos && !ends_with_norm(parameter_name);
}

}  // namespace finetune
