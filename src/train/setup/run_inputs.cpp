// SPDX-License-Identifier: MIT
#include "train/setup/run_inputs.h"

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/hash.h"
#include "finetune/base/log.h"
#include "finetune/data/data_files.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kConfigInput[] = "config";

Json record_json(const FileRecord& record) {
  return {{"files", record.files},
          {"bytes", record.bytes},
          {"seen", record.seen},
          {"contents", record.contents}};
}

// Files that disappear after they were read do not stop training: what is readable is recorded.
template <class Describe>
void record(Json& inputs, const char* name, Describe describe) {
  try {
    inputs[name] = record_json(describe());
  } catch (const Error& error) {
    log::debug(std::string(name) + " is not recorded: " + error.what());
  }
}

FileRecord recorded_weights(const std::string& folder, const TokenCacheOptions& cache,
                            const std::optional<FileRecord>& saved) {
  FileRecord record = look_at_files(weight_paths(folder), cache.show);
  record.contents = saved ? saved->contents : hash_of_weights(folder, cache);
  return record;
}

}  // namespace

std::optional<FileRecord> recorded_input(const RunState& saved, const char* name) {
  const auto found = saved.inputs.find(name);
  if (found == saved.inputs.end()) return std::nullopt;
  try {
    return FileRecord{.files = found->at("files").get<int64_t>(),
                      .bytes = found->at("bytes").get<uint64_t>(),
                      .seen = found->at("seen").get<std::string>(),
                      .contents = found->at("contents").get<std::string>()};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::string recorded_config(const RunState& saved) {
  const auto found = saved.inputs.find(kConfigInput);
  return found != saved.inputs.end() && found->is_string() ? found->get<std::string>() : "";
}

std::vector<std::vector<std::string>> train_file_groups(const TrainingArgs& args) {
  if (args.train_file_weights.empty() && args.train_file_sets.empty())
    return {expand_files(args.train_file, kTrainFileInput)};
  std::vector<std::vector<std::string>> groups;
  for (const std::string& entry : args.train_file) {
    groups.push_back(expand_files({entry}, kTrainFileInput));
  }
  return groups;
}

FileRecord record_files(const std::vector<std::vector<std::string>>& groups,
                        const TokenCacheOptions& cache, bool reads_files) {
  std::vector<std::string> all;
  for (const auto& group : groups) all.insert(all.end(), group.begin(), group.end());
  FileRecord record = look_at_files(all, cache.show);
  Hasher hasher;
  for (const auto& group : groups) {
    const std::string contents =
        reads_files ? contents_of_files(cache, group) : known_contents(cache, group);
    if (contents.empty()) return record;
    hasher.update(contents);
  }
  record.contents = hasher.hex();
  return record;
}

Json describe_inputs(const TrainingArgs& args, const DataParts& parts, const RunState* saved,
                     const ShowStep& show) {
  const TokenCacheOptions cache = hash_cache(args, show);
  Json inputs = Json::object();
  record(inputs, kTrainFileInput,
         [&] { return record_files(train_file_groups(args), cache, false); });
  if (parts.validation_data && !args.validation_file.empty()) {
    record(inputs, kValidationFileInput, [&] {
      return record_files({expand_files(args.validation_file, kValidationFileInput)}, cache, false);
    });
  }
  const std::optional<FileRecord> weights =
      saved != nullptr ? recorded_input(*saved, kWeightsInput) : std::nullopt;
  if (weights) inputs[kWeightsInput] = record_json(*weights);
  const bool is_comparable = saved == nullptr || weights;
  if (is_comparable && !parts.pretrained.empty() && !parts.is_stand_in) {
    record(inputs, kWeightsInput,
           [&] { return recorded_weights(parts.pretrained, cache, weights); });
  }
  if (saved != nullptr) {
    if (!recorded_config(*saved).empty()) inputs[kConfigInput] = recorded_config(*saved);
  } else {
    inputs[kConfigInput] = parts.starting_config;
  }
  return inputs;
}

}  // namespace finetune
