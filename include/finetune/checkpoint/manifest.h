// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/hash.h"

// manifest.json: every file of a checkpoint with size and checksums. Written last, so that its
// existence proves that all other files are complete.
namespace finetune::checkpoint {

inline constexpr int64_t kManifestVersion = 1;
inline constexpr uint64_t kBlockBytes = uint64_t{4} << 20;

// A file that a newer version of the program wrote: no damage, so nothing is renamed or rebuilt.
class NewerFormat : public Error {
 public:
  NewerFormat(const std::string& file, int64_t version, int64_t known);
  explicit NewerFormat(const std::string& message) : Error(ErrorKind::kCheckpoint, message) {}
};

struct FileRecord {
  uint64_t bytes = 0;
  std::string hash;                 // XXH3-128 of the complete file
  std::vector<std::string> blocks;  // of each block of kBlockBytes

  bool operator==(const FileRecord&) const = default;
};

struct Manifest {
  std::string run_id;
  int64_t step = 0;
  int64_t created_unix = 0;  // seconds; for display, never for ordering
  std::map<std::string, FileRecord> files;

  bool operator==(const Manifest&) const = default;
};

// Returns the manifest's text, which ends with its own checksum. Equal manifests give equal texts.
[[nodiscard]] std::string manifest_text(const Manifest& manifest);

enum class FileNames {
  kPlain,  // names in a checkpoint folder
  kPaths,  // relative paths in a tree, see is_tree_path()
};

// Accepts exactly what manifest_text() writes: any other byte counts as damage. Checks the file
// names and that sizes and numbers of blocks agree. `path` names the file in messages. Throws
// Error(kCheckpoint), and NewerFormat for a higher format version with a valid checksum, which
// every version has as its last member.
[[nodiscard]] Manifest parse_manifest(std::string_view text, const std::string& path,
                                      FileNames names = FileNames::kPlain);

// Forwards writes to a file, and records size and checksums.
class RecordingFile final : public WritableFile {
 public:
  explicit RecordingFile(WritableFile& file) : file_(file) {}

  using WritableFile::write;
  void write(const void* data, size_t size) override;
  void sync() override {}  // the owner of the file syncs and closes it
  void close() override {}
  [[nodiscard]] FileRecord record() const;

 private:
  WritableFile& file_;
  FileRecord record_;
  Hasher whole_;
  Hasher block_;
  uint64_t block_used_ = 0;
};

// Reads the complete file and compares it with its record. Throws Error(kCheckpoint) with the
// offset of the first corrupt block, Error(kIo) if the file cannot be read.
void verify_file(const ReadableFile& file, const FileRecord& record, const std::string& path);

}  // namespace finetune::checkpoint
