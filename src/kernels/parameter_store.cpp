// SPDX-License-Identifier: MIT
#include "finetune/kernels/parameter_store.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/random.h"
#include "finetune/kernels/formats.h"
#include "finetune/kernels/separate_gradients.h"
#include "finetune/kernels/waiting_products.h"
#include "kernels/float32_product.h"
#include "kernels/format_lists.h"
#include "kernels/kernels.h"
#include "kernels/partial_sums.h"
#include "kernels/token_product.h"

namespace finetune {
namespace {

constexpr int64_t kAssignedAtOnce = int64_t{1} << 20;  // values
// Products that are rounded into a gradient on a device: bounds the memory of their float32 values.
constexpr int64_t kRoundedAtOnce = int64_t{1} << 22;
constexpr int64_t kPendingBytes = int64_t{16} << 20;  // of partial sums, and of products
// Matrices that wait to be summed by one launch: the gradients of queries, keys and values.
constexpr size_t kWaitingMatrices = 3;

// Unpacks rows [first, first + count) of a weight into new float32 memory.
Tensor unpack(const Parameter& parameter, int64_t first, int64_t count) {
  const Tensor rows = parameter.weight.detach().narrow(0, first, count);
  if (!parameter.correction.defined()) return rows.to(at::kFloat);
  const Tensor values = at::empty_like(rows, rows.options().dtype(at::kFloat));
  join_values(rows, parameter.correction.narrow(0, first, count), values);
  return values;
}

// Allocates the weight in its format. A tensor on the meta device becomes one on `device`, which
// set_data() refuses to do. What that check protects, an accumulator for gradients of another
// device, cannot exist yet.
void allocate(Parameter& parameter, c10::Device device) {
  const Tensor& weight = parameter.weight;
  const bool is_float = parameter.format.weight == WeightFormat::kFloat32;
  const at::ScalarType type = is_float ? at::kFloat : at::kBFloat16;
  if (weight.is_meta()) {
    const Tensor memory = at::empty(weight.sizes(), at::TensorOptions(device).dtype(type));
    weight.unsafeGetTensorImpl()->shallow_copy_from(memory.getIntrusivePtr());
  } else if (!is_float) {
    parameter.weight.set_data(at::zeros_like(weight.detach(), type));
  }
  if (parameter.format.weight == WeightFormat::kSplit) {
    parameter.correction = at::zeros_like(weight.detach(), at::kChar);
  }
}

bool is_summed_exactly(const Parameter& parameter) {
  return parameter.format.gradient == GradientFormat::kFloat32;
}

at::ScalarType gradient_type(const Parameter& parameter) {
  return is_summed_exactly(parameter) ? at::kFloat : at::kBFloat16;
}

Tensor flat_rows(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

}  // namespace

int64_t waiting_product_bytes(int64_t largest, int64_t all) {
  return std::min(4 * all, kPendingBytes + 4 * largest);
}

ParameterStore::ParameterStore(const NamedTensors& parameters, WeightFormat weights,
                               GradientFormat gradients, c10::Device device)
    : ParameterStore(parameters,
                     std::vector<ParameterFormat>(parameters.size(),
                                                  {.weight = weights, .gradient = gradients}),
                     device) {}

ParameterStore::ParameterStore(const NamedTensors& parameters,
                               const std::vector<ParameterFormat>& formats, c10::Device device)
    : spare_(parameters.size()),
      factors_(parameters.size()),
      vectors_(parameters.size()),
      additions_(parameters.size(), 0) {
  const c10::NoGradGuard no_grad;
  FT_CHECK(formats.size() == parameters.size(), "one format a parameter");
  for (const NamedTensor& named : parameters) {
    const ParameterFormat& format = formats[parameters_.size()];
    Parameter parameter{
        .name = named.name, .weight = named.tensor, .format = format, .role = named.role};
    allocate(parameter, device);
    const bool is_new =
        index_.emplace(named.tensor.unsafeGetTensorImpl(), parameters_.size()).second;
    FT_CHECK(is_new, "a parameter stands twice: " + named.name);
    parameters_.push_back(std::move(parameter));
  }
  const auto options =
      parameters_.empty() ? at::TensorOptions() : parameters_.front().weight.options();
  runs_ahead_ = kernels::kernels_for(options.device()).is_asynchronous;
  anchor_ = at::zeros({}, options.dtype(at::kFloat)).set_requires_grad(true);
  find_trained();
}

void ParameterStore::find_trained() {
  trained_.clear();
  rounds_gradients_ = false;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterFormat& format = parameters_[i].format;
    if (!format.trainable) {
      parameters_[i].weight.set_requires_grad(false);
      continue;
    }
    trained_.push_back(i);
    rounds_gradients_ = rounds_gradients_ || format.gradient != GradientFormat::kFloat32;
  }
}

void ParameterStore::freeze(const std::function<bool(const std::string& name)>& is_frozen) {
  for (Parameter& parameter : parameters_) {
    if (!is_frozen(parameter.name)) continue;
    FT_CHECK(!parameter.gradient.defined(), "frozen before the first gradient: " + parameter.name);
    parameter.format.trainable = false;
  }
  find_trained();
}

ParameterFormat ParameterStore::shared_format() const {
  if (parameters_.empty()) return {};
  return parameters_[trained_.empty() ? 0 : trained_.front()].format;
}

bool ParameterStore::has_corrections() const {
  return std::ranges::any_of(parameters_,
                             [](const Parameter& p) { return p.correction.defined(); });
}

size_t ParameterStore::index_of(const Tensor& weight) const {
  const auto found = index_.find(weight.unsafeGetTensorImpl());
  FT_CHECK(found != index_.end(), "a tensor that is no parameter of this model");
  return found->second;
}

const Parameter& ParameterStore::find(const Tensor& weight) const {
  return parameters_[index_of(weight)];
}

Tensor ParameterStore::values(const Tensor& weight) const {
  if (weight.scalar_type() != at::kBFloat16) return weight.detach();
  const size_t place = index_of(weight);
  const Parameter& parameter = parameters_[place];
  if (!holds_factors_ || weight.dim() != 1) return unpack(parameter, 0, weight.size(0));
  Tensor& held = vectors_[place];
  if (!held.defined()) {
    held = unpack(parameter, 0, weight.size(0));
    wanted_vectors_.push_back(place);
  }
  return held;
}

Tensor ParameterStore::factor(const Tensor& weight, Precision precision) {
  if (!runs_ahead_ || precision == Precision::kFloat32) return values(weight);
  const at::ScalarType type = scalar_type(precision);
  if (weight.scalar_type() == type) return weight.detach();  // with a correction too: the nearest
  if (!holds_factors_) return values(weight).to(type);
  const size_t place = index_of(weight);
  Tensor& held = factors_[place];
  if (held.defined() && held.scalar_type() == type) return held;
  held = values(weight).to(type);
  factor_type_ = type;
  if (std::ranges::find(wanted_factors_, place) == wanted_factors_.end()) {
    wanted_factors_.push_back(place);
  }
  return held;
}

void ParameterStore::hold_factors() {
  if (!runs_ahead_) return;
  release_factors();
  holds_factors_ = true;
  std::vector<Tensor> from;
  std::vector<Tensor> to;
  for (const size_t place : wanted_factors_) {
    const Tensor weight = parameters_[place].weight.detach();
    if (weight.scalar_type() != at::kFloat) continue;  // unpacked one by one
    factors_[place] = at::empty_like(weight, factor_type_);
    from.push_back(weight);
    to.push_back(factors_[place]);
  }
  const c10::NoGradGuard no_grad;
  if (!from.empty()) at::_foreach_copy_(to, from);
  hold_vectors();
}

// They share one tensor.
void ParameterStore::hold_vectors() {
  constexpr int64_t kAlignment = 128;  // values
  int64_t count = 0;
  for (const size_t place : wanted_vectors_) {
    count += (parameters_[place].weight.numel() + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (count == 0) return;
  const auto options = parameters_[wanted_vectors_.front()].weight.options();
  const Tensor memory = at::empty({count}, options.dtype(at::kFloat).requires_grad(false));
  std::vector<kernels::SplitTensor> split;
  std::vector<Tensor> from;  // bfloat16 alone
  std::vector<Tensor> to;
  int64_t first = 0;
  for (const size_t place : wanted_vectors_) {
    const Parameter& parameter = parameters_[place];
    const Tensor weight = parameter.weight.detach();
    vectors_[place] = memory.narrow(0, first, weight.numel());
    first += (weight.numel() + kAlignment - 1) / kAlignment * kAlignment;
    if (parameter.correction.defined()) {
      split.push_back({weight, parameter.correction, vectors_[place]});
    } else {
      from.push_back(weight);
      to.push_back(vectors_[place]);
    }
  }
  if (!from.empty()) at::_foreach_copy_(to, from);
  kernels::join_all_values(split);
}

void ParameterStore::release_factors() {
  if (!holds_factors_) return;
  holds_factors_ = false;
  std::ranges::fill(factors_, Tensor());
  std::ranges::fill(vectors_, Tensor());
}

Tensor ParameterStore::values_of_rows(const Tensor& weight, int64_t first, int64_t count) const {
  if (weight.scalar_type() != at::kBFloat16) return weight.detach().narrow(0, first, count);
  return unpack(find(weight), first, count);
}

Tensor ParameterStore::gather_rows(const Tensor& weight, const Tensor& indices) const {
  if (weight.scalar_type() != at::kBFloat16) return at::embedding(weight.detach(), indices);
  const Parameter& parameter = find(weight);
  if (!parameter.correction.defined())
    return at::embedding(weight.detach(), indices).to(at::kFloat);
  return kernels::joined_rows(weight.detach(), parameter.correction, indices);
}

void ParameterStore::assign(Parameter& parameter, const Tensor& values) {
  const c10::NoGradGuard no_grad;
  FT_CHECK(values.sizes() == parameter.weight.sizes(), "values of another shape");
  if (!parameter.correction.defined()) {
    parameter.weight.copy_(values);
    return;
  }
  const Tensor from = values.detach().contiguous().flatten();
  const Tensor weight = parameter.weight.detach().flatten();
  const Tensor correction = parameter.correction.flatten();
  for (int64_t first = 0; first < from.numel(); first += kAssignedAtOnce) {
    const int64_t count = std::min(kAssignedAtOnce, from.numel() - first);
    const Tensor exact = from.narrow(0, first, count).to(weight.device(), at::kFloat);
    split_values(exact, weight.narrow(0, first, count), correction.narrow(0, first, count));
  }
}

void ParameterStore::begin_micro_batch(const RoundingStream& stream) {
  if (!rounds_gradients_) return;  // several threads may compute a micro-batch each
  stream_ = stream;
  std::fill(additions_.begin(), additions_.end(), 0);
}

Tensor& ParameterStore::gradient_of(Parameter& parameter) {
  std::vector<Tensor>* separate = SeparateGradients::of(*this);
  if (separate == nullptr) return parameter.gradient;
  return (*separate)[static_cast<size_t>(&parameter - parameters_.data())];
}

Tensor& ParameterStore::open_gradient(Parameter& parameter) {
  Tensor& gradient = gradient_of(parameter);
  if (gradient.defined()) return gradient;
  if (&gradient != &parameter.gradient) {
    gradient = at::zeros_like(parameter.weight.detach(), at::kFloat);
    return gradient;
  }
  const auto place = static_cast<size_t>(&parameter - parameters_.data());
  Tensor& spare = spare_[place];
  if (spare.defined()) {
    parameter.gradient = std::move(spare);
    spare = Tensor();
    if (!runs_ahead_) parameter.gradient.zero_();
  } else {
    parameter.gradient = at::zeros_like(parameter.weight.detach(), gradient_type(parameter));
  }
  return parameter.gradient;
}

bool ParameterStore::set_product(Parameter& parameter, const Tensor& left, const Tensor& right) {
  Tensor& gradient = gradient_of(parameter);
  if (gradient.defined() || runs_ahead_ || !is_summed_exactly(parameter)) return false;
  Tensor memory;
  if (&gradient == &parameter.gradient) {
    memory = std::exchange(spare_[static_cast<size_t>(&parameter - parameters_.data())], {});
  }
  if (!memory.defined()) memory = at::empty_like(parameter.weight.detach(), at::kFloat);
  if (kernels::has_token_product(left, right)) {
    kernels::token_product(memory, left, right, kernels::TokenAxis::kInner, 0.0);
    gradient = std::move(memory);
  } else {
    gradient = at::mm_out(memory, left, right);
  }
  return true;
}

// Every addition of a micro-batch to one parameter rounds with different random numbers.
RoundingKey ParameterStore::key_of_next_addition(const Parameter& parameter) const {
  const auto place = static_cast<size_t>(&parameter - parameters_.data());
  return {.key = random::make_key(
              random::mix(stream_.seed ^ random::mix(static_cast<uint64_t>(stream_.update))),
              random::Purpose::kGradientRounding,
              static_cast<uint64_t>(stream_.first_place) << 16 | additions_[place], place)};
}

RoundingKey ParameterStore::next_key(const Parameter& parameter) {
  const RoundingKey key = key_of_next_addition(parameter);
  ++additions_[static_cast<size_t>(&parameter - parameters_.data())];
  return key;
}

void ParameterStore::add_rounded(Parameter& parameter, const Tensor& target, int64_t first_element,
                                 const Tensor& values) {
  RoundingKey key = next_key(parameter);
  key.first_element = static_cast<uint64_t>(first_element);
  add_stochastically(target, values.contiguous(), key);
}

void ParameterStore::add(const Tensor& weight, const Tensor& gradient) {
  const c10::NoGradGuard no_grad;
  Parameter& parameter = parameters_[index_of(weight)];
  const bool is_partial = gradient.dim() == 2 && weight.dim() == 1;
  FT_CHECK(is_partial ? gradient.size(1) == weight.size(0) : gradient.sizes() == weight.sizes(),
           "a gradient of another shape: " + parameter.name);
  if (!parameter.format.trainable) return;
  if (is_partial) return add_partial(parameter, gradient);
  const Tensor& target = open_gradient(parameter);
  if (is_summed_exactly(parameter)) {
    target.add_(gradient);
  } else {
    add_rounded(parameter, target, 0, gradient.to(at::kFloat));
  }
}

void ParameterStore::add_partial(Parameter& parameter, const Tensor& parts) {
  const auto place = static_cast<size_t>(&parameter - parameters_.data());
  // One launch does not add to a parameter twice.
  if (std::ranges::any_of(pending_, [&](const Pending& p) { return p.place == place; })) {
    add_pending();
  }
  const RoundingKey key = is_summed_exactly(parameter) ? RoundingKey() : next_key(parameter);
  pending_.push_back({place, {}, parts, key});
  pending_bytes_ += static_cast<int64_t>(parts.nbytes());
  if (pending_bytes_ > kPendingBytes) add_pending();
}

void ParameterStore::add_sum_of_rows(const Tensor& weight, const Tensor& rows) {
  const c10::NoGradGuard no_grad;
  if (!runs_ahead_ || static_cast<int64_t>(rows.nbytes()) > kPendingBytes) {
    return add(weight, kernels::sum_of_rows(rows));
  }
  if (!waiting_rows_.empty()) {
    const Tensor& others = waiting_rows_.front().rows;
    const bool fits = rows.sizes() == others.sizes() && rows.scalar_type() == others.scalar_type();
    if (!fits) sum_waiting_rows();
  }
  waiting_rows_.push_back({weight, rows});
  if (waiting_rows_.size() == kWaitingMatrices) sum_waiting_rows();
}

void ParameterStore::sum_waiting_rows() {
  if (waiting_rows_.empty()) return;
  const std::vector<WaitingRows> waiting = std::exchange(waiting_rows_, {});
  std::vector<Tensor> matrices;
  for (const WaitingRows& one : waiting) matrices.push_back(one.rows);
  const std::vector<Tensor> sums = kernels::sums_of_rows(matrices);
  for (size_t i = 0; i < sums.size(); ++i) add(waiting[i].weight, sums[i]);
}

void ParameterStore::add_pending() {
  const c10::NoGradGuard no_grad;
  sum_waiting_rows();
  if (!pending_.empty()) {
    std::vector<kernels::PartialSums> sums;
    for (const Pending& one : std::exchange(pending_, {})) {
      sums.push_back({open_gradient(parameters_[one.place]), one.values, one.key});
    }
    pending_bytes_ = 0;
    kernels::add_partial_sums(sums);
  }
  if (!products_.empty()) {
    std::vector<kernels::RoundedSum> sums;
    for (const Pending& one : std::exchange(products_, {})) {
      sums.push_back({one.target, one.values, one.key});
    }
    product_bytes_ = 0;
    kernels::add_all_stochastically(sums);
  }
}

void ParameterStore::add_product_rounded(Parameter& parameter, const Tensor& target,
                                         int64_t first_element, const Tensor& product) {
  const auto place = static_cast<size_t>(&parameter - parameters_.data());
  // One launch does not add to a parameter twice.
  if (std::ranges::any_of(products_, [&](const Pending& p) { return p.place == place; })) {
    add_pending();
  }
  RoundingKey key = next_key(parameter);
  key.first_element = static_cast<uint64_t>(first_element);
  products_.push_back({place, target, product, key});
  product_bytes_ += static_cast<int64_t>(product.nbytes());
  // A product that is a part of its gradient is followed by the next part.
  if (product_bytes_ >= kPendingBytes || target.numel() < parameter.weight.numel()) add_pending();
}

void ParameterStore::add_product(const Tensor& weight, const Tensor& dy, const Tensor& x) {
  add_product_to_rows(weight, 0, dy, x);
}

void ParameterStore::add_product_to_rows(const Tensor& weight, int64_t first, const Tensor& dy,
                                         const Tensor& x) {
  const c10::NoGradGuard no_grad;
  Parameter& parameter = parameters_[index_of(weight)];
  if (!parameter.format.trainable) return;
  if (kernels::has_float32_product(dy, x)) {
    const Tensor left = flat_rows(dy).t();
    const Tensor right = flat_rows(x);
    Tensor target = open_gradient(parameter).narrow(0, first, left.size(0));
    if (is_summed_exactly(parameter)) {
      at::addmm_out(target, target, left, right, at::kFloat);
      return;
    }
    const int64_t most = std::max<int64_t>(1, kRoundedAtOnce / right.size(1));
    for (int64_t row = 0; row < left.size(0); row += most) {
      const int64_t count = std::min(most, left.size(0) - row);
      add_product_rounded(parameter, target.narrow(0, row, count), (first + row) * right.size(1),
                          at::mm(left.narrow(0, row, count), right, at::kFloat));
    }
    return;
  }
  const Tensor left = flat_rows(dy).to(at::kFloat);
  const Tensor right = flat_rows(x).to(at::kFloat);
  if (left.size(1) == weight.size(0) && set_product(parameter, left.t(), right)) return;
  const Tensor target = open_gradient(parameter).narrow(0, first, left.size(1));
  if (is_summed_exactly(parameter)) {
    if (kernels::has_token_product(left.t(), right)) {
      kernels::token_product(target, left.t(), right, kernels::TokenAxis::kInner, 1.0);
    } else {
      target.addmm_(left.t(), right);
    }
  } else {
    add_rounded(parameter, target, first * right.size(1), at::mm(left.t(), right));
  }
}

void ParameterStore::add_to_indexed_rows(const Tensor& weight, const Tensor& indices,
                                         const Tensor& rows, int64_t skipped) {
  const c10::NoGradGuard no_grad;
  Parameter& parameter = parameters_[index_of(weight)];
  if (!parameter.format.trainable) return;
  const Tensor& target = open_gradient(parameter);
  const Tensor flat = flat_rows(rows).to(at::kFloat).contiguous();
  const Tensor places = indices.flatten().contiguous();
  const kernels::Kernels& kernels = kernels::kernels_for(target);
  if (is_summed_exactly(parameter)) return kernels.add_rows(target, places, flat, skipped);
  const RoundingKey key = key_of_next_addition(parameter);
  if (kernels.add_rows_stochastically(target, places, flat, skipped, key)) {
    ++additions_[index_of(weight)];
    return;
  }
  const Tensor kept = places.ne(skipped).nonzero().squeeze(1);
  add_rows_of_few(parameter, target, places.index_select(0, kept), flat.index_select(0, kept));
}

// Sums the rows of each index first, so that the gradient of an index is rounded once.
void ParameterStore::add_rows_of_few(Parameter& parameter, const Tensor& target,
                                     const Tensor& indices, const Tensor& rows) {
  if (indices.numel() == 0) return;
  const auto [unique, inverse, counts] = at::_unique2(indices, true, true, false);
  const Tensor sums = at::zeros({unique.numel(), rows.size(1)}, rows.options());
  kernels::kernels_for(sums).sum_rows(sums, inverse, rows);
  const Tensor before = target.index_select(0, unique);
  add_rounded(parameter, before, 0, sums);
  target.index_copy_(0, unique, before);
}

void ParameterStore::complete(std::initializer_list<Tensor> weights) {
  if (!listener_ || SeparateGradients::of(*this) != nullptr) return;
  add_pending();
  for (const Tensor& weight : weights) {
    if (!weight.defined()) continue;
    Parameter& parameter = parameters_[index_of(weight)];
    if (parameter.gradient.defined()) listener_(parameter);
  }
}

void ParameterStore::open(const std::vector<size_t>& places) {
  for (const size_t place : places) {
    Parameter& parameter = parameters_.at(place);
    if (parameter.format.trainable) (void)open_gradient(parameter);
  }
}

void ParameterStore::reserve_gradients() {
  for (const size_t i : trained_) {
    if (spare_[i].defined() || parameters_[i].gradient.defined()) continue;
    spare_[i] = at::empty_like(parameters_[i].weight.detach(), gradient_type(parameters_[i]));
    if (runs_ahead_) spare_[i].zero_();
  }
}

void ParameterStore::clear_gradients(bool keep_memory) {
  waiting_rows_.clear();
  pending_.clear();
  pending_bytes_ = 0;
  products_.clear();
  product_bytes_ = 0;
  std::vector<Tensor> kept;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (keep_memory && parameters_[i].gradient.defined()) {
      spare_[i] = std::move(parameters_[i].gradient);
      kept.push_back(spare_[i]);
    }
    if (!keep_memory) spare_[i] = Tensor();
    parameters_[i].gradient = Tensor();
  }
  const c10::NoGradGuard no_grad;
  if (runs_ahead_ && !kept.empty()) at::_foreach_zero_(kept);
}

}  // namespace finetune
