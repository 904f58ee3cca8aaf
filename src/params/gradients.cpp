// SPDX-License-Identifier: MIT
#include "finetune/params/gradients.h"

#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/random.h"
#include "finetune/kernels/float32_product.h"
#include "finetune/kernels/format_lists.h"
#include "finetune/kernels/layer_operations.h"
#include "finetune/kernels/partial_sums.h"
#include "finetune/kernels/precision.h"
#include "finetune/tensor/meta_memory.h"

namespace finetune {
namespace {

// Products that are rounded into a gradient on a device: bounds the memory of their float32 values.
constexpr int64_t kRoundedAtOnce = int64_t{1} << 22;
constexpr int64_t kPendingBytes = int64_t{16} << 20;  // of partial sums, and of products
// Matrices that wait to be summed by one launch: the gradients of queries, keys and values.
constexpr size_t kWaitingMatrices = 3;

bool is_summed_exactly(const Parameter& parameter) {
  return parameter.format.gradient == GradientFormat::kFloat32;
}

at::TensorOptions options_of(const Parameter& parameter, at::ScalarType type) {
  return at::TensorOptions(parameter.weight.device()).dtype(type);
}

Tensor flat_rows(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

struct Separate {
  const Gradients* of = nullptr;
  std::vector<Tensor>* gradients = nullptr;
};

thread_local Separate of_this_thread;
// Of a device: autograd runs a device's backward passes in its own thread, one at a time, and hands
// them over under a lock.
Separate of_device;

Separate& separate(bool runs_ahead) { return runs_ahead ? of_device : of_this_thread; }

}  // namespace

SeparateGradients::SeparateGradients(const Gradients& of, std::vector<Tensor>& gradients)
    : of_(of) {
  FT_CHECK(!of.rounds_, "separate gradients are not rounded");
  FT_CHECK(separate(of.runs_ahead_).of == nullptr, "one set of separate gradients a thread");
  gradients.resize(of.parameters_.size());
  separate(of.runs_ahead_) = {.of = &of, .gradients = &gradients};
}

SeparateGradients::~SeparateGradients() { separate(of_.runs_ahead_) = {}; }

std::vector<Tensor>* SeparateGradients::of(const Gradients& gradients) {
  const Separate& found = separate(gradients.runs_ahead_);
  return found.of == &gradients ? found.gradients : nullptr;
}

Gradients::Gradients(std::vector<Parameter>& parameters, bool runs_ahead)
    : parameters_(parameters), runs_ahead_(runs_ahead) {}

void Gradients::find_trained() {
  trained_.clear();
  rounds_ = false;
  spare_.resize(parameters_.size());
  additions_.resize(parameters_.size(), 0);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    FT_CHECK(!parameter.gradient.defined(),
             "frozen before the first gradient: " + parameter.name());
    if (!parameter.format.trainable) continue;
    trained_.push_back(i);
    rounds_ = rounds_ || !is_summed_exactly(parameter);
  }
}

void Gradients::begin_micro_batch(const RoundingStream& stream) {
  if (!rounds_) return;  // several threads may compute a micro-batch each
  stream_ = stream;
  std::fill(additions_.begin(), additions_.end(), 0);
}

Tensor& Gradients::gradient_of(Parameter& parameter) {
  std::vector<Tensor>* separate = SeparateGradients::of(*this);
  if (separate == nullptr) return parameter.gradient;
  return (*separate)[parameter.handle.id()];
}

Tensor& Gradients::open_gradient(Parameter& parameter) {
  Tensor& gradient = gradient_of(parameter);
  if (gradient.defined()) return gradient;
  const MemoryUseScope use(MemoryUse::kGradient);
  if (&gradient != &parameter.gradient) {
    gradient = at::zeros(parameter.handle.sizes(), options_of(parameter, at::kFloat));
    return gradient;
  }
  const size_t index = parameter.handle.id();
  Tensor& spare = spare_[index];
  if (spare.defined()) {
    parameter.gradient = std::move(spare);
    spare = Tensor();
    if (!runs_ahead_) parameter.gradient.zero_();
  } else {
    parameter.gradient = at::zeros(parameter.handle.sizes(),
                                   options_of(parameter, type_of(parameter.format.gradient)));
  }
  return parameter.gradient;
}

bool Gradients::set_product(Parameter& parameter, const Tensor& left, const Tensor& right) {
  Tensor& gradient = gradient_of(parameter);
  if (gradient.defined() || runs_ahead_ || !is_summed_exactly(parameter)) return false;
  Tensor memory;
  if (&gradient == &parameter.gradient) {
    memory = std::exchange(spare_[parameter.handle.id()], {});
  }
  if (!memory.defined()) {
    const MemoryUseScope use(MemoryUse::kGradient);
    memory = at::empty(parameter.handle.sizes(), options_of(parameter, at::kFloat));
  }
  product_into(Precision::kFloat32, memory, left, right, 0.0);
  gradient = std::move(memory);
  return true;
}

// Every addition of a micro-batch to one parameter rounds with different random numbers.
RoundingKey Gradients::key_of_next_addition(const Parameter& parameter) const {
  const size_t index = parameter.handle.id();
  return {.key = random::make_key(
              random::mix(stream_.seed ^ random::mix(static_cast<uint64_t>(stream_.update))),
              random::Purpose::kGradientRounding,
              static_cast<uint64_t>(stream_.first_position) << 16 | additions_[index], index)};
}

RoundingKey Gradients::next_key(const Parameter& parameter) {
  const RoundingKey key = key_of_next_addition(parameter);
  ++additions_[parameter.handle.id()];
  return key;
}

void Gradients::add_rounded(Parameter& parameter, const Tensor& target, int64_t first_element,
                            const Tensor& values) {
  RoundingKey key = next_key(parameter);
  key.first_element = static_cast<uint64_t>(first_element);
  add_stochastically(target, values.contiguous(), key);
}

void Gradients::add(const Weight& weight, const Tensor& gradient) {
  const c10::NoGradGuard no_grad;
  Parameter& parameter = at(weight);
  const bool is_partial = gradient.dim() == 2 && gradient.sizes() != weight.sizes();
  FT_CHECK(is_partial ? gradient.size(1) == weight.numel() : gradient.sizes() == weight.sizes(),
           "a gradient of another shape: " + parameter.name());
  if (!parameter.format.trainable) return;
  if (is_partial) return add_partial(parameter, gradient);
  const Tensor& target = open_gradient(parameter);
  if (is_summed_exactly(parameter)) {
    target.add_(gradient);
  } else {
    add_rounded(parameter, target, 0, gradient.to(at::kFloat));
  }
}

void Gradients::add_partial(Parameter& parameter, const Tensor& parts) {
  if (!runs_ahead_) {  // nothing is gained by waiting, and other threads add at the same time
    const RoundingKey key = is_summed_exactly(parameter) ? RoundingKey() : next_key(parameter);
    return kernels::add_partial_sums({{open_gradient(parameter), parts, key}});
  }
  const size_t index = parameter.handle.id();
  // One launch does not add to a parameter twice.
  if (std::ranges::any_of(pending_, [&](const Pending& p) { return p.index == index; })) {
    add_pending();
  }
  const RoundingKey key = is_summed_exactly(parameter) ? RoundingKey() : next_key(parameter);
  pending_.push_back({index, {}, parts, key});
  pending_bytes_ += static_cast<int64_t>(parts.nbytes());
  if (pending_bytes_ > kPendingBytes) add_pending();
}

void Gradients::add_sum_of_rows(const Weight& weight, const Tensor& rows) {
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

void Gradients::sum_waiting_rows() {
  if (waiting_rows_.empty()) return;
  const std::vector<WaitingRows> waiting = std::exchange(waiting_rows_, {});
  std::vector<Tensor> matrices;
  for (const WaitingRows& one : waiting) matrices.push_back(one.rows);
  const std::vector<Tensor> sums = kernels::sums_of_rows(matrices);
  for (size_t i = 0; i < sums.size(); ++i) add(waiting[i].weight, sums[i]);
}

void Gradients::add_pending() {
  const c10::NoGradGuard no_grad;
  sum_waiting_rows();
  if (!pending_.empty()) {
    std::vector<kernels::PartialSums> sums;
    for (const Pending& one : std::exchange(pending_, {})) {
      sums.push_back({open_gradient(parameters_[one.index]), one.values, one.key});
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

void Gradients::add_product_rounded(Parameter& parameter, const Tensor& target,
                                    int64_t first_element, const Tensor& product) {
  const size_t index = parameter.handle.id();
  // One launch does not add to a parameter twice.
  if (std::ranges::any_of(products_, [&](const Pending& p) { return p.index == index; })) {
    add_pending();
  }
  RoundingKey key = next_key(parameter);
  key.first_element = static_cast<uint64_t>(first_element);
  products_.push_back({index, target, product, key});
  product_bytes_ += static_cast<int64_t>(product.nbytes());
  // A product that is a part of its gradient is followed by the next part.
  if (product_bytes_ >= kPendingBytes || target.numel() < parameter.handle.numel()) add_pending();
}

void Gradients::add_product(const Weight& weight, const Tensor& dy, const Tensor& x) {
  add_product_to_rows(weight, 0, dy, x);
}

void Gradients::add_product_to_rows(const Weight& weight, int64_t first, const Tensor& dy,
                                    const Tensor& x) {
  const c10::NoGradGuard no_grad;
  Parameter& parameter = at(weight);
  if (!parameter.format.trainable) return;
  if (kernels::has_float32_product(dy, x)) {
    const Tensor left = flat_rows(dy).t();
    const Tensor right = flat_rows(x);
    const Tensor target = flat_rows(open_gradient(parameter)).narrow(0, first, left.size(0));
    if (is_summed_exactly(parameter)) {
      kernels::add_float32_product(target, left, right, 1.0);
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
  const bool is_whole = weight.dim() == 2 && left.size(1) == weight.size(0);
  if (is_whole && set_product(parameter, left.t(), right)) return;
  const Tensor target = flat_rows(open_gradient(parameter)).narrow(0, first, left.size(1));
  if (is_summed_exactly(parameter)) {
    product_into(Precision::kFloat32, target, left.t(), right, 1.0);
  } else {
    add_rounded(parameter, target, first * right.size(1), at::mm(left.t(), right));
  }
}

void Gradients::add_to_indexed_rows(const Weight& weight, const Tensor& indices, const Tensor& rows,
                                    int64_t skipped) {
  const c10::NoGradGuard no_grad;
  Parameter& parameter = at(weight);
  if (!parameter.format.trainable) return;
  const Tensor& target = open_gradient(parameter);
  const Tensor flat = flat_rows(rows).to(at::kFloat).contiguous();
  const Tensor flat_indices = indices.flatten().contiguous();
  if (is_summed_exactly(parameter)) return kernels::add_rows(target, flat_indices, flat, skipped);
  const RoundingKey key = key_of_next_addition(parameter);
  if (kernels::add_rows_stochastically(target, flat_indices, flat, skipped, key)) {
    ++additions_[parameter.handle.id()];
    return;
  }
  if (flat.is_meta()) {  // as many as there may be: the rows, their sums, and what those are added
                         // to
    (void)std::array{at::empty_like(flat), at::empty_like(flat),
                     at::empty_like(flat, target.options())};
    return;
  }
  const Tensor kept = flat_indices.ne(skipped).nonzero().squeeze(1);
  add_rows_of_few(parameter, target, flat_indices.index_select(0, kept),
                  flat.index_select(0, kept));
}

// Sums the rows of each index first, so that the gradient of an index is rounded once.
void Gradients::add_rows_of_few(Parameter& parameter, const Tensor& target, const Tensor& indices,
                                const Tensor& rows) {
  if (indices.numel() == 0) return;
  const auto [unique, inverse, counts] = at::_unique2(indices, true, true, false);
  const Tensor sums = at::zeros({unique.numel(), rows.size(1)}, rows.options());
  kernels::sum_rows(sums, inverse, rows);
  const Tensor before = target.index_select(0, unique);
  add_rounded(parameter, before, 0, sums);
  target.index_copy_(0, unique, before);
}

void Gradients::complete(std::initializer_list<Weight> weights) {
  if (!listener_ || SeparateGradients::of(*this) != nullptr) return;
  add_pending();
  for (const Weight& weight : weights) {
    if (!weight.defined()) continue;
    Parameter& parameter = at(weight);
    if (parameter.gradient.defined()) listener_(parameter);
  }
}

void Gradients::open(const std::vector<size_t>& indices) {
  for (const size_t index : indices) {
    Parameter& parameter = parameters_.at(index);
    if (parameter.format.trainable) (void)open_gradient(parameter);
  }
}

void Gradients::reserve() {
  const MemoryUseScope use(MemoryUse::kGradient);
  for (const size_t i : trained_) {
    const Parameter& parameter = parameters_[i];
    if (spare_[i].defined() || parameter.gradient.defined() || parameter.is_divided()) continue;
    spare_[i] = at::empty(parameter.handle.sizes(),
                          options_of(parameter, type_of(parameter.format.gradient)));
    if (runs_ahead_) spare_[i].zero_();
  }
}

void Gradients::clear(bool keep_memory) {
  waiting_rows_.clear();
  pending_.clear();
  pending_bytes_ = 0;
  products_.clear();
  product_bytes_ = 0;
  std::vector<Tensor> kept;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (keep_memory && parameters_[i].gradient.defined() && !parameters_[i].is_divided()) {
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
