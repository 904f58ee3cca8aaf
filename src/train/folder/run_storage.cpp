// SPDX-License-Identifier: MIT
#include "train/folder/run_storage.h"

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/rotation.h"
#include "train/folder/former_run.h"

namespace finetune {

void RunStorage::check_ours() {
  folder_.check_ours();
  mirrors_.check_ours();
}

void RunStorage::in_folder_and_mirrors(
    const std::function<void(FileSystem& files, const std::string& folder)>& action,
    const std::string& failure) {
  action(folder_.files(), folder_.path());
  for (const Mirrors::Location& location : mirrors_.locations()) {
    if (!location.is_reached) continue;
    try {
      action(*location.files, location.directory);
    } catch (const Error& error) {
      log::warning(failure + ": " + error.what());
    }
  }
}

void RunStorage::quarantine(int64_t after_step) {
  in_folder_and_mirrors(
      [&](FileSystem& files, const std::string& folder) {
        for (const std::string& path : checkpoint::quarantine_all(files, folder, after_step)) {
          log::info("renamed: " + path);
        }
      },
      "the mirror's checkpoints are not renamed");
}

void RunStorage::quarantine_former_run() {
  in_folder_and_mirrors(
      [](FileSystem& files, const std::string& folder) {
        const std::string quarantined = finetune::quarantine_former_run(files, folder);
        if (quarantined.empty()) return;
        log::info("moved the model, results and logs of the former run to " + quarantined);
      },
      "the former run's model stays in the mirror until this run ends and replaces it");
}

void RunStorage::forget_finished() {
  checkpoint::remember_written(folder_.files(), folder_.path());
  in_folder_and_mirrors(
      [](FileSystem& files, const std::string& folder) {
        checkpoint::forget_finished(files, folder);
      },
      "the mirror still says that the run is finished");
}

}  // namespace finetune
