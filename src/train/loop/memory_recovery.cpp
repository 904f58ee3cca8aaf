// SPDX-License-Identifier: MIT
#include "train/loop/memory_recovery.h"

#include <algorithm>
#include <exception>

#include "finetune/base/log.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/out_of_memory.h"

namespace finetune {

MemoryRecovery::MemoryRecovery(TrainingRun& run, Saving& saving, UpdateStep& step)
    : run_(run), saving_(saving), step_(step), eval_rows_(run.args.per_device_eval_batch_size) {}

StepReport MemoryRecovery::run_step() {
  while (true) {
    std::exception_ptr out_of_memory;
    try {
      return step_.run();
    } catch (...) {
      out_of_memory = std::current_exception();
      if (!step_.may_repeat() || !is_lack_of_memory(out_of_memory)) throw;
    }
    if (compute_fewer_at_once()) continue;
    if (run_.split.rows == 1) {
      log::warning("step " + std::to_string(run_.state.step + 1) +
                   ": out of memory with 1 sample at a time, so the batch cannot be split further");
      std::rethrow_exception(out_of_memory);
    }
    out_of_memory = nullptr;
    split_smaller();
  }
}

bool MemoryRecovery::compute_fewer_at_once() {
  if (!run_.is_one_threaded()) return false;
  int64_t& at_once = run_.parts.batches_at_once;
  const int64_t before = std::min(at_once, run_.split.accumulation);
  if (!run_.world().any(run_.sums_shards() && before > 1)) return false;
  saving_.settle();
  step_.clear();
  release_unused_memory(run_.parts.device);
  at_once = std::max<int64_t>(1, before / 2);
  log::warning("step " + std::to_string(run_.state.step + 1) +
               ": out of memory; it is done again with " + std::to_string(at_once) +
               " micro-batches at a time instead of " + std::to_string(before) +
               ", which gives the same bits in more time");
  return true;
}

// Called between two tries of a step: the same samples at the same positions, fewer at a time.
void MemoryRecovery::split_smaller() {
  saving_.settle();  // frees the writer's copies
  step_.clear();
  run_.loader.reset();
  release_unused_memory(run_.parts.device);
  const int64_t asked = run_.args.per_device_train_batch_size;
  run_.split = run_.split.next_smaller().value();
  run_.state.cut.asked_train = asked;
  run_.state.cut.train = run_.split.rows;
  run_.make_loader();
  step_.split_changed();
  log::warning("step " + std::to_string(run_.state.step + 1) +
               ": out of memory; it is done again, and training continues, with " +
               std::to_string(run_.split.rows) + " x " + std::to_string(run_.split.accumulation) +
               " samples instead of " + std::to_string(asked) +
               " at a time; the effective batch stays " +
               std::to_string(run_.state.effective_batch_size));
}

void MemoryRecovery::take_saved_split(const RunState& saved, const BatchSplit& asked) {
  MemoryCut& cut = run_.state.cut;
  const Environment now = current_environment(run_.parts.device);
  const bool is_same_machine = saved.environment.device == now.device &&
                               saved.environment.torch_version == now.torch_version;
  const int64_t train_rows = run_.args.per_device_train_batch_size;
  const int64_t eval_rows = run_.args.per_device_eval_batch_size;
  const MemoryCut known = usable_cut(cut, train_rows, eval_rows, asked.rank_batch());
  cut = is_same_machine ? known : MemoryCut();
  // After a rollback this session's findings are kept.
  if (run_.split.rows < train_rows) {
    cut.asked_train = train_rows;
    cut.train = run_.split.rows;
  } else if (cut.train > 0) {
    run_.split.rows = cut.train;
    log::info("memory did not suffice for " + std::to_string(cut.asked_train) +
              " samples at a time: " + std::to_string(cut.train) + " from the start");
  }
  if (eval_rows_ < eval_rows) {
    cut.asked_eval = eval_rows;
    cut.eval = eval_rows_;
  } else if (cut.eval > 0) {
    eval_rows_ = cut.eval;
  }
}

std::optional<EvaluationResult> MemoryRecovery::run_evaluation(Split split) {
  const int64_t before = eval_rows_;
  std::optional<EvaluationResult> result =
      evaluate(run_.parts, split, run_.args, run_.progress, eval_rows_);
  if (eval_rows_ != before) {
    run_.state.cut.asked_eval = run_.args.per_device_eval_batch_size;
    run_.state.cut.eval = eval_rows_;
  }
  return result;
}

}  // namespace finetune
