// SPDX-License-Identifier: MIT
#include "finetune/config/optimizer_args.h"

#include "config/words.h"
#include "finetune/config/fields.h"
#include "finetune/config/optimizer_names.h"
#include "finetune/config/schedule_names.h"

namespace finetune {
namespace {

// transformers' OptimizerNames, and adamw_hf, which its documentation still lists.
const std::vector<std::string> kTransformersOptimizers = {"adamw_torch",
                                                          "adamw_torch_fused",
                                                          "adamw_hf",
                                                          "adamw_torch_xla",
                                                          "adamw_torch_npu_fused",
                                                          "adafactor",
                                                          "adamw_anyprecision",
                                                          "adamw_torch_4bit",
                                                          "adamw_torch_8bit",
                                                          "ademamix",
                                                          "sgd",
                                                          "adagrad",
                                                          "adamw_bnb_8bit",
                                                          "adamw_8bit",
                                                          "ademamix_8bit",
                                                          "lion_8bit",
                                                          "lion_32bit",
                                                          "paged_adamw_32bit",
                                                          "paged_adamw_8bit",
                                                          "paged_ademamix_32bit",
                                                          "paged_ademamix_8bit",
                                                          "paged_lion_32bit",
                                                          "paged_lion_8bit",
                                                          "rmsprop",
                                                          "rmsprop_bnb",
                                                          "rmsprop_bnb_8bit",
                                                          "rmsprop_bnb_32bit",
                                                          "galore_adamw",
                                                          "galore_adamw_8bit",
                                                          "galore_adafactor",
                                                          "galore_adamw_layerwise",
                                                          "galore_adamw_8bit_layerwise",
                                                          "galore_adafactor_layerwise",
                                                          "lomo",
                                                          "adalomo",
                                                          "grokadamw",
                                                          "schedule_free_radam",
                                                          "schedule_free_adamw",
                                                          "schedule_free_sgd",
                                                          "apollo_adamw",
                                                          "apollo_adamw_layerwise",
                                                          "stable_adamw"};

std::vector<std::string> optimizer_choices() {
  std::vector<std::string> choices = kTransformersOptimizers;
  for (const OptimizerNames& optimizer : optimizer_names()) {
    for (const std::string& spelling : optimizer.spellings) {
      if (!contains(choices, spelling)) choices.push_back(spelling);
    }
  }
  return choices;
}

// Returns all supported values except the default.
std::vector<std::string> available_optimizers() {
  std::vector<std::string> available;
  for (const OptimizerNames& optimizer : optimizer_names()) {
    for (const std::string& spelling : optimizer.spellings) {
      if (spelling != OptimizerArgs().optim) available.push_back(spelling);
    }
  }
  return available;
}

// Returns "a and b of x, c of y".
std::string optimizer_arguments() {
  std::string text;
  for (const OptimizerNames& optimizer : optimizer_names()) {
    std::string names;
    for (const OptimizerArgument& argument : optimizer.arguments) {
      names += (names.empty() ? "" : " and ") + argument.name;
    }
    if (!names.empty()) text += (text.empty() ? "" : ", ") + names + " of " + optimizer.name;
  }
  return text;
}

std::vector<std::string> schedule_choices() {
  std::vector<std::string> choices;
  for (const ScheduleNames& schedule : schedule_names()) choices.push_back(schedule.type);
  return choices;
}

}  // namespace

void DurationArgs::describe(FieldList& field) {
  field.section("Duration and batch size");
  field("do_train", &DurationArgs::do_train, "Train.", {.resume = ResumePolicy::kFree});
  field("do_eval", &DurationArgs::do_eval,
        "Evaluate at the end; true wherever eval_strategy is not \"no\".",
        {.resume = ResumePolicy::kFree});
  field("do_predict", &DurationArgs::do_predict,
        "Write predictions for test_file at the end, as the run_* scripts do.");
  field("num_train_epochs", &DurationArgs::num_train_epochs,
        "How many times the data is gone through; fractions are fine.",
        {.range = {.min = 0, .max = 1e9, .above_min = true}});
  field("max_steps", &DurationArgs::max_steps,
        "Updates in all, instead of num_train_epochs; -1 leaves it to the epochs.",
        {.range = {.min = -1, .max = 1e15}});
  field("per_device_train_batch_size", &DurationArgs::per_device_train_batch_size,
        "Samples that a device trains on at a time.", {.range = {.min = 1, .max = 1 << 24}});
  field("per_device_eval_batch_size", &DurationArgs::per_device_eval_batch_size,
        "Samples that a device evaluates at a time.", {.range = {.min = 1, .max = 1 << 24}});
  field("gradient_accumulation_steps", &DurationArgs::gradient_accumulation_steps,
        "Batches whose gradients make one update.", {.range = {.min = 1, .max = 1 << 24}});
  field("effective_batch_size", &DurationArgs::effective_batch_size,
        "Samples of one update; gradient_accumulation_steps follows from it.",
        {.range = {.min = 1, .max = 1LL << 40}});
  field("average_tokens_across_devices", &DurationArgs::average_tokens_across_devices,
        "Divide the loss by the targets of all processes together; false takes the mean of what "
        "each divides by its own.");
  field("seed", &DurationArgs::seed, "Seed of weights, dropout, masks and data order.",
        {.range = {.min = 0}, .resume = ResumePolicy::kFixed});
  field("data_seed", &DurationArgs::data_seed, "Seed of data order and masks; unset takes seed.",
        {.range = {.min = 0}, .resume = ResumePolicy::kFixed});
  field("full_determinism", &DurationArgs::full_determinism,
        "Give the same bits for any number of processes and CPU threads: one thread computes a "
        "micro-batch, and sums have a fixed order.");
}

void OptimizerArgs::describe(FieldList& field) {
  field.section("Optimizer and learning rate");
  field("optim", &OptimizerArgs::optim, "The optimizer.",
        {.choices = optimizer_choices(), .available = available_optimizers(), .reason = kNotYet});
  field("optim_args", &OptimizerArgs::optim_args,
        "More arguments of the optimizer, as a mapping or \"k=v,k=v\": " + optimizer_arguments() +
            ".");
  field("optimizer_in_backward", &OptimizerArgs::optimizer_in_backward,
        "Update each parameter as soon as its gradient is there, and free the gradient; needs "
        "max_grad_norm 0.");
  field("learning_rate", &OptimizerArgs::learning_rate, "Learning rate at its peak.",
        {.range = {.min = 0}});
  field("lr_scheduler_type", &OptimizerArgs::lr_scheduler_type,
        "How the learning rate goes over the run.", {.choices = schedule_choices()});
  field("lr_scheduler_kwargs", &OptimizerArgs::lr_scheduler_kwargs,
        "Arguments of the schedule (num_cycles, power, min_lr, ...), as a mapping.");
  field("warmup_steps", &OptimizerArgs::warmup_steps,
        "Updates over which the learning rate rises from 0; below 1 a share of all updates.",
        {.range = {.min = 0}, .steps = true});
  field("weight_decay", &OptimizerArgs::weight_decay,
        "Weight decay; biases and norms are left out.", {.range = {.min = 0}});
  field("adam_beta1", &OptimizerArgs::adam_beta1, "Decay of the mean of gradients.",
        {.range = {.min = 0, .max = 1, .below_max = true}});
  field("adam_beta2", &OptimizerArgs::adam_beta2, "Decay of the mean of squared gradients.",
        {.range = {.min = 0, .max = 1, .below_max = true}});
  field("adam_epsilon", &OptimizerArgs::adam_epsilon, "Added to the denominator of the update.",
        {.range = {.min = 0}});
  field("max_grad_norm", &OptimizerArgs::max_grad_norm,
        "Gradients with a larger norm are scaled down to it; 0 leaves them as they are.",
        {.range = {.min = 0}});
  field("label_smoothing_factor", &OptimizerArgs::label_smoothing_factor,
        "Share of the target that is spread over all words.",
        {.range = {.min = 0, .max = 1, .below_max = true}});
  field("divergence_policy", &OptimizerArgs::divergence_policy,
        "What to do when loss or gradient are NaN, Inf or a spike: stop, skip the update, or "
        "roll back to the newest checkpoint and skip its samples.",
        {.choices = {"stop", "skip", "rollback"}});
  field("divergence_max_tries", &OptimizerArgs::divergence_max_tries,
        "Consecutive updates that are skipped or rolled back before the run stops.",
        {.range = {.min = 1, .max = 1e6}});
  field("loss_spike_factor", &OptimizerArgs::loss_spike_factor,
        "An update whose loss is more than N times the median of the last 32 updates counts as "
        "diverged; unset: only non-finite ones do.",
        {.range = {.min = 1, .above_min = true}});
  field("grad_norm_spike_factor", &OptimizerArgs::grad_norm_spike_factor,
        "The same for the gradient norm.", {.range = {.min = 1, .above_min = true}});
}

}  // namespace finetune
