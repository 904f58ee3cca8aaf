// SPDX-License-Identifier: MIT
#include "checkpoint/foreign.h"

#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json_fields.h"
#include "finetune/base/json_list.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/tensor/torch_archive.h"
#include "finetune/tensor/weight_files.h"

namespace finetune::checkpoint {
namespace {

constexpr uint64_t kMaxStateBytes = uint64_t{256} << 20;

void check_state(FileSystem& files, const CheckpointEntry& entry) {
  const std::string path = join_path(entry.path, kTrainerStateFile);
  if (files.type(path) != FileType::kFile) {
    reject_checkpoint("it has neither manifest.json nor trainer_state.json");
  }
  JsonLimits limits;
  limits.allow_nan = true;
  // The log may be long.
  const nlohmann::ordered_json state = parse_json_with_list(
      files.read_all(path, kMaxStateBytes), path, "log_history", [](nlohmann::ordered_json&&) {},
      ErrorKind::kCheckpoint, limits);
  if (JsonFields(state, path, ErrorKind::kCheckpoint).integer("global_step") != entry.step) {
    reject_checkpoint(format_text("its trainer_state.json is not that of step {}", entry.step));
  }
}

void check_pickled(FileSystem& files, const CheckpointEntry& entry, const std::string& name) {
  check_torch_file(*files.open(join_path(entry.path, name)), join_path(entry.path, name));
}

}  // namespace

void inspect_foreign(FileSystem& files, CheckpointEntry& entry, bool verify) {
  check_state(files, entry);
  entry.foreign = true;
  if (files.type(join_path(entry.path, kConfigFile)) != FileType::kFile &&
      files.type(join_path(entry.path, kAdapterConfigFile)) != FileType::kFile) {
    reject_checkpoint("config.json is missing");
  }
  check_weight_files(files, find_weight_files(files, entry.path), verify);
  for (const char* name : {kOptimizerFile, kSchedulerFile, kScalerFile}) {
    if (files.exists(join_path(entry.path, name))) {
      if (verify) check_pickled(files, entry, name);
    } else if (name != kScalerFile) {
      entry.notes.push_back(std::string(name) + " is missing, so that part starts afresh");
    }
  }
  if (files.exists(join_path(entry.path, kScalerFile))) {
    entry.notes.push_back(std::string(kScalerFile) +
                          " is not used: its loss scale belongs to fp16, which this version does "
                          "not train with");
  }
  for (const std::string& name : files.list(entry.path)) {
    const std::string path = join_path(entry.path, name);
    if (files.type(path) == FileType::kFile) entry.bytes += files.open(path)->size();
  }
  entry.notes.insert(entry.notes.begin(),
                     "it was written by Hugging Face's Trainer without checksums; only its "
                     "structure could be checked");
}

}  // namespace finetune::checkpoint
