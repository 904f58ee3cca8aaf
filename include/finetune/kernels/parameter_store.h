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

// How the values of a parameter are kept.
enum class WeightFormat {
  kFloat32,   // 4 bytes a value
  kBFloat16,  // 2 bytes; an update is rounded stochastically
  kSplit,     // 3 bytes: bfloat16 and an int8 correction, 24 bits in all (FlashOptim, section 3)
};
enum class GradientFormat {
  kFloat32,
  kBFloat16,  // 2 bytes; every sum is rounded stochastically
};

// How one parameter is kept, and whether it is trained.
struct ParameterFormat {
  WeightFormat weight = WeightFormat::kFloat32;
  GradientFormat gradient = GradientFormat::kFloat32;  // of a trained parameter
  // False: frozen. It never has a gradient, nor an optimizer slot; additions to its gradient do
  // nothing and cost nothing.
  bool trainable = true;
};

// One tensor of a model: its values, and its gradient where there is one.
struct Parameter {
  std::string name;
  Tensor weight;           // float32 or bfloat16
  Tensor correction = {};  // int8 like weight: kSplit alone
  Tensor gradient = {};    // float32 or bfloat16 like weight; undefined: none yet in this update
  ParameterFormat format = {};
};

// Which random numbers round: they are a function of (seed, update, place in the effective batch,
// parameter, element).
struct RoundingStream {
  uint64_t seed = 0;
  int64_t update = 0;
  int64_t first_place = 0;
};

// All parameters of a model with the gradients of the trained ones, which layers add to directly:
// no autograd node keeps one, so a gradient exists once, in its own format. Layers name a tensor by
// the weight that their module registered. Order of calls: construct, freeze(), assign(), then for
// each update begin_micro_batch(), additions and complete(), clear_gradients(). One thread at a
// time.
class ParameterStore {
 public:
  // Allocates each parameter that is on the meta device on `device`, once and in its format; the
  // same Tensor objects get the memory, uninitialised until assign(). A parameter that has memory
  // keeps it in float32; another format gets zeros in its place. Requires: distinct leaves.
  ParameterStore(const NamedTensors& parameters, const std::vector<ParameterFormat>& formats,
                 c10::Device device = c10::Device(c10::kCPU));
  // All trained, all in one format.
  ParameterStore(const NamedTensors& parameters, WeightFormat weights, GradientFormat gradients,
                 c10::Device device = c10::Device(c10::kCPU));

  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  [[nodiscard]] std::vector<Parameter>& parameters() { return parameters_; }
  [[nodiscard]] const std::vector<Parameter>& parameters() const { return parameters_; }
  // Places in parameters() of those that are trained, rising.
  [[nodiscard]] const std::vector<size_t>& trained() const { return trained_; }
  // The formats of the trained parameters, which share them (of the first of all where none is).
  [[nodiscard]] WeightFormat weight_format() const { return shared_format().weight; }
  [[nodiscard]] GradientFormat gradient_format() const { return shared_format().gradient; }
  // Whether some parameter, frozen or not, has a correction (WeightFormat::kSplit).
  [[nodiscard]] bool has_corrections() const;

  // Freezes the parameters whose name is_frozen(name) selects. Requires: no gradient and no
  // optimizer has been made yet.
  void freeze(const std::function<bool(const std::string& name)>& is_frozen);

  // Values in float32: the weight itself (no copy), or fresh memory.
  [[nodiscard]] Tensor values(const Tensor& weight) const;
  // Rows [first, first + count) of a matrix, in float32; a view where nothing must be unpacked.
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

  // Sets the values, rounded to the nearest that the format has. `values`: any floating type.
  // Where they must be converted, a bounded part at a time.
  void assign(Parameter& parameter, const Tensor& values);

  // What rounds the sums of the micro-batch that follows. Of effect for bfloat16 gradients alone.
  void begin_micro_batch(const RoundingStream& stream);

  // Adding to the gradient of `weight`; the first of an update creates it.
  // The gradient of `weight` [...] is [...], or partial sums [P, ...], whose sum over P is added at
  // the latest by add_pending(): with those of other parameters, in one launch.
  void add(const Tensor& weight, const Tensor& gradient);
  // At the end of each backward pass.
  void add_pending();
  // += dy^T x for a weight [M, K] of a linear layer: dy [N, M], x [N, K], of any floating types.
  void add_product(const Tensor& weight, const Tensor& dy, const Tensor& x);
  // The same for rows [first, first + M) of the weight alone.
  void add_product_to_rows(const Tensor& weight, int64_t first, const Tensor& dy, const Tensor& x);
  // weight.gradient[index] += row; indices [N] int64, rows [N, C] float32. Rows whose index is
  // `skipped` are left out (an embedding's padding). Sums in the order of N, whatever the threads.
  void add_to_indexed_rows(const Tensor& weight, const Tensor& indices, const Tensor& rows,
                           int64_t skipped);
  // Nothing will be added to these in this backward pass any more, and their values are not needed
  // any more either: they may be updated.
  void complete(std::initializer_list<Tensor> weights);

  // What complete() calls, once a weight; nothing by default (optimizer_in_backward sets it).
  void on_complete(std::function<void(Parameter&)> listener) { listener_ = std::move(listener); }

  // Makes the gradients of these zeros where they have none yet in this update.
  // Frozen ones stay without.
  void open(const std::vector<size_t>& places);
  // Makes the memory of all gradients now. They live as long as the run: made before the first
  // activations, they do not lie scattered among memory that every step takes and frees.
  void reserve_gradients();
  // Frees the gradients, or, where `keep_memory`, keeps their memory for the next update.
  void clear_gradients(bool keep_memory);

  // A dummy input that requires a gradient, so that autograd calls a custom function's backward
  // pass if all real inputs are integers.
  [[nodiscard]] const Tensor& anchor() const { return anchor_; }

 private:
  [[nodiscard]] ParameterFormat shared_format() const;
  void find_trained();
  [[nodiscard]] size_t index_of(const Tensor& weight) const;
  [[nodiscard]] const Parameter& find(const Tensor& weight) const;
  Tensor& open_gradient(Parameter& parameter);
  [[nodiscard]] RoundingKey key_of_next_addition(const Parameter& parameter) const;
  [[nodiscard]] RoundingKey next_key(const Parameter& parameter);
  void add_partial(Parameter& parameter, const Tensor& parts);
  void add_rounded(Parameter& parameter, const Tensor& target, int64_t first_element,
                   const Tensor& values);
  void add_rows_of_few(Parameter& parameter, const Tensor& target, const Tensor& indices,
                       const Tensor& rows);

  std::vector<Parameter> parameters_;
  std::vector<size_t> trained_;
  bool rounds_gradients_ = false;  // some of them
  std::vector<Tensor> spare_;      // memory of gradients between updates
  bool runs_ahead_ = false;        // the device does; spare_ then holds zeros, made by one call

  // Between hold_factors() and release_factors(): by parameter, undefined where not asked for.
  bool holds_factors_ = false;
  std::vector<Tensor> factors_;
  mutable std::vector<Tensor> vectors_;  // float32 values of biases and norms
  std::vector<size_t> wanted_factors_;   // what earlier updates asked for
  at::ScalarType factor_type_ = at::kFloat;

  struct Pending {
    size_t place;
    Tensor parts;
    RoundingKey key;
  };
  std::vector<Pending> pending_;
  int64_t pending_bytes_ = 0;
  std::unordered_map<const void*, size_t> index_;
  std::vector<uint32_t>
      additions_;  // of this micro-batch, a parameter: part of the rounding's numbers
  RoundingStream stream_;
  std::function<void(Parameter&)> listener_;
  Tensor anchor_;
};

}  // namespace finetune
