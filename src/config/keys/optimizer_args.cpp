// SPDX-License-Identifier: MIT
#include "finetune/config/optimizer_args.h"

#include "config/keys/words.h"
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
        "Evaluate at the end; always true unless eval_strategy is \"no\".",
        {.resume = ResumePolicy::kFree});
  field("do_predict", &DurationArgs::do_predict,
        "Write predictions for test_file at the end, as the run_* scripts do.");
  field("num_train_epochs", &DurationArgs::num_train_epochs,
        "Number of passes over the training data; may be a fraction.",
        {.range = {.min = 0, .max = 1e9, .above_min = true}});
  field("max_steps", &DurationArgs::max_steps,
        "Number of updates, instead of num_train_epochs; -1: num_train_epochs decides.",
        {.range = {.min = -1, .max = 1e15}});
  field("per_device_train_batch_size", &DurationArgs::per_device_train_batch_size,
        "Number of samples per device in a micro-batch of training.",
        {.range = {.min = 1, .max = 1 << 24}});
  field("per_device_eval_batch_size", &DurationArgs::per_device_eval_batch_size,
        "Number of samples per device in a batch of evaluation.",
        {.range = {.min = 1, .max = 1 << 24}});
  field("gradient_accumulation_steps", &DurationArgs::gradient_accumulation_steps,
        "Number of micro-batches whose gradients are summed for an update.",
        {.range = {.min = 1, .max = 1 << 24}});
  field("effective_batch_size", &DurationArgs::effective_batch_size,
        "Number of samples of an update; gradient_accumulation_steps follows from it.",
        {.range = {.min = 1, .max = 1LL << 40}});
  field("average_tokens_across_devices", &DurationArgs::average_tokens_across_devices,
        "Divide the loss by the number of targets in all processes; false averages the mean losses "
        "of the processes.");
  field("seed", &DurationArgs::seed, "Seed of weights, dropout, masks and data order.",
        {.range = {.min = 0}, .resume = ResumePolicy::kFixed});
  field("data_seed", &DurationArgs::data_seed, "Seed of data order and masks; unset: seed.",
        {.range = {.min = 0}, .resume = ResumePolicy::kFixed});
  field("full_determinism", &DurationArgs::full_determinism,
        "Compute the same bits with any number of processes and CPU threads: one thread computes a "
        "micro-batch, and sums have a fixed order.");
}

void OptimizerArgs::describe(FieldList& field) {
  field.section("Optimizer and learning rate");
  field("optim", &OptimizerArgs::optim, "Optimizer.",
        {.choices = optimizer_choices(), .available = available_optimizers(), .reason = kNotYet});
  field("optim_args", &OptimizerArgs::optim_args,
        "More arguments of the optimizer, as a mapping or \"k=v,k=v\": " + optimizer_arguments() +
            ".");
  field("optimizer_in_backward", &OptimizerArgs::optimizer_in_backward,
        "Update each parameter as soon as its gradient is complete, and free the gradient; needs "
        "max_grad_norm 0.");
  field("learning_rate", &OptimizerArgs::learning_rate,
        "Peak learning rate; unset: of dpo, orpo and kto 1e-06, as in TRL.", {.range = {.min = 0}});
  field("lr_scheduler_type", &OptimizerArgs::lr_scheduler_type, "Schedule of the learning rate.",
        {.choices = schedule_choices()});
  field("lr_scheduler_kwargs", &OptimizerArgs::lr_scheduler_kwargs,
        "Arguments of the schedule (num_cycles, power, min_lr, ...), as a mapping.");
  field("warmup_steps", &OptimizerArgs::warmup_steps,
        "Number of updates over which the learning rate rises from 0; a value below 1 is a "
        "fraction of all updates.",
        {.range = {.min = 0}, .steps = true});
  field("weight_decay", &OptimizerArgs::weight_decay,
        "Weight decay, not applied to biases and norms.", {.range = {.min = 0}});
  field("adam_beta1", &OptimizerArgs::adam_beta1, "Decay rate of the mean of gradients.",
        {.range = {.min = 0, .max = 1, .below_max = true}});
  field("adam_beta2", &OptimizerArgs::adam_beta2, "Decay rate of the mean of squared gradients.",
        {.range = {.min = 0, .max = 1, .below_max = true}});
  field("adam_epsilon", &OptimizerArgs::adam_epsilon, "Constant in the denominator of the update.",
        {.range = {.min = 0}});
  field("max_grad_norm", &OptimizerArgs::max_grad_norm,
        "Maximum norm of gradients, to which larger ones are clipped; 0: no clipping.",
        {.range = {.min = 0}});
  field("label_smoothing_factor", &OptimizerArgs::label_smoothing_factor,
        "Fraction of the target's probability that is spread over all classes.",
        {.range = {.min = 0, .max = 1, .below_max = true}});
  field("divergence_policy", &OptimizerArgs::divergence_policy,
        "Reaction to a loss or gradient norm that is NaN, Inf or a spike: stop; skip the update; "
        "or roll back to the newest checkpoint and skip the samples of the update.",
        {.choices = {"stop", "skip", "rollback"}});
  field("divergence_max_tries", &OptimizerArgs::divergence_max_tries,
        "Number of consecutive updates that are skipped or rolled back before the run stops.",
        {.range = {.min = 1, .max = 1e6}});
  field("loss_spike_factor", &OptimizerArgs::loss_spike_factor,
        "Treat an update as diverged if its loss exceeds N times the median of the last 32 "
        "updates; unset: only if it is non-finite.",
        {.range = {.min = 1, .above_min = true}});
  field("grad_norm_spike_factor", &OptimizerArgs::grad_norm_spike_factor,
        "Treat an update as diverged if its gradient norm exceeds N times the median of the last "
        "32 updates; unset: only if it is non-finite.",
        {.range = {.min = 1, .above_min = true}});
}

}  // namespace finetune
