// SPDX-License-Identifier: MIT
#include "finetune/config/preference_args.h"

#include "finetune/config/fields.h"

namespace finetune {

void PreferenceArgs::describe(FieldList& field) {
  field.section("Preferences");
  field("beta", &PreferenceArgs::beta,
        "dpo: how much the difference to the reference counts (of loss_type ipo its tau); orpo: "
        "weight of the odds ratio, the paper's lambda. Unset: 0.1.",
        {.range = {.min = 0, .above_min = true}, .resume = ResumePolicy::kFixed});
  field("label_smoothing", &PreferenceArgs::label_smoothing,
        "dpo: with loss_type robust, the share of pairs whose preference is taken to be wrong.",
        {.range = {.min = 0, .max = 0.49}, .resume = ResumePolicy::kFixed});
  field("simpo_gamma", &PreferenceArgs::simpo_gamma,
        "dpo: with loss_type simpo, by how much the chosen answer's reward should be larger, the "
        "paper's gamma.",
        {.range = {.min = 0}, .resume = ResumePolicy::kFixed});
  field("desirable_weight", &PreferenceArgs::desirable_weight,
        "kto: factor of the losses of desirable answers.",
        {.range = {.min = 0}, .resume = ResumePolicy::kFixed});
  field("undesirable_weight", &PreferenceArgs::undesirable_weight,
        "kto: factor of the losses of undesirable answers.",
        {.range = {.min = 0, .above_min = true}, .resume = ResumePolicy::kFixed});
  field("disable_dropout", &PreferenceArgs::disable_dropout,
        "Of dpo, kto and orpo: train without dropout, lora_dropout included, so that an answer's "
        "probability does not depend on chance.",
        {.resume = ResumePolicy::kFixed});
  field("precompute_ref_log_probs", &PreferenceArgs::precompute_ref_log_probs,
        "Of dpo and kto: compute what the starting model says of each answer once, before the "
        "first step, and keep it in cache_dir; false (with use_peft): compute it in each update "
        "without the adapter.",
        {.resume = ResumePolicy::kFixed});
}

}  // namespace finetune
