// SPDX-License-Identifier: MIT
#include "train/save/checkpoint_contents.h"

#include <nlohmann/json.hpp>

namespace finetune {

CheckpointParts checkpoint_contents(TrainingRun& run, std::shared_ptr<CheckpointPart> model) {
  const RateSource rates{.schedule = run.schedule,
                         .state = run.state,
                         .initial_learning_rate = run.args.learning_rate};
  CheckpointParts parts;
  parts.add(std::move(model));
  parts.add(text_part([&run] { return run.parts.tokenizer->files(); }));
  parts.add(text_part([&run] { return run.parts.copied_files; }));
  parts.add(text_part([&run]() -> TextFiles {
    const DataRecord record = run.parts.setup->record();
    if (record.empty()) return {};
    return {{kDataRecordFile, record.to_text()}};
  }));
  parts.add(optimizer_part(*run.parts.optimizer, rates, run.divided.gather.get()));
  parts.add(scaler_part(run.scaler));
  parts.add(schedule_part(*run.parts.optimizer, rates));
  for (const std::shared_ptr<CheckpointPart>& part : run.options.more_parts) parts.add(part);
  return parts;
}

CheckpointParts checkpoint_records(TrainingRun& run) {
  CheckpointParts parts;
  parts.add(trainer_state_part(run.trainer_state));
  parts.add(run_state_part(run.state));
  return parts;
}

}  // namespace finetune
