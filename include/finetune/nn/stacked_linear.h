// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

#include "finetune/nn/pass.h"
#include "finetune/nn/scope.h"

namespace finetune::nn {

struct StackOptions {
  int64_t count = 0;  // E
  int64_t inputs = 0, outputs = 0;
  bool is_transposed = false;  // matrices are stored as [in, out]
  bool has_bias = false;       // [E, out]
};

// E linear layers, whose matrices are slices of one parameter, [E, out, in] or [E, in, out].
class StackedLinear {
 public:
  static constexpr char kBias[] = "_bias";  // the end of the name of biases

  StackedLinear(const Scope& scope, const std::string& name, const StackOptions& options);

  // y = x W^T + b with the matrix of this number, for x [n, in]. A pass may call it once a number;
  // `completes`: nothing that is recorded after this call completes the parameters' gradients, and
  // no number is called before it.
  [[nodiscard]] Value operator()(Value x, int64_t number, bool completes, Pass& p) const;
  [[nodiscard]] const Weight& weight() const { return weight_; }

 private:
  [[nodiscard]] Tensor matrix(int64_t number, const Pass& p) const;  // [out, in]
  void give_gradients(const Tensor& x, int64_t number, const Tensor& dy, Pass& p) const;

  StackOptions options_;
  Weight weight_, bias_;
};

}  // namespace finetune::nn
