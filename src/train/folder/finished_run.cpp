// SPDX-License-Identifier: MIT
#include "train/folder/finished_run.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/report/metrics_file.h"
#include "finetune/report/session_log.h"
#include "finetune/state/metrics_log.h"
#include "finetune/state/run_state.h"
#include "finetune/tensor/model_tensors.h"

namespace finetune {
namespace {

using checkpoint::CheckpointEntry;
using checkpoint::FinishedModel;
using checkpoint::Manifest;

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxTextBytes = uint64_t{256} << 20;

bool is_of(const Manifest& manifest, const RunState& run) {
  return manifest.run_id == run.run_id && manifest.step == run.step;
}

// Whether the name is that of a finished model's file. For models without a manifest.json.
bool is_exported_file_name(std::string_view name) {
  constexpr std::array<std::string_view, 7> kNames = {checkpoint::kConfigFile,
                                                      kAdapterConfigFile,
                                                      kAdapterFile,
                                                      checkpoint::kTrainerStateFile,
                                                      checkpoint::kFinetuneStateFile,
                                                      checkpoint::kModelFile,
                                                      checkpoint::kModelIndexFile};
  return std::ranges::find(kNames, name) != kNames.end() || is_tokenizer_file_name(name) ||
         checkpoint::is_result_file_name(name) ||
         (name.starts_with("model-") && checkpoint::is_weight_file_name(name));
}

// Returns a manifest of the files that are in the folder now.
Manifest record_exported_files(FileSystem& files, const std::string& folder, const RunState& run) {
  Manifest manifest;
  manifest.run_id = run.run_id;
  manifest.step = run.step;
  for (const std::string& name : files.list(folder)) {
    interrupt::throw_if_requested("verifying the finished model");
    const std::string path = join_path(folder, name);
    if (!is_exported_file_name(name) || files.type(path) != FileType::kFile) continue;
    manifest.files[name] = checkpoint::record_file(files, path);
  }
  return manifest;
}

// Checks a finished model without checksums for contradictions. Returns the first as a clause;
// empty: none found.
std::string inconsistency(FileSystem& files, const std::string& folder, const RunState& run,
                          const Manifest& present) {
  try {
    (void)load_model_tensors(files, folder);
    for (const auto& [name, record] : present.files) {
      if (!name.ends_with(".json") || record.bytes > kMaxTextBytes) continue;
      const std::string path = join_path(folder, name);
      JsonLimits limits;
      limits.allow_nan = true;
      limits.max_bytes = kMaxTextBytes;
      (void)parse_json(files.read_all(path, kMaxTextBytes), path, ErrorKind::kData, limits);
    }
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kIo && error.system_error() != ENOENT) throw;
    return error.what();
  }
  // The weights of the last step are also in its checkpoint, unless another step was exported.
  const auto best = run.config.find("load_best_model_at_end");
  if (best != run.config.end() && *best == true) return "";
  const std::string path = join_path(folder, checkpoint::checkpoint_name(run.step));
  const FinishedModel saved = checkpoint::inspect_finished_model(files, path, false);
  if (!saved.manifest || saved.manifest->run_id != run.run_id) return "";
  for (const auto& [name, record] : present.files) {
    const auto known = saved.manifest->files.find(name);
    if (!checkpoint::is_weight_file_name(name) || known == saved.manifest->files.end()) continue;
    if (known->second.bytes == record.bytes && known->second != record) {
      return "'" + join_path(folder, name) + "' differs from the one in " + path;
    }
  }
  return "";
}

// Whether a folder has the finished model of this run, according to its finetune_state.json.
bool holds_end_of(FileSystem& files, const std::string& folder, const RunState& run) {
  const std::string path = join_path(folder, checkpoint::kFinetuneStateFile);
  try {
    if (!files.exists(path)) return false;
    const RunState there = RunState::parse(files.read_all(path, kMaxTextBytes), path);
    return there.finished && there.run_id == run.run_id && there.step == run.step;
  } catch (const Error& error) {
    log::debug(std::string("not used: ") + error.what());
    return false;
  }
}

}  // namespace

std::string FinishedRun::verify(const RunState& finished) {
  const std::string& folder = folder_.path();
  FileSystem& files = folder_.files();
  FinishedModel model = checkpoint::inspect_finished_model(files, folder, true);
  if (model.is_newer) throw checkpoint::NewerFormat(model.problem);
  if (model.manifest && !is_of(*model.manifest, finished)) {
    model = {.has_manifest_file = true,
             .problem = "'" + join_path(folder, checkpoint::kManifestFile) +
                        "' belongs to another run or step"};
  }
  std::string problem;
  if (model.is_valid()) {
    record_new_results(*model.manifest);
  } else if (!model.has_manifest_file && !finished.has_manifest) {
    problem = adopt(finished);
  } else {
    problem = repair(std::move(model), finished);
  }
  if (!problem.empty()) return problem;
  repair_checkpoints(finished.run_id);
  for (const char* name : {kMetricsFile, kSessionsFile}) repair_log(name);
  return "";
}

// The logs grow until the end and are in no manifest: their lines are checked instead. A power cut
// may leave blocks that were never written.
void FinishedRun::repair_log(const std::string& name) {
  const auto read = [&](FileSystem& files, const std::string& folder, std::vector<Json>& lines) {
    return read_json_lines(files, join_path(folder, name), [&](Json&& line, uint64_t) {
      lines.push_back(std::move(line));
      return true;
    });
  };
  const std::string& folder = folder_.path();
  FileSystem& files = folder_.files();
  const std::string path = join_path(folder, name);
  try {
    // A long run's lines are kept in memory only where they are needed.
    bool is_empty = true;
    const int64_t damaged = read_json_lines(files, path, [&](Json&&, uint64_t) {
      is_empty = false;
      return true;
    });
    if (damaged == 0 && !is_empty) return;
    std::vector<Json> lines;
    (void)read(files, folder, lines);
    std::vector<Json> log;
    if (name == kMetricsFile) {
      const std::string state = join_path(folder, checkpoint::kTrainerStateFile);
      if (!files.exists(state)) return;
      log = TrainerState::from_text(files.read_all(state, kMaxTextBytes), state).log_history;
    }
    if (damaged == 0 && log.empty()) return;
    const std::string problem =
        damaged == 0 ? "was empty or missing" : format_text("held {} damaged lines", damaged);
    mirrors_.open_once();
    for (const Mirrors::Location& location : mirrors_.locations()) {
      std::vector<Json> copied;
      if (!location.is_reached || read(*location.files, location.directory, copied) != 0) continue;
      if (copied.size() < std::max(lines.size(), log.size())) continue;
      files.write_atomically(path, location.files->read_all(join_path(location.directory, name)));
      log::warning("'" + path + "' " + problem + ": it is restored from '" + location.directory +
                   "'");
      return;
    }
    std::string text;
    for (const Json& line : lines) text += line.dump(-1, ' ', true) + "\n";
    files.write_atomically(path, log.empty() ? text : lines_of_log(log, lines));
    log::warning("'" + path + "' " + problem +
                 (damaged == 0 ? ": its lines are written again, without times"
                               : ": they are replaced or left out"));
  } catch (const Error& error) {  // the model is complete without it
    log::warning("'" + path + "' cannot be repaired: " + error.what());
  }
}

// Records result files that an interrupted evaluation left without a record.
void FinishedRun::record_new_results(const Manifest& manifest) {
  const std::string& folder = folder_.path();
  FileSystem& files = folder_.files();
  const std::vector<std::string> names = files.list(folder);
  const bool has_new = std::ranges::any_of(names, [&](const std::string& name) {
    return checkpoint::is_result_file_name(name) && manifest.files.count(name) == 0 &&
           files.type(join_path(folder, name)) == FileType::kFile;
  });
  if (has_new) checkpoint::ResultUpdate(files, folder).commit();
}

std::string FinishedRun::repair(FinishedModel model, const RunState& finished) {
  const std::string& folder = folder_.path();
  FileSystem& files = folder_.files();
  log::warning("the finished model is damaged: " + describe_damage(model));
  mirrors_.open_once();
  const bool had_manifest = model.manifest.has_value();
  for (const Mirrors::Location& location : mirrors_.locations()) {
    if (!location.is_reached || model.is_valid()) continue;
    if (!model.manifest) {
      try {
        const FinishedModel there =
            checkpoint::inspect_finished_model(*location.files, location.directory, false);
        if (!there.manifest || !is_of(*there.manifest, finished)) continue;
        model = checkpoint::compare_with_manifest(files, folder, *there.manifest, true);
      } catch (const Error& error) {
        log::warning("the mirror '" + location.directory + "' cannot be read: " + error.what());
        continue;
      }
    }
    std::erase_if(model.damaged, [&](const auto& item) {
      return mirrors_.restore_file(location, item.first, model.manifest->files.at(item.first));
    });
    if (model.is_valid() && !had_manifest) {
      checkpoint::write_manifest(files, folder, *model.manifest);
      log::warning("restored '" + join_path(folder, checkpoint::kManifestFile) +
                   "' from the mirror '" + location.directory + "'");
    }
  }
  if (model.is_valid() || restore_whole_model(finished)) return "";
  if (had_manifest) damaged_ = std::move(model);
  return describe_damage(damaged_ ? *damaged_ : model);
}

// Restores the complete model of a mirror. It may be from before a later evaluation, or have only
// an index instead of a manifest.
bool FinishedRun::restore_whole_model(const RunState& finished) {
  for (const Mirrors::Location& location : mirrors_.locations()) {
    if (!location.is_reached) continue;
    CheckpointEntry end;
    end.run_id = finished.run_id;
    end.step = finished.step;
    if (!checkpoint::restore_finished(mirrors_.back(location), end)) continue;
    log::warning("restored the finished model from the mirror '" + location.directory + "'");
    return true;
  }
  return false;
}

// Adds checksums to a run that an older version finished, if its files are consistent.
std::string FinishedRun::adopt(const RunState& finished) {
  const std::string& folder = folder_.path();
  FileSystem& files = folder_.files();
  Manifest present = record_exported_files(files, folder, finished);
  const std::string problem = inconsistency(files, folder, finished, present);
  if (!problem.empty()) {
    log::warning("the finished model is damaged: " + problem);
    mirrors_.open_once();
    return restore_whole_model(finished) ? "" : problem;
  }
  // If the verified copy of a mirror differs, that copy is used: the local file has no checksum.
  if (!mirrors_.locations().empty()) mirrors_.open_once();
  for (const Mirrors::Location& location : mirrors_.locations()) {
    if (!location.is_reached || !holds_end_of(*location.files, location.directory, finished))
      continue;
    for (const auto& [name, record] : checkpoint::indexed_files(mirrors_.back(location))) {
      const auto here = present.files.find(name);
      if (here == present.files.end() || checkpoint::is_result_file_name(name)) continue;
      if (here->second == record) continue;
      const std::string path = join_path(folder, name);
      log::warning("'" + path + "' differs from the copy in the mirror '" + location.directory +
                   "'");
      if (!mirrors_.restore_file(location, name, record)) continue;
      here->second = record;
    }
  }
  checkpoint::write_manifest(files, folder, present);
  log::info(
      "an older version of finetune finished this run without checksums; its files are "
      "consistent, and their checksums are in " +
      join_path(folder, checkpoint::kManifestFile) + " now");
  return "";
}

// A finished run does not need its checkpoints, but a run with more steps does.
void FinishedRun::repair_checkpoints(const std::string& run_id) {
  const std::string& folder = folder_.path();
  FileSystem& files = folder_.files();
  const auto restore = [&](int64_t step) {
    if (mirrors_.locations().empty()) return false;
    mirrors_.open_once();
    return std::ranges::any_of(mirrors_.locations(), [&](const Mirrors::Location& location) {
      if (!location.is_reached || !checkpoint::restore_step(mirrors_.back(location), step, run_id))
        return false;
      log::warning("restored " + checkpoint::checkpoint_name(step) + " from the mirror '" +
                   location.directory + "'");
      return true;
    });
  };
  for (const CheckpointEntry& entry : checkpoint::list_checkpoints(files, folder, true)) {
    interrupt::throw_if_requested("verifying the checkpoints");
    if (entry.whole) continue;
    log::warning(entry.path + " is damaged: " + entry.problem);
    if (entry.unreadable || restore(entry.step)) continue;
    log::warning("nothing can replace " + entry.path +
                 "; the finished model does not need it, but more steps cannot start from it");
  }
  // Checkpoints that were renamed in an earlier session and not yet replaced.
  for (const std::string& name : files.list(folder)) {
    const auto quarantined = checkpoint::parse_quarantine_name(name);
    if (!quarantined || quarantined->reason != checkpoint::QuarantineReason::kBad ||
        mirrors_.locations().empty())
      continue;
    const std::string path = join_path(folder, checkpoint::checkpoint_name(quarantined->step));
    if (!files.exists(path)) (void)restore(quarantined->step);
  }
}

void FinishedRun::prepare_rebuild(const std::string& run_id) {
  repair_checkpoints(run_id);
  const std::string& folder = folder_.path();
  FileSystem& files = folder_.files();
  const auto quarantine = [&](const std::string& name) {
    const std::string kept = checkpoint::quarantine_file(files, join_path(folder, name));
    if (!kept.empty()) log::info("renamed '" + join_path(folder, name) + "' to " + kept);
  };
  if (damaged_) {
    for (const auto& item : damaged_->damaged) {
      // finetune_state.json, which marks the run as finished, stays until the rebuilt model is
      // there.
      if (item.first != checkpoint::kFinetuneStateFile) quarantine(item.first);
    }
    return;
  }
  for (const std::string& name : files.list(folder)) {
    if (checkpoint::is_result_file_name(name)) quarantine(name);
  }
}

// Compares only weights, because later evaluations may have added results.
std::string FinishedRun::difference_to(const Manifest& rebuilt) const {
  if (!damaged_) return "";
  for (const auto& [name, record] : damaged_->manifest->files) {
    if (!checkpoint::is_weight_file_name(name)) continue;
    const auto found = rebuilt.files.find(name);
    if (found == rebuilt.files.end() || found->second != record) return name;
  }
  return "";
}

std::string FinishedRun::give_up_results() {
  const auto is_result = [](const auto& item) {
    return checkpoint::is_result_file_name(item.first);
  };
  if (!damaged_ || !std::ranges::all_of(damaged_->damaged, is_result)) return "";
  std::vector<std::string> names;
  for (const auto& item : damaged_->damaged) {
    names.push_back(item.first);
    damaged_->manifest->files.erase(item.first);
  }
  checkpoint::write_manifest(folder_.files(), folder_.path(), *damaged_->manifest);
  damaged_.reset();
  return join(names);
}

}  // namespace finetune
