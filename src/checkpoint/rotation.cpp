// SPDX-License-Identifier: MIT
#include "finetune/checkpoint/rotation.h"

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/checkpoint/layout.h"

namespace finetune::checkpoint {
namespace {

// The manifest goes first: whatever stops in between, the rest is no checkpoint under any name.
void remove_checkpoint_folder(FileSystem& files, const std::string& path) {
  const std::string manifest = join_path(path, kManifestFile);
  if (files.type(path) == FileType::kDirectory && files.exists(manifest)) {
    files.remove_tree(manifest);
  }
  files.remove_tree(path);
}

}  // namespace

std::vector<int64_t> steps_to_delete(const std::vector<int64_t>& existing,
                                     const RotationPolicy& policy) {
  if (policy.save_total_limit.value_or(0) < 1 || existing.empty()) return {};
  const std::optional<int64_t> best = policy.best_step;
  std::vector<int64_t> steps;
  std::vector<int64_t> counted;
  for (const int64_t step : existing) {
    const bool protected_step = best == step || step == existing.back();
    if (policy.superseded_step == step && policy.automatic_step != step && !protected_step) {
      steps.push_back(step);
    } else if (policy.automatic_step != step || best == step) {
      counted.push_back(step);
    }
  }
  const bool best_exists = best && std::binary_search(counted.begin(), counted.end(), *best);
  auto keep = static_cast<size_t>(*policy.save_total_limit);
  if (best_exists && keep == 1 && *best != counted.back()) keep = 2;
  size_t excess = counted.size() > keep ? counted.size() - keep : 0;
  for (const int64_t step : counted) {
    if (excess == 0) break;

    if (best_exists && step == *best) continue;
    steps.push_back(step);
    --excess;
  }
  std::sort(steps.begin(), steps.end());
  // One that turns out to be damaged must not be the only one.
  if (*policy.save_total_limit > 1 && !steps.empty() && steps.size() + 1 >= existing.size()) {
    steps.pop_back();
  }
  return steps;
}

std::vector<int64_t> rotate(FileSystem& files, const std::string& output_dir,
                            const std::string& run_id, const RotationPolicy& policy,
                            const Report& report) {
  std::vector<int64_t> gone;
  try {
    std::vector<int64_t> existing;
    for (const CheckpointEntry& entry : list_checkpoints(files, output_dir, false)) {
      if (entry.whole && entry.run_id == run_id) existing.push_back(entry.step);
    }
    for (const int64_t step : steps_to_delete(existing, policy)) {
      const std::string trash = join_path(output_dir, trash_name(step, random_identifier()));
      files.rename_new(join_path(output_dir, checkpoint_name(step)), trash);
      gone.push_back(step);
      files.sync_directory(output_dir);
      remove_checkpoint_folder(files, trash);
    }
  } catch (const Error& error) {
    report(std::string("an old checkpoint could not be deleted, the next save tries again: ") +
           error.what());
  }
  return gone;
}

void sweep_stale(FileSystem& files, const std::string& output_dir, const Report& report) {
  try {
    if (!files.exists(output_dir)) return;
    for (const std::string& name : files.list(output_dir)) {
      const std::string path = join_path(output_dir, name);
      const bool temporary = is_temporary_file_name(name) && files.type(path) == FileType::kFile;
      if (is_leftover_name(name) || temporary) remove_checkpoint_folder(files, path);
    }
  } catch (const Error& error) {
    report(std::string("what an earlier start left behind could not be deleted: ") + error.what());
  }
}

}  // namespace finetune::checkpoint
