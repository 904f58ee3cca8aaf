// SPDX-License-Identifier: MIT
#include "train/setup/adapter.h"

#include <algorithm>
#include <filesystem>

#include "finetune/base/log.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/model/adapter.h"
#include "finetune/model/model_folder.h"
#include "finetune/model/parameter_shapes.h"
#include "finetune/task/tasks.h"

namespace finetune {
namespace {

void add_module(const std::string& module, std::vector<std::string>& modules) {
  if (std::ranges::find(modules, module) == modules.end()) modules.push_back(module);
}

// An adapter's folder holds no frozen weights, so that what its base lacks (a pooler, after masked
// language modelling) is trained whole and saved. PEFT leaves it out, and its models then have
// other weights there at each start.
void train_what_base_lacks(const LoadedConfig& config, std::optional<Head> head, Parts& parts) {
  if (config_folder(parts.pretrained) != parts.pretrained) return;  // a run's own adapter
  nn::LoraConfig& lora = *parts.model_config.lora;
  std::vector<std::string> modules;
  const std::vector<std::string> missing =
      missing_in_base(parts.model_config, head, parts.pretrained);
  for (const std::string& name : missing) add_module(name.substr(0, name.rfind('.')), modules);
  if (modules.empty()) return;
  if (predicts_words(head)) {
    refuse_key(config, "model_name_or_path",
               "'" + parts.pretrained + "' lacks weights that an adapter does not hold: " +
                   listed(missing) + "; train the whole model first");
  }
  log::info("adapter: the base lacks " + join(modules, ", ") + ": trained whole");
  for (const std::string& module : modules) add_module(module, lora.modules_to_save);
}

}  // namespace

void add_adapter(const LoadedConfig& config, bool trains, StartingPoint& start) {
  const TrainingArgs& args = config.args;
  if (trains && start.model_config.lora) {
    refuse_key(config, "model_name_or_path",
               "'" + start.pretrained +
                   "' is an adapter, and training cannot start from one in this version; name its "
                   "base '" +
                   start.model_config.lora->base_model_name_or_path +
                   "', or merge both with peft's merge_and_unload() and save_pretrained");
  }
  if (!args.use_peft) {
    if (args.dtype == "bfloat16") {
      refuse_key(config, "dtype",
                 "is the type of the frozen weights under an adapter (use_peft); of weights that "
                 "are trained it is param_dtype: bfloat16");
    }
    return;
  }
  if (args.task == "pretraining") {
    refuse_key(config, "use_peft",
               "trains an adapter on a trained model and is not available for task pretraining; "
               "task mlm trains one on more text");
  }
  if (start.pretrained.empty()) {
    refuse_key(config, "use_peft",
               "trains an adapter on a trained model; name its folder as model_name_or_path");
  }
  nn::LoraConfig lora;
  lora.r = args.lora_r;
  lora.lora_alpha = args.lora_alpha;
  lora.lora_dropout = args.lora_dropout;
  lora.use_rslora = args.use_rslora;
  lora.target_modules = args.lora_target_modules;
  lora.modules_to_save = args.lora_modules_to_save;
  for (const std::string& module : output_modules(start.model_config, task_of(args).head(args))) {
    add_module(module, lora.modules_to_save);
  }
  // A path must be found from any folder; a name in Hugging Face's cache stays a name.
  const std::string& name = *args.model_name_or_path;
  lora.base_model_name_or_path =
      start.pretrained == name ? std::filesystem::absolute(name).lexically_normal().string() : name;
  start.model_config.lora = std::move(lora);
}

void settle_base(const LoadedConfig& config, Parts& parts) {
  if (!parts.model_config.lora) return;
  const TrainingArgs& args = config.args;
  try {
    const std::optional<Head> head = task_of(args).head(args);
    (void)parameter_shapes(parts.model_config, head);
    train_what_base_lacks(config, head, parts);
  } catch (const nn::LoraError& error) {
    refuse_key(config, error.key(), error.what());
  }
  parts.base_format = WeightFormat::kFloat32;
  if (args.dtype == "bfloat16") parts.base_format = WeightFormat::kBFloat16;
  if (args.dtype == "auto") parts.base_format = base_format(parts.model_config, parts.pretrained);
}

}  // namespace finetune
