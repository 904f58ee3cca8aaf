// SPDX-License-Identifier: MIT
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/result_type.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include "finetune/tensor/meta_memory.h"
#include "finetune/tensor/tensor.h"

namespace finetune {
namespace {

Tensor index_select(const Tensor& x, int64_t dimension, const Tensor& index) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.at(static_cast<size_t>(at::maybe_wrap_dim(dimension, x.dim()))) = index.numel();
  return at::empty(sizes, x.options());
}

Tensor same_shape(const Tensor& x) { return at::empty_like(x); }
Tensor same_shape_backward(const Tensor& /*dy*/, const Tensor& x) { return at::empty_like(x); }
Tensor hardtanh(const Tensor& x, const at::Scalar& /*low*/, const at::Scalar& /*high*/) {
  return at::empty_like(x);
}
Tensor hardtanh_backward(const Tensor& /*dy*/, const Tensor& x, const at::Scalar& /*low*/,
                         const at::Scalar& /*high*/) {
  return at::empty_like(x);
}

Tensor flip(const Tensor& x, at::IntArrayRef /*dimensions*/) { return at::empty_like(x); }

Tensor segment_reduce(const Tensor& x, c10::string_view /*reduce*/,
                      const std::optional<Tensor>& lengths,
                      const std::optional<Tensor>& /*indices*/,
                      const std::optional<Tensor>& /*offsets*/, int64_t /*axis*/, bool /*unsafe*/,
                      const std::optional<at::Scalar>& /*initial*/) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[0] = lengths.value().numel();
  return at::empty(sizes, x.options());
}

Tensor& logical_binary(const Tensor& a, const Tensor& b, Tensor& result) {
  return result.resize_(at::infer_size(a.sizes(), b.sizes())), result;
}

Tensor binary(const Tensor& a, const Tensor& b) {
  return at::empty(at::infer_size(a.sizes(), b.sizes()), a.options().dtype(at::result_type(a, b)));
}

Tensor& unary(const Tensor& x, Tensor& result) { return result.resize_(x.sizes()), result; }

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const std::vector<int64_t> both = at::infer_size(a.sizes(), b.sizes());
  return at::empty(at::infer_size(condition.sizes(), both),
                   a.options().dtype(at::result_type(a, b)));
}

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& x, at::IntArrayRef normalized,
                                              const std::optional<Tensor>& /*weight*/,
                                              const std::optional<Tensor>& /*bias*/,
                                              double /*epsilon*/) {
  std::vector<int64_t> of_rows = x.sizes().vec();
  for (size_t i = of_rows.size() - normalized.size(); i < of_rows.size(); ++i) of_rows[i] = 1;
  return {at::empty_like(x), at::empty(of_rows, x.options()), at::empty(of_rows, x.options())};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(
    const Tensor& /*dy*/, const Tensor& x, at::IntArrayRef /*normalized*/, const Tensor& /*mean*/,
    const Tensor& /*deviation*/, const std::optional<Tensor>& weight,
    const std::optional<Tensor>& bias, std::array<bool, 3> wanted) {
  const auto like = [](bool is_wanted, const std::optional<Tensor>& of) {
    return is_wanted && of && of->defined() ? at::empty_like(*of) : Tensor();
  };
  return {like(wanted[0], x), like(wanted[1], weight), like(wanted[2], bias)};
}

Tensor& addmm_into(const Tensor& /*added*/, const Tensor& /*a*/, const Tensor& /*b*/,
                   at::ScalarType /*type*/, const at::Scalar& /*beta*/, const at::Scalar& /*alpha*/,
                   Tensor& result) {
  return result;
}

Tensor mm_of_type(const Tensor& a, const Tensor& b, at::ScalarType type) {
  return at::empty({a.size(0), b.size(1)}, a.options().dtype(type));
}

// Of this name, unless libtorch has it.
template <typename Function>
void add(torch::Library& library, const char* name, const char* overload, Function function) {
  const std::string whole = std::string(name) + (*overload == '\0' ? "" : ".") + overload;
  const auto found =
      c10::Dispatcher::singleton().findSchema({std::string("aten::") + name, overload});
  if (!found || found->hasKernelForDispatchKey(c10::DispatchKey::Meta)) return;
  library.impl(whole.c_str(), function);
}

}  // namespace

void register_meta_operators() {
  static torch::Library& library = *[] {
    auto* made = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__,
                                    __LINE__);
    add(*made, "index_select", "", index_select);
    add(*made, "flip", "", flip);
    add(*made, "relu", "", same_shape);
    add(*made, "hardswish", "", same_shape);
    add(*made, "hardswish_backward", "", same_shape_backward);
    add(*made, "hardtanh", "", hardtanh);
    add(*made, "hardtanh_backward", "", hardtanh_backward);
    add(*made, "segment_reduce", "", segment_reduce);
    add(*made, "logical_and", "out", logical_binary);
    add(*made, "logical_xor", "out", logical_binary);
    add(*made, "abs", "out", unary);
    add(*made, "logical_not", "out", unary);
    add(*made, "floor_divide", "", binary);
    add(*made, "where", "self", where);
    add(*made, "native_layer_norm", "", layer_norm);
    add(*made, "native_layer_norm_backward", "", layer_norm_backward);
    add(*made, "addmm", "dtype_out", addmm_into);
    add(*made, "mm", "dtype", mm_of_type);
    return made;
  }();
  static_cast<void>(library);
}

}  // namespace finetune
