// SPDX-License-Identifier: MIT
#include "finetune/checkpoint/rotation.h"

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/checkpoint/layout.h"

namespace finetune::checkpoint {
namespace {

// Removes the manifest first: if the deletion is interrupted, the rest does not count as a
// checkpoint under any name.
void remove_checkpoint_folder(FileSystem& files, const std::string& path) {
  const std::string manifest = join_path(path, kManifestFile);
  if (files.type(path) == FileType::kDirectory && files.exists(manifest)) {
    files.remove_tree(manifest);
  }
  files.remove_tree(path);
}

// Deletes the entries of the folder for which is_stale() is true; continues after failures.
template <class IsStale>
void remove_stale(FileSystem& files, const std::string& output_dir, IsStale is_stale,
                  const std::string& complaint, const Report& report) {
  try {
    if (!files.exists(output_dir)) return;
    for (const std::string& name : files.list(output_dir)) {
      try {
        if (is_stale(name)) remove_checkpoint_folder(files, join_path(output_dir, name));
      } catch (const Error& error) {
        report(complaint + error.what());
      }
    }
  } catch (const Error& error) {
    report(complaint + error.what());
  }
}

constexpr char kTriedAgain[] =
    "an old checkpoint could not be deleted, the next save tries again: ";

// Returns the steps of the complete checkpoints of a run, ascending.
std::vector<int64_t> steps_of_run(FileSystem& files, const std::string& output_dir,
                                  const std::string& run_id) {
  std::vector<int64_t> steps;
  for (const CheckpointEntry& entry : list_checkpoints(files, output_dir, false)) {
    if (entry.whole && entry.run_id == run_id) steps.push_back(entry.step);
  }
  return steps;
}

// Adds each deleted step to `gone`.
void remove_checkpoints(FileSystem& files, const std::string& output_dir,
                        const std::vector<int64_t>& steps, std::vector<int64_t>& gone) {
  for (const int64_t step : steps) {
    const std::string path = join_path(output_dir, checkpoint_name(step));
    if (files.object_store() != nullptr) {
      remove_checkpoint_folder(files, path);
      gone.push_back(step);
      continue;
    }
    const std::string trash = join_path(output_dir, trash_name(step, random_identifier()));
    files.rename_new(path, trash);
    gone.push_back(step);
    files.sync_directory(output_dir);
    remove_checkpoint_folder(files, trash);
  }
}

}  // namespace

std::vector<int64_t> steps_to_delete(const std::vector<int64_t>& existing,
                                     const RotationPolicy& policy) {
  const std::vector<int64_t>& marked = policy.automatic_steps;
  const int64_t limit = policy.save_total_limit.value_or(0);
  std::vector<int64_t> gone;
  int64_t scheduled = 0;
  bool has_automatic = false;
  for (auto step = existing.rbegin(); step != existing.rend(); ++step) {
    const bool is_automatic = std::find(marked.begin(), marked.end(), *step) != marked.end();
    const bool stays = is_automatic ? !has_automatic : limit < 1 || scheduled < limit;
    has_automatic = has_automatic || is_automatic;
    scheduled += is_automatic ? 0 : 1;
    if (!stays && policy.best_step != *step) gone.push_back(*step);
  }
  // So far `gone` is sorted newest first.
  if (limit != 1 && gone.size() + 1 == existing.size() && !gone.empty()) gone.erase(gone.begin());
  std::reverse(gone.begin(), gone.end());
  return gone;
}

std::vector<int64_t> rotate(FileSystem& files, const std::string& output_dir,
                            const std::string& run_id, const RotationPolicy& policy,
                            const Report& report) {
  std::vector<int64_t> gone;
  remove_stale(
      files, output_dir,
      [](const std::string& name) { return is_leftover_name(name) || is_fetch_name(name); },
      kTriedAgain, report);
  try {
    const std::vector<int64_t> existing = steps_of_run(files, output_dir, run_id);
    remove_checkpoints(files, output_dir, steps_to_delete(existing, policy), gone);
  } catch (const Error& error) {
    report(kTriedAgain + std::string(error.what()));
  }
  return gone;
}

std::vector<int64_t> remove_automatic(FileSystem& files, const std::string& output_dir,
                                      const std::string& run_id, const RotationPolicy& policy,
                                      const Report& report) {
  std::vector<int64_t> gone;
  try {
    const std::vector<int64_t> existing = steps_of_run(files, output_dir, run_id);
    const auto is_automatic = [&](int64_t step) {
      return std::ranges::find(policy.automatic_steps, step) != policy.automatic_steps.end();
    };
    const auto last = std::ranges::find_if_not(existing.rbegin(), existing.rend(), is_automatic);
    std::vector<int64_t> superseded;
    for (const int64_t step : existing) {
      const bool is_before = last != existing.rend() && step < *last;
      if (is_automatic(step) && is_before && policy.best_step != step) superseded.push_back(step);
    }
    remove_checkpoints(files, output_dir, superseded, gone);
  } catch (const Error& error) {
    report(kTriedAgain + std::string(error.what()));
  }
  return gone;
}

std::vector<int64_t> deletable_before(FileSystem& files, const std::string& output_dir,
                                      const CheckpointIdentity& identity,
                                      const RotationPolicy& policy) {
  std::vector<int64_t> steps = steps_of_run(files, output_dir, identity.run_id);
  if (steps.size() < 2 || steps.back() >= identity.step) return {};
  const int64_t newest = steps.back();
  steps.push_back(identity.step);
  std::vector<int64_t> superfluous = steps_to_delete(steps, policy);
  std::erase(superfluous, newest);
  return superfluous;
}

std::vector<int64_t> make_room(FileSystem& files, const std::string& output_dir,
                               const CheckpointIdentity& identity, const RotationPolicy& policy,
                               const Report& report) {
  std::vector<int64_t> gone;
  try {
    const std::vector<int64_t> superfluous = deletable_before(files, output_dir, identity, policy);
    if (superfluous.empty()) return gone;
    const int64_t newest = steps_of_run(files, output_dir, identity.run_id).back();
    const std::string path = join_path(output_dir, checkpoint_name(newest));
    if (!inspect_checkpoint(files, path, true).whole) return gone;
    remove_checkpoints(files, output_dir, superfluous, gone);
  } catch (const Error& error) {
    report(kTriedAgain + std::string(error.what()));
  }
  return gone;
}

void sweep_stale(FileSystem& files, const std::string& output_dir, const Report& report) {
  remove_stale(
      files, output_dir,
      [&](const std::string& name) {
        if (is_leftover_name(name)) return true;
        return is_temporary_file_name(name) &&
               files.type(join_path(output_dir, name)) == FileType::kFile;
      },
      "what an earlier start left behind could not be deleted: ", report);
}

}  // namespace finetune::checkpoint
