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

// How a copy is compared with its source: by the hash that an upload has compared, where the store
// has one, and else as kRead; by reading it back; by its size alone.
enum class CopyCheck { kHash, kRead, kNone };

struct MirrorOptions {
  std::string directory = {};
  std::shared_ptr<FileSystem> files = {};  // of the mirror
  std::shared_ptr<FileSystem> local = {};  // of the output folder
  LeaseOptions lease = {};                 // its timing; the mirror sets folder and file system
  Clock* clock = &Clock::steady();
  CopyCheck check = CopyCheck::kHash;
  // Called on the mirror's thread before it takes a location that claim() did not take; throws
  // where nothing may be written there.
  std::function<void()> check_late = {};
  double first_retry_seconds = 2;
  double longest_retry_seconds = 300;
  double repeat_warning_seconds = 600;  // between warnings of the same failure
};

// The end that a run had reached before this session. Since then only an edit or damage can have
// changed its logs and its model card, which have no checksum.
struct FormerEnd {
  std::string run_id = {};
  int64_t step = 0;
};

struct MirrorCounts {
  int64_t checkpoints = 0;  // copied, read back and compared
  int64_t files = 0;        // single files and folders
  int64_t failures = 0;     // failed attempts
  // Checkpoints replaced by a newer one in the queue, or deleted before they were copied.
  int64_t dropped = 0;
};

// Copies a run's output to a second, slow and unreliable location in the background: except for
// claim(), wait() and finish() the members return at once, whatever that location does. A copy
// counts once it has been compared (CopyCheck). A failure is reported once, counted, and retried
// after increasing pauses until it succeeds, a newer checkpoint replaces it, or the run ends.
//
// The mirror has one writer (Lease), like the output folder: if another session takes it over,
// nothing more is written and is_lost() returns true. To be used from one thread at a time.
class Mirror {
 public:
  explicit Mirror(MirrorOptions options);
  // Waits for the current copy, but only for a short time.
  ~Mirror();
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  // Creates the folder and acquires its lease, once; otherwise the first copy does. Throws
  // Error(kBusy) if another session owns it, Error(kIo) if it cannot be reached.
  void claim();

  // Queues a checkpoint. At most one is being copied and one waits; a newer one replaces the
  // waiting one. A checkpoint that is deleted meanwhile is dropped. After the copy the mirror is
  // rotated by `policy`; the best checkpoint is copied too if the mirror lacks it.
  void copy_checkpoint(const std::string& path, const RotationPolicy& policy);
  // Queues an older checkpoint, after the newest. If the mirror has it already, verifies it once
  // and copies it again if it is damaged.
  void copy_older(const std::string& path);
  // Copies a file of the output folder to the same name in the mirror, after the checkpoints and in
  // the order of the calls. An existing copy is compared byte for byte. If `expected` is given and
  // the file does not match it, the file is not copied and the mirror counts as incomplete. With
  // `former`, if the mirror holds the finished model of that end, an undamaged copy is replaced
  // only by a file that begins with it; other differences are logged.
  void copy_file(const std::string& path, const std::optional<FileRecord>& expected = {},
                 const std::optional<FormerEnd>& former = {});
  // Copies a folder recursively to `name` in the mirror; unchanged files are skipped. With
  // `verify`, existing copies are compared byte for byte, otherwise by size. `former`: as above.
  // restore_tree() is the inverse.
  void copy_tree(const std::string& folder, const std::string& name, bool verify = false,
                 const std::optional<FormerEnd>& former = {});
  // After the requests so far: records that the trees `used` below the mirror's folder `parent` are
  // in use, and deletes those that no session has used for `unused`.
  void remove_unused_trees(const std::string& parent, const std::vector<std::string>& used,
                           std::chrono::seconds unused);

  // Waits up to `seconds` until everything is copied; pending retries start at once. Returns
  // whether the mirror is complete. `give_up` (polled often) or a permanent failure ends the wait.
  bool wait(double seconds, const std::function<bool()>& give_up = {});
  // The same at the end of a run: warns if the mirror is incomplete.
  bool finish(double seconds, const std::function<bool()>& give_up = {});

  [[nodiscard]] bool is_lost() const;
  void check();  // throws Error(kBusy) naming the new owner if the mirror is lost
  [[nodiscard]] MirrorCounts counts() const;
  [[nodiscard]] const std::string& directory() const;

 private:
  struct Worker;
  std::shared_ptr<Worker> worker_;
};

}  // namespace finetune::checkpoint
