// SPDX-License-Identifier: MIT
#include "finetune/config/techniques.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "finetune/base/json.h"
#include "finetune/config/dump.h"
#include "finetune/config/fields.h"
#include "load_helpers.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::load_error;
using testing::load_yaml;

ActivationCheckpointing checkpointing(const std::string& text) {
  return checkpointing_of(load_yaml(text).args);
}

OptimizerChoice optimizer(const std::string& text) { return optimizer_of(load_yaml(text).args); }

TEST(Checkpointing, IsOffUnlessAskedFor) {
  EXPECT_EQ(checkpointing(""), ActivationCheckpointing{});
  EXPECT_FALSE(checkpointing("gradient_checkpointing: false").enabled);
}

TEST(Checkpointing, TakesTheSameUnderBothNames) {
  const ActivationCheckpointing expected{.enabled = true, .every_n_layers = 2, .offload = true};
  for (const std::string name : {"activation", "gradient"}) {
    EXPECT_EQ(checkpointing(name + "_checkpointing: true\n" + name +
                            "_checkpointing_kwargs: {every_n_layers: 2, offload: true}\n"),
              expected);
  }
  EXPECT_EQ(checkpointing("gradient_checkpointing: true\n"
                          "activation_checkpointing_kwargs: every_n_layers=2,offload=true\n"),
            expected);
  EXPECT_TRUE(checkpointing("gradient_checkpointing: true\n"
                            "gradient_checkpointing_kwargs: {selective: true}\n")
                  .selective);
}

TEST(Checkpointing, RefusesTwoValuesUnderTwoNames) {
  EXPECT_GOLDEN(load_error("activation_checkpointing: true\ngradient_checkpointing: false\n"));
  EXPECT_GOLDEN(
      load_error("activation_checkpointing_kwargs: {offload: true}\n"
                 "gradient_checkpointing_kwargs: {offload: false}\n"));
}

TEST(Checkpointing, SaysOnceWhatHasNoEffect) {
  const LoadedConfig config = load_yaml(
      "gradient_checkpointing: true\n"
      "gradient_checkpointing_kwargs: {use_reentrant: false, preserve_rng_state: true}\n");
  EXPECT_EQ(checkpointing_of(config.args), (ActivationCheckpointing{.enabled = true}));
  EXPECT_THAT(
      config.notes,
      ElementsAre(::testing::StartsWith("run.yaml:2: 'use_reentrant' and 'preserve_rng_state'")));
}

TEST(Checkpointing, NamesEveryFaultAndTheNearestName) {
  EXPECT_GOLDEN(
      load_error("gradient_checkpointing: true\n"
                 "gradient_checkpointing_kwargs: {every_n_layer: 2, offload: 1}\n"));
  EXPECT_GOLDEN(load_error("activation_checkpointing_kwargs: {every_n_layers: 0}\n"));
  EXPECT_GOLDEN(load_error("activation_checkpointing_kwargs: {every_n_layers: 1.5}\n"));
  EXPECT_GOLDEN(
      load_error("activation_checkpointing_kwargs: {every_n_layers: 9300000000000000000}"));
}

TEST(OptimizerKeys, KnowTransformersNames) {
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"adamw_torch", "adamw"},
      {"adamw_torch_fused", "adamw"},
      {"adamw_hf", "adamw"},
      {"adamw_8bit", "adamw_8bit"},
      {"adamw_bnb_8bit", "adamw_8bit"},
      {"paged_adamw_32bit", "adamw"},
      {"paged_adamw_8bit", "adamw_8bit"},
      {"adamw_companded_8bit", "adamw_companded_8bit"},
      {"adafactor", "adafactor"},
      {"sgd", "sgd"}};
  EXPECT_EQ(optimizer("").kind, "adamw");
  for (const auto& [name, kind] : kinds) EXPECT_EQ(optimizer("optim: " + name).kind, kind) << name;
  EXPECT_EQ(optimizer("adafactor: true").kind, "adafactor");
}

TEST(OptimizerKeys, TakeArgumentsAsTextOrMapping) {
  const OptimizerChoice expected{
      .kind = "adamw_8bit",
      .arguments = {{"embeddings_in_8bit", true}, {"min_8bit_size", int64_t{1024}}}};
  EXPECT_EQ(optimizer("optim: adamw_bnb_8bit\n"
                      "optim_args: \"embeddings_in_8bit=true,min_8bit_size=1024\"\n"),
            expected);
  EXPECT_EQ(optimizer("optim: adamw_8bit\n"
                      "optim_args: {embeddings_in_8bit: true, min_8bit_size: 1024}\n"),
            expected);
  EXPECT_EQ(optimizer("optim: sgd\noptim_args: momentum=0.9,nesterov=true\n"),
            (OptimizerChoice{.kind = "sgd", .arguments = {{"momentum", 0.9}, {"nesterov", true}}}));
}

TEST(OptimizerKeys, NameWhatTheOptimizerTakes) {
  EXPECT_GOLDEN(load_error("optim: adamw_8bit\noptim_args: min_8bit_sice=4\n"));
  EXPECT_GOLDEN(load_error("optim_args: momentum=0.9\n"));
  EXPECT_GOLDEN(load_error("optim: sgd\noptim_args: momentum=1\n"));
  EXPECT_GOLDEN(load_error("optim: sgd\noptim_args: nesterov=true\n"));
  EXPECT_GOLDEN(load_error("optim: adamw_8bit\noptim_args: min_8bit_size=-1\n"));
  EXPECT_GOLDEN(load_error("optim: lion_8bit\n"));
}

TEST(MemorySize, ReadsUnitsOfBothKinds) {
  const std::vector<std::pair<std::string, int64_t>> sizes = {{"1000MiB", 1000LL << 20},
                                                              {"1GiB", 1LL << 30},
                                                              {"900MB", 900'000'000},
                                                              {"12.5GB", 12'500'000'000},
                                                              {"1.5 GiB", 3LL << 29},
                                                              {"33554432", 32LL << 20},
                                                              {"2TiB", 2LL << 40},
                                                              {"0", 0},
                                                              {"5kB", 5000}};
  for (const auto& [text, bytes] : sizes) EXPECT_EQ(parse_memory_size(text), bytes) << text;
  for (const char* text : {"", "GiB", "1gib", "-1GiB", "1GiB ", "1 GiB!", "nanGiB", "1e3MiB", "inf",
                           "1  GiB", "99999999999TiB", "0x10"}) {
    EXPECT_EQ(parse_memory_size(text), std::nullopt) << text;
  }
}

TEST(MemoryBudget, IsCheckedBeforeAnythingIsLoaded) {
  EXPECT_EQ(memory_budget_of(load_yaml("").args), std::nullopt);
  EXPECT_EQ(memory_budget_of(load_yaml("memory_budget: 1000MiB").args), 1000LL << 20);
  EXPECT_EQ(memory_budget_of(load_yaml("memory_budget: 1073741824").args), 1LL << 30);
  EXPECT_GOLDEN(load_error("seed: 1\nmemory_budget: much\n"));
  EXPECT_GOLDEN(load_error("memory_budget: 1000\n"));
  EXPECT_GOLDEN(problem_of_memory_size("4"));
  EXPECT_GOLDEN(problem_of_memory_size("1MiB"));
  EXPECT_EQ(problem_of_memory_size("4GiB"), "");
  EXPECT_GOLDEN(load_error("memory_budget: 2000TiB\n"));
}

TEST(MemoryKeys, AreReadAgainFromWhatACheckpointKeeps) {
  const LoadedConfig config = load_yaml(
      "optim: sgd\noptim_args: momentum=0.9\ngradient_checkpointing: true\n"
      "gradient_checkpointing_kwargs: {every_n_layers: 3}\nparam_dtype: bfloat16+int8\n"
      "grad_accum_dtype: bfloat16\nmemory_budget: 1GiB\n");
  EXPECT_THAT(config.notes, IsEmpty());
  const LoadedConfig again = load_config_text(to_json(config.args).dump(1), "run.json", {});
  EXPECT_EQ(to_json(again.args), to_json(config.args));
  EXPECT_EQ(optimizer_of(again.args), optimizer_of(config.args));
  EXPECT_EQ(checkpointing_of(again.args), checkpointing_of(config.args));
  EXPECT_EQ(again.args.param_dtype, "bfloat16+int8");
}

TEST(MemoryKeys, MayChangeBetweenSessions) {
  for (const char* name : {"fp16", "bf16", "optim", "optim_args", "optimizer_in_backward",
                           "param_dtype", "grad_accum_dtype", "activation_checkpointing",
                           "activation_checkpointing_kwargs", "memory_budget"}) {
    EXPECT_EQ(find_field(name)->spec.resume, ResumePolicy::kFreeAnnounced) << name;
  }
}

}  // namespace
}  // namespace finetune
