// SPDX-License-Identifier: MIT
#include "export/staged_output.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <set>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/interruptible_reads.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"
#include "finetune/base/trash_safe.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/tensor/weight_files.h"

namespace finetune {
namespace {

// Then come the namespace of processes (of a container) and the process.
constexpr std::string_view kPartial = ".partial-";
constexpr std::string_view kReplaced = ".replaced-";  // what an export takes the place of
constexpr size_t kLongestOutName = 200;               // with what is added to it until the end

// Whether an export writes a file of this name into a folder.
bool is_exported_name(std::string_view name) {
  // Of an adapter's weights none is written.
  const bool is_weights = checkpoint::is_weight_file_name(name) && name.starts_with("model");
  return name == kConfigFile || name == checkpoint::kManifestFile || goes_with_weights(name) ||
         name == kModelIndexFile || is_weights;
}

std::string without_last_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// Processes of two containers may have the same number.
std::string name_space() {
  struct stat status = {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? std::to_string(status.st_ino) + "-" : "0-";
}

// The process in the name of a leftover of this namespace; nullopt: another name.
std::optional<pid_t> process_of(std::string_view name, std::string_view out,
                                std::string_view kind) {
  const std::string start = std::string(out) + std::string(kind) + name_space();
  if (!name.starts_with(start)) return std::nullopt;
  name.remove_prefix(start.size());
  pid_t process = 0;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), process);
  const bool is_number = parsed.ec == std::errc() && parsed.ptr == name.data() + name.size();
  return is_number ? std::optional(process) : std::nullopt;
}

bool is_alive(pid_t process) { return ::kill(process, 0) == 0 || errno == EPERM; }

}  // namespace

bool goes_with_weights(std::string_view name) {
  return is_tokenizer_file_name(name) || name == kChatTemplateFile || name == kDecisionFile ||
         name == kCalibrationFile || name == kDecisionTemplateFile ||
         name == kGenerationConfigFile || name == kDataRecordFile || is_embedding_file_name(name) ||
         is_laya_file_name(name) || name == checkpoint::kModelCardFile;
}

// Records what is written when it is closed.
class StagedOutput::RecordedFile final : public WritableFile {
 public:
  RecordedFile(std::unique_ptr<WritableFile> file, checkpoint::FileRecord& record, bool syncs)
      : file_(std::move(file)), recording_(*file_), record_(record), syncs_(syncs) {}

  using WritableFile::write;
  void write(const void* data, size_t size) override {
    interrupt::throw_if_requested("exporting");
    recording_.write(data, size);
  }
  void sync() override {
    if (syncs_) file_->sync();
  }
  void close() override {
    file_->close();
    record_ = recording_.record();
  }

 private:
  std::unique_ptr<WritableFile> file_;
  checkpoint::RecordingFile recording_;
  checkpoint::FileRecord& record_;
  bool syncs_;
};

StagedOutput::StagedOutput(std::string out, bool overwrite, uint64_t bytes, bool sync)
    : files_(FileSystem::local()),
      out_(without_last_slashes(std::move(out))),
      overwrite_(overwrite),
      sync_(sync),
      path_(out_ + std::string(kPartial) + name_space() + std::to_string(::getpid())) {
  if (file_name(out_).size() > kLongestOutName) {
    throw Error(ErrorKind::kUsage, format_text("the name '{}' is longer than {} bytes; choose a "
                                               "shorter one",
                                               file_name(out_), kLongestOutName));
  }
  if (files_.exists(parent_path(out_))) remove_leftovers();
  const FileType type = files_.type(out_);
  if (type != FileType::kMissing && !overwrite_) {
    throw Error(ErrorKind::kUsage,
                "'" + out_ + "' exists; choose another name, or replace it with --overwrite");
  }
  if (type != FileType::kMissing && type != FileType::kFile && type != FileType::kDirectory) {
    throw Error(ErrorKind::kUsage,
                "'" + out_ + "' is neither a file nor a folder; choose another name");
  }
  if (type == FileType::kDirectory) {
    const auto is_folder = [&](const std::string& name) {
      return files_.type(join_path(out_, name)) == FileType::kDirectory;
    };
    const std::vector<std::string> names = files_.list(out_);
    const auto is_of_export = [&](const std::string& name) {
      if (!is_folder(name)) return is_exported_name(name);
      if (name == kMoreChatTemplates) return true;
      return (is_module_folder_name(name) || is_laya_folder_name(name)) &&
             std::ranges::all_of(files_.list(join_path(out_, name)), is_exported_name);
    };
    for (const std::string& name : names) {
      if (is_of_export(name)) continue;
      throw Error(ErrorKind::kUsage, "'" + out_ + "' holds '" + name +
                                         "', which no export wrote and --overwrite does not "
                                         "replace; choose another name");
    }
    if (!names.empty() && std::ranges::find(names, kConfigFile) == names.end()) {
      throw Error(ErrorKind::kUsage, "'" + out_ + "' holds '" + names.front() + "' and no " +
                                         kConfigFile +
                                         ", so that no export wrote it and --overwrite does not "
                                         "replace it; choose another name");
    }
  }
  files_.make_directories(parent_path(out_));
  const uint64_t free = files_.free_bytes(parent_path(out_));
  if (bytes > free) {
    throw Error(ErrorKind::kIo,
                format_text("'{}' takes {}, and its disk has {}; make room or choose another disk",
                            out_, bytes_text(bytes), bytes_text(free)));
  }
}

StagedOutput::~StagedOutput() {
  if (is_committed_) return;
  try {
    files_.remove_tree(path_);
  } catch (const Error&) {  // the next export removes it
  }
}

void StagedOutput::remove_leftovers() const {
  const std::string parent = parent_path(out_);
  for (const std::string& name : files_.list(parent)) {
    const auto partial = process_of(name, file_name(out_), kPartial);
    if (partial && (*partial == ::getpid() || !is_alive(*partial))) {
      files_.remove_tree(join_path(parent, name));
    }
    // Killed between the two renames of commit(): what was there comes back.
    const auto replaced = process_of(name, file_name(out_), kReplaced);
    if (!replaced || is_alive(*replaced)) continue;
    if (files_.exists(out_)) {
      files_.remove_tree(join_path(parent, name));
    } else {
      files_.rename_new(join_path(parent, name), out_);
    }
  }
}

std::unique_ptr<WritableFile> StagedOutput::create(const std::string& name) {
  const std::string path = name.empty() ? path_ : join_path(path_, name);
  if (!name.empty()) files_.make_directories(parent_path(path));
  return std::make_unique<RecordedFile>(files_.create(path), written_[path], sync_);
}

void StagedOutput::write(const std::string& name, const std::string& text) {
  const auto file = create(name);
  file->write(text.data(), text.size());
  file->sync();
  file->close();
}

void StagedOutput::write_manifest(const std::string& id) {
  checkpoint::Manifest manifest = {.run_id = id, .files = {}};
  for (const auto& [path, record] : written_) {
    if (parent_path(path) == path_) manifest.files[file_name(path)] = record;
  }
  write(checkpoint::kManifestFile, checkpoint::manifest_text(manifest));
}

void StagedOutput::verify() const {
  const auto reading = interruptible_reads(shared_local_files(), "reading the export again");
  for (const auto& [path, record] : written_) {
    files_.drop_cached(path);
    try {
      checkpoint::verify_file(*reading->open(path), record, path);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kCheckpoint) throw;
      throw Error(ErrorKind::kIo,
                  std::string(error.what()) + "; the disk is damaged: export to another one");
    }
  }
}

void StagedOutput::commit() {
  if (sync_ && files_.type(path_) == FileType::kDirectory) {
    std::set<std::string> folders = {path_};
    for (const auto& [path, record] : written_) folders.insert(parent_path(path));
    for (const std::string& folder : folders) files_.sync_directory(folder);
  }
  const FileType type = files_.type(out_);
  const std::string replaced =
      out_ + std::string(kReplaced) + name_space() + std::to_string(::getpid());
  const bool moves = type == FileType::kDirectory && overwrite_;
  if (moves) files_.rename(out_, replaced);
  try {
    if (type == FileType::kFile && overwrite_) {
      files_.rename(path_, out_);
    } else {
      files_.rename_new(path_, out_);
    }
  } catch (const Error&) {
    if (moves) files_.rename_new(replaced, out_);
    throw;
  }
  is_committed_ = true;
  if (sync_) files_.sync_directory(parent_path(out_));
  files_.remove_tree(replaced);
}

uint64_t StagedOutput::bytes() const {
  uint64_t bytes = 0;
  for (const auto& [path, record] : written_) bytes += record.bytes;
  return bytes;
}

}  // namespace finetune
