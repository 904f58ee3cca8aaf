// SPDX-License-Identifier: MIT
#include "train/session/session_watch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>

#include "finetune/base/clock.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/kernels/precision.h"
#include "finetune/report/bucket_cost.h"
#include "finetune/report/progress.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/out_of_memory.h"

namespace finetune {
namespace {

// Of a run that lasts at least a hundred times as long as the measurement.
constexpr double kLongRunFlos = 1e13;

// FLOP/s of a product of two square matrices as a model computes it, the best of several.
double matmul_flops(const c10::Device& device, Precision precision) {
  constexpr double kMeasuredSeconds = 0.1;
  const int64_t size = device.is_cpu() ? 1024 : 4096;
  const at::TensorOptions options = at::TensorOptions(device).dtype(scalar_type(precision));
  const Tensor left = at::ones({size, size}, options);
  const Tensor right = at::ones({size, size}, options);
  const Tensor product = at::empty({size, size}, options);
  const auto seconds_of_one = [&] {
    const double begin = now_seconds();
    product_into(precision, product, left, right, 0.0);
    synchronize(device);
    return now_seconds() - begin;
  };
  (void)seconds_of_one();  // initialises libraries
  double best = seconds_of_one();
  for (const double end = now_seconds() + kMeasuredSeconds; now_seconds() < end;) {
    best = std::min(best, seconds_of_one());
  }
  const auto edge = static_cast<double>(size);
  return 2 * edge * edge * edge / std::max(best, 1e-9);
}

}  // namespace

double SessionWatch::measure_ceiling() const {
  // fp16 is computed in float32 on a CPU.
  const bool is_half = run_.args.fp16 && !run_.parts.device.is_cpu();
  const Precision precision = run_.args.bf16 ? Precision::kBFloat16
                              : is_half      ? Precision::kFloat16
                                             : Precision::kFloat32;
  try {
    return matmul_flops(run_.parts.device, precision) * static_cast<double>(run_.world().size());
  } catch (...) {
    if (!is_lack_of_memory(std::current_exception())) throw;
    return 0;  // memory is worth more than the figure
  }
}

void SessionWatch::start(double flos) {
  const ProgressMode mode = run_.progress.mode();
  const bool is_shown = mode == ProgressMode::kBar || mode == ProgressMode::kJson;
  if (is_shown || flos > kLongRunFlos) ceiling_ = measure_ceiling();
  first_flos_ = run_.state.total_flos;
  start_ = now_seconds();
  counted_until_ = start_;
  bucket_before_ = run_.state.session.value("bucket", nlohmann::ordered_json::object());
  first_step_ = run_.state.step;
}

void SessionWatch::expect_times(uint64_t checkpoint_bytes) {
  if (!run_.parts.session) return;
  SessionClock& clock = run_.parts.session->clock;
  clock.expect_save(SessionClock::estimate_save_seconds(checkpoint_bytes));
  clock.expect_copies(static_cast<double>(run_.storage.mirrors().size()) *
                      SessionClock::estimate_copy_seconds(checkpoint_bytes));
  const RunState& state = run_.state;
  if (run_.is_same_device && state.step > 0) {
    clock.expect(SessionClock::Unit::kStep, state.seconds / static_cast<double>(state.step));
  }
}

void SessionWatch::begin(SessionClock::Unit unit, bool is_saving) {
  if (!run_.parts.session) return;
  run_.parts.session->clock.note_saving(is_saving);
  run_.parts.session->clock.begin(unit, interrupt::seconds_since_boot());
}

void SessionWatch::end(SessionClock::Unit unit) {
  if (run_.parts.session) run_.parts.session->clock.end(unit, interrupt::seconds_since_boot());
}

void SessionWatch::note_save(double seconds) {
  if (run_.parts.session) run_.parts.session->clock.note_save(seconds);
}

void SessionWatch::count_step(int64_t tokens) {
  tokens_ += tokens;
  if (run_.state.step - first_step_ == kSlowSteps) slow_seconds_ = seconds();
}

double SessionWatch::tokens_per_second() const {
  return static_cast<double>(tokens_) / std::max(1e-9, seconds());
}

std::optional<double> SessionWatch::ceiling_share() const {
  const double flos = run_.state.total_flos - first_flos_;
  if (ceiling_ <= 0 || flos <= 0) return std::nullopt;
  return flos / std::max(1e-9, seconds()) / ceiling_;
}

int64_t SessionWatch::peak_memory_mib() {
  constexpr double kReadSeconds = 0.5;
  const double now = now_seconds();
  if (peak_read_ == 0.0 || now - peak_read_ >= kReadSeconds) {
    peak_mib_ = static_cast<int64_t>(peak_memory_bytes(run_.parts.device) >> 20);
    peak_read_ = now;
  }
  return peak_mib_;
}

double SessionWatch::seconds() const { return now_seconds() - start_; }

void SessionWatch::count_seconds() {
  const double now = now_seconds();
  run_.state.seconds += now - counted_until_;
  counted_until_ = now;
}

void SessionWatch::skip_seconds() { counted_until_ = now_seconds(); }

void SessionWatch::add_bucket(nlohmann::ordered_json& to) const {
  const ObjectStore::Use use = run_.storage.mirrors().bucket_use();
  if (use.writes + use.reads > 0) to["bucket"] = bucket_use(bucket_before_, use);
}

void SessionWatch::keep() {
  add_bucket(run_.state.session);
  if (!run_.parts.session) return;
  const double slowest = run_.parts.session->clock.measured_save();
  if (slowest > 0) run_.state.session["save_seconds"] = slowest;
  if (run_.parts.session->cost) {
    run_.state.session["cost"] =
        run_.parts.session->cost->spent(interrupt::seconds_since_boot()).to_json();
  }
}

SessionProgress SessionWatch::progress() const {
  const RunState& state = run_.state;
  const double now = now_seconds();
  SessionProgress progress{.sessions = state.sessions,
                           .steps = state.step - first_step_,
                           .steps_left = run_.plan.max_steps - state.step,
                           .trained_seconds = state.seconds + now - counted_until_,
                           .session_seconds = now - start_,
                           .slow_seconds = slow_seconds_};
  if (run_.parts.session) {
    const double age = interrupt::seconds_since_boot() - run_.parts.session->start.process_start();
    progress.startup_seconds = age - progress.session_seconds;
  }
  if (first_step_ > 0) {
    progress.earlier_seconds_a_step = state.seconds / static_cast<double>(first_step_);
  }
  return progress;
}

std::optional<double> SessionWatch::seconds_left() const { return progress().seconds_left(); }

std::optional<double> SessionWatch::session_seconds_left() const {
  if (!run_.parts.session || !run_.parts.session->clock.limit()) return std::nullopt;
  return run_.parts.session->clock.limit()->seconds_left(interrupt::seconds_since_boot());
}

std::optional<std::string> SessionWatch::cost_text() const {
  if (!run_.parts.session || !run_.parts.session->cost) return std::nullopt;
  return run_.parts.session->cost->text(
      interrupt::seconds_since_boot(),
      run_.is_last_step() ? std::nullopt : progress().seconds_left());
}

void SessionWatch::log_progress() const {
  const SessionProgress reached = progress();
  const std::optional<SessionLimit> limit =
      run_.parts.session ? run_.parts.session->clock.limit() : std::nullopt;
  log::info(describe_session(reached, limit));
  if (const std::optional<std::string> cost = cost_text()) log::info(*cost);
  const std::string bucket =
      bucket_use_text(bucket_use(bucket_before_, run_.storage.mirrors().bucket_use()));
  if (!bucket.empty()) log::info("the bucket so far: " + bucket);
  if (reached.steps == 0 && interrupt::is_moment_reached() && limit) {
    log::warning("no step was completed in this session: " + limit->reason +
                 " leaves too little time for a step and a save, so that another session would not "
                 "get further; " +
                 limit->advice);
  }
}

}  // namespace finetune
