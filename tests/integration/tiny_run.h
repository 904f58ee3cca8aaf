// SPDX-License-Identifier: MIT
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
#include "finetune/base/json.h"
#include "integration/process.h"
#include "support/file_content.h"
#include "support/paths.h"

namespace finetune::testing {

using Json = nlohmann::ordered_json;

inline const std::string kText = source_dir() + "/tests/fixtures/text/";
inline const std::string kTasks = source_dir() + "/tests/fixtures/tasks/";
inline const std::string kMaskedLm = source_dir() + "/tests/fixtures/parity/mlm/model";

inline std::string read_file(const std::string& path) {
  EXPECT_TRUE(std::filesystem::exists(path)) << path;
  return file_content(path);
}

inline void write_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

// A tokenizer of 300 tokens, which `finetune tokenizer train` made of lighthouse.txt
// (tokenizer_command_test.cpp).
inline std::string tiny_tokenizer() {
  return source_dir() + "/tests/fixtures/tokenizers/lighthouse_300";
}

// A configuration in its own folder that trains in a second. Every key can be overridden.
class TinyRun {
 public:
  using Keys = std::map<std::string, std::string>;

  explicit TinyRun(const Keys& keys = {}) {
    config_ = {{"output_dir", folder_ / "out"},
               {"cache_dir", folder_ / "cache"},
               {"model_type", "roberta"},
               {"tokenizer_name", tiny_tokenizer()},
               {"config_overrides",
                "{num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 32, "
                "intermediate_size: 64, max_position_embeddings: 34, type_vocab_size: 1}"},
               {"train_file", kText + "lighthouse.txt"},
               {"validation_file", kText + "lighthouse-valid.txt"},
               {"max_seq_length", "32"},
               {"max_steps", "40"},
               {"per_device_train_batch_size", "4"},
               {"gradient_accumulation_steps", "2"},
               {"dataloader_num_workers", "2"},
               {"learning_rate", "1e-3"},
               {"logging_steps", "1"},
               {"eval_strategy", "steps"},
               {"eval_steps", "10"},
               {"save_steps", "7"},
               {"save_total_limit", "2"},
               {"report_to", "none"}};
    set(keys);
    std::filesystem::create_directories(out());
  }

  // An empty value removes the key.
  void set(const Keys& keys) {
    for (const auto& [key, value] : keys) config_[key] = value;
    std::string text;
    for (const auto& [key, value] : config_) {
      if (!value.empty()) text += key + ": " + value + "\n";
    }
    folder_.write("run.yaml", text);
  }

  [[nodiscard]] Arguments command(const Arguments& more = {}) const {
    Arguments words = finetune_command({"train", config()});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  [[nodiscard]] ProcessResult train(const Arguments& more = {},
                                    const ProcessOptions& options = {}) const {
    return run(command(more), options);
  }
  // Trains and stops after `step`, with everything saved.
  void train_until(int step) const {
    const ProcessResult result = train({"--stop_at_step", std::to_string(step)});
    ASSERT_EQ(result.code, 75) << result.err;
  }

  [[nodiscard]] std::string config() const { return folder_ / "run.yaml"; }
  [[nodiscard]] std::string out() const { return folder_ / "out"; }
  [[nodiscard]] std::string out(const std::string& name) const { return out() + "/" + name; }
  [[nodiscard]] const TemporaryFolder& folder() const { return folder_; }

 private:
  TemporaryFolder folder_;
  Keys config_;
};

// Deletes what came after a checkpoint, as if the run had been killed right after it.
inline void keep_only_checkpoint(const TinyRun& run, int step) {
  const std::string name = "checkpoint-" + std::to_string(step);
  const std::string kept = run.folder() / name;
  std::filesystem::rename(run.out(name), kept);
  std::filesystem::remove_all(run.out());
  std::filesystem::create_directories(run.out());
  std::filesystem::rename(kept, run.out(name));
}

// Starts a run that takes about `seconds` and kills it at a random moment, several times. Returns
// how many of these sessions had not ended before. A run that ends before the first kill is
// deleted, and moments are earlier from then on: a machine may be faster now than when the seconds
// were taken.
inline int kill_at_random_moments(const TinyRun& run, double seconds, int times, uint32_t seed) {
  std::mt19937 random(seed);
  int kills = 0;
  for (int i = 0; i < times; ++i) {
    const double share = static_cast<double>(random() % 1000) / 1000.0;
    Process process(run.command(), {.environment = {}, .folder = "", .watch = run.out()});
    process.wait_until(share * seconds);
    process.send(SIGKILL);
    kills += process.finish().code == 0 ? 0 : 1;
    if (kills == 0) {
      std::filesystem::remove_all(run.out());
      seconds /= 2;
    }
  }
  return kills;
}

// Returns the files with weights and optimizer states of a checkpoint: bytes by file name.
inline std::map<std::string, std::string> saved_tensors(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string end = entry.path().extension();
    if (end == ".safetensors" || end == ".pt") {
      files[entry.path().filename()] = read_file(entry.path());
    }
  }
  return files;
}

inline Json trainer_state(const std::string& folder) {
  return parse_json(read_file(folder + "/trainer_state.json"), folder, ErrorKind::kData,
                    {.allow_nan = true});
}

// Returns the log without values that depend on time.
inline Json log_without_times(const std::string& folder) {
  Json entries = Json::array();
  const Json state = trainer_state(folder);
  for (const Json& entry : state["log_history"]) {
    Json kept;
    for (const auto& [key, value] : entry.items()) {
      if (key.find("runtime") == std::string::npos && key.find("per_second") == std::string::npos) {
        kept[key] = value;
      }
    }
    entries.push_back(kept);
  }
  return entries;
}

// Everything that must be equal for two finished runs to be the same, with the optimizer of one
// checkpoint.
struct Outcome {
  std::string model;
  std::string optimizer;
  std::string schedule;
  Json log;
};

inline Outcome outcome_of(const TinyRun& run, int last_step = 40) {
  const std::string checkpoint = run.out("checkpoint-" + std::to_string(last_step));
  return {.model = read_file(run.out("model.safetensors")),
          .optimizer = read_file(checkpoint + "/optimizer.pt"),
          .schedule = read_file(checkpoint + "/scheduler.pt"),
          .log = log_without_times(run.out())};
}

inline void expect_equal(const Outcome& actual, const Outcome& expected) {
  ASSERT_EQ(actual.log.size(), expected.log.size());
  ASSERT_GT(expected.log.size(), 40U);  // every step and some evaluations
  for (size_t i = 0; i < expected.log.size(); ++i) EXPECT_EQ(actual.log[i], expected.log[i]);
  EXPECT_FALSE(expected.model.empty());
  EXPECT_TRUE(actual.model == expected.model) << "other weights";
  EXPECT_TRUE(actual.optimizer == expected.optimizer) << "another optimizer state";
  EXPECT_TRUE(actual.schedule == expected.schedule) << "another schedule";
}

inline Outcome uninterrupted(const TinyRun::Keys& keys) {
  const TinyRun run(keys);
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 0) << result.err;
  return outcome_of(run);
}

// Stops after `step` and resumes with the keys in `then` changed.
inline Outcome stopped_at(const TinyRun::Keys& keys, int step, const TinyRun::Keys& then = {}) {
  TinyRun run(keys);
  run.train_until(step);
  run.set(then);
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 0) << result.err;
  return outcome_of(run);
}

// The result of the standard run without interruption, computed once.
inline const Outcome& unbroken() {
  static const Outcome outcome = [] {
    const TinyRun run;
    const ProcessResult result = run.train();
    EXPECT_EQ(result.code, 0) << result.err;
    return outcome_of(run);
  }();
  return outcome;
}

// Runs the command to its end and compares the result with the uninterrupted run.
inline void expect_resumes_equal(const TinyRun& run, const Arguments& more = {}) {
  const ProcessResult result = run.train(more);
  ASSERT_EQ(result.code, 0) << result.err;
  expect_equal(outcome_of(run), unbroken());
}

}  // namespace finetune::testing
