// SPDX-License-Identifier: MIT
#include "finetune/params/store.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/kernels/kernels_in_use.h"

namespace finetune {
namespace {

// Memory for as many values as the rank that has most of them, so that a gather sends it as it is.
ParameterTensors allocated_part(const Parameter& parameter, c10::Device device) {
  const auto& allocate = traits_of(parameter.format.weight).allocate;
  const int64_t most = parameter.part_of(0).count;
  const ValueRange part = parameter.part();
  ParameterTensors tensors = allocate(at::IntArrayRef(&most, 1), device);
  const ParameterTensors own = allocate(at::IntArrayRef(&part.count, 1), c10::Device(c10::kMeta));
  const auto cut = [](Tensor& tensor, const Tensor& like) {
    if (tensor.defined()) tensor = tensor.narrow(0, 0, like.numel());
  };
  cut(tensors.weight, own.weight);
  cut(tensors.correction, own.correction);
  cut(tensors.scales, own.scales);
  tensors.first_value = part.first;
  return tensors;
}

std::vector<Parameter> allocated(const Weights& weights,
                                 const std::vector<ParameterFormat>& formats, c10::Device device) {
  FT_CHECK(formats.size() == weights.size(), "one format a parameter");
  std::vector<Parameter> parameters;
  for (const Weight& weight : weights) {
    const ParameterFormat& format = formats[parameters.size()];
    FT_CHECK(format.home == WeightHome::kCheckpoint || !format.trainable,
             "what is trained is saved: " + weight.name());
    Parameter parameter{{}, weight, format};
    static_cast<ParameterTensors&>(parameter) =
        parameter.is_divided() ? allocated_part(parameter, device)
                               : traits_of(format.weight).allocate(weight.sizes(), device);
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

std::vector<Parameter> adopted(const Weights& weights, const std::vector<Tensor>& tensors,
                               const ParameterFormat& format) {
  FT_CHECK(tensors.size() == weights.size(), "one tensor a parameter");
  std::vector<Parameter> parameters;
  for (size_t i = 0; i < weights.size(); ++i) {
    FT_CHECK(tensors[i].sizes() == weights[i].sizes(), "a tensor of the weight's shape");
    const bool is_float = format.weight == WeightFormat::kFloat32;
    parameters.push_back(
        {is_float ? ParameterTensors{.weight = tensors[i]}
                  : traits_of(format.weight).allocate(tensors[i].sizes(), tensors[i].device()),
         weights[i], format});
  }
  return parameters;
}

Weights weights_of(const NamedTensors& tensors) {
  Weights weights;
  for (const NamedTensor& one : tensors) {
    weights.emplace_back(weights.size(), one.name, one.tensor.sizes(), one.role);
  }
  return weights;
}

std::vector<Tensor> tensors_of(const NamedTensors& tensors) {
  std::vector<Tensor> result;
  for (const NamedTensor& one : tensors) result.push_back(one.tensor);
  return result;
}

bool runs_ahead(const std::vector<Parameter>& parameters) {
  return !parameters.empty() && is_asynchronous(parameters.front().weight.device());
}

// Codes of double quantisation are those of the other kind.
bool is_stored_in(WeightFormat own, WeightFormat given) {
  return own == given || (own == WeightFormat::kNf4Nested && given == WeightFormat::kNf4);
}

bool is_stored_as(const Tensor& stored, const Tensor& values) {
  return stored.defined() && stored.device() == values.device() &&
         stored.scalar_type() == values.scalar_type() && stored.sizes() == values.sizes() &&
         stored.is_contiguous() && values.is_contiguous();
}

}  // namespace

ValueRange part_of_values(int64_t values, int64_t rank, int64_t ranks) {
  if (ranks == 1) return {.first = 0, .count = values};
  const int64_t units = (values + kDivisionUnit - 1) / kDivisionUnit;
  const int64_t most = (units + ranks - 1) / ranks * kDivisionUnit;
  const int64_t first = std::min(values, rank * most);
  return {.first = first, .count = std::min(values - first, most)};
}

ParameterTensors whole_of(const Parameter& parameter, ParameterExchange* exchange) {
  if (!parameter.is_divided()) return parameter;
  FT_CHECK(exchange != nullptr, "a divided parameter is read through an exchange");
  return exchange->whole(parameter);
}

ParameterTensors part_of(const ParameterTensors& whole, const Parameter& parameter,
                         const ValueRange& part) {
  if (!parameter.is_divided()) return whole;
  const auto& allocate = traits_of(parameter.format.weight).allocate;
  const auto meta = [&](int64_t values) {
    return allocate(c10::IntArrayRef(&values, 1), c10::Device(c10::kMeta));
  };
  const ParameterTensors before = meta(part.first);
  const ParameterTensors own = meta(part.count);
  const auto cut = [](const Tensor& tensor, const Tensor& from, const Tensor& like) {
    if (!tensor.defined() || !like.defined()) return Tensor();
    return tensor.detach().contiguous().view(-1).narrow(0, from.numel(), like.numel());
  };
  return {.weight = cut(whole.weight, before.weight, own.weight),
          .correction = cut(whole.correction, before.correction, own.correction),
          .scales = cut(whole.scales, before.scales, own.scales),
          .first_value = part.first};
}

size_t index_in(const std::vector<Parameter>& parameters, const Weight& weight) {
  FT_CHECK(weight.id() < parameters.size() && parameters[weight.id()].handle == weight,
           "no weight of this model: " + weight.name());
  return weight.id();
}

ParameterStore::ParameterStore(std::vector<Parameter> parameters)
    : parameters_(std::move(parameters)),
      factors_(parameters_, exchange_, runs_ahead(parameters_)),
      gradients_(parameters_, runs_ahead(parameters_)) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    FT_CHECK(parameters_[i].handle.id() == i, "weights are listed by their ids");
  }
  const auto device =
      parameters_.empty() ? c10::Device(c10::kCPU) : parameters_.front().weight.device();
  anchor_ = at::zeros({}, at::TensorOptions(device).dtype(at::kFloat)).set_requires_grad(true);
  find_trained();
}

ParameterStore::ParameterStore(const Weights& weights, const std::vector<ParameterFormat>& formats,
                               c10::Device device)
    : ParameterStore(allocated(weights, formats, device)) {}

ParameterStore::ParameterStore(const Weights& weights, WeightFormat weight, GradientFormat gradient,
                               c10::Device device)
    : ParameterStore(
          weights,
          std::vector<ParameterFormat>(weights.size(), {.weight = weight, .gradient = gradient}),
          device) {}

ParameterStore::ParameterStore(const Weights& weights, const std::vector<Tensor>& tensors,
                               WeightFormat weight, GradientFormat gradient)
    : ParameterStore(adopted(weights, tensors, {.weight = weight, .gradient = gradient})) {}

ParameterStore::ParameterStore(const NamedTensors& tensors, WeightFormat weight,
                               GradientFormat gradient)
    : ParameterStore(weights_of(tensors), tensors_of(tensors), weight, gradient) {}

void ParameterStore::find_trained() {
  for (const Parameter& parameter : parameters_) {
    parameter.weight.set_requires_grad(parameter.format.trainable);
  }
  gradients_.find_trained();
}

void ParameterStore::freeze(const std::function<bool(const std::string& name)>& is_frozen) {
  for (Parameter& parameter : parameters_) {
    if (is_frozen(parameter.name())) parameter.format.trainable = false;
  }
  find_trained();
}

ParameterFormat ParameterStore::shared_format() const {
  if (parameters_.empty()) return {};
  return parameters_[trained().empty() ? 0 : trained().front()].format;
}

bool ParameterStore::has_corrections() const {
  return std::ranges::any_of(parameters_,
                             [](const Parameter& p) { return p.correction.defined(); });
}

const Weight& ParameterStore::weight(const std::string& name) const {
  const auto found =
      std::ranges::find_if(parameters_, [&](const Parameter& p) { return p.name() == name; });
  FT_CHECK(found != parameters_.end(), "no weight of this name: " + name);
  return found->handle;
}

NamedTensors ParameterStore::tensors() const {
  NamedTensors tensors;
  for (const Parameter& p : parameters_) tensors.push_back({p.name(), p.weight, p.role()});
  return tensors;
}

Tensor ParameterStore::values_of_rows(const Weight& weight, int64_t first, int64_t count) const {
  const Parameter& parameter = at(weight);
  return traits_of(parameter.format.weight)
      .rows(whole_of(parameter, exchange_), weight.sizes(), first, count);
}

Tensor ParameterStore::gather_rows(const Weight& weight, const Tensor& indices) const {
  const Parameter& parameter = at(weight);
  return traits_of(parameter.format.weight).gather(whole_of(parameter, exchange_), indices);
}

void ParameterStore::assign(Parameter& parameter, const Tensor& values) {
  const c10::NoGradGuard no_grad;
  FT_CHECK(values.sizes() == parameter.handle.sizes(), "values of another shape");
  const auto& assign = traits_of(parameter.format.weight).assign;
  if (!parameter.is_divided()) return assign(parameter, values);
  if (exchange_ != nullptr) exchange_->changed();
  const ValueRange part = parameter.part();
  if (!parameter.scales.defined()) {
    return assign_part(parameter,
                       values.detach().contiguous().view(-1).narrow(0, part.first, part.count));
  }
  // Codes may depend on all values: the scales of double quantisation do.
  const ParameterTensors whole =
      traits_of(parameter.format.weight).allocate(parameter.handle.sizes(), c10::Device(c10::kCPU));
  assign(whole, values);
  const ParameterTensors own = finetune::part_of(whole, parameter, part);
  parameter.weight.copy_(own.weight);
  parameter.scales.copy_(own.scales);
}

void ParameterStore::assign_part(Parameter& parameter, const Tensor& values) {
  const c10::NoGradGuard no_grad;
  FT_CHECK(parameter.is_divided() && !parameter.scales.defined(), "a part that has no codes");
  FT_CHECK(values.numel() == parameter.part().count, "the values of this rank");
  if (exchange_ != nullptr) exchange_->changed();
  traits_of(parameter.format.weight).assign(parameter, values);
}

void ParameterStore::assign(Parameter& parameter, const QuantizedValues& values) {
  const c10::NoGradGuard no_grad;
  FT_CHECK(at::IntArrayRef(values.sizes) == parameter.handle.sizes(), "values of another shape");
  if (!is_stored_in(parameter.format.weight, values.format)) {
    const Tensor all = traits_of(values.format)
                           .unpack({.weight = values.codes, .scales = values.scales},
                                   parameter.handle.sizes(), at::kFloat);
    return assign(parameter, all);
  }
  const ParameterTensors part =
      part_of({.weight = values.codes, .scales = values.scales}, parameter, parameter.part());
  parameter.weight.copy_(part.weight);
  parameter.scales.copy_(part.scales);
}

void ParameterStore::share(Parameter& parameter, const Tensor& values) {
  FT_CHECK(!parameter.format.trainable, "a frozen parameter");
  FT_CHECK(values.sizes() == parameter.handle.sizes(), "values of another shape");
  if (!parameter.correction.defined() && !parameter.is_divided() &&
      is_stored_as(parameter.weight, values)) {
    parameter.weight = values;
  } else {
    assign(parameter, values);
  }
}

void ParameterStore::share(Parameter& parameter, const QuantizedValues& values) {
  FT_CHECK(!parameter.format.trainable, "a frozen parameter");
  FT_CHECK(at::IntArrayRef(values.sizes) == parameter.handle.sizes(), "values of another shape");
  if (is_stored_in(parameter.format.weight, values.format) && !parameter.is_divided() &&
      is_stored_as(parameter.weight, values.codes) &&
      is_stored_as(parameter.scales, values.scales)) {
    parameter.weight = values.codes;
    parameter.scales = values.scales;
  } else {
    assign(parameter, values);
  }
}

}  // namespace finetune
