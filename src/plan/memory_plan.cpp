// SPDX-License-Identifier: MIT
// What parts and kernels allocate they declare themselves (nn/scratch.h, kernels/layer_scratch.h);
// a dry run of the model adds it up. Here these sums are put together to the moments of an update.
#include "finetune/plan/memory_plan.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/distributed/owned_tensors.h"
#include "finetune/distributed/shard_sum.h"
#include "finetune/model/parameter_shapes.h"
#include "finetune/nn/chunked_cross_entropy.h"
#include "finetune/nn/linear.h"
#include "finetune/optim/optimizer_kind.h"
#include "finetune/params/gradients.h"

namespace finetune {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
// Fraction of temporary memory lost to fragmentation; measured.
constexpr double kHoles = 0.02;

int64_t bytes_of(Precision precision) { return precision == Precision::kFloat32 ? 4 : 2; }

// Values measured by a dry run of the model.
struct MeasuredModel {
  std::vector<ParameterShape> shapes;
  KeptBytes kept, kept_selectively;  // per row
};

kernels::KernelTable table_of(const MemoryWorkload& work) {
  if (!work.is_device) return kernels::KernelTable::kCpu;
  return work.has_kernels ? kernels::KernelTable::kCuda : kernels::KernelTable::kPlain;
}

int64_t threads_of(const MemoryWorkload& work) { return work.sums_shards ? 1 : work.threads; }

// What of an adapter decides about parameters and memory.
std::string text_of(const nn::LoraConfig& lora) {
  const int64_t flags = int64_t{lora.lora_dropout > 0} + 2 * int64_t{lora.use_dora} +
                        4 * int64_t{lora.ensure_weight_tying};
  std::string text = format_text("{} {} {}", lora.r, flags, lora.bias);
  for (const std::vector<std::string>* names :
       {&lora.target_modules.names, &lora.exclude_modules.names, &lora.modules_to_save}) {
    text += "; " + join(*names);
  }
  for (const auto& [pattern, rank] : lora.rank_pattern)
    text += format_text("; {} {}", pattern, rank);
  for (const int64_t layer : lora.layers_to_transform) text += format_text("; {}", layer);
  return text;
}

// Cached, because every step of a search asks for the same model.
std::shared_ptr<const MeasuredModel> measure(const MemoryWorkload& work, Precision precision) {
  static std::mutex mutex;
  static std::string measured;
  static std::shared_ptr<const MeasuredModel> model;
  const int64_t head = work.head ? static_cast<int64_t>(*work.head) : -1;
  const nn::Scratch where = {.table = table_of(work), .threads = threads_of(work)};
  const std::string asked = format_text(
      "{} {} {} {} {} {} {} {}", model_config_json(work.model, ""),
      work.model.lora ? text_of(*work.model.lora) : "", join(work.freeze), head, work.length,
      static_cast<int64_t>(precision), static_cast<int64_t>(where.table), where.threads);
  const std::lock_guard lock(mutex);
  if (asked != measured) {
    const auto kept = [&](bool selective) {
      return kept_for_backward(work.model, work.head, work.length,
                               {.precision = precision,
                                .checkpointing = {.enabled = selective, .selective = selective},
                                .freeze = work.freeze},
                               where);
    };
    model = std::make_shared<const MeasuredModel>(
        MeasuredModel{.shapes = parameter_shapes(work.model, work.head, work.freeze),
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
        scratch_(measured_->kept.scratch),
        tokens_(choices.micro_batch * workload.choices * workload.length),
        element_(bytes_of(choices.precision)) {
    for (const ParameterShape& shape : shapes_) {
      parameters_ += shape.count();
      largest_ = std::max(largest_, shape.count());
      if (shape.trains) trained_ += shape.count();
      if (shape.trains && shape.name.ends_with(".lora_embedding_A")) {
        embedding_sums_ = std::max(embedding_sums_, int64_t{2} * 4 * shape.count());
      }
      if (shape.role != ParameterRole::kWordEmbedding) continue;
      embedding_ = shape.count();
      trains_embedding_ = shape.trains;
    }
    layer_ = measured_->kept.layer_parameters;
    kernels_ = kernels::layer_scratch(table_of(work_), layer_sizes());
  }

  [[nodiscard]] MemoryParts parts() const {
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
    for (const ParameterShape& shape : shapes_) parts.weights += weight_bytes(shape);
    parts.states = states();
    parts.gradients += (gradient_copies() - 1) * gradients(trained_);
    // Temporary memory of another moment than the head's also counts as the head's, up to its size.
    parts.activations = most.activations;
    const int64_t heads = shards_at_once() * head();
    parts.head = std::min(most.activations == 0 ? 0 : heads, most.temporaries);
    parts.temporaries = most.temporaries - parts.head + slack(most.activations + most.temporaries);
    parts.temporaries += work_.workspace;
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
  [[nodiscard]] kernels::LayerSizes layer_sizes() const {
    return {.tokens = tokens_,
            .length = work_.length,
            .hidden = model_.hidden_size,
            .intermediate = scratch_.activation / (work_.length * element_),
            .heads = scratch_.heads,
            .block = scratch_.block,
            .sums = scratch_.sums,
            .element = element_,
            .threads = threads_of(work_),
            .flash = has_flash(),
            .tiled = has_tiles()};
  }
  // Of the attention that it serves.
  [[nodiscard]] bool has_flash() const {
    const bool drops = model_.attention_probs_dropout_prob > 0 && !is_causal(model_);
    const DecoderConfig& decoder = model_.decoder;
    const bool refuses = drops || (is_causal(model_) && decoder.attention_dropout > 0) ||
                         decoder.attn_logit_softcapping || scratch_.block > 0;
    return work_.has_flash && !refuses && (is_causal(model_) || work_.length > kernels::kShortRows);
  }
  // Of attention that computes its heads together, for some of the rows at a time.
  [[nodiscard]] int64_t by_head() const {
    return scratch_.by_head * std::min(scratch_.sequences_at_once, rows());
  }
  [[nodiscard]] bool has_tiles() const {
    return work_.has_tiles && element_ == 2 && scratch_.fits_tiles && scratch_.block == 0 &&
           !has_flash();
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
    return bytes_of(choices_.gradients) * (made_late ? std::min(parameters, trained_) : trained_);
  }
  // At the end of the backward pass.
  [[nodiscard]] int64_t last_gradients() const {
    const int64_t last = trains_embedding_ ? embedding_ : 0;
    return gradients(choices_.optimizer_in_backward ? last : trained_);
  }
  // Values of the head's weight if it is tied to the embedding: its gradient is allocated in the
  // forward pass and lives until the end.
  [[nodiscard]] int64_t tied() const {
    if (!trains_embedding_) return 0;
    return predicts_words(work_.head) && model_.tie_word_embeddings ? embedding_ : 0;
  }
  [[nodiscard]] bool keeps_groups() const { return again_.group() > 0; }
  [[nodiscard]] int64_t groups() const {
    return (model_.num_hidden_layers + again_.every_n_layers - 1) / again_.every_n_layers;
  }

  // Bytes of a parameter's values.
  [[nodiscard]] int64_t weight_bytes(const ParameterShape& shape) const {
    const WeightFormat format =
        shape.is_base ? work_.base.of(shape.name, shape.role) : choices_.weights;
    return static_cast<int64_t>(static_cast<double>(shape.count()) * traits_of(format).bytes);
  }

  // Bytes of all states; with sharded states, of the rank that has the most.
  [[nodiscard]] int64_t states() const {
    const int64_t processes = work_.divides_states ? work_.processes : 1;
    std::vector<int64_t> bytes;
    std::vector<int64_t> with_weights;
    const OptimizerOptions options = {.kind = choices_.optimizer.kind,
                                      .arguments = choices_.optimizer.arguments};
    for (const ParameterShape& shape : shapes_) {
      bytes.push_back(shape.trains ? state_bytes(options, shape.role, shape.sizes) : 0);
      with_weights.push_back(bytes.back() + weight_bytes(shape));
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
    const KeptBytes& kept = selective ? measured_->kept_selectively : measured_->kept;
    return rows() * kept.layer + kept.shared_layer;
  }

  // Bytes kept of the embeddings and of all layers; with groups of layers, of their inputs.
  [[nodiscard]] int64_t kept() const {
    const KeptBytes& measured = measured_->kept;
    const KeptBytes& with_frozen = again_.enabled ? measured_->kept_selectively : measured;
    if (with_frozen.whole && !keeps_groups()) {
      return rows() * *with_frozen.whole + *with_frozen.shared_whole;
    }
    const int64_t embeddings = rows() * measured.embeddings + measured.shared_embeddings;
    if (!keeps_groups()) {
      return embeddings + model_.num_hidden_layers * layer_state(again_.enabled);
    }
    const int64_t inputs = again_.offload && work_.is_device ? 2 : groups();
    return embeddings + inputs * rows() * scratch_.stream;
  }

  // After the last layer: its output and, in half precision, the embeddings in float32. If layers
  // keep nothing, also the temporaries of the last layer.
  [[nodiscard]] Moment after_forward() const {
    const int64_t wide_input = element_ == 4 ? 0 : hidden(4);
    int64_t layer = std::max(hidden(element_), matrix());
    const bool has_unkept_layers = keeps_groups() || measured_->kept.whole;
    if (has_unkept_layers) layer = std::max(layer, rows() * scratch_.unkept + matrix());
    if (scratch_.forward > 0) layer = std::max(layer, rows() * scratch_.forward + matrix());
    layer += rows() * scratch_.adapter;
    return {gradients(0), kept(), wide_input + layer + by_head() + kernels_.forward};
  }

  [[nodiscard]] Moment in_head() const {
    const bool is_untied = predicts_words(work_.head) && !model_.tie_word_embeddings;
    return {gradients(is_untied ? embedding_ : tied()), kept(), head()};
  }

  // In addition to what is kept: the gradient of the output, and what is recomputed. A group of
  // layers is recomputed as a whole: the states of its layers without the input, which is kept.
  [[nodiscard]] Moment in_layer_backward() const {
    const int64_t here = hidden(element_);
    // One at a time: a matrix product or an attention.
    const int64_t largest = std::max({products(), kernels_.block_backward, by_head()});
    const int64_t others = kernels_.backward + rows() * (scratch_.backward + scratch_.adapter);
    int64_t bytes = here + largest + others;
    if (again_.keeps_products()) bytes += rows() * scratch_.rebuilt;
    if (keeps_groups()) {
      const int64_t layers = std::min(again_.every_n_layers, model_.num_hidden_layers);
      bytes = layers * layer_state(false) + std::max(here, largest) + others;
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

  // Activations of all layers are freed. Alive: the norm's input, its gradient and its result, and
  // where gradients are rounded the rows that are summed first. A gradient allocated only here
  // reuses a freed block only if that block is at least 1.25 times as large.
  [[nodiscard]] Moment in_embedding_backward() const {
    if (!trains_embedding_ && embedding_sums_ > 0) {
      return {last_gradients(), 0, 3 * hidden(4) + embedding_sums_};
    }
    if (!trains_embedding_) return {last_gradients(), 0, 0};
    const int64_t summed = choices_.gradients == GradientFormat::kFloat32 ? 0 : 3 * hidden(4);
    const int64_t fresh = choices_.optimizer_in_backward && tied() == 0 ? gradients(embedding_) : 0;
    const bool finds_room = 10 * fresh <= 8 * kept();
    return {last_gradients(), finds_room ? 0 : kept(), 3 * hidden(4) + summed};
  }

  // Outside of forward and backward passes: the larger of the update and of an evaluation, which
  // needs twice the logits of all predicted positions or of a chunk.
  [[nodiscard]] Moment elsewhere() const {
    const int64_t tokens = work_.batches_at_once * work_.eval_batch * work_.choices * work_.length;
    // In float32, whatever the precision of training.
    const int64_t results = scratch_.unkept / (work_.length * element_);  // of a token
    const int64_t layer = tokens * (results + model_.hidden_size) * 4;
    const int64_t rows = work_.scores_in_chunks ? std::min(predicted_rows(tokens),
                                                           head_rows(choices_, work_.has_kernels))
                                                : predicted_rows(tokens);
    const int64_t logits = predicts_words(work_.head) ? 2 * rows * model_.vocab_size * 4 : 0;
    const int64_t evaluation = std::max(layer, logits + tokens * model_.hidden_size * 4);
    const Moment evaluates = {gradients(0), 0, evaluation};
    const Moment updates = {last_gradients(), 0, update()};
    return evaluates.bytes() > updates.bytes() ? evaluates : updates;
  }

  // The format of most weights that products read.
  [[nodiscard]] WeightFormat read_format() const {
    return model_.lora ? work_.base.most() : choices_.weights;
  }
  // Of the weight of the output layer.
  [[nodiscard]] WeightFormat head_format() const {
    return model_.lora ? work_.base.weights : choices_.weights;
  }
  // Bytes of a layer's largest matrix in float32: its unpacked values, or a product that is rounded
  // into its gradient.
  [[nodiscard]] int64_t layer_matrix() const { return 4 * scratch_.matrix; }
  [[nodiscard]] int64_t matrix() const {
    const bool is_there = read_format() == WeightFormat::kFloat32 || takes_weights_as_they_are();
    if (is_there) return 0;
    const bool in_blocks = traits_of(read_format()).unpack != nullptr && !work_.is_device;
    return in_blocks ? std::min(layer_matrix(), 4 * nn::kUnpackedAtOnce) : layer_matrix();
  }

  // Bytes of one product at a time; in half precision also both factors of a gradient's product.
  [[nodiscard]] int64_t products() const {
    const bool rounds = choices_.gradients != GradientFormat::kFloat32;
    const int64_t factors = element_ == 4 || work_.has_kernels ? 0 : 4 * rows() * scratch_.factors;
    return std::max(matrix(), (rounds ? rounded_products() : 0) + factors);
  }

  [[nodiscard]] int64_t rounded_products() const {
    if (!work_.is_device || element_ == 4 || choices_.optimizer_in_backward) return layer_matrix();
    int64_t values = 0;
    for (const ParameterShape& shape : shapes_) {
      if (shape.sizes.size() == 2 && is_ordinary(shape.role)) values += shape.count();
    }
    return waiting_product_bytes(scratch_.matrix, values);
  }

  // Weights that a device keeps in half precision for its products, during an update.
  [[nodiscard]] int64_t held_factors() const {
    if (!work_.is_device || element_ == 4 || choices_.optimizer_in_backward) return 0;
    if (takes_weights_as_they_are() || traits_of(read_format()).unpack != nullptr) return 0;
    int64_t values = tied();
    for (const ParameterShape& shape : shapes_) {
      if (shape.sizes.size() == 2 && is_ordinary(shape.role)) values += shape.count();
    }
    return values * element_;
  }
  [[nodiscard]] bool takes_weights_as_they_are() const { return takes_as_it_is(read_format()); }
  [[nodiscard]] bool takes_as_it_is(WeightFormat format) const {
    return work_.is_device && format != WeightFormat::kFloat32 &&
           traits_of(format).type == scalar_type(choices_.precision);
  }

  [[nodiscard]] int64_t head() const {
    if (!predicts_words(work_.head)) {
      return measured_->kept.head_tensors * hidden(4);
    }
    const int64_t rows = predicted_rows(tokens_);
    const bool is_whole = head_format() == WeightFormat::kFloat32 || takes_as_it_is(head_format());
    const int64_t loss = chunked_cross_entropy_scratch(
        {.rows = rows,
         .rows_per_chunk = loss_rows_per_chunk(model_, head_rows(choices_, work_.has_kernels)),
         .vocabulary = model_.vocab_size,
         .weight = embedding_,
         .element = element_,
         .unpacks = !is_whole,
         .rounds = choices_.gradients != GradientFormat::kFloat32,
         .runs_ahead = work_.is_device});
    return loss + measured_->kept.head_tensors * rows * model_.hidden_size * 4;
  }

  // Update in chunks: gradient, weight, two moments. On a device AdamW in float32 is one call
  // without temporary memory; other formats need rounding and codes (measured, in bytes per value).
  [[nodiscard]] int64_t update() const {
    if (!work_.is_device) return int64_t{4} * 4 * kernels::chunk_values(kernels::KernelTable::kCpu);
    if (work_.has_kernels) return 0;  // lists of parameters, in registers
    const bool is_wide = choices_.weights == WeightFormat::kFloat32 &&
                         choices_.gradients == GradientFormat::kFloat32;
    if (is_wide && choices_.optimizer.kind == "adamw") return 0;
    const int64_t bytes = choices_.weights == WeightFormat::kFloat32 ? 20 : 66;
    return bytes * std::min(largest_, kernels::chunk_values(table_of(work_)));
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
    return work_.program + work_.data + int64_t{2} * 4 * largest_ + offloaded;
  }

  const MemoryWorkload& work_;
  const MemoryChoices& choices_;
  const ModelConfig& model_;
  const ActivationCheckpointing& again_;
  std::shared_ptr<const MeasuredModel> measured_;
  const std::vector<ParameterShape>& shapes_;
  const nn::Scratch& scratch_;     // of a layer's parts, for one row
  kernels::LayerScratch kernels_;  // of a layer's kernels, for the micro-batch
  int64_t tokens_;
  int64_t element_;
  int64_t parameters_ = 0;
  int64_t trained_ = 0;
  bool trains_embedding_ = true;
  int64_t largest_ = 0;
  int64_t embedding_ = 0;
  int64_t embedding_sums_ = 0;  // bytes: the gradient of an embedding's adapter, by token and as A
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
  if (choices.four_bits) {
    MemoryWorkload quantized = workload;
    quantized.base.matrices = workload.four_bits;
    return Prediction(quantized, choices).parts();
  }
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

std::vector<int64_t> longest_rows(MemoryWorkload workload, MemoryChoices choices,
                                  const std::vector<int64_t>& bytes) {
  choices.micro_batch = 1;
  workload.eval_batch = std::min<int64_t>(workload.eval_batch, 1);
  const int64_t most = workload.model.max_length();
  std::vector<int64_t> longest(bytes.size());
  for (int64_t power = std::min<int64_t>(128, most); power < 2 * most; power *= 2) {
    for (const int64_t length : {power, power + power / 2}) {
      workload.length = std::min(length, most);
      const int64_t peak = predict_memory(workload, choices).peak();
      bool fits_any = false;
      for (size_t i = 0; i < bytes.size(); ++i) {
        if (peak > bytes[i]) continue;
        longest[i] = workload.length;
        fits_any = true;
      }
      if (!fits_any || workload.length == most) return longest;
    }
  }
  return longest;
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
