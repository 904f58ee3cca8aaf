// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "finetune/base/error.h"
#include "finetune/kernels/block_attention.h"
#include "finetune/model/model.h"
#include "support/golden.h"

namespace finetune {
namespace {

using testing::HasSubstr;

const c10::Device kHeadDevice(c10::kCPU);
constexpr Head kHeads[] = {Head::kSequenceClassification, Head::kMultipleChoice,
                           Head::kTokenClassification, Head::kQuestionAnswering};

// Without dropout unless a test sets it.
ModelConfig tiny_head(const std::string& model_type) {
  ModelConfig config = default_model_config(model_type);
  config.vocab_size = 40;
  config.hidden_size = 16;
  config.num_hidden_layers = 1;
  config.num_attention_heads = 4;
  config.intermediate_size = 32;
  config.max_position_embeddings = 20;
  config.initializer_range = 0.3;
  config.hidden_dropout_prob = 0.0;
  config.attention_probs_dropout_prob = 0.0;
  config.attention_type = "original_full";
  config.sep_token_id = 2;
  if (model_type == "modernbert") config.pad_token_id = 0;
  return config;
}

bool has_all_heads(const std::string& type) {
  return !is_causal(default_model_config(type)) && type != "eurobert" && type != "nomic_bert" &&
         type != "gte" && type != "roformer";
}

// Whether heads of the family read classifier_dropout as BERT's do.
bool is_of_berts_kin(const std::string& type) {
  const std::set<std::string> others = {"modernbert", "deberta-v2", "distilbert",
                                        "electra",    "mpnet",      "eurobert",
                                        "nomic_bert", "gte",        "roformer"};
  return !is_causal(default_model_config(type)) && !others.contains(type);
}

Tensor head_ids(const std::vector<int64_t>& values, int64_t rows) {
  return at::tensor(values, at::kLong).view({rows, -1});
}

Tensor row() { return head_ids({3, 5, 2, 6, 7, 8, 2}, 1); }

Tensor run(Model& model, const Tensor& input_ids, std::optional<DropoutStream> dropout = {}) {
  ModelInput input;
  input.input_ids = input_ids;
  input.dropout = dropout;
  return model.logits(input).detach();
}

bool drops(Head head, const ModelConfig& config) {
  const auto model = make_model(head, config, 1, kHeadDevice);
  return !run(*model, row()).equal(run(*model, row(), DropoutStream{1, 2, 0}));
}

TEST(HeadModel, DropsInTheHeadWhatTransformersDrops) {
  for (const std::string& type : model_types()) {
    if (!is_of_berts_kin(type)) continue;
    ModelConfig config = tiny_head(type);
    for (const Head head : kHeads) {
      config.classifier_dropout.reset();
      EXPECT_FALSE(drops(head, config)) << type;
      config.classifier_dropout = 0.5;
      const bool asks = head == Head::kSequenceClassification ||
                        head == Head::kTokenClassification ||
                        (head == Head::kMultipleChoice && (type == "bert" || type == "ernie"));
      EXPECT_EQ(drops(head, config), asks) << type << " head " << static_cast<int>(head);
    }
  }
}

TEST(HeadModel, DropsInNewerHeadsWhatTransformersDrops) {
  for (const Head head : kHeads) {
    ModelConfig modernbert = tiny_head("modernbert");
    EXPECT_FALSE(drops(head, modernbert));
    modernbert.classifier_dropout = 0.5;
    EXPECT_TRUE(drops(head, modernbert)) << static_cast<int>(head);
    const bool pools = head == Head::kSequenceClassification || head == Head::kMultipleChoice;
    for (const bool of_the_input : {false, true}) {
      ModelConfig deberta = tiny_head("deberta-v2");
      EXPECT_FALSE(drops(head, deberta));
      if (of_the_input) {
        deberta.encoder.pooler_dropout = 0.5;
      } else {
        deberta.encoder.cls_dropout = 0.5;
      }
      EXPECT_EQ(drops(head, deberta), pools) << static_cast<int>(head) << of_the_input;
    }
    ModelConfig distilbert = tiny_head("distilbert");
    distilbert.encoder.qa_dropout = 0.0;
    distilbert.encoder.seq_classif_dropout = 0.0;
    EXPECT_FALSE(drops(head, distilbert));
    distilbert.encoder.seq_classif_dropout = 0.5;
    EXPECT_EQ(drops(head, distilbert), pools);
    distilbert.encoder.seq_classif_dropout = 0.0;
    distilbert.encoder.qa_dropout = 0.5;
    EXPECT_EQ(drops(head, distilbert), head == Head::kQuestionAnswering);
    ModelConfig electra = tiny_head("electra");
    EXPECT_EQ(drops(head, electra), head == Head::kMultipleChoice);  // by summary_last_dropout
    electra.encoder.summary_last_dropout = 0.0;
    electra.classifier_dropout = 0.5;
    EXPECT_EQ(drops(head, electra),
              head == Head::kSequenceClassification || head == Head::kTokenClassification);
  }
}

TEST(HeadModel, DropsByHiddenDropoutWhereTheHeadHasNone) {
  for (const std::string& type : model_types()) {
    if (!is_of_berts_kin(type)) continue;
    ModelConfig config = tiny_head(type);
    config.hidden_dropout_prob = 0.5;
    for (const Head head : kHeads) {
      // The encoder drops too, so compare with classifier_dropout 0: logits differ only if the head
      // drops.
      ModelConfig without = config;
      without.classifier_dropout = 0.0;
      const auto a = make_model(head, config, 1, kHeadDevice);
      const auto b = make_model(head, without, 1, kHeadDevice);
      const DropoutStream stream{1, 2, 0};
      const bool asks = head == Head::kSequenceClassification ||
                        head == Head::kTokenClassification ||
                        (head == Head::kMultipleChoice && (type == "bert" || type == "ernie"));
      EXPECT_EQ(!run(*a, row(), stream).equal(run(*b, row(), stream)), asks)
          << type << " head " << static_cast<int>(head);
    }
  }
}

TEST(HeadModel, DropsByTheRowsPositionInTheBatch) {
  for (const std::string& type : model_types()) {
    if (!has_all_heads(type)) continue;
    ModelConfig config = tiny_head(type);
    config.hidden_dropout_prob = 0.3;
    config.attention_probs_dropout_prob = 0.2;
    for (const Head head : kHeads) {
      const auto model = make_model(head, config, 1, kHeadDevice);
      const Tensor both = head_ids({3, 5, 2, 6, 7, 8, 2, 3, 9, 2, 4, 8, 6, 2}, 2);
      const Tensor together = run(*model, both, DropoutStream{1, 2, 5});
      const Tensor second = run(*model, both.narrow(0, 1, 1), DropoutStream{1, 2, 6});
      EXPECT_TRUE(at::allclose(together.narrow(0, 1, 1), second, 1e-4, 1e-5)) << type;
    }
  }
}

TEST(HeadModel, GivesOneShapeForEachHead) {
  for (const std::string& type : model_types()) {
    if (!has_all_heads(type)) continue;
    ModelConfig config = tiny_head(type);
    config.id2label = {"a", "b", "c"};
    const auto shape = [&](Head head) {
      return run(*make_model(head, config, 1, kHeadDevice), row()).sizes().vec();
    };
    EXPECT_THAT(shape(Head::kSequenceClassification), testing::ElementsAre(1, 3));
    EXPECT_THAT(shape(Head::kMultipleChoice), testing::ElementsAre(1, 1));
    EXPECT_THAT(shape(Head::kTokenClassification), testing::ElementsAre(1, 7, 3));
    EXPECT_THAT(shape(Head::kQuestionAnswering), testing::ElementsAre(1, 7, 2));
  }
}

ModelConfig tiny_decoder_head(const std::string& type) {
  if (type == "gpt2") {
    return override_model_config(default_model_config(type), {{"n_layer", 1},
                                                              {"n_embd", 16},
                                                              {"n_head", 4},
                                                              {"vocab_size", 40},
                                                              {"initializer_range", 0.3}});
  }
  Json keys = {{"num_hidden_layers", 1},  {"hidden_size", 32}, {"num_attention_heads", 4},
               {"intermediate_size", 32}, {"vocab_size", 40},  {"pad_token_id", 0},
               {"initializer_range", 0.3}};
  if (type != "gpt_neox" && type != "modernbert-decoder") keys["num_key_value_heads"] = 2;
  if (type == "gemma3n_text") keys["num_kv_shared_layers"] = 0;
  if (type == "olmoe" || type == "qwen3_moe") keys["num_experts"] = 8;
  if (type == "gpt_oss") keys["num_local_experts"] = 8;
  return override_model_config(default_model_config(type), keys);
}

// As in transformers.
bool has_sequence_classifier(const std::string& type) {
  return type != "granite" && type != "ernie4_5" && type != "nanochat" && type != "lfm2" &&
         type != "apertus" && type != "gemma4_text" && type != "gemma3n_text" && type != "olmoe" &&
         type != "granitemoe";
}
bool has_token_classifier(const std::string& type) {
  return has_sequence_classifier(type) && type != "olmo2" && type != "olmo3" &&
         type != "gemma3_text" && type != "hunyuan_v1_dense" && type != "modernbert-decoder" &&
         type != "qwen3_5_text";
}

TEST(HeadModel, OfADecoderIsAClassifier) {
  for (const std::string& type : model_types()) {
    if (!is_causal(default_model_config(type))) continue;
    ModelConfig config = tiny_decoder_head(type);
    config.id2label = {"a", "b", "c"};
    if (!has_sequence_classifier(type)) {
      EXPECT_THROW((void)make_model(Head::kSequenceClassification, config, 1, kHeadDevice), Error);
      continue;
    }
    const auto model = make_model(Head::kSequenceClassification, config, 1, kHeadDevice);
    EXPECT_THAT(run(*model, row()).sizes().vec(), testing::ElementsAre(1, 3));
    EXPECT_EQ(model->parameters().back().name,
              type == "modernbert-decoder" ? "classifier.weight" : "score.weight")
        << type;
    if (has_token_classifier(type)) {
      const auto tokens = make_model(Head::kTokenClassification, config, 1, kHeadDevice);
      EXPECT_THAT(run(*tokens, row()).sizes().vec(), testing::ElementsAre(1, 7, 3));
      EXPECT_EQ(tokens->parameters().back().name,
                type == "gpt2" || type == "gpt_neox" ? "classifier.bias" : "score.bias");
    } else {
      EXPECT_THROW((void)make_model(Head::kTokenClassification, config, 1, kHeadDevice), Error);
    }
    EXPECT_THROW((void)make_model(Head::kMultipleChoice, config, 1, kHeadDevice), Error) << type;
  }
  EXPECT_EQ(
      make_model(Head::kSequenceClassification, tiny_decoder_head("gemma3_text"), 1, kHeadDevice)
          ->architecture(),
      "Gemma3TextForSequenceClassification");
}

// The last token that is not padding, on either side and with or without a mask.
TEST(HeadModel, OfADecoderReadsTheLastTokenOfEachRow) {
  for (const std::string& type : model_types()) {
    if (!is_causal(default_model_config(type)) || !has_sequence_classifier(type)) continue;
    ModelConfig config = tiny_decoder_head(type);
    for (const bool knows_padding : {true, false}) {
      config.decoder.pad_token_id.reset();
      if (knows_padding) config.decoder.pad_token_id = config.pad_token_id = 0;
      const auto model = make_model(Head::kSequenceClassification, config, 1, kHeadDevice);
      ModelInput padded;
      padded.input_ids = head_ids({3, 5, 2, 6, 7, 8, 2, 0, 0, 3, 9, 2, 4, 5, 6, 9, 8, 2}, 2);
      padded.attention_mask = padded.input_ids.ne(0);
      const Tensor both = model->logits(padded).detach();
      EXPECT_TRUE(at::allclose(both.narrow(0, 0, 1), run(*model, row()), 1e-4, 1e-5)) << type;
      const Tensor longer = run(*model, padded.input_ids.narrow(0, 1, 1));
      EXPECT_TRUE(at::allclose(both.narrow(0, 1, 1), longer, 1e-4, 1e-5)) << type;
    }
  }
}

TEST(HeadModel, AnswersWithTwoLabelsWhateverTheFolderHad) {
  ModelConfig config = tiny_head("bert");
  config.id2label = {"a", "b", "c"};
  const auto model = make_model(Head::kQuestionAnswering, config, 1, kHeadDevice);
  EXPECT_EQ(model->config().id2label.size(), 2U);
  EXPECT_EQ(model->architecture(), "BertForQuestionAnswering");
}

TEST(HeadModel, GivesTheSameForPaddedAndUnpaddedRows) {
  for (const std::string& type : model_types()) {
    if (!has_all_heads(type)) continue;
    const ModelConfig config = tiny_head(type);
    const int64_t pad = config.pad_token_id;
    for (const Head head : kHeads) {
      const auto model = make_model(head, config, 1, kHeadDevice);
      ModelInput padded;
      padded.input_ids = head_ids({3, 5, 2, 6, 7, 8, 2, pad, pad, 3, 9, 2, 4, 5, 6, 9, 8, 2}, 2);
      padded.attention_mask = padded.input_ids.ne(pad);
      Tensor first = model->logits(padded).detach().narrow(0, 0, 1);
      if (first.dim() == 3) first = first.narrow(1, 0, 7);
      EXPECT_TRUE(at::allclose(first, run(*model, row()), 1e-4, 1e-5)) << type;
    }
  }
}

TEST(HeadModel, InitialisesEachFamilysPaddingRows) {
  for (const std::string& type : model_types()) {
    if (!has_all_heads(type)) continue;
    const auto model = make_model(Head::kMultipleChoice, tiny_head(type), 1, kHeadDevice);
    const int64_t pad = model->config().pad_token_id;
    for (const NamedTensor& p : model->parameters()) {
      if (!p.name.ends_with("embeddings.weight")) continue;
      if (p.name.ends_with("token_type_embeddings.weight")) continue;
      const bool is_zero = p.tensor[pad].abs().max().item<float>() == 0.0F;
      const bool expected = p.name.ends_with("word_embeddings.weight") ||
                            type.find("roberta") != std::string::npos || type == "camembert" ||
                            type == "mpnet";
      EXPECT_EQ(is_zero, expected) << p.name << " of " << type;
    }
  }
}

ModelConfig sparse() {
  ModelConfig config = tiny_head("big_bird");
  config.attention_type = "block_sparse";
  config.block_size = 2;
  config.num_random_blocks = 1;  // full attention up to 14 tokens
  config.max_position_embeddings = 40;
  config.num_hidden_layers = 2;  // then the first token, which classifies, attends to all tokens
  return config;
}

Tensor counted_ids(int64_t tokens) {
  return at::arange(tokens, at::kLong).remainder(20).add(5).unsqueeze(0);
}

TEST(BigBird, TakesFullAttentionForShortBatchesAlone) {
  const auto model = make_model(Head::kSequenceClassification, sparse(), 1, kHeadDevice);
  ModelConfig full = sparse();
  full.attention_type = "original_full";
  const auto other = make_model(Head::kSequenceClassification, full, 1, kHeadDevice);
  for (const int64_t tokens : {14, 15, 14, 23}) {
    const int64_t before = count_block_sparse_passes();
    const Tensor result = run(*model, counted_ids(tokens));
    const bool is_sparse = tokens > 14;
    EXPECT_EQ(count_block_sparse_passes() > before, is_sparse) << tokens;
    EXPECT_EQ(at::allclose(result, run(*other, counted_ids(tokens)), 1e-6, 1e-7), !is_sparse);
  }
}

TEST(BigBird, SaysOnceWhichAttentionItTakes) {
  testing::internal::CaptureStderr();
  const auto model = make_model(Head::kMultipleChoice, sparse(), 1, kHeadDevice);
  for (const int64_t tokens : {9, 20, 10, 21}) (void)run(*model, counted_ids(tokens));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_GOLDEN(said);
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2);
}

TEST(BigBird, TakesItsRandomBlocksFromTheConfiguration) {
  ModelConfig config = sparse();
  const auto result = [&] {
    return run(*make_model(Head::kSequenceClassification, config, 1, kHeadDevice), counted_ids(28));
  };
  const Tensor without = result();
  config.random_blocks_seed = 0;
  EXPECT_TRUE(result().equal(without));
  config.random_blocks_seed = 7;
  EXPECT_FALSE(result().equal(without));
  config.bigbird_compat = "huggingface";
  EXPECT_FALSE(result().equal(without));
}

TEST(BigBird, KeepsTheQuestionOutOfTheAnswer) {
  const auto model = make_model(Head::kQuestionAnswering, tiny_head("big_bird"), 1, kHeadDevice);
  const Tensor start = run(*model, row()).select(2, 0)[0];  // 3 5 2 | 6 7 8 2
  for (const int64_t t : {1, 2}) EXPECT_LT(start[t].item<float>(), -9e5F);
  for (const int64_t t : {0, 3, 4, 5, 6}) EXPECT_GT(start[t].item<float>(), -100.0F);
}

TEST(BigBird, AnswersWithoutASeparatorToo) {
  const auto model = make_model(Head::kQuestionAnswering, tiny_head("big_bird"), 1, kHeadDevice);
  EXPECT_GT(run(*model, head_ids({3, 5, 6, 7}, 1)).min().item<float>(), -100.0F);
}

TEST(BigBird, RefusesQuestionsWithoutAKnownSeparator) {
  ModelConfig config = tiny_head("big_bird");
  config.sep_token_id.reset();
  try {
    (void)make_model(Head::kQuestionAnswering, config, 1, kHeadDevice);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("needs sep_token_id"));
  }
}

TEST(Model, RefusesAFamilyWithoutAClass) {
  ModelConfig config = tiny_head("roberta");
  config.model_type = "t5";
  try {
    (void)make_model(std::nullopt, config, 1, kHeadDevice);
    FAIL();
  } catch (const Error& error) {
    EXPECT_GOLDEN(error.what());
  }
}

}  // namespace
}  // namespace finetune
