// SPDX-License-Identifier: MIT
#include "config/reading/aliases.h"

#include "config/reading/scalars.h"

namespace finetune {

const std::vector<Alias>& all_aliases() {
  using Action = Alias::Action;
  static const std::vector<Alias> aliases = {
      // transformers 4.x, TrainingArguments
      {"evaluation_strategy", Action::kRename, "eval_strategy"},
      {"warmup_ratio", Action::kWarmupRatio, "warmup_steps"},
      {"no_cuda", Action::kRename, "use_cpu"},
      {"per_gpu_train_batch_size", Action::kRename, "per_device_train_batch_size"},
      {"per_gpu_eval_batch_size", Action::kRename, "per_device_eval_batch_size"},
      {"group_by_length", Action::kFlag, "train_sampling_strategy", "group_by_length"},
      {"adafactor", Action::kFlag, "optim", "adafactor"},
      {"save_safetensors", Action::kMustBeTrue, "", "weights are always saved as safetensors"},
      {"overwrite_output_dir", Action::kIgnore, "",
       "nothing is ever deleted; the run in output_dir is resumed"},
      {"push_to_hub_token", Action::kRename, "hub_token"},
      {"push_to_hub_model_id", Action::kRename, "hub_model_id"},
      {"push_to_hub_organization", Action::kIgnore, "", "nothing is uploaded"},
      {"xpu_backend", Action::kRename, "ddp_backend"},
      {"torchdynamo", Action::kRename, "torch_compile_backend"},
      {"fp16_backend", Action::kIgnore, "", "there is one implementation of mixed precision"},
      {"half_precision_backend", Action::kIgnore, "",
       "there is one implementation of mixed precision"},
      {"fp16_opt_level", Action::kIgnore, "", "it belongs to Apex"},
      {"use_mps_device", Action::kIgnore, "", "the device is found automatically"},
      {"use_ipex", Action::kIgnore, "", "Intel's extension is a Python library"},
      {"include_inputs_for_metrics", Action::kIgnore, "", "it only concerns Python callbacks"},
      {"include_tokens_per_second", Action::kIgnore, "", "tokens per second are always shown"},
      {"tpu_num_cores", Action::kIgnore, "", "one process computes on one chip"},
      {"tpu_metrics_debug", Action::kIgnore, "", "it prints counters of PyTorch/XLA"},
      {"jit_mode_eval", Action::kIgnore, "", "it concerns Python only"},
      {"past_index", Action::kIgnore, "", "training keeps no past keys and values"},
      {"ray_scope", Action::kIgnore, "", "it concerns a hyperparameter search only"},
      {"mp_parameters", Action::kIgnore, "", "it concerns SageMaker only"},
      {"use_legacy_prediction_loop", Action::kIgnore, "", "there is one evaluation loop"},
      {"eval_use_gather_objects", Action::kRename, "eval_use_gather_object"},
      {"dispatch_batches", Action::kIgnore, "", "each process prepares its own share"},
      {"split_batches", Action::kIgnore, "", "each process prepares its own share"},
      {"sharded_ddp", Action::kRefuse, "",
       "is FairScale's, which transformers has removed; 'zero_stage: 1' divides the optimizer's "
       "state among the processes, as 'simple' does"},
      {"fsdp_min_num_params", Action::kIgnore, "", "FSDP is a Python library"},
      {"fsdp_transformer_layer_cls_to_wrap", Action::kIgnore, "", "FSDP is a Python library"},
      // example scripts
      {"torch_dtype", Action::kRename, "dtype"},
      {"use_auth_token", Action::kRename, "token"},
      {"text_column_name", Action::kRename, "text_column"},
      {"label_column_name", Action::kRename, "label_column"},
      // run_clm; big_bird has a different block_size, which belongs in config_overrides
      {.name = "block_size",
       .action = Action::kOtherName,
       .target = "max_seq_length",
       .task = "clm"},
      // TRL's SFTConfig
      {.name = "max_length",
       .action = Action::kOtherName,
       .target = "max_seq_length",
       .task = "sft"},
      // BERT's create_pretraining_data
      {"masked_lm_prob", Action::kOtherName, "mlm_probability"},
      {"max_token_length", Action::kOtherName, "max_seq_length"},
      {"do_whole_word_mask", Action::kOtherName, "whole_word_mask"},
      {"task_name", Action::kRefuse, "",
       "belongs to run_glue; give the files with train_file and the kind of work with task"},
      {"do_regression", Action::kFlag, "problem_type", "regression"},
  };
  return aliases;
}

const Alias* find_alias(std::string_view name) {
  for (const Alias& alias : all_aliases()) {
    if (alias.name == name) return &alias;
  }
  return nullptr;
}

std::string_view resolve_name(std::string_view name) {
  const Alias* alias = find_alias(name);
  const bool is_renamed = alias != nullptr && (alias->action == Alias::Action::kRename ||
                                               alias->action == Alias::Action::kOtherName);
  return is_renamed ? alias->target : name;
}

namespace {

std::optional<Setting> apply_warmup_ratio(const Setting& setting, std::vector<std::string>& notes,
                                          Problems& problems) {
  const Parsed<double> ratio = parse_double(setting.value);
  if (!ratio.value || *ratio.value < 0 || *ratio.value > 1) {
    problems.add(setting.where, "'warmup_ratio' must be a number from 0 to 1, not " +
                                    show(setting.value) + "; better write warmup_steps");
    return std::nullopt;
  }
  if (*ratio.value == 1) {
    problems.add(setting.where,
                 "'warmup_ratio: 1' leaves no step after the warm-up; write warmup_steps");
    return std::nullopt;
  }
  notes.push_back(setting.where +
                  ": 'warmup_ratio' is the old name of 'warmup_steps', which takes the same share");
  return Setting{"warmup_steps", setting.where, setting.value};
}

bool is_empty(const Node& value) {
  return value.is_scalar() ? value.text.empty() : value.items.empty();
}

}  // namespace

std::optional<Setting> apply_alias(const Alias& alias, const Setting& setting,
                                   std::vector<std::string>& notes, Problems& problems) {
  using Action = Alias::Action;
  const std::string name = "'" + std::string(alias.name) + "'";
  const std::string reason(alias.argument);
  const Parsed<bool> flag = parse_bool(setting.value);
  const bool unset = setting.value.kind == Node::Kind::kNull || (flag.value && !*flag.value);
  switch (alias.action) {
    case Action::kRename:
      notes.push_back(setting.where + ": " + name + " is the old name of '" +
                      std::string(alias.target) + "'");
      return Setting{std::string(alias.target), setting.where, setting.value};
    case Action::kOtherName:
      notes.push_back(setting.where + ": " + name + " is called '" + std::string(alias.target) +
                      "' here");
      return Setting{std::string(alias.target), setting.where, setting.value};
    case Action::kWarmupRatio:
      return apply_warmup_ratio(setting, notes, problems);
    case Action::kIgnore:
      if (!unset) notes.push_back(setting.where + ": " + name + " has no effect here: " + reason);
      return std::nullopt;
    case Action::kFlag:
      if (!flag.value) {
        problems.add(setting.where, name + " " + flag.expected);
        return std::nullopt;
      }
      if (unset) return std::nullopt;
      notes.push_back(setting.where + ": " + name + " is the old way to write '" +
                      std::string(alias.target) + ": " + reason + "'");
      return Setting{std::string(alias.target), setting.where,
                     Node{.kind = Node::Kind::kPlain, .text = reason}};
    case Action::kMustBeTrue:
      if (!flag.value || !*flag.value)
        problems.add(setting.where, name + " must be true: " + reason);
      return std::nullopt;
    case Action::kRefuse:
      if (unset || is_empty(setting.value)) return std::nullopt;
      problems.add(setting.where, name + " " + reason);
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace finetune
