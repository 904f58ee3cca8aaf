// SPDX-License-Identifier: MIT
// The trainer's look at the disk before the first step.
#include <algorithm>
#include <cmath>

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/state/optimizer_files.h"
#include "finetune/state/parameter_files.h"
#include "finetune/tensor/safetensors.h"
#include "train/shared_start.h"
#include "train/trainer.h"

namespace finetune {
namespace {

constexpr uint64_t kLogEntryBytes = 250;      // of trainer_state.json, indented
constexpr uint64_t kResultBytes = 16 * 1024;  // config.json, *_results.json, finetune_state.json

uint64_t bytes_of(const LazyTensors& tensors) {
  uint64_t bytes = 0;
  for (const LazyTensor& tensor : tensors) bytes += tensor.bytes();
  return bytes;
}

}  // namespace

uint64_t Trainer::checkpoint_bytes(bool with_optimizer) const {
  const ParameterStore& store = parts_.model->store();
  uint64_t bytes = bytes_of(with_optimizer ? checkpoint_tensors(store) : exported_tensors(store));
  if (with_optimizer) bytes += optimizer_file_bytes(*parts_.optimizer);
  for (const auto& [name, content] : parts_.tokenizer->files()) bytes += content.size();
  return bytes;
}

SavesToCome Trainer::saves_to_come() const {
  SavesToCome saves{.trains = !is_last_step() && !state_.stop_early,
                    .on_schedule = args_.save_strategy != "no",
                    .left = 1,
                    .limit = args_.save_total_limit};
  const int64_t steps = plan_.max_steps - state_.step;
  if (args_.save_strategy == "steps") {
    const int64_t last = plan_.max_steps % plan_.save_steps == 0 ? 0 : 1;
    saves.left = plan_.max_steps / plan_.save_steps - state_.step / plan_.save_steps + last;
  } else if (args_.save_strategy == "epoch") {
    const int64_t per_epoch = loader_->updates_per_epoch();
    saves.left = (steps + per_epoch - 1) / per_epoch;
  }
  // The best one is kept beside them.
  if (saves.limit && args_.metric_for_best_model) ++*saves.limit;
  return saves;
}

uint64_t Trainer::end_bytes() const {
  const int64_t steps = plan_.max_steps - state_.step;
  int64_t entries = plan_.logging_steps > 0 ? steps / plan_.logging_steps : 0;
  if (plan_.eval_steps > 0) entries += steps / plan_.eval_steps;
  return checkpoint_bytes(/*with_optimizer=*/false) + kResultBytes +
         trainer_state_.to_text().size() + static_cast<uint64_t>(entries) * kLogEntryBytes;
}

// Nothing is lost yet: the run is refused here rather than after hours.
void Trainer::check_space() {
  const std::string error = share_text(*parts_.world, [&] {
    const SavedBytes bytes{.scheduled = with_margin(checkpoint_bytes(!args_.save_only_model)),
                           .automatic = with_margin(checkpoint_bytes(/*with_optimizer=*/true)),
                           .end = end_bytes()};
    const SpaceVerdict verdict = judge_space(storage_.saving_folders(state_.run_id), bytes,
                                             saves_to_come(), /*is_resumed=*/state_.step > 0);
    if (!verdict.warning.empty()) log::warning(verdict.warning);
    return verdict.error;
  });
  if (!error.empty()) throw Error(ErrorKind::kIo, error);
}

}  // namespace finetune
