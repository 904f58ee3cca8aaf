// SPDX-License-Identifier: MIT
#include "train/setup/adapter.h"

#include <filesystem>

#include "finetune/model/model_folder.h"
#include "finetune/model/parameter_shapes.h"
#include "finetune/task/tasks.h"

namespace finetune {

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
  if (args.task != "clm") {
    refuse_key(config, "use_peft",
               "is available for task clm in this version, not for " + args.task);
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
    (void)parameter_shapes(parts.model_config, task_of(args).head(args));
  } catch (const nn::LoraError& error) {
    refuse_key(config, error.key(), error.what());
  }
  parts.base_format = WeightFormat::kFloat32;
  if (args.dtype == "bfloat16") parts.base_format = WeightFormat::kBFloat16;
  if (args.dtype == "auto") parts.base_format = base_format(parts.model_config, parts.pretrained);
}

}  // namespace finetune
