// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "finetune/kernels/precision.h"
#include "finetune/params/exchange.h"

namespace finetune {

// Weights as products and norms read them, in the type of the products. On a device that runs
// ahead, between hold() and release(), what must be converted is converted once: by one launch for
// all that earlier updates asked for.
class Factors {
 public:
  // Both must outlive this object and not move.
  Factors(const std::vector<Parameter>& parameters, ParameterExchange* const& exchange,
          bool runs_ahead);
  Factors(const Factors&) = delete;
  Factors& operator=(const Factors&) = delete;

  // The values in float32: the weight itself (no copy) or new memory.
  [[nodiscard]] Tensor values(const Parameter& parameter) const;
  // What a product in this precision takes as its factor: values(), or, on a device that runs
  // ahead, the values in that type, so that no product converts them.
  [[nodiscard]] Tensor factor(const Parameter& parameter, Precision precision);
  // What `compute` makes of weights, for one parameter: between hold() and release(), on any
  // device, it is called once. `part`: which of several tensors. Several threads may ask.
  [[nodiscard]] Tensor derived(const Parameter& parameter, const std::function<Tensor()>& compute,
                               int part);
  // Requires between the two: weights stay as they are.
  void hold();
  void release();

 private:
  // Unpacks the biases and norms that earlier updates asked for, by one launch.
  void hold_vectors();

  const std::vector<Parameter>& parameters_;
  ParameterExchange* const& exchange_;
  bool runs_ahead_ = false;
  // Between hold() and release(): by parameter, undefined where not asked for.
  bool holds_ = false;
  std::vector<Tensor> factors_;
  mutable std::vector<Tensor> vectors_;  // float32 values of biases and norms
  std::vector<size_t> wanted_factors_;   // what earlier updates asked for
  mutable std::vector<size_t> wanted_vectors_;
  at::ScalarType factor_type_ = at::kFloat;
  bool holds_derived_ = false;
  std::mutex mutex_;                                  // of derived_
  std::map<std::pair<size_t, int>, Tensor> derived_;  // by parameter and part
};

}  // namespace finetune
