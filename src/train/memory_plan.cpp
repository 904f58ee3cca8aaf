// SPDX-License-Identifier: MIT
// N tokens of a micro-batch, C hidden, F intermediate, V vocabulary, L layers, n predicted tokens.
#include "finetune/train/memory_plan.h"

#include <algorithm>
#include <cmath>

#include "finetune/base/error.h"
#include "train/parameter_shapes.h"

namespace finetune {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
// The head's weight is unpacked, and its gradient's products are made, so much at a time.
constexpr int64_t kHeadBlock = 4 * kMiB;
// Freed memory that the allocator cannot use again at once; measured.
constexpr double kFragmentation = 0.04;

int64_t bytes_of(Precision precision) { return precision == Precision::kFloat32 ? 4 : 2; }
int64_t bytes_of(GradientFormat format) { return format == GradientFormat::kFloat32 ? 4 : 2; }
int64_t bytes_of(WeightFormat format) {
  return format == WeightFormat::kFloat32 ? 4 : format == WeightFormat::kSplit ? 3 : 2;
}

bool is_embedding(const std::string& name) {
  return name.find("_embeddings.weight") != std::string::npos;
}

// Moments of `block` values share a 32-bit scale.
int64_t scaled_moments(int64_t count, int64_t block) {
  return 2 * count + 2 * 4 * ((count + block - 1) / block);
}

int64_t state_bytes(const ParameterShape& shape, const OptimizerChoice& optimizer) {
  const int64_t count = shape.count();
  if (optimizer.kind == "adamw") return 8 * count;
  if (optimizer.kind == "adamw_companded_8bit") return scaled_moments(count, 128);
  if (optimizer.kind == "adamw_8bit") {
    const bool wide = count < optimizer.min_8bit_size ||
                      (is_embedding(shape.name) && !optimizer.embeddings_in_8bit);
    return wide ? 8 * count : scaled_moments(count, 256);
  }
  if (optimizer.kind == "adafactor") {
    return shape.sizes.size() < 2 ? 4 * count : 4 * (shape.sizes[0] + shape.sizes[1]);
  }
  FT_CHECK(optimizer.kind == "sgd", "an optimizer without a formula: " + optimizer.kind);
  return optimizer.momentum > 0 ? 4 * count : 0;
}

class Prediction {
 public:
  Prediction(const MemoryWorkload& workload, const MemoryChoices& choices)
      : work_(workload),
        choices_(choices),
        model_(workload.model),
        shapes_(parameter_shapes(workload.model, workload.head)),
        tokens_(choices.micro_batch * workload.choices * workload.length),
        element_(bytes_of(choices.precision)) {
    for (const ParameterShape& shape : shapes_) {
      parameters_ += shape.count();
      largest_ = std::max(largest_, shape.count());
    }
  }

  MemoryParts parts() const {
    MemoryParts parts;
    parts.program = work_.program;
    parts.data = work_.is_device ? 0 : work_.data;
    parts.weights = parameters_ * bytes_of(choices_.weights);
    parts.gradients = gradients();
    for (const ParameterShape& shape : shapes_)
      parts.states += state_bytes(shape, choices_.optimizer);
    parts.activations = kept();
    parts.head = head();
    const int64_t passing = parts.activations + parts.head;
    const int64_t most =
        std::max({parts.activations + layer_backward(), passing, evaluation(), update()});
    parts.temporaries = most - passing + slack(most);
    if (work_.is_device) parts.host = host();
    return parts;
  }

 private:
  [[nodiscard]] int64_t hidden(int64_t element) const {
    return tokens_ * model_.hidden_size * element;
  }
  [[nodiscard]] int64_t intermediate(int64_t element) const {
    return tokens_ * model_.intermediate_size * element;
  }
  [[nodiscard]] int64_t predicted_rows(int64_t tokens) const {
    const double mean = work_.predicted_share * static_cast<double>(tokens);
    return std::min(tokens, static_cast<int64_t>(mean + 2 * std::sqrt(mean)) + 1);
  }

  // Of one layer, for its backward pass: its input, query, key, value, context and the two sums
  // before the norms, the first product of the feed-forward network; and, where that is not
  // computed again, the first norm's output and the activation.
  [[nodiscard]] int64_t layer_state(bool selective) const {
    return selective ? 7 * hidden(element_) + intermediate(element_)
                     : 8 * hidden(element_) + 2 * intermediate(element_);
  }

  // The embeddings' sum, which their norm keeps in float32, and the layers'.
  [[nodiscard]] int64_t kept() const {
    const ActivationCheckpointing& again = choices_.checkpointing;
    const int64_t embeddings = hidden(4);
    const int64_t layers = model_.num_hidden_layers;
    if (!again.enabled) return embeddings + layers * layer_state(false);
    if (again.selective) return embeddings + layers * layer_state(true);
    const int64_t groups = (layers + again.every_n_layers - 1) / again.every_n_layers;
    const int64_t inputs = again.offload && work_.is_device ? 2 : groups;
    return embeddings + inputs * hidden(element_);
  }

  // Beyond what is kept: the output's gradient, and what is computed again; of a group of layers
  // that is computed again as a whole, the states but for the input, which is kept.
  [[nodiscard]] int64_t layer_backward() const {
    const ActivationCheckpointing& again = choices_.checkpointing;
    int64_t bytes = hidden(element_) + products();
    if (!again.enabled) return bytes;
    if (again.selective) return bytes + hidden(element_) + intermediate(element_);
    return bytes + std::min(again.every_n_layers, model_.num_hidden_layers) * layer_state(false);
  }

  // A matrix of a layer in float32: its values or the product that is rounded into its gradient,
  // one after the other; and in half precision both factors of that product.
  [[nodiscard]] int64_t products() const {
    const bool unpacks = choices_.weights != WeightFormat::kFloat32 ||
                         choices_.gradients != GradientFormat::kFloat32;
    const int64_t matrix =
        4 * model_.hidden_size * std::max(model_.hidden_size, model_.intermediate_size);
    const int64_t factors = element_ == 4 ? 0 : hidden(4) + intermediate(4);
    return (unpacks ? matrix : 0) + factors;
  }

  [[nodiscard]] int64_t head() const {
    if (work_.head) return 2 * hidden(4);
    const int64_t rows = predicted_rows(tokens_);
    const int64_t chunk = std::min(rows, choices_.head_rows_per_chunk) * model_.vocab_size * 4;
    const int64_t blocks = (choices_.weights == WeightFormat::kFloat32 ? 0 : kHeadBlock) +
                           (choices_.gradients == GradientFormat::kFloat32 ? 0 : kHeadBlock);
    // Hidden states at the predicted places, the transformation's three steps, and a gradient.
    return chunk + 6 * rows * model_.hidden_size * 4 + 2 * model_.vocab_size * 4 + blocks;
  }

  [[nodiscard]] int64_t gradients() const {
    const int64_t element = bytes_of(choices_.gradients);
    if (!choices_.optimizer_in_backward) return parameters_ * element;
    // The head's weight, made in the forward pass and tied to the embedding, lives until the end;
    // beside it one layer's at most.
    int64_t shared = 0;
    int64_t layer = 0;
    for (const ParameterShape& shape : shapes_) {
      if (shape.name.ends_with("word_embeddings.weight")) shared = shape.count();
      if (shape.name.find(".layer.0.") != std::string::npos) layer += shape.count();
    }
    const bool from_the_start = !work_.head && model_.tie_word_embeddings;
    return element * (from_the_start ? shared + layer : std::max(shared, layer));
  }

  // Logits of all predicted places at once, twice.
  [[nodiscard]] int64_t evaluation() const {
    const int64_t tokens = work_.eval_batch * work_.choices * work_.length;
    const int64_t layer = tokens * (6 * model_.hidden_size + 2 * model_.intermediate_size) * 4;
    const int64_t logits = work_.head ? 0 : 2 * predicted_rows(tokens) * model_.vocab_size * 4;
    return std::max(layer, logits + tokens * model_.hidden_size * 8);
  }

  // A block at a time, but for Adafactor, which needs the whole of a tensor's update.
  [[nodiscard]] int64_t update() const {
    return choices_.optimizer.kind == "adafactor" ? 2 * 4 * largest_ : 4 * kMiB;
  }

  [[nodiscard]] int64_t slack(int64_t bytes) const {
    return static_cast<int64_t>(kFragmentation * static_cast<double>(bytes)) + 2 * kMiB;
  }

  // Beside a device: weights on their way there, a tensor at a time, and the buffer of a save.
  [[nodiscard]] int64_t host() const {
    const ActivationCheckpointing& again = choices_.checkpointing;
    const int64_t groups =
        (model_.num_hidden_layers + again.every_n_layers - 1) / again.every_n_layers;
    const int64_t offloaded = again.enabled && again.offload ? groups * hidden(element_) : 0;
    return work_.program + work_.data + 2 * 4 * largest_ + offloaded;
  }

  const MemoryWorkload& work_;
  const MemoryChoices& choices_;
  const ModelConfig& model_;
  std::vector<ParameterShape> shapes_;
  int64_t tokens_;
  int64_t element_;
  int64_t parameters_ = 0;
  int64_t largest_ = 0;
};

}  // namespace

int64_t MemoryParts::peak() const {
  return program + data + weights + gradients + states + activations + head + temporaries;
}

MemoryParts predict_memory(const MemoryWorkload& workload, const MemoryChoices& choices) {
  FT_CHECK(choices.micro_batch > 0 && workload.length > 0, "a batch without tokens");
  return Prediction(workload, choices).parts();
}

int64_t largest_micro_batch(const MemoryWorkload& workload, MemoryChoices choices, int64_t bytes) {
  const auto fits = [&](int64_t size) {
    choices.micro_batch = size;
    return predict_memory(workload, choices).peak() <= bytes;
  };
  int64_t fitting = 0;
  int64_t beyond = 1;
  while (beyond < (1 << 20) && fits(beyond)) {
    fitting = beyond;
    beyond *= 2;
  }
  while (beyond - fitting > 1) {
    const int64_t middle = (fitting + beyond) / 2;
    (fits(middle) ? fitting : beyond) = middle;
  }
  return fitting;
}

MemoryChoices choices_of(const TrainingArgs& args) {
  MemoryChoices choices{.micro_batch = args.per_device_train_batch_size,
                        .checkpointing = checkpointing_of(args),
                        .optimizer = optimizer_of(args),
                        .optimizer_in_backward = args.optimizer_in_backward};
  if (args.param_dtype == "bfloat16") choices.weights = WeightFormat::kBFloat16;
  if (args.param_dtype == "bfloat16+int8") choices.weights = WeightFormat::kSplit;
  if (args.grad_accum_dtype == "bfloat16") choices.gradients = GradientFormat::kBFloat16;
  if (args.bf16) choices.precision = Precision::kBFloat16;
  if (args.fp16) choices.precision = Precision::kFloat16;
  return choices;
}

std::vector<std::pair<std::string, int64_t>> named_parts(const MemoryParts& parts) {
  return {{"weights", parts.weights},
          {"gradients", parts.gradients},
          {"optimizer states", parts.states},
          {"activations", parts.activations},
          {"head", parts.head},
          {"temporaries", parts.temporaries},
          {"data", parts.data},
          {"libtorch and program", parts.program}};
}

}  // namespace finetune
