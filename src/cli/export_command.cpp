// SPDX-License-Identifier: MIT
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/model_files.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/reader.h"
#include "finetune/config/training_args.h"
#include "finetune/export/export.h"
#include "finetune/model/model_folder.h"
#include "finetune/task/predictor.h"
#include "finetune/task/tasks.h"

namespace finetune::cli {
namespace {

constexpr char kHelp[] =
    R"(usage: finetune export SOURCE OUT [--outtype TYPE] [--checkpoint auto|STEP|best] [--overwrite]
                       [--merge_base original|trained] [--use_bnb_nested_quant true|false]
                       [--verify true|false]

Writes the model of a run, a checkpoint, an adapter or any model folder as others deploy it. An
adapter is merged into its base. OUT is a folder as save_pretrained writes it, or, if it ends in
.gguf, a file for llama.cpp and Ollama. Values are read and written some MiB at a time, so that the
model need not fit into memory.

  --outtype TYPE       auto: the type of the model, or of the adapter's base; f32, f16, bf16; in
                       GGUF also q8_0 (8.5 bits a weight) and q4_0 (4.5 bits), in a folder also
                       nf4 (4.5 bits, bitsandbytes), as load_in_4bit keeps a base
  --merge_base original|trained
                       add an adapter to its base as it is (default), or to what its run saw of it:
                       with load_in_4bit, what the codes of four bits mean
  --use_bnb_nested_quant true|false
                       nf4 with double quantization (4.1 bits; default false)
  --checkpoint auto    of a run: its finished model, or else its newest valid checkpoint
  --checkpoint STEP    its checkpoint of this step
  --checkpoint best    its best checkpoint, by metric_for_best_model
  --overwrite          replace OUT once the export is complete
  --verify true|false  read what was written again and compare it (default true)
)";

struct Request {
  std::string source;
  std::string out;
  std::string checkpoint = "auto";
  ExportOptions options;
};

bool holds_model(const std::string& folder) {
  FileSystem& files = FileSystem::local();
  return files.exists(join_path(folder, kConfigFile)) ||
         files.exists(join_path(folder, kAdapterConfigFile));
}

// The step that trainer_state.json of the newest of these names as the best.
int64_t best_step(const std::string& source) {
  std::vector<std::string> folders = {source};
  for (const auto& entry : checkpoint::list_checkpoints(FileSystem::local(), source, false)) {
    folders.insert(folders.begin() + 1, entry.path);
  }
  for (const std::string& folder : folders) {
    const std::string path = join_path(folder, checkpoint::kTrainerStateFile);
    if (!FileSystem::local().exists(path)) continue;
    const auto state = read_json_file(path, ErrorKind::kData);
    const auto best = state.find("best_global_step");
    if (best != state.end() && best->is_number_integer()) return best->get<int64_t>();
  }
  throw Error(ErrorKind::kUsage, "--checkpoint best: the run '" + source +
                                     "' has no best checkpoint, because it has no "
                                     "metric_for_best_model; name a step");
}

std::string checkpoint_of_step(const std::string& source, int64_t step) {
  const auto entries = checkpoint::list_checkpoints(FileSystem::local(), source, false);
  std::vector<std::string> steps;
  for (const auto& entry : entries) {
    if (entry.step == step) return entry.path;
    steps.push_back(std::to_string(entry.step));
  }
  throw Error(ErrorKind::kUsage,
              format_text("there is no checkpoint of step {} in '{}'{}", step, source,
                          steps.empty() ? "" : "; it has steps " + listed(steps)));
}

std::string newest_checkpoint(const std::string& source) {
  const auto entries = checkpoint::list_checkpoints(FileSystem::local(), source, /*verify=*/true);
  const auto whole =
      std::find_if(entries.rbegin(), entries.rend(), [](const auto& entry) { return entry.whole; });
  if (whole != entries.rend()) return whole->path;
  if (!entries.empty()) {
    throw Error(ErrorKind::kCheckpoint,
                "no checkpoint in '" + source + "' is valid: " + entries.back().problem);
  }
  return "";
}

// Returns the folder of the model that is exported.
std::string find_source(const Request& request) {
  const std::string& source = request.source;
  if (request.checkpoint == "best") return checkpoint_of_step(source, best_step(source));
  if (request.checkpoint != "auto") {
    const std::string& text = request.checkpoint;
    if (text.empty() || text.size() > 15 || text.find_first_not_of("0123456789") != text.npos) {
      throw Error(ErrorKind::kUsage, "--checkpoint takes auto, best or the number of a step");
    }
    return checkpoint_of_step(source, std::stoll(text));
  }
  if (!holds_model(source) && FileSystem::local().type(source) == FileType::kDirectory) {
    if (const std::string newest = newest_checkpoint(source); !newest.empty()) return newest;
  }
  return resolve_model_folder(source, "SOURCE");
}

void check_undamaged(const std::string& folder) {
  FileSystem& files = FileSystem::local();
  if (checkpoint::parse_checkpoint_name(file_name(folder))) {
    const auto entry = checkpoint::inspect_checkpoint(files, folder, /*verify=*/true);
    if (entry.whole) return;
    throw Error(ErrorKind::kCheckpoint,
                "'" + folder + "' is not valid: " + entry.problem + "; export another checkpoint");
  }
  const auto model = checkpoint::inspect_finished_model(files, folder, /*verify=*/true);
  if (model.damaged.empty()) return;
  throw Error(ErrorKind::kData, "'" + folder +
                                    "' is damaged: " + checkpoint::describe_damage(model) +
                                    "; repair it by its training command, or fetch it again");
}

// An export into its source would change it, one over it delete it.
void check_places(const std::string& folder, const std::string& out) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path source = fs::weakly_canonical(folder, ignored);
  const fs::path target = fs::weakly_canonical(out, ignored);
  const auto contains = [](const fs::path& outer, const fs::path& inner) {
    return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first ==
           outer.end();
  };
  if (contains(target, source)) {
    throw Error(ErrorKind::kUsage, "OUT '" + out + "' is or contains '" + folder +
                                       "', which is exported; choose another place");
  }
  if (checkpoint::parse_checkpoint_name(target.filename().string())) {
    throw Error(ErrorKind::kUsage,
                "OUT '" + out + "' has the name of a run's checkpoint; choose another one");
  }
  if (contains(source, target) && target.parent_path() != source / "export") {
    throw Error(ErrorKind::kUsage, "OUT '" + out +
                                       "' is in the folder of the model that is exported; choose "
                                       "another place");
  }
}

}  // namespace

int export_command(const Arguments& arguments) {
  Request request;
  CommandLine line("finetune export", kHelp);
  std::optional<bool> verify;
  std::optional<bool> nested;
  std::string merge_base = "original";
  line.value("--outtype", request.options.outtype);
  line.value("--checkpoint", request.checkpoint);
  line.flag("--overwrite", request.options.overwrite);
  line.value("--merge_base", merge_base);
  line.truth("--use_bnb_nested_quant", nested);
  line.truth("--verify", verify);
  if (!line.parse(arguments)) return kExitFinished;
  if (line.rest().size() != 2) {
    throw Error(ErrorKind::kUsage,
                "finetune export needs SOURCE and OUT; see 'finetune export --help'");
  }
  request.source = line.rest()[0];
  request.out = line.rest()[1];
  request.options.verify = verify.value_or(true);
  request.options.nested = nested.value_or(false);
  if (nested && request.options.outtype != "nf4") {
    throw Error(ErrorKind::kUsage, "--use_bnb_nested_quant goes with --outtype nf4");
  }
  if (merge_base != "original" && merge_base != "trained") {
    throw Error(ErrorKind::kUsage, "--merge_base takes original or trained");
  }
  const std::string folder = find_source(request);
  check_places(folder, request.out);
  check_undamaged(folder);
  const TaskDescriptor& task = find_predict_task(folder);
  const MergedModel model =
      merge_model(folder, task.head(TrainingArgs()),
                  merge_base == "trained" ? MergeBase::kTrained : MergeBase::kOriginal);
  check_places(model.base, request.out);
  const ExportReport report = request.out.ends_with(".gguf")
                                  ? export_gguf(model, request.out, request.options)
                                  : export_folder(model, request.out, request.options);
  std::cout << printable_line(format_text("{}{} is in {}: {} tensors, {}, {}", folder,
                                          model.has_adapter ? " merged into " + model.base : "",
                                          request.out, report.tensors, report.type,
                                          bytes_text(report.bytes)))
            << "\n";
  return kExitFinished;
}

}  // namespace finetune::cli
