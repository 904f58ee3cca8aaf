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

// How one start of the run ended.
struct Session {
  int code = -1;        // 137: the fault killed it; 128 + n: signal n did, which is a failure
  std::string said;     // standard error
  int64_t resumed = 0;  // the step it resumed from; -1: it did not get that far

  [[nodiscard]] bool says(const std::string& text) const {
    return said.find(text) != std::string::npos;
  }
};

// Lines of the configuration: what is trained, and how its rows are read.
inline const std::string kTinyBert =
    "model_type: bert\nconfig_overrides: {num_hidden_layers: 1, num_attention_heads: 2, "
    "hidden_size: 16, intermediate_size: 16, max_position_embeddings: 12}\n"
    "line_by_line: true\nmlm_probability: 0.3\n";
inline const std::string kTinyLlama =
    "task: clm\nmodel_type: llama\nconfig_overrides: {num_hidden_layers: 1, "
    "num_attention_heads: 2, num_key_value_heads: 1, hidden_size: 16, intermediate_size: 16, "
    "max_position_embeddings: 12}\nline_by_line: true\npacking: true\n";

struct RunSettings {
  int64_t steps = 12;
  int64_t save_steps = 3;
  int64_t save_total_limit = 2;
  int64_t eval_steps = 6;
  std::string learning_rate = "1e-2";
  std::string model_keys = kTinyBert;
  std::string more_keys = {};  // lines of the configuration
  bool mirrored = false;       // mirror_dir is mirror()
};

// A tiny run that is started again and again, each time in a fork of this process, which has
// libtorch loaded and warm: a start takes a twentieth of what it takes a fresh process, and dies
// like one. This process itself must not start threads.
class FaultRun {
 public:
  explicit FaultRun(const RunSettings& settings = {});

  // The next start is the first, in an empty output folder or in one that it has to make.
  void begin_anew(bool make_folder = true);
  Session start(const Fault& fault = {}, const std::vector<std::string>& more = {});

  // Starts without a fault, and again, until the run is finished; empty where it ends in the
  // uninterrupted run's bits, having resumed from no step before `at_least`, else what is wrong.
  std::string finish(int64_t at_least);
  // What differs from the uninterrupted run, in a folder that says it is finished. Where its last
  // save failed, so that there is no last checkpoint, weights and log alone are compared.
  [[nodiscard]] std::string compare() const;
  // Names in the output folder that hold `part`.
  [[nodiscard]] std::vector<std::string> names(const std::string& part) const;

  [[nodiscard]] CaseRecord& record() const { return *record_; }
  // Changes of the uninterrupted run, in order.
  [[nodiscard]] const std::vector<CaseRecord::Entry>& changes() const { return changes_; }
  [[nodiscard]] std::string out(const std::string& name = "") const {
    return name.empty() ? output_dir_ : output_dir_ + "/" + name;
  }
  [[nodiscard]] std::string mirror() const { return root_ + "/mirror"; }
  // Holds nothing but the output folder and the mirror.
  [[nodiscard]] std::string root() const { return root_; }
  [[nodiscard]] const RunSettings& settings() const { return settings_; }
  [[nodiscard]] const TemporaryFolder& folder() const { return folder_; }
  [[nodiscard]] double seconds_of_a_run() const { return seconds_; }

  // Copies of the output folder under a name, to begin cases from.
  void keep_as(const std::string& name);
  void take(const std::string& name);
  // The state after a kill after the first change that `is_there` accepts, kept under a name.
  // Returns the newest step that was committed by then.
  using Place = std::function<bool(const CaseRecord::Entry&)>;
  int64_t keep_killed_at(const std::string& name, const Place& is_there);
  // Changes that a start from a kept state makes, in order.
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

  RunSettings settings_;
  TemporaryFolder folder_;
  std::string root_ = folder_ / "root";
  std::string output_dir_ = root_ + "/out";
  CaseRecord* record_;
  std::vector<CaseRecord::Entry> changes_;
  Outcome unbroken_;
  double seconds_ = 0;
};

// The count and the failures of one row of the table: prints them, writes them to the folder that
// FINETUNE_FAULTS_RESULTS names, and fails the test where there are any.
class Row {
 public:
  explicit Row(std::string name);
  ~Row();
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;

  // One case; `problem` is empty where it went well.
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
// "change 12 (write .tmp-checkpoint-3.x/config.json)"
[[nodiscard]] std::string describe(int64_t at, const CaseRecord::Entry& entry);

// How many cases a row has: `usual`, or FINETUNE_FAULTS_SCALE times as many.
[[nodiscard]] int64_t scaled(int64_t usual);
// FINETUNE_FAULTS_SEED, else 1.
[[nodiscard]] uint64_t base_seed();

}  // namespace finetune::testing
