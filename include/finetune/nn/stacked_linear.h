// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "finetune/nn/pass.h"
#include "finetune/nn/scope.h"

namespace finetune::nn {

struct StackOptions {
  int64_t count = 0;  // E
  int64_t inputs = 0, outputs = 0;
  bool is_transposed = false;  // matrices are stored as [in, out]
  bool has_bias = false;       // [E, out]
};

// E linear layers, whose matrices are slices of one parameter, [E, out, in] or [E, in, out]. With
// an adapter (PEFT's ParamWrapper) that of layer e has A [e r, ..., (e + 1) r - 1] and of B [out,
// r, E] the matrix e: y += s x A_e^T B_e^T.
class StackedLinear {
 public:
  static constexpr char kBias[] = "_bias";  // the end of the name of biases

  StackedLinear(const Scope& scope, const std::string& name, const StackOptions& options);

  // Adds the adapter, in PEFT's module for it.
  void adapt(const Scope& module, const LoraSettings& settings);

  // What the layers' calls in one pass share: the first of them, whose backward function is the
  // last to run, completes the gradients.
  class Calls {
   private:
    friend class StackedLinear;
    bool has_any_ = false;
    std::shared_ptr<Tensor> of_b_ = std::make_shared<Tensor>();  // gradient of B [out, r, E]
  };
  // y = x W^T + b with the matrix of this number, for x [n, in]; once a number.
  [[nodiscard]] Value operator()(Value x, int64_t number, Calls& calls, Pass& p) const;

 private:
  // One call's backward function.
  struct Back {
    int64_t number = 0;
    bool completes = false;
    std::vector<int64_t> shape;  // of x
    at::TensorOptions options;
    std::shared_ptr<Slot> dx;
    Tensor low;  // s x A_e^T [n, r]; undefined: without the adapter
    std::shared_ptr<Tensor> of_b;
  };
  [[nodiscard]] Tensor matrix(int64_t number, const Pass& p) const;  // [out, in]
  [[nodiscard]] Tensor lora_a(int64_t number, const Pass& p) const;  // A_e [r, in]
  [[nodiscard]] Tensor lora_b(int64_t number, const Pass& p) const;  // B_e [out, r]
  [[nodiscard]] Tensor add_adapter(const Tensor& x, const Tensor& y, int64_t number,
                                   const Pass& p) const;
  [[nodiscard]] Value plain(const Value& x, int64_t number, const Pass& p) const;
  void give_weights(const Tensor& x, int64_t number, const Tensor& dy, Pass& p) const;
  void give_gradients(const Back& back, const Tensor& x, const Tensor& dy, Pass& p) const;

  StackOptions options_;
  Weight weight_, bias_;
  std::optional<LoraTerm> lora_;
  int64_t rank_ = 0;
};

}  // namespace finetune::nn
