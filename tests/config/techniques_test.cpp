// SPDX-License-Identifier: MIT
#include "finetune/config/techniques.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "finetune/base/json.h"
#include "finetune/config/dump.h"
#include "finetune/config/fields.h"
#include "load_helpers.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
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
  EXPECT_EQ(load_error("activation_checkpointing: true\ngradient_checkpointing: false\n"),
            "run.yaml:2: 'gradient_checkpointing' is the old name of 'activation_checkpointing', "
            "which is set to another value at run.yaml:1; keep one");
  EXPECT_THAT(load_error("activation_checkpointing_kwargs: {offload: true}\n"
                         "gradient_checkpointing_kwargs: {offload: false}\n"),
              HasSubstr("run.yaml:2: 'gradient_checkpointing_kwargs' is the old name"));
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
  EXPECT_EQ(load_error("gradient_checkpointing: true\n"
                       "gradient_checkpointing_kwargs: {every_n_layer: 2, offload: 1}\n"),
            "run.yaml:2: activation_checkpointing_kwargs has no 'every_n_layer' (did you mean "
            "'every_n_layers'?); activation_checkpointing takes every_n_layers, offload, "
            "selective, use_reentrant, preserve_rng_state\n"
            "run.yaml:2: activation_checkpointing_kwargs: 'offload' must be true or false, not 1");
  EXPECT_THAT(load_error("activation_checkpointing_kwargs: {every_n_layers: 0}\n"),
              HasSubstr("'every_n_layers' must be a whole number of at least 1, not 0"));
  EXPECT_THAT(load_error("activation_checkpointing_kwargs: {every_n_layers: 1.5}\n"),
              HasSubstr("a whole number"));
  EXPECT_THAT(load_error("activation_checkpointing_kwargs: {every_n_layers: 9300000000000000000}"),
              HasSubstr("a whole number"));
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
  EXPECT_EQ(load_error("optim: adamw_8bit\noptim_args: min_8bit_sice=4\n"),
            "run.yaml:2: optim_args has no 'min_8bit_sice' (did you mean 'min_8bit_size'?); "
            "'optim: adamw_8bit' takes embeddings_in_8bit, min_8bit_size");
  EXPECT_THAT(load_error("optim_args: momentum=0.9\n"),
              HasSubstr("'optim: adamw_torch_fused' takes nothing here"));
  EXPECT_THAT(load_error("optim: sgd\noptim_args: momentum=1\n"),
              HasSubstr("'momentum' must be a number from 0.0 to below 1.0, not 1"));
  EXPECT_THAT(load_error("optim: sgd\noptim_args: nesterov=true\n"),
              HasSubstr("needs 'momentum' above 0"));
  EXPECT_THAT(load_error("optim: adamw_8bit\noptim_args: min_8bit_size=-1\n"),
              HasSubstr("at least 0, not -1"));
  EXPECT_THAT(load_error("optim: lion_8bit\n"),
              HasSubstr("is not available in this version (adamw_torch_fused, adamw_torch, "
                        "adamw_hf, paged_adamw_32bit, adamw_8bit, adamw_bnb_8bit, "
                        "paged_adamw_8bit, adamw_companded_8bit, adafactor, sgd are)"));
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
  EXPECT_EQ(load_error("seed: 1\nmemory_budget: much\n"),
            "run.yaml:2: 'memory_budget' must be a size such as 1000MiB, 1GiB or 900MB, not "
            "'much'");
  EXPECT_EQ(load_error("memory_budget: 1000\n"),
            "run.yaml:1: 'memory_budget' must lie between 16MiB and 1024TiB, not '1000', which "
            "counts bytes (did you mean 1000MiB?)");
  EXPECT_THAT(problem_of_memory_size("4"), HasSubstr("(did you mean 4GiB?)"));
  EXPECT_EQ(problem_of_memory_size("1MiB"), "must lie between 16MiB and 1024TiB, not '1MiB'");
  EXPECT_EQ(problem_of_memory_size("4GiB"), "");
  EXPECT_THAT(load_error("memory_budget: 2000TiB\n"), HasSubstr("must lie between"));
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
