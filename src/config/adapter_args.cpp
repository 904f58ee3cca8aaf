// SPDX-License-Identifier: MIT
#include "finetune/config/adapter_args.h"

#include "finetune/config/fields.h"

namespace finetune {

void AdapterArgs::describe(FieldList& field) {
  field.section("Adapter");
  field("use_peft", &AdapterArgs::use_peft,
        "Train a LoRA adapter on model_name_or_path, whose weights stay as they are; checkpoints "
        "and the finished model hold the adapter alone, in PEFT's files.",
        {.resume = ResumePolicy::kFixed});
  field("lora_r", &AdapterArgs::lora_r, "Rank of the adapter's matrices.",
        {.range = {.min = 1}, .resume = ResumePolicy::kFixed});
  field("lora_alpha", &AdapterArgs::lora_alpha,
        "The adapter's result is multiplied by lora_alpha / lora_r.",
        {.range = {.min = 0}, .resume = ResumePolicy::kFixed});
  field("lora_dropout", &AdapterArgs::lora_dropout, "Dropout of the adapter's input.",
        {.range = {.min = 0, .max = 1, .below_max = true}, .resume = ResumePolicy::kFixed});
  field("lora_target_modules", &AdapterArgs::lora_target_modules,
        "Layers with an adapter: all-linear (every linear layer but the output layer), or the ends "
        "of their names (q_proj, self_attn.v_proj).",
        {.resume = ResumePolicy::kFixed});
  field("lora_modules_to_save", &AdapterArgs::lora_modules_to_save,
        "Modules that are trained whole and saved with the adapter, by the ends of their names.",
        {.resume = ResumePolicy::kFixed});
  field("use_rslora", &AdapterArgs::use_rslora,
        "Multiply by lora_alpha / sqrt(lora_r) instead (rsLoRA).",
        {.resume = ResumePolicy::kFixed});
  field("dtype", &AdapterArgs::dtype,
        "With use_peft, the type in which the frozen weights are kept; auto: that of their files.",
        {.choices = {"auto", "float32", "bfloat16"}, .resume = ResumePolicy::kFixed});
}

}  // namespace finetune
