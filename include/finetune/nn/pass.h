// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "finetune/base/activation_checkpointing.h"
#include "finetune/kernels/layer_operations.h"
#include "finetune/kernels/precision.h"
#include "finetune/nn/key_value_cache.h"
#include "finetune/nn/rotation.h"
#include "finetune/params/store.h"
#include "finetune/tensor/tensor.h"

// A layer's equation is written once, from parts (linear.h, norm.h, ...), and a Pass runs it:
//
//   Value Layer::operator()(const Value& x, Pass& p) const {
//     const Value h = attention_output_(attend_({value_(x, p), key_(x, p), query_(x, p)}, p), x,
//     p); return output_(feed_forward_(h, p), h, p);
//   }
//
// Training does not use autograd as its tape because three rules hold here that autograd lacks,
// each of which is needed for equal bits and for memory (src/README.md has the figures):
//   1. a backward function owns the gradient it receives and may overwrite it (dy becomes dx);
//   2. a product is accumulated into a gradient that exists already (dx += dy W, one product with
//      beta = 1), instead of being allocated and then added;
//   3. a kept tensor whose last reader is running is memory for the gradient of that tensor.
namespace finetune::nn {

class StowedTensor;  // nn/stowed_tensor.h

enum class Mode {
  kEval,   // fused kernels; keeps nothing
  kTrain,  // fused kernels and a tape; gradients go to the ParameterStore
  kPlain,  // ATen's operators under autograd: the reference that tests compare with
};
// A dry run uses any of these modes with a store on the meta device: it yields shapes and
// allocations and computes nothing.

// Accumulates the gradient of one value during the backward pass.
class Slot {
 public:
  // Adds `gradient`; the first one is stored without a copy.
  void give(Tensor gradient);
  // Adds what function(sum) returns: a gradient of `type`, or, given the sum so far, which it may
  // change in place, the new sum.
  void give_sum(at::ScalarType type, const std::function<Tensor(const Tensor& sum)>& function);
  // Adds dy W, with dy [N, out] and W [out, in]. The first product is written into `spare`, which
  // then becomes the gradient.
  void give_product(Precision precision, const Tensor& dy, const Tensor& weight,
                    const Tensor& spare);
  [[nodiscard]] bool has_gradient() const { return gradient_.defined(); }
  [[nodiscard]] Tensor take() { return std::exchange(gradient_, {}); }

 private:
  Tensor gradient_;
};

// Adds the gradient to the slot, if there is one.
void give(const std::shared_ptr<Slot>& slot, Tensor gradient);

// A tensor in an equation. Parts take Values by value so that they may free or overwrite them: a
// temporary is released as soon as the part no longer needs it.
struct Value {
  Tensor tensor;
  std::shared_ptr<Slot> slot = {};  // null: needs no gradient
  // If set: recomputes the tensor, to the same bits, from tensors that are kept anyway.
  std::function<Tensor()> rebuild = {};
};

// A value kept for the backward pass: either the tensor or the function that recomputes it.
class Kept {
 public:
  Kept(Tensor tensor, std::function<Tensor()> rebuild)
      : tensor_(std::move(tensor)), rebuild_(std::move(rebuild)) {}
  // Requires: called at most once.
  [[nodiscard]] Tensor take();

 private:
  Tensor tensor_;
  std::function<Tensor()> rebuild_;
};

// The tokens whose hidden states are read, fewer than there are. What follows attention in the last
// layer is computed for them alone: keys and values are those of all tokens.
struct ReadTokens {
  int64_t layer;                              // the last one
  Tensor index;                               // [N] int64, in all tokens of the pass
  std::shared_ptr<const TokenLayout> layout;  // of these tokens
};

struct PassOptions {
  ParameterStore* parameters = nullptr;  // never null in a pass; in dry runs on the meta device
  kernels::PassInputs inputs = {};
  std::vector<Rotation> rotations = {};  // of rotary position embeddings, one per kind of layer
  KeyValueCache* cache = nullptr;        // kEval: attention also reads the tokens in the cache
  Precision precision = Precision::kFloat32;  // of Linear's products; kPlain ignores it
  ActivationCheckpointing checkpointing = {};
  std::shared_ptr<const ReadTokens> read = {};  // null: all
  bool without_adapter = false;                 // layers compute as their base does
  bool int8_products = false;                   // kEval: as an export in int8 (int8_products.h)
};

// One forward and backward pass over one equation: mode, options and, in kTrain, the tape.
// Single-threaded.
class Pass {
 public:
  Pass(Mode mode, PassOptions options) : mode_(mode), options_(std::move(options)) {}
  Pass(const Pass&) = delete;  // operations on the tape refer to it
  Pass& operator=(const Pass&) = delete;

  [[nodiscard]] bool is_plain() const { return mode_ == Mode::kPlain; }
  [[nodiscard]] bool records() const { return mode_ == Mode::kTrain; }
  [[nodiscard]] const PassOptions& options() const { return options_; }
  [[nodiscard]] const kernels::PassInputs& inputs() const { return options_.inputs; }
  [[nodiscard]] const std::shared_ptr<const TokenLayout>& layout() const {
    return options_.inputs.layout;
  }
  // Whether x [1, M, C] has the tokens that are read alone (read_tokens()), which are fewer than
  // all.
  [[nodiscard]] bool is_read(const Tensor& x) const;
  // Those of the tokens of x [B, T, C] or [1, N, C]: all, or those that are read.
  [[nodiscard]] const std::shared_ptr<const TokenLayout>& layout_of(const Tensor& x) const;
  [[nodiscard]] kernels::PassInputs inputs_of(const Tensor& x) const;

  // --- called by parts ---

  // Returns a parameter's values in float32; undefined if the parameter is undefined.
  [[nodiscard]] Tensor values(const Weight& parameter) const;
  // The same as a factor of this pass's products: on devices it may be in their precision already.
  [[nodiscard]] Tensor factor(const Weight& parameter) const;
  // In kPlain: the parameter as a leaf of autograd; undefined if it is undefined.
  [[nodiscard]] Tensor leaf(const Weight& parameter) const;
  // Gradients of parameters, or partial sums of them; undefined ones are passed over.
  void add(const Weight& parameter, const Tensor& gradient);
  // The gradient is the sum of rows, which must not change after this backward function.
  void add_sum_of_rows(const Weight& parameter, const Tensor& rows);
  void add_product(const Weight& weight, const Tensor& dy, const Tensor& x);
  // The same for rows [first, first + out) of a weight, which are counted over all matrices of a
  // weight [E, ...].
  void add_product_to_rows(const Weight& weight, int64_t first, const Tensor& dy, const Tensor& x);
  void add_to_rows(const Weight& weight, const Tensor& indices, const Tensor& rows,
                   int64_t skipped);
  void complete(std::initializer_list<Weight> parameters);

  // Whether the parameter gets a gradient: it is defined and not frozen.
  [[nodiscard]] bool trains(const Weight& parameter) const;
  // Wraps the result of an operation; in kTrain it gets a gradient slot if it needs a gradient: if
  // an input has a slot or a parameter of the operation trains. Below the lowest trained parameter
  // nothing is recorded and nothing kept.
  [[nodiscard]] Value result(Tensor tensor, bool needs_gradient) const;
  // Whether anything in this pass needed one up to now.
  [[nodiscard]] bool needs_gradient() const { return needs_gradient_; }
  [[nodiscard]] Kept keep(Value x) const;
  // Puts the backward function of the operation that made `result` on the tape. It is called once
  // with the result's gradient, which it owns, and then destroyed with everything it captured. It
  // is not called if the result received no gradient. Does nothing if the result has no slot.
  void record(const Value& result, std::function<void(Tensor dy)> backward);

  // Runs any differentiable function of values and parameters (passed in this order) under
  // autograd. For operations that have no kernel; keeps the inputs and whatever autograd saves.
  using Function = std::function<Tensor(const std::vector<Tensor>&)>;
  [[nodiscard]] Value differentiate(std::vector<Value> inputs, std::vector<Weight> parameters,
                                    const Function& function);

  // Keeps only the input of `segment` and runs the segment again in the backward pass.
  using Segment = std::function<Value(Value x, Pass& p)>;
  [[nodiscard]] Value checkpoint(Value x, const Segment& segment);

  // Runs the tape from the last operation to the first, which empties it.
  void backward(const Value& result, Tensor gradient);

 private:
  struct Operation {
    std::shared_ptr<Slot> result;
    std::function<void(Tensor dy)> backward;
  };

  Mode mode_;
  PassOptions options_;
  std::vector<Operation> tape_;
  bool is_spent_ = false;                              // backward() was called
  std::vector<std::shared_ptr<StowedTensor>> stowed_;  // inputs in host memory, by segment
  mutable bool needs_gradient_ = false;  // for a parameter, or a value from outside the pass
};

// What goes from a decoder's layer to the next one: x, to which `branch` is still to be added (its
// tensor may be undefined), so that the next norm adds it in its own kernel (RmsNorm::of_sum()).
struct Residual {
  Value x, branch;
  Residual(Value all, Value added = {}) : x(std::move(all)), branch(std::move(added)) {}
};
// x + branch. A Value is whole already.
[[nodiscard]] Value whole(Residual x, Pass& p);
[[nodiscard]] inline Value whole(Value x, Pass& /*p*/) { return x; }

// Runs layers one after the other, with checkpointing as the options say. Each layer is called with
// (x, Pass&), or with (x, shared..., Pass&) if all layers read further arguments, and returns the
// next layer's x: a Value or a Residual.
template <typename Layer, typename... Shared>
[[nodiscard]] Value sequence(const std::vector<Layer>& layers, Value x, Pass& p,
                             const Shared&... shared) {
  using Stream = std::invoke_result_t<const Layer&, Value, const Shared&..., Pass&>;
  const auto run = [&layers, shared...](size_t first, size_t last, Value input, Pass& pass) {
    Stream y = {std::move(input)};
    for (size_t i = first; i < last; ++i) {
      y = layers[i](std::move(y), shared..., pass);
      // Several operations of the next layer read y: keep it.
      if constexpr (std::is_same_v<Stream, Value>) y.rebuild = {};
    }
    Value end = whole(std::move(y), pass);
    return end;
  };
  const auto group = static_cast<size_t>(p.options().checkpointing.group());
  if (group == 0 || !p.records()) return run(0, layers.size(), std::move(x), p);
  for (size_t first = 0; first < layers.size(); first += group) {
    const size_t last = std::min(first + group, layers.size());
    x = p.checkpoint(std::move(x), [run, first, last](Value y, Pass& pass) {
      return run(first, last, std::move(y), pass);
    });
  }
  return x;
}

// A value of one layer that later layers read, too, also in segments that run again.
class SharedValue {
 public:
  // Called by the layer that computes it, with what it computed. When its segment runs again, all
  // later readers have run backward: their gradient is that of `value`.
  void set(Value value, const Pass& p);
  [[nodiscard]] const Value& get() const { return value_; }

 private:
  Value value_;
};

// Runs an equation and gives its result to autograd as one function of `inputs` (at most two) and
// of the parameters.
using Equation = std::function<Value(std::vector<Value> inputs, Pass& p)>;
[[nodiscard]] Tensor run(const std::shared_ptr<Pass>& pass, const std::vector<Tensor>& inputs,
                         const Equation& equation);

// Shares one rebuild among several readers: the first call computes the tensor, which lives until
// the last reader is gone.
[[nodiscard]] std::function<Tensor()> rebuilt_once(std::function<Tensor()> rebuild);
// Reshapes [..., C] to [N, C], as a view if possible.
[[nodiscard]] Tensor rows_of(const Tensor& x);
// Whether this handle is the only one to its storage, covers all of it and is contiguous.
[[nodiscard]] bool owns_memory(const Tensor& tensor);
// Returns a tensor that may be overwritten: `tensor` itself, or a copy if anything else refers to
// it.
[[nodiscard]] Tensor to_overwrite(Tensor tensor);

}  // namespace finetune::nn
