// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "finetune/model/model.h"
#include "finetune/nn/chunked_cross_entropy.h"
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

// The backbone's output for [B, T]: [B, T, C], or [1, N, C] with a layout.
struct Encoded {
  Tensor hidden;
  std::shared_ptr<const TokenLayout> layout;
  int64_t rows, length;  // B, T

  // These return float32, which heads read.
  [[nodiscard]] Tensor padded() const;  // [B, T, C], zero at padding that was not computed
  // [N, C] at positions [N], each b * T + t.
  [[nodiscard]] Tensor tokens_at(const Tensor& positions) const;
  [[nodiscard]] Tensor first_tokens() const;  // [B, 1, C]
};

// A backbone, its head and their parameters: what every model of model.h is, encoders and decoders.
class BackboneWithHead {
 public:
  BackboneWithHead(const ModelConfig& config, std::optional<Head> head, uint64_t seed,
                   c10::Device device, const ModelOptions& options);

  // `positions` [N]: the only positions that the head reads; undefined: all.
  Tensor logits(const ModelInput& given, const Tensor& positions = {});
  Tensor loss_sum(const ModelInput& input, const Tensor& positions, const Tensor& labels,
                  const LmLossOptions& options);
  Tensor token_log_probs(const ModelInput& input, const Tensor& positions, const Tensor& labels);
  LanguageModel::Scores score(const ModelInput& input, const Tensor& positions,
                              const Tensor& labels, const LanguageModel::ScoreOptions& options);
  PretrainingModel::Logits pretraining_logits(const ModelInput& input, const Tensor& positions);
  PretrainingModel::Terms pretraining_terms(const ModelInput& input, const Tensor& positions,
                                            const Tensor& labels, const LmLossOptions& options);

  [[nodiscard]] ParameterStore& store() const { return *store_; }
  [[nodiscard]] const Weights& weights() const { return parts_.weights; }
  [[nodiscard]] const ModelConfig& config() const { return config_; }
  // Transformers' class with this head: "RobertaForTokenClassification".
  [[nodiscard]] std::string class_name(std::optional<Head> head) const;

 private:
  template <typename HeadType>
  [[nodiscard]] const HeadType& head_as() const;
  // Runs a function (HeadInput, Pass) -> Value on hidden states in float32.
  template <typename Function>
  [[nodiscard]] Tensor in_head(const ModelInput& input, const Tensor& hidden,
                               const Function& function, const Tensor& positions = {});
  [[nodiscard]] std::shared_ptr<const TokenLayout> target_layout(const ModelInput& input,
                                                                 const Tensor& positions) const;
  // `positions`: of the hidden states [N, C] in [B, T], if they are not all.
  [[nodiscard]] Tensor head_logits(const ModelInput& input, const Tensor& hidden,
                                   const Tensor& positions = {});
  // Returns the summed cross entropy of a head over the vocabulary, from hidden states [N, C].
  [[nodiscard]] Tensor words_loss(const ModelInput& input, const Tensor& hidden,
                                  const Tensor& positions, const Tensor& labels,
                                  const LmLossOptions& options);
  // What the head's decoder reads, and how a chunked loss computes it.
  struct WordsHead {
    Tensor x;
    LmDecoder decoder;
    ChunkedCrossEntropyOptions options;
  };
  [[nodiscard]] WordsHead words_head(const ModelInput& input, const Tensor& hidden,
                                     const Tensor& positions);
  // Declares the decoder's gradients complete in the backward pass of `tensor`.
  [[nodiscard]] Tensor completing(const Tensor& tensor, const LmDecoder& decoder);
  [[nodiscard]] Tensor next_sentence(const ModelInput& input, const Encoded& encoded);  // [B, 2]
  // Evaluation may use another precision than training.
  [[nodiscard]] Precision precision_of(const ModelInput& input) const {
    return input.dropout ? options_.precision : options_.evaluation_precision;
  }
  [[nodiscard]] std::shared_ptr<nn::Pass> make_pass(
      const ModelInput& input, Precision precision,
      const std::shared_ptr<const TokenLayout>& layout = {},
      std::vector<nn::Rotation> rotations = {}) const;  // which no head needs
  [[nodiscard]] Encoded encode(const ModelInput& input);
  [[nodiscard]] bool leaves_out_padding(const ModelInput& input) const;

  const Architecture& architecture_;
  ModelConfig config_;
  ModelOptions options_;
  ModelParts parts_;
  std::optional<BlockSparseOptions> block_sparse_;
  bool loss_spans_padding_;
  std::unique_ptr<ParameterStore> store_;
};

}  // namespace finetune
