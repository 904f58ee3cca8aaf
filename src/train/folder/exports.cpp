// SPDX-License-Identifier: MIT
#include "train/folder/exports.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/hash.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/export/export.h"
#include "finetune/task/tasks.h"

namespace finetune {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr char kRecordFile[] = "exports.json";
constexpr uint64_t kMostManifestBytes = uint64_t{64} << 20;

struct Export {
  const char* name;  // in the folder of exports
  std::optional<std::string> type;
  ExportReport (*write)(const MergedModel&, const std::string&, const ExportOptions&);
};

std::vector<Export> asked_for(const TrainingArgs& args) {
  std::vector<Export> exports;
  if (args.export_merged) exports.push_back({"merged", args.export_merged, export_folder});
  if (args.export_gguf) exports.push_back({"model.gguf", args.export_gguf, export_gguf});
  return exports;
}

std::string folder_of(const TrainingArgs& args) {
  return join_path(args.output_dir, kExportsFolder);
}

// The finished model, by the checksums of its files.
std::string model_id(const TrainingArgs& args) {
  const std::string path = join_path(args.output_dir, checkpoint::kManifestFile);
  return hash_hex(FileSystem::local().read_all(path, kMostManifestBytes));
}

// Sizes of a file, or of the files of a folder, by their names.
Json sizes_of(const std::string& path) {
  Json sizes = Json::object();
  std::error_code problem;
  if (fs::is_regular_file(path, problem)) sizes[""] = fs::file_size(path, problem);
  if (!fs::is_directory(path, problem)) return sizes;
  std::vector<std::string> names = FileSystem::local().list(path);
  for (const std::string& name : names) {
    const std::string file = join_path(path, name);
    if (fs::is_regular_file(file, problem)) sizes[name] = fs::file_size(file, problem);
  }
  return sizes;
}

Json read_record(const TrainingArgs& args) {
  const std::string path = join_path(folder_of(args), kRecordFile);
  try {
    if (!FileSystem::local().exists(path)) return Json::object();
    Json record = read_json_file(path);
    return record.is_object() ? record : Json::object();
  } catch (const Error& error) {  // everything is written again
    log::debug(error.what());
    return Json::object();
  }
}

Json entry_of(const Export& one, const TrainingArgs& args, const std::string& model) {
  return {{"type", *one.type},
          {"model", model},
          {"sizes", sizes_of(join_path(folder_of(args), one.name))}};
}

bool is_there(const Export& one, const TrainingArgs& args, const Json& record,
              const std::string& model) {
  const auto entry = record.find(one.name);
  return entry != record.end() && *entry == entry_of(one, args, model) &&
         !(*entry)["sizes"].empty();
}

// Returns whether the export is written.
bool write_export(const Export& one, const TrainingArgs& args, const std::string& model) {
  const std::string out = join_path(folder_of(args), one.name);
  try {
    const MergedModel merged = merge_model(args.output_dir, task_of(args.task).head(args));
    const ExportReport report =
        one.write(merged, out, {.outtype = *one.type, .overwrite = true, .verify = true});
    Json record = read_record(args);
    record[one.name] = entry_of(one, args, model);
    FileSystem::local().write_atomically(join_path(folder_of(args), kRecordFile),
                                         record.dump(1) + "\n");
    log::info(format_text("exported {}: {}, {}", out, report.type, bytes_text(report.bytes)));
    return true;
  } catch (const Interrupted&) {
    log::warning("the run is finished, but '" + out +
                 "' is not written, because a stop was requested; the same command writes it");
    throw;
  } catch (const Error& error) {
    log::error("the run is finished, but '" + out + "' is not written: " + error.what() +
               "; the same command tries again");
    return false;
  }
}

}  // namespace

std::vector<std::string> missing_exports(const TrainingArgs& args) {
  std::vector<std::string> missing;
  const std::vector<Export> exports = asked_for(args);
  if (exports.empty()) return missing;
  const Json record = read_record(args);
  const std::string model = model_id(args);
  for (const Export& one : exports) {
    if (!is_there(one, args, record, model)) missing.emplace_back(one.name);
  }
  return missing;
}

bool write_missing_exports(const TrainingArgs& args) {
  const std::vector<Export> exports = asked_for(args);
  if (exports.empty()) return true;
  const std::string model = model_id(args);
  bool is_whole = true;
  for (const Export& one : exports) {
    if (is_there(one, args, read_record(args), model)) continue;
    is_whole = write_export(one, args, model) && is_whole;
  }
  return is_whole;
}

}  // namespace finetune
