// SPDX-License-Identifier: MIT
// A mirror on a mounted Drive that fails in bursts or for long, is full, shows files late, stores
// them damaged, loses uploads, and cannot rename folders (R18).
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <optional>

#include "checkpoint/run_folder.h"
#include "faults/fault_run.h"
#include "finetune/base/log.h"
#include "finetune/base/trash_safe.h"
#include "finetune/checkpoint/mirror.h"
#include "finetune/checkpoint/restore.h"
#include "support/drive_file_system.h"
#include "support/manual_clock.h"

namespace finetune::testing {
namespace {

using checkpoint::Mirror;
using Renames = DriveFileSystem::Renames;

struct DriveCase {
  int64_t number;
  uint64_t bits;  // hash of the seed and the number

  // Chooses one of `count` values for the n-th choice of this case.
  [[nodiscard]] int64_t choose(int n, int64_t count) const {
    const uint64_t mixed = (bits ^ (static_cast<uint64_t>(n) << 32)) * 0x9E3779B97F4A7C15U;
    return static_cast<int64_t>((mixed >> 33) % static_cast<uint64_t>(count));
  }
};

// A run whose mirror is on the Drive; no time passes.
class DriveRun : public checkpoint::RunFolder {
 public:
  // Returns the problem; empty: none.
  std::string survive(const DriveCase& item) {
    const bool ends_well = train(item);
    if (const std::string wrong = check_local(); !wrong.empty()) return wrong;
    if (item.choose(7, 4) == 0) lose_an_upload(item);
    drive_->work_again();
    drive_->show_files_after(0);
    // On the same machine the output folder is as new as the mirror, so nothing is copied.
    if (restore(kSteps.back())) return "the mirror was taken although nothing is newer there";
    std::filesystem::remove_all(output_dir);
    std::filesystem::create_directory(output_dir);
    return check_new_machine(ends_well);
  }

 private:
  static constexpr std::array<int64_t, 4> kSteps = {10, 20, 30, 40};

  // Saves and copies while the Drive misbehaves. Returns true if it worked again in the end and the
  // mirror reported that it has everything.
  bool train(const DriveCase& item) {
    drive_->set_renames(std::array{Renames::kWork, Renames::kFail,
                                   Renames::kLoseFiles}[static_cast<size_t>(item.choose(0, 3))]);
    if (item.choose(1, 3) == 0) drive_->show_files_after(1 + static_cast<int>(item.choose(2, 3)));
    Mirror mirror({.directory = mirror_,
                   .files = drive_,
                   .local = checkpoint_files(),
                   .lease = {.heartbeat_seconds = 0},
                   .clock = &clock_});
    for (const int64_t step : kSteps) {
      misbehave(item, static_cast<int>(step));
      const std::string path = checkpoint::save(files, output_dir, step);
      mirror.copy_checkpoint(path, {.save_total_limit = 2, .best_step = {}});
      if (mirror.wait(30)) acknowledged_ = step;
    }
    if (item.choose(3, 4) != 0) {
      drive_->work_again();
      if (mirror.finish(1e6)) acknowledged_ = kSteps.back();
      return acknowledged_ == kSteps.back();
    }
    (void)mirror.finish(30);
    return false;
  }

  void misbehave(const DriveCase& item, int n) {
    static constexpr std::array kErrors = {EIO, ENOTCONN, ETIMEDOUT, ESTALE, ENOSPC};
    const int error = kErrors[static_cast<size_t>(item.choose(n + 1, 5))];
    switch (item.choose(n, 6)) {
      case 0:  // a burst
        drive_->fail(error, 1 + item.choose(n + 2, 40), item.choose(n + 3, 60));
        break;
      case 1:  // until a user fixes it
        drive_->fail(error);
        break;
      case 2:
        drive_->fail_every(error, 17 + item.choose(n + 2, 30));
        break;
      case 3:
        drive_->set_quota(static_cast<uint64_t>(item.choose(n + 2, 3000)));
        break;
      case 4:
        drive_->damage_next(std::array{"model.safetensors", "optimizer.pt", "manifest.json",
                                       "config.json"}[static_cast<size_t>(item.choose(n + 2, 4))]);
        break;
      default:
        drive_->work_again();
    }
  }

  // Simulates an upload that was lost with the machine although the mount had shown the file.
  void lose_an_upload(const DriveCase& item) {
    FileSystem& system = FileSystem::local();
    std::vector<std::string> found;
    for (const auto& entry : checkpoint::list_checkpoints(system, mirror_, false)) {
      for (const std::string& name : system.list(entry.path)) {
        found.push_back(join_path(entry.path, name));
      }
    }
    if (found.empty()) return;
    const std::string& path =
        found[static_cast<size_t>(item.choose(8, static_cast<int64_t>(found.size())))];
    if (item.choose(9, 2) == 0) {
      system.remove_file(path);
    } else {
      system.truncate(path, 3);
    }
    lost_ = true;
  }

  [[nodiscard]] std::string check_local() const {
    for (const int64_t step : kSteps) {
      const auto entry = checkpoint::inspect_checkpoint(FileSystem::local(), path_of(step), true);
      if (!entry.whole) return "step " + std::to_string(step) + " here: " + entry.problem;
    }
    return "";
  }

  std::optional<int64_t> restore(std::optional<int64_t> newest) {
    const checkpoint::RestoreOptions options{
        .local = checkpoint_files(),
        .output_dir = output_dir,
        .files = drive_,
        .mirror_dir = mirror_,
        .clock = &clock_,
        .report = [this](const std::string& line) { lines.push_back(line); }};
    std::optional<checkpoint::CheckpointEntry> here;
    if (newest) {
      here = checkpoint::inspect_checkpoint(FileSystem::local(), path_of(*newest), true);
    }
    return checkpoint::restore_newest(options, here);
  }

  std::string check_new_machine(bool ends_well) {
    std::optional<int64_t> step;
    try {
      step = restore(std::nullopt);
    } catch (const Error& error) {
      // The mirror has only damaged checkpoints, or one that was not read back in time: an error,
      // never a silent start from step 0.
      if ((lost_ || acknowledged_ == 0) && error.kind() == ErrorKind::kCheckpoint) return "";
      return error.what();
    }
    const int64_t least = lost_ ? 0 : acknowledged_;
    if (step.value_or(0) < least) {
      return "step " + std::to_string(least) + " was said to be there, " +
             std::to_string(step.value_or(0)) + " came back";
    }
    if (ends_well && !lost_ && !step) return "nothing came back";
    if (!step) return "";
    for (const auto& file : checkpoint::tiny_contents(*step)) {
      const std::string path = path_of(*step, file.name);
      if (!std::filesystem::exists(path)) return path + " did not come back";
    }
    return checkpoint::inspect_checkpoint(FileSystem::local(), path_of(*step), true).whole
               ? ""
               : "what came back is not whole";
  }

  static std::shared_ptr<FileSystem> checkpoint_files() { return shared_local_files(); }

  std::string mirror_ = root / "drive/MyDrive/run";
  ManualClock clock_;
  std::shared_ptr<DriveFileSystem> drive_ = std::make_shared<DriveFileSystem>(FileSystem::local());
  int64_t acknowledged_ = 0;
  bool lost_ = false;
};

TEST(R18, DrivesThatMisbehave) {
  Row row("R18");
  log::set_level("error");  // thousands of retries
  for (int64_t i = 0; i < scaled(40); ++i) {
    DriveRun run;
    const DriveCase item{
        .number = i,
        .bits = (base_seed() * 1'000'003U + static_cast<uint64_t>(i) + 1) * 0xD1B54A32D192ED03U};
    std::string problem;
    try {
      problem = run.survive(item);
    } catch (const std::exception& error) {
      problem = error.what();
    }
    row.add("case " + std::to_string(i), problem);
  }
  log::set_level("info");
}

}  // namespace
}  // namespace finetune::testing
