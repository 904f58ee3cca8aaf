// SPDX-License-Identifier: MIT
#include "finetune/state/checkpoint_part.h"

namespace finetune {

std::vector<checkpoint::CheckpointFile> CheckpointParts::save(const SaveScope& scope) const {
  std::vector<checkpoint::CheckpointFile> files;
  for (const auto& part : parts_) {
    for (checkpoint::CheckpointFile& file : part->save(scope)) files.push_back(std::move(file));
  }
  return files;
}

uint64_t CheckpointParts::bytes(SaveKind kind) const {
  uint64_t bytes = 0;
  for (const auto& part : parts_) bytes += part->bytes(kind);
  return bytes;
}

void CheckpointParts::load(const SavedFolder& folder) const {
  for (const auto& part : parts_) part->load(folder);
}

std::vector<std::string> CheckpointParts::restored() const {
  std::vector<std::string> lines;
  for (const auto& part : parts_) {
    if (std::string line = part->restored(); !line.empty()) lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace finetune
