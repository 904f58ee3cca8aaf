// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "finetune/base/clock.h"
#include "finetune/base/file_system.h"
#include "finetune/checkpoint/lease.h"
#include "finetune/checkpoint/manifest.h"
#include "finetune/checkpoint/rotation.h"

namespace finetune::checkpoint {

struct MirrorOptions {
  std::string directory = {};
  std::shared_ptr<FileSystem> files = {};  // of the mirror
  std::shared_ptr<FileSystem> local = {};  // of the output folder
  LeaseOptions lease = {};                 // its times; folder and file system are set here
  Clock* clock = &Clock::steady();
  // Called on the mirror's thread before it takes a location that claim() did not take; throws
  // where nothing may be written there.
  std::function<void()> check_late = {};
  double first_retry_seconds = 2;
  double longest_retry_seconds = 300;
  double repeat_warning_seconds = 600;  // between warnings of the same failure
};

struct MirrorCounts {
  int64_t checkpoints = 0;  // copied and read back
  int64_t files = 0;        // single files and trees
  int64_t failures = 0;     // tries that failed
  int64_t dropped = 0;      // checkpoints that a newer one overtook or that are gone
};

// Copies what a run writes to a second, slow and unreliable location in the background: each member
// except finish() returns at once, whatever that location does. Copies are read back and compared
// before they count. A failure is reported once, counted, and retried after growing pauses until it
// succeeds, a newer checkpoint replaces it, or the run ends.
//
// The mirror has one writer, as the output folder (Lease): if another session has taken it over,
// nothing more is written and is_lost() returns true. May be used from one thread at a time.
class Mirror {
 public:
  explicit Mirror(MirrorOptions options);
  // Waits a little for what is being copied, never long.
  ~Mirror();
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  // Makes the folder and takes its lease, once; the first copy does so where it was not asked for.
  // Throws Error(kBusy) where another session holds it, Error(kIo) where it cannot be reached.
  void claim();

  // The newest wins: one is being copied, one waits, and one that waits gives way to a newer. A
  // checkpoint that is deleted meanwhile is dropped. Then the mirror is rotated by `policy`; the
  // best checkpoint is copied too where the mirror lacks it.
  void copy_checkpoint(const std::string& path, const RotationPolicy& policy);
  // An older one, after the newest: one that the mirror has already is verified, once, and copied
  // again where it is damaged.
  void copy_older(const std::string& path);
  // One file of the output folder, to its name in the mirror, in the order of the calls and after
  // the checkpoints. A copy that is there is compared byte for byte. A file that does not match
  // `expected`, where that is given, is not copied, and the mirror does not have everything.
  void copy_file(const std::string& path, const std::optional<FileRecord>& expected = {});
  // A folder with all below it, to `name` in the mirror; only what has changed is copied. With
  // `verify` copies that are there are compared byte for byte, not only by size.
  // bring_back_tree() is its counterpart.
  void copy_tree(const std::string& folder, const std::string& name, bool verify = false);
  // Behind what was asked for so far: notes below `parent`, a folder of the mirror, that its trees
  // `used` are in use now, and deletes those that no session has used for that long.
  void remove_unused_trees(const std::string& parent, const std::vector<std::string>& used,
                           std::chrono::seconds unused);

  // Waits until everything is copied or the number of seconds has passed; pending retries start at
  // once. Returns whether the mirror has everything. `give_up` (polled often) ends the wait, and so
  // does a permanent failure.
  bool wait(double seconds, const std::function<bool()>& give_up = {});
  // The same at the end of a run: a mirror that lacks something is a warning.
  bool finish(double seconds, const std::function<bool()>& give_up = {});

  [[nodiscard]] bool is_lost() const;
  void check();  // throws Error(kBusy) with the new owner where the mirror is lost
  [[nodiscard]] MirrorCounts counts() const;
  [[nodiscard]] const std::string& directory() const;

 private:
  struct Worker;
  std::shared_ptr<Worker> worker_;
};

}  // namespace finetune::checkpoint
