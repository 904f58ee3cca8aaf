// SPDX-License-Identifier: MIT
#include "cli/commands/dry_run.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/process/command_line.h"
#include "cli/process/launch.h"
#include "cli/process/own_runs.h"
#include "cli/process/standard_output.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/reader.h"
#include "finetune/report/duration_text.h"
#include "finetune/train/first_batch.h"
#include "finetune/train/run.h"

namespace finetune::cli {
namespace {

using Json = nlohmann::ordered_json;

// Returns keys that override the user's in a trial: all output goes to `output`, a save after each
// step, at most one evaluation batch.
Arguments trial_keys(const TrainingArgs& args, const std::string& output) {
  const int64_t eval_samples =
      std::min(args.max_eval_samples.value_or(INT64_MAX), args.per_device_eval_batch_size);
  Arguments keys = {"--output_dir=" + output,
                    "--mirror_dir=null",
                    "--resume_from_checkpoint=auto",
                    "--save_strategy=steps",
                    "--save_steps=1",
                    "--save_minutes=null",
                    "--save_total_limit=2",
                    "--load_best_model_at_end=false",
                    "--logging_strategy=steps",
                    "--logging_steps=1",
                    "--report_to=none",
                    "--logging_dir=null",
                    "--eval_on_start=false",
                    format_text("--max_eval_samples={}", eval_samples),
                    "--do_predict=false",
                    "--log_level=warning",
                    "--disable_tqdm=true"};
  keys.insert(keys.end(), kUnlimited.begin(), kUnlimited.end());
  return keys;
}

// Runs trainings in a temporary folder.
class Trial {
 public:
  Trial(const ConfigWords& words, const TrainingArgs& args)
      : words_(words), keys_(trial_keys(args, output())) {}

  // Trains until `step` and stops with a checkpoint; returns true if the run ended there.
  bool train_until(int64_t step, const Arguments& more) {
    Arguments command = {"train"};
    if (!words_.path.empty()) command.push_back(words_.path);
    for (const Arguments& list : {words_.overrides, keys_, more}) {
      command.insert(command.end(), list.begin(), list.end());
    }
    const Arguments own = {"--stop_at_step", std::to_string(step), "--write_peak", peak_file()};
    command.insert(command.end(), own.begin(), own.end());
    const OwnRun run = run_self(command, "to try the configuration");
    interrupt::throw_if_requested("trying the configuration");
    const WrittenPeak written = read_written_peak(peak_file());
    device_peak_ = written.device;
    host_peak_ = std::max(host_peak_, run.peak - written.reclaimable);
    code_ = run.code;
    return run.code == kExitFinished;
  }

  // Whether the last training succeeded.
  [[nodiscard]] bool is_good() const {
    return code_ == kExitFinished || code_ == kExitStoppedEarly;
  }
  [[nodiscard]] int code() const { return code_; }
  [[nodiscard]] std::string checkpoint(int64_t step) const {
    return join_path(output(), checkpoint::checkpoint_name(step));
  }
  [[nodiscard]] int64_t host_peak() const { return host_peak_; }
  // The accelerator's peak; 0 without one.
  [[nodiscard]] int64_t device_peak() const { return device_peak_; }

 private:
  [[nodiscard]] std::string output() const { return join_path(folder_.path(), "run"); }
  [[nodiscard]] std::string peak_file() const { return join_path(folder_.path(), "peak.json"); }

  const ScratchFolder folder_{"dry-run"};
  const ConfigWords& words_;
  Arguments keys_;
  int code_ = 0;
  int64_t host_peak_ = 0;
  int64_t device_peak_ = 0;
};

// Returns the loss of the last step in a checkpoint's log: a number, or "not finite".
std::string logged_loss(const std::string& checkpoint_folder) {
  const Json state = read_json_file(join_path(checkpoint_folder, checkpoint::kTrainerStateFile),
                                    ErrorKind::kData, {.allow_nan = true});
  std::string text = "not logged";
  for (const Json& entry : state.at("log_history")) {
    if (!entry.contains("loss")) continue;
    const Json& loss = entry.at("loss");
    text = loss.is_number() ? format_number("%.4g", loss.get<double>()) : "not finite";
  }
  return text;
}

// Returns the training time of the run up to a checkpoint.
double seconds_at(const std::string& checkpoint_folder) {
  return read_json_file(join_path(checkpoint_folder, checkpoint::kFinetuneStateFile))
      .value("seconds", 0.0);
}

std::string megabytes(int64_t bytes) {
  return format_number("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

void line(const std::string& name, const std::string& value) {
  std::cout << "  " << name << std::string(name.size() < 13 ? 13 - name.size() : 1, ' ')
            << printable(value) << "\n";
}

void summarise(const Trial& trial, const TrainingArgs& args) {
  const auto saved = checkpoint::inspect_checkpoint(FileSystem::local(), trial.checkpoint(1), true);
  if (!saved.whole) {
    throw Error(ErrorKind::kCheckpoint, "the dry run's checkpoint is not valid: " + saved.problem);
  }
  const double first = seconds_at(trial.checkpoint(1));
  const double second = seconds_at(trial.checkpoint(2)) - first;
  std::cout << "\ndry run passed: one step, one save, one resume in a new process, one step more\n";
  line("loss", logged_loss(trial.checkpoint(1)) + " at step 1, " +
                   logged_loss(trial.checkpoint(2)) + " at step 2");
  line("step", duration_text(second) + " (the first: " + duration_text(first) + ")");
  line("checkpoint", megabytes(static_cast<int64_t>(saved.bytes)) + ", every byte verified");
  const int64_t device = trial.device_peak();
  line("peak memory", (device > 0 ? megabytes(device) + " of the device, " : "") +
                          megabytes(trial.host_peak()) + (device > 0 ? " of the host" : ""));
  line("untouched", "output_dir '" + args.output_dir + "'" +
                        (args.mirror_dir ? ", mirror_dir '" + *args.mirror_dir + "'" : "") +
                        "; the trial's folder is removed");
}

}  // namespace

int dry_run(const ConfigWords& words) {
  const LoadedConfig config = load_config(words.path, words.overrides);
  validate_with_inputs(config, Purpose::kTrain);
  const TrainingArgs& args = config.args;
  if (!args.do_train) {
    throw Error(ErrorKind::kUsage,
                config.where("do_train") + ": --dry_run tries a training, but do_train is false");
  }
  if (plan_launch(config).membership) {
    throw Error(ErrorKind::kUsage,
                "--dry_run starts its own processes (num_processes); run it without torchrun, srun "
                "or another launcher");
  }
  log::set_level(args.log_level);
  for (const std::string& note : config.notes) log::warning(note);
  check_starting_folder(config);
  check_output_folder(config);
  std::cout << describe_first_batch(config);
  if (!flush_standard_output()) throw ReaderLeft();
  Trial trial(words, args);
  const bool is_over = trial.train_until(1, {});
  // A run of a single step is extended by one, so that there is something to resume.
  if (trial.is_good()) {
    trial.train_until(2, is_over ? Arguments{"--max_steps=2"} : Arguments{});
  }
  if (!trial.is_good()) {
    log::error(format_text("the dry run failed with exit code {}; the message above says why",
                           trial.code()));
    return trial.code();
  }
  summarise(trial, args);
  return kExitFinished;
}

}  // namespace finetune::cli
