// SPDX-License-Identifier: MIT
#include "finetune/plan/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/config/load.h"
#include "finetune/kernels/kernels_in_use.h"
#include "finetune/plan/exchange_script.h"
#include "support/golden.h"

namespace finetune {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kParameters = 83'504'416;
constexpr int64_t kWords = 52'000 * 768;

// EsperBERTo with 64 x 128 tokens per update.
MemoryWorkload esperanto() {
  ModelConfig model;
  model.vocab_size = 52000;
  model.num_hidden_layers = 6;
  model.max_position_embeddings = 514;
  model.type_vocab_size = 1;
  return {.model = model,
          .head = std::nullopt,
          .length = 128,
          .effective_batch = 64,
          .program = 150 * kMiB};
}

MemoryParts parts_with(const std::function<void(MemoryChoices&)>& change) {
  MemoryChoices choices{.micro_batch = 16};
  change(choices);
  return predict_memory(esperanto(), choices);
}

LoadedConfig config_of(const std::string& text) {
  return load_config_text("model_type: roberta\ntokenizer_name: ./t\ntrain_file: a\n" + text,
                          "run.yaml", {});
}

TEST(MemoryPlan, KeepsWeightsInTheirFormat) {
  EXPECT_EQ(parts_with([](MemoryChoices&) {}).weights, 4 * kParameters);
  EXPECT_EQ(parts_with([](MemoryChoices& c) { c.weights = WeightFormat::kSplit; }).weights,
            3 * kParameters);
  EXPECT_EQ(parts_with([](MemoryChoices& c) { c.weights = WeightFormat::kBFloat16; }).weights,
            2 * kParameters);
}

TEST(MemoryPlan, KeepsGradientsUntilTheUpdate) {
  EXPECT_EQ(parts_with([](MemoryChoices&) {}).gradients, 4 * kParameters);
  EXPECT_EQ(parts_with([](MemoryChoices& c) { c.gradients = GradientFormat::kBFloat16; }).gradients,
            2 * kParameters);
}

TEST(MemoryPlan, KeepsGradientsAndStatesOfAnAdapterAlone) {
  MemoryWorkload workload = esperanto();
  workload.model.lora = nn::LoraConfig{.r = 4};
  workload.base.weights = WeightFormat::kFloat32;
  const MemoryParts parts = predict_memory(workload, {.micro_batch = 16});
  // Of each layer four square matrices and two of the feed-forward network; the head's own layer.
  const int64_t adapter = 4 * (6 * (4 * (768 + 768) + 2 * (768 + 3072)) + (768 + 768));
  EXPECT_EQ(parts.gradients, 4 * adapter);
  EXPECT_EQ(parts.states, 8 * adapter);
}

// One micro-batch an update: when its last gradient is made, the activations are freed.
TEST(MemoryPlan, CountsGradientsOrActivationsOfASingleMicroBatch) {
  MemoryWorkload single = esperanto();
  single.effective_batch = 16;
  const MemoryChoices choices{.micro_batch = 16};
  const MemoryParts parts = predict_memory(single, choices);
  EXPECT_LT(parts.peak(), predict_memory(esperanto(), choices).peak() - 100 * kMiB);
  single.length = 4;
  EXPECT_EQ(predict_memory(single, choices).gradients, 4 * kParameters) << "in the update";
  single.processes = 2;
  EXPECT_EQ(predict_memory(single, choices).gradients, 4 * kParameters);
}

TEST(MemoryPlan, KeepsTheTiedEmbeddingsGradientAndOneLayersInTheBackwardUpdate) {
  const int64_t layer = 4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768;
  const int64_t gradients =
      parts_with([](MemoryChoices& c) { c.optimizer_in_backward = true; }).gradients;
  EXPECT_GE(gradients, 4 * kWords);
  EXPECT_LE(gradients, 4 * (kWords + layer));
  MemoryWorkload untied = esperanto();
  untied.model.tie_word_embeddings = false;
  const MemoryParts parts =
      predict_memory(untied, {.micro_batch = 16, .optimizer_in_backward = true});
  EXPECT_EQ(parts.gradients, 4 * kWords);
}

TEST(MemoryPlan, KeepsASumForEachRowOfBlockSparseAttention) {
  MemoryWorkload workload = esperanto();
  workload.model.model_type = "big_bird";
  workload.model.max_position_embeddings = workload.length = 4096;
  const auto parts = [&](const std::string& type) {
    workload.model.attention_type = type;
    return predict_memory(workload, {.micro_batch = 2});
  };
  const MemoryParts sparse = parts("block_sparse");
  const MemoryParts full = parts("original_full");
  // And the last layer keeps the queries and what attention returned of all tokens, not, as the
  // input of queries and the queries of full attention, of those that are read.
  constexpr int64_t kRead = 1536;
  EXPECT_EQ(sparse.activations - full.activations,
            6 * 2 * 4096 * 12 * 4 + 2 * (2 * 4096 - kRead) * 768 * 4);
  workload.length = 704;  // short enough for full attention
  EXPECT_EQ(parts("block_sparse").peak(), parts("original_full").peak());
}

TEST(MemoryPlan, CountsStatesOfEveryOptimizer) {
  const auto states = [](const OptimizerChoice& optimizer) {
    return parts_with([&](MemoryChoices& c) { c.optimizer = optimizer; }).states;
  };
  EXPECT_EQ(states({.kind = "adamw"}), 8 * kParameters);
  EXPECT_EQ(states({.kind = "sgd"}), 0);
  EXPECT_EQ(states({.kind = "sgd", .arguments = {{"momentum", 0.9}}}), 4 * kParameters);
  const double wide = kWords + (514 + 1) * 768;
  const double narrow = kParameters - wide;
  EXPECT_NEAR(states({.kind = "adamw_8bit"}), 8 * wide + narrow * (2 + 8.0 / 256), 5e5);
  EXPECT_NEAR(states({.kind = "adamw_8bit", .arguments = {{"embeddings_in_8bit", true}}}),
              kParameters * (2 + 8.0 / 256), 5e5);
  EXPECT_NEAR(states({.kind = "adamw_companded_8bit"}), kParameters * (2 + 8.0 / 128), 1e4);
  EXPECT_LT(states({.kind = "adafactor"}), kParameters / 50);
}

TEST(MemoryPlan, ActivationsFallWithEveryWayOfComputingAgain) {
  const auto activations = [](const ActivationCheckpointing& again) {
    return parts_with([&](MemoryChoices& c) { c.checkpointing = again; }).activations;
  };
  const int64_t hidden = 16 * 128 * 768 * 4;
  // In addition the position of each token, two values per token of the embeddings' norm, and the
  // token type of each row.
  const int64_t more = 16 * (128 * (8 + 2 * 4) + 8);
  // The batch itself: ids of all tokens, and of those that are predicted positions, labels and
  // their layout. The last layer keeps its input, keys and values of all tokens, and the rest, with
  // the queries and what they are made from, of those that are predicted.
  const int64_t predicted = 384 * 768 * 4;  // 343 up to a multiple of a 32nd of all
  const int64_t batch = 16 * 128 * 8 + 5 * 343 * 8;
  EXPECT_NEAR(activations({}), (5 * 16 + 3 + 1) * hidden + 14 * predicted + more, batch);
  EXPECT_NEAR(activations({.enabled = true, .selective = true}),
              (5 * 11 + 3 + 1) * hidden + 9 * predicted + more, batch);
  EXPECT_NEAR(activations({.enabled = true}), (6 + 1) * hidden + more, batch);
  EXPECT_NEAR(activations({.enabled = true, .every_n_layers = 4}), (2 + 1) * hidden + more, batch);
}

TEST(MemoryPlan, ActivationsAreHalvedInHalfPrecision) {
  const MemoryParts wide = parts_with([](MemoryChoices&) {});
  const MemoryParts half = parts_with([](MemoryChoices& c) { c.precision = Precision::kBFloat16; });
  EXPECT_NEAR(static_cast<double>(half.activations) / static_cast<double>(wide.activations), 0.5,
              0.01);
}

TEST(MemoryPlan, AHeadTakesAChunkOfLogits) {
  const int64_t whole = parts_with([](MemoryChoices&) {}).head;
  const int64_t half = parts_with([](MemoryChoices& c) { c.head_rows_per_chunk = 64; }).head;
  // Chunks of nearly equal length: 343 predicted tokens in 3 and in 6 chunks.
  const int64_t logits = (115 - 58) * 52000 * 4;
  EXPECT_EQ(whole - half, logits);
}

// A device in half precision keeps the weights of products in that type, but no embedding.
TEST(MemoryPlan, HoldsNoEmbeddingOfADecoderInHalfPrecision) {
  MemoryWorkload workload = esperanto();
  workload.model = default_model_config("llama");
  workload.model.tie_word_embeddings = false;
  workload.is_device = workload.has_kernels = true;
  workload.predicted_share = 1.0;
  const auto temporaries = [&](int64_t vocabulary) {
    workload.model.vocab_size = vocabulary;
    const MemoryParts parts =
        predict_memory(workload, {.micro_batch = 1, .precision = Precision::kBFloat16});
    return parts.temporaries + parts.head;
  };
  const int64_t words = 1000 * workload.model.hidden_size;
  EXPECT_NEAR(temporaries(33000) - temporaries(32000), 2 * words, words / 2) << "of the head alone";
}

TEST(MemoryPlan, PartsMakeThePeak) {
  const MemoryParts parts = parts_with([](MemoryChoices&) {});
  int64_t sum = 0;
  for (const auto& [name, bytes] : named_parts(parts)) {
    EXPECT_GE(bytes, 0) << name;
    sum += bytes;
  }
  EXPECT_EQ(sum, parts.peak());
}

TEST(MemoryPlan, ADeviceLeavesTheHostItsOwnShare) {
  MemoryWorkload workload = esperanto();
  workload.is_device = true;
  workload.data = 500 * kMiB;
  const MemoryParts parts = predict_memory(workload, {.micro_batch = 16});
  EXPECT_EQ(parts.data, 0);
  EXPECT_EQ(parts.program, 0);
  EXPECT_GT(parts.host, workload.program + workload.data + 4 * kWords);
}

TEST(LargestBatch, IsTheLastThatFits) {
  const int64_t memory = 2000 * kMiB;
  const int64_t size = largest_micro_batch(esperanto(), {}, memory);
  ASSERT_GT(size, 1);
  MemoryChoices choices{.micro_batch = size};
  EXPECT_LE(predict_memory(esperanto(), choices).peak(), memory);
  ++choices.micro_batch;
  EXPECT_GT(predict_memory(esperanto(), choices).peak(), memory);
  EXPECT_EQ(largest_micro_batch(esperanto(), {}, 500 * kMiB), 0);
}

MemoryDecision decide(const std::string& text, int64_t budget) {
  return decide_memory(esperanto(), memory_options(config_of(text)), budget);
}

TEST(MemoryBudget, ChangesNothingWhereThereIsEnough) {
  const MemoryDecision decision =
      decide("per_device_train_batch_size: 64\nmemory_budget: 20GiB\n", 20480 * kMiB);
  EXPECT_EQ(decision.choices, decision.asked);
  EXPECT_GOLDEN(decision.line());
  EXPECT_EQ(decision.line().find("forbid"), std::string::npos);
}

TEST(MemoryBudget, TakesWhatIsExactFirst) {
  const MemoryDecision decision =
      decide("per_device_train_batch_size: 64\nmemory_budget: 1800MiB\n", 1800 * kMiB);
  EXPECT_LT(decision.choices.micro_batch, 64);
  EXPECT_EQ(64 % decision.choices.micro_batch, 0);
  EXPECT_EQ(decision.choices.gradients, GradientFormat::kFloat32);
  EXPECT_EQ(decision.choices.weights, WeightFormat::kFloat32);
  EXPECT_EQ(decision.choices.optimizer.kind, "adamw");
}

TEST(MemoryBudget, StaysInsideDownToTheLeast) {
  int64_t before = 0;
  for (const int64_t budget : {800, 900, 1000, 1200, 1500, 3000, 6000}) {
    const MemoryDecision decision =
        decide("per_device_train_batch_size: 64\nmemory_budget: 1GiB\n", budget * kMiB);
    EXPECT_LE(decision.predicted, budget * kMiB);
    EXPECT_EQ(decision.predicted, predict_memory(esperanto(), decision.choices).peak());
    EXPECT_GE(decision.predicted, before) << "more memory, and less of it used";
    before = decision.predicted;
  }
}

TEST(MemoryBudget, KeepsWhatTheUserSet) {
  const MemoryDecision decision = decide(
      "per_device_train_batch_size: 64\nmemory_budget: 1700MiB\noptim: adamw_torch\n"
      "param_dtype: float32\ngrad_accum_dtype: float32\ngradient_checkpointing: true\n",
      1700 * kMiB);
  EXPECT_EQ(decision.choices.optimizer.kind, "adamw");
  EXPECT_EQ(decision.choices.gradients, GradientFormat::kFloat32);
  EXPECT_EQ(decision.choices.checkpointing, (ActivationCheckpointing{.enabled = true}));
  const MemoryDecision whole = decide(
      "per_device_train_batch_size: 64\nmemory_budget: 3GiB\nmax_grad_norm: 0\n"
      "optimizer_in_backward: true\n",
      3072 * kMiB);
  EXPECT_EQ(whole.choices.micro_batch, 64) << "gradients that are freed cannot be accumulated";
}

// load_in_4bit: auto
TEST(MemoryBudget, TakesFourBitsForTheBaseOnlyWhere16DoNotFit) {
  MemoryWorkload workload = esperanto();
  workload.model.lora = nn::LoraConfig{};
  workload.base.weights = WeightFormat::kBFloat16;
  const std::string text = "per_device_train_batch_size: 64\nuse_peft: true\nmemory_budget: ";
  const auto least_of = [&] {
    try {
      (void)decide_memory(workload, memory_options(config_of(text + "16MiB\nload_in_4bit: auto\n")),
                          16 * kMiB);
    } catch (const Error& error) {
      const std::string message = error.what();
      return int64_t{std::stoll(message.substr(message.find("at least ") + 9))} * kMiB;
    }
    return int64_t{0};
  };
  const int64_t least_with_16 = least_of();
  workload.four_bits = WeightFormat::kNf4;
  EXPECT_LT(least_of(), least_with_16 - 40 * kMiB);
  const auto decide = [&](int64_t budget) {
    LoadedConfig config = config_of(text + std::to_string(budget) + "\nload_in_4bit: auto\n");
    const MemoryOptions options = memory_options(config);
    MemoryDecision decision = decide_memory(workload, options, budget);
    decision.record_in(config.args);
    EXPECT_EQ(config.args.load_in_4bit, decision.choices.four_bits ? "true" : "false");
    EXPECT_EQ(MemoryDecision::from_json(decision.to_json(), "state").choices, decision.choices);
    EXPECT_TRUE(decision.is_for(options, 64));
    return decision;
  };
  EXPECT_FALSE(decide(least_with_16 + kMiB).choices.four_bits);
  const MemoryDecision decision = decide(least_with_16 - 2 * kMiB);
  EXPECT_TRUE(decision.choices.four_bits);
  EXPECT_GOLDEN(decision.line());
}

TEST(MemoryBudget, SaysTheLeastThatCanBeReached) {
  const std::string text = "per_device_train_batch_size: 64\nmemory_budget: 400MiB\n";
  int64_t least = 0;
  try {
    (void)decide(text, 400 * kMiB);
    FAIL() << "400 MiB is not enough";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    const std::string message = error.what();
    EXPECT_GOLDEN(message);
    const size_t position = message.find("at least ");
    ASSERT_NE(position, std::string::npos);
    least = std::stoll(message.substr(position + 9));
  }
  EXPECT_NO_THROW((void)decide(text, least * kMiB));
  EXPECT_THROW((void)decide(text, (least - 2) * kMiB), Error);
}

TEST(MemoryDecision, IsAppliedAsKeys) {
  const LoadedConfig config = config_of("per_device_train_batch_size: 64\nmemory_budget: 900MiB\n");
  const MemoryDecision decision = decide_memory(esperanto(), memory_options(config), 900 * kMiB);
  ASSERT_NE(decision.choices, decision.asked);
  LoadedConfig applied = config;
  decision.record_in(applied.args);
  MemoryChoices read = choices_of(applied.args);
  read.head_rows_per_chunk = decision.choices.head_rows_per_chunk;
  EXPECT_EQ(read, decision.choices);
  EXPECT_EQ(applied.args.per_device_train_batch_size * applied.args.gradient_accumulation_steps,
            64);
  EXPECT_GOLDEN(decision.line());
}

TEST(MemoryDecision, IsKeptAndUsedAgain) {
  const std::string text = "per_device_train_batch_size: 64\nmemory_budget: 900MiB\n";
  const LoadedConfig config = config_of(text);
  const MemoryDecision decision = decide_memory(esperanto(), memory_options(config), 900 * kMiB);
  const MemoryDecision again = MemoryDecision::from_json(decision.to_json(), "state");
  EXPECT_EQ(again.choices, decision.choices);
  EXPECT_EQ(again.asked, decision.asked);
  EXPECT_EQ(again.line(), decision.line());
  EXPECT_TRUE(again.is_for(memory_options(config), 64));
  EXPECT_FALSE(again.is_for(memory_options(config), 32));
  EXPECT_FALSE(again.is_for(memory_options(config_of(text + "bf16: true\n")), 64));
  EXPECT_FALSE(again.is_for(memory_options(config_of("per_device_train_batch_size: 64\n")), 64));
  const auto with_budget = [](const std::string& budget) {
    return config_of("per_device_train_batch_size: 64\nmemory_budget: " + budget + "\n");
  };
  EXPECT_TRUE(again.is_for(memory_options(with_budget("2000MiB")), 64))
      << "equal bits rather than less time";
  EXPECT_TRUE(again.is_for(memory_options(with_budget(std::to_string(decision.predicted))), 64));
  EXPECT_FALSE(
      again.is_for(memory_options(with_budget(std::to_string(decision.predicted - 1))), 64));
  ASSERT_NE(decision.choices.gradients, decision.asked.gradients);
  EXPECT_FALSE(again.is_for(memory_options(config_of(text + "grad_accum_dtype: float32\n")), 64))
      << "what the user sets wins";
}

TEST(MemoryDecision, RefusesWhatIsDamaged) {
  const LoadedConfig config = config_of("per_device_train_batch_size: 64\nmemory_budget: 900MiB\n");
  const auto good = decide_memory(esperanto(), memory_options(config), 900 * kMiB).to_json();
  const auto refuses = [&](const char* part, const char* key, const nlohmann::ordered_json& value) {
    auto bad = good;
    (*part == '\0' ? bad : bad[part])[key] = value;
    try {
      (void)MemoryDecision::from_json(bad, "state");
    } catch (const Error& error) {
      return error.kind() == ErrorKind::kData;
    }
    return false;
  };
  EXPECT_TRUE(refuses("", "budget", -1));
  EXPECT_TRUE(refuses("", "choices", 5));
  EXPECT_TRUE(refuses("choices", "micro_batch", 0));
  EXPECT_TRUE(refuses("choices", "micro_batch", 63));
  EXPECT_TRUE(refuses("choices", "weights", "int4"));
  EXPECT_TRUE(refuses("asked", "optimizer", "lion"));
  EXPECT_TRUE(refuses("choices", "selective", "yes"));
}

TEST(MemoryPlan, CountsWhatAProcessKeepsOfDividedStates) {
  MemoryWorkload workload = esperanto();
  const MemoryParts alone = predict_memory(workload, {.micro_batch = 4});
  workload.processes = 4;
  EXPECT_EQ(predict_memory(workload, {.micro_batch = 4}).states, alone.states);
  workload.zero_stage = 1;
  const MemoryParts divided = predict_memory(workload, {.micro_batch = 4});
  EXPECT_GE(divided.states, alone.states / 4);
  EXPECT_LT(divided.states, alone.states / 2);  // the embedding's moments are not divided
  EXPECT_EQ(divided.weights, alone.weights);
}

TEST(MemoryPlan, CountsWhatAProcessKeepsOfDividedParameters) {
  MemoryWorkload workload = esperanto();
  const MemoryParts alone = predict_memory(workload, {.micro_batch = 4});
  workload.processes = 4;
  workload.zero_stage = 3;
  const MemoryParts divided = predict_memory(workload, {.micro_batch = 4});
  const auto quarter = [](int64_t all) { return static_cast<double>(all) / 4; };
  EXPECT_NEAR(static_cast<double>(divided.weights), quarter(alone.weights), 2e6);
  EXPECT_NEAR(static_cast<double>(divided.states), quarter(alone.states), 4e6);
  // A sum of a quarter, and while it is sent the gradient of the vocabulary.
  EXPECT_LT(divided.gradients, alone.gradients / 4 + 4 * kWords + 60 * kMiB);
  // In addition to a layer there is the vocabulary, whole.
  EXPECT_LT(divided.peak(), alone.peak() - 3 * (alone.weights + alone.states) / 4 + 4 * kWords);
  workload.zero_stage = 2;
  const MemoryParts with_weights = predict_memory(workload, {.micro_batch = 4});
  EXPECT_EQ(with_weights.states, divided.states);
  EXPECT_GT(with_weights.peak(), divided.peak() + alone.weights / 4);
}

TEST(ExchangedBytes, AreTwoGathersAndAScatter) {
  MemoryWorkload workload = esperanto();
  workload.processes = 4;
  workload.effective_batch = 8;
  const auto of_stage = [&](int64_t stage, int64_t micro_batch) {
    workload.zero_stage = stage;
    const ExchangedBytes bytes = exchanged_bytes(workload, {.micro_batch = micro_batch});
    const double weights = 4.0 * kParameters * 3 / 4;
    return std::pair(static_cast<double>(bytes.weights) / weights,
                     static_cast<double>(bytes.gradients) / weights);
  };
  EXPECT_EQ(of_stage(0, 8).first, 0.0);
  EXPECT_NEAR(of_stage(0, 8).second, 2.0, 1e-6);
  EXPECT_NEAR(of_stage(1, 8).first, 1.0, 1e-6);
  EXPECT_NEAR(of_stage(3, 8).first, 2.0, 0.02);
  EXPECT_NEAR(of_stage(3, 8).second, 1.0, 0.02);
  EXPECT_NEAR(of_stage(3, 4).first, 4.0, 0.04);  // of each micro-batch
  EXPECT_NEAR(of_stage(2, 4).first, 1.0, 0.02);
  EXPECT_NEAR(of_stage(2, 4).second, 2.0, 0.02);
}

// A Llama in the usual proportions.
MemoryWorkload on_cards(int64_t processes, int64_t length, int64_t hidden_size, int64_t layers) {
  MemoryWorkload workload;
  workload.model.model_type = "llama";
  workload.model.vocab_size = 128256;
  workload.model.max_position_embeddings = 8192;
  workload.model.tie_word_embeddings = false;
  workload.model.hidden_size = hidden_size;
  workload.model.intermediate_size = hidden_size * 7 / 2;
  workload.model.num_hidden_layers = layers;
  workload.model.num_attention_heads = hidden_size / 128;
  workload.model.decoder.num_key_value_heads = 8;
  workload.model.decoder.head_dim = 128;
  workload.length = length;
  workload.predicted_share = 1.0;
  workload.effective_batch = 1;
  workload.is_device = workload.has_kernels = workload.has_flash = true;
  workload.processes = processes;
  workload.zero_stage = 3;
  return workload;
}

// What a program can use of a card of 24 GB.
constexpr int64_t kCard = 23 * (int64_t{1} << 30) + (int64_t{1} << 29);

TEST(MemoryPlan, FitsEightBillionParametersOnFourCards) {
  const MemoryWorkload workload = on_cards(4, 4096, 4096, 32);
  const MemoryParts parts =
      predict_memory(workload, {.micro_batch = 1,
                                .checkpointing = {.enabled = true},
                                .weights = WeightFormat::kSplit,
                                .precision = Precision::kBFloat16,
                                .optimizer = {.kind = "adamw_companded_8bit"}});
  EXPECT_LT(parts.peak(), kCard);
  EXPECT_GT(parts.peak(), kCard / 2);
}

// With an adapter of rank 8 in bfloat16, states of 8 bits, and inputs of layers on the host.
TEST(MemoryPlan, FitsQloraOfSeventyBillionParametersOnTwoCards) {
  MemoryWorkload workload = on_cards(2, 2048, 8192, 80);
  workload.model.lora = nn::LoraConfig{.r = 8};
  workload.base = {.weights = WeightFormat::kBFloat16, .matrices = WeightFormat::kNf4};
  const MemoryParts parts =
      predict_memory(workload, {.micro_batch = 1,
                                .checkpointing = {.enabled = true, .offload = true},
                                .weights = WeightFormat::kBFloat16,
                                .gradients = GradientFormat::kBFloat16,
                                .precision = Precision::kBFloat16,
                                .optimizer = {.kind = "adamw_8bit"}});
  EXPECT_LT(parts.peak(), kCard);
  EXPECT_GT(parts.peak(), kCard / 2);
}

TEST(MemoryPlan, CountsTheSumsOfLogicalShards) {
  MemoryWorkload workload = esperanto();
  workload.effective_batch = 32;
  const MemoryParts one_sum = predict_memory(workload, {.micro_batch = 8});
  workload.sums_shards = true;
  // Of four shards two sums wait while the fourth is computed; a single shard needs no sum.
  EXPECT_EQ(predict_memory(workload, {.micro_batch = 8}).gradients, 3 * one_sum.gradients);
  EXPECT_EQ(predict_memory(workload, {.micro_batch = 32}).gradients, one_sum.gradients);
}

TEST(MemoryPlan, CountsLogicalShardsThatAreComputedAtOnce) {
  MemoryWorkload workload = esperanto();
  workload.effective_batch = 32;
  workload.threads = 4;
  workload.sums_shards = true;
  const MemoryParts one = predict_memory(workload, {.micro_batch = 8});
  workload.batches_at_once = 2;
  const MemoryParts two = predict_memory(workload, {.micro_batch = 8});
  EXPECT_EQ(two.activations, 2 * one.activations);
  EXPECT_EQ(two.gradients, one.gradients);  // a sum of two, and the two
  workload.batches_at_once = 4;
  const MemoryParts four = predict_memory(workload, {.micro_batch = 8});
  EXPECT_EQ(four.activations, 4 * one.activations);
  EXPECT_EQ(four.gradients, one.gradients / 3 * 4);
  workload.batches_at_once = 16;  // more than there are
  EXPECT_EQ(predict_memory(workload, {.micro_batch = 8}).activations, four.activations);
  const auto most = [&](int64_t peak) {
    return largest_batches_at_once(workload, {.micro_batch = 8},
                                   static_cast<int64_t>(static_cast<double>(peak) * 1.06));
  };
  EXPECT_EQ(most(four.peak()), 4);
  EXPECT_EQ(most(two.peak()), 2);
  EXPECT_EQ(most(one.peak() / 2), 1);
}

}  // namespace
}  // namespace finetune
