// SPDX-License-Identifier: MIT
#include "finetune/state/metrics_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "support/golden.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// Written by TrainerState.save_to_json of transformers 5.23, with early stopping and a NaN.
constexpr const char* kFromTransformers = R"({
  "best_global_step": 20,
  "best_metric": 1.2345678901234567,
  "best_model_checkpoint": "out/checkpoint-20 \u00e9",
  "epoch": 1.6666666666666665,
  "eval_steps": 20,
  "global_step": 20,
  "is_hyper_param_search": false,
  "is_local_process_zero": true,
  "is_world_process_zero": true,
  "log_history": [
    {
      "epoch": 0.83,
      "grad_norm": 0.12345678901234568,
      "learning_rate": 5e-05,
      "loss": 3.25,
      "step": 10
    },
    {
      "epoch": 1.6666666666666665,
      "eval_loss": NaN,
      "eval_runtime": 0.1,
      "step": 20
    }
  ],
  "logging_steps": 10,
  "max_steps": 24,
  "num_input_tokens_seen": 12345,
  "num_train_epochs": 2,
  "save_steps": 20,
  "stateful_callbacks": {
    "EarlyStoppingCallback": {
      "args": {
        "early_stopping_patience": 3,
        "early_stopping_threshold": 0.01
      },
      "attributes": {
        "early_stopping_patience_counter": 2
      }
    },
    "TrainerControl": {
      "args": {
        "should_epoch_stop": false,
        "should_evaluate": false,
        "should_log": false,
        "should_save": true,
        "should_training_stop": false
      },
      "attributes": {}
    }
  },
  "total_flos": 263187763200.5,
  "train_batch_size": 8,
  "trial_name": null,
  "trial_params": null
}
)";

class MetricsLog : public ::testing::Test {
 protected:
  MetricsLog() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = ::testing::TempDir() + "finetune-metrics-" + info->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~MetricsLog() override { std::filesystem::remove_all(folder_); }

  std::string read(const std::string& name) {
    return FileSystem::local().read_all(join_path(folder_, name));
  }

  std::string folder_;
};

std::string message_of(const std::string& text) {
  try {
    static_cast<void>(TrainerState::from_text(text, "run/trainer_state.json"));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return error.what();
  }
  return "";
}

TEST_F(MetricsLog, WritesTheTextThatTransformersWrites) {
  const TrainerState state = TrainerState::from_text(kFromTransformers, "state");
  std::string expected = kFromTransformers;
  expected.replace(expected.find("NaN"), 3, "null");
  EXPECT_EQ(state.to_text(), expected);
}

TEST_F(MetricsLog, ReadsEveryFieldOfTransformers) {
  const TrainerState state = TrainerState::from_text(kFromTransformers, "state");
  EXPECT_EQ(state.epoch, 1.6666666666666665);
  EXPECT_EQ(state.global_step, 20);
  EXPECT_EQ(state.max_steps, 24);
  EXPECT_EQ(state.logging_steps, 10);
  EXPECT_EQ(state.eval_steps, 20);
  EXPECT_EQ(state.save_steps, 20);
  EXPECT_EQ(state.train_batch_size, 8);
  EXPECT_EQ(state.num_train_epochs, 2);
  EXPECT_EQ(state.num_input_tokens_seen, 12345);
  EXPECT_EQ(state.total_flos, 263187763200.5);
  EXPECT_EQ(state.best_metric, 1.2345678901234567);
  EXPECT_EQ(state.best_global_step, 20);
  EXPECT_EQ(state.best_model_checkpoint, "out/checkpoint-20 \u00e9");
  ASSERT_EQ(state.log_history.size(), 2U);
  EXPECT_EQ(state.log_history[0]["learning_rate"], 5e-5);
  EXPECT_TRUE(state.log_history[1]["eval_loss"].is_null());
  EXPECT_TRUE(state.control.should_save);
  EXPECT_FALSE(state.control.should_training_stop);
  ASSERT_TRUE(state.early_stopping.has_value());
  EXPECT_EQ(state.early_stopping->patience, 3);
  EXPECT_EQ(state.early_stopping->threshold, 0.01);
  EXPECT_EQ(state.early_stopping->patience_counter, 2);
}

TEST_F(MetricsLog, FreshStateHasTheDefaultsOfTransformers) {
  const Json json = TrainerState().to_json();
  EXPECT_EQ(json.size(), 20U);
  EXPECT_EQ(json["logging_steps"], 500);
  EXPECT_EQ(json["eval_steps"], 500);
  EXPECT_EQ(json["save_steps"], 500);
  EXPECT_TRUE(json["best_metric"].is_null());
  EXPECT_TRUE(json["train_batch_size"].is_null());
  EXPECT_EQ(json["log_history"], Json::array());
  EXPECT_EQ(json["stateful_callbacks"].size(), 1U);
}

TEST_F(MetricsLog, DoublesReadBackToTheSameBits) {
  std::mt19937_64 generator(1);
  TrainerState state;
  std::vector<double> values = {5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 0.1, -0.0};
  while (values.size() < 20000) {
    const double value = std::bit_cast<double>(generator());
    if (std::isfinite(value)) values.push_back(value);
  }
  for (const double value : values) state.log({{"loss", value}});
  const TrainerState read = TrainerState::from_text(state.to_text(), "state");
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint64_t>(read.log_history[i]["loss"].get<double>()),
              std::bit_cast<uint64_t>(values[i]))
        << values[i];
  }
}

TEST_F(MetricsLog, LogsInTheOrderOfTransformers) {
  TrainerState state;
  state.epoch = 0.5;
  state.global_step = 10;
  const Json& record = state.log({{"loss", 2.5}, {"grad_norm", 1.0}, {"learning_rate", 1e-4}});
  EXPECT_EQ(record.dump(),
            R"({"loss":2.5,"grad_norm":1.0,"learning_rate":0.0001,"epoch":0.5,"step":10})");
  EXPECT_EQ(state.log_history.size(), 1U);
}

TEST_F(MetricsLog, WritesNullForWhatJsonCannotHold) {
  TrainerState state;
  state.best_metric = std::numeric_limits<double>::quiet_NaN();
  state.log({{"loss", std::numeric_limits<double>::infinity()}});
  const TrainerState read = TrainerState::from_text(state.to_text(), "state");
  EXPECT_FALSE(read.best_metric.has_value());
  EXPECT_TRUE(read.log_history[0]["loss"].is_null());
}

TEST_F(MetricsLog, ReadsWhatOlderTransformersWrote) {
  const TrainerState state = TrainerState::from_text(
      R"({"epoch": null, "eval_steps": 500.0, "log_history": [], "some_new_key": 1,
          "best_metric": Infinity})",
      "state");
  EXPECT_EQ(state.epoch, 0);
  EXPECT_EQ(state.eval_steps, 500);
  EXPECT_EQ(state.save_steps, 500);
  EXPECT_FALSE(state.best_metric.has_value());
}

TEST_F(MetricsLog, RefusesWhatCannotBeAState) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"([])", "JSON object"},
      {R"({"global_step": -1})", "'global_step'"},
      {R"({"global_step": 1.5})", "'global_step'"},
      {R"({"global_step": 1e300})", "'global_step'"},
      {R"({"global_step": "7"})", "'global_step'"},
      {R"({"epoch": -0.5})", "'epoch'"},
      {R"({"epoch": true})", "'epoch'"},
      {R"({"log_history": {}})", "'log_history'"},
      {R"({"log_history": [3]})", "'log_history'"},
      {R"({"best_model_checkpoint": 3})", "'best_model_checkpoint'"},
      {R"({"is_world_process_zero": 1})", "'is_world_process_zero'"},
      {R"({"stateful_callbacks": []})", "stateful_callbacks"},
      {R"({"stateful_callbacks": {"EarlyStoppingCallback": {"args": 1}}})", "args"},
      {R"({"global_step": 1)", ":1"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_GOLDEN(message_of(text)) << text;
  }
}

TEST_F(MetricsLog, RoundsSpeedAsTransformersDoes) {
  EXPECT_EQ(
      speed_metrics("train", 3.14159265, {.samples = 100, .steps = 7, .tokens = 12345}).dump(),
      R"({"train_runtime":3.1416,"train_samples_per_second":31.831,)"
      R"("train_steps_per_second":2.228,"train_tokens_per_second":3929.536})");
  EXPECT_EQ(speed_metrics("eval", 0, {.samples = 1}).dump(), R"({"eval_runtime":0.0})");
}

TEST_F(MetricsLog, WritesResultsAsSaveMetricsDoes) {
  FileSystem& files = FileSystem::local();
  write_results(files, folder_, "train", {{"train_loss", 2.5}, {"epoch", 3.0}});
  write_results(files, folder_, "eval", {{"eval_loss", 1.25}, {"epoch", 4.0}});
  EXPECT_EQ(read("train_results.json"), "{\n    \"epoch\": 3.0,\n    \"train_loss\": 2.5\n}");
  EXPECT_EQ(read("eval_results.json"), "{\n    \"epoch\": 4.0,\n    \"eval_loss\": 1.25\n}");
  EXPECT_EQ(read("all_results.json"),
            "{\n    \"epoch\": 4.0,\n    \"eval_loss\": 1.25,\n    \"train_loss\": 2.5\n}");
}

TEST_F(MetricsLog, ReplacesAllResultsThatCannotBeRead) {
  FileSystem& files = FileSystem::local();
  files.write_atomically(join_path(folder_, "all_results.json"), "{\"a\": ");
  write_results(files, folder_, "eval", {{"eval_loss", 1.5}});
  EXPECT_EQ(read("all_results.json"), "{\n    \"eval_loss\": 1.5\n}");
}

}  // namespace
}  // namespace finetune
