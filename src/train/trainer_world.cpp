// SPDX-License-Identifier: MIT
// The trainer's part in several processes: each computes its share of an update's micro-batches,
// and all of them apply the same sum.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <new>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/kernels/one_threaded.h"
#include "finetune/tensor/out_of_memory.h"
#include "train/resume.h"
#include "train/trainer.h"

namespace finetune {
namespace {

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
    state_.shard_rows = state_.shard_threads = 0;
    if (has_other_processes) log::warning("not bit-exact from here: " + processes);
    return;
  }
  const int64_t then = saved.shard_rows;
  state_.shard_rows = split_.rows;
  state_.shard_threads = is_one_threaded() ? 1 : 0;
  const std::string difference = shard_difference(saved, state_.shard_threads);
  if (!difference.empty()) log::warning("not bit-exact from here: " + difference);
  if (then == split_.rows) {
    if (has_other_processes) {
      log::info("another number of processes: " + processes + "; the run keeps its " +
                std::to_string(state_.effective_batch_size / split_.rows) +
                " logical shards a step, which its bits depend on");
    }
    return;
  }
  log::warning("not bit-exact from here: " +
               (then == 0 ? std::string("the run began without full_determinism")
                          : "a logical shard has " + std::to_string(split_.rows) +
                                " samples instead of " + std::to_string(then) +
                                "; set per_device_train_batch_size back"));
}

bool Trainer::agree_to_stop() {
  World& world = *parts_.world;
  if (world.size() == 1) return interrupt::is_requested();
  const bool has_fault = world.is_first() && nonfinite_save_;
  std::array<int64_t, 2> message = {interrupt::is_requested() ? 1 : 0, has_fault ? 1 : 0};
  world.sum(std::span<int64_t>(message));
  if (message[1] > 0) share_fault();
  if (message[0] > 0) note_stop();
  return message[0] > 0;
}

void Trainer::share_fault() {
  const std::string found = parts_.world->broadcast(
      nonfinite_save_ ? std::to_string(nonfinite_save_->step) + " " + *nonfinite_save_->nonfinite
                      : "");
  if (nonfinite_save_) return;
  const size_t space = found.find(' ');
  nonfinite_save_ =
      SaveOutcome{.step = std::stoll(found.substr(0, space)), .nonfinite = found.substr(space + 1)};
}

double Trainer::share_norm(double norm) {
  World& world = *parts_.world;
  if (world.size() == 1) return norm;
  std::array<double, 2> message = {world.is_first() ? norm : 0.0,
                                   interrupt::is_requested() ? 1.0 : 0.0};
  world.sum(std::span<double>(message));
  stop_came_ = message[1] > 0.0;
  if (stop_came_) note_stop();
  return message[0];
}

bool Trainer::has_shards() const {
  return args_.full_determinism && split_.micro_batches() > 1 &&
         parts_.model->store().gradient_format() == GradientFormat::kFloat32;
}

bool Trainer::add_micro_batches(std::span<const Batch> batches, const std::vector<double>& scales,
                                StepReport& report) {
  ParameterStore& store = parts_.model->store();
  std::vector<double> losses(static_cast<size_t>(split_.micro_batches()), 0.0);
  size_t place = static_cast<size_t>(split_.accumulation * parts_.world->rank());
  has_gradient_.assign(store.parameters().size(), 0.0);
  shards_.reset();
  if (has_shards()) shards_.emplace(make_shard_sum());
  if (buckets_) begin_buckets();
  std::exception_ptr lack_of_memory;
  const auto most = static_cast<size_t>(shards_ ? std::max<int64_t>(1, parts_.batches_at_once) : 1);
  for (size_t first = 0; first < batches.size(); first += most) {
    begin(SessionClock::Unit::kMicroBatch);
    if (interrupt::is_requested()) {
      report.interrupted = true;
      break;
    }
    const size_t count = std::min(most, batches.size() - first);
    is_last_micro_batch_ = first + count == batches.size();
    const std::span<double> own = std::span(losses).subspan(place, count);
    try {
      if (shards_) {
        add_shards(batches.subspan(first, count), scales, own);
      } else {
        const OneThread guard(is_one_threaded());
        own[0] = add_gradients(batches[first], scales);
      }
    } catch (...) {
      lack_of_memory = std::current_exception();
      if (parts_.world->size() == 1 || !is_lack_of_memory(lack_of_memory)) throw;
      break;
    }
    for (const double loss : own) report.loss += loss;
    place += count;
    if (!std::isfinite(report.loss)) break;
  }
  if (!report.interrupted) end(SessionClock::Unit::kMicroBatch);
  is_last_micro_batch_ = false;
  if (buckets_) sum_buckets();
  if (!share_losses(losses, lack_of_memory, report)) return false;
  if (shards_ && std::isfinite(report.loss)) sum_shards();
  if (buckets_) drop_empty_gradients();
  return true;
}

bool Trainer::share_losses(std::vector<double>& losses, const std::exception_ptr& lack_of_memory,
                           StepReport& report) {
  if (parts_.world->size() == 1) return !report.interrupted;
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

}  // namespace finetune
