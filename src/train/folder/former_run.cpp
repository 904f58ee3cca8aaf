// SPDX-License-Identifier: MIT
#include "train/folder/former_run.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/report/metrics_file.h"
#include "finetune/report/progress_record.h"
#include "finetune/report/session_log.h"
#include "finetune/tensor/weight_files.h"

namespace finetune {
namespace {

constexpr char kEventsFolder[] = "runs";
constexpr char kAsideName[] = "run.old-";

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
  return is_of_weights(name) || checkpoint::is_result_file_name(name) ||
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
int place_in_order(std::string_view name) {
  if (name == checkpoint::kFinetuneStateFile) return 0;
  return name == checkpoint::kManifestFile ? 2 : 1;
}

std::string new_folder(FileSystem& files, const std::string& output_dir) {
  for (int64_t number = 1;; ++number) {
    std::string path = join_path(output_dir, kAsideName + std::to_string(number));
    if (files.exists(path)) continue;
    files.make_directory(path);
    return path;
  }
}

}  // namespace

std::string set_aside_former_run(FileSystem& files, const std::string& output_dir) {
  if (!files.exists(output_dir)) return "";
  const std::vector<std::string> names = files.list(output_dir);
  std::vector<std::string> moved;
  std::ranges::copy_if(names, std::back_inserter(moved), is_moved);
  if (moved.empty()) return "";
  std::ranges::stable_sort(moved, {}, place_in_order);
  std::string aside = new_folder(files, output_dir);
  for (const std::string& name : names) {
    if (!is_copied(files, output_dir, name)) continue;
    files.write_atomically(join_path(aside, name), files.read_all(join_path(output_dir, name)));
  }
  for (const std::string& name : moved) {
    files.rename_new(join_path(output_dir, name), join_path(aside, name));
  }
  files.sync_directory(aside);
  files.sync_directory(output_dir);
  return aside;
}

void refuse_other_model(FileSystem& files, const LoadedConfig& config) {
  const std::string& folder = config.args.output_dir;
  if (!files.exists(folder)) return;
  std::string weights;
  for (const std::string& name : files.list(folder)) {
    const bool is_trace = checkpoint::parse_checkpoint_name(name) ||
                          checkpoint::parse_aside_name(name) || name.starts_with(kAsideName) ||
                          name == checkpoint::kFinetuneStateFile ||
                          name == checkpoint::kManifestFile || name == kSessionsFile ||
                          name == kMetricsFile || name == kProgressFile;
    if (is_trace) return;
    if (weights.empty() && is_of_weights(name)) weights = name;
  }
  if (weights.empty()) return;
  throw Error(
      ErrorKind::kConfig,
      config.where("output_dir") + ": output_dir: '" + join_path(folder, weights) +
          "' belongs to a model that no run of finetune wrote, and this run would overwrite "
          "it; choose another output_dir, or add --restart, which first moves that model to '" +
          kAsideName + "1'");
}

}  // namespace finetune
