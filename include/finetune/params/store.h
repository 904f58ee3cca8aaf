// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <vector>

#include "finetune/params/exchange.h"
#include "finetune/params/factors.h"
#include "finetune/params/gradients.h"
#include "finetune/params/quantized_values.h"

namespace finetune {

// The values of all weights of a model, each in its storage format, and the gradients of the
// trained ones. Parts name a parameter by the Weight that they hold. Call assign() after the
// construction. One thread at a time.
class ParameterStore {
 public:
  // Allocates every parameter on `device`, once and in its format, uninitialised until assign(). On
  // the meta device nothing is allocated. `formats`: one a weight.
  ParameterStore(const Weights& weights, const std::vector<ParameterFormat>& formats,
                 c10::Device device = c10::Device(c10::kCPU));
  // All parameters are trained and have the same formats.
  ParameterStore(const Weights& weights, WeightFormat weight, GradientFormat gradient,
                 c10::Device device = c10::Device(c10::kCPU));
  // The same, in float32 with the memory of these tensors; in another format uninitialised, on
  // their devices.
  ParameterStore(const Weights& weights, const std::vector<Tensor>& tensors, WeightFormat weight,
                 GradientFormat gradient);
  // Of new weights with these names and shapes.
  ParameterStore(const NamedTensors& tensors, WeightFormat weight, GradientFormat gradient);

  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  [[nodiscard]] std::vector<Parameter>& parameters() { return parameters_; }
  [[nodiscard]] const std::vector<Parameter>& parameters() const { return parameters_; }
  [[nodiscard]] const Parameter& at(const Weight& weight) const {
    return parameters_[index_in(parameters_, weight)];
  }
  // Requires: there is a weight of this name.
  [[nodiscard]] const Weight& weight(const std::string& name) const;
  // The tensors that store the parameters, in order: with float32, leaves of autograd.
  [[nodiscard]] NamedTensors tensors() const;

  // Indices in parameters() of the trained parameters, ascending.
  [[nodiscard]] const std::vector<size_t>& trained() const { return gradients_.trained(); }
  [[nodiscard]] bool trains(const Weight& weight) const {
    return weight.defined() && at(weight).format.trainable;
  }
  // The formats of the trained parameters, which are the same for all (if none is trained: those of
  // the first parameter).
  [[nodiscard]] WeightFormat weight_format() const { return shared_format().weight; }
  [[nodiscard]] GradientFormat gradient_format() const { return shared_format().gradient; }
  // Whether any parameter, frozen or not, has a correction (WeightFormat::kSplit).
  [[nodiscard]] bool has_corrections() const;

  // Freezes the parameters for which is_frozen(name) is true. Requires: no gradient and no
  // optimizer exists yet.
  void freeze(const std::function<bool(const std::string& name)>& is_frozen);

  // Brings the values of divided parameters together; null: none is divided, or nobody reads them.
  // It must outlive the store or be reset.
  void set_exchange(ParameterExchange* exchange) { exchange_ = exchange; }
  [[nodiscard]] ParameterExchange* exchange() const { return exchange_; }

  // The tensor that stores the values; with float32 a leaf of autograd.
  [[nodiscard]] const Tensor& tensor(const Weight& weight) const { return at(weight).weight; }
  // The values in float32: the weight itself (no copy) or new memory.
  [[nodiscard]] Tensor values(const Weight& weight) const { return factors_.values(at(weight)); }
  // Rows [first, first + count) of a matrix in float32; a view if nothing needs to be unpacked.
  [[nodiscard]] Tensor values_of_rows(const Weight& weight, int64_t first, int64_t count) const;
  // weight[indices], in float32: indices [...] int64 -> [..., C].
  [[nodiscard]] Tensor gather_rows(const Weight& weight, const Tensor& indices) const;
  // What a product in this precision takes as its factor; see Factors.
  [[nodiscard]] Tensor factor(const Weight& weight, Precision precision) {
    return factors_.factor(at(weight), precision);
  }
  // What `compute` makes of weights for this one, once between hold_factors() and
  // release_factors(); see Factors.
  [[nodiscard]] Tensor derived(const Weight& weight, const std::function<Tensor()>& compute,
                               int part = 0) {
    return factors_.derived(at(weight), compute, part);
  }
  void hold_factors() { factors_.hold(); }
  void release_factors() { factors_.release(); }

  // Sets the values, rounded to the nearest value of the format. `values`: any floating type.
  // Conversion needs temporary memory of bounded size only.
  void assign(Parameter& parameter, const Tensor& values);
  // The same of the values of this rank, flat, of a divided parameter without codes.
  void assign_part(Parameter& parameter, const Tensor& values);
  // Sets codes and scales as they are; in another format the values that they mean.
  void assign(Parameter& parameter, const QuantizedValues& values);
  // The same for a frozen parameter, whose memory these tensors become where they are as it stores
  // them. Requires: nobody writes to them.
  void share(Parameter& parameter, const Tensor& values);
  void share(Parameter& parameter, const QuantizedValues& values);

  [[nodiscard]] Gradients& gradients() { return gradients_; }
  [[nodiscard]] const Gradients& gradients() const { return gradients_; }

  // A dummy input that requires a gradient, so that autograd calls a custom function's backward
  // pass even if all real inputs are integers.
  [[nodiscard]] const Tensor& anchor() const { return anchor_; }

 private:
  explicit ParameterStore(std::vector<Parameter> parameters);

  [[nodiscard]] ParameterFormat shared_format() const;
  // Frozen parameters are no leaves of autograd.
  void find_trained();

  std::vector<Parameter> parameters_;
  ParameterExchange* exchange_ = nullptr;
  Factors factors_;
  Gradients gradients_;
  Tensor anchor_;
};

}  // namespace finetune
