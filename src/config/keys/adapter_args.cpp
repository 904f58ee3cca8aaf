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
  field("adapter_name_or_path", &AdapterArgs::adapter_name_or_path,
        "Folder of an adapter that a new run continues; its adapter_config.json then decides in "
        "place of the keys lora_*.",
        {.resume = ResumePolicy::kFixed, .path = PathKind::kPathOrName});
  field("lora_r", &AdapterArgs::lora_r, "Rank of the adapter's matrices.",
        {.range = {.min = 1}, .resume = ResumePolicy::kFixed});
  field("lora_alpha", &AdapterArgs::lora_alpha,
        "The adapter's result is multiplied by lora_alpha / lora_r.",
        {.range = {.min = 0}, .resume = ResumePolicy::kFixed});
  field("lora_dropout", &AdapterArgs::lora_dropout, "Dropout of the adapter's input.",
        {.range = {.min = 0, .max = 1, .below_max = true}, .resume = ResumePolicy::kFixed});
  field("lora_target_modules", &AdapterArgs::lora_target_modules,
        "Layers with an adapter: all-linear (every linear layer but the output layer), the ends of "
        "their names (q_proj, self_attn.v_proj), or one regular expression for whole names. Names "
        "and expressions may also name embeddings (embed_tokens).",
        {.resume = ResumePolicy::kFixed});
  field("lora_exclude_modules", &AdapterArgs::lora_exclude_modules,
        "Layers that get no adapter although they are targets, named in the same way.",
        {.resume = ResumePolicy::kFixed});
  field("lora_target_parameters", &AdapterArgs::lora_target_parameters,
        "Parameters of mixtures of experts that get an adapter, by the ends of their names in "
        "transformers (experts.gate_up_proj, experts.down_proj); needs lora_dropout: 0.",
        {.resume = ResumePolicy::kFixed});
  field("lora_layers_to_transform", &AdapterArgs::lora_layers_to_transform,
        "Numbers of the model's layers (from 0) that get adapters; unset: all.",
        {.resume = ResumePolicy::kFixed});
  field("lora_rank_pattern", &AdapterArgs::lora_rank_pattern,
        "Other ranks than lora_r: a mapping of regular expressions for the ends of names to ranks "
        "({down_proj: 8}).",
        {.resume = ResumePolicy::kFixed});
  field("lora_alpha_pattern", &AdapterArgs::lora_alpha_pattern,
        "Other values than lora_alpha, in the same way.", {.resume = ResumePolicy::kFixed});
  field("lora_modules_to_save", &AdapterArgs::lora_modules_to_save,
        "Modules that are trained whole and saved with the adapter, by the ends of their names.",
        {.resume = ResumePolicy::kFixed});
  field("lora_ensure_weight_tying", &AdapterArgs::lora_ensure_weight_tying,
        "Let lora_modules_to_save name a weight that the input embedding and the output layer "
        "share; it is trained as one.",
        {.resume = ResumePolicy::kFixed});
  field("lora_bias", &AdapterArgs::lora_bias,
        "Biases of the model that are trained and saved with the adapter: none, lora_only (of the "
        "layers with an adapter) or all.",
        {.choices = {"none", "lora_only", "all"}, .resume = ResumePolicy::kFixed});
  field("use_rslora", &AdapterArgs::use_rslora,
        "Multiply by lora_alpha / sqrt(lora_r) instead (rsLoRA).",
        {.resume = ResumePolicy::kFixed});
  field("use_dora", &AdapterArgs::use_dora,
        "Also train the length of each output's row of weights (DoRA).",
        {.resume = ResumePolicy::kFixed});
  field("loraplus_lr_ratio", &AdapterArgs::loraplus_lr_ratio,
        "The learning rate of the second matrices (B) is this many times that of the first "
        "(LoRA+); unset: the same.",
        {.range = {.min = 0, .above_min = true}, .resume = ResumePolicy::kFixed});
  field("loraplus_lr_embedding", &AdapterArgs::loraplus_lr_embedding,
        "With loraplus_lr_ratio, the peak learning rate of the adapters of embeddings.",
        {.range = {.min = 0}, .resume = ResumePolicy::kFixed});
  describe_base(field);
}

void AdapterArgs::describe_base(FieldList& field) {
  field("dtype", &AdapterArgs::dtype,
        "With use_peft, the type in which the frozen weights are kept; auto: that of their files.",
        {.choices = {"auto", "float32", "bfloat16", "float16"}, .resume = ResumePolicy::kFixed});
  field(
      "load_in_4bit", &AdapterArgs::load_in_4bit,
      "With use_peft, keep the matrices of the frozen model's linear layers in four bits (QLoRA), "
      "quantized as bitsandbytes does; the rest keeps dtype. \"auto\": if memory_budget is too "
      "small for them otherwise; a run keeps what was decided at its start.",
      {.choices = {"true", "false", "auto"},
       .spellings = {{"true", "true"}, {"false", "false"}},
       .resume = ResumePolicy::kFixed,
       .decided = "auto"});
  field("bnb_4bit_quant_type", &AdapterArgs::bnb_4bit_quant_type,
        "The type of four bits: nf4 (NormalFloat).",
        {.choices = {"nf4"}, .resume = ResumePolicy::kFixed});
  field(
      "use_bnb_nested_quant", &AdapterArgs::use_bnb_nested_quant,
      "With load_in_4bit, round the scales as bitsandbytes' double quantization does, so that the "
      "adapter fits a base that is deployed with it.",
      {.resume = ResumePolicy::kFixed});
  field(
      "llm_int8_skip_modules", &AdapterArgs::llm_int8_skip_modules,
      "With load_in_4bit, linear layers that keep dtype, by the beginnings or ends of their names.",
      {.resume = ResumePolicy::kFixed});
}

}  // namespace finetune
