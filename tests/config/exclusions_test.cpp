// SPDX-License-Identifier: MIT
#include "finetune/config/exclusions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "finetune/config/validate.h"
#include "load_helpers.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using testing::load_yaml;

// The keys that a technique sets; "kwargs.x" is an entry of activation_checkpointing_kwargs.
using Settings = std::map<std::string, std::string>;

struct Technique {
  std::string name;
  Settings settings;
};

// max_grad_norm is 0 except where clipping is the technique, so that each pair is tested in
// isolation.
const std::vector<Technique>& techniques() {
  static const std::vector<Technique> all = {
      {"fp16", {{"fp16", "true"}}},
      {"bf16", {{"bf16", "true"}}},
      {"fp16_full_eval", {{"fp16_full_eval", "true"}}},
      {"bf16_full_eval", {{"bf16_full_eval", "true"}}},
      {"checkpointing", {{"activation_checkpointing", "true"}}},
      {"no checkpointing", {{"activation_checkpointing", "false"}}},
      {"every second layer",
       {{"activation_checkpointing", "true"}, {"kwargs.every_n_layers", "2"}}},
      {"offload", {{"activation_checkpointing", "true"}, {"kwargs.offload", "true"}}},
      {"selective", {{"activation_checkpointing", "true"}, {"kwargs.selective", "true"}}},
      {"accumulation", {{"gradient_accumulation_steps", "2"}}},
      {"effective batch", {{"effective_batch_size", "16"}}},
      {"clipping", {{"max_grad_norm", "1.0"}}},
      {"adamw", {{"optim", "adamw_torch"}}},
      {"adamw_8bit", {{"optim", "adamw_8bit"}}},
      {"adamw_8bit with embeddings",
       {{"optim", "adamw_bnb_8bit"}, {"optim_args", "embeddings_in_8bit=true"}}},
      {"companded", {{"optim", "adamw_companded_8bit"}}},
      {"adafactor", {{"optim", "adafactor"}}},
      {"sgd", {{"optim", "sgd"}, {"optim_args", "momentum=0.9"}}},
      {"in backward", {{"optimizer_in_backward", "true"}}},
      {"bfloat16 weights", {{"param_dtype", "bfloat16"}}},
      {"split weights", {{"param_dtype", "bfloat16+int8"}}},
      {"bfloat16 gradients", {{"grad_accum_dtype", "bfloat16"}}},
      {"budget", {{"memory_budget", "1GiB"}}},
      {"label smoothing", {{"label_smoothing_factor", "0.1"}}},
  };
  return all;
}

// Whether both can be set at the same time: a key has one value, and arguments belong to their
// optimizer.
bool can_be_written(const Settings& a, const Settings& b) {
  if (a.contains("optim") && b.contains("optim")) return false;
  for (const auto& [key, value] : a) {
    const auto other = b.find(key);
    if (other == b.end() || other->second == value) continue;
    if (key != "activation_checkpointing") return false;
  }
  return true;
}

// Returns a configuration with both; for keys that both set, `first` takes precedence.
std::string yaml(const Settings& first, const Settings& second) {
  Settings all = first;
  all.insert(second.begin(), second.end());
  std::string text =
      "train_file: a\nmodel_name_or_path: ./m\nmax_steps: 1\nper_device_train_batch_size: 8\n";
  all.insert({"max_grad_norm", "0"});
  std::string kwargs;
  for (const auto& [key, value] : all) {
    if (key.starts_with("kwargs.")) {
      kwargs += (kwargs.empty() ? "" : ", ") + key.substr(7) + ": " + value;
    } else {
      text += key + ": " + value + "\n";
    }
  }
  if (!kwargs.empty()) text += "activation_checkpointing_kwargs: {" + kwargs + "}\n";
  return text;
}

std::string problem(const std::string& text) {
  try {
    validate(load_yaml(text), Purpose::kTrain);
  } catch (const Error& error) {
    return error.kind() == ErrorKind::kConfig ? error.what() : "wrong kind of error";
  }
  return "";
}

TEST(Exclusions, AreAllThatKeepsTwoTechniquesApart) {
  std::set<std::string> refused;
  std::set<const Exclusion*> met;
  for (size_t i = 0; i < techniques().size(); ++i) {
    const Technique& a = techniques()[i];
    EXPECT_EQ(problem(yaml(a.settings, {})), "") << a.name;
    for (size_t j = i + 1; j < techniques().size(); ++j) {
      const Technique& b = techniques()[j];
      if (!can_be_written(a.settings, b.settings)) continue;
      const std::string text = yaml(a.settings, b.settings);
      const std::string message = problem(text);
      const TrainingArgs args = load_yaml(text).args;
      bool in_table = false;
      for (const Exclusion& exclusion : all_exclusions()) {
        if (!exclusion.first.holds(args) || !exclusion.second.holds(args)) continue;
        in_table = true;
        met.insert(&exclusion);
        EXPECT_THAT(message, HasSubstr(exclusion.reason)) << a.name << " and " << b.name;
        EXPECT_THAT(message, HasSubstr(exclusion.advice)) << a.name << " and " << b.name;
      }
      EXPECT_EQ(message.empty(), !in_table) << a.name << " and " << b.name << ": " << message;
      if (in_table) refused.insert(a.name + " x " + b.name);
    }
  }
  EXPECT_THAT(refused, ::testing::UnorderedElementsAre(
                           "fp16 x bf16", "fp16_full_eval x bf16_full_eval", "fp16 x in backward",
                           "no checkpointing x every second layer", "no checkpointing x offload",
                           "no checkpointing x selective", "every second layer x selective",
                           "offload x selective", "accumulation x in backward",
                           "effective batch x in backward", "clipping x in backward"));
  EXPECT_EQ(met.size(), all_exclusions().size()) << "an entry that no pair of techniques meets";
}

TEST(Exclusions, NameBothKeysWhereTheyStandAndWhatToDo) {
  const std::string base = "train_file: a\nmodel_name_or_path: ./m\nmax_steps: 1\n";
  EXPECT_GOLDEN(problem(base + "optimizer_in_backward: true\n"));
  EXPECT_GOLDEN(problem(base + "bf16: true\nfp16: true\n"));
  EXPECT_GOLDEN(
      problem(base + "max_grad_norm: 0\neffective_batch_size: 32\noptimizer_in_backward: true\n"));
  EXPECT_EQ(problem(base + "gradient_checkpointing_kwargs: {use_reentrant: false}\n"), "");
  EXPECT_GOLDEN(problem(base + "gradient_checkpointing_kwargs: {offload: true}\n"));
}

TEST(Exclusions, HoldForAnEvaluationToo) {
  const LoadedConfig config =
      load_yaml("validation_file: a\nfp16_full_eval: true\nbf16_full_eval: true\n");
  EXPECT_THROW(validate(config, Purpose::kEvaluate), Error);
}

}  // namespace
}  // namespace finetune
