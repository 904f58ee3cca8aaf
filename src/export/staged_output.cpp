// SPDX-License-Identifier: MIT
#include "export/staged_output.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

constexpr std::string_view kPartial = ".partial-";    // and the process
constexpr std::string_view kReplaced = ".replaced-";  // what an export takes the place of
constexpr size_t kReadBytes = size_t{8} << 20;

std::string without_last_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// The process in the name of a leftover; nullopt: it is none.
std::optional<pid_t> process_of(std::string_view name, std::string_view out) {
  if (!name.starts_with(out)) return std::nullopt;
  name.remove_prefix(out.size());
  if (!name.starts_with(kPartial)) return std::nullopt;
  name.remove_prefix(kPartial.size());
  pid_t process = 0;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), process);
  const bool is_number = parsed.ec == std::errc() && parsed.ptr == name.data() + name.size();
  return is_number ? std::optional(process) : std::nullopt;
}

bool is_alive(pid_t process) { return ::kill(process, 0) == 0 || errno == EPERM; }

}  // namespace

class StagedOutput::HashedFile final : public WritableFile {
 public:
  HashedFile(std::unique_ptr<WritableFile> file, Written& written)
      : file_(std::move(file)), written_(written) {}

  using WritableFile::write;
  void write(const void* data, size_t size) override {
    interrupt::throw_if_requested("exporting");
    file_->write(data, size);
    written_.hasher.update(data, size);
    written_.bytes += size;
  }
  void sync() override { file_->sync(); }
  void close() override { file_->close(); }

 private:
  std::unique_ptr<WritableFile> file_;
  Written& written_;
};

StagedOutput::StagedOutput(std::string out, bool overwrite, uint64_t bytes)
    : files_(FileSystem::local()),
      out_(without_last_slashes(std::move(out))),
      overwrite_(overwrite),
      path_(out_ + std::string(kPartial) + std::to_string(::getpid())) {
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
    const bool is_export = names.empty() || files_.exists(join_path(out_, kConfigFile));
    if (!is_export || std::ranges::any_of(names, is_folder)) {
      throw Error(ErrorKind::kUsage, "'" + out_ +
                                         "' is a folder that holds something else than a model, "
                                         "which --overwrite does not replace; choose another name");
    }
  }
  files_.make_directories(parent_path(out_));
  remove_leftovers();
  const uint64_t free = files_.free_bytes(parent_path(out_));
  if (bytes > free) {
    throw Error(
        ErrorKind::kIo,
        format_text("the export needs {}, and the disk of '{}' has {}; make room, or choose "
                    "another disk or a smaller --outtype",
                    bytes_text(bytes), out_, bytes_text(free)));
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
    const auto process = process_of(name, file_name(out_));
    if (process && (*process == ::getpid() || !is_alive(*process))) {
      files_.remove_tree(join_path(parent, name));
    }
  }
}

std::unique_ptr<WritableFile> StagedOutput::create(const std::string& name) {
  const std::string path = name.empty() ? path_ : join_path(path_, name);
  if (!name.empty()) files_.make_directories(path_);
  written_.push_back(std::make_unique<Written>());
  written_.back()->path = path;
  return std::make_unique<HashedFile>(files_.create(path), *written_.back());
}

void StagedOutput::write(const std::string& name, const std::string& text) {
  const auto file = create(name);
  file->write(text.data(), text.size());
  file->sync();
  file->close();
}

void StagedOutput::verify() const {
  std::string block(kReadBytes, '\0');
  for (const auto& written : written_) {
    files_.drop_cached(written->path);
    const auto file = files_.open(written->path);
    Hasher hasher;
    uint64_t done = 0;
    for (; done < file->size();) {
      interrupt::throw_if_requested("reading the export again");
      const size_t count = std::min<uint64_t>(kReadBytes, file->size() - done);
      file->read_at(done, block.data(), count);
      hasher.update(block.data(), count);
      done += count;
    }
    if (done == written->bytes && hasher.hex() == written->hasher.hex()) continue;
    throw Error(ErrorKind::kIo, "'" + written->path +
                                    "' does not hold what was written to it; the disk is damaged: "
                                    "export to another one");
  }
}

void StagedOutput::commit() {
  if (files_.type(path_) == FileType::kDirectory) files_.sync_directory(path_);
  const FileType type = files_.type(out_);
  const std::string replaced = out_ + std::string(kReplaced) + std::to_string(::getpid());
  if (type == FileType::kDirectory && overwrite_) files_.rename(out_, replaced);
  if (type == FileType::kFile && overwrite_) {
    files_.rename(path_, out_);
  } else {
    files_.rename_new(path_, out_);
  }
  is_committed_ = true;
  files_.sync_directory(parent_path(out_));
  files_.remove_tree(replaced);
}

uint64_t StagedOutput::bytes() const {
  uint64_t bytes = 0;
  for (const auto& written : written_) bytes += written->bytes;
  return bytes;
}

}  // namespace finetune
