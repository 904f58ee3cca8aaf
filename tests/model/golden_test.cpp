// SPDX-License-Identifier: MIT
// Compares every family with every head with values of transformers:
// tests/fixtures/model/make_goldens.py.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/model_files.h"
#include "finetune/model/model.h"
#include "finetune/tensor/model_tensors.h"
#include "finetune/tensor/safetensors.h"
#include "support/paths.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

const c10::Device kGoldenDevice(c10::kCPU);

struct Case {
  std::string name;
  std::optional<Head> head;
};

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const std::string family :
       {"bert", "roberta", "xlm-roberta", "big_bird", "modernbert", "deberta-v2", "distilbert",
        "electra", "camembert", "ernie", "mpnet", "xlm-roberta-xl", "roformer"}) {
    list.push_back({family + "-masked_lm", std::nullopt});
    list.push_back({family + "-sequence_classification", Head::kSequenceClassification});
    if (family != "roformer") {
      list.push_back({family + "-multiple_choice", Head::kMultipleChoice});
    }
    list.push_back({family + "-token_classification", Head::kTokenClassification});
    list.push_back({family + "-question_answering", Head::kQuestionAnswering});
  }
  for (const char* name :
       {"bert-masked_lm-untied", "roberta-masked_lm-untied", "big_bird-masked_lm-rescaled",
        "modernbert-masked_lm-biased", "modernbert-masked_lm-scaled", "deberta-v2-masked_lm-v3",
        "deberta-v2-masked_lm-unshared", "deberta-v2-masked_lm-unbucketed",
        "deberta-v2-masked_lm-absolute", "distilbert-masked_lm-untied",
        "electra-masked_lm-untied"}) {
    list.push_back({name, std::nullopt});
  }
  list.push_back({"modernbert-sequence_classification-mean", Head::kSequenceClassification});
  list.push_back({"modernbert-multiple_choice-mean", Head::kMultipleChoice});
  list.push_back({"deberta-v2-token_classification-p2c", Head::kTokenClassification});
  list.push_back({"electra-multiple_choice-unprojected", Head::kMultipleChoice});
  for (const char* name : {"eurobert-masked_lm", "eurobert-masked_lm-tied"}) {
    list.push_back({name, std::nullopt});
  }
  for (const char* more : {"", "-mean", "-bos"}) {
    list.push_back(
        {std::string("eurobert-sequence_classification") + more, Head::kSequenceClassification});
  }
  list.push_back({"eurobert-token_classification", Head::kTokenClassification});
  for (const std::string family : {"nomic_bert", "gte"}) {
    list.push_back({family + "-masked_lm", std::nullopt});
    list.push_back({family + "-sequence_classification", Head::kSequenceClassification});
    list.push_back({family + "-token_classification", Head::kTokenClassification});
  }
  list.push_back({"gte-masked_lm-untyped", std::nullopt});
  // make_decoder_goldens.py
  for (const char* name : {"llama",
                           "llama-tied",
                           "llama-biased",
                           "llama-linear",
                           "llama-dynamic",
                           "llama-yarn",
                           "llama-llama3",
                           "llama-longrope",
                           "llama-proportional",
                           "mistral",
                           "qwen2",
                           "qwen3",
                           "gemma",
                           "gemma2",
                           "gemma3_text",
                           "phi3",
                           "phi3-longrope",
                           "olmo2",
                           "smollm3",
                           "gpt2",
                           "gpt2-scaled",
                           "ministral",
                           "olmo3",
                           "granite",
                           "seed_oss",
                           "glm4",
                           "helium",
                           "ernie4_5",
                           "starcoder2",
                           "arcee",
                           "gpt_neox",
                           "gpt_neox-sequential",
                           "phi",
                           "stablelm",
                           "stablelm-parallel",
                           "exaone4",
                           "hunyuan_v1_dense",
                           "ministral3",
                           "nanochat",
                           "modernbert-decoder",
                           "lfm2",
                           "apertus",
                           "lfm2-biased",
                           "qwen3_5_text",
                           "gemma4_text",
                           "gemma4_text-shared",
                           "gemma3n_text",
                           "qwen3_moe",
                           "olmoe",
                           "granitemoe",
                           "gpt_oss"}) {
    list.push_back({name, std::nullopt});
  }
  return list;
}

// A model with the weights of a golden folder, and its output for that folder's batch.
class Golden : public testing::TestWithParam<Case> {
 protected:
  Golden()
      : folder_(source_dir() + "/tests/fixtures/model/" + GetParam().name),
        batch_(SafetensorsFile::open(FileSystem::local(), folder_ + "/expected.safetensors")),
        expected_(read_json_file(folder_ + "/expected.json")) {
    const ModelConfig config = read_model_config(folder_);
    if (GetParam().head) {
      head_model_ = make_model(*GetParam().head, config, 7, kGoldenDevice);
    } else {
      masked_lm_ = make_model(std::nullopt, config, 7, kGoldenDevice);
    }
  }

  Model& model() { return head_model_ ? static_cast<Model&>(*head_model_) : *masked_lm_; }

  LoadReport load() {
    const ModelTensors tensors = load_model_tensors(FileSystem::local(), folder_, /*maps=*/false,
                                                    stored_names(model().config()));
    std::vector<std::string> names;
    for (const TensorInfo& info : tensors.tensors()) names.push_back(info.name);
    return load_weights(
        model(), names, [&](const std::string& name) { return tensors.read(name); }, folder_);
  }

  Tensor logits() {
    ModelInput input;
    input.input_ids = batch_.read("input_ids");
    input.attention_mask = batch_.read("attention_mask").to(at::kBool);
    if (batch_.has("token_type_ids")) input.token_type_ids = batch_.read("token_type_ids");
    if (head_model_) return head_model_->logits(input);
    const Tensor every_position = at::arange(input.input_ids.numel(), at::kLong);
    const auto rows = input.input_ids.size(0);
    return masked_lm_->logits(input, every_position).unflatten(0, {rows, -1});
  }

  // Returns 1 for logits to compare, 0 after the last token of a row of a causal model.
  [[nodiscard]] Tensor compared(const Tensor& logits) {
    if (!is_causal(model().config())) return at::ones_like(logits);
    return batch_.read("attention_mask").to(at::kFloat).unsqueeze(-1).expand_as(logits);
  }

  // Those that transformers numbers: without buffers of its modules. It has the matrices of all
  // experts of a layer as two parameters, the same in its files as here; these are the first of
  // them.
  NamedTensors numbered() {
    NamedTensors list;
    for (NamedTensor& one : model().parameters()) {
      const auto has = [&](const NamedTensor& other) { return other.name == name_of(one.name); };
      if (std::ranges::any_of(list, has)) continue;
      one.name = name_of(one.name);
      list.push_back(std::move(one));
    }
    std::erase_if(list,
                  [](const NamedTensor& one) { return one.role == ParameterRole::kConstant; });
    return list;
  }

  // "mlp.experts.gate_up_proj" of "mlp.experts.3.up_proj.weight", and what granitemoe's files name
  // otherwise than its class.
  static std::string name_of(const std::string& name) {
    const std::string start = name.substr(0, name.find("block_sparse_moe."));
    if (name.ends_with(".input_linear.weight")) {
      return start + "block_sparse_moe.experts.gate_up_proj";
    }
    if (name.ends_with(".output_linear.weight")) {
      return start + "block_sparse_moe.experts.down_proj";
    }
    if (name.ends_with(".router.layer.weight")) return start + "block_sparse_moe.router.weight";
    if (!is_of_one_expert(name)) return name;
    const size_t experts = name.find(".experts.");
    const bool is_down = name.ends_with(".down_proj.weight");
    return name.substr(0, experts) + ".experts." + (is_down ? "down_proj" : "gate_up_proj");
  }

  // Of the gradients of all that transformers numbers as one; nullopt: there is none.
  std::optional<double> gradient_norm(const std::string& name) {
    std::optional<double> squares;
    for (const NamedTensor& one : model().parameters()) {
      if (name_of(one.name) != name || !one.tensor.grad().defined()) continue;
      squares = squares.value_or(0.0) + std::pow(one.tensor.grad().norm().item<double>(), 2);
    }
    return squares ? std::optional(std::sqrt(*squares)) : std::nullopt;
  }

  std::string folder_;
  SafetensorsFile batch_;
  Json expected_;
  std::unique_ptr<Model> masked_lm_;
  std::unique_ptr<Model> head_model_;
};

TEST_P(Golden, NumbersItsParametersAsTransformersDoesAndDecaysTheSame) {
  std::vector<std::string> names;
  std::vector<bool> decays;
  for (const NamedTensor& parameter : numbered()) {
    names.push_back(parameter.name);
    decays.push_back(has_weight_decay(parameter.name));
  }
  std::vector<std::string> expected_names;
  std::vector<bool> expected_decays;
  const bool is_tied = model().config().tie_word_embeddings;
  for (const Json& row : expected_) {
    // The same tensor: transformers lists the head's name first in models whose head is registered
    // first.
    const auto name = row[0].get<std::string>();
    expected_names.push_back(is_tied && name == "lm_head.decoder.weight"
                                 ? "roberta.embeddings.word_embeddings.weight"
                                 : name);
    expected_decays.push_back(row[1].get<bool>());
  }
  EXPECT_EQ(names, expected_names);
  EXPECT_EQ(decays, expected_decays);
}

// float32 with other orders of summation: logits of magnitude 1 to 10 agree to six digits.
TEST_P(Golden, GivesTheSameLogits) {
  const LoadReport report = load();
  EXPECT_THAT(report.missing, testing::IsEmpty());
  EXPECT_THAT(report.unexpected, testing::IsEmpty());
  const Tensor expected = batch_.read("logits");
  const Tensor got = logits().detach();
  ASSERT_EQ(got.sizes(), expected.sizes());
  const Tensor excess = ((got - expected).abs() - 1e-5 * expected.abs()) * compared(got);
  EXPECT_LT(excess.max().item<float>(), 1e-5F);
}

// 1e-4 relative: a gradient is a sum of many products of both signs, which partly cancel.
TEST_P(Golden, GivesEveryParameterTheSameGradient) {
  (void)load();
  const Tensor out = logits();
  const Tensor weight = (at::arange(out.numel(), at::kLong).remainder(7) - 3).view(out.sizes()) / 3;
  (out * weight * compared(out)).sum().backward();
  const NamedTensors parameters = numbered();
  ASSERT_EQ(parameters.size(), expected_.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::optional<double> own = gradient_norm(parameters[i].name);
    const Json& norm = expected_[i][2];
    ASSERT_EQ(own.has_value(), !norm.is_null()) << parameters[i].name;
    if (norm.is_null()) continue;
    const auto expected = norm.get<double>();
    EXPECT_NEAR(*own, expected, 1e-4 * expected + 1e-4) << parameters[i].name;
  }
}

TEST_P(Golden, WritesTheConfigurationThatTransformersWrote) {
  Json expected = read_json_file(folder_ + "/config.json");
  expected.erase("transformers_version");
  EXPECT_EQ(model_config_json(model().config(), model().architecture()),
            expected.dump(2, ' ', true) + "\n");
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, testing::ValuesIn(cases()), [](const auto& parameter) {
  std::string name = parameter.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace finetune
