// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "finetune/kernels/dropout.h"
#include "finetune/kernels/token_layout.h"
#include "finetune/model/model_config.h"
#include "finetune/model/model_options.h"
#include "finetune/nn/key_value_cache.h"
#include "finetune/tensor/tensor.h"

namespace finetune {

// Dimensions here and in src/model: B batch, T tokens, C hidden size = H heads x D head size,
// V vocabulary, N predicted positions.

struct ModelInput {
  Tensor input_ids;       // [B, T] int64
  Tensor attention_mask;  // [B, T] bool, true where a token may be attended to; undefined: all
  // Which random numbers dropout uses; nothing: no dropout (evaluation).
  std::optional<DropoutStream> dropout = {};
  Tensor token_type_ids = {};  // [B, T] int64; undefined: all 0
  // Where rows end in padding: the tokens without it. A model that trains computes these alone;
  // hidden states of padding are zero then. Not for question answering, whose loss is over padding
  // too, and block-sparse attention, whose blocks it fills.
  std::shared_ptr<const TokenLayout> layout = {};
  // Not null, in evaluation of a causal model: the tokens before input_ids [1, T], to which the
  // pass adds these.
  KeyValueCache* cache = nullptr;
};

// An encoder with a head. Parameters carry the names of the checkpoint that transformers writes.
class Model {
 public:
  virtual ~Model() = default;

  // Every parameter once, frozen ones too (a tied one under its first name), in transformers'
  // order: what is saved, exported and compared. Their values are in the store's format; only a
  // readable model's can be computed with as they are.
  [[nodiscard]] virtual const NamedTensors& parameters() const = 0;
  // Those of them that are trained: what gradients, their norm and the optimizer are of.
  [[nodiscard]] NamedTensors trained_parameters() const;
  // The same tensors as parameters(), in the same order, with their gradients.
  [[nodiscard]] virtual ParameterStore& store() = 0;
  [[nodiscard]] virtual const ParameterStore& store() const = 0;
  [[nodiscard]] virtual const ModelConfig& config() const = 0;
  [[nodiscard]] virtual std::string architecture() const = 0;  // "RobertaForMaskedLM"
};

struct LmLossOptions {
  double label_smoothing_factor = 0.0;
  // What the sum is multiplied with before backward() is called; see ChunkedCrossEntropyOptions.
  double gradient_scale = 1.0;
};

// A model of words: of masked ones where the family is an encoder, of the next one where it is a
// decoder; see is_causal().
class LanguageModel : public Model {
 public:
  // Logits [N, V] at the given positions [N] (int64, b * T + t); the head runs on these alone.
  [[nodiscard]] virtual Tensor logits(const ModelInput& input, const Tensor& positions) = 0;
  // Summed cross entropy of these logits with labels [N] int64, without making them all at once.
  [[nodiscard]] virtual Tensor loss_sum(const ModelInput& input, const Tensor& positions,
                                        const Tensor& labels, const LmLossOptions& options) = 0;
  // What evaluation asks of N positions, without making all logits at once.
  struct Scores {
    double loss_sum = 0.0;  // cross entropy
    Tensor best;            // [N] int64, the most probable words
  };
  [[nodiscard]] virtual Scores score(const ModelInput& input, const Tensor& positions,
                                     const Tensor& labels, double label_smoothing_factor) = 0;
};

// A masked LM that also tells from the first token whether the second segment follows the first.
class PretrainingModel : public Model {
 public:
  struct Logits {
    Tensor words;          // [N, V] at the positions; undefined where there are none
    Tensor next_sentence;  // [B, 2]: it follows, it does not
  };
  // Positions [N] int64 as above; undefined: none.
  [[nodiscard]] virtual Logits logits(const ModelInput& input, const Tensor& positions) = 0;
  struct Terms {
    Tensor words_loss;     // the summed cross entropy; undefined where there are no positions
    Tensor next_sentence;  // [B, 2] logits
  };
  // Both of one pass through the encoder.
  [[nodiscard]] virtual Terms terms(const ModelInput& input, const Tensor& positions,
                                    const Tensor& labels, const LmLossOptions& options) = 0;
};

enum class Head {
  kPretraining,             // words and next sentence: a PretrainingModel
  kSequenceClassification,  // logits [B, labels]
  kMultipleChoice,          // logits [B, 1], a row for each choice
  kTokenClassification,     // logits [B, T, labels]
  kQuestionAnswering,       // logits [B, T, 2]: of the answer's first and last token
};

// Whether a model's logits are over the vocabulary; no head is a language model's.
[[nodiscard]] inline bool predicts_words(std::optional<Head> head) {
  return !head || *head == Head::kPretraining;
}

// An encoder with one of the other heads.
class HeadModel : public Model {
 public:
  [[nodiscard]] virtual Tensor logits(const ModelInput& input) = 0;
};

// A fresh model: every weight is a function of (seed, its name), as transformers initialises
// (normal with initializer_range; biases 0; LayerNorm 1 and 0; the padding's embedding 0).
// Throws Error(kConfig) for a model_type that has no class. Parameters that the forward pass does
// not use, such as big_bird's pooler under most heads, are there all the same, without a gradient.
[[nodiscard]] std::unique_ptr<LanguageModel> make_language_model(const ModelConfig& config,
                                                                 uint64_t seed, c10::Device device,
                                                                 const ModelOptions& options = {});
// Whether the language model of a model_type predicts the next word from those before it.
[[nodiscard]] bool is_causal(const ModelConfig& config);
// Throws Error(kConfig) for a model_type whose pretraining knows no next sentence: RoBERTa's kin.
[[nodiscard]] std::unique_ptr<PretrainingModel> make_pretraining_model(
    const ModelConfig& config, uint64_t seed, c10::Device device, const ModelOptions& options = {});
// Whether a model_type has such a head.
[[nodiscard]] bool has_next_sentence_head(const ModelConfig& config);
// Requires: another head than kPretraining. Labels are counted by config.id2label; for question
// answering config() has two, whatever `config` says. A big_bird answers with the token types of
// (question, context) where the input has none.
[[nodiscard]] std::unique_ptr<HeadModel> make_head_model(Head head, const ModelConfig& config,
                                                         uint64_t seed, c10::Device device,
                                                         const ModelOptions& options = {});

// What a folder of weights and a model did not share. Names of `missing` and `mismatched` are the
// model's, those of `unexpected` the folder's.
struct LoadReport {
  std::vector<std::string> missing;     // in the model only: left as they were
  std::vector<std::string> unexpected;  // in the folder only
  struct Mismatch {
    std::string name;
    std::vector<int64_t> folder_shape;
    std::vector<int64_t> model_shape;
  };
  std::vector<Mismatch> mismatched;  // of another shape: left as they were; see LoadOptions
};

struct LoadOptions {
  bool ignore_mismatched_sizes = false;  // false: a tensor of another shape is an error
};

// Where a tensor comes from: the name of one that is there -> the tensor on the CPU.
using TensorSource = std::function<Tensor(const std::string& name)>;

// Copies weights by name, as from_pretrained does: names of a bare encoder lack the prefix
// ("embeddings..." for "bert.embeddings..."), LayerNorm.gamma and .beta are weight and bias, tied
// tensors may have either name, and position_ids are ignored. `names` are all names of the source,
// `where` names it in messages. Error(kData) that lists every unusable tensor: another shape (with
// both), NaN or Inf, types that are not floating; tied tensors that differ.
LoadReport load_weights(Model& model, const std::vector<std::string>& names,
                        const TensorSource& source, const std::string& where,
                        const LoadOptions& options = {});

// transformers' decay rule: false for biases and normalisation layers.
[[nodiscard]] bool has_weight_decay(const std::string& parameter_name);

}  // namespace finetune
