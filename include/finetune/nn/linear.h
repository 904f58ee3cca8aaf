// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "finetune/nn/pass.h"
#include "finetune/nn/scope.h"

namespace finetune::nn {

// Values of a matrix of four bits that a product on the CPU unpacks at a time: they stay in a
// cache.
inline constexpr int64_t kUnpackedAtOnce = int64_t{1} << 20;

// The names of a linear layer's parameters in its scope.
struct LinearNames {
  const char* weight = "weight";
  const char* bias = "bias";
};

// y = x W^T + b, for x [..., in]. Keeps x if W trains; its memory is reused for dx if nothing else
// refers to it.
[[nodiscard]] Value linear(Value x, const Weight& weight, const Weight& bias, Pass& p);

// The same, and with an adapter in the scope y += s drop(x) A^T B^T (Hu et al. 2021, section 4.1),
// for which it keeps x and s drop(x) A^T [N, r]; dropout is drawn again. With DoRA the product,
// without the bias, is then scaled (LoraTerm::magnitude), and kept before that. Only this
// class, TransposedLinear and Embedding know of adapters.
class Linear {
 public:
  // What layers that read the same x compute of it together: s drop(x) A^T of their adapters, by
  // one launch on a device that has a kernel for it; elsewhere nothing.
  class SharedInput {
   public:
    SharedInput(const Value& x, std::initializer_list<const Linear*> layers, const Pass& p);

   private:
    friend class Linear;
    [[nodiscard]] Tensor low_product(const Linear& layer, const Value& x) const;
    std::vector<const Linear*> layers_;
    std::vector<Tensor> products_;  // of each
    const c10::TensorImpl* x_;
  };

  Linear(const Scope& scope, int64_t inputs, int64_t outputs, bool has_bias = true,
         const LinearNames& names = {});

  Value operator()(Value x, Pass& p) const;
  // The same bits; takes what is there in `shared` if x is the input that it is of.
  Value operator()(Value x, const SharedInput& shared, Pass& p) const;
  // The same of a table [R, in] that all samples share: so is the dropout of its rows.
  [[nodiscard]] Value of_table(Value x, Pass& p) const;
  // of_table() in a pass that has already called operator(). The backward function of operator()
  // runs last and completes the parameters' gradients.
  [[nodiscard]] Value again(Value x, Pass& p) const;
  // x W^T without the bias, for parts that fuse the bias with the next operation.
  [[nodiscard]] Value product(Value x, Pass& p) const;
  [[nodiscard]] const Weight& weight() const { return weight_; }  // [out, in]
  [[nodiscard]] const Weight& bias() const { return bias_; }      // [out], or undefined

 private:
  Weight weight_, bias_;
  std::optional<LoraTerm> lora_;
};

// The same with the weight in GPT-2's layout, [in, out] (transformers' Conv1D).
class TransposedLinear {
 public:
  TransposedLinear(const Scope& scope, int64_t inputs, int64_t outputs);
  Value operator()(Value x, Pass& p) const;

 private:
  Weight weight_, bias_;
  std::optional<LoraTerm> lora_;
};

}  // namespace finetune::nn
