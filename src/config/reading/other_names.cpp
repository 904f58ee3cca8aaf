// SPDX-License-Identifier: MIT
#include "config/reading/other_names.h"

#include <algorithm>
#include <iterator>

#include "finetune/base/nearest.h"

namespace finetune {
namespace {

constexpr std::string_view kTrackers = "it takes tensorboard, wandb or mlflow";
constexpr std::string_view kNoTpu = "libtorch has no TPU device";
constexpr std::string_view kNoInt8 =
    "LLM.int8 is not available; load_in_4bit: true keeps the base in four bits";
constexpr std::string_view kOnlyAnswers =
    "assistant_only_loss for messages, completion_only_loss for a prompt with its completion";
constexpr std::string_view kNoPreferences = "preference training is not available in this version";
constexpr std::string_view kNoEncoderDecoder =
    "encoder-decoder models are not available: clm trains decoders on text";
constexpr std::string_view kByItself = "there is nothing to choose: it is decided automatically";
constexpr std::string_view kEffective =
    "per_device_train_batch_size is that of one device, effective_batch_size that of an update";
constexpr std::string_view kInModel = "it is a field of config.json";
constexpr std::string_view kInTokenizer = "it is part of the tokenizer's files";
constexpr std::string_view kNoKeyForFile =
    "a configuration file is named without a key: finetune train FILE";
constexpr std::string_view kSharding = "DeepSpeed and FSDP are Python libraries; see zero_stage";

std::vector<OtherName> habits() {
  return {
      {"lr", {"learning_rate"}},
      {"lr_rate", {"learning_rate"}},
      {"base_lr", {"learning_rate"}},
      {"peak_lr", {"learning_rate"}},
      {"epochs", {"num_train_epochs"}},
      {"epoch", {"num_train_epochs"}},
      {"n_epochs", {"num_train_epochs"}},
      {"num_epochs", {"num_train_epochs"}},
      {"nb_epochs", {"num_train_epochs"}},
      {"max_epochs", {"num_train_epochs"}},
      {"train_epochs", {"num_train_epochs"}},
      {"steps", {"max_steps"}},
      {"num_steps", {"max_steps"}},
      {"total_steps", {"max_steps"}},
      {"train_steps", {"max_steps"}},
      {"training_steps", {"max_steps"}},
      {"max_train_steps", {"max_steps"}},
      {"num_training_steps", {"max_steps"}},
      {"max_iters", {"max_steps"}},
      {"iterations", {"max_steps"}},
      {"batch_size", {"per_device_train_batch_size", "effective_batch_size"}, kEffective},
      {"bs", {"per_device_train_batch_size", "effective_batch_size"}, kEffective},
      {"global_batch_size", {"effective_batch_size"}},
      {"total_batch_size", {"effective_batch_size"}},
      {"per_device_batch_size", {"per_device_train_batch_size"}},
      {"val_batch_size", {"per_device_eval_batch_size"}},
      {"valid_batch_size", {"per_device_eval_batch_size"}},
      {"test_batch_size", {"per_device_eval_batch_size"}},
      {"accumulation_steps", {"gradient_accumulation_steps"}},
      {"grad_accum", {"gradient_accumulation_steps"}},
      {"grad_accum_steps", {"gradient_accumulation_steps"}},
      {"grad_accumulation_steps", {"gradient_accumulation_steps"}},
      {"accumulate_grad_batches", {"gradient_accumulation_steps"}},
      {"max_length", {"max_seq_length"}},
      {"max_len", {"max_seq_length"}},
      {"max_seq_len", {"max_seq_length"}},
      {"max_sequence_length", {"max_seq_length"}},
      {"seq_len", {"max_seq_length"}},
      {"seq_length", {"max_seq_length"}},
      {"sequence_length", {"max_seq_length"}},
      {"block_size", {"max_seq_length"}, "BigBird's block_size goes into config_overrides"},
      {"truncation", {"max_seq_length"}},
      {"model", {"model_name_or_path"}},
      {"model_name", {"model_name_or_path"}},
      {"model_path", {"model_name_or_path"}},
      {"model_id", {"model_name_or_path"}},
      {"model_dir", {"model_name_or_path"}},
      {"pretrained_model", {"model_name_or_path"}},
      {"pretrained_model_name_or_path", {"model_name_or_path"}},
      {"tokenizer", {"tokenizer_name"}},
      {"tokenizer_path", {"tokenizer_name"}},
      {"tokenizer_dir", {"tokenizer_name"}},
      {"tokenizer_name_or_path", {"tokenizer_name"}},
      {"config", {"config_name"}, kNoKeyForFile},
      {"config_file", {"config_name"}, kNoKeyForFile},
      {"config_path", {"config_name"}, kNoKeyForFile},
      {"model_config", {"config_name"}},
      {"output", {"output_dir"}},
      {"output_path", {"output_dir"}},
      {"output_folder", {"output_dir"}},
      {"out_dir", {"output_dir"}},
      {"outdir", {"output_dir"}},
      {"save_dir", {"output_dir"}},
      {"save_path", {"output_dir"}},
      {"checkpoint_dir", {"output_dir"}},
      {"data", {"train_file"}},
      {"data_path", {"train_file"}},
      {"data_files", {"train_file"}},
      {"train_data", {"train_file"}},
      {"train_data_file", {"train_file"}},
      {"train_path", {"train_file"}},
      {"train_files", {"train_file"}},
      {"training_file", {"train_file"}},
      {"val_file", {"validation_file"}},
      {"valid_file", {"validation_file"}},
      {"dev_file", {"validation_file"}},
      {"eval_file", {"validation_file"}},
      {"eval_data_file", {"validation_file"}},
      {"validation_data", {"validation_file"}},
      {"test_data", {"test_file"}},
      {"text_field", {"text_column"}},
      {"dataset_text_field", {"text_column"}},
      {"label_field", {"label_column"}},
      {"num_labels", {}, "labels are counted in train_file"},
      {"wandb", {"report_to"}, kTrackers},
      {"use_wandb", {"report_to"}, kTrackers},
      {"mlflow", {"report_to"}, kTrackers},
      {"tensorboard", {"report_to"}},
      {"use_tensorboard", {"report_to"}},
      {"log_dir", {"logging_dir"}},
      {"patience", {"early_stopping_patience"}},
      {"early_stopping", {"early_stopping_patience"}},
      {"resume", {"resume_from_checkpoint"}, "the same command resumes the run in its output_dir"},
      {"resume_from", {"resume_from_checkpoint"}},
      {"resume_training", {"resume_from_checkpoint"}},
      {"checkpoint", {"resume_from_checkpoint"}},
      {"ckpt_path", {"resume_from_checkpoint"}},
      {"load_checkpoint", {"resume_from_checkpoint"}},
      {"scheduler", {"lr_scheduler_type"}},
      {"lr_schedule", {"lr_scheduler_type"}},
      {"warmup", {"warmup_steps"}},
      {"num_warmup_steps", {"warmup_steps"}},
      {"wd", {"weight_decay"}},
      {"decay", {"weight_decay"}},
      {"clip_grad", {"max_grad_norm"}},
      {"grad_clip", {"max_grad_norm"}},
      {"clip_grad_norm", {"max_grad_norm"}},
      {"gradient_clipping", {"max_grad_norm"}},
      {"gradient_clip_val", {"max_grad_norm"}},
      {"beta1", {"adam_beta1"}},
      {"beta2", {"adam_beta2"}},
      {"eps", {"adam_epsilon"}},
      {"epsilon", {"adam_epsilon"}},
      {"label_smoothing", {"label_smoothing_factor"}},
      {"dropout", {"config_overrides"}, "hidden_dropout_prob and attention_probs_dropout_prob"},
      {"hidden_size", {"config_overrides"}},
      {"num_hidden_layers", {"config_overrides"}},
      {"num_attention_heads", {"config_overrides"}},
      {"vocab_size", {"config_overrides"}},
      {"random_state", {"seed"}},
      {"mask_prob", {"mlm_probability"}},
      {"mlm_prob", {"mlm_probability"}},
      {"masking_probability", {"mlm_probability"}},
      {"num_workers", {"dataloader_num_workers"}},
      {"workers", {"dataloader_num_workers"}},
      {"n_workers", {"dataloader_num_workers"}},
      {"amp", {"fp16", "bf16"}},
      {"precision", {"fp16", "bf16"}},
      {"mixed_precision", {"fp16", "bf16"}},
      {"half", {"fp16", "bf16"}},
      {"gpus", {"num_processes"}},
      {"n_gpu", {"num_processes"}},
      {"n_gpus", {"num_processes"}},
      {"num_gpus", {"num_processes"}},
      {"nproc_per_node", {"num_processes"}},
      {"world_size", {"num_processes"}},
      {"device", {"use_cpu"}, "the device is found automatically"},
      {"devices", {"num_processes"}},
      {"cpu", {"use_cpu"}},
      {"gpu", {"use_cpu"}, "a GPU that torch can use is used unless use_cpu is true"},
      {"use_gpu", {"use_cpu"}, "a GPU that torch can use is used unless use_cpu is true"},
      {"use_cuda", {"use_cpu"}, "a GPU that torch can use is used unless use_cpu is true"},
      {"cuda", {"use_cpu"}, "a GPU that torch can use is used unless use_cpu is true"},
      {"log_every", {"logging_steps"}},
      {"log_interval", {"logging_steps"}},
      {"log_steps", {"logging_steps"}},
      {"log_every_n_steps", {"logging_steps"}},
      {"eval_every", {"eval_steps"}},
      {"eval_interval", {"eval_steps"}},
      {"val_check_interval", {"eval_steps"}},
      {"evaluate_during_training", {"eval_strategy"}},
      {"save_every", {"save_steps"}},
      {"save_interval", {"save_steps"}},
      {"checkpoint_every", {"save_steps"}},
      {"checkpointing_steps", {"save_steps"}},
      {"max_checkpoints", {"save_total_limit"}},
      {"shuffle", {"train_sampling_strategy"}},
      {"verbose", {"log_level"}},
      {"metric", {"metric_for_best_model", "metric_name"}},
      {"push_to_hub_private", {"hub_private_repo"}},
  };
}

// Flags of create_pretraining_data.py, run_pretraining.py, run_classifier.py, run_squad.py;
// BigBird's run_pretraining.py.
std::vector<OtherName> google_flags() {
  return {
      {"bert_config_file", {"config_name"}},
      {"bert_config_dir", {"config_name"}},
      {"init_checkpoint", {"model_name_or_path"}, "TensorFlow's checkpoints cannot be read"},
      {"vocab_file", {"tokenizer_name"}, "it names the folder that holds vocab.txt"},
      {"vocab_model_file", {"tokenizer_name"}, "it names the folder that holds the model"},
      {"input_file", {"train_file"}},
      {"output_file", {"prepare_output_dir"}},
      {"data_dir", {"train_file", "validation_file"}},
      {"predict_file", {"test_file"}},
      {"train_batch_size", {"per_device_train_batch_size", "effective_batch_size"}, kEffective},
      {"eval_batch_size", {"per_device_eval_batch_size"}},
      {"predict_batch_size", {"per_device_eval_batch_size"}},
      {"num_train_steps", {"max_steps"}},
      {"max_eval_steps", {"max_eval_samples"}, "it counts samples, not batches"},
      {"warmup_proportion", {"warmup_steps"}, "a value below 1 is a share of all steps"},
      {"save_checkpoints_steps", {"save_steps"}},
      {"keep_checkpoint_max", {"save_total_limit"}},
      {"iterations_per_loop", {}, "it concerns TPUs only"},
      {"random_seed", {"seed"}},
      {"max_encoder_length", {"max_seq_length"}},
      {"max_position_embeddings", {"config_overrides"}},
      {"num_rand_blocks", {"config_overrides"}, "it is called num_random_blocks there"},
      {"attention_type", {"config_overrides"}},
      {"attention_probs_dropout_prob", {"config_overrides"}},
      {"hidden_dropout_prob", {"config_overrides"}},
      {"weight_decay_rate", {"weight_decay"}},
      {"preprocessed_data", {}, "TFRecord files in train_file are taken as they are"},
      {"substitute_newline", {}, "newlines are not replaced; replace them in train_file"},
      {"do_lower_case", {}, kInTokenizer},
      {"max_query_length", {}, "questions are not cut"},
      {"n_best", {"n_best_size"}},
      {"do_export", {}, "the model is always exported at the end"},
      {"use_gradient_checkpointing", {"gradient_checkpointing"}},
      {"use_tpu", {}, kNoTpu},
      {"tpu_name", {}, kNoTpu},
      {"tpu_zone", {}, kNoTpu},
      {"tpu_job_name", {}, kNoTpu},
      {"gcp_project", {}, kNoTpu},
      {"master", {}, kNoTpu},
      {"num_tpu_cores", {}, kNoTpu},
  };
}

std::vector<OtherName> axolotl() {
  return {
      {"base_model", {"model_name_or_path"}},
      {"base_model_config", {"config_name"}},
      {"tokenizer_config", {"tokenizer_name"}},
      {"tokenizer_type", {}, "the kind of tokenizer is read from its files"},
      {"tokenizer_use_fast", {"use_fast_tokenizer"}},
      {"micro_batch_size", {"per_device_train_batch_size"}},
      {"sequence_len", {"max_seq_length"}},
      {"max_packed_sequence_len", {"packing", "max_seq_length"}},
      {"sample_packing", {"packing"}},
      {"eval_sample_packing", {"packing"}},
      {"pad_to_sequence_len", {"pad_to_max_length"}},
      {"val_set_size", {"validation_split_percentage"}, "it is a percentage"},
      {"datasets", {"train_file"}},
      {"pretraining_dataset", {"train_file"}},
      {"test_datasets", {"validation_file"}},
      {"dataset_prepared_path", {"cache_dir"}},
      {"dataset_processes", {"preprocessing_num_workers"}},
      {"optimizer", {"optim"}},
      {"lr_scheduler", {"lr_scheduler_type"}},
      {"evals_per_epoch", {"eval_steps"}, "a value below 1 is a share of all steps"},
      {"saves_per_epoch", {"save_steps"}, "a value below 1 is a share of all steps"},
      {"auto_resume_from_checkpoints", {"resume_from_checkpoint"}, "auto is the default"},
      {"flash_attention", {}, kByItself},
      {"sdp_attention", {}, kByItself},
      {"eager_attention", {}, kByItself},
      {"xformers_attention", {}, kByItself},
      {"attn_implementation", {}, kByItself},
      {"loss_watchdog_threshold", {"loss_spike_factor"}},
      {"loss_watchdog_patience", {"divergence_max_tries"}},
      {"noisy_embedding_alpha", {"neftune_noise_alpha"}},
      {"special_tokens", {}, kInTokenizer},
      {"adapter", {"use_peft"}},
      {"lora_model_dir", {"adapter_name_or_path"}},
      {"peft_use_dora", {"use_dora"}},
      {"peft_use_rslora", {"use_rslora"}},
      {"peft_layers_to_transform", {"lora_layers_to_transform"}},
      {"lora_target_linear", {"lora_target_modules"}, "all-linear is the default"},
      {"load_in_8bit", {}, kNoInt8},
      {"chat_template", {"chat_template_path"}},
      {"train_on_inputs", {"assistant_only_loss", "completion_only_loss"}, kOnlyAnswers},
      {"rl", {}, kNoPreferences},
      {"wandb_project", {"project"}},
      {"wandb_entity", {"report_to"}, kTrackers},
      {"wandb_name", {"run_name"}},
      {"wandb_run_id", {"report_to"}, kTrackers},
      {"wandb_watch", {"report_to"}, kTrackers},
      {"wandb_log_model", {"report_to"}, kTrackers},
      {"mlflow_experiment_name", {"project"}},
      {"mlflow_tracking_uri", {"report_to"}, kTrackers},
      {"strict", {}, "the configuration is always checked strictly"},
  };
}

// ModelConfig and SFTConfig of trl.
std::vector<OtherName> trl() {
  return {
      {"lora_task_type", {"task"}},
      {"bnb_4bit_compute_dtype", {"bf16", "fp16"}, "the type in which products compute"},
      {"bnb_4bit_use_double_quant", {"use_bnb_nested_quant"}},
      {"dataset_kwargs", {}, "rows are always prepared"},
      {"ref_model", {}, kNoPreferences},
  };
}

// A value that people write for a key, and the one that they mean; `meaning` may be a sentence.
struct OtherValue {
  std::string_view key;
  std::string_view value;  // in lower case, with '_' for '-'
  std::string_view meaning;
  bool is_reason = false;
};

constexpr OtherValue kOtherValues[] = {
    {"task", "text_classification", "sequence_classification"},
    {"task", "classification", "sequence_classification"},
    {"task", "sentiment_analysis", "sequence_classification"},
    {"task", "regression", "sequence_classification"},
    {"task", "glue", "sequence_classification"},
    {"task", "ner", "token_classification"},
    {"task", "pos", "token_classification"},
    {"task", "chunk", "token_classification"},
    {"task", "tagging", "token_classification"},
    {"task", "qa", "question_answering"},
    {"task", "squad", "question_answering"},
    {"task", "extractive_qa", "question_answering"},
    {"task", "swag", "multiple_choice"},
    {"task", "causal_lm", "clm"},
    {"task", "causal_language_modeling", "clm"},
    {"task", "language_modeling", "clm"},
    {"task", "text_generation", "clm"},
    {"task", "pt", "clm"},
    {"task", "masked_lm", "mlm"},
    {"task", "masked_language_modeling", "mlm"},
    {"task", "fill_mask", "mlm"},
    {"task", "nsp", "pretraining"},
    {"task", "chat", "sft"},
    {"task", "instruct", "sft"},
    {"task", "instruction_tuning", "sft"},
    {"task", "dpo", kNoPreferences, true},
    {"task", "orpo", kNoPreferences, true},
    {"task", "kto", kNoPreferences, true},
    {"task", "rm", kNoPreferences, true},
    {"task", "ppo", kNoPreferences, true},
    {"task", "summarization", kNoEncoderDecoder, true},
    {"task", "translation", kNoEncoderDecoder, true},
    {"task", "seq2seq", kNoEncoderDecoder, true},
    {"model_type", "distilbert", "DistilBERT is not available: bert and roberta are", true},
    {"model_type", "electra", "ELECTRA is not available: bert and roberta are", true},
    {"model_type", "albert", "ALBERT is not available: bert and roberta are", true},
    {"model_type", "t5", kNoEncoderDecoder, true},
    {"model_type", "bart", kNoEncoderDecoder, true},
    {"model_type", "deberta", "deberta-v2"},
    {"model_type", "bigbird", "big_bird"},
    {"model_type", "xlmr", "xlm-roberta"},
    {"model_type", "gpt", "gpt2"},
    {"model_type", "qwen", "qwen2"},
    {"model_type", "gemma3", "gemma3_text"},
    {"model_type", "phi", "phi3"},
    {"lr_scheduler_type", "cos", "cosine"},
    {"lr_scheduler_type", "cosine_annealing", "cosine"},
    {"lr_scheduler_type", "wsd", "warmup_stable_decay"},
    {"lr_scheduler_type", "poly", "polynomial"},
    {"lr_scheduler_type", "none", "constant"},
    {"lr_scheduler_type", "plateau", "reduce_lr_on_plateau"},
    {"optim", "adam", "adamw_torch"},
    {"optim", "adamw", "adamw_torch"},
    {"optim", "adam8bit", "adamw_8bit"},
    {"optim", "paged_adamw_8bit", "adamw_8bit"},
};

std::vector<OtherName> llama_factory() {
  return {
      {"stage", {"task"}},
      {"finetuning_type",
       {},
       "all weights are trained (full) unless use_peft: true asks for a LoRA adapter"},
      {"dataset", {"train_file"}},
      {"eval_dataset", {"validation_file"}},
      {"dataset_dir", {"train_file"}, "paths are relative to the configuration's folder"},
      {"cutoff_len", {"max_seq_length"}},
      {"max_samples", {"max_train_samples"}},
      {"val_size", {"validation_split_percentage"}, "it is a percentage"},
      {"tokenized_path", {"cache_dir"}},
      {"neat_packing", {"packing"}},
      {"mix_strategy", {"train_file"}, "a list of {path, weight} mixes files"},
      {"interleave_probs", {"train_file"}, "a list of {path, weight} mixes files"},
      {"pure_bf16", {"param_dtype"}},
      {"disable_gradient_checkpointing", {"gradient_checkpointing"}},
      {"enable_liger_kernel", {"use_liger_kernel"}},
      {"early_stopping_steps", {"early_stopping_patience"}, "it counts evaluations"},
      {"disable_shuffling", {"train_sampling_strategy"}},
      {"compute_accuracy", {}, "accuracy is always computed"},
      {"plot_loss", {"report_to"}, "TensorBoard draws the curve"},
      {"use_swanlab", {"report_to"}, kTrackers},
      {"flash_attn", {}, kByItself},
      {"shift_attn", {}, kByItself},
      {"use_unsloth", {}, kByItself},
      {"resize_vocab", {}, kInTokenizer},
      {"rope_scaling", {"config_overrides"}, kInModel},
      {"use_galore", {"optim"}},
      {"use_adam_mini", {"optim"}},
      {"template", {"chat_template_path"}},
      {"train_on_prompt", {"completion_only_loss"}},
      {"mask_history", {"train_turns"}, "last learns the last answer alone"},
      {"lora_rank", {"lora_r"}},
      {"lora_target", {"lora_target_modules"}},
      {"additional_target", {"lora_modules_to_save"}},
      {"quantization_bit", {"load_in_4bit"}, "for 4 bits: load_in_4bit: true"},
      {"quantization_method", {"load_in_4bit"}, "for bnb with 4 bits: load_in_4bit: true"},
      {"double_quantization", {"use_bnb_nested_quant"}},
      {"ds_config", {"deepspeed"}, kSharding},
  };
}

}  // namespace

const std::vector<OtherName>& all_other_names() {
  static const std::vector<OtherName> names = [] {
    std::vector<OtherName> all = habits();
    for (const std::vector<OtherName>& more : {google_flags(), axolotl(), trl(), llama_factory()}) {
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }();
  return names;
}

std::string explain_other_name(std::string_view name) {
  const auto& names = all_other_names();
  const auto found = std::find_if(names.begin(), names.end(),
                                  [&](const OtherName& other) { return other.name == name; });
  if (found == names.end()) return "";
  const std::string reason(found->reason);
  if (found->keys.empty()) return ": " + reason;
  std::string text;
  for (const std::string_view key : found->keys) {
    text += (text.empty() ? " (did you mean '" : " or '") + std::string(key) + "'";
  }
  return text + "?" + (reason.empty() ? "" : " " + reason) + ")";
}

std::string explain_other_value(std::string_view key, std::string_view value,
                                const std::vector<std::string>& usable) {
  std::string name(value);
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-' || c == ' ') c = '_';
  }
  const auto found = std::ranges::find_if(kOtherValues, [&](const OtherValue& other) {
    return other.key == key && other.value == name;
  });
  if (found != std::end(kOtherValues)) {
    const std::string meaning(found->meaning);
    return found->is_reason ? "; " + meaning : " (did you mean '" + meaning + "'?)";
  }
  const std::string near = did_you_mean(value, usable);
  return near.empty() ? did_you_mean(name, usable) : near;
}

}  // namespace finetune
