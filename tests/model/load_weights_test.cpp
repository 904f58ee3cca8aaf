// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "finetune/base/error.h"
#include "finetune/model/model.h"
#include "finetune/model/model_folder.h"
#include "support/golden.h"
#include "support/paths.h"

namespace finetune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

const c10::Device kLoadDevice(c10::kCPU);
constexpr int64_t kWidth = 8;
constexpr int64_t kVocabulary = 12;

ModelConfig tiny_loaded(const std::string& model_type) {
  ModelConfig config = default_model_config(model_type);
  config.vocab_size = kVocabulary;
  config.hidden_size = kWidth;
  config.num_hidden_layers = 1;
  config.num_attention_heads = 2;
  config.intermediate_size = 16;
  config.max_position_embeddings = 10;
  return config;
}

using Folder = std::map<std::string, Tensor>;

LoadReport load(Model& model, const Folder& folder, const LoadOptions& options = {}) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : folder) names.push_back(name);
  return load_weights(
      model, names, [&](const std::string& name) { return folder.at(name); }, "m", options);
}

std::string refusal(Model& model, const Folder& folder) {
  try {
    load(model, folder);
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

Tensor parameter(const Model& model, const std::string& name) {
  for (const NamedTensor& p : model.parameters()) {
    if (p.name == name) return p.tensor;
  }
  throw std::logic_error("no parameter " + name);
}

// All weights of a model, changed so that loading them is visible.
Folder weights(const Model& model) {
  Folder folder;
  for (const NamedTensor& p : model.parameters()) folder[p.name] = p.tensor.detach() + 1.0;
  return folder;
}

void expect_loaded(const Model& model, const Folder& folder) {
  for (const auto& [name, tensor] : folder) {
    EXPECT_TRUE(parameter(model, name).equal(tensor)) << name;
  }
}

TEST(LoadWeights, AddsTheEncodersNameToABareEncoder) {
  const auto model = make_model(std::nullopt, tiny_loaded("roberta"), 1, kLoadDevice);
  const Folder whole = weights(*model);
  Folder bare;
  for (const auto& [name, tensor] : whole) {
    bare[name.starts_with("roberta.") ? name.substr(8) : name] = tensor;
  }
  const LoadReport report = load(*model, bare);
  EXPECT_THAT(report.missing, IsEmpty());
  EXPECT_THAT(report.unexpected, IsEmpty());
  expect_loaded(*model, whole);
}

TEST(LoadWeights, ReadsGammaAndBetaAsWeightAndBias) {
  const auto model = make_model(std::nullopt, tiny_loaded("bert"), 1, kLoadDevice);
  const Folder whole = weights(*model);
  Folder old;
  for (const auto& [name, tensor] : whole) {
    std::string renamed = name;
    if (name.ends_with("LayerNorm.weight")) renamed.replace(name.size() - 6, 6, "gamma");
    if (name.ends_with("LayerNorm.bias")) renamed.replace(name.size() - 4, 4, "beta");
    old[renamed] = tensor;
  }
  EXPECT_EQ(old.count("bert.embeddings.LayerNorm.gamma"), 1U);
  const LoadReport report = load(*model, old);
  EXPECT_THAT(report.missing, IsEmpty());
  EXPECT_THAT(report.unexpected, IsEmpty());
  expect_loaded(*model, whole);
}

TEST(LoadWeights, PassesOverBuffersAndTiedCopies) {
  const auto model = make_model(std::nullopt, tiny_loaded("bert"), 1, kLoadDevice);
  Folder folder = weights(*model);
  folder["bert.embeddings.position_ids"] = at::zeros({1, 10}, at::kLong);
  folder["cls.predictions.decoder.weight"] = folder["bert.embeddings.word_embeddings.weight"];
  folder["cls.predictions.decoder.bias"] = folder["cls.predictions.bias"];
  EXPECT_THAT(load(*model, folder).unexpected, IsEmpty());
}

TEST(LoadWeights, FindsTiedTensorsUnderTheirOtherNames) {
  for (const char* type : {"bert", "roberta", "xlm-roberta", "big_bird"}) {
    const auto model = make_model(std::nullopt, tiny_loaded(type), 1, kLoadDevice);
    const std::string head = std::string(type).ends_with("roberta") ? "lm_head" : "cls.predictions";
    const std::string encoder = head == "lm_head" ? "roberta." : "bert.";
    const Folder whole = weights(*model);
    Folder folder = whole;
    const auto rename = [&](const std::string& from, const std::string& to) {
      auto node = folder.extract(from);
      node.key() = to;
      folder.insert(std::move(node));
    };
    rename(encoder + "embeddings.word_embeddings.weight", head + ".decoder.weight");
    rename(head + ".bias", head + ".decoder.bias");
    const LoadReport report = load(*model, folder);
    EXPECT_THAT(report.missing, IsEmpty()) << type;
    EXPECT_THAT(report.unexpected, IsEmpty()) << type;
    expect_loaded(*model, whole);
  }
}

TEST(LoadWeights, RefusesTiedTensorsThatDiffer) {
  const auto model = make_model(std::nullopt, tiny_loaded("roberta"), 1, kLoadDevice);
  Folder folder = weights(*model);
  folder["lm_head.decoder.weight"] = folder["roberta.embeddings.word_embeddings.weight"] + 1;
  EXPECT_GOLDEN(refusal(*model, folder));
}

TEST(LoadWeights, KeepsAnUntiedDecoderApart) {
  ModelConfig config = tiny_loaded("roberta");
  config.tie_word_embeddings = false;
  const auto model = make_model(std::nullopt, config, 1, kLoadDevice);
  const Folder folder = weights(*model);
  EXPECT_EQ(folder.count("lm_head.decoder.weight") + folder.count("lm_head.decoder.bias"), 2U);
  EXPECT_THAT(load(*model, folder).missing, IsEmpty());
  expect_loaded(*model, folder);
}

TEST(LoadWeights, GivesAnUntiedDecoderTheOnlyBiasThatThereIs) {
  ModelConfig config = tiny_loaded("roberta");
  config.tie_word_embeddings = false;
  const auto model = make_model(std::nullopt, config, 1, kLoadDevice);
  Folder folder = weights(*model);
  folder.erase("lm_head.decoder.bias");
  EXPECT_THAT(load(*model, folder).missing, IsEmpty());
  EXPECT_TRUE(parameter(*model, "lm_head.decoder.bias").equal(folder["lm_head.bias"]));
}

TEST(LoadWeights, StartsAHeadAfreshThatTheFolderLacks) {
  const auto pretrained = make_model(std::nullopt, tiny_loaded("bert"), 1, kLoadDevice);
  const auto model = make_model(Head::kTokenClassification, tiny_loaded("bert"), 2, kLoadDevice);
  const Tensor fresh = parameter(*model, "classifier.weight").detach().clone();
  const LoadReport report = load(*model, weights(*pretrained));
  EXPECT_THAT(report.missing, ElementsAre("classifier.weight", "classifier.bias"));
  EXPECT_THAT(report.unexpected,
              UnorderedElementsAre("cls.predictions.bias", "cls.predictions.transform.dense.weight",
                                   "cls.predictions.transform.dense.bias",
                                   "cls.predictions.transform.LayerNorm.weight",
                                   "cls.predictions.transform.LayerNorm.bias"));
  EXPECT_TRUE(parameter(*model, "classifier.weight").equal(fresh));
}

// Drawing 135 million weights takes seconds; a loaded model skips it.
TEST(LoadWeights, DrawsOnlyWhatTheFolderLacksToTheSameValues) {
  const auto pretrained = make_model(std::nullopt, tiny_loaded("bert"), 1, kLoadDevice);
  const auto drawn = make_model(Head::kTokenClassification, tiny_loaded("bert"), 2, kLoadDevice);
  const auto bare = make_model(Head::kTokenClassification, tiny_loaded("bert"), 2, kLoadDevice,
                               {.draw_weights = false});
  load(*drawn, weights(*pretrained));
  const LoadReport report = load(*bare, weights(*pretrained));
  draw_weights(*bare, 2, report.missing);
  for (const NamedTensor& p : drawn->parameters()) {
    EXPECT_TRUE(parameter(*bare, p.name).equal(p.tensor)) << p.name;
  }
}

TEST(LoadWeights, ListsEveryTensorOfAnotherShapeAtOnce) {
  const auto model = make_model(Head::kSequenceClassification, tiny_loaded("bert"), 2, kLoadDevice);
  Folder folder = weights(*model);
  folder["classifier.weight"] = at::zeros({5, kWidth});
  folder["classifier.bias"] = at::zeros({5});
  EXPECT_THAT(
      refusal(*model, folder),
      testing::AllOf(
          HasSubstr("m: tensor 'classifier.weight' has the shape [5, 8], but config.json asks for "
                    "[2, 8]"),
          HasSubstr("tensor 'classifier.bias' has the shape [5], but config.json asks for [2]")));
}

TEST(LoadWeights, LeavesAnotherShapeFreshWhereAskedTo) {
  const auto model = make_model(Head::kSequenceClassification, tiny_loaded("bert"), 2, kLoadDevice);
  const Tensor fresh = parameter(*model, "classifier.weight").detach().clone();
  Folder folder = weights(*model);
  folder["classifier.weight"] = at::zeros({5, kWidth});
  const LoadReport report = load(*model, folder, {.ignore_mismatched_sizes = true});
  ASSERT_EQ(report.mismatched.size(), 1U);
  EXPECT_EQ(report.mismatched[0].name, "classifier.weight");
  EXPECT_THAT(report.mismatched[0].folder_shape, ElementsAre(5, kWidth));
  EXPECT_THAT(report.mismatched[0].model_shape, ElementsAre(2, kWidth));
  EXPECT_THAT(report.missing, IsEmpty());
  EXPECT_TRUE(parameter(*model, "classifier.weight").equal(fresh));
  EXPECT_TRUE(parameter(*model, "classifier.bias").equal(folder["classifier.bias"]));
}

TEST(LoadWeights, ReadsHalfPrecision) {
  const auto model = make_model(Head::kSequenceClassification, tiny_loaded("bert"), 2, kLoadDevice);
  load(*model, {{"classifier.bias", at::full({2}, 0.5, at::kHalf)}});
  EXPECT_TRUE(parameter(*model, "classifier.bias").equal(at::full({2}, 0.5)));
}

// Constants and tables of a formula: what is computed does not depend on the file.
TEST(LoadWeights, NeedsNoValuesOfAFormulaAndRefusesOthers) {
  for (const auto& [type, name] :
       {std::pair("apertus", "model.layers.0.mlp.act_fn.eps"),
        std::pair("roformer", "roformer.encoder.embed_positions.weight")}) {
    ModelConfig config = tiny_loaded(type);
    config.encoder.embedding_size = kWidth;
    config.decoder.num_key_value_heads = 2;
    config.decoder.head_dim = 4;
    const auto model = make_model(std::nullopt, config, 3, kLoadDevice, {});
    Folder folder;
    for (const NamedTensor& p : model->parameters()) folder[p.name] = p.tensor.detach().clone();
    folder.at(name) = folder.at(name).to(at::kBFloat16);  // as 16 bits round it
    EXPECT_THAT(load(*model, folder).missing, IsEmpty());
    Folder without = folder;
    without.erase(name);
    const Tensor before = parameter(*model, name).clone();
    EXPECT_THAT(load(*model, without).missing, IsEmpty());
    EXPECT_TRUE(parameter(*model, name).allclose(before, 0.01, 1e-2));
    folder.at(name) = folder.at(name) * 1.5;
    EXPECT_THAT(refusal(*model, folder), HasSubstr("other values than those of its formula"));
  }
}

// Google's files have keys of layers that read those of others.
TEST(LoadWeights, PassesOverKeysOfLayersThatReadThoseOfOthers) {
  const ModelConfig config =
      read_model_config(source_dir() + "/tests/fixtures/model/gemma4_text-shared");
  const auto model = make_model(std::nullopt, config, 3, kLoadDevice, {});
  Folder folder;
  for (const NamedTensor& p : model->parameters()) folder[p.name] = p.tensor.detach().clone();
  folder["model.layers.4.self_attn.k_proj.weight"] = at::ones({24, 16});
  folder["model.layers.3.self_attn.v_norm.weight"] = at::ones({8});
  EXPECT_THAT(load(*model, folder).unexpected, IsEmpty());
  folder["model.layers.1.self_attn.v_norm.weight"] = at::ones({12});
  EXPECT_THAT(load(*model, folder).unexpected,
              testing::ElementsAre("model.layers.1.self_attn.v_norm.weight"));
}

TEST(LoadWeights, RefusesBrokenAndQuantizedTensors) {
  const auto model = make_model(Head::kSequenceClassification, tiny_loaded("bert"), 2, kLoadDevice);
  const Tensor broken = at::full({2}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_GOLDEN(refusal(*model, {{"classifier.bias", broken}}));
  EXPECT_GOLDEN(refusal(*model, {{"classifier.bias", at::ones({2}, at::kChar)}}));
}

}  // namespace
}  // namespace finetune
