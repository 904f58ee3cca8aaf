// SPDX-License-Identifier: MIT
#include "train/folder/former_run.h"

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/model_files.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/report/metrics_file.h"
#include "finetune/report/progress_record.h"
#include "finetune/report/session_log.h"
#include "finetune/tensor/weight_files.h"

namespace finetune {
namespace {

constexpr char kEventsFolder[] = "runs";
constexpr char kQuarantineName[] = "run.old-";

// Also names of other programs: "model-00001-of-00002.safetensors", "pytorch_model.bin.index.json".
bool is_of_weights(std::string_view name) {
  return checkpoint::is_weight_file_name(name) || name == checkpoint::kModelIndexFile ||
         name.starts_with("pytorch_model");
}

bool is_moved(std::string_view name) {
  constexpr std::array<std::string_view, 7> kNames = {checkpoint::kFinetuneStateFile,
                                                      checkpoint::kManifestFile,
                                                      checkpoint::kTrainerStateFile,
                                                      kMetricsFile,
                                                      kProgressFile,
                                                      kEventsFolder,
                                                      checkpoint::kTreeIndexFile};
  return is_module_folder_name(std::string(name)) || is_laya_folder_name(name) ||
         is_of_weights(name) || name == kLayaFile || checkpoint::is_result_file_name(name) ||
         std::ranges::find(kNames, name) != kNames.end();
}

// config.json, tokenizer.json, vocab.txt, spiece.model, README.md, ...
bool is_copied(FileSystem& files, const std::string& folder, const std::string& name) {
  const auto ends = [&](const char* end) { return name.ends_with(end); };
  return !is_moved(name) && !name.starts_with('.') &&
         (ends(".json") || ends(".txt") || ends(".model") || ends(".jinja") || ends(".md")) &&
         files.type(join_path(folder, name)) == FileType::kFile;
}

// The state first and the manifest last: if this is interrupted, the next start without --restart
// finds a manifest without a state and refuses to train (check_lost_state()).
int position_in_order(std::string_view name) {
  if (name == checkpoint::kFinetuneStateFile) return 0;
  return name == checkpoint::kManifestFile ? 2 : 1;
}

std::string new_folder(FileSystem& files, const std::string& output_dir) {
  for (int64_t number = 1;; ++number) {
    std::string path = join_path(output_dir, kQuarantineName + std::to_string(number));
    if (files.exists(path)) continue;
    files.make_directory(path);
    return path;
  }
}

}  // namespace

namespace {

// Whether a checkpoint folder holds files of a checkpoint, of this program or of another one. An
// empty or unreadable folder counts as one: the search for checkpoints reports it.
bool is_checkpoint(FileSystem& files, const std::string& path) {
  try {
    if (files.type(path) != FileType::kDirectory) return true;
    const std::vector<std::string> names = files.list(path);
    return names.empty() || std::ranges::any_of(names, [](const std::string& name) {
             return checkpoint::is_run_file_name(name) || is_of_weights(name) ||
                    name == checkpoint::kOptimizerFile ||
                    name == checkpoint::kOptimizerTensorsFile ||
                    name == checkpoint::kSchedulerFile || name == checkpoint::kScalerFile;
           });
  } catch (const Error& error) {
    log::debug(error.what());
    return true;
  }
}

// A file that runs write, and the keys one of which it always holds.
struct KnownJson {
  const char* name;
  std::vector<std::string_view> keys;
  bool is_lines = false;  // one object in each line
};
const std::array<KnownJson, 7> kKnownJson = {
    {{.name = kConfigFile, .keys = {"model_type", "architectures"}},
     {.name = kAdapterConfigFile, .keys = {"peft_type"}},
     {.name = checkpoint::kManifestFile, .keys = {"files"}},
     {.name = checkpoint::kFinetuneStateFile, .keys = {"run_id"}},
     {.name = "eval_results.json", .keys = {"eval_samples", "eval_runtime", "eval_loss"}},
     {.name = kMetricsFile, .keys = {"step"}, .is_lines = true},
     {.name = kSessionsFile, .keys = {"event"}, .is_lines = true}}};

enum class Content { kOfRun, kOther, kDamaged };

// A power cut leaves zeros, or the beginning of what was written, which is an object.
Content content_of_no_json(FileSystem& files, const std::string& path) {
  char first = '\0';
  const std::unique_ptr<ReadableFile> file = files.open(path);
  if (file->size() > 0) file->read_at(0, &first, 1);
  return first == '\0' || first == '{' ? Content::kDamaged : Content::kOther;
}

Content content_of(FileSystem& files, const std::string& folder, const KnownJson& known) {
  constexpr uint64_t kMaxBytes = uint64_t{16} << 20;
  const std::string path = join_path(folder, known.name);
  if (files.type(path) != FileType::kFile) return Content::kDamaged;
  const auto judged = [&](const nlohmann::ordered_json& json) {
    const auto has = [&](std::string_view key) { return json.contains(key); };
    return json.is_object() && std::ranges::any_of(known.keys, has) ? Content::kOfRun
                                                                    : Content::kOther;
  };
  try {
    std::optional<Content> content;
    if (known.is_lines) {
      (void)read_json_lines(files, path, [&](nlohmann::ordered_json&& line, uint64_t) {
        content = judged(line);
        return false;
      });
    }
    if (content) return *content;
    // Of lines: one without its end, perhaps.
    return judged(parse_json(files.read_all(path, kMaxBytes), path));
  } catch (const Error& error) {
    // A damaged config.json or result shows nothing either way.
    const bool is_record =
        known.name != std::string_view(kConfigFile) && !checkpoint::is_result_file_name(known.name);
    if (error.kind() == ErrorKind::kIo || !is_record) return Content::kDamaged;
    return content_of_no_json(files, path);
  }
}

// Whether a file or folder shows that a run wrote here before its end, if damaged by a power cut.
bool is_trace(FileSystem& files, const std::string& folder, const std::string& name) {
  if (checkpoint::parse_checkpoint_name(name) || checkpoint::parse_quarantine_name(name) ||
      name.starts_with(kQuarantineName) || name == kProgressFile ||
      name == checkpoint::kWrittenFile) {
    return true;
  }
  if (name == checkpoint::kConfigFile || checkpoint::is_result_file_name(name)) return false;
  const auto known =
      std::ranges::find_if(kKnownJson, [&](const KnownJson& one) { return name == one.name; });
  return known != kKnownJson.end() && content_of(files, folder, *known) != Content::kOther;
}

bool is_of_a_run(FileSystem& files, const std::string& folder,
                 const std::vector<std::string>& names) {
  return std::ranges::any_of(
      names, [&](const std::string& name) { return is_trace(files, folder, name); });
}

// Whether the end of a run would overwrite the file. `finetune evaluate` writes results without a
// run.
bool is_overwritten(const std::string& name) {
  const bool is_of_evaluation = checkpoint::is_result_file_name(name) && !name.starts_with("train");
  return (checkpoint::is_run_file_name(name) || is_of_weights(name) || name == kMetricsFile ||
          name == kSessionsFile) &&
         !is_of_evaluation;
}

[[noreturn]] void refuse_file(const KeyLocations& keys, const OwnedFolder& folder,
                              const std::string& name) {
  const bool is_of_a_model = is_of_weights(name);
  refuse_key(
      keys, folder.key,
      "'" + join_path(folder.path, name) + "' " +
          (is_of_a_model ? "belongs to a model that no run of finetune wrote"
                         : "is a file that no run of finetune wrote") +
          ", and this run would overwrite it; choose another " + folder.key +
          (is_of_a_model ? ", or add --restart, which first moves that model to '"
                         : ", move the file away, or add --restart, which first copies it to '") +
          kQuarantineName + "1'");
}

}  // namespace

std::string quarantine_former_run(FileSystem& files, const std::string& output_dir) {
  if (!files.exists(output_dir)) return "";
  const std::vector<std::string> names = files.list(output_dir);
  std::vector<std::string> moved;
  std::ranges::copy_if(names, std::back_inserter(moved), is_moved);
  // Of a folder without a run also files that the new run overwrites, all of which are copied.
  const bool is_foreign = !is_of_a_run(files, output_dir, names);
  const auto is_at_risk = [](const std::string& name) {  // a mirror's README.md is replaced too
    return is_overwritten(name) || name == checkpoint::kModelCardFile;
  };
  if (moved.empty() && !(is_foreign && std::ranges::any_of(names, is_at_risk))) return "";
  std::ranges::stable_sort(moved, {}, position_in_order);
  std::string quarantined = new_folder(files, output_dir);
  for (const std::string& name : names) {
    if (!is_copied(files, output_dir, name)) continue;
    files.write_atomically(join_path(quarantined, name),
                           files.read_all(join_path(output_dir, name)));
  }
  for (const std::string& name : moved) {
    files.rename_new(join_path(output_dir, name), join_path(quarantined, name));
  }
  files.sync_directory(quarantined);
  files.sync_directory(output_dir);
  return quarantined;
}

void refuse_other_json(FileSystem& files, const KeyLocations& keys, const OwnedFolder& folder) {
  if (!files.exists(folder.path)) return;
  const bool has_run = is_of_a_run(files, folder.path, files.list(folder.path));
  for (const KnownJson& known : kKnownJson) {
    // Next to a run's files another content is damage, which a start repairs.
    if (has_run && known.name != std::string_view(kConfigFile)) continue;
    if (content_of(files, folder.path, known) == Content::kOther) {
      refuse_file(keys, folder, known.name);
    }
  }
}

void refuse_foreign_files(FileSystem& files, const KeyLocations& keys, const OwnedFolder& folder) {
  if (!files.exists(folder.path)) return;
  const std::vector<std::string> names = files.list(folder.path);
  for (const std::string& name : names) {
    if (!checkpoint::parse_checkpoint_name(name)) continue;
    if (is_checkpoint(files, join_path(folder.path, name))) continue;
    refuse_key(keys, folder.key,
               "'" + join_path(folder.path, name) +
                   "' has the name of a checkpoint, but no program wrote one there; rename that "
                   "folder, or choose another " +
                   folder.key);
  }
  if (is_of_a_run(files, folder.path, names)) return;
  const auto first = [&](const auto& is_meant) {
    const auto found = std::ranges::find_if(names, is_meant);
    if (found != names.end()) refuse_file(keys, folder, *found);
  };
  first([](const std::string& name) { return is_of_weights(name); });
  first(is_overwritten);
  // Of an output folder a run keeps the user's README.md and adds to results; a mirror gets copies.
  if (std::string_view(folder.key) != "mirror_dir") return;
  first([](const std::string& name) {
    return checkpoint::is_result_file_name(name) || name == checkpoint::kModelCardFile;
  });
}

}  // namespace finetune
