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

// The adapters of E linear layers [out, in], as PEFT's ParamWrapper stores them: that of layer e
// has the rows [e r, (e + 1) r) of A [E r, in], and of B [out, r, E] the matrix e.
class StackedAdapter {
 public:
  // `module`: PEFT's for them.
  StackedAdapter(const Scope& module, const LoraSettings& settings, const StackOptions& options);

  // What the calls in one pass share: the first of them, whose backward function is the last to
  // run, completes the gradients.
  class Calls {
   private:
    friend class StackedAdapter;
    friend class StackedLinear;
    bool has_any_ = false;
    std::shared_ptr<Tensor> of_b_ = std::make_shared<Tensor>();  // gradient of B [out, r, E]
  };
  // s x A_e^T B_e^T [n, out], for x [n, in]; once a number.
  [[nodiscard]] Value operator()(Value x, int64_t number, Calls& calls, Pass& p) const;

 private:
  friend class StackedLinear;
  // One call in the backward pass: the layer's number, s x A_e^T [n, r], and what the calls share.
  struct Call {
    int64_t number = 0;
    Tensor low;
    std::shared_ptr<Tensor> of_b;
  };
  [[nodiscard]] bool trains(const Pass& p) const { return p.trains(lora_.a) || p.trains(lora_.b); }
  [[nodiscard]] Tensor a(int64_t number, const Pass& p) const;  // A_e [r, in]
  [[nodiscard]] Tensor b(int64_t number, const Pass& p) const;  // B_e [out, r]
  [[nodiscard]] Tensor plain(const Tensor& x, int64_t number, const Pass& p) const;
  [[nodiscard]] Tensor low(const Tensor& x, int64_t number, const Pass& p) const;
  // dB_e = dy^T low, dA_e = (s dy B_e)^T x, dx += s dy B_e A_e. `dx`: null if x has none.
  void give(const Call& call, const Tensor& x, const Tensor& dy, Slot* dx, const Tensor& spare,
            Pass& p) const;
  void complete(const Call& call, Pass& p) const;

  int64_t count_, outputs_, rank_;
  LoraTerm lora_;
};

// E linear layers, whose matrices are slices of one parameter, [E, out, in] or [E, in, out], with
// or without adapters.
class StackedLinear {
 public:
  static constexpr char kBias[] = "_bias";  // the end of the name of biases
  using Calls = StackedAdapter::Calls;

  StackedLinear(const Scope& scope, const std::string& name, const StackOptions& options);
  // Adds the adapters, in PEFT's module for them.
  void adapt(const Scope& module, const LoraSettings& settings);

  // y = x W^T + b with the matrix of this number, for x [n, in]; once a number.
  [[nodiscard]] Value operator()(Value x, int64_t number, Calls& calls, Pass& p) const;

 private:
  // One call's backward function.
  struct Back {
    StackedAdapter::Call call;  // without `low`: without the adapter
    bool completes = false;
    std::vector<int64_t> shape;  // of x
    at::TensorOptions options;
    std::shared_ptr<Slot> dx;
  };
  [[nodiscard]] Tensor matrix(int64_t number, const Pass& p) const;  // [out, in]
  [[nodiscard]] Value plain(const Value& x, int64_t number, const Pass& p) const;
  void give_weights(const Tensor& x, int64_t number, const Tensor& dy, Pass& p) const;
  void give_gradients(const Back& back, const Tensor& x, const Tensor& dy, Pass& p) const;

  StackOptions options_;
  Weight weight_, bias_;
  std::optional<StackedAdapter> adapter_;
};

}  // namespace finetune::nn
