// SPDX-License-Identifier: MIT
#include "train/folder/space.h"

#include <algorithm>
#include <limits>
#include <map>

#include "finetune/base/text.h"

namespace finetune {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

// Folders on the same file system, the output folder first.
struct Volume {
  std::vector<const SavingFolder*> folders;
  uint64_t free = kUnknown;
  NeededBytes needed;
  NeededBytes output;  // of the output folder, if it is one of them
};

std::vector<Volume> volumes_of(const std::vector<SavingFolder>& folders, const SavedBytes& bytes,
                               const SavesToCome& saves) {
  std::map<uint64_t, Volume> volumes;
  for (const bool is_mirror : {false, true}) {
    for (const SavingFolder& folder : folders) {
      if (folder.is_mirror != is_mirror) continue;
      Volume& volume = volumes[folder.device];
      const NeededBytes needed = needed_bytes(folder, bytes, saves);
      volume.folders.push_back(&folder);
      volume.free = std::min(volume.free, folder.free);  // a quota may limit one of them
      volume.needed.least += needed.least;
      volume.needed.most += needed.most;
      if (!is_mirror) volume.output = needed;
    }
  }
  std::vector<Volume> list;
  for (auto& [device, volume] : volumes) list.push_back(std::move(volume));
  return list;
}

// Returns "'out' and its mirror '/drive/out', which share a file system".
std::string names_of(const Volume& volume) {
  std::string text;
  for (const SavingFolder* folder : volume.folders) {
    text += (text.empty() ? "" : " and ") + std::string(folder->is_mirror ? "the mirror " : "") +
            "'" + folder->path + "'";
  }
  return volume.folders.size() > 1 ? text + ", which share a file system," : text;
}

std::string keys_of(const Volume& volume) {
  const bool has_mirror = volume.folders.back()->is_mirror;
  if (!volume.folders.front()->is_mirror) {
    return has_mirror ? "output_dir or mirror_dir" : "output_dir";
  }
  return "mirror_dir";
}

std::string error_text(const Volume& volume, const SavedBytes& bytes, const SavesToCome& saves) {
  const std::string what =
      !saves.trains || !saves.on_schedule
          ? "the finished model and its results"
          : "one checkpoint" + std::string(volume.folders.size() > 1 ? " in each" : "");
  std::string text = "not enough space in " + names_of(volume) + " for " + what + ": " +
                     bytes_text(volume.needed.least) + " are needed, " + bytes_text(volume.free) +
                     " are free; nothing was trained: free some space or choose another " +
                     keys_of(volume);
  if (saves.trains && saves.on_schedule && saves.limit == 1 && volume.folders.front()->kept == 1) {
    text +=
        " (with save_total_limit 1 the checkpoint that is there is deleted only after the next "
        "one is complete)";
  }
  if (saves.trains && saves.on_schedule && volume.free >= bytes.end) {
    text += ", or set save_strategy: no, which writes only the finished model (" +
            bytes_text(bytes.end) + ")";
  }
  return text;
}

std::string warning_text(const Volume& volume, const SavedBytes& bytes, const SavesToCome& saves) {
  const bool saves_on_schedule = saves.trains && saves.on_schedule;
  std::string text = "this run may need " + bytes_text(volume.needed.most) + " more in " +
                     names_of(volume) + " and " + bytes_text(volume.free) +
                     " are free (a checkpoint takes " +
                     bytes_text(saves_on_schedule ? bytes.scheduled : bytes.automatic) +
                     ", the finished model " + bytes_text(bytes.end) + "): free some space";
  if (saves_on_schedule && !saves.limit) text += ", set save_total_limit";
  if (saves_on_schedule && saves.limit.value_or(0) > 1) text += ", lower save_total_limit";
  return text + " or choose another " + keys_of(volume) +
         "; a save that finds no room fails, and training continues";
}

// At most what with_margin() was given.
uint64_t without_margin(uint64_t asked) { return asked - asked / 9; }

}  // namespace

uint64_t with_margin(uint64_t checkpoint_bytes) {
  const uint64_t asked = checkpoint_bytes + checkpoint_bytes / 20;
  return asked + asked / 20;
}

NeededBytes needed_bytes(const SavingFolder& folder, const SavedBytes& bytes,
                         const SavesToCome& saves) {
  if (!saves.trains) return {.least = bytes.end, .most = bytes.end + folder.other};
  if (!saves.on_schedule) {
    return {.least = bytes.end, .most = std::max(bytes.end, bytes.automatic) + folder.other};
  }
  int64_t there = folder.kept + saves.left;
  if (saves.limit) there = std::min(there, *saves.limit);
  const auto added = static_cast<uint64_t>(std::max<int64_t>(0, there - folder.kept));
  // Space in addition to the checkpoints that are kept: for the next one before rotation deletes an
  // old one, for that of an early stop, and at the end for the finished model.
  const uint64_t beside = std::max({bytes.scheduled, bytes.automatic, bytes.end});
  const uint64_t freed = static_cast<uint64_t>(folder.deletable) * without_margin(bytes.scheduled);
  return {.least = bytes.scheduled - std::min(freed, bytes.scheduled),
          .most = added * bytes.scheduled + beside + folder.other};
}

SpaceVerdict judge_space(const std::vector<SavingFolder>& folders, const SavedBytes& bytes,
                         const SavesToCome& saves, bool is_resumed) {
  SpaceVerdict verdict;
  for (const Volume& volume : volumes_of(folders, bytes, saves)) {
    if (volume.free >= volume.needed.most) continue;
    // 0 if the output folder is on another file system.
    const uint64_t least = is_resumed ? volume.output.least : volume.needed.least;
    std::string& text = volume.free < least ? verdict.error : verdict.warning;
    if (!text.empty()) text += "\n";
    text +=
        volume.free < least ? error_text(volume, bytes, saves) : warning_text(volume, bytes, saves);
  }
  if (!verdict.error.empty()) verdict.warning.clear();
  return verdict;
}

}  // namespace finetune
