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
#include "finetune/params/store.h"
#include "finetune/tensor/tensor.h"

namespace finetune {

// Dimensions here and in src/model: B batch, T tokens, C hidden size = H heads x D head size,
// V vocabulary, N predicted positions.

struct ModelInput {
  Tensor input_ids;       // [B, T] int64
  Tensor attention_mask;  // [B, T] bool, true where a token may be attended to; undefined: all
  // The random numbers of dropout; nullopt: no dropout (evaluation).
  std::optional<DropoutStream> dropout = {};
  Tensor token_type_ids = {};  // [B, T] int64; undefined: all 0
  // The layout of the tokens without padding, for rows that end in padding. A model in training
  // computes only these tokens; hidden states of padding are zero then. Not for question answering,
  // whose loss includes padding, nor for block-sparse attention, whose blocks include padding.
  std::shared_ptr<const TokenLayout> layout = {};
  // For evaluation of a causal model, else null: keys and values of the tokens before input_ids [1,
  // T]; the pass appends its own.
  KeyValueCache* cache = nullptr;
};

// A transformer with a head. Parameters have the names that transformers uses in checkpoints.
class Model {
 public:
  virtual ~Model() = default;

  // All parameters, frozen ones too, in transformers' order; a tied one appears once, under its
  // first name. These are saved, exported and compared.
  [[nodiscard]] virtual const Weights& weights() const = 0;
  // Those that are trained, i.e. that have gradients and optimizer states.
  [[nodiscard]] Weights trained_weights() const;
  // Their values and gradients.
  [[nodiscard]] virtual ParameterStore& store() = 0;
  [[nodiscard]] virtual const ParameterStore& store() const = 0;
  // The tensors that store the values, in the order of weights(); in the reference (ModelOptions)
  // leaves of autograd.
  [[nodiscard]] NamedTensors parameters() const { return store().tensors(); }
  [[nodiscard]] virtual const ModelConfig& config() const = 0;
  [[nodiscard]] virtual std::string architecture() const = 0;  // "RobertaForMaskedLM"
};

struct LmLossOptions {
  double label_smoothing_factor = 0.0;
  // Factor of the sum in backward(); see ChunkedCrossEntropyOptions.
  double gradient_scale = 1.0;
};

// A language model: masked for encoders, causal for decoders; see is_causal().
class LanguageModel : public Model {
 public:
  // Logits [N, V] at the given positions [N] (int64, b * T + t); the head runs on these alone.
  [[nodiscard]] virtual Tensor logits(const ModelInput& input, const Tensor& positions) = 0;
  // Summed cross entropy of these logits with labels [N] int64, without materialising all logits.
  [[nodiscard]] virtual Tensor loss_sum(const ModelInput& input, const Tensor& positions,
                                        const Tensor& labels, const LmLossOptions& options) = 0;
  // The log probability of each of these labels: [N] float32, for losses that compare sequences.
  // backward() takes any gradient; the logits are computed again for it, never materialised whole.
  [[nodiscard]] virtual Tensor token_log_probs(const ModelInput& input, const Tensor& positions,
                                               const Tensor& labels) = 0;
  // Evaluation results of N positions, computed without materialising all logits.
  struct Scores {
    double loss_sum = 0.0;     // cross entropy
    double entropy_sum = 0.0;  // of the predicted distributions, in nats; 0 unless asked for
    Tensor best;               // [N] int64, the most probable ids
  };
  struct ScoreOptions {
    double label_smoothing_factor = 0.0;
    bool entropy = false;
  };
  [[nodiscard]] virtual Scores score(const ModelInput& input, const Tensor& positions,
                                     const Tensor& labels, const ScoreOptions& options) = 0;
};

// A masked LM with a next-sentence head: it predicts from the first token whether the second
// segment follows the first.
class PretrainingModel : public Model {
 public:
  struct Logits {
    Tensor words;          // [N, V] at the positions; undefined where there are none
    Tensor next_sentence;  // [B, 2]: follows, does not follow
  };
  // Positions [N] int64 as above; undefined: none.
  [[nodiscard]] virtual Logits logits(const ModelInput& input, const Tensor& positions) = 0;
  struct Terms {
    Tensor words_loss;     // the summed cross entropy; undefined where there are no positions
    Tensor next_sentence;  // [B, 2] logits
  };
  // Both terms from one pass through the encoder.
  [[nodiscard]] virtual Terms terms(const ModelInput& input, const Tensor& positions,
                                    const Tensor& labels, const LmLossOptions& options) = 0;
};

enum class Head {
  kPretraining,             // masked LM and next sentence: a PretrainingModel
  kSequenceClassification,  // logits [B, labels]
  kMultipleChoice,          // logits [B, 1], one row per choice
  kTokenClassification,     // logits [B, T, labels]
  kQuestionAnswering,       // logits [B, T, 2]: start and end of the answer
};

// Whether a model's logits are over the vocabulary; nullopt is the head of a language model.
[[nodiscard]] inline bool predicts_words(std::optional<Head> head) {
  return !head || *head == Head::kPretraining;
}

// A model with a head other than a language model's.
class HeadModel : public Model {
 public:
  [[nodiscard]] virtual Tensor logits(const ModelInput& input) = 0;
};

// Makes a new model: every weight is a function of (seed, its name) with transformers'
// initialisation (normal with initializer_range; biases 0; LayerNorm 1 and 0; the padding's
// embedding 0). Throws Error(kConfig) for a model_type without a class. Parameters that the forward
// pass does not use, such as big_bird's pooler under most heads, exist but have no gradient.
[[nodiscard]] std::unique_ptr<LanguageModel> make_language_model(const ModelConfig& config,
                                                                 uint64_t seed, c10::Device device,
                                                                 const ModelOptions& options = {});
// Whether the language model of a model_type predicts the next word from those before it.
[[nodiscard]] bool is_causal(const ModelConfig& config);
// Throws Error(kConfig) for a model_type without next-sentence prediction, such as roberta.
[[nodiscard]] std::unique_ptr<PretrainingModel> make_pretraining_model(
    const ModelConfig& config, uint64_t seed, c10::Device device, const ModelOptions& options = {});
// Whether a model_type has a next-sentence head.
[[nodiscard]] bool has_next_sentence_head(const ModelConfig& config);
// Requires: a head other than kPretraining. The number of labels is that of config.id2label;
// question answering always has two. big_bird's question answering uses the token types of
// (question, context) if the input has none.
[[nodiscard]] std::unique_ptr<HeadModel> make_head_model(Head head, const ModelConfig& config,
                                                         uint64_t seed, c10::Device device,
                                                         const ModelOptions& options = {});

// Differences between a folder of weights and a model. `missing` and `mismatched` are names of the
// model, `unexpected` names of the folder.
struct LoadReport {
  std::vector<std::string> missing;     // in the model only: left unchanged
  std::vector<std::string> unexpected;  // in the folder only
  struct Mismatch {
    std::string name;
    std::vector<int64_t> folder_shape;
    std::vector<int64_t> model_shape;
  };
  std::vector<Mismatch> mismatched;  // different shapes: left unchanged; see LoadOptions
};

struct LoadOptions {
  bool ignore_mismatched_sizes = false;  // false: a different shape is an error
  // Where the base of an adapter is read, if not in its own folder: a copy in four bits.
  std::string base_folder = {};
  // Frozen weights may share the pages of their files, which nobody changes.
  bool shares_files = false;
  // The type to which values are rounded before they are quantised; unset: their own.
  std::optional<at::ScalarType> quantized_from = {};
  // Returns the matrix that this tensor of the source holds as NF4; nullopt: it holds its values.
  std::function<std::optional<Nf4Values>(const std::string& name)> quantized = {};
};

// Reads tensors of a source: name -> tensor on the CPU. The name must exist.
using TensorSource = std::function<Tensor(const std::string& name)>;

// Copies weights by name, as from_pretrained does: a bare encoder's names lack the prefix
// ("embeddings..." for "bert.embeddings..."), LayerNorm.gamma and .beta mean weight and bias, tied
// tensors may have either name, and position_ids are ignored. `names` are all names in the source;
// messages call the source `where`. Throws Error(kData) listing every unusable tensor: wrong shape
// (with both shapes), NaN or Inf, a type that is not floating, or tied tensors that differ.
LoadReport load_weights(Model& model, const std::vector<std::string>& names,
                        const TensorSource& source, const std::string& where,
                        const LoadOptions& options = {});

// Returns the parameters that load_weights() would not find among `names`.
[[nodiscard]] std::vector<std::string> missing_weights(const ModelConfig& config,
                                                       const Weights& weights,
                                                       const std::vector<std::string>& names);

// For each parameter, the name that load_weights() would read it from; empty where it is not among
// `names`.
[[nodiscard]] std::vector<std::string> weight_sources(const ModelConfig& config,
                                                      const Weights& weights,
                                                      const std::vector<std::string>& names);

// transformers' decay rule: false for biases and normalisation layers.
[[nodiscard]] bool has_weight_decay(const std::string& parameter_name);

}  // namespace finetune
