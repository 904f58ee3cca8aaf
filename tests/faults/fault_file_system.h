// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "faults/disk_model.h"
#include "finetune/base/file_system.h"

namespace finetune::testing {

enum class Operation : uint8_t {
  kCreate,
  kAppend,
  kWrite,
  kSync,
  kClose,
  kMakeDirectory,
  kSyncDirectory,
  kRename,
  kRemove,
  kTruncate,
  kOpen,  // from here on: reads
  kRead,
  kList,
  kType,
  kFreeBytes,
};
inline bool is_read(Operation operation) { return operation >= Operation::kOpen; }

// The fault of a run, and where it happens.
struct Fault {
  enum class Action { kNone, kKill, kPowerCut, kError };
  static constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

  Action action = Action::kNone;
  bool in_reads = false;  // `at` counts reads below checkpoint folders instead of changes
  int64_t at = 0;         // from 1
  int64_t until = 0;      // kError: the last call that fails; below `at`: only `at` fails
  bool torn = false;      // half of a write is done first
  int error = 0;          // kError: errno
  uint64_t seed = 0;      // kPowerCut: DiskModel::cut_power
  // Free space that the disk reports: with kError during the fault, with kNone always.
  uint64_t free_bytes = UINT64_MAX;
  int delay_ms = 0;         // of every write and sync
  std::string within = {};  // only changes of names that start with it fail
};

// What a run did, in memory that it shares with the process that watches it.
struct CaseRecord {
  static constexpr size_t kMaxOperations = 8192;
  struct Entry {
    Operation operation = Operation::kCreate;
    std::array<char, 95> name = {};  // end of the path, below the output folder
  };

  std::atomic<int64_t> changes = 0;
  std::atomic<int64_t> reads = 0;
  std::atomic<int64_t> hits = 0;            // number of times that the fault happened
  std::atomic<int64_t> committed = -1;      // newest step with its final name
  std::atomic<int64_t> durable = -1;        // newest of them whose folder was synced
  std::atomic<int64_t> commits = 0;         // renames to a final name
  std::atomic<int64_t> fewest = -1;         // fewest checkpoints at any time after the 2nd commit
  std::atomic<int64_t> most_staged = 0;     // most saves being written at the same time
  std::atomic<int64_t> outside = 0;         // changes outside of the output folder
  std::atomic<int64_t> repeated_syncs = 0;  // of a file whose previous sync failed
  std::array<char, 256> first_outside = {};
  std::array<Entry, kMaxOperations> entries;  // changes, in order

  void clear();
};

// Passes calls on to the machine's file system, but never waits for the disk; updates a DiskModel
// of `root`, and triggers one Fault. A killed process exits at once with 137, whatever its other
// threads do. Thread-safe.
class FaultFileSystem final : public FileSystem {
 public:
  // `root` contains `output_dir`; both exist or are created by the run.
  FaultFileSystem(FileSystem& machine, std::string root, std::string output_dir, Fault fault,
                  CaseRecord& record);

  std::unique_ptr<WritableFile> create(const std::string& path) override;
  std::unique_ptr<WritableFile> append(const std::string& path) override;
  std::unique_ptr<ReadableFile> open(const std::string& path) override;
  void make_directories(const std::string& path) override;
  void make_directory(const std::string& path) override;
  void sync_directory(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void rename_new(const std::string& from, const std::string& to) override;
  void remove_file(const std::string& path) override;
  void remove_directory(const std::string& path) override;
  void truncate(const std::string& path, uint64_t size) override;
  FileType type(const std::string& path) override;
  std::vector<std::string> list(const std::string& path) override;
  uint64_t free_bytes(const std::string& path) override;

 private:
  class Writable;
  class Readable;

  // Counts an operation; returns whether it must fail or die half done. Requires: mutex_ is locked.
  bool strikes(Operation operation, const std::string& path);
  // Triggers the fault after strikes() returned true; does not return.
  [[noreturn]] void strike(const std::string& what, const std::string& path);
  void begin(Operation operation, const char* what, const std::string& path);
  void count_staged();
  void follow_rename(const std::string& from, const std::string& to);
  [[nodiscard]] bool is_in_checkpoint(const std::string& path) const;
  void wait_for_disk() const;

  std::mutex mutex_;
  FileSystem& machine_;
  std::string root_;
  std::string output_dir_;
  Fault fault_;
  CaseRecord& record_;
  DiskModel model_;
  std::set<int64_t> present_;  // steps of checkpoints with their final names
};

}  // namespace finetune::testing
