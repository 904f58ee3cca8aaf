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
#include "finetune/nn/chunked_cross_entropy.h"
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
  // [B, T] bool: the tokens that an embedding is the mean of; undefined: those of the mask.
  Tensor pooled_tokens = {};
  // [B] int64: the types of the rows' questions in Laya's order, of a model with its head;
  // undefined: all 0, choices.
  Tensor question_types = {};
  // [N] int64, ascending, each b * T + t and at most once: the only tokens whose hidden states are
  // read, so that the end of the last layer may be computed for them alone; undefined: all are,
  // or in Model::logits() those that it is asked for.
  Tensor read_positions = {};
  // For evaluation of a causal model, else null: keys and values of the tokens before input_ids [1,
  // T]; the pass appends its own.
  KeyValueCache* cache = nullptr;
  // The pass is one of the base, without the adapter and its gradients: the reference of losses
  // that compare a model with its start. Not of a model whose adapter trains modules whole.
  bool without_adapter = false;
};

// The hidden states of a pass over [B, T]: [B, T, C], or [1, N, C] with a layout, or of the tokens
// that are read.
struct Encoded {
  Tensor hidden;
  std::shared_ptr<const TokenLayout> layout;
  int64_t rows, length;  // B, T
  Tensor read;           // positions of the tokens, ascending, if not all are there

  // These return float32, which heads read.
  [[nodiscard]] Tensor padded() const;  // [B, T, C], zero at padding that was not computed
  // [N, C] at positions [N], each b * T + t, which are among those that are read.
  [[nodiscard]] Tensor tokens_at(const Tensor& positions) const;
  [[nodiscard]] Tensor first_tokens() const;  // [B, 1, C]
};

// What a model predicts; without one (nullopt), the word at a position: the next one in a decoder
// (is_causal()), a masked one in an encoder.
enum class Head {
  kPretraining,  // masked LM and next sentence: whether the second segment follows the first
  kSequenceClassification,  // logits [B, labels]
  kMultipleChoice,          // logits [B, 1], one row per choice
  kTokenClassification,     // logits [B, T, labels]
  kQuestionAnswering,       // logits [B, T, 2]: start and end of the answer
  kEmbedding,               // vectors [B, C] instead of logits, of ModelConfig::embedding
  kDecision,  // at positions, logits [N, verbalizers] of ModelConfig::jev, or [N, 1] of laya
};

// Whether a model's logits are over the vocabulary; nullopt is the head of a language model.
[[nodiscard]] inline bool predicts_words(std::optional<Head> head) {
  return !head || *head == Head::kPretraining;
}

// The last layer of a language model: logits = W x + b over the vocabulary.
struct LmDecoder {
  Weight weight;         // [V, C]
  Weight bias;           // [V], or undefined
  bool is_tied = false;  // the weight is the word embedding
  double softcap = 0.0;  // c: logits x become c tanh(x / c); 0: no soft-capping
};

// What the last layer reads, and how a chunked loss computes it.
struct Vocabulary {
  Tensor x;  // [N, C]
  LmDecoder decoder;
  ChunkedCrossEntropyOptions options;
};

// A transformer with a head: it encodes, and losses are made of what it returns (task/). Parameters
// have the names that transformers uses in checkpoints. A pass records its backward pass if grad
// mode is on, and has the precision of training if it does, has dropout or leaves out the adapter.
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
  [[nodiscard]] virtual const ModelOptions& options() const = 0;
  [[nodiscard]] virtual std::string architecture() const = 0;  // "RobertaForMaskedLM"
  // Whether there is an adapter that leaves all else as it was (ModelInput::without_adapter).
  [[nodiscard]] virtual bool has_base() const { return false; }

  // Runs the layers.
  [[nodiscard]] virtual Encoded encode(const ModelInput& input) = 0;
  // The head's logits. Over the vocabulary: [N, V] at the given positions [N] (int64, b * T + t,
  // ascending and each at most once, unless the input has read_positions);
  // the head runs on these alone.
  [[nodiscard]] virtual Tensor logits(const ModelInput& input, const Tensor& positions = {}) = 0;
  // The same of hidden states in float32; `positions`: of the hidden states [N, C] in [B, T], if
  // they are not all.
  [[nodiscard]] virtual Tensor head_logits(const ModelInput& input, const Tensor& hidden,
                                           const Tensor& positions = {}) = 0;
  // Of a head over the vocabulary, from hidden states [N, C] at these positions.
  [[nodiscard]] virtual Vocabulary vocabulary(const ModelInput& input, const Tensor& hidden,
                                              const Tensor& positions) = 0;
  // Head::kPretraining: logits [B, 2]: follows, does not follow.
  [[nodiscard]] virtual Tensor next_sentence(const ModelInput& input, const Encoded& encoded) = 0;
};

// Makes a new model: every weight is a function of (seed, its name) with transformers'
// initialisation (normal with initializer_range; biases 0; LayerNorm 1 and 0; the padding's
// embedding 0). Throws Error(kConfig) for a model_type without a class, or without the head.
// Parameters that the forward pass does not use, such as big_bird's pooler under most heads, exist
// but have no gradient. The number of labels is that of config.id2label; question answering always
// has two. big_bird's question answering uses the token types of (question, context) if the input
// has none.
[[nodiscard]] std::unique_ptr<Model> make_model(std::optional<Head> head, const ModelConfig& config,
                                                uint64_t seed, c10::Device device,
                                                const ModelOptions& options = {});
// Whether the language model of a model_type predicts the next word from those before it.
[[nodiscard]] bool is_causal(const ModelConfig& config);
// Whether a model_type has a next-sentence head.
[[nodiscard]] bool has_next_sentence_head(const ModelConfig& config);

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
  std::function<std::optional<QuantizedValues>(const std::string& name)> quantized = {};
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

// Throws Error(kData), which begins with `where`, if a file with these names has more layers of
// Laya's head than the configuration, which would then be computed without them.
void check_head_layers(const ModelConfig& config, const std::vector<std::string>& names,
                       const std::string& where);

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
