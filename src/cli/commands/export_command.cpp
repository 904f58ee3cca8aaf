// SPDX-License-Identifier: MIT
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/process/command_line.h"
#include "cli/process/commands.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/model_files.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/reader.h"
#include "finetune/config/dump.h"
#include "finetune/config/load.h"
#include "finetune/config/training_args.h"
#include "finetune/config/validate.h"
#include "finetune/export/export.h"
#include "finetune/model/model_folder.h"
#include "finetune/task/predictor.h"
#include "finetune/task/tasks.h"
#include "finetune/tensor/device.h"
#include "finetune/train/adapter_base.h"
#include "finetune/train/run.h"

namespace finetune::cli {
namespace {

constexpr char kHelp[] =
    R"(usage: finetune export SOURCE OUT [--outtype TYPE] [--checkpoint auto|STEP|best] [--overwrite]
                       [--merge_base original|trained] [--compare_bases]
                       [--use_bnb_nested_quant true|false] [--dims N] [--quantize int8]
                       [--verify true|false|logits|metrics]

Writes the model of a run, a checkpoint, an adapter or any model folder as others deploy it. An
adapter is merged into its base. OUT is a folder as save_pretrained writes it, or, if it ends in
.gguf, a file for llama.cpp and Ollama, or, if it ends in .onnx, one for onnxruntime, with tokenizer
and example next to it. Values are read and written some MiB at a time, so that the model need not
fit into memory.

  --outtype TYPE       auto: the type of the model, or of the adapter's base; f32, f16, bf16 (not in
                       ONNX); in GGUF also q8_0 (8.5 bits a weight) and q4_0 (4.5 bits), in a folder
                       also nf4 (4.5 bits, bitsandbytes), as load_in_4bit keeps a base
  --quantize int8      ONNX with weights of 8 bits, a scale for each row, for onnxruntime's products
                       of integers
  --merge_base original|trained
                       add an adapter to its base as it is (default), or to what its run saw of it:
                       with load_in_4bit, what the codes of four bits mean
  --compare_bases      print the loss of both on the run's validation data first, for which the
                       model has to fit into memory
  --use_bnb_nested_quant true|false
                       nf4 with double quantization (4.1 bits; default false)
  --dims N             of an embedding model: a folder whose vectors are the first N dimensions, as
                       matryoshka_dims trains them
  --checkpoint auto    of a run: its finished model, or else its newest valid checkpoint
  --checkpoint STEP    its checkpoint of this step
  --checkpoint best    its best checkpoint, by metric_for_best_model
  --overwrite          replace OUT once the export is complete
  --verify true|false|logits|metrics
                       read what was written again and compare it (default true); with logits also
                       run the model and the export on a built-in text, for which each has to fit
                       into memory, and print how far their logits differ; with metrics also
                       evaluate both on the run's validation data (with --quantize int8)
)";

constexpr const char* kCompareBases = "--compare_bases";
constexpr const char* kVerifyMetrics = "--verify metrics";

struct Request {
  std::string source;
  std::string out;
  std::string checkpoint = "auto";
  ExportOptions options;
};

bool holds_model(const std::string& folder) {
  FileSystem& files = FileSystem::local();
  return files.exists(join_path(folder, kConfigFile)) ||
         files.exists(join_path(folder, kLayaFile)) ||
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
void check_positions(const std::string& folder, const std::string& out) {
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

// Returns the keys with which the model in a folder was trained, where they name validation data.
// `option`: what needs them.
LoadedConfig keys_of_run(const std::string& option, const std::string& folder,
                         const std::vector<std::string>& overrides) {
  const std::string path = join_path(folder, kFinetuneStateFile);
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::kUsage, option + ": " + why + "; leave it out");
  };
  if (!FileSystem::local().exists(path)) refuse("'" + folder + "' has no " + kFinetuneStateFile);
  const auto state = read_json_file(path, ErrorKind::kData);
  auto keys = state.value("config", nlohmann::ordered_json::object());
  const auto defaults = to_json(TrainingArgs());
  for (const auto& [key, value] : defaults.items()) {
    if (keys.contains(key) && keys[key] == value) keys.erase(key);
  }
  keys.erase("output_dir");  // else the evaluation would write its results there
  keys.erase("mirror_dir");
  const auto four_bits = keys.value("load_in_4bit", nlohmann::ordered_json());
  if (option == kCompareBases && four_bits != true && four_bits != "true") {
    refuse("the run of '" + folder + "' did not keep its base in four bits (load_in_4bit)");
  }
  std::vector<std::string> all = {"--model_name_or_path", folder, "--report_to", "none"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  LoadedConfig config = load_config_text(keys.dump(), kFinetuneStateFile, all);
  if (config.args.validation_file.empty()) refuse("the run has no validation_file");
  validate(config, Purpose::kEvaluate);
  return config;
}

// Prints what each --merge_base costs, so that the choice is one of numbers.
void compare_bases(const std::string& folder) {
  const auto loss_with = [&](const char* four_bits) {
    const LoadedConfig config = keys_of_run(kCompareBases, folder, {"--load_in_4bit", four_bits});
    log::set_level("warning");
    return run_evaluation(config, EvaluatedModel::kTrained).at("eval_loss").get<double>();
  };
  const double original = loss_with("false");
  const double trained = loss_with("true");
  std::cout << format_text(
                   "eval_loss {} with --merge_base original, {} with trained (four bits); lower is "
                   "better",
                   format_number("%.4f", original), format_number("%.4f", trained))
            << std::endl;
}

// Prints the metrics of the model of a run's keys on its validation data, and those with the
// products of an export in int8.
void compare_metrics(const LoadedConfig& config) {
  log::set_level("warning");
  const auto own = run_evaluation(config, EvaluatedModel::kTrained);
  const auto other = run_evaluation(config, EvaluatedModel::kTrained, /*int8_products=*/true);
  std::vector<std::string> lines;
  for (const auto& [name, value] : own.items()) {
    const bool is_time = name.ends_with("_runtime") || name.ends_with("_per_second");
    if (!value.is_number_float() || is_time || !other.contains(name)) continue;
    lines.push_back(format_text("{} {} -> {}", name, format_number("%.4f", value.get<double>()),
                                format_number("%.4f", other.at(name).get<double>())));
  }
  std::cout << format_text("with int8, on {}: {}", config.args.validation_file.front(),
                           listed(lines))
            << std::endl;
}

// What rounding to a type changes in the logits at most, as a share of their spread: somewhat more
// than in SmolLM2-135M, since small models suffer more than large ones.
double usual_share(const std::string& type) {
  if (type == "float32" || type == "f32") return 1e-4;
  if (type == "float16" || type == "f16") return 0.02;
  if (type == "bfloat16" || type == "bf16") return 0.15;
  return type == "q8_0" || type == "int8" ? 0.5 : 5.0;
}

std::string logits_text(const LogitsDifference& logits, const std::string& type) {
  const double share = logits.spread > 0 ? logits.largest / logits.spread : 0.0;
  const std::string text = format_text(
      "logits of {} tokens: {} apart at most, {} of their spread (usual for {}: up to {})",
      logits.positions, format_number("%.3g", logits.largest), format_number("%.2g", share), type,
      format_number("%g", usual_share(type)));
  if (!logits.has_choice) return text;
  return text + format_text("; the most probable is the same for {}", logits.same);
}

int export_model(const Arguments& arguments) {
  Request request;
  CommandLine line("export", kHelp);
  std::string verify = "true";
  std::optional<bool> nested;
  std::string merge_base = "original";
  line.value("--outtype", request.options.outtype);
  line.value("--checkpoint", request.checkpoint);
  line.flag("--overwrite", request.options.overwrite);
  line.value("--merge_base", merge_base);
  bool compares_bases = false;
  line.flag("--compare_bases", compares_bases);
  line.truth("--use_bnb_nested_quant", nested);
  line.value("--verify", verify);
  line.number("--dims", request.options.dims);
  std::string quantize;
  line.value("--quantize", quantize);
  if (!line.parse(arguments)) return kExitFinished;
  if (line.rest().size() != 2) {
    throw Error(ErrorKind::kUsage,
                "finetune export needs SOURCE and OUT; see 'finetune export --help'");
  }
  // Aligned pieces of some MiB, allocated and freed in turns, would leave holes in malloc's heap.
  return_freed_memory();
  keep_freed_memory();
  request.source = line.rest()[0];
  request.out = line.rest()[1];
  if (verify != "true" && verify != "false" && verify != "logits" && verify != "metrics") {
    throw Error(ErrorKind::kUsage, "--verify takes true, false, logits or metrics");
  }
  if (verify == "metrics" && quantize.empty()) {
    throw Error(ErrorKind::kUsage, std::string(kVerifyMetrics) + " goes with --quantize int8");
  }
  request.options.verify = verify != "false";
  request.options.compares_logits = verify == "logits" || verify == "metrics";
  request.options.nested = nested.value_or(false);
  if (nested && request.options.outtype != "nf4") {
    throw Error(ErrorKind::kUsage, "--use_bnb_nested_quant goes with --outtype nf4");
  }
  const bool is_onnx = request.out.ends_with(".onnx");
  if (request.options.dims &&
      (request.options.compares_logits || is_onnx || request.out.ends_with(".gguf"))) {
    throw Error(
        ErrorKind::kUsage,
        "--dims goes with a folder as OUT and --verify true or false: a file has no place for "
        "it, and the vectors differ from the model's");
  }
  if (!quantize.empty()) {
    if (quantize != "int8" || !is_onnx || request.options.outtype != "auto") {
      throw Error(
          ErrorKind::kUsage,
          "--quantize takes int8 and goes with an OUT that ends in .onnx, without --outtype");
    }
    request.options.outtype = quantize;
  } else if (request.options.outtype == "int8") {
    throw Error(ErrorKind::kUsage, "--outtype int8: write --quantize int8");
  }
  if (merge_base != "original" && merge_base != "trained") {
    throw Error(ErrorKind::kUsage, "--merge_base takes original or trained");
  }
  const std::string folder = find_source(request);
  check_positions(folder, request.out);
  check_undamaged(folder);
  check_adapter_base(folder);
  if (compares_bases) compare_bases(folder);
  const TaskDescriptor& task = find_predict_task(folder);
  const MergedModel model =
      merge_model(folder, task.head(TrainingArgs()),
                  merge_base == "trained" ? MergeBase::kTrained : MergeBase::kOriginal);
  check_positions(model.base, request.out);
  if (verify == "metrics" && model.has_adapter) {
    throw Error(ErrorKind::kUsage,
                std::string(kVerifyMetrics) + ": '" + folder +
                    "' is an adapter; export it into a folder first, or use --verify logits");
  }
  const auto write = is_onnx                          ? export_onnx
                     : request.out.ends_with(".gguf") ? export_gguf
                                                      : export_folder;
  std::optional<LoadedConfig> of_run;  // before the work, which would be for nothing
  if (verify == "metrics") of_run = keys_of_run(kVerifyMetrics, folder, {});
  const ExportReport report = write(model, request.out, request.options);
  std::cout << printable_line(format_text("{}{} is in {}: {} tensors, {}, {}", folder,
                                          model.has_adapter ? " merged into " + model.base : "",
                                          request.out, report.tensors, report.type,
                                          bytes_text(report.bytes)))
            << "\n";
  if (report.logits) std::cout << logits_text(*report.logits, report.type) << "\n";
  if (of_run) compare_metrics(*of_run);
  return kExitFinished;
}

}  // namespace

int export_command(const Arguments& arguments) {
  try {
    return export_model(arguments);
  } catch (const Interrupted& stop) {  // which is no run that could be resumed
    log::warning("stopped by " + interrupt::signal_name() + " while " + stop.what() +
                 "; nothing of it is left: run the same command again");
    return kExitStoppedEarly;
  }
}

}  // namespace finetune::cli
