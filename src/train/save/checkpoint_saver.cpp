// SPDX-License-Identifier: MIT
#include "train/save/checkpoint_saver.h"

#include <time.h>

#include <cerrno>
#include <new>
#include <utility>

#include "finetune/base/clock.h"
#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/tensor/finite.h"

namespace finetune {
namespace {

const checkpoint::Report kWarn = [](const std::string& line) { log::warning(line); };

double thread_seconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

CheckpointSaver::CheckpointSaver(FileSystem& files, Options options)
    : files_(files), options_(std::move(options)) {}

void CheckpointSaver::start(SaveRequest request) {
  FT_CHECK(!is_busy() && !outcome_, "one save at a time");
  started_ = now_seconds();
  stalled_ = 0.0;
  snapshot_ = request.snapshot;
  holds_tensors_ = true;
  auto shared = std::make_shared<SaveRequest>(std::move(request));
  task_.start([this, shared] { write(*shared); });
  if (!options_.in_background) wait();
}

void CheckpointSaver::before_update() {
  if (!holds_tensors_) return;
  if (is_busy()) {
    const double start = now_seconds();
    if (!copy()) task_.wait();
    stalled_ += now_seconds() - start;
  }
  holds_tensors_ = false;
  snapshot_.reset();
}

void CheckpointSaver::reserve(uint64_t bytes) {
  if (options_.copies_on_device || pages_ || bytes == 0 || is_busy()) return;
  if (!options_.has_room(bytes)) return;
  pages_ = std::make_shared<HostPages>(bytes);
  task_.start([pages = pages_] { pages->populate(); });
}

bool CheckpointSaver::copy() {
  if (!snapshot_ || snapshot_->bytes() == 0) return false;
  if (options_.copies_on_device && snapshot_->detach_on_device()) return true;
  const bool fits = pages_ && pages_.use_count() == 1 && pages_->size() >= snapshot_->bytes();
  if (!fits) {
    pages_.reset();
    if (!options_.has_room(snapshot_->bytes())) return false;
    pages_ = std::make_shared<HostPages>(snapshot_->bytes());
  }
  return snapshot_->detach(pages_);
}

bool CheckpointSaver::wait(std::optional<double> seconds) {
  if (!is_busy()) return true;
  const double start = now_seconds();
  const bool idle = task_.wait(seconds);
  stalled_ += now_seconds() - start;
  return idle;
}

std::optional<SaveOutcome> CheckpointSaver::take_outcome() {
  if (is_busy()) return std::nullopt;
  // A failed save is an outcome; exceptions that arrive here are not recoverable.
  if (const std::exception_ptr failure = task_.take_failure()) std::rethrow_exception(failure);
  std::optional<SaveOutcome> outcome = std::exchange(outcome_, std::nullopt);
  if (outcome) outcome->stall_seconds = stalled_;
  return outcome;
}

void CheckpointSaver::write(const SaveRequest& request) {
  const double processor_start = thread_seconds();
  const std::string step = std::to_string(request.identity.step);
  std::string problem;
  Try result = try_to_commit(request, problem);
  if (result == Try::kFailed) {
    const std::string first = problem;
    log::debug("saving step " + step + " failed, trying once more: " + first);
    const bool made_room = is_full_ && make_room(request, first);
    result = try_to_commit(request, problem);
    if (is_full_) problem += advice_on_space(request);
    if (result == Try::kCommitted && !made_room) {
      log::warning("step " + step + " was saved at the second attempt; the first failed: " + first);
    } else if (result == Try::kFailed) {
      // The end of a run tries the step of a failed save once more.
      const bool is_repeated =
          std::exchange(warned_step_, request.identity.step) == request.identity.step;
      (is_repeated ? log::debug : log::warning)(
          "step " + step + " was not saved: " + problem +
          " (tried twice); training continues, and the next save tries again");
    }
  }
  const bool committed = result == Try::kCommitted;
  if (committed) {
    checkpoint::rotate(files_, options_.output_dir, request.identity.run_id, request.rotation,
                       kWarn);
  }
  const double end = now_seconds();
  log::debug((committed ? "saved step " : "failed to save step ") + step + " in " +
             std::to_string(end - started_) + " s");
  outcome_ = SaveOutcome{.step = request.identity.step,
                         .committed = committed,
                         .seconds = end - started_,
                         .processor_seconds = thread_seconds() - processor_start};
  if (result == Try::kNonFinite) outcome_->nonfinite = problem;
}

bool CheckpointSaver::make_room(const SaveRequest& request, const std::string& problem) const {
  const std::vector<int64_t> deleted =
      checkpoint::make_room(files_, options_.output_dir, request.identity, request.rotation, kWarn);
  for (const int64_t step : deleted) {
    log::warning(checkpoint::checkpoint_name(step) + " was deleted before step " +
                 std::to_string(request.identity.step) +
                 " is saved instead of after it: " + problem);
  }
  return !deleted.empty();
}

std::string CheckpointSaver::advice_on_space(const SaveRequest& request) {
  const int64_t limit = request.rotation.save_total_limit.value_or(0);
  if (limit != 1) return limit < 1 ? " or set save_total_limit" : " or lower save_total_limit";
  return "; with save_total_limit 1 the last checkpoint is deleted only after the next one is "
         "complete, so there must be space for two";
}

CheckpointSaver::Try CheckpointSaver::try_to_commit(const SaveRequest& request,
                                                    std::string& problem) {
  is_full_ = false;
  try {
    const std::string path = checkpoint::write_checkpoint(
        files_, options_.output_dir, request.identity, request.contents,
        request.bytes + request.bytes / 20, options_.before_commit);
    if (options_.on_commit) options_.on_commit(path, request.rotation);
    return Try::kCommitted;
  } catch (const NonFinite& error) {
    problem = error.what();
    return Try::kNonFinite;
  } catch (const Error& error) {
    problem = error.what();
    is_full_ = error.system_error() == ENOSPC || error.system_error() == EDQUOT;
  } catch (const std::bad_alloc&) {
    problem = "there is not enough memory";
  }
  return Try::kFailed;
}

}  // namespace finetune
