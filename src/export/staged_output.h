// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "finetune/base/file_system.h"
#include "finetune/checkpoint/manifest.h"

namespace finetune {

// Whether an export copies a file of this name from a model's folder.
[[nodiscard]] bool goes_with_weights(std::string_view name);

// A file or folder that gets its name when it is complete. Until then it has a name of this
// process; what a killed process left there is removed by the next one.
class StagedOutput {
 public:
  // Throws Error(kUsage) if `out` exists and may not be replaced, Error(kIo) if `bytes` do not fit
  // on the disk. Without `sync` a power cut after commit() may leave damaged files.
  StagedOutput(std::string out, bool overwrite, uint64_t bytes, bool sync = true);
  StagedOutput(const StagedOutput&) = delete;
  StagedOutput& operator=(const StagedOutput&) = delete;
  ~StagedOutput();  // removes what was not committed

  [[nodiscard]] const std::string& path() const { return path_; }

  // Opens a file for writing, whose bytes verify() reads again. `name`: in the folder or in a
  // folder there; empty: the output itself.
  [[nodiscard]] std::unique_ptr<WritableFile> create(const std::string& name = "");
  void write(const std::string& name, const std::string& text);
  // Writes manifest.json, which has this id and the checksums of all files so far in the folder.
  void write_manifest(const std::string& id);
  // Throws Error(kIo) if a file does not have the bytes that were written.
  void verify() const;
  void commit();
  [[nodiscard]] uint64_t bytes() const;

 private:
  class RecordedFile;
  void remove_leftovers() const;

  FileSystem& files_;
  std::string out_;
  bool overwrite_;
  bool sync_;
  std::string path_;
  std::map<std::string, checkpoint::FileRecord> written_;  // by path
  bool is_committed_ = false;
};

}  // namespace finetune
