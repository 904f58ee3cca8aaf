// SPDX-License-Identifier: MIT
#include "train/loop/update_step.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/kernels/one_threaded.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/gpu.h"
#include "finetune/tensor/out_of_memory.h"
#include "train/loop/poison.h"
#include "train/save/agreement.h"
#include "train/setup/check_data.h"

namespace finetune {
namespace {

// Below this scale the cause is not float16's range: torch would halve the scale forever.
constexpr double kSmallestLossScale = 0x1.0p-10;

// One rank's first pass, as bytes.
std::string first_pass_message(const std::vector<Tensor>& own, bool stops, bool is_out_of_memory) {
  const int64_t columns = own.empty() ? 0 : own.front().size(1);
  std::string bytes = is_out_of_memory ? "f" : stops ? "s" : "r";
  bytes.append(reinterpret_cast<const char*>(&columns), sizeof columns);
  for (const Tensor& rows : own) {
    FT_CHECK(rows.scalar_type() == at::kFloat && rows.size(1) == columns, "rows of one kind");
    bytes.append(static_cast<const char*>(rows.const_data_ptr()), rows.nbytes());
  }
  return bytes;
}

// The rows of such a message [n, D]; undefined: the rank has no micro-batch.
Tensor rows_in(const std::string& message) {
  int64_t columns = 0;
  std::memcpy(&columns, message.data() + 1, sizeof columns);
  if (columns == 0) return {};
  const std::string_view values = std::string_view(message).substr(1 + sizeof columns);
  const auto count = static_cast<int64_t>(values.size() / sizeof(float));
  const Tensor rows = at::empty({count / columns, columns}, at::kFloat);
  std::memcpy(rows.mutable_data_ptr(), values.data(), values.size());
  return rows;
}

}  // namespace

UpdateStep::UpdateStep(TrainingRun& run, Saving& saving, SessionWatch& watch)
    : run_(run), saving_(saving), watch_(watch) {
  if (run.args.optimizer_in_backward) update_in_backward();
}

StepReport UpdateStep::run() {
  const RunState& state = run_.state;
  is_updating_ = false;
  StepReport report{.learning_rate = run_.schedule->learning_rate(state.updates)};
  released_ = {.learning_rate = report.learning_rate};
  if (is_left_out(state.divergence, state.position, state.effective_batch_size)) {
    return leave_out(report);
  }
  const Update update{.batches = run_.loader->take(state.position)};
  const Targets targets = Targets::count(*run_.parts.task, update, run_.world());
  check_data(update, targets);
  const std::vector<double> scales =
      targets.scales(loss_scale(), run_.args.average_tokens_across_devices);
  queued_figures_.clear();
  sum_->begin(update);
  if (couple(update, scales)) {
    add_micro_batches(update, scales);
  } else {
    sum_->stop();
  }
  const Summed summed = sum_->finish();
  if (summed.stopped) return {.interrupted = true};
  report.loss = summed.loss;
  report.measures = summed.measures;
  const size_t terms = targets.all.size() - report.measures.size();
  for (size_t i = 0; i < report.measures.size(); ++i) {
    report.is_measured.push_back(targets.all[terms + i] > 0);
  }
  report.tokens = targets.tokens;
  report.padded_tokens = targets.padded_tokens;
  apply(report);
  sum_->clear();
  return report;
}

// A single update without a target may happen where few tokens are masked; many are an error.
void UpdateStep::check_data(const Update& update, const Targets& targets) {
  constexpr int64_t kMostWithoutTarget = 10;
  if (!was_looked_at_) check_first_update(run_.config, run_.parts, update.batches);
  was_looked_at_ = true;
  const bool has_target = std::ranges::any_of(targets.all, [](int64_t count) { return count > 0; });
  without_target_ = has_target ? 0 : without_target_ + 1;
  const bool is_all = without_target_ == run_.plan.max_steps;
  if (without_target_ < kMostWithoutTarget && !is_all) return;
  throw Error(ErrorKind::kData,
              format_text("{}: train_file: {} updates in a row have no target to learn from; check "
                          "the labels, the columns and mlm_probability",
                          run_.config.where("train_file"), without_target_));
}

bool UpdateStep::couple(const Update& update, const std::vector<double>& scales) {
  Task& task = *run_.parts.task;
  if (!task.has_first_pass()) return true;
  if (update.batches.size() == 1 && run_.world().size() == 1) {
    task.couple({});
    return true;
  }
  ParameterExchange* const exchange = run_.store().exchange();
  std::vector<Tensor> results;
  bool stops = false;
  std::exception_ptr failure;
  try {
    const c10::NoGradGuard no_grad;
    const OneThread guard(run_.is_one_threaded());
    for (const Batch& batch : update.batches) {
      watch_.begin(SessionClock::Unit::kMicroBatch, saving_.is_busy());
      stops = interrupt::is_requested();
      if (stops) break;
      if (exchange != nullptr) exchange->begin_pass(ParameterExchange::Pass::kForward);
      results.push_back(task.first_pass(batch, pass_of(batch, scales)).cpu().contiguous());
      if (exchange != nullptr) exchange->end_pass();
    }
  } catch (...) {
    failure = std::current_exception();
    if (run_.world().size() == 1 || !is_lack_of_memory(failure)) throw;
  }
  // The other ranks wait for what this one has of the model.
  if (exchange != nullptr) exchange->take_part(run_.split.accumulation);
  const std::vector<std::string> messages =
      run_.world().gather(first_pass_message(results, stops, failure != nullptr));
  if (failure) std::rethrow_exception(failure);
  const auto is_any = [&](char kind) {
    return std::ranges::any_of(messages, [&](const std::string& one) { return one[0] == kind; });
  };
  if (is_any('f')) throw std::bad_alloc();  // as on the rank that is out of memory
  if (is_any('s')) return false;
  std::vector<Tensor> rows;
  int64_t before = 0;  // rows of lower ranks
  for (int64_t rank = 0; rank < std::ssize(messages); ++rank) {
    const Tensor own = rows_in(messages[static_cast<size_t>(rank)]);
    if (!own.defined()) continue;
    if (rank < run_.world().rank()) before += own.size(0);
    rows.push_back(own);
  }
  FT_CHECK(update.batches.empty() || update.batches.front().first_position == before,
           "ranks have neighbouring samples, in their order");
  const OneThread guard(run_.is_one_threaded());
  task.couple(at::cat(rows));
  return true;
}

TrainingPass UpdateStep::pass_of(const Batch& batch, const std::vector<double>& scales) const {
  return {.dropout = {.seed = static_cast<uint64_t>(run_.args.seed),
                      .update = run_.state.step,
                      .first_position = batch.first_position},
          .scales = scales};
}

// Adds groups of micro-batches until a stop is requested or more of them are useless.
void UpdateStep::add_micro_batches(const Update& update, const std::vector<double>& scales) {
  const auto backward_of = [&](const Batch& batch, std::span<double> figures) {
    backward(batch, scales, figures);
  };
  const size_t at_once = sum_->at_once();
  for (size_t round = 0; round < sum_->rounds(update); ++round) {
    watch_.begin(SessionClock::Unit::kMicroBatch, saving_.is_busy());
    if (!sum_->continues(interrupt::is_requested())) break;
    if (!sum_->add(update.group(round * at_once, at_once), backward_of)) break;
  }
  watch_.end(SessionClock::Unit::kMicroBatch);
}

StepReport UpdateStep::leave_out(StepReport report) const {
  const Position& position = run_.state.position;
  report.left_out = true;
  log::info(
      format_text("step {} skipped: samples from {} of epoch {} on; an earlier session decided so",
                  run_.state.step + 1, position.sample, position.epoch));
  return report;
}

// Adds the gradients of a micro-batch. If its loss is not finite, they are useless.
void UpdateStep::backward(const Batch& batch, const std::vector<double>& scales,
                          std::span<double> figures) {
  const TrainingPass pass = pass_of(batch, scales);
  run_.store().gradients().begin_micro_batch({.seed = pass.dropout.seed,
                                              .update = pass.dropout.update,
                                              .first_position = pass.dropout.first_position});
  const std::vector<Tensor> sums = run_.parts.task->loss_sums(batch, pass);
  const auto terms = static_cast<size_t>(run_.parts.task->terms());
  Tensor share;  // terms share one graph, so one backward pass is enough
  for (size_t term = 0; term < terms; ++term) {
    if (!sums[term].defined()) continue;
    const Tensor part = sums[term] * scales[term];
    share = share.defined() ? share + part : part;
  }
  if (!share.defined()) return;
  std::vector<Tensor> parts = {share.detach()};
  for (size_t term = terms; term < sums.size(); ++term) parts.push_back(sums[term] * scales[term]);
  const bool in_backward = run_.args.optimizer_in_backward;
  // Reading the loss waits for the device, so the backward pass is queued first, and with one
  // process everything up to the gradients' norm.
  if (!in_backward && !run_.parts.device.is_cpu()) {
    share.backward();
    const Tensor queued = parts.size() == 1 ? parts.front().view({1}) : at::stack(parts);
    if (run_.world().size() == 1) return queued_figures_.push_back(queued);
    const Tensor host = queued.cpu();
    for (size_t i = 0; i < figures.size(); ++i) {
      figures[i] = host[static_cast<int64_t>(i)].item<double>() / loss_scale();
    }
    return;
  }
  for (size_t i = 0; i < figures.size(); ++i) {
    figures[i] = parts[i].item<double>() / loss_scale();
  }
  const double unscaled = figures[0];
  // Weights that are updated in the backward pass must not see NaN, Inf, or a spike.
  const bool is_faulty =
      in_backward ? has_faulty_loss(run_.divergence_options(), run_.state.divergence, unscaled)
                  : !std::isfinite(unscaled);
  if (is_faulty) return;
  if (in_backward) saving_.before_update();
  share.backward();
}

// Scales, clips and checks the gradients, and updates.
void UpdateStep::apply(StepReport& report) {
  watch_.begin(SessionClock::Unit::kUpdate, saving_.is_busy());
  const bool in_backward = run_.args.optimizer_in_backward;  // updated already
  if (in_backward) {
    report.grad_norm = std::sqrt(released_.squares);
  } else {
    // The wait for the norm is one for the losses as well.
    const Tensor queued = queued_figures();
    const double norm = run_.parts.divided ? gradient_norm(run_.store(), run_.world())
                                           : gradient_norm(run_.store());
    const SharedNorm shared = share_norm(run_.world(), norm / loss_scale());
    report.grad_norm = shared.norm;
    report.stop_came = shared.stops;
    for (int64_t i = 0; queued.defined() && i < queued.numel(); ++i) {
      const double value = queued[i].item<double>() / loss_scale();
      const auto figure = static_cast<size_t>(i) % (1 + report.measures.size());
      (figure == 0 ? report.loss : report.measures[figure - 1]) += value;
    }
  }
  report.fault =
      fault_of(run_.divergence_options(), run_.state.divergence, report.loss, report.grad_norm);
  report.is_half_applied = report.fault && released_.updated > 0;
  report.applied = !report.fault;
  if (!in_backward && report.applied) apply_gradients(report);
  if (!in_backward && !report.applied) note_overflow(report);
  watch_.end(SessionClock::Unit::kUpdate);
}

// Starts a copy of the micro-batches' figures to the host, which later work on the device ends.
Tensor UpdateStep::queued_figures() const {
  if (queued_figures_.empty()) return {};
  const bool is_one = queued_figures_.size() == 1;
  const Tensor all = is_one ? queued_figures_.front() : at::cat(queued_figures_);
  const Tensor host = at::empty(all.sizes(), host_options(all.scalar_type(), all.device()));
  host.copy_(all, /*non_blocking=*/features_of(all.device()).pinned);
  return host;
}

void UpdateStep::apply_gradients(StepReport& report) {
  const TrainingArgs& args = run_.args;
  // torch.nn.utils.clip_grad_norm_
  const double clip = args.max_grad_norm / (report.grad_norm + 1e-6);
  const double factor = args.max_grad_norm > 0.0 && clip < 1.0 ? clip : 1.0;
  saving_.before_update();
  is_updating_ = true;
  const OneThread guard(run_.is_one_threaded() && !run_.parts.optimizer->is_blockwise());
  run_.parts.optimizer->step(report.learning_rate, factor / loss_scale(), run_.state.step);
  if (run_.divided.weights) run_.divided.weights->share();
  if (run_.parts.divided) run_.parts.divided->changed();
  is_updating_ = false;
  if (run_.scaler) run_.scaler->update(/*overflowed=*/false);
}

// With a loss scale, non-finite gradients mean that the scale was too large.
void UpdateStep::note_overflow(StepReport& report) {
  // No scale helps if the loss is not finite.
  if (!run_.scaler || !std::isfinite(report.loss) || std::isfinite(report.grad_norm)) return;
  run_.scaler->update(/*overflowed=*/true);
  // If even the smallest scale overflows, the run has diverged.
  if (run_.scaler->scale() < kSmallestLossScale) return;
  report.fault.reset();
  report.overflowed = true;
  log::warning("step " + std::to_string(run_.state.step + 1) +
               ": float16 overflowed, no update; the loss scale is now " +
               format_double(run_.scaler->scale()));
}

// Updates each parameter as soon as its gradient is complete. A non-finite gradient updates
// nothing; if other parameters were updated before it, the run ends without a save.
void UpdateStep::update_in_backward() {
  run_.store().gradients().on_complete([this](Parameter& parameter) {
    const double norm =
        at::linalg_vector_norm(parameter.gradient, 2, std::nullopt, false, at::kFloat)
            .item<double>();
    released_.squares += norm * norm;
    if (std::isfinite(released_.squares)) {
      const size_t index = parameter.handle.id();
      run_.parts.optimizer->step_one(index, released_.learning_rate, 1.0, run_.state.step);
      ++released_.updated;
    }
    parameter.gradient = Tensor();
  });
}

void UpdateStep::reserve_memory() {
  warm_up(run_.parts.device);
  Optimizer& optimizer = *run_.parts.optimizer;
  for (Optimizer::Slot& slot : optimizer.slots()) {
    if (slot.state.empty() && !slot.is_elsewhere) optimizer.create_state(slot);
  }
  split_changed();
  release_startup_code();
  keep_freed_memory();
}

void UpdateStep::split_changed() {
  if (sum_ && sum_kind(run_) == kind_) return;
  sum_.reset();
  kind_ = sum_kind(run_);
  sum_ = with_test_faults(make_gradient_sum(run_), run_);
}

bool UpdateStep::may_repeat() const { return !is_updating_ && !run_.args.optimizer_in_backward; }

double UpdateStep::loss_scale() const { return run_.scaler ? run_.scaler->scale() : 1.0; }

}  // namespace finetune
