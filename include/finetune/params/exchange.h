// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/params/parameter.h"

namespace finetune {

// Brings the values of divided parameters together where a model reads them.
class ParameterExchange {
 public:
  // A forward pass and its backward pass, or a forward pass alone.
  enum class Pass { kTraining, kForward };

  virtual ~ParameterExchange() = default;
  // All values of a divided parameter, in its shape. Its memory is free when the last tensor of it
  // is gone and another layer's parameters were asked for.
  [[nodiscard]] virtual ParameterTensors whole(const Parameter& parameter) = 0;
  // Between the two, ranks may compute different things, or nothing: each takes part in all that a
  // pass exchanges. Collectives.
  virtual void begin_pass(Pass pass) = 0;
  virtual void end_pass() = 0;
  // Ends the pass that an exception left, and takes part in as many forward passes as are missing
  // to `passes` since the last call.
  virtual void take_part(int64_t passes) = 0;
  // Call after values have changed.
  virtual void changed() = 0;
};

// The tensors of a part of a parameter's values, as views of those of all; of a parameter that is
// not divided those themselves.
[[nodiscard]] ParameterTensors part_of(const ParameterTensors& whole, const Parameter& parameter,
                                       const ValueRange& part);

// The tensors of all values of a parameter, divided or not.
[[nodiscard]] ParameterTensors whole_of(const Parameter& parameter, ParameterExchange* exchange);

}  // namespace finetune
