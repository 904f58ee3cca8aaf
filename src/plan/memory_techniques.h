// SPDX-License-Identifier: MIT
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "finetune/config/load.h"
#include "finetune/plan/memory_plan.h"
#include "plan/decision_reader.h"

namespace finetune {

// When memory_budget tries other values of a technique.
enum class Stage {
  kNever,
  kEqualResults,  // first: results are equal
  kFormats,       // then together: results change a little
  kWeights,       // then these too
  kBase,          // last
};

// A setting that memory depends on. A new one is a member of MemoryChoices and a row of
// memory_techniques(): from the row follow the plan, a decision's sentence, its record in a
// checkpoint and the keys there, what a resumed run compares, and the advice. A member that is not
// given means: nothing.
struct MemoryTechnique {
  using Json = nlohmann::ordered_json;

  std::string name;                    // of MemoryOptions::fixed
  std::vector<std::string> keys = {};  // that say its value
  Stage stage = Stage::kNever;
  // Copies its members of MemoryChoices.
  std::function<void(const MemoryChoices& from, MemoryChoices& to)> copy = {};
  // Reads the keys; writes them for a decision.
  std::function<void(const TrainingArgs& args, MemoryChoices& choices)> ask = {};
  std::function<void(const MemoryDecision& decision, TrainingArgs& args)> record = {};
  // Whether the keys leave no choice; not given: if one of them is set.
  std::function<bool(const LoadedConfig& config)> is_fixed = {};
  // In finetune_state.json.
  std::function<void(const MemoryChoices& choices, Json& json)> write = {};
  std::function<void(const DecisionReader& in, MemoryChoices& choices)> read = {};
  // Appends what memory_budget may choose in place of values.front(), faster ones first.
  std::function<void(const MemoryWorkload& workload, std::vector<MemoryChoices>& values)> others =
      {};
  // A clause on a value that was not asked for, and the key that forbids it: if results depend on
  // it.
  std::function<std::string(const MemoryChoices& choices)> clause = {};
  std::string forbidding = {};
  // Lowers the peak, and returns the keys for it.
  std::function<std::string(const MemoryWorkload& workload, MemoryChoices& choices)> save = {};

  [[nodiscard]] bool differs(const MemoryChoices& one, const MemoryChoices& other) const {
    MemoryChoices copied = other;
    copy(one, copied);
    return copied != other;
  }
};

// In the order of a decision's record.
[[nodiscard]] const std::deque<MemoryTechnique>& memory_techniques();

}  // namespace finetune
