// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <unordered_map>
#include <vector>

#include "finetune/kernels/formats.h"
#include "finetune/kernels/precision.h"
#include "finetune/tensor/tensor.h"

namespace finetune {

// Storage format of a parameter's values.
enum class WeightFormat {
  kFloat32,   // 4 bytes a value
  kBFloat16,  // 2 bytes; updates are rounded stochastically
  kSplit,     // 3 bytes: bfloat16 and an int8 correction, 24 bits in all (FlashOptim, section 3)
};
enum class GradientFormat {
  kFloat32,
  kBFloat16,  // 2 bytes; sums are rounded stochastically
};

// Formats of one parameter, and whether it is trained.
struct ParameterFormat {
  WeightFormat weight = WeightFormat::kFloat32;
  GradientFormat gradient = GradientFormat::kFloat32;  // of a trained parameter
  // False: frozen. It has no gradient and no optimizer slot; additions to its gradient are ignored.
  bool trainable = true;
};

// One tensor of a model: its values and, if there is one, its gradient.
struct Parameter {
  std::string name;
  Tensor weight;           // float32 or bfloat16
  Tensor correction = {};  // int8, shape of weight: kSplit only
  Tensor gradient = {};  // float32 or bfloat16, shape of weight; undefined: none yet in this update
  ParameterFormat format = {};
  ParameterRole role = ParameterRole::kOther;
};

// The random numbers of stochastic rounding: a function of (seed, update, index in the effective
// batch, parameter, element).
struct RoundingStream {
  uint64_t seed = 0;
  int64_t update = 0;
  int64_t first_place = 0;
};

// All parameters of a model and the gradients of the trained ones. Layers add to gradients
// directly: no autograd node keeps one, so each gradient exists once, in its own format. Layers
// name a tensor by the weight that their module registered. Order of calls: construct, freeze(),
// assign(); then for each update begin_micro_batch(), additions and complete(), clear_gradients().
// One thread at a time.
class ParameterStore {
 public:
  // Allocates each parameter that is on the meta device on `device`, once and in its format; the
  // same Tensor objects get the memory, uninitialised until assign(). A parameter that has memory
  // keeps it if its format is float32 and is replaced by zeros otherwise. Requires: distinct
  // leaves.
  ParameterStore(const NamedTensors& parameters, const std::vector<ParameterFormat>& formats,
                 c10::Device device = c10::Device(c10::kCPU));
  // All parameters are trained and have the same formats.
  ParameterStore(const NamedTensors& parameters, WeightFormat weights, GradientFormat gradients,
                 c10::Device device = c10::Device(c10::kCPU));

  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  [[nodiscard]] std::vector<Parameter>& parameters() { return parameters_; }
  [[nodiscard]] const std::vector<Parameter>& parameters() const { return parameters_; }
  // Indices in parameters() of the trained parameters, ascending.
  [[nodiscard]] const std::vector<size_t>& trained() const { return trained_; }
  // The formats of the trained parameters, which are the same for all (if none is trained: those of
  // the first parameter).
  [[nodiscard]] WeightFormat weight_format() const { return shared_format().weight; }
  [[nodiscard]] GradientFormat gradient_format() const { return shared_format().gradient; }
  // Whether any parameter, frozen or not, has a correction (WeightFormat::kSplit).
  [[nodiscard]] bool has_corrections() const;

  // Freezes the parameters for which is_frozen(name) is true. Requires: no gradient and no
  // optimizer exists yet.
  void freeze(const std::function<bool(const std::string& name)>& is_frozen);

  // Returns the values in float32: the weight itself (no copy) or new memory.
  [[nodiscard]] Tensor values(const Tensor& weight) const;
  // Returns rows [first, first + count) of a matrix in float32; a view if nothing needs to be
  // unpacked.
  [[nodiscard]] Tensor values_of_rows(const Tensor& weight, int64_t first, int64_t count) const;
  // What a product in this precision takes as its factor: values(), or, on a device that runs
  // ahead, the values in that type, so that no product converts them.
  [[nodiscard]] Tensor factor(const Tensor& weight, Precision precision);
  // From here to release_factors() on such a device, what must be converted is converted once: by
  // one launch for all that earlier updates asked for. Requires: weights stay as they are.
  void hold_factors();
  void release_factors();
  // weight[indices], in float32: indices [...] int64 -> [..., C].
  [[nodiscard]] Tensor gather_rows(const Tensor& weight, const Tensor& indices) const;

  // Sets the values, rounded to the nearest value of the format. `values`: any floating type.
  // Conversion needs temporary memory of bounded size only.
  void assign(Parameter& parameter, const Tensor& values);

  // Sets the random numbers that round the sums of the next micro-batch. Only affects bfloat16
  // gradients.
  void begin_micro_batch(const RoundingStream& stream);

  // Adding to the gradient of `weight`; the first of an update creates it.
  // The gradient of `weight` [...] is [...], or partial sums [P, ...], whose sum over P is added at
  // the latest by add_pending(): with those of other parameters, in one launch.
  void add(const Tensor& weight, const Tensor& gradient);
  // The gradient of `weight` [C] is the sum of rows [N, C], which must not change before
  // add_pending(): a device sums those of several parameters in one launch.
  void add_sum_of_rows(const Tensor& weight, const Tensor& rows);
  // At the end of each backward pass.
  void add_pending();
  // += dy^T x for a weight [M, K] of a linear layer: dy [N, M], x [N, K], of any floating types.
  void add_product(const Tensor& weight, const Tensor& dy, const Tensor& x);
  // The same for rows [first, first + M) of the weight.
  void add_product_to_rows(const Tensor& weight, int64_t first, const Tensor& dy, const Tensor& x);
  // weight.gradient[index] += row; indices [N] int64, rows [N, C] float32. Rows whose index is
  // `skipped` are ignored (padding of an embedding). Sums in the order of N, independent of the
  // number of threads.
  void add_to_indexed_rows(const Tensor& weight, const Tensor& indices, const Tensor& rows,
                           int64_t skipped);
  // Declares that this backward pass adds nothing more to these gradients and reads these weights
  // no more: they may be updated.
  void complete(std::initializer_list<Tensor> weights);

  // Sets the function that complete() calls once per weight; none by default (optimizer_in_backward
  // sets it).
  void on_complete(std::function<void(Parameter&)> listener) { listener_ = std::move(listener); }

  // Creates zero gradients for those of these parameters that have none yet in this update; frozen
  // ones get none.
  void open(const std::vector<size_t>& places);
  // Allocates all gradients now, before the first activations. They live as long as the run and
  // would otherwise fragment the memory that every step allocates and frees.
  void reserve_gradients();
  // Frees the gradients; with `keep_memory`, keeps their memory for the next update.
  void clear_gradients(bool keep_memory);

  // A dummy input that requires a gradient, so that autograd calls a custom function's backward
  // pass even if all real inputs are integers.
  [[nodiscard]] const Tensor& anchor() const { return anchor_; }

 private:
  [[nodiscard]] ParameterFormat shared_format() const;
  void find_trained();
  [[nodiscard]] size_t index_of(const Tensor& weight) const;
  [[nodiscard]] const Parameter& find(const Tensor& weight) const;
  // Where the gradient is while this thread's micro-batch is computed.
  [[nodiscard]] Tensor& gradient_of(Parameter& parameter);
  // It, zeros where there was none.
  Tensor& open_gradient(Parameter& parameter);
  // Makes a product the gradient, which saves zeros and reading them; false, with nothing done,
  // where there is one already.
  [[nodiscard]] bool set_product(Parameter& parameter, const Tensor& left, const Tensor& right);
  [[nodiscard]] RoundingKey key_of_next_addition(const Parameter& parameter) const;
  [[nodiscard]] RoundingKey next_key(const Parameter& parameter);
  void add_partial(Parameter& parameter, const Tensor& parts);
  // Sums what add_sum_of_rows() was given.
  void sum_waiting_rows();
  void add_rounded(Parameter& parameter, const Tensor& target, int64_t first_element,
                   const Tensor& values);
  // The same at the latest by add_pending(), with products of other parameters in one launch.
  void add_product_rounded(Parameter& parameter, const Tensor& target, int64_t first_element,
                           const Tensor& product);
  // Unpacks the biases and norms that earlier updates asked for, by one launch.
  void hold_vectors();
  void add_rows_of_few(Parameter& parameter, const Tensor& target, const Tensor& indices,
                       const Tensor& rows);

  std::vector<Parameter> parameters_;
  std::vector<size_t> trained_;
  bool rounds_gradients_ = false;  // for at least one parameter
  std::vector<Tensor> spare_;      // memory of gradients between updates
  bool runs_ahead_ = false;        // the device does; spare_ then holds zeros, made by one call

  // Between hold_factors() and release_factors(): by parameter, undefined where not asked for.
  bool holds_factors_ = false;
  std::vector<Tensor> factors_;
  mutable std::vector<Tensor> vectors_;  // float32 values of biases and norms
  std::vector<size_t> wanted_factors_;   // what earlier updates asked for
  mutable std::vector<size_t> wanted_vectors_;
  at::ScalarType factor_type_ = at::kFloat;

  // Additions to gradients that wait for add_pending().
  struct Pending {
    size_t place;
    Tensor target;  // of a product: the rows of the gradient that it is added to
    Tensor values;  // partial sums, or the product
    RoundingKey key;
  };
  std::vector<Pending> pending_;   // partial sums
  std::vector<Pending> products_;  // to be rounded
  int64_t pending_bytes_ = 0;
  int64_t product_bytes_ = 0;
  struct WaitingRows {
    Tensor weight;
    Tensor rows;
  };
  std::vector<WaitingRows> waiting_rows_;  // of one shape and type
  std::unordered_map<const void*, size_t> index_;
  // Gradient additions in this micro-batch by parameter: each rounds with other random numbers.
  std::vector<uint32_t> additions_;
  RoundingStream stream_;
  std::function<void(Parameter&)> listener_;
  Tensor anchor_;
};

}  // namespace finetune
