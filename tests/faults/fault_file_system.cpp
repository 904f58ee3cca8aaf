// SPDX-License-Identifier: MIT
#include "faults/fault_file_system.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "finetune/base/error.h"
#include "finetune/checkpoint/layout.h"

namespace finetune::testing {
namespace {

constexpr int kKilled = 137;

}  // namespace

void CaseRecord::clear() {
  changes = reads = hits = commits = most_staged = outside = repeated_syncs = 0;
  committed = durable = fewest = -1;
  first_outside = {};
}

class FaultFileSystem::Writable final : public WritableFile {
 public:
  Writable(FaultFileSystem& files, std::string path, std::unique_ptr<WritableFile> inner)
      : files_(files),
        path_(std::move(path)),
        node_(files.model_.node(path_)),
        inner_(std::move(inner)) {}

  using WritableFile::write;
  void write(const void* data, size_t size) override {
    const std::lock_guard lock(files_.mutex_);
    if (files_.strikes(Operation::kWrite, path_)) {
      if (files_.fault_.torn) put(data, size / 2);
      files_.strike("write", path_);
    }
    put(data, size);
  }
  void sync() override {
    const std::lock_guard lock(files_.mutex_);
    if (sync_failed_) ++files_.record_.repeated_syncs;
    if (files_.strikes(Operation::kSync, path_)) {
      sync_failed_ = true;
      files_.strike("sync", path_);
    }
    if (node_) DiskModel::sync(*node_);
  }
  void close() override {
    const std::lock_guard lock(files_.mutex_);
    files_.begin(Operation::kClose, "close", path_);
    inner_->close();
  }

 private:
  void put(const void* data, size_t size) {
    inner_->write(data, size);
    if (node_) DiskModel::write(*node_, data, size);
  }

  FaultFileSystem& files_;
  std::string path_;
  std::shared_ptr<DiskModel::Node> node_;
  std::unique_ptr<WritableFile> inner_;
  bool sync_failed_ = false;
};

class FaultFileSystem::Readable final : public ReadableFile {
 public:
  Readable(FaultFileSystem& files, std::string path, std::unique_ptr<ReadableFile> inner)
      : files_(files), path_(std::move(path)), inner_(std::move(inner)) {}

  [[nodiscard]] uint64_t size() const override { return inner_->size(); }
  void read_at(uint64_t offset, void* data, size_t size) const override {
    const std::lock_guard lock(files_.mutex_);
    files_.begin(Operation::kRead, "read", path_);
    inner_->read_at(offset, data, size);
  }

 private:
  FaultFileSystem& files_;
  std::string path_;
  std::unique_ptr<ReadableFile> inner_;
};

FaultFileSystem::FaultFileSystem(FileSystem& machine, std::string root, std::string output_dir,
                                 Fault fault, CaseRecord& record)
    : machine_(machine),
      root_(std::move(root)),
      output_dir_(std::move(output_dir)),
      fault_(fault),
      record_(record),
      model_(root_) {
  fault_.until = std::max(fault_.until, fault_.at);
  if (!machine_.exists(output_dir_)) return;
  for (const std::string& name : machine_.list(output_dir_)) {
    if (const auto step = checkpoint::parse_checkpoint_name(name)) present_.insert(*step);
  }
  if (present_.size() >= 2) record_.fewest = static_cast<int64_t>(present_.size());
}

void FaultFileSystem::count_staged() {
  int64_t staged = 0;
  for (const std::string& name : machine_.list(output_dir_))
    staged += name.rfind(".tmp-check", 0) == 0;
  record_.most_staged = std::max(record_.most_staged.load(), staged);
}

bool FaultFileSystem::is_in_checkpoint(const std::string& path) const {
  const std::string start = join_path(output_dir_, "checkpoint-");
  return path.rfind(start, 0) == 0 || path == output_dir_;
}

bool FaultFileSystem::strikes(Operation operation, const std::string& path) {
  const bool reads = is_read(operation);
  if (reads && !is_in_checkpoint(path)) return false;
  const int64_t number = ++(reads ? record_.reads : record_.changes);
  if (!reads) {
    const bool inside = path == output_dir_ || path.rfind(output_dir_ + "/", 0) == 0;
    const bool parent_sync = operation == Operation::kSyncDirectory && path == root_;
    if (!inside && !parent_sync && record_.outside++ == 0) {
      path.copy(record_.first_outside.data(), record_.first_outside.size() - 1);
    }
    if (static_cast<size_t>(number) <= CaseRecord::kMaxOperations) {
      CaseRecord::Entry& entry = record_.entries[static_cast<size_t>(number - 1)];
      entry.operation = operation;
      entry.name = {};
      const std::string name =
          inside && path != output_dir_ ? path.substr(output_dir_.size() + 1) : std::string();
      name.copy(entry.name.data(), entry.name.size() - 1);
    }
    if (operation == Operation::kWrite || operation == Operation::kSync) wait_for_disk();
  }
  if (fault_.action == Fault::Action::kNone || reads != fault_.in_reads) return false;
  if (number < fault_.at || number > fault_.until) return false;
  if (!fault_.within.empty() && path.rfind(join_path(output_dir_, fault_.within), 0) != 0) {
    return false;
  }
  ++record_.hits;
  return true;
}

void FaultFileSystem::wait_for_disk() const {
  if (fault_.delay_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(fault_.delay_ms));
}

void FaultFileSystem::strike(const std::string& what, const std::string& path) {
  if (fault_.action == Fault::Action::kError) {
    throw Error(ErrorKind::kIo, "cannot " + what + " '" + path + "': " + strerror(fault_.error),
                fault_.error);
  }
  if (fault_.action == Fault::Action::kPowerCut) model_.cut_power(fault_.seed);
  ::_exit(kKilled);  // with the mutex locked: no other thread changes anything
}

void FaultFileSystem::begin(Operation operation, const char* what, const std::string& path) {
  if (strikes(operation, path)) strike(what, path);
}

std::unique_ptr<WritableFile> FaultFileSystem::create(const std::string& path) {
  const std::lock_guard lock(mutex_);
  begin(Operation::kCreate, "create", path);
  auto inner = machine_.create(path);
  model_.create(path);
  return std::make_unique<Writable>(*this, path, std::move(inner));
}

std::unique_ptr<WritableFile> FaultFileSystem::append(const std::string& path) {
  const std::lock_guard lock(mutex_);
  begin(Operation::kAppend, "append to", path);
  const bool is_new = !machine_.exists(path);
  auto inner = machine_.append(path);
  if (is_new) model_.create(path);
  return std::make_unique<Writable>(*this, path, std::move(inner));
}

std::unique_ptr<ReadableFile> FaultFileSystem::open(const std::string& path) {
  const std::lock_guard lock(mutex_);
  begin(Operation::kOpen, "open", path);
  return std::make_unique<Readable>(*this, path, machine_.open(path));
}

void FaultFileSystem::make_directories(const std::string& path) {
  if (path.empty() || path == "/" || machine_.type(path) == FileType::kDirectory) return;
  make_directories(parent_path(path));
  make_directory(path);
}

void FaultFileSystem::make_directory(const std::string& path) {
  const std::lock_guard lock(mutex_);
  begin(Operation::kMakeDirectory, "make the folder", path);
  machine_.make_directory(path);
  model_.make_directory(path);
  if (parent_path(path) == output_dir_) count_staged();
}

void FaultFileSystem::sync_directory(const std::string& path) {
  const std::lock_guard lock(mutex_);
  begin(Operation::kSyncDirectory, "sync the folder", path);
  model_.sync_directory(path);
  if (path == output_dir_) record_.durable = record_.committed.load();
}

void FaultFileSystem::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  begin(Operation::kRename, "rename", from);
  machine_.rename(from, to);
  follow_rename(from, to);
}

void FaultFileSystem::rename_new(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  begin(Operation::kRename, "rename", from);
  machine_.rename_new(from, to);
  follow_rename(from, to);
}

void FaultFileSystem::follow_rename(const std::string& from, const std::string& to) {
  model_.rename(from, to);
  if (parent_path(from) != output_dir_) return;
  if (const auto step = checkpoint::parse_checkpoint_name(file_name(from))) present_.erase(*step);
  if (const auto step = checkpoint::parse_checkpoint_name(file_name(to))) {
    present_.insert(*step);
    ++record_.commits;
    record_.committed = *present_.rbegin();
  }
  const auto count = static_cast<int64_t>(present_.size());
  if (record_.commits >= 2 || record_.fewest >= 0) {
    record_.fewest = record_.fewest < 0 ? count : std::min<int64_t>(record_.fewest, count);
  }
}

void FaultFileSystem::remove_file(const std::string& path) {
  const std::lock_guard lock(mutex_);
  begin(Operation::kRemove, "remove", path);
  machine_.remove_file(path);
  model_.remove(path);
}

void FaultFileSystem::remove_directory(const std::string& path) {
  const std::lock_guard lock(mutex_);
  begin(Operation::kRemove, "remove the folder", path);
  machine_.remove_directory(path);
  model_.remove(path);
}

void FaultFileSystem::truncate(const std::string& path, uint64_t size) {
  const std::lock_guard lock(mutex_);
  begin(Operation::kTruncate, "shorten", path);
  machine_.truncate(path, size);
  model_.truncate(path, size);
}

FileType FaultFileSystem::type(const std::string& path) {
  const std::lock_guard lock(mutex_);
  begin(Operation::kType, "look at", path);
  return machine_.type(path);
}

std::vector<std::string> FaultFileSystem::list(const std::string& path) {
  const std::lock_guard lock(mutex_);
  begin(Operation::kList, "list the folder", path);
  return machine_.list(path);
}

uint64_t FaultFileSystem::free_bytes(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const int64_t next = record_.changes + 1;
  const bool is_always = fault_.action == Fault::Action::kNone;
  const bool is_now = is_always || (next >= fault_.at && next <= fault_.until);
  if (fault_.free_bytes != UINT64_MAX && is_now) {
    ++record_.hits;
    return fault_.free_bytes;
  }
  return machine_.free_bytes(path);
}

}  // namespace finetune::testing
