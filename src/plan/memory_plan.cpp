// SPDX-License-Identifier: MIT
// N tokens of a micro-batch, C hidden, F intermediate, V vocabulary, L layers, n predicted tokens.
#include "finetune/plan/memory_plan.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <string_view>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/distributed/owned_tensors.h"
#include "finetune/distributed/shard_sum.h"
#include "finetune/model/parameter_shapes.h"
#include "finetune/optim/optimizer_kind.h"

namespace finetune {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
// Bytes of the head's weight that are unpacked at a time; the products of its gradient need as
// many.
constexpr int64_t kHeadBlock = 4 * kMiB;
// Fraction of temporary memory lost to fragmentation; measured.
constexpr double kHoles = 0.02;

int64_t bytes_of(Precision precision) { return precision == Precision::kFloat32 ? 4 : 2; }
int64_t bytes_of(GradientFormat format) { return format == GradientFormat::kFloat32 ? 4 : 2; }
int64_t bytes_of(WeightFormat format) {
  return format == WeightFormat::kFloat32 ? 4 : format == WeightFormat::kSplit ? 3 : 2;
}

// Values measured by a dry run of the model.
struct MeasuredModel {
  std::vector<ParameterShape> shapes;
  KeptBytes kept, kept_selectively;  // per row
};

// Cached, because every step of a search asks for the same model.
std::shared_ptr<const MeasuredModel> measure(const MemoryWorkload& work, Precision precision) {
  static std::mutex mutex;
  static std::string measured;
  static std::shared_ptr<const MeasuredModel> model;
  const int64_t head = work.head ? static_cast<int64_t>(*work.head) : -1;
  const std::string asked = format_text("{} {} {} {}", model_config_json(work.model, ""), head,
                                        work.length, static_cast<int64_t>(precision));
  const std::lock_guard lock(mutex);
  if (asked != measured) {
    const auto kept = [&](bool selective) {
      return kept_for_backward(work.model, work.head, work.length,
                               {.precision = precision, .selective = selective});
    };
    model = std::make_shared<const MeasuredModel>(
        MeasuredModel{.shapes = parameter_shapes(work.model, work.head),
                      .kept = kept(false),
                      .kept_selectively = kept(true)});
    measured = asked;
  }
  return model;
}

class Prediction {
 public:
  Prediction(const MemoryWorkload& workload, const MemoryChoices& choices)
      : work_(workload),
        choices_(choices),
        model_(workload.model),
        again_(choices.checkpointing),
        measured_(measure(workload, choices.precision)),
        shapes_(measured_->shapes),
        tokens_(choices.micro_batch * workload.choices * workload.length),
        element_(bytes_of(choices.precision)),
        is_causal_(is_causal(workload.model)) {
    for (const ParameterShape& shape : shapes_) {
      parameters_ += shape.count();
      largest_ = std::max(largest_, shape.count());
      for (const char* words : {"word_embeddings.weight", "embed_tokens.weight", ".wte.weight",
                                "tok_embeddings.weight"}) {
        if (shape.name.ends_with(words)) embedding_ = shape.count();
      }
    }
    layer_ = measured_->kept.layer_parameters;
    norms_first_ = is_causal_ || has_parameter("mlp.Wi.weight");
  }

  MemoryParts parts() const {
    Moment most;
    for (Moment moment : {after_forward(), in_head(), in_layer_backward(), in_last_layer_backward(),
                          in_embedding_backward()}) {
      moment.temporaries += held_factors();
      moment.activations *= shards_at_once();
      moment.temporaries *= shards_at_once();
      if (moment.bytes() > most.bytes()) most = moment;
    }
    if (elsewhere().bytes() > most.bytes()) most = elsewhere();
    // On a device program and driver context are not counted: its free memory was read when both
    // were loaded.
    MemoryParts parts{.program = work_.is_device ? 0 : work_.program, .gradients = most.gradients};
    parts.data = work_.is_device ? 0 : work_.data;
    parts.weights = parameters_ * bytes_of(choices_.weights);
    parts.states = states();
    parts.gradients += (gradient_copies() - 1) * gradients(parameters_);
    // Temporary memory of another moment than the head's also counts as the head's, up to its size.
    parts.activations = most.activations;
    const int64_t heads = shards_at_once() * head();
    parts.head = std::min(most.activations == 0 ? 0 : heads, most.temporaries);
    parts.temporaries = most.temporaries - parts.head + slack(most.activations + most.temporaries);
    if (work_.is_device) {
      parts.host = host();
    } else {
      parts.temporaries += std::max<int64_t>(0, work_.start - parts.peak());
    }
    return parts;
  }

 private:
  // Bytes allocated at one moment in addition to weights and states.
  struct Moment {
    int64_t gradients = 0;
    int64_t activations = 0;
    int64_t temporaries = 0;
    [[nodiscard]] int64_t bytes() const { return gradients + activations + temporaries; }
  };

  [[nodiscard]] int64_t rows() const { return choices_.micro_batch * work_.choices; }
  [[nodiscard]] int64_t hidden(int64_t element) const {
    return tokens_ * model_.hidden_size * element;
  }
  [[nodiscard]] int64_t intermediate(int64_t element) const {
    return tokens_ * model_.intermediate_size * element;
  }
  [[nodiscard]] int64_t predicted_rows(int64_t tokens) const {
    // A row's first and last token are special and not predicted; the CPU's plans count them.
    const bool has_specials = work_.is_device && work_.predicted_share < 1.0 && work_.length > 2;
    const int64_t words = has_specials ? tokens / work_.length * (work_.length - 2) : tokens;
    const double mean = work_.predicted_share * static_cast<double>(words);
    // Each token is predicted or not; the CPU's plans keep the wider margin that they were made
    // with.
    const double variance = work_.is_device ? mean * (1 - work_.predicted_share) : mean;
    return std::min(tokens, static_cast<int64_t>(mean + 2 * std::sqrt(variance)) + 1);
  }
  // Whether gradients are made in the backward pass only, for one micro-batch.
  [[nodiscard]] bool frees_gradients() const {
    return !work_.is_device && work_.processes == 1 && !work_.sums_shards && shards() == 1;
  }
  // All of them, or those of parameters whose backward pass is under way.
  [[nodiscard]] int64_t gradients(int64_t parameters) const {
    const bool made_late = choices_.optimizer_in_backward || frees_gradients();
    return bytes_of(choices_.gradients) * (made_late ? parameters : parameters_);
  }
  // At the end of the backward pass.
  [[nodiscard]] int64_t last_gradients() const {
    return gradients(choices_.optimizer_in_backward ? embedding_ : parameters_);
  }
  // Values of the head's weight if it is tied to the embedding: its gradient is allocated in the
  // forward pass and lives until the end.
  [[nodiscard]] int64_t tied() const {
    return predicts_words(work_.head) && model_.tie_word_embeddings ? embedding_ : 0;
  }
  [[nodiscard]] bool keeps_groups() const { return again_.enabled && !again_.selective; }
  [[nodiscard]] int64_t groups() const {
    return (model_.num_hidden_layers + again_.every_n_layers - 1) / again_.every_n_layers;
  }

  // Bytes of all states; with sharded states, of the rank that has the most.
  [[nodiscard]] int64_t states() const {
    const int64_t processes = work_.divides_states ? work_.processes : 1;
    std::vector<int64_t> bytes;
    std::vector<int64_t> with_weights;
    const OptimizerOptions options = {.kind = choices_.optimizer.kind,
                                      .arguments = choices_.optimizer.arguments};
    for (const ParameterShape& shape : shapes_) {
      bytes.push_back(state_bytes(options, shape.name, shape.sizes));
      with_weights.push_back(bytes.back() + shape.count() * bytes_of(choices_.weights));
    }
    const std::vector<int64_t> owners = balanced_owners(with_weights, processes);
    std::vector<int64_t> had(static_cast<size_t>(processes), 0);
    for (size_t i = 0; i < bytes.size(); ++i) had[static_cast<size_t>(owners[i])] += bytes[i];
    return *std::ranges::max_element(had);
  }
  // Number of logical shards of a process.
  [[nodiscard]] int64_t shards() const { return work_.effective_batch / choices_.micro_batch; }
  [[nodiscard]] int64_t shards_at_once() const {
    if (!work_.sums_shards) return 1;
    return std::max<int64_t>(1, std::min(work_.batches_at_once, shards()));
  }
  // Number of gradient copies: partial sums of logical shards that a process keeps, and the
  // gradients that are computed at the same time or into which they are summed.
  [[nodiscard]] int64_t gradient_copies() const {
    if (!work_.sums_shards || shards() * work_.processes == 1) return 1;
    int64_t most = 1;
    for (int64_t rank = 0; rank < work_.processes; ++rank) {
      for (int64_t done = 0; done <= shards(); done += shards_at_once()) {
        const auto sums = ShardSum::subtrees({.first = rank * shards(), .count = done}).size();
        const int64_t beside = std::clamp<int64_t>(shards() - done, 1, shards_at_once());
        most = std::max(most, static_cast<int64_t>(sums) + beside);
      }
      const auto all = ShardSum::subtrees({.first = rank * shards(), .count = shards()}).size();
      most = std::max(most, static_cast<int64_t>(all) + 1);
    }
    return most;
  }

  // Bytes kept of one layer for its backward pass; if `selective`, without what is cheap to
  // recompute.
  [[nodiscard]] int64_t layer_state(bool selective) const {
    const int64_t sums = is_block_sparse() ? 4 * tokens_ * model_.num_attention_heads : 0;
    const KeptBytes& kept = selective ? measured_->kept_selectively : measured_->kept;
    return sums + rows() * kept.layer + kept.shared_layer;
  }

  [[nodiscard]] bool has_parameter(std::string_view end) const {
    return std::ranges::any_of(
        shapes_, [&](const ParameterShape& shape) { return shape.name.ends_with(end); });
  }
  [[nodiscard]] bool is_gated() const {
    return has_parameter("gate_proj.weight") || has_parameter("gate_up_proj.weight") ||
           has_parameter("mlp.Wi.weight");
  }
  [[nodiscard]] bool has_gate_kernel() const {
    return !work_.is_device && (model_.hidden_act == "silu" || model_.hidden_act == "swish");
  }
  // Between layers.
  [[nodiscard]] int64_t stream() const { return hidden(norms_first_ ? 4 : element_); }

  // Bytes kept of the embeddings and of all layers; with groups of layers, of their inputs.
  [[nodiscard]] int64_t kept() const {
    const KeptBytes& measured = measured_->kept;
    // A decoder's last norm belongs to the head, which keeps the stream that it reads.
    const int64_t embeddings =
        is_causal_ ? hidden(4) : rows() * measured.embeddings + measured.shared_embeddings;
    if (!keeps_groups()) {
      return embeddings + model_.num_hidden_layers * layer_state(again_.enabled);
    }
    const int64_t inputs = again_.offload && work_.is_device ? 2 : groups();
    return embeddings + inputs * stream();
  }

  // After the last layer: its output and, in half precision, the embeddings in float32. If layers
  // keep nothing, also the temporaries of the last layer.
  [[nodiscard]] Moment after_forward() const {
    const int64_t wide_input = element_ == 4 ? 0 : hidden(4);
    int64_t layer = std::max(hidden(element_), matrix());
    if (keeps_groups()) layer = 4 * hidden(element_) + intermediate(element_) + matrix();
    // Temporaries of the last feed-forward network: gate, up and their product, or one tensor.
    const int64_t network = (is_gated() ? 3 : 1) * intermediate(element_);
    if (norms_first_) layer = std::max(layer, 2 * stream() + network + matrix());
    return {gradients(0), kept(), wide_input + layer + disentangled() + device_kernels(false)};
  }

  [[nodiscard]] Moment in_head() const {
    const bool is_untied = predicts_words(work_.head) && !model_.tie_word_embeddings;
    return {gradients(is_untied ? embedding_ : tied()), kept(), head()};
  }

  // In addition to what is kept: the gradient of the output, and what is recomputed. A group of
  // layers is recomputed as a whole: the states of its layers without the input, which is kept.
  [[nodiscard]] Moment in_layer_backward() const {
    const int64_t here = hidden(element_);
    int64_t bytes =
        here + std::max({products(), block_sparse(), disentangled()}) + device_kernels(true);
    if (again_.enabled && again_.selective) bytes += intermediate(element_);
    // A gated network's: the product again, its gradient, both factors' gradients; SiLU's has a
    // kernel that writes the factors' gradients into their memory, and the product's gradient takes
    // the product's. Another's gradient takes the memory of the activation, but for the first
    // product's.
    const int64_t network =
        norms_first_ ? (is_gated() && !has_gate_kernel() ? 4 : 1) * intermediate(element_) : 0;
    bytes += network;
    if (keeps_groups()) {
      const int64_t layers = std::min(again_.every_n_layers, model_.num_hidden_layers);
      bytes = layers * layer_state(false) +
              std::max({here, products(), block_sparse(), disentangled()}) + device_kernels(true) +
              network;
    }
    return {gradients(tied() + layer_), kept(), bytes};
  }

  // Of the first layer, the last that the backward pass comes to: gradients took the memory of the
  // activations after it.
  [[nodiscard]] Moment in_last_layer_backward() const {
    Moment moment = in_layer_backward();
    moment.gradients = std::max(moment.gradients, last_gradients());
    moment.activations /= std::max<int64_t>(1, model_.num_hidden_layers);
    return moment;
  }

  // The layers' are freed; the norm's input is there, what comes to it and what it gives on, and
  // where gradients are rounded the rows that are summed first. A gradient that is made only here
  // needs one hole: it finds none in what the layers left unless that was a good deal more.
  [[nodiscard]] Moment in_embedding_backward() const {
    const int64_t summed = choices_.gradients == GradientFormat::kFloat32 ? 0 : 3 * hidden(4);
    const int64_t fresh = choices_.optimizer_in_backward && tied() == 0 ? gradients(embedding_) : 0;
    const bool finds_room = 10 * fresh <= 8 * kept();
    return {last_gradients(), finds_room ? 0 : kept(), 3 * hidden(4) + summed};
  }

  // Outside of forward and backward passes: the larger of the update and of an evaluation, which
  // needs twice the logits of all predicted positions or of a chunk.
  [[nodiscard]] Moment elsewhere() const {
    const int64_t tokens = work_.batches_at_once * work_.eval_batch * work_.choices * work_.length;
    const int64_t layer = tokens * (5 * model_.hidden_size + model_.intermediate_size) * 4;
    const int64_t rows = work_.scores_in_chunks ? std::min(predicted_rows(tokens),
                                                           head_rows(choices_, work_.has_kernels))
                                                : predicted_rows(tokens);
    const int64_t logits = predicts_words(work_.head) ? 2 * rows * model_.vocab_size * 4 : 0;
    const int64_t evaluation = std::max(layer, logits + tokens * model_.hidden_size * 4);
    const Moment evaluates = {gradients(0), 0, evaluation};
    const Moment updates = {last_gradients(), 0, update()};
    return evaluates.bytes() > updates.bytes() ? evaluates : updates;
  }

  // Bytes of a layer's largest matrix in float32: its unpacked values, or a product that is rounded
  // into its gradient.
  [[nodiscard]] int64_t layer_matrix() const {
    return 4 * model_.hidden_size * std::max(model_.hidden_size, model_.intermediate_size);
  }
  [[nodiscard]] int64_t matrix() const {
    const bool is_there = choices_.weights == WeightFormat::kFloat32 || takes_weights_as_they_are();
    return is_there ? 0 : layer_matrix();
  }

  // Bytes of one product at a time; in half precision also both factors of a gradient's product.
  [[nodiscard]] int64_t products() const {
    const bool rounds = choices_.gradients != GradientFormat::kFloat32;
    const int64_t factors = element_ == 4 || work_.has_kernels ? 0 : hidden(4) + intermediate(4);
    return std::max(matrix(), (rounds ? layer_matrix() : 0) + factors);
  }

  [[nodiscard]] bool is_block_sparse() const {
    const int64_t longest_full = (5 + 2 * model_.num_random_blocks) * model_.block_size;
    return model_.attention_type == "block_sparse" && work_.length > longest_full;
  }

  // Block-sparse attention's backward pass: the gradient of the context, and in float32 nine
  // tensors of one head for each thread (for each head if there are fewer).
  [[nodiscard]] int64_t block_sparse() const {
    if (!is_block_sparse()) return 0;
    if (work_.is_device) return hidden(element_) + 8 * hidden(4);
    const int64_t rows =
        (work_.length + model_.block_size - 1) / model_.block_size * model_.block_size;
    const int64_t width = (model_.hidden_size / model_.num_attention_heads + 15) / 16 * 16;
    const int64_t heads = tokens_ / work_.length * model_.num_attention_heads;
    const int64_t threads = work_.sums_shards ? 1 : work_.threads;
    return hidden(element_) + std::min(heads, threads) * 9 * rows * width * 4;
  }

  // Disentangled attention: for each thread, on a device for each head, matrices [T, T] (scores,
  // probabilities, factors, gradients) and [T, 2T] in float32, and the gradients of all distances.
  [[nodiscard]] int64_t disentangled() const {
    if (!has_parameter("rel_embeddings.weight")) return 0;
    const int64_t heads = model_.num_attention_heads;
    const int64_t threads = work_.sums_shards ? 1 : work_.threads;
    const int64_t at_once = work_.is_device ? heads : std::min(heads, threads);
    const int64_t matrices = 12 * work_.length * work_.length * 4;
    return at_once * matrices + 4 * 2 * work_.length * model_.hidden_size * 4;
  }

  // Weights that a device keeps in half precision for its products, during an update.
  [[nodiscard]] int64_t held_factors() const {
    if (!work_.is_device || element_ == 4 || choices_.optimizer_in_backward) return 0;
    if (takes_weights_as_they_are()) return 0;
    int64_t values = tied();
    for (const ParameterShape& shape : shapes_) {
      if (shape.sizes.size() == 2 && !shape.name.ends_with("embeddings.weight")) {
        values += shape.count();
      }
    }
    return values * element_;
  }
  [[nodiscard]] bool takes_weights_as_they_are() const {
    return work_.is_device && choices_.weights != WeightFormat::kFloat32 &&
           choices_.precision == Precision::kBFloat16;
  }

  // What a device takes in a layer where the CPU's kernels over rows take nothing.
  [[nodiscard]] int64_t device_kernels(bool backward) const {
    if (!work_.is_device) return 0;
    return work_.has_kernels ? compiled_kernels(backward) : reference_kernels();
  }

  // Of some samples by heads: queries, keys and values, in the backward pass the context's gradient
  // and the values' too; scores once or twice. And sums over rows that wait for each other.
  [[nodiscard]] int64_t compiled_kernels(bool backward) const {
    constexpr int64_t kScoreBytes = int64_t{32} << 20;  // as cuda::attention() takes them
    constexpr int64_t kParts = 256;                     // as cuda::RowParts
    const int64_t sample = model_.num_attention_heads * work_.length * work_.length * element_;
    const int64_t samples =
        std::clamp<int64_t>(kScoreBytes / sample, 1, std::max<int64_t>(1, tokens_ / work_.length));
    const int64_t by_heads = samples * work_.length * model_.hidden_size * element_;
    const int64_t attention = (backward ? 5 : 3) * by_heads + (backward ? 2 : 1) * samples * sample;
    const int64_t columns = 9 * model_.hidden_size + model_.intermediate_size;
    // Those of one layer: when more of them wait, other layers are done.
    const int64_t sums = is_causal_ ? 0 : 4 * std::min(kParts, tokens_) * columns;
    return attention + (backward ? sums : 0);
  }

  // By torch's operators masks of dropout are made of 64-bit numbers.
  [[nodiscard]] int64_t reference_kernels() const {
    constexpr int64_t kBytesOfAMask = 64;
    constexpr int64_t kScoresAtOnce = int64_t{1} << 22;  // as plain::attention() takes them
    const int64_t scores_of_row = model_.num_attention_heads * work_.length * work_.length;
    const int64_t scores = tokens_ / work_.length * scores_of_row;
    // Elements of one block that attends to all, or of all rows of a sample.
    const int64_t fewest = is_block_sparse()
                               ? tokens_ * model_.num_attention_heads * model_.block_size
                               : scores_of_row;
    const int64_t at_once = std::min(scores, std::max(kScoresAtOnce, fewest));
    return std::max(kBytesOfAMask * std::max(at_once, tokens_ * model_.hidden_size),
                    3 * intermediate(4));
  }

  [[nodiscard]] int64_t head() const {
    if (!predicts_words(work_.head)) {
      // In float32, and once more if dropout is applied to every token.
      return work_.head == Head::kTokenClassification ? 2 * hidden(4) : hidden(4);
    }
    const int64_t rows = predicted_rows(tokens_);
    const int64_t most = loss_rows_per_chunk(model_, head_rows(choices_, work_.has_kernels));
    const int64_t chunks = (rows + most - 1) / most;
    const int64_t chunk = (rows + chunks - 1) / chunks * model_.vocab_size * 4;
    const bool is_whole = choices_.weights == WeightFormat::kFloat32 || takes_weights_as_they_are();
    const int64_t rounded =
        is_whole && work_.is_device ? std::min(4 * kHeadBlock, 4 * embedding_) : kHeadBlock;
    const int64_t blocks = (is_whole ? 0 : kHeadBlock) +
                           (choices_.gradients == GradientFormat::kFloat32 ? 0 : rounded);
    // A device in half precision keeps a copy of the logits.
    const int64_t copies = work_.is_device && element_ < 4 ? chunk / 4 * element_ : 0;
    // Hidden states at the predicted places, the transformation's three steps, and a gradient.
    return chunk + copies + 5 * rows * model_.hidden_size * 4 + 2 * model_.vocab_size * 4 + blocks;
  }

  // Update in chunks: gradient, weight, two moments. On a device AdamW in float32 is one call
  // without temporary memory; other formats need rounding and codes (measured, in bytes per value).
  [[nodiscard]] int64_t update() const {
    if (!work_.is_device) return 4 * 4 * kMiB / 4;
    if (work_.has_kernels) return 0;  // lists of parameters, in registers
    const bool is_wide = choices_.weights == WeightFormat::kFloat32 &&
                         choices_.gradients == GradientFormat::kFloat32;
    if (is_wide && choices_.optimizer.kind == "adamw") return 0;
    constexpr int64_t kChunk = int64_t{1} << 22;  // plain::kKernels.chunk_values
    const int64_t bytes = choices_.weights == WeightFormat::kFloat32 ? 20 : 66;
    return bytes * std::min(largest_, kChunk);
  }

  // Fragmentation of the pool of large blocks, small tensors, and buffers of batches, which are in
  // host memory.
  [[nodiscard]] int64_t slack(int64_t bytes) const {
    if (work_.has_kernels) return 0;  // few and large tensors: what is allocated is counted
    const auto holes = static_cast<int64_t>(kHoles * static_cast<double>(bytes));
    return holes + (work_.is_device ? 0 : 4 * kMiB);
  }

  // Host memory when training on a device: one weight tensor being copied there, and the buffer of
  // a save.
  [[nodiscard]] int64_t host() const {
    const int64_t offloaded = keeps_groups() && again_.offload ? groups() * hidden(element_) : 0;
    return work_.program + work_.data + 2 * 4 * largest_ + offloaded;
  }

  const MemoryWorkload& work_;
  const MemoryChoices& choices_;
  const ModelConfig& model_;
  const ActivationCheckpointing& again_;
  std::shared_ptr<const MeasuredModel> measured_;
  const std::vector<ParameterShape>& shapes_;
  int64_t tokens_;
  int64_t element_;
  bool is_causal_;
  bool norms_first_ = false;  // norms before the sublayers
  int64_t parameters_ = 0;
  int64_t largest_ = 0;
  int64_t embedding_ = 0;
  int64_t layer_ = 0;
};

}  // namespace

int64_t MemoryParts::peak() const {
  return program + data + weights + gradients + states + activations + head + temporaries;
}

int64_t largest_batches_at_once(MemoryWorkload workload, const MemoryChoices& choices,
                                int64_t bytes) {
  workload.batches_at_once = std::max<int64_t>(1, workload.threads);
  const auto most = static_cast<double>(bytes) / (1.0 + kMemoryMargin);
  while (workload.batches_at_once > 1 &&
         static_cast<double>(predict_memory(workload, choices).peak()) > most) {
    --workload.batches_at_once;
  }
  return workload.batches_at_once;
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
