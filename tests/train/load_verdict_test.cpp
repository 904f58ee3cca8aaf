// SPDX-License-Identifier: MIT
#include "train/setup/load_verdict.h"

#include <gtest/gtest.h>

#include "support/golden.h"

namespace finetune {
namespace {

LoadedStart start() {
  return {.folder = "base",
          .task = "mlm",
          .model_type = "bert",
          .architecture = "BertForMaskedLM",
          .parameters = 3,
          .is_base = [](const std::string& name) { return name == "frozen"; }};
}

const LoadReport kOtherShape = {
    .missing = {"b"}, .unexpected = {}, .mismatched = {{"a", {2, 3}, {2, 4}}}};

std::string refusal(const LoadReport& report, const LoadedStart& of) {
  const LoadVerdict verdict = judge(report, of);
  if (!verdict.refusal) return "";
  EXPECT_TRUE(verdict.fresh.empty());
  return verdict.refusal->key + ": " + verdict.refusal->why;
}

TEST(LoadVerdict, DrawsWhatIsMissingWhereItTrains) {
  const LoadVerdict verdict =
      judge({.missing = {"b"}, .unexpected = {"c"}, .mismatched = {}}, start());
  EXPECT_FALSE(verdict.refusal);
  EXPECT_EQ(verdict.fresh, std::vector<std::string>{"b"});
}

TEST(LoadVerdict, DrawsNoExpertsAmongTrainedOnes) {
  for (const char* name :
       {"model.layers.0.mlp.experts.3.up_proj.weight", "model.layers.0.mlp.experts.down_proj",
        "model.layers.0.block_sparse_moe.input_linear.weight"}) {
    const LoadReport report = {.missing = {name}, .unexpected = {}, .mismatched = {}};
    EXPECT_NE(refusal(report, start()).find(name), std::string::npos);
    EXPECT_EQ(judge(report, start()).refusal->kind, ErrorKind::kData);
  }
}

TEST(LoadVerdict, DrawsOtherShapesOnlyWhereTheKeySaysSo) {
  EXPECT_GOLDEN(refusal(kOtherShape, start()));
  EXPECT_EQ(judge(kOtherShape, start()).refusal->kind, ErrorKind::kData);
  LoadedStart lenient = start();
  lenient.ignores_mismatches = true;
  EXPECT_EQ(judge(kOtherShape, lenient).fresh, (std::vector<std::string>{"b", "a"}));
}

TEST(LoadVerdict, BlamesTheConfigurationThatWasNamed) {
  LoadedStart named = start();
  named.config_name = "other";
  EXPECT_GOLDEN(refusal(kOtherShape, named));
}

TEST(LoadVerdict, RefusesAFolderOfAnotherModel) {
  EXPECT_GOLDEN(
      refusal({.missing = {"a", "b", "c"}, .unexpected = {"x"}, .mismatched = {}}, start()));
  EXPECT_GOLDEN(refusal(
      {.missing = {"a", "b", "c"}, .unexpected = {"module.a", "module.b"}, .mismatched = {}},
      start()));
}

TEST(LoadVerdict, RefusesMissingWeightsWhereNothingTrains) {
  LoadedStart evaluated = start();
  evaluated.is_trained = false;
  EXPECT_GOLDEN(refusal({.missing = {"b"}, .unexpected = {}, .mismatched = {}}, evaluated));
}

TEST(LoadVerdict, RefusesABaseThatLacksFrozenWeights) {
  EXPECT_GOLDEN(refusal({.missing = {"b", "frozen"}, .unexpected = {}, .mismatched = {}}, start()));
}

}  // namespace
}  // namespace finetune
