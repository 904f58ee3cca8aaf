// SPDX-License-Identifier: MIT
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/process/command_line.h"
#include "cli/process/commands.h"
#include "finetune/base/clock.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/bucket.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/reader.h"

namespace finetune::cli {
namespace {

constexpr size_t kLongestNote = 2'000;  // bytes, as for a log line
using Json = nlohmann::ordered_json;
using checkpoint::CheckpointEntry;

constexpr uint64_t kMaxStateBytes = uint64_t{64} << 20;

std::string age_text(int64_t created_unix) {
  if (created_unix <= 0) return "unknown";
  const int64_t seconds = std::max<int64_t>(0, static_cast<int64_t>(unix_seconds()) - created_unix);
  if (seconds < 120) return format_text("{} s", seconds);
  if (seconds < 7200) return format_text("{} min", seconds / 60);
  if (seconds < 172800) return format_text("{} h", seconds / 3600);
  return format_text("{} d", seconds / 86400);
}

// The findings in one folder.
struct Findings {
  Json json = Json::object();  // what --json prints
  int64_t checkpoints = 0;
  int64_t valid_checkpoints = 0;
  bool is_finished = false;
  bool has_damaged_model = false;

  [[nodiscard]] bool has_damage() const {
    return has_damaged_model || valid_checkpoints < checkpoints;
  }
};

void list_checkpoints(FileSystem& files, const std::string& folder, bool verify, bool is_mirror,
                      std::ostream& out, Findings& findings) {
  const auto entries = checkpoint::list_checkpoints(files, folder, verify);
  Json& list = findings.json["checkpoints"] = Json::array();
  if (entries.empty()) {
    out << "no checkpoints in " << printable(folder) << "\n";
    return;
  }
  out << "    step   size (MiB)        age  state\n";
  for (const CheckpointEntry& entry : entries) {
    // What a kill leaves in a mirror is no damage: the run's next session removes it.
    const bool is_unfinished =
        is_mirror && !entry.whole && checkpoint::is_unfinished_copy(files, entry.path);
    findings.checkpoints += is_unfinished ? 0 : 1;
    findings.valid_checkpoints += entry.whole ? 1 : 0;
    char line[80];
    std::snprintf(line, sizeof(line), "%8lld %12.1f %10s  ", static_cast<long long>(entry.step),
                  static_cast<double>(entry.bytes) / (1 << 20),
                  age_text(entry.created_unix).c_str());
    list.push_back({{"path", entry.path},
                    {"step", entry.step},
                    {"bytes", entry.bytes},
                    {"created_unix", entry.created_unix},
                    {"state", entry.whole     ? "valid"
                              : is_unfinished ? "incomplete"
                                              : "invalid"},
                    {"problem", entry.whole ? Json() : Json(entry.problem)},
                    {"written_by", entry.foreign ? "transformers" : "finetune"},
                    {"notes", entry.notes}});
    out << line
        << (entry.whole     ? (verify ? "valid (every byte checked)" : "valid (sizes checked)")
            : is_unfinished ? std::string("incomplete: its copy was interrupted")
                            : "NOT VALID: " + printable(shortened(entry.problem, kLongestNote)))
        << (entry.foreign ? ", written by transformers" : "") << "\n";
    for (const std::string& note : entry.notes) {
      out << "         note: " << printable(shortened(note, kLongestNote)) << "\n";
    }
  }
}

// Returns finetune_state.json of a folder; null if it is missing or damaged.
Json state_in(FileSystem& files, const std::string& folder) {
  const std::string path = join_path(folder, checkpoint::kFinetuneStateFile);
  if (files.type(path) != FileType::kFile) return {};
  try {
    return parse_json(files.read_all(path, kMaxStateBytes), path);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kIo) throw;
    return {};
  }
}

void list_model(FileSystem& files, const std::string& folder, bool verify, std::ostream& out,
                Findings& findings) {
  const Json state = state_in(files, folder);
  const auto flag = [&](const char* name) {
    const auto found = state.is_object() ? state.find(name) : state.end();
    return state.is_object() && found != state.end() && *found == true;
  };
  const checkpoint::FinishedModel model = checkpoint::inspect_finished_model(files, folder, verify);
  findings.is_finished = flag("finished") || model.has_manifest_file;
  Json& json = findings.json["finished_model"] = Json();
  if (!findings.is_finished) return;
  json = {{"valid", Json()}, {"problem", Json()}};  // null: there are no checksums
  out << "finished model in " << printable(folder) << ": ";
  if (!model.has_manifest_file && !flag("has_manifest")) {
    out << "no checksums, as an older version wrote it; run its training command again to "
           "add them\n";
  } else if (model.is_valid()) {
    char text[96];
    std::snprintf(text, sizeof(text), "step %lld, %zu files, %.1f MiB, valid (%s checked)\n",
                  static_cast<long long>(model.manifest->step), model.manifest->files.size(),
                  static_cast<double>(model.bytes) / (1 << 20), verify ? "every byte" : "sizes");
    out << text;
    json["valid"] = true;
    json["step"] = model.manifest->step;
    json["files"] = model.manifest->files.size();
    json["bytes"] = model.bytes;
  } else {
    findings.has_damaged_model = true;
    json["valid"] = false;
    json["problem"] = checkpoint::describe_damage(model);
    out << "DAMAGED: " << printable(checkpoint::describe_damage(model))
        << "; run its training command again to repair it\n";
  }
}

Findings list_folder(FileSystem& files, const std::string& folder, bool verify, bool is_mirror,
                     std::ostream& out) {
  Findings findings;
  findings.json = {{"folder", folder}, {"checked", verify ? "every byte" : "sizes"}};
  list_checkpoints(files, folder, verify, is_mirror, out, findings);
  list_model(files, folder, verify, out, findings);
  return findings;
}

// Returns mirror_dir from the run's recorded configuration.
std::optional<std::string> recorded_mirror(FileSystem& files, const std::string& folder) {
  std::vector<std::string> folders;
  for (const auto& entry : checkpoint::list_checkpoints(files, folder, false)) {
    folders.insert(folders.begin(), entry.path);
  }
  folders.insert(folders.begin(), folder);
  for (const std::string& path : folders) {
    const Json state = state_in(files, path);
    if (!state.is_object() || !state.contains("config") || !state["config"].is_object()) continue;
    const Json mirror = state["config"].value("mirror_dir", Json());
    if (mirror.is_string()) return mirror.get<std::string>();
    return std::nullopt;
  }
  return std::nullopt;
}

// Lists the mirror. Returns whether it is undamaged and complete.
bool list_mirror(const std::string& mirror, bool is_finished, std::ostream& out, Json& json) {
  json = {{"folder", mirror}};
  out << "mirror " << printable(mirror) << ":\n";
  const std::shared_ptr<FileSystem> files = checkpoint::files_of_location(mirror);
  if (files->type(mirror) == FileType::kMissing) {
    json["problem"] = "it is not there";
    out << "it is not there; name another folder with --mirror\n";
    return true;  // possibly not mounted: not damage
  }
  const Findings there = list_folder(*files, mirror, true, true, out);
  json = there.json;
  if (is_finished && !there.is_finished) {
    json["problem"] = "the finished model is missing there";
    out << "INCOMPLETE: the finished model is missing there; run its training command again "
           "to copy it\n";
    return false;
  }
  return !there.has_damage();
}

constexpr const char* kCheckpointsHelp =
    R"(usage: finetune checkpoints OUTPUT_DIR|BUCKET [--verify] [--mirror DIR] [--json]

Lists a run's checkpoints with step, size, age and state, and the finished model; of a
mirror in a bucket (s3://BUCKET/FOLDER) too.
--verify      Compare every byte with its checksum, in the mirror too, not only sizes.
              Exit code 3 if anything is damaged.
--mirror DIR  The mirror's folder; default: mirror_dir of the run's configuration.
--json        Print one JSON object instead of a table.
Exit code 3 if no checkpoint is valid, or if the finished model is damaged.
)";

}  // namespace

int checkpoints_command(const Arguments& arguments) {
  CommandLine line("checkpoints", kCheckpointsHelp);
  bool verify = false;
  std::optional<std::string> named;
  bool as_json = false;
  line.flag("--verify", verify);
  line.flag("--json", as_json);
  line.value("--mirror", named);
  if (!line.parse(arguments)) return kExitFinished;
  if (line.rest().size() != 1 || line.rest()[0].starts_with("-")) {
    throw Error(ErrorKind::kUsage, "finetune checkpoints takes one folder: the run's output_dir");
  }
  const std::string folder = line.rest()[0];
  const std::shared_ptr<FileSystem> files = checkpoint::files_of_location(folder);
  const auto require = [](FileSystem& there, const std::string& path) {
    if (there.type(path) != FileType::kMissing) return;
    throw Error(ErrorKind::kUsage,
                "there is no folder '" + path + "'; name a run's output_dir or mirror_dir");
  };
  require(*files, folder);
  if (named) require(*checkpoint::files_of_location(*named), *named);
  const bool is_mirror = files->object_store() != nullptr;
  std::ostream nowhere(nullptr);
  std::ostream& out = as_json ? nowhere : std::cout;
  Findings here = list_folder(*files, folder, verify, is_mirror, out);
  bool is_good = !here.has_damaged_model && (here.checkpoints == 0 || here.valid_checkpoints > 0);
  if (verify) {
    is_good = is_good && !here.has_damage();
    const std::optional<std::string> mirror = named ? named : recorded_mirror(*files, folder);
    if (mirror && *mirror != folder) {
      is_good = list_mirror(*mirror, here.is_finished, out, here.json["mirror"]) && is_good;
    }
  }
  if (as_json) {
    // Names of files may hold bytes that are not UTF-8.
    std::cout << here.json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  }
  return is_good ? kExitFinished : kExitNoValidCheckpoint;
}

}  // namespace finetune::cli
