// SPDX-License-Identifier: MIT
// The trainer's part in several processes: each computes its share of an update's micro-batches,
// and all of them apply the same sum.
#include <ATen/core/Tensor.h>

#include <cmath>
#include <new>
#include <numeric>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/tensor/out_of_memory.h"
#include "train/trainer.h"

namespace finetune {
namespace {

constexpr int64_t kBucketMegabytes = 25;  // torch's DistributedDataParallel

// One that came to another process. A signal that reaches this one later is the first one here.
void note_stop() {
  if (!interrupt::is_requested()) interrupt::request_at(0.0, "a signal to another process");
  (void)interrupt::is_requested();
}

}  // namespace

bool Trainer::stop_is_requested() const {
  const bool is_asked = parts_.world->any(interrupt::is_requested());
  if (is_asked) note_stop();
  return is_asked;
}

double Trainer::broadcast(double value) {
  double shared = parts_.world->is_first() ? value : 0.0;
  parts_.world->sum(std::span(&shared, 1));
  return parts_.world->size() > 1 ? shared : value;
}

Environment Trainer::environment() const {
  Environment now = current_environment(parts_.device);
  now.processes = parts_.world->size();
  return now;
}

void Trainer::keep_shards(const RunState& saved) {
  const std::string processes = "processes " + std::to_string(saved.environment.processes) +
                                " -> " + std::to_string(parts_.world->size());
  const bool has_other_processes = saved.environment.processes != parts_.world->size();
  if (!args_.full_determinism) {
    state_.shard_rows = 0;
    if (has_other_processes) log::warning("not bit-exact from here: " + processes);
    return;
  }
  const int64_t then = saved.shard_rows;
  state_.shard_rows = rows_at_a_time_;
  if (then == rows_at_a_time_) {
    if (has_other_processes) {
      log::info("another number of processes: " + processes + "; the run keeps its " +
                std::to_string(state_.effective_batch_size / rows_at_a_time_) +
                " logical shards a step, which its bits depend on");
    }
    return;
  }
  log::warning("not bit-exact from here: " +
               (then == 0 ? std::string("the run began without full_determinism")
                          : "a logical shard has " + std::to_string(rows_at_a_time_) +
                                " samples instead of " + std::to_string(then) +
                                "; set per_device_train_batch_size back"));
}

void Trainer::share_faults() {
  if (parts_.world->size() == 1) return;
  const std::string found = parts_.world->broadcast(
      nonfinite_save_ ? std::to_string(nonfinite_save_->step) + " " + *nonfinite_save_->nonfinite
                      : "");
  if (found.empty() || nonfinite_save_) return;
  const size_t space = found.find(' ');
  nonfinite_save_ =
      SaveOutcome{.step = std::stoll(found.substr(0, space)), .nonfinite = found.substr(space + 1)};
}

bool Trainer::has_shards() const {
  return args_.full_determinism && plan_.accumulation * parts_.world->size() > 1 &&
         parts_.model->store().gradient_format() == GradientFormat::kFloat32;
}

void Trainer::check_processes() const {
  if (parts_.world->size() == 1) return;
  const auto refuse = [&](const std::string& key, const std::string& why) {
    throw Error(ErrorKind::kConfig, config_.where(key) + ": " + key + ": " + why);
  };
  if (args_.optimizer_in_backward) {
    refuse("optimizer_in_backward",
           "several processes sum their gradients before the update, which would be applied "
           "before; leave it out or train in one process");
  }
  if (args_.full_determinism && args_.grad_accum_dtype != "float32") {
    refuse("full_determinism",
           "gradients in bfloat16 have no sum that several processes agree on with one; leave "
           "grad_accum_dtype out");
  }
}

ShardSum Trainer::make_shard_sum() const {
  const int64_t samples = samples_of_update(state_.position).samples;
  const int64_t shards = (samples + rows_at_a_time_ - 1) / rows_at_a_time_;
  std::vector<ShardRange> shares;
  for (int64_t rank = 0; rank < parts_.world->size(); ++rank) {
    const int64_t first = std::min(shards, rank * plan_.accumulation);
    shares.push_back({.first = first, .count = std::min(shards - first, plan_.accumulation)});
  }
  return {*parts_.world, shards, std::move(shares)};
}

bool Trainer::add_micro_batches(std::span<const Batch> batches, const std::vector<double>& scales,
                                StepReport& report) {
  ParameterStore& store = parts_.model->store();
  std::vector<double> losses(static_cast<size_t>(plan_.accumulation * parts_.world->size()), 0.0);
  size_t place = static_cast<size_t>(plan_.accumulation * parts_.world->rank());
  has_gradient_.assign(store.parameters().size(), 0.0);
  shards_.reset();
  if (has_shards()) shards_.emplace(make_shard_sum());
  std::exception_ptr lack_of_memory;
  for (const Batch& batch : batches) {
    begin(SessionClock::Unit::kMicroBatch);
    if (interrupt::is_requested()) {
      report.interrupted = true;
      break;
    }
    try {
      losses[place] = add_gradients(batch, scales);
      if (shards_) take_shard();
    } catch (...) {
      lack_of_memory = std::current_exception();
      if (parts_.world->size() == 1 || !is_lack_of_memory(lack_of_memory)) throw;
      break;
    }
    report.loss += losses[place++];
    if (!std::isfinite(report.loss)) break;
  }
  if (!report.interrupted) end(SessionClock::Unit::kMicroBatch);
  if (!share_losses(losses, lack_of_memory, report)) return false;
  if (std::isfinite(report.loss)) reduce_gradients();
  return true;
}

// The gradients of a micro-batch, away from those of the next one.
void Trainer::take_shard() {
  ParameterStore& store = parts_.model->store();
  std::vector<size_t> all(store.parameters().size());
  std::iota(all.begin(), all.end(), size_t{0});
  for (const size_t place : all) {
    if (store.parameters()[place].gradient.defined()) has_gradient_[place] = 1.0;
  }
  store.open(all);
  std::vector<Tensor> gradients;
  for (Parameter& parameter : store.parameters()) {
    gradients.push_back(std::move(parameter.gradient));
    parameter.gradient = Tensor();
  }
  shards_->add(std::move(gradients));
}

bool Trainer::share_losses(std::vector<double>& losses, const std::exception_ptr& lack_of_memory,
                           StepReport& report) {
  if (parts_.world->size() == 1) return !report.interrupted;
  if (!shards_) {
    const std::vector<Parameter>& parameters = parts_.model->store().parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      has_gradient_[i] = parameters[i].gradient.defined() ? 1.0 : 0.0;
    }
  }
  std::vector<double> message = {report.interrupted ? 1.0 : 0.0, lack_of_memory ? 1.0 : 0.0};
  message.insert(message.end(), losses.begin(), losses.end());
  message.insert(message.end(), has_gradient_.begin(), has_gradient_.end());
  parts_.world->sum(message);
  if (message[1] > 0.0) {
    if (lack_of_memory) std::rethrow_exception(lack_of_memory);
    throw std::bad_alloc();  // as the process that had none
  }
  const auto of_losses = message.begin() + 2;
  const auto of_gradients = of_losses + static_cast<std::ptrdiff_t>(losses.size());
  losses.assign(of_losses, of_gradients);
  has_gradient_.assign(of_gradients, message.end());
  // In the order of one process, so that it is the same number.
  report.loss = 0.0;
  for (const double loss : losses) report.loss += loss;
  const bool is_stopped = message[0] > 0.0;
  if (is_stopped) note_stop();
  return !is_stopped;
}

void Trainer::reduce_gradients() {
  if (!shards_ && parts_.world->size() == 1) return;
  ParameterStore& store = parts_.model->store();
  std::vector<size_t> places;
  for (size_t i = 0; i < has_gradient_.size(); ++i) places.push_back(i);
  // What has a gradient in one process has one in all of them.
  const auto has_none = [&](size_t place) { return has_gradient_[place] == 0.0; };
  const int64_t bucket = args_.ddp_bucket_cap_mb.value_or(kBucketMegabytes) * 1'000'000;
  if (!shards_) std::erase_if(places, has_none);
  store.open(places);
  std::vector<Tensor> gradients;
  for (const size_t place : places) gradients.push_back(store.parameters()[place].gradient);
  if (shards_) {
    shards_->finish(gradients, bucket);
    for (const size_t place : places) {
      if (has_none(place)) store.parameters()[place].gradient = Tensor();
    }
    shards_.reset();
  } else {
    sum_gradients(*parts_.world, gradients, bucket);
  }
}

}  // namespace finetune
