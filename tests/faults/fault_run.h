// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "faults/fault_file_system.h"

namespace finetune::testing {

// The result of one session of the run.
struct Session {
  int code = -1;        // 137: killed by the fault; 128 + n: ended by signal n, which is a failure
  std::string said;     // standard error
  int64_t resumed = 0;  // the step it resumed from; -1: it ended before that

  [[nodiscard]] bool says(const std::string& text) const {
    return said.find(text) != std::string::npos;
  }
};

// Lines of the configuration: the model and how its rows are read.
inline const std::string kTinyBert =
    "model_type: bert\nconfig_overrides: {num_hidden_layers: 1, num_attention_heads: 2, "
    "hidden_size: 16, intermediate_size: 16, max_position_embeddings: 12}\n"
    "line_by_line: true\nmlm_probability: 0.3\n";
inline const std::string kTinyLlama =
    "task: clm\nmodel_type: llama\nconfig_overrides: {num_hidden_layers: 1, "
    "num_attention_heads: 2, num_key_value_heads: 1, hidden_size: 16, intermediate_size: 16, "
    "max_position_embeddings: 12}\nline_by_line: true\npacking: true\n";

// Pairs of answers. Their reference is in the cache, which no fault touches.
inline const std::string kTinyPairs =
    "task: dpo\nmodel_type: llama\nconfig_overrides: {num_hidden_layers: 1, "
    "num_attention_heads: 2, num_key_value_heads: 1, hidden_size: 16, intermediate_size: 16, "
    "max_position_embeddings: 24}\nmax_seq_length: 24\n";

// Lines of the configuration that train an adapter.
inline const std::string kAdapterKeys = "use_peft: true\nlora_r: 2\nlora_dropout: 0.1\n";

struct RunSettings {
  int64_t steps = 12;
  int64_t save_steps = 3;
  int64_t save_total_limit = 2;
  int64_t eval_steps = 6;
  std::string learning_rate = "1e-2";
  std::string model_keys = kTinyBert;
  std::string more_keys = {};  // lines of the configuration
  std::string data = {};       // a file for training and evaluation; empty: short texts
  bool mirrored = false;       // mirror_dir is mirror()
  bool has_adapter = false;    // a LoRA adapter on a fresh model of `model_keys`, made before
};

// A short run that trains an adapter.
inline RunSettings adapter_run() {
  return {
      .steps = 4, .save_steps = 1, .eval_steps = 2, .model_keys = kTinyLlama, .has_adapter = true};
}

// A tiny run that is started many times, each time in a fork of this process, which has libtorch
// loaded and warm: a start takes a twentieth of the time of a new process and can be killed like
// one. This process itself must not start threads.
class FaultRun {
 public:
  explicit FaultRun(const RunSettings& settings = {});

  // Makes the next start the first one, with an empty output folder or none.
  void start_over(bool make_folder = true);
  Session start(const Fault& fault = {}, const std::vector<std::string>& more = {});

  // Starts without a fault until the run is finished. Returns an empty string if it ends with the
  // bits of the uninterrupted run and never resumed from a step before `at_least`; otherwise
  // describes the problem.
  std::string finish(int64_t at_least);
  // Returns what differs from the uninterrupted run in the folder of a finished run. If the last
  // save failed, so that there is no last checkpoint, only weights and log are compared.
  [[nodiscard]] std::string compare() const;
  // Returns the names in the output folder that contain `part`.
  [[nodiscard]] std::vector<std::string> names(const std::string& part) const;

  [[nodiscard]] CaseRecord& record() const { return *record_; }
  // Changes that the uninterrupted run made, in order.
  [[nodiscard]] const std::vector<CaseRecord::Entry>& changes() const { return changes_; }
  [[nodiscard]] std::string out(const std::string& name = "") const {
    return name.empty() ? output_dir_ : output_dir_ + "/" + name;
  }
  [[nodiscard]] std::string mirror() const { return root_ + "/mirror"; }
  // The file with the trained weights.
  [[nodiscard]] std::string model_file() const {
    return settings_.has_adapter ? "adapter_model.safetensors" : "model.safetensors";
  }
  // The folder that contains only the output folder and the mirror.
  [[nodiscard]] std::string root() const { return root_; }
  [[nodiscard]] const RunSettings& settings() const { return settings_; }
  [[nodiscard]] const TemporaryFolder& folder() const { return folder_; }
  [[nodiscard]] double seconds_of_a_run() const { return seconds_; }

  // Save and restore copies of the output folder under a name.
  void keep_as(const std::string& name);
  void take(const std::string& name);
  // Kills the run after the first change that `is_there` accepts and saves the state under a name.
  // Returns the newest step committed by then.
  using Position = std::function<bool(const CaseRecord::Entry&)>;
  int64_t keep_killed_at(const std::string& name, const Position& is_there);
  // Returns the changes that a start from a saved state makes, in order.
  std::vector<CaseRecord::Entry> changes_from(const std::string& name);

 private:
  struct Outcome {
    std::string model;
    std::string optimizer;
    std::string schedule;
    std::string log;
    bool operator==(const Outcome&) const = default;
  };
  [[nodiscard]] Outcome outcome() const;
  // Trains the base of an adapter. Returns the lines of a configuration that name it.
  std::string make_base(const std::string& keys);

  RunSettings settings_;
  TemporaryFolder folder_;
  std::string root_ = folder_ / "root";
  std::string output_dir_ = root_ + "/out";
  CaseRecord* record_;
  std::vector<CaseRecord::Entry> changes_;
  Outcome unbroken_;
  double seconds_ = 0;
};

// The counts of one row of the table. The destructor prints them, writes them to the folder in
// FINETUNE_FAULTS_RESULTS and fails the test if there are failures.
class Row {
 public:
  explicit Row(std::string name);
  ~Row();
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;

  // Counts one case; `problem` is empty if it passed.
  void add(const std::string& what, const std::string& problem);
  [[nodiscard]] int64_t cases() const { return cases_; }

 private:
  std::string name_;
  int64_t cases_ = 0;
  int64_t failures_ = 0;
  double start_;
};

[[nodiscard]] inline bool starts(const CaseRecord::Entry& entry, const std::string& with) {
  return std::string(entry.name.data()).rfind(with, 0) == 0;
}
// Returns "change 12 (write .tmp-checkpoint-3.x/config.json)".
[[nodiscard]] std::string describe(int64_t at, const CaseRecord::Entry& entry);

// Returns the number of cases of a row: `usual` times FINETUNE_FAULTS_SCALE.
[[nodiscard]] int64_t scaled(int64_t usual);
// Whether the i-th of all cases runs: with a scale of 1/n every n-th does.
[[nodiscard]] bool is_chosen(int64_t i);
// Returns FINETUNE_FAULTS_SEED, or 1.
[[nodiscard]] uint64_t base_seed();

}  // namespace finetune::testing
