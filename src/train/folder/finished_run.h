// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "finetune/checkpoint/finished_model.h"
#include "finetune/state/run_state.h"
#include "train/folder/mirrors.h"
#include "train/folder/output_folder.h"

namespace finetune {

// Verification of a finished run: before a model is called finished or copied to a mirror, its
// files are compared with their checksums.
class FinishedRun {
 public:
  // Both must outlive this object.
  FinishedRun(const OutputFolder& folder, Mirrors& mirrors) : folder_(folder), mirrors_(mirrors) {}

  // Compares every file of the finished model with its checksum and restores missing or damaged
  // files, also of checkpoints, from a mirror; each repair is a warning. Returns what no mirror can
  // restore, as a clause: then the model must be rebuilt from a checkpoint. A run of an older
  // version, without checksums, gets them if its files are consistent.
  [[nodiscard]] std::string verify(const RunState& finished);
  // After that: renames the damaged files to .bad-<k>, so that nothing reads them, and restores
  // damaged checkpoints of the run from mirrors as far as possible.
  void prepare_rebuild(const std::string& run_id);
  // Whether this session replaces a damaged finished model.
  [[nodiscard]] bool is_rebuilding() const { return damaged_.has_value(); }
  // Returns the first weight file of the rebuilt model that differs from that of the finished run;
  // empty: none.
  [[nodiscard]] std::string difference_to(const checkpoint::Manifest& rebuilt) const;
  // If only results are damaged, not the model: gives them up, so that the run counts as finished.
  // Returns their names; empty: the model is damaged too, and nothing has changed.
  [[nodiscard]] std::string give_up_results();

 private:
  void record_new_results(const checkpoint::Manifest& manifest);
  std::string repair(checkpoint::FinishedModel model, const RunState& finished);
  std::string adopt(const RunState& finished);
  bool restore_whole_model(const RunState& finished);
  void repair_checkpoints(const std::string& run_id);
  void repair_log(const std::string& name);

  const OutputFolder& folder_;
  Mirrors& mirrors_;
  std::optional<checkpoint::FinishedModel> damaged_;  // what is being rebuilt, with its manifest
};

}  // namespace finetune
