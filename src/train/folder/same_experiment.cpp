// SPDX-License-Identifier: MIT
#include "train/folder/same_experiment.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/log.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/manifest.h"
#include "finetune/checkpoint/reader.h"
#include "finetune/config/dump.h"
#include "finetune/data/data_files.h"
#include "finetune/model/model_folder.h"
#include "finetune/report/progress.h"
#include "finetune/task/setup.h"
#include "finetune/tokenizer/tokenizer.h"
#include "train/setup/assemble.h"
#include "train/setup/resume.h"
#include "train/setup/run_inputs.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxRecordBytes = uint64_t{64} << 20;
constexpr char kModelKey[] = "model_name_or_path";
constexpr char kTokenizerKey[] = "tokenizer_name";
constexpr char kConfigKey[] = "config_name";

// Keys that may change as long as they yield the same samples.
constexpr std::array<std::string_view, 9> kColumnKeys = {
    "text_columns",   "text_column", "text_pair_column", "label_column", "context_column",
    "choice_columns", "delimiter",   "quoting",          "header"};

// Returns a key's value as a list of texts; empty if it is unset.
std::vector<std::string> texts_of(const Json& all, const char* key) {
  std::vector<std::string> texts;
  const auto found = all.find(key);
  if (found == all.end()) return texts;
  if (found->is_string()) texts.push_back(found->get<std::string>());
  if (!found->is_array()) return texts;
  for (const Json& item : *found) {
    if (item.is_string()) texts.push_back(item.get<std::string>());
  }
  return texts;
}

std::string list_of(const std::vector<std::string>& texts) {
  if (texts.empty()) return "unset";
  std::string list;
  for (const std::string& text : texts) list += (list.empty() ? "'" : ", '") + text + "'";
  return list;
}

// Compares only file names: on another machine the files are in other folders.
bool have_equal_names(const std::vector<std::string>& before, const std::vector<std::string>& now) {
  return std::ranges::equal(before, now, {}, file_name, file_name);
}

// Compares a command with a run and collects what cannot be compared.
class RunComparison {
 public:
  RunComparison(const LoadedConfig& config, const RunState& saved, FoundRun run)
      : config_(config),
        args_(config.args),
        saved_(saved),
        location_(std::move(run)),
        progress_(progress_mode(config.args)),
        cache_(hash_cache(config.args, show_steps(progress_))) {}

  void run() {
    check_fixed_keys(saved_, config_, location_);
    check_model_is_named();
    lost_ = lost_folders();
    if (!lost_.empty()) stand_in_ = location_.folder;
    for (const char* key : lost_) missing(texts_of(to_json(args_), key), key);
    check_tokenizer_and_config();
    if (const auto folder = folder_of(args_.model_name_or_path, kModelKey)) {
      check_weights(*folder);
    }
    check_data();
    if (saved_.finished) check_validation();
    if (missing_.empty() || !saved_.finished) return;
    log::info("not compared with the finished run, because it is not on this machine: " + missing_);
  }

  [[nodiscard]] std::string check_starting_model() const {
    check_model_is_named();
    if (const auto folder = folder_of(args_.model_name_or_path, kModelKey)) {
      check_weights(*folder);
    }
    const std::vector<const char*> lost = lost_folders();
    if (lost.empty()) return "";
    if (args_.use_peft && std::ranges::find(lost, std::string_view(kModelKey)) != lost.end()) {
      refuse_key(config_, kModelKey,
                 "the base '" + *args_.model_name_or_path + "' of the adapter in " +
                     location_.folder +
                     " is not on this machine; put it there again: checkpoints hold the adapter "
                     "alone");
    }
    log::info(std::string(lost.front()) + " " + list_of(texts_of(to_json(args_), lost.front())) +
              " is not on this machine: tokenizer and config.json are taken from " +
              location_.folder);
    return location_.folder;
  }

  [[nodiscard]] std::string explain_other_data() const {
    std::string list;
    const auto add = [&](const std::string& what) { list += (list.empty() ? "" : ", ") + what; };
    const auto value = [](const std::string& text) { return text == "null" ? "unset" : text; };
    for (const KeyChange& change : changed_keys(saved_.config, to_json(args_))) {
      if (std::ranges::find(kColumnKeys, change.name) == kColumnKeys.end()) continue;
      add(change.name + " was " + value(change.old_text) + " and is " + value(change.new_text));
    }
    const std::optional<FileRecord> before = recorded_input(saved_, kTrainFileInput);
    if (!before) return list;
    try {
      const FileRecord now = record_files(train_file_groups(args_), hash_cache(args_, {}), false);
      if (now.files == before->files && now.bytes == before->bytes) return list;
      const auto size = [](const FileRecord& record) {
        return std::to_string(record.files) + (record.files == 1 ? " file of " : " files of ") +
               std::to_string(record.bytes) + " bytes";
      };
      add(std::string(kTrainFileInput) + " was " +
          list_of(texts_of(saved_.config, kTrainFileInput)) + ", " + size(*before) + ", and is " +
          list_of(args_.train_file) + ", " + size(now));
    } catch (const Error& error) {  // the original error is reported in any case
      log::debug(error.what());
    }
    return list;
  }

 private:
  [[noreturn]] void refuse(const char* key, const std::string& present,
                           const std::string& before) const {
    refuse_key(config_, key,
               present + ", but " + location_.folder + " began with " + before + "; put it back, " +
                   location_.way_out);
  }

  // Requires: what `key` names does not exist on this machine.
  void check_missing(const char* key) const {
    const std::vector<std::string> now = texts_of(to_json(args_), key);
    const std::vector<std::string> before = texts_of(saved_.config, key);
    // Files of data have the same names in other folders of another machine; a model's name says
    // little, and only the same path stands for the same model.
    const bool is_model = std::string_view(key) == kModelKey;
    if (is_model ? before == now : have_equal_names(before, now)) return;
    refuse(key, "is " + list_of(now) + ", which is missing or empty", list_of(before));
  }

  [[nodiscard]] std::optional<std::string> folder_of(const std::optional<std::string>& name,
                                                     const char* key) const {
    if (!name) return std::nullopt;
    try {
      return named_folder(config_, key, *name);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kConfig) throw;
      return std::nullopt;
    }
  }

  // Returns the keys whose folders no longer exist. Throws Error(kConfig) if a folder had another
  // name.
  [[nodiscard]] std::vector<const char*> lost_folders() const {
    std::vector<const char*> lost;
    for (const auto& [name, key] : {std::pair(&args_.model_name_or_path, kModelKey),
                                    std::pair(&args_.tokenizer_name, kTokenizerKey),
                                    std::pair(&args_.config_name, kConfigKey)}) {
      if (!*name || folder_of(*name, key)) continue;
      check_missing(key);
      lost.push_back(key);
    }
    return lost;
  }

  // Refuses a new model in place of a pretrained one, and the reverse, whatever their shapes.
  void check_model_is_named() const {
    const std::vector<std::string> before = texts_of(saved_.config, kModelKey);
    const std::vector<std::string> now = texts_of(to_json(args_), kModelKey);
    if (before.empty() == now.empty()) return;
    refuse(kModelKey, "is " + list_of(now), before.empty() ? "a fresh model" : list_of(before));
  }

  // A state of an earlier version has no hash of the weights: hashes the folder that they came
  // from, if it still exists.
  [[nodiscard]] std::optional<std::string> contents_of_former() const {
    const std::vector<std::string> name = texts_of(saved_.config, kModelKey);
    const auto folder = folder_of(name.front(), kModelKey);
    return folder ? std::optional(hash_of_weights(*folder, cache_)) : std::nullopt;
  }

  void check_weights(const std::string& folder) const {
    const std::vector<std::string> names = texts_of(saved_.config, kModelKey);
    const std::optional<FileRecord> record = recorded_input(saved_, kWeightsInput);
    std::optional<std::string> before;
    std::string now;
    try {
      const bool is_untouched =
          record ? look_at_files(weight_paths(folder), cache_.show).seen == record->seen
                 : names.front() == *args_.model_name_or_path;
      if (is_untouched) return;
      before = record ? record->contents : contents_of_former();
      now = hash_of_weights(folder, cache_);
    } catch (const Error& error) {  // the run needs its checkpoint alone
      log::info("the weights of '" + folder + "' are not compared with those that " +
                location_.folder + " began with: " + error.what());
      return;
    }
    if (!before) {
      log::info("the weights of '" + folder + "' are not compared with those that " +
                location_.folder + " began with: " + list_of(names) + " is not on this machine");
      return;
    }
    if (now == *before) return;
    refuse(kModelKey,
           "names the weights of '" + *args_.model_name_or_path + "' (content hash " + now + ")",
           "those of " + list_of(names) + " (content hash " + *before + ")");
  }

  void missing(const std::vector<std::string>& names, const char* key) {
    missing_ += (missing_.empty() ? "" : ", ") + std::string(key) + " " + list_of(names);
  }

  void check_tokenizer_and_config() {
    const char* key = args_.tokenizer_name ? kTokenizerKey : kModelKey;
    if (std::ranges::find(lost_, std::string_view(key)) != lost_.end()) return;
    RunIdentity before = saved_.identity;
    RunIdentity now = before;
    if (!lost_.empty()) {  // the model before training is no longer known
      const auto& name = args_.tokenizer_name ? args_.tokenizer_name : args_.model_name_or_path;
      now.tokenizer = hash_tokenizer(*load_tokenizer(*folder_of(name, key)));
      check_identity(before, now, location_);
      return;
    }
    const StartingPoint start = find_starting_point(
        config_, {.train = true, .model_folder = "", .run_folder = location_.folder});
    now.tokenizer = hash_tokenizer(*start.tokenizer);
    now.chat_template = hash_chat_template(start.chat_template.get());
    const std::string config = recorded_config(saved_);
    if (!config.empty()) {
      before.model = config;
      now.model = start.config_text();
    }
    check_identity(before, now, location_);
  }

  void check_data() {
    std::vector<std::vector<std::string>> groups;
    try {
      groups = train_file_groups(args_);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kData && error.kind() != ErrorKind::kConfig) throw;
      check_missing(kTrainFileInput);
      missing(args_.train_file, kTrainFileInput);
      return;
    }
    const std::optional<FileRecord> before = recorded_input(saved_, kTrainFileInput);
    const bool has_contents = before && !before->contents.empty();
    FileRecord now = record_files(groups, cache_, false);
    bool is_same = before && now.seen == before->seen;
    if (!is_same && has_contents) {
      now = record_files(groups, cache_, true);
      is_same = now.contents == before->contents;
    }
    if (is_same && !reads_other_samples()) return;
    // For an unfinished run the resume tokenises: the mirror may have the tokens.
    if (!has_contents && !saved_.finished) return;
    try {
      compare_samples();
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kIo || !has_contents || is_same) throw;
      log::debug(error.what());
      refuse(kTrainFileInput, "is " + describe(now, args_.train_file),
             describe(*before, texts_of(saved_.config, kTrainFileInput)));
    }
  }

  // Whether keys that do not name files may change which samples are read.
  [[nodiscard]] bool reads_other_samples() const {
    const Json present = to_json(args_);
    for (const KeyChange& change : changed_keys(saved_.config, present)) {
      if (std::ranges::find(kColumnKeys, change.name) != kColumnKeys.end()) return true;
    }
    const bool held_out_rows = texts_of(saved_.config, kValidationFileInput).empty();
    return held_out_rows != args_.validation_file.empty();
  }

  // Compares samples as the resume of an unfinished run does.
  void compare_samples() {
    const Parts parts = assemble(config_,
                                 {.train = true,
                                  .model_folder = "",
                                  .stand_in = stand_in_,
                                  .run_folder = location_.folder,
                                  .weights = WeightSource::kCheckpoint},
                                 progress_);
    check_identity(saved_.identity, parts.identity, location_,
                   [&] { return explain_other_data(); });
  }

  void check_validation() {
    const std::optional<FileRecord> before = recorded_input(saved_, kValidationFileInput);
    if (!before || before->contents.empty() || args_.validation_file.empty()) return;
    try {
      const std::vector<std::vector<std::string>> groups = {
          expand_files(args_.validation_file, kValidationFileInput)};
      if (record_files(groups, cache_, false).seen == before->seen) return;
      if (record_files(groups, cache_, true).contents == before->contents) return;
    } catch (const Error& error) {
      log::debug(error.what());
      return;
    }
    log::warning(
        "not applied, because the run is finished: validation_file has changed; "
        "`finetune evaluate` evaluates the model on it");
  }

  static std::string describe(const FileRecord& record, const std::vector<std::string>& names) {
    return list_of(names) + " (" + std::to_string(record.files) +
           (record.files == 1 ? " file of " : " files of ") + std::to_string(record.bytes) +
           " bytes, content hash " + record.contents + ")";
  }

  const LoadedConfig& config_;
  const TrainingArgs& args_;
  const RunState& saved_;
  FoundRun location_;
  ProgressDisplay progress_;
  TokenCacheOptions cache_;
  std::vector<const char*> lost_;  // keys whose folders are gone
  std::string stand_in_;           // place_'s folder where there are any
  std::string missing_;
};

}  // namespace

std::string check_starting_model(const LoadedConfig& config, const RunState& saved,
                                 const FoundRun& location) {
  return RunComparison(config, saved, location).check_starting_model();
}

std::string explain_other_data(const LoadedConfig& config, const RunState& saved) {
  return RunComparison(config, saved, {}).explain_other_data();
}

void check_same_run(const LoadedConfig& config, const RunState& saved, const FoundRun& run) {
  RunComparison(config, saved, run).run();
}

namespace {

// Throws Error(kCheckpoint) if the folder's manifest records another state: a damaged one may still
// be valid JSON, and name a run that never was. A manifest that cannot be read proves nothing.
void verify_state(FileSystem& files, const std::string& folder, const std::string& path) {
  const std::string manifest = join_path(folder, checkpoint::kManifestFile);
  std::map<std::string, checkpoint::FileRecord> records;
  try {
    if (!files.exists(manifest)) return;
    records = checkpoint::parse_manifest(files.read_all(manifest, kMaxRecordBytes), manifest).files;
  } catch (const Error& error) {
    log::debug(error.what());
    return;
  }
  const auto found = records.find(checkpoint::kFinetuneStateFile);
  if (found == records.end()) return;
  checkpoint::verify_file(*files.open(path), found->second, path);
}

}  // namespace

std::optional<StoredRun> stored_run_in(FileSystem& files, const std::string& folder) {
  const std::string path = join_path(folder, checkpoint::kFinetuneStateFile);
  try {
    if (!files.exists(path)) return std::nullopt;
    verify_state(files, folder, path);
    return StoredRun{.state = RunState::parse(files.read_all(path, kMaxRecordBytes), path),
                     .folder = folder};
  } catch (const Error& error) {  // what reads it later reports it
    log::debug(error.what());
    return std::nullopt;
  }
}

std::optional<StoredRun> newest_run_in(FileSystem& files, const std::string& directory) {
  std::optional<StoredRun> finished = stored_run_in(files, directory);
  if (finished && finished->state.finished) return finished;
  std::vector<checkpoint::CheckpointEntry> entries;
  if (files.exists(directory)) entries = checkpoint::list_checkpoints(files, directory, false);
  std::reverse(entries.begin(), entries.end());
  for (const checkpoint::CheckpointEntry& entry : entries) {
    if (entry.is_newer) throw checkpoint::NewerFormat(entry.problem);
    if (!entry.whole || entry.foreign) continue;
    if (std::optional<StoredRun> run = stored_run_in(files, entry.path)) return run;
  }
  return std::nullopt;
}

void check_output_folder(const LoadedConfig& config) {
  const TrainingArgs& args = config.args;
  if (args.resume_from_checkpoint != "auto") return;
  const std::optional<StoredRun> run = newest_run_in(FileSystem::local(), args.output_dir);
  if (run) check_same_run(config, run->state, {.folder = run->folder});
}

}  // namespace finetune
