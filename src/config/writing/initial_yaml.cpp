// SPDX-License-Identifier: MIT
#include <algorithm>

#include "config/keys/words.h"
#include "finetune/base/error.h"
#include "finetune/config/dump.h"
#include "finetune/config/tasks.h"

namespace finetune {
namespace {

constexpr std::string_view kStart =
    "# Start it, and start it again after any interruption, with: finetune train THIS_FILE\n"
    "# All keys and their defaults: finetune config defaults\n"
    "# Relative paths start from the folder of this file.\n\n";

constexpr std::string_view kPretrainedModel = R"(
# The model to start from: a folder as transformers saves it, or a name in the local cache.
model_name_or_path: ./my-model
)";

// Number of epochs, batch size and learning rate, as in the papers for the task.
std::string updates(std::string_view epochs, std::string_view rate) {
  return "\n# One update sees per_device_train_batch_size x gradient_accumulation_steps samples.\n"
         "num_train_epochs: " +
         std::string(epochs) +
         "\nper_device_train_batch_size: 16\ngradient_accumulation_steps: 1\nlearning_rate: " +
         std::string(rate) +
         "\nwarmup_steps: 0.06                 # below 1: a share of all updates\n"
         "weight_decay: 0.01\nseed: 42\n"
         "# memory_budget: 4GiB              # upper limit; the effective batch is kept\n";
}

constexpr std::string_view kRecords = R"(
# What is shown, evaluated and saved, in updates.
logging_steps: 50
eval_strategy: steps
eval_steps: 500
save_steps: 500
save_total_limit: 2                # complete checkpoints that are kept
report_to: tensorboard             # event files in run/runs; none writes no event files
)";

}  // namespace

std::string initial_yaml(std::string_view task) {
  const auto& tasks = all_task_keys();
  const auto found = std::ranges::find(tasks, task, &TaskKeys::name);
  if (found == tasks.end()) {
    std::vector<std::string> names;
    for (const TaskKeys* known : tasks) names.emplace_back(known->name);
    std::ranges::sort(names);
    throw Error(ErrorKind::kUsage,
                "there is no task '" + std::string(task) + "'; the tasks are " + join(names));
  }
  const bool fresh = (*found)->trains_from_scratch;
  return "# " + std::string((*found)->title) + "\n" + std::string(kStart) +
         std::string((*found)->yaml) + std::string(fresh ? "" : kPretrainedModel) +
         updates("3", fresh ? "1e-4" : "3e-5") + std::string(kRecords);
}

}  // namespace finetune
