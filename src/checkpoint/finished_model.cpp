// SPDX-License-Identifier: MIT
#include "finetune/checkpoint/finished_model.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "checkpoint/verified_copy.h"
#include "finetune/base/clock.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/layout.h"

namespace finetune::checkpoint {
namespace {

constexpr uint64_t kMaxModelManifestBytes = uint64_t{64} << 20;
constexpr std::string_view kBadSuffix = ".bad-";

Manifest read_manifest(FileSystem& files, const std::string& path) {
  return parse_manifest(files.read_all(path, kMaxModelManifestBytes), path);
}

CopyLocations within(FileSystem& files) {
  return {.from = files, .to = files, .may_continue = [] {
            interrupt::throw_if_requested("verifying the finished model");
          }};
}

FileRecord record_in(const CopyLocations& locations, const std::string& path) {
  try {
    return record_of(locations, path);
  } catch (const SourceError& error) {
    throw Error(error.kind(), error.what(), error.system_error());
  }
}

// Whether the model's answers depend on this file.
bool decides_answers(std::string_view name) {
  return name == kConfigFile || name == kAdapterConfigFile || name == kDataRecordFile ||
         name == kGenerationConfigFile || is_embedding_file_name(name) ||
         name == kChatTemplateFile || name == kDecisionFile || name == kCalibrationFile ||
         name == kDecisionTemplateFile || is_laya_file_name(name) || is_tokenizer_file_name(name) ||
         is_weight_file_name(name);
}

// In the model's folder itself, where a later start finds it.
std::string temporary_prefix(std::string name) {
  std::ranges::replace(name, '/', '_');
  return ".tmp-" + name + ".";
}

void put_in_place(FileSystem& files, const std::string& temporary, const std::string& target) {
  if (files.type(target) == FileType::kDirectory) (void)quarantine_file(files, target);
  files.rename(temporary, target);
}

// Returns how a file differs from its record; empty if it does not. Follows links.
std::string problem_of(FileSystem& files, const std::string& path, const FileRecord& record,
                       bool verify) {
  const FileType type = files.type(path);
  if (type == FileType::kMissing) return "'" + path + "' is missing";
  if (type != FileType::kFile && type != FileType::kLink) return "'" + path + "' is not a file";
  try {
    const std::unique_ptr<ReadableFile> file = files.open(path);
    if (verify) {
      verify_file(*file, record, path);
    } else if (file->size() != record.bytes) {
      return format_text("'{}' has {} bytes instead of {}", path, file->size(), record.bytes);
    }
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kCheckpoint) return error.what();
    if (error.system_error() == ENOENT) return "'" + path + "' is missing";
    if (error.system_error() == EISDIR || error.system_error() == ELOOP) {
      return "'" + path + "' is not a file";
    }
    throw;
  }
  return "";
}

void save_written(FileSystem& files, const std::string& folder, Manifest written) {
  written.run_id = "any";  // several runs may have written there
  files.write_atomically(join_path(folder, kWrittenFile), manifest_text(written));
}

// Returns an empty manifest if the file is missing or damaged.
Manifest read_written(FileSystem& files, const std::string& folder) {
  const std::string path = join_path(folder, kWrittenFile);
  try {
    if (files.type(path) == FileType::kFile) return read_manifest(files, path);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kCheckpoint) throw;
    log::debug(error.what());
  }
  return {};
}

std::vector<std::string> result_files(FileSystem& files, const std::string& folder) {
  std::vector<std::string> names;
  for (const std::string& name : files.list(folder)) {
    if (is_result_file_name(name) && files.type(join_path(folder, name)) == FileType::kFile) {
      names.push_back(name);
    }
  }
  return names;
}

}  // namespace

bool is_result_file_name(std::string_view name) {
  if (name == kAllResultsFile || name == "train_results.json" || name == kTokenLabelsFile ||
      name == kResultLinesFile || name == kWorstSamplesFile || name == kGeneratedSamplesFile) {
    return true;
  }
  for (const std::string_view split : {"eval", "predict"}) {
    if (!name.starts_with(split)) continue;
    const std::string_view rest = name.substr(split.size());
    return rest == kResultsEnd || rest == kAnswersEnd || rest == kBestAnswersEnd ||
           rest == kNullOddsEnd || rest == kCalibrationEnd;
  }
  return false;
}

bool is_run_file_name(std::string_view name) {
  return decides_answers(name) || name == kModelIndexFile || name == kFinetuneStateFile ||
         name == kManifestFile || name == kTrainerStateFile || is_result_file_name(name);
}

bool is_weight_file_name(std::string_view name) { return name.ends_with(".safetensors"); }

ModelExport::ModelExport(FileSystem& files, std::string folder, bool accepts_unrecorded)
    : files_(files), folder_(std::move(folder)) {
  remember_written(files_, folder_);
  written_ = read_written(files_, folder_);
  accepts_unrecorded_ = accepts_unrecorded && written_.files.empty();
}

bool ModelExport::is_of_user(const std::string& name) {
  const std::string path = join_path(folder_, name);
  if (files_.type(path) != FileType::kFile) return false;
  const auto known = written_.files.find(name);
  if (known == written_.files.end() && accepts_unrecorded_) return false;
  const FileRecord present = record_in({.from = files_, .to = files_, .may_continue = [] {}}, path);
  const auto staged = manifest_.files.find(name);
  if (staged != manifest_.files.end() && present == staged->second) return false;
  return known == written_.files.end() || present != known->second;
}

void ModelExport::note_written(const std::string& name) {
  const FileRecord& record = manifest_.files.at(name);
  FileRecord& known = written_.files[name];
  if (known == record) return;
  known = record;
  save_written(files_, folder_, written_);
}

void ModelExport::write(const CheckpointFile& file) {
  const std::string temporary = stage(file);
  const std::string path = join_path(folder_, file.name);
  if (is_of_user(file.name)) {
    const std::string kept = quarantine_file(files_, path);
    log::warning("'" + path + "' is not as this run wrote it and is renamed to " + kept);
  }
  note_written(file.name);
  make_folder_of(files_, folder_, file.name);
  if (file.name == kModelCardFile) manifest_.files.erase(file.name);
  put_in_place(files_, temporary, path);
}

// Writes the file under a temporary name; if the process is killed, a later start deletes it.
std::string ModelExport::stage(const CheckpointFile& file) {
  static thread_local std::mt19937_64 names{std::random_device{}()};
  std::string temporary =
      join_path(folder_, format_text("{}{}", temporary_prefix(file.name), names()));
  const std::unique_ptr<WritableFile> out = files_.create(temporary);
  RecordingFile recording(*out);
  file.write(recording);
  out->sync();
  out->close();
  manifest_.files[file.name] = recording.record();
  return temporary;
}

// Ignores signals: a run whose last step is done ends as finished, even if a signal is pending.
void ModelExport::add_results() {
  const CopyLocations locations = {.from = files_, .to = files_, .may_continue = [] {}};
  for (const std::string& name : result_files(files_, folder_)) {
    manifest_.files[name] = record_in(locations, join_path(folder_, name));
  }
}

void ModelExport::commit(const std::string& run_id, int64_t step, const std::string& state) {
  manifest_.run_id = run_id;
  manifest_.step = step;
  manifest_.created_unix = static_cast<int64_t>(unix_seconds());
  const std::string temporary = stage(text_file(kFinetuneStateFile, state));
  remove_former();
  write_manifest(files_, folder_, manifest_);
  put_in_place(files_, temporary, join_path(folder_, kFinetuneStateFile));
  files_.sync_directory(folder_);
}

// A model of another kind, such as an adapter after a whole model, has not all files of the former.
void ModelExport::remove_former() {
  std::vector<std::string> former;
  for (const auto& [name, record] : written_.files) {
    const bool is_of_model = decides_answers(name) || name == kModelIndexFile;
    if (is_of_model && !manifest_.files.contains(name)) former.push_back(name);
  }
  for (const std::string& name : former) {
    const std::string path = join_path(folder_, name);
    if (files_.type(path) == FileType::kFile && !is_of_user(name)) {
      files_.remove_file(path);
      const std::string module = parent_path(path);
      if (module != folder_ && files_.list(module).empty()) files_.remove_directory(module);
    }
    written_.files.erase(name);
  }
  if (!former.empty()) save_written(files_, folder_, written_);
}

void remember_written(FileSystem& files, const std::string& folder) {
  const std::string path = join_path(folder, kManifestFile);
  if (files.type(path) != FileType::kFile) return;
  try {
    Manifest written = read_written(files, folder);
    const std::map<std::string, FileRecord> before = written.files;
    for (const auto& [name, record] : read_manifest(files, path).files) {
      written.files[name] = record;
    }
    if (written.files == before) return;
    save_written(files, folder, std::move(written));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kCheckpoint) throw;
    log::debug(error.what());
  }
}

void complete_export(FileSystem& files, const std::string& folder) {
  const std::string path = join_path(folder, kManifestFile);
  if (files.type(path) != FileType::kFile) return;
  std::optional<FileRecord> record;
  try {
    const Manifest manifest = read_manifest(files, path);
    const auto found = manifest.files.find(kFinetuneStateFile);
    if (found != manifest.files.end()) record = found->second;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kCheckpoint) throw;
  }
  const std::string state = join_path(folder, kFinetuneStateFile);
  if (!record || problem_of(files, state, *record, true).empty()) return;
  for (const std::string& name : files.list(folder)) {
    const std::string staged = join_path(folder, name);
    if (!name.starts_with(temporary_prefix(kFinetuneStateFile))) continue;
    if (!problem_of(files, staged, *record, true).empty()) continue;
    put_in_place(files, staged, state);
    files.sync_directory(folder);
    log::info("completed the finished model in '" + folder + "', whose export was interrupted");
    return;
  }
}

FinishedModel compare_with_manifest(FileSystem& files, const std::string& folder,
                                    const Manifest& manifest, bool verify) {
  FinishedModel model;
  model.manifest = manifest;
  for (const auto& [name, record] : manifest.files) {
    if (name == kModelCardFile) continue;
    if (verify) interrupt::throw_if_requested("verifying the finished model");
    model.bytes += record.bytes;
    std::string problem = problem_of(files, join_path(folder, name), record, verify);
    if (!problem.empty()) model.damaged.emplace(name, std::move(problem));
  }
  return model;
}

FinishedModel inspect_finished_model(FileSystem& files, const std::string& folder, bool verify) {
  const std::string path = join_path(folder, kManifestFile);
  const FileType type = files.type(path);
  FinishedModel model;
  model.has_manifest_file = type != FileType::kMissing;
  if (type != FileType::kFile && type != FileType::kLink) {
    model.problem = "'" + path + "' is " + (model.has_manifest_file ? "not a file" : "missing");
    return model;
  }
  try {
    model = compare_with_manifest(files, folder, read_manifest(files, path), verify);
  } catch (const NewerFormat& error) {
    model.is_newer = true;
    model.problem = error.what();
  } catch (const Error& error) {
    const bool leads_nowhere = type == FileType::kLink && error.system_error() == ENOENT;
    if (error.kind() != ErrorKind::kCheckpoint && !leads_nowhere) throw;
    model.problem = error.what();
  }
  model.has_manifest_file = true;
  return model;
}

void require_undamaged_model(FileSystem& files, const std::string& folder) {
  const std::string path = join_path(folder, kManifestFile);
  if (files.type(path) != FileType::kFile) return;
  std::optional<Manifest> manifest;
  try {
    manifest = read_manifest(files, path);
  } catch (const Error& error) {
    log::warning(std::string(error.what()) + "; the files of the model are not verified");
    return;
  }
  std::erase_if(manifest->files, [](const auto& file) { return !decides_answers(file.first); });
  FinishedModel others = compare_with_manifest(files, folder, *manifest, true);
  FinishedModel weights;
  for (const auto& [name, problem] : others.damaged) {
    if (is_weight_file_name(name)) weights.damaged.emplace(name, problem);
  }
  if (!weights.damaged.empty()) {
    throw Error(ErrorKind::kCheckpoint,
                describe_damage(weights) +
                    "; run the training command again to repair it, or put a good copy back");
  }
  if (others.damaged.empty()) return;
  log::warning(describe_damage(others) +
               " (by the checksums of manifest.json), and answers may differ; unless the change is "
               "intended, run the training command again to repair it");
}

std::optional<FileRecord> recorded_file(FileSystem& files, const std::string& folder,
                                        const std::string& name) {
  const FinishedModel model = inspect_finished_model(files, folder, false);
  if (!model.manifest) return std::nullopt;
  const auto found = model.manifest->files.find(name);
  if (found == model.manifest->files.end()) return std::nullopt;
  return found->second;
}

std::string describe_damage(const FinishedModel& model) {
  std::string text = model.problem;
  for (const auto& [name, problem] : model.damaged) text += (text.empty() ? "" : ", ") + problem;
  return text;
}

void write_manifest(FileSystem& files, const std::string& folder, const Manifest& manifest) {
  const std::string path = join_path(folder, kManifestFile);
  if (files.type(path) == FileType::kDirectory) (void)quarantine_file(files, path);
  files.write_atomically(path, manifest_text(manifest));
}

FileRecord record_file(FileSystem& files, const std::string& path) {
  return record_in(within(files), path);
}

std::string quarantine_file(FileSystem& files, const std::string& path) {
  if (files.type(path) == FileType::kMissing) return "";
  for (int64_t number = 1;; ++number) {
    const std::string target = format_text("{}{}{}", path, kBadSuffix, number);
    if (files.exists(target)) continue;
    files.rename_new(path, target);
    files.sync_directory(parent_path(path));
    return file_name(target);
  }
}

bool is_quarantined_file_name(std::string_view name) {
  const size_t suffix = name.rfind(kBadSuffix);
  if (suffix == std::string_view::npos || suffix == 0) return false;
  const std::string_view number = name.substr(suffix + kBadSuffix.size());
  return !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos;
}

bool restore_file(const RestoreOptions& options, const std::string& name,
                  const FileRecord& record) {
  const std::string source = join_path(options.mirror_dir, name);
  const std::string target = join_path(options.output_dir, name);
  try {
    const std::string problem = problem_of(*options.files, source, record, true);
    if (!problem.empty()) {
      options.report("the mirror cannot replace '" + target + "': " + problem);
      return false;
    }
  } catch (const Error& error) {
    options.report("the mirror cannot replace '" + target + "': " + error.what());
    return false;
  }
  const CopyLocations locations = {
      .from = *options.files,
      .to = *options.local,
      .may_continue = [] { interrupt::throw_if_requested("copying from the mirror"); },
      .clock = options.clock};
  const std::string temporary = join_path(
      options.output_dir, format_text("{}{}", temporary_prefix(name), std::random_device{}()));
  make_folder_of(*options.local, options.output_dir, name);
  const auto discard = [&] {
    if (options.local->exists(temporary)) options.local->remove_file(temporary);
  };
  try {
    if (copy_file(locations, source, temporary) != record) {
      discard();
      options.report("'" + source + "' changed while it was copied, so it is not used");
      return false;
    }
  } catch (const SourceError& error) {
    discard();
    options.report("the mirror cannot replace '" + target + "': " + error.what());
    return false;
  }
  (void)quarantine_file(*options.local, target);
  options.local->rename(temporary, target);
  options.local->sync_directory(options.output_dir);
  return true;
}

ResultUpdate::ResultUpdate(FileSystem& files, std::string folder)
    : files_(files), folder_(std::move(folder)) {
  const std::string path = join_path(folder_, kManifestFile);
  if (files_.type(path) != FileType::kFile) return;
  try {
    manifest_ = read_manifest(files_, path);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kCheckpoint) throw;
    return;
  }
  Manifest results = *manifest_;
  std::erase_if(results.files, [](const auto& item) { return !is_result_file_name(item.first); });
  for (const auto& item : compare_with_manifest(files_, folder_, results, true).damaged) {
    const std::string damaged = join_path(folder_, item.first);
    Damaged& kept = damaged_[item.first];
    kept.recorded = results.files.at(item.first);
    if (files_.type(damaged) == FileType::kFile) kept.present = record_file(files_, damaged);
  }
  // Merging results into a damaged file would give the damage a valid checksum.
  const auto merged = damaged_.find(kAllResultsFile);
  if (merged != damaged_.end() && merged->second.present) {
    manifest_.reset();
    return;
  }
  Manifest others = *manifest_;
  std::erase_if(others.files, [](const auto& item) { return is_result_file_name(item.first); });
  if (others.files.empty()) {
    manifest_.reset();
  } else if (others != *manifest_) {
    write_manifest(files_, folder_, others);
  }
}

void ResultUpdate::commit() {
  if (!manifest_) return;
  for (const std::string& name : result_files(files_, folder_)) {
    manifest_->files[name] = record_file(files_, join_path(folder_, name));
  }
  for (const auto& [name, damaged] : damaged_) {
    // Not replaced: keep its record, so that the next start of the run repairs it.
    if (manifest_->files.at(name) == damaged.present.value_or(damaged.recorded)) {
      manifest_->files[name] = damaged.recorded;
    }
  }
  write_manifest(files_, folder_, *manifest_);
}

}  // namespace finetune::checkpoint
