// SPDX-License-Identifier: MIT
#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/config/batch_split.h"
#include "finetune/config/price_list.h"
#include "finetune/optim/optimizer_kind.h"
#include "finetune/plan/memory_plan.h"
#include "finetune/tensor/device.h"
#include "finetune/train/accelerator.h"
#include "finetune/train/run.h"
#include "train/setup/assemble.h"

namespace finetune {

void check_processes(const LoadedConfig& config, int64_t processes) {
  if (processes == 1) return;
  const TrainingArgs& args = config.args;
  if (args.optimizer_in_backward) {
    refuse_key(
        config, "optimizer_in_backward",
        "it updates a parameter before several processes can sum their gradients; leave it out "
        "or train in one process");
  }
  if (args.zero_stage > 1 && optimizer_of_kind(choices_of(args).optimizer.kind).reads_whole) {
    refuse_key(config, "zero_stage",
               "stages 2 and 3 divide matrices, of which '" + args.optim +
                   "' needs all values; choose zero_stage: 1 or another optimizer");
  }
  if (args.full_determinism && !args.average_tokens_across_devices) {
    refuse_key(
        config, "average_tokens_across_devices",
        "false makes the loss depend on the number of processes, which full_determinism excludes; "
        "leave one of the two out");
  }
  if (args.full_determinism && args.ddp_comm_hook != "no") {
    refuse_key(
        config, "ddp_comm_hook",
        "full_determinism sums gradients as they are, without converting them; leave one of the "
        "two out");
  }
  if (args.full_determinism && args.grad_accum_dtype != "float32") {
    refuse_key(
        config, "full_determinism",
        "sums of bfloat16 gradients depend on the number of processes; leave grad_accum_dtype "
        "out");
  }
  // memory_budget may choose fewer rows at a time.
  if (!args.effective_batch_size || args.memory_budget) return;
  if (!BatchSplit::of(*args.effective_batch_size, args.per_device_train_batch_size, processes)) {
    refuse_key(config, "effective_batch_size",
               std::to_string(*args.effective_batch_size) + " samples cannot be divided among " +
                   std::to_string(processes) + " processes that take " +
                   std::to_string(args.per_device_train_batch_size) +
                   " at a time (per_device_train_batch_size); choose a multiple of " +
                   std::to_string(args.per_device_train_batch_size * processes));
  }
}

void check_hardware(const LoadedConfig& config) {
  const std::optional<Hardware> hardware = hardware_of(config.args);
  if (!hardware || accelerator_of(config.args) == Accelerator::kCpu) return;
  const auto machine = std::ranges::find_if(
      price_list(), [&](const PricedMachine& one) { return one.hardware.name == hardware->name; });
  if (machine == price_list().end() || !machine->is_device) return;
  const c10::Device device = pick_device(accelerator_of(config.args));
  if (device.is_cpu()) {
    refuse_key(config, "hardware",
               hardware->name + " has an accelerator (" + machine->chip +
                   "), and this machine has none that torch can use; choose a machine with one (in "
                   "Colab: Runtime, Change runtime type), name this one, or set use_cpu: true");
  }
  const std::string name = describe_device(device);
  if (name.find(machine->chip) != std::string::npos) return;
  log::warning(config.where("hardware") + ": hardware: " + hardware->name + " has a " +
               machine->chip + ", and this is " + name +
               "; its units and price are not this one's");
}

namespace {

void check_configuration_file(const LoadedConfig& config) {
  if (config.path.empty() || !checkpoint::is_run_file_name(file_name(config.path))) return;
  const auto check = [&](const char* key, const std::string& folder) {
    std::error_code failure;
    const std::filesystem::path path = std::filesystem::absolute(config.path, failure);
    if (!std::filesystem::equivalent(folder, path.parent_path(), failure)) return;
    refuse_key(config, key,
               "'" + folder + "' holds this configuration under a name that the run writes, '" +
                   file_name(config.path) +
                   "', and the model's file would replace it; rename the configuration, for "
                   "example to run.json, or choose another folder");
  };
  check("output_dir", config.args.output_dir);
  if (config.args.mirror_dir) check("mirror_dir", *config.args.mirror_dir);
}

}  // namespace

void check_starting_folder(const LoadedConfig& config) {
  const TrainingArgs& args = config.args;
  if (args.do_train) check_configuration_file(config);
  const auto check_folder = [&](const char* key, const std::string& folder) {
    std::error_code failure;  // what cannot be looked at is reported where it is made
    const auto type = std::filesystem::status(folder, failure).type();
    if (type == std::filesystem::file_type::regular) {
      refuse_key(config, key, "'" + folder + "' is a file; choose a folder");
    }
  };
  if (args.do_train) check_folder("output_dir", args.output_dir);
  if (args.do_train && args.mirror_dir) check_folder("mirror_dir", *args.mirror_dir);
  if (!args.do_train || !args.model_name_or_path) return;
  std::string model;
  try {
    model = named_folder(config, "model_name_or_path", *args.model_name_or_path);
  } catch (const Error& error) {  // reported where the model is loaded
    if (error.kind() != ErrorKind::kConfig) throw;
    return;
  }
  const auto check = [&](const char* key, const std::string& folder) {
    std::error_code failure;  // a missing folder is never the same folder
    if (!std::filesystem::equivalent(folder, model, failure)) return;
    refuse_key(config, key,
               "'" + folder + "' is the folder of model_name_or_path '" + *args.model_name_or_path +
                   "', whose weights the run would overwrite; choose another folder");
  };
  check("output_dir", args.output_dir);
  if (args.mirror_dir) check("mirror_dir", *args.mirror_dir);
}

}  // namespace finetune
