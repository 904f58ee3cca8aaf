// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "finetune/params/exchange.h"

namespace finetune {

// What ranks exchange in a pass of a model with divided parameters, in order. It is known before
// the first pass (plan/exchange_script.h), so that every rank takes part in all of it, whatever its
// own micro-batch reads.
struct ExchangeStep {
  enum class Kind { kGather, kScatter };  // of values; of a gradient

  Kind kind = Kind::kGather;
  size_t parameter = 0;

  friend bool operator==(const ExchangeStep&, const ExchangeStep&) = default;
};

// The same steps, so that their order within a layer does not matter: a layer's gathers come before
// its scatters, wherever the pass is in this layer.
[[nodiscard]] std::vector<ExchangeStep> by_layers(const std::vector<ExchangeStep>& steps,
                                                  const std::vector<Parameter>& parameters);

struct ExchangeScripts {
  std::vector<ExchangeStep> training;  // ParameterExchange::Pass
  std::vector<ExchangeStep> forward;
};

// The divided parameters whose whole values are in memory: those of one layer, and of what is
// outside of the layers one large parameter and the small ones. With `keeps_all` everything.
class WholeValues {
 public:
  explicit WholeValues(bool keeps_all) : keeps_all_(keeps_all) {}

  // Null: not in memory.
  [[nodiscard]] const ParameterTensors* find(const Parameter& parameter) const;
  // Frees what is not kept with this parameter. Call it before its memory is allocated.
  void make_room(const Parameter& parameter);
  void add(const Parameter& parameter, ParameterTensors values);
  // Frees everything.
  void clear() { values_.clear(); }

 private:
  struct Entry {
    std::string layer;  // "model.layers.3"; empty: in none
    bool is_small = false;
    ParameterTensors values;
  };
  [[nodiscard]] static Entry entry_of(const Parameter& parameter);

  bool keeps_all_;
  std::map<size_t, Entry> values_;  // by index of the parameter
};

}  // namespace finetune
