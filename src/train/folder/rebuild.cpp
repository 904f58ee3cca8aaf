// SPDX-License-Identifier: MIT
#include "train/folder/rebuild.h"

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/log.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/config/dump.h"
#include "train/setup/memory_budget.h"

namespace finetune {
namespace {

std::string changed_names(const LoadedConfig& config, const RunState& finished) {
  std::string names;
  const LoadedConfig taken = with_saved_choices(config, finished);
  for (const KeyChange& change : changed_keys(finished.config, to_json(taken.args))) {
    if (change.policy == ResumePolicy::kFree || change.is_path) continue;
    names += (names.empty() ? "" : ", ") + change.name;
  }
  return names;
}

}  // namespace

void begin_rebuild(RunStorage& storage, const LoadedConfig& config, const DamagedEnd& end,
                   const std::optional<checkpoint::CheckpointEntry>& newest) {
  if (!newest) {
    throw Error(ErrorKind::kCheckpoint,
                "the finished run in '" + config.args.output_dir + "' is damaged (" + end.damage +
                    "), and neither a mirror nor a checkpoint can repair it; put a good copy of "
                    "the file back, add --restart to train again from step 0, or choose another "
                    "output_dir");
  }
  if (end.state && newest->step < end.state->step) {
    const std::string names = changed_names(config, *end.state);
    if (!names.empty()) {
      throw Error(ErrorKind::kConfig,
                  "the finished run in '" + config.args.output_dir + "' is damaged (" + end.damage +
                      ") and is rebuilt by training again from step " +
                      std::to_string(newest->step) + ", which needs the keys that it had: set " +
                      names + " back");
    }
  }
  log::warning("the finished run is damaged (" + end.damage + "): rebuilding the model from " +
               newest->path);
  storage.prepare_rebuild(newest->run_id);
}

void check_lost_state(const std::string& output_dir, bool has_checkpoint) {
  FileSystem& files = FileSystem::local();
  const std::string state = join_path(output_dir, checkpoint::kFinetuneStateFile);
  const std::string manifest = join_path(output_dir, checkpoint::kManifestFile);
  if (files.exists(state) || !files.exists(manifest)) return;
  const std::string lost = "'" + state + "' is missing next to '" + manifest +
                           "', so the run is not known to be finished";
  // Training from step 0 would overwrite the existing model.
  if (!has_checkpoint) {
    throw Error(ErrorKind::kCheckpoint,
                lost +
                    ", and there is no checkpoint to do its end again from; put the file back, "
                    "add --restart to train again from step 0, or choose another output_dir");
  }
  log::warning(lost + "; its end is done again");
}

}  // namespace finetune
