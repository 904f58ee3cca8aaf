// SPDX-License-Identifier: MIT
#include "plan/dry_update.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_softmax.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/distributed/divided_parameters.h"
#include "finetune/kernels/dry_device.h"
#include "finetune/model/model.h"
#include "finetune/plan/exchange_script.h"
#include "finetune/task/words_loss.h"
#include "finetune/tensor/block_map.h"
#include "finetune/tensor/meta_memory.h"

namespace finetune {
namespace {

const c10::Device kMeta(c10::kMeta);

kernels::DryDevice device_of(const MemoryWorkload& work) {
  const kernels::KernelTable on_device =
      work.has_kernels ? kernels::KernelTable::kCuda : kernels::KernelTable::kPlain;
  return {.table = work.is_device ? on_device : kernels::KernelTable::kCpu,
          .threads = work.sums_shards ? 1 : work.threads,
          .has_flash = work.has_flash,
          .has_tiles = work.has_tiles,
          .computes_all_tokens = work.compiles || work.computes_all_tokens};
}

ModelOptions options_of(const MemoryWorkload& work, const MemoryChoices& choices) {
  return {.fused = true,
          .weights = choices.weights,
          .gradients = choices.gradients,
          .precision = choices.precision,
          .evaluation_precision = choices.precision,
          .checkpointing = choices.checkpointing,
          .draw_weights = false,
          .freeze = work.freeze,
          .base = work.base,
          .head_rows_per_chunk = head_rows(choices, work.has_kernels),
          .sharding = sharding_of(work)};
}

Tensor integers(at::IntArrayRef sizes) {
  return at::empty(sizes, at::TensorOptions(kMeta).dtype(at::kLong));
}

// Positions whose words are predicted, of `tokens` of the workload.
int64_t predicted_rows(const MemoryWorkload& work, int64_t tokens) {
  // A row's first and last token are special and not predicted; the CPU's plans count them.
  const bool has_specials = work.is_device && work.predicted_share < 1.0 && work.length > 2;
  const int64_t words = has_specials ? tokens / work.length * (work.length - 2) : tokens;
  const double mean = work.predicted_share * static_cast<double>(words);
  // Each token is predicted or not; the CPU's plans keep the wider margin that they were made with.
  const double variance = work.is_device ? mean * (1 - work.predicted_share) : mean;
  return std::min(tokens, static_cast<int64_t>(mean + 2 * std::sqrt(variance)) + 1);
}

// A scalar whose gradient is that of logits.
Tensor loss_of(const Tensor& logits) { return at::log_softmax(logits, -1).sum(); }

// What DividedParameters would exchange: writes it down, and allocates what that allocates.
class DryExchange final : public ParameterExchange {
 public:
  DryExchange(ParameterStore& store, const MemoryWorkload& work)
      : store_(store), work_(work), values_(/*keeps_all=*/work.zero_stage == 2) {
    store_.set_exchange(this);
    store_.gradients().on_complete([this](Parameter& parameter) { complete(parameter); });
  }
  ~DryExchange() override {
    store_.gradients().on_complete(nullptr);
    store_.set_exchange(nullptr);
  }
  DryExchange(const DryExchange&) = delete;
  DryExchange& operator=(const DryExchange&) = delete;

  [[nodiscard]] ParameterTensors whole(const Parameter& parameter) override {
    if (const ParameterTensors* found = values_.find(parameter)) return *found;
    steps_.push_back({.kind = ExchangeStep::Kind::kGather, .parameter = parameter.handle.id()});
    values_.make_room(parameter);
    ParameterTensors whole =
        traits_of(parameter.format.weight).allocate(parameter.handle.sizes(), kMeta);
    values_.add(parameter, whole);
    return whole;
  }
  void begin_pass(Pass /*pass*/) override { steps_.clear(); }
  void end_pass() override { values_.clear(); }
  void take_part(int64_t /*passes*/) override {}
  void changed() override {}
  [[nodiscard]] const std::vector<ExchangeStep>& steps() const { return steps_; }

 private:
  void complete(Parameter& parameter) {
    if (!parameter.is_divided()) return;
    steps_.push_back({.kind = ExchangeStep::Kind::kScatter, .parameter = parameter.handle.id()});
    const MemoryUseScope use(MemoryUse::kGradient);
    const auto floats = at::TensorOptions(kMeta).dtype(at::kFloat);
    const int64_t piece = std::min(parameter.handle.numel(), work_.bucket_bytes / 4);
    const Tensor sent = at::empty({piece}, floats);
    const Tensor received = at::empty({piece}, floats);
    Tensor& sum = sums_[parameter.handle.id()];
    if (!sum.defined()) {
      sum = at::empty({parameter.part().count}, floats.dtype(type_of(parameter.format.gradient)));
    }
    parameter.gradient = Tensor();
  }

  ParameterStore& store_;
  const MemoryWorkload& work_;
  WholeValues values_;
  std::vector<ExchangeStep> steps_;
  std::map<size_t, Tensor> sums_;  // by parameter
};

// The model of a workload, on the meta device.
class DryModel {
 public:
  DryModel(const MemoryWorkload& work, const MemoryChoices& choices)
      : work_(work),
        chunk_(head_rows(choices, work.has_kernels)),
        model_(make_model(work.head, work.model, 0, kMeta, options_of(work, choices))) {
    if (has_divided(store())) exchange_ = std::make_unique<DryExchange>(store(), work);
  }

  [[nodiscard]] ParameterStore& store() const { return model_->store(); }
  // Null: nothing is divided.
  [[nodiscard]] DryExchange* exchange() const { return exchange_.get(); }

  // The loss of `samples` without padding.
  [[nodiscard]] Tensor loss(int64_t samples) const {
    ModelInput input = input_of(samples, DropoutStream{});
    if (!predicts_words(work_.head)) return loss_of(model_->logits(input, marks(samples)));
    const int64_t predicted = predicted_rows(work_, input.input_ids.numel());
    const Tensor positions = integers({predicted});
    const Tensor labels = integers({predicted});
    if (work_.compares_sequences) {
      if (work_.computes_reference) compute_reference(samples, positions, labels);
      return token_log_probs(*model_, input, positions, labels).sum();
    }
    // Those of the words, and for the next sentence the first of each row.
    input.read_positions = work_.head ? integers({predicted + input.input_ids.size(0)}) : positions;
    const Encoded encoded = model_->encode(input);
    Tensor next;
    if (work_.head) next = loss_of(model_->next_sentence(input, encoded));
    const Tensor words = words_loss(*model_, input, encoded, positions, labels, {});
    return next.defined() ? words + next : words;
  }

  // What an evaluation computes at once of `samples`.
  void evaluate(int64_t samples) const {
    const c10::NoGradGuard no_grad;
    ModelInput input = input_of(samples, std::nullopt);
    if (!predicts_words(work_.head)) return (void)model_->logits(input, marks(samples));
    const int64_t predicted = predicted_rows(work_, input.input_ids.numel());
    if (work_.compares_sequences) {
      if (work_.computes_reference) {
        compute_reference(samples, integers({predicted}), integers({predicted}));
      }
      return (void)token_log_probs(*model_, input, integers({predicted}), integers({predicted}));
    }
    const int64_t at_once = work_.scores_in_chunks ? std::min(predicted, chunk_) : predicted;
    input.read_positions = integers({predicted});
    const Tensor hidden = model_->encode(input).tokens_at(input.read_positions);
    (void)loss_of(model_->head_logits(input, hidden.narrow(0, 0, at_once)));
  }

 private:
  // What an update computes of the base before it.
  void compute_reference(int64_t samples, const Tensor& positions, const Tensor& labels) const {
    const c10::NoGradGuard no_grad;
    ModelInput input = input_of(samples, std::nullopt);
    input.without_adapter = true;
    (void)token_log_probs(*model_, input, positions, labels);
  }
  // The tokens that a head for decisions reads; undefined: other heads know theirs.
  [[nodiscard]] Tensor marks(int64_t samples) const {
    constexpr int64_t kOptions = 4;  // of a question, about
    return work_.head == Head::kDecision ? integers({kOptions * samples}) : Tensor();
  }
  [[nodiscard]] ModelInput input_of(int64_t samples, std::optional<DropoutStream> dropout) const {
    return {.input_ids = integers({samples * work_.choices, work_.length}),
            .attention_mask = {},
            .dropout = dropout};
  }

  const MemoryWorkload& work_;
  int64_t chunk_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<DryExchange> exchange_;
};

// How gradients live; GradientSum (train/loop/gradient_sum.h) does the same.
bool keeps_gradients(const MemoryWorkload& work, const MemoryChoices& choices) {
  if (choices.optimizer_in_backward) return false;
  return work.is_device || work.processes > 1 || work.sums_shards ||
         work.effective_batch > choices.micro_batch;
}

// The events of one update.
struct Trace {
  std::vector<MetaMemory::Event> events;
  size_t begin = 0;    // events before it, which live as long as the run
  size_t forward = 0;  // events up to the end of the forward pass
};

struct Live {
  int64_t gradients = 0, others = 0;
};

// Memory of the host: large blocks come from a pool (tensor/host_allocator.h), whose holes are not
// returned.
class HostMemory {
 public:
  // Returns what is alive after each event, the pool's holes included.
  std::vector<Live> run(const std::vector<MetaMemory::Event>& events, size_t begin) {
    std::vector<Live> moments;
    for (size_t i = 0; i < events.size(); ++i) {
      const MetaMemory::Event& event = events[i];
      const auto size = static_cast<size_t>(std::abs(event.bytes));
      const bool is_pooled = size >= BlockMap::kSmallest && i >= begin;
      if (event.use == MemoryUse::kGradient) gradients_ += event.bytes;
      if (event.bytes < 0 && offsets_.contains(event.block)) {
        pool_.give_back(offsets_.at(event.block));
        offsets_.erase(event.block);
      } else if (is_pooled && event.bytes > 0) {
        offsets_[event.block] = pool_.take(size);
      } else {
        others_ += event.bytes;
      }
      const int64_t all = static_cast<int64_t>(pool_.end()) + others_;
      moments.push_back({.gradients = gradients_, .others = all - gradients_});
    }
    return moments;
  }

 private:
  BlockMap pool_;
  std::map<size_t, size_t> offsets_;  // by block
  int64_t gradients_ = 0;
  int64_t others_ = 0;  // outside of the pool
};

// What is alive after each event.
std::vector<Live> live_after(const std::vector<MetaMemory::Event>& events) {
  std::vector<Live> moments;
  Live now;
  for (const MetaMemory::Event& event : events) {
    (event.use == MemoryUse::kGradient ? now.gradients : now.others) += event.bytes;
    moments.push_back(now);
  }
  return moments;
}

int64_t peak_of(const std::vector<MetaMemory::Event>& events, MemoryUse use) {
  int64_t now = 0;
  int64_t peak = 0;
  for (const MetaMemory::Event& event : events) {
    if (event.use == use) now += event.bytes;
    peak = std::max(peak, now);
  }
  return peak;
}

Trace trace_update(const MemoryWorkload& work, const MemoryChoices& choices) {
  const DryModel model(work, choices);
  ParameterStore& store = model.store();
  if (choices.optimizer_in_backward && model.exchange() == nullptr) {
    store.gradients().on_complete([](Parameter& parameter) { parameter.gradient = Tensor(); });
  }
  // A pass finds out which weights a device holds in the precision of its products.
  if (work.is_device && choices.precision != Precision::kFloat32) {
    store.hold_factors();
    model.loss(1).backward();
    store.gradients().clear(/*keep_memory=*/false);
  }
  const MetaMemory memory;
  if (keeps_gradients(work, choices)) store.gradients().reserve();
  if (!choices.optimizer_in_backward) store.hold_factors();
  const size_t begin = memory.events().size();
  Tensor loss = model.loss(choices.micro_batch);
  const size_t forward = memory.events().size();
  loss.backward();
  loss = Tensor();
  if (model.exchange() != nullptr) model.exchange()->end_pass();
  store.release_factors();
  store.gradients().clear(keeps_gradients(work, choices));
  return {.events = memory.events(), .begin = begin, .forward = forward};
}

int64_t peak_of_evaluation(const MemoryWorkload& work, const MemoryChoices& choices) {
  const int64_t samples = work.batches_at_once * work.eval_batch;
  if (samples == 0) return 0;
  const DryModel model(work, choices);
  const MetaMemory memory;
  model.evaluate(samples);
  return memory.peak();
}

// What the layers keep for the backward pass.
int64_t kept_of(const Trace& trace) {
  int64_t kept = 0;
  for (size_t i = trace.begin; i < trace.forward; ++i) {
    const MetaMemory::Event& event = trace.events[i];
    if (event.use == MemoryUse::kOther) kept += event.bytes;
  }
  return kept;
}

}  // namespace

ExchangeScripts exchange_scripts(const MemoryWorkload& given, const MemoryChoices& choices) {
  // One token that is read of each row would leave experts out, which other tokens have.
  MemoryWorkload work = given;
  work.computes_all_tokens = true;
  const kernels::DryRun dry(device_of(work));
  const DryModel model(work, choices);
  ExchangeScripts scripts;
  DryExchange* const exchange = model.exchange();
  if (exchange == nullptr) return scripts;
  exchange->begin_pass(ParameterExchange::Pass::kTraining);
  model.loss(1).backward();
  exchange->end_pass();
  scripts.training = by_layers(exchange->steps(), model.store().parameters());
  exchange->begin_pass(ParameterExchange::Pass::kForward);
  model.evaluate(1);
  scripts.forward = by_layers(exchange->steps(), model.store().parameters());
  return scripts;
}

ExchangedBytes exchanged_bytes(const MemoryWorkload& work, const MemoryChoices& choices) {
  if (work.processes == 1) return {};
  const std::vector<ExchangeStep> steps = exchange_scripts(work, choices).training;
  const kernels::DryRun dry(device_of(work));
  const DryModel model(work, choices);
  const std::vector<Parameter>& parameters = model.store().parameters();
  const auto others = [&](double bytes) {  // of what all ranks have
    return static_cast<int64_t>(bytes * static_cast<double>(work.processes - 1) /
                                static_cast<double>(work.processes));
  };
  const auto values_of = [](const Parameter& one) {
    return static_cast<double>(one.handle.numel());
  };
  const auto weight_bytes = [&](const Parameter& one) {
    return values_of(one) * traits_of(one.format.weight).bytes;
  };
  double weights = 0.0;
  double gradients = 0.0;
  for (const size_t index : model.store().trained()) {
    if (parameters[index].is_divided()) continue;
    gradients += 2 * 4 * values_of(parameters[index]);  // a sum: parts to their rank, and back
    if (work.zero_stage == 1) weights += weight_bytes(parameters[index]);
  }
  const auto micro_batches = static_cast<double>(work.effective_batch / choices.micro_batch);
  const double gathers = work.zero_stage == 2 ? 1.0 : micro_batches;
  for (const ExchangeStep& step : steps) {
    const Parameter& one = parameters[step.parameter];
    if (step.kind == ExchangeStep::Kind::kGather) {
      weights += gathers * weight_bytes(one);
    } else {
      gradients += micro_batches * 4 * values_of(one);
    }
  }
  return {.weights = others(weights), .gradients = others(gradients)};
}

DryUpdate dry_update(const MemoryWorkload& work, const MemoryChoices& choices,
                     int64_t micro_batches) {
  const kernels::DryRun dry(device_of(work));
  const Trace trace = trace_update(work, choices);
  // Several micro-batches at once take turns in the pool in no order that could be followed.
  const bool follows_pool = !work.is_device && micro_batches == 1;
  const std::vector<Live> moments =
      follows_pool ? HostMemory().run(trace.events, trace.begin) : live_after(trace.events);
  const auto bytes = [&](const Live& live) { return live.gradients + micro_batches * live.others; };
  const Live most = *std::ranges::max_element(moments, {}, bytes);
  return {.gradients = most.gradients,
          .others = most.others,
          .kept = kept_of(trace),
          .head = peak_of(trace.events, MemoryUse::kHead),
          .evaluation = peak_of_evaluation(work, choices),
          .keeps_gradients = keeps_gradients(work, choices)};
}

}  // namespace finetune
