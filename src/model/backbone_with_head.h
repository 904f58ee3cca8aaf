// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/GradMode.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "finetune/model/model.h"
#include "finetune/params/store.h"
#include "model/architecture.h"

namespace finetune {

// The two children of a model and their parameters.
struct ModelParts {
  std::unique_ptr<Backbone> backbone;
  std::unique_ptr<ModelHead> head;
  Weights weights;               // in the order in which transformers numbers them
  std::vector<bool> is_trained;  // by weight: without an adapter all of them
};
// Throws Error(kConfig) if the adapter of the configuration fits no layer of the model.
[[nodiscard]] ModelParts make_parts(const ModelConfig& config, std::optional<Head> head);
// The formats of the parameters, with those that `options` freezes.
[[nodiscard]] std::vector<ParameterFormat> parameter_formats(const ModelParts& parts,
                                                             const ModelConfig& config,
                                                             const ModelOptions& options);
// A head for question answering always has two labels.
[[nodiscard]] ModelConfig config_for(std::optional<Head> head, const ModelConfig& config);

// Draws all weights of a new model (fresh_weights.cpp).
void draw_weights(ParameterStore& store, const ModelConfig& config, uint64_t seed);

// A backbone, its head and their parameters: every model, of encoders and decoders.
class BackboneWithHead final : public Model {
 public:
  BackboneWithHead(const ModelConfig& config, std::optional<Head> head, uint64_t seed,
                   c10::Device device, const ModelOptions& options);

  [[nodiscard]] const Weights& weights() const override { return parts_.weights; }
  [[nodiscard]] ParameterStore& store() override { return *store_; }
  [[nodiscard]] const ParameterStore& store() const override { return *store_; }
  [[nodiscard]] const ModelConfig& config() const override { return config_; }
  [[nodiscard]] const ModelOptions& options() const override { return options_; }
  [[nodiscard]] std::string architecture() const override;

  [[nodiscard]] bool has_base() const override;
  [[nodiscard]] Encoded encode(const ModelInput& input) override;
  [[nodiscard]] Tensor logits(const ModelInput& given, const Tensor& positions) override;
  [[nodiscard]] Tensor head_logits(const ModelInput& input, const Tensor& hidden,
                                   const Tensor& positions) override;
  [[nodiscard]] Vocabulary vocabulary(const ModelInput& input, const Tensor& hidden,
                                      const Tensor& positions) override;
  [[nodiscard]] Tensor next_sentence(const ModelInput& input, const Encoded& encoded) override;

 private:
  template <typename HeadType>
  [[nodiscard]] const HeadType& head_as() const;
  // Runs a function (HeadInput, Pass) -> Value on hidden states in float32.
  template <typename Function>
  [[nodiscard]] Tensor in_head(const ModelInput& input, const Tensor& hidden,
                               const Function& function, const Tensor& positions = {});
  [[nodiscard]] std::shared_ptr<const TokenLayout> target_layout(const ModelInput& input,
                                                                 const Tensor& positions) const;
  // Evaluation may use another precision than training.
  [[nodiscard]] Precision precision_of(const ModelInput& input) const {
    const bool is_training = input.dropout || input.without_adapter || c10::GradMode::is_enabled();
    return is_training ? options_.precision : options_.evaluation_precision;
  }
  [[nodiscard]] std::shared_ptr<nn::Pass> make_pass(
      const ModelInput& input, Precision precision,
      const std::shared_ptr<const TokenLayout>& layout = {},
      std::vector<nn::Rotation> rotations = {},  // which no head needs
      std::shared_ptr<const nn::ReadTokens> read = {}) const;
  struct Read {
    std::shared_ptr<const nn::ReadTokens> tokens;
    Tensor positions;  // of these tokens [N], each b * T + t
  };
  // Nullopt: the pass computes all tokens to its end.
  [[nodiscard]] std::optional<Read> read_tokens(
      const ModelInput& input, const std::shared_ptr<const TokenLayout>& layout) const;
  [[nodiscard]] bool leaves_out_padding(const ModelInput& input) const;

  const Architecture& architecture_;
  std::optional<Head> head_;
  ModelConfig config_;
  ModelOptions options_;
  ModelParts parts_;
  std::optional<BlockSparseOptions> block_sparse_;
  bool loss_spans_padding_;
  std::unique_ptr<ParameterStore> store_;
};

}  // namespace finetune
