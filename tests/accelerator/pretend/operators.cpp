// SPDX-License-Identifier: MIT
// Every operator runs the CPU's kernel on aliases of its tensors. Views are created here directly.
// Copies between host and device are counted and may complete late.
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "counts.h"
#include "faults.h"
#include "late_copies.h"
#include "memory.h"

namespace pretend {
namespace {

using at::Tensor;

// Pairs of a device tensor and a CPU tensor over the same memory for the kernel.
using Aliases = std::vector<std::pair<Tensor, Tensor>>;

bool is_on_device(const Tensor& tensor) { return tensor.device().type() == kDeviceType; }

// Checks that this thread's stream may read or write the tensor now.
void use(const Tensor& tensor, bool written) {
  if (tensor.numel() > 0) LateCopies::instance().use(tensor.storage().data(), written);
}

Tensor alias_on_host(const Tensor& tensor) {
  const at::TensorOptions options = tensor.options().device(at::kCPU);
  if (tensor.numel() == 0) {  // may be an output that the kernel resizes
    return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  }
  return at::from_blob(DeviceMemory::instance().accessible(tensor.const_data_ptr()), tensor.sizes(),
                       tensor.strides(), options);
}

Tensor empty_on_device(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType type) {
  constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_strided_generic(sizes, strides, &device_allocator(), kKeys, type);
}

// The host waits for what is ordered before later work of this thread's stream.
void wait_for_stream() {
  LateCopies& late = LateCopies::instance();
  late.finish(late.clock_of(current_stream()));
}

// Returns the device view for a view of one of the aliases.
Tensor view_on_device(const Tensor& view, const Aliases& aliases) {
  const auto* const begin = static_cast<const char*>(view.const_data_ptr());
  for (const auto& [device, alias] : aliases) {
    const char* const base = DeviceMemory::instance().accessible(device.storage().data());
    if (begin < base || begin >= base + device.storage().nbytes()) continue;
    return at::native::as_strided_tensorimpl(
        device, view.sizes(), view.strides(),
        (begin - base) / static_cast<int64_t>(view.element_size()));
  }
  TORCH_CHECK(false, "a view of none of the operator's inputs");
}

// Returns a device tensor for the result of a CPU kernel.
Tensor result_on_device(const Tensor& host, const Aliases& aliases) {
  const DeviceMemory& memory = DeviceMemory::instance();
  if (host.numel() > 0 && memory.is_accessible(host.const_data_ptr())) {
    return view_on_device(host, aliases);
  }
  Tensor result = empty_on_device(host.sizes(), host.strides(), host.scalar_type());
  if (host.numel() == 0) return result;
  use(result, true);
  const size_t skipped = static_cast<size_t>(host.storage_offset()) * host.element_size();
  std::memcpy(memory.accessible(result.mutable_data_ptr()), host.const_data_ptr(),
              std::min(host.storage().nbytes() - skipped, result.storage().nbytes()));
  return result;
}

// Returns the bytes of a tensor in memory; an expanded dimension counts once.
int64_t stored_bytes(const Tensor& tensor) {
  int64_t elements = 1;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    elements *= tensor.stride(d) == 0 ? 1 : tensor.size(d);
  }
  return elements * static_cast<int64_t>(tensor.element_size());
}

// torch's name: "float32".
std::string name_of(at::ScalarType type) { return std::string(c10::getDtypeNames(type).first); }

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// CUDA accepts host indices for these operators.
bool takes_host_indices(const std::string& name) {
  static const std::set<std::string> kNames = {"aten::index.Tensor", "aten::index.Tensor_out",
                                               "aten::index_put_", "aten::_index_put_impl_"};
  return kNames.contains(name);
}

// The host must know the size of the result, so CUDA waits for the device.
bool waits_for_size(const std::string& name) {
  static const std::set<std::string> kNames = {
      "aten::nonzero",    "aten::_unique2", "aten::masked_select",
      "aten::unique_dim", "aten::bincount", "aten::repeat_interleave.Tensor"};
  return kNames.contains(name);
}
// The result is a host value.
bool returns_to_host(const std::string& name) {
  static const std::set<std::string> kNames = {"aten::equal", "aten::is_nonzero"};
  return kNames.contains(name);
}

// One call of an operator: its arguments are replaced by aliases on the CPU, and its results by
// device tensors.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : op_(op),
        schema_(op.schema()),
        name_(toString(schema_.operator_name())),
        stack_(stack),
        first_(stack.size() - schema_.arguments().size()),
        given_(stack.begin() + static_cast<std::ptrdiff_t>(first_), stack.end()) {
    TORCH_CHECK(!draws(), "pretend accelerator: ", name_,
                " draws from the device's generator, which a resumed run would not repeat");
  }

  void run() {
    maybe_fail(name_);
    for (size_t i = 0; i < given_.size(); ++i) {
      replace_argument(stack_[first_ + i], is_written(schema_.arguments()[i]));
    }
    op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
    store_resized_outputs();
    const size_t results = schema_.returns().size();
    for (size_t i = 0; i < results; ++i) {
      replace_result(stack_[stack_.size() - results + i], schema_.returns()[i]);
    }
    Counts::instance().add_kernel(name_, read_, written_, types_);
    if (waits_for_size(name_) || returns_to_host(name_)) {
      wait_for_stream();
      Counts::instance().add_wait(name_);
    }
  }

 private:
  // Attention without dropout does not.
  [[nodiscard]] bool draws() const {
    if (!op_.hasTag(at::Tag::nondeterministic_seeded)) return false;
    const std::optional<int> p = schema_.argumentIndexWithName("dropout_p");
    return !p || given_[static_cast<size_t>(*p)].toDouble() != 0.0;
  }

  Tensor alias(const Tensor& tensor, bool written) {
    if (!tensor.defined()) return tensor;
    if (!is_on_device(tensor)) {
      TORCH_CHECK(tensor.dim() == 0 || takes_host_indices(name_),
                  "Expected all tensors to be on the same device, but ", name_,
                  " got one on the CPU and others on the accelerator");
      return tensor;
    }
    use(tensor, written);
    (written ? written_ : read_) += stored_bytes(tensor);
    // Indices, counts and labels after the first tensor do not select a GPU's kernel.
    if (types_.empty() || tensor.is_floating_point()) types_.insert(name_of(tensor.scalar_type()));
    return aliases_.emplace_back(tensor, alias_on_host(tensor)).second;
  }

  void replace_argument(c10::IValue& value, bool written) {
    if (value.isTensor()) {
      value = alias(value.toTensor(), written);
    } else if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& tensor : value.toTensorVector()) list.push_back(alias(tensor, written));
      value = list;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> list;
      for (const std::optional<Tensor>& tensor : value.toOptionalTensorList()) {
        list.push_back(tensor ? std::optional<Tensor>(alias(*tensor, written)) : std::nullopt);
      }
      value = list;
    } else if (value.isDevice() && value.toDevice().type() == kDeviceType) {
      value = c10::Device(at::kCPU);
    }
  }

  void store_resized_outputs() {
    for (auto& [device, host] : aliases_) {
      if (host.sizes() == device.sizes() || host.numel() == 0) continue;
      TORCH_CHECK(device.numel() == 0, name_, " resized an output that was not empty");
      const Tensor fresh = result_on_device(host, {});
      written_ += static_cast<int64_t>(host.nbytes());
      device.set_(fresh.storage(), 0, fresh.sizes(), fresh.strides());
    }
  }

  void replace_result(c10::IValue& value, const c10::Argument& result) {
    if (is_written(result)) {
      for (size_t i = 0; i < given_.size(); ++i) {
        const c10::Argument& argument = schema_.arguments()[i];
        if (!is_written(argument) || *argument.alias_info() != *result.alias_info()) continue;
        value = given_[i];
        return;
      }
    } else if (value.isTensor() && value.toTensor().defined()) {
      written_ += static_cast<int64_t>(value.toTensor().nbytes());
      value = result_on_device(value.toTensor(), aliases_);
    } else if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& tensor : value.toTensorVector()) {
        written_ += static_cast<int64_t>(tensor.nbytes());
        list.push_back(result_on_device(tensor, aliases_));
      }
      value = list;
    }
  }

  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  const std::string name_;
  torch::jit::Stack& stack_;
  const size_t first_;
  const std::vector<c10::IValue> given_;
  Aliases aliases_;
  std::set<std::string> types_;
  int64_t read_ = 0;
  int64_t written_ = 0;
};

void run_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Call(op, *stack).run();
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_operator>());
}

Tensor empty_memory_format(c10::IntArrayRef sizes, std::optional<at::ScalarType> type,
                           std::optional<at::Layout> /*layout*/,
                           std::optional<at::Device> /*device*/, std::optional<bool> pinned,
                           std::optional<at::MemoryFormat> format) {
  maybe_fail("allocate");
  TORCH_CHECK(!pinned.value_or(false), "pinned memory is the host's");
  constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_generic(sizes, &device_allocator(), kKeys, c10::dtype_or_default(type),
                                   format);
}

Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                     std::optional<at::ScalarType> type, std::optional<at::Layout> /*layout*/,
                     std::optional<at::Device> /*device*/, std::optional<bool> /*pinned*/) {
  return empty_on_device(sizes, strides, c10::dtype_or_default(type));
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  maybe_fail("copy");
  LateCopies& late = LateCopies::instance();
  const bool reads_device = is_on_device(from);
  const bool writes_device = is_on_device(to);
  reads_device ? use(from, false) : late.finish_overlapping(from);
  writes_device ? use(to, true) : late.finish_overlapping(to);
  Tensor target = writes_device ? alias_on_host(to) : to;
  target.copy_(reads_device ? alias_on_host(from) : from);
  std::string name = !reads_device ? "copy_to_device" : (writes_device ? "copy" : "copy_to_host");
  if (current_stream() != 0) name += " on another stream";
  Counts::instance().add_kernel(name, stored_bytes(from), static_cast<int64_t>(to.nbytes()));
  if (reads_device && writes_device) return to;
  const Tensor& host = reads_device ? to : from;
  if (non_blocking && is_pinned(host.const_data_ptr()) && host.is_contiguous()) {
    late.add(host, reads_device ? from : to, reads_device);
  } else {
    wait_for_stream();
    Counts::instance().add_wait(name);
  }
  return to;
}

at::Scalar local_scalar_dense(const Tensor& tensor) {
  maybe_fail("item");
  use(tensor, false);
  wait_for_stream();
  Counts::instance().add_wait("item");
  return alias_on_host(tensor).item();
}

Tensor as_strided(const Tensor& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                  std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(tensor, sizes, strides, offset);
}

Tensor view(const Tensor& tensor, c10::IntArrayRef sizes) {
  return at::native::view(tensor, sizes);
}

Tensor view_dtype(const Tensor& tensor, at::ScalarType type) {
  return at::native::view_dtype(tensor, type);
}

Tensor reshape_alias(const Tensor& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  return at::native::as_strided_tensorimpl(tensor, sizes, strides, tensor.storage_offset());
}

Tensor unfold(const Tensor& tensor, int64_t dimension, int64_t size, int64_t step) {
  return at::native::unfold(tensor, dimension, size, step);
}

Tensor& set_storage(Tensor& tensor, at::Storage storage, int64_t offset, c10::IntArrayRef sizes,
                    c10::IntArrayRef strides) {
  auto* const impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_storage_offset(offset);
  impl->set_sizes_and_strides(sizes, strides);
  return tensor;
}

// Multiplies 16-bit matrices with a float32 result, which the CPU does not support.
void multiply_into_float32(Tensor& out, const Tensor& a, const Tensor& b, double beta,
                           double alpha) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type() && out.scalar_type() == at::kFloat,
              "factors of one type and a float32 result");
  use(a, false);
  use(b, false);
  use(out, true);
  alias_on_host(out).addmm_(alias_on_host(a).to(at::kFloat), alias_on_host(b).to(at::kFloat), beta,
                            alpha);
}

Tensor& addmm_dtype_out(const Tensor& self, const Tensor& a, const Tensor& b, at::ScalarType type,
                        const at::Scalar& beta, const at::Scalar& alpha, Tensor& out) {
  maybe_fail("aten::addmm.dtype_out");
  TORCH_CHECK(type == at::kFloat && self.is_same(out), "only sums into a float32 tensor");
  multiply_into_float32(out, a, b, beta.toDouble(), alpha.toDouble());
  Counts::instance().add_kernel("aten::addmm.dtype_out",
                                stored_bytes(a) + stored_bytes(b) + stored_bytes(out),
                                stored_bytes(out), {name_of(a.scalar_type())});
  return out;
}

Tensor mm_dtype(const Tensor& a, const Tensor& b, at::ScalarType type) {
  Tensor result = empty_on_device({a.size(0), b.size(1)}, {b.size(1), 1}, type);
  multiply_into_float32(result, a, b, 0.0, 1.0);
  Counts::instance().add_kernel("aten::mm.dtype", stored_bytes(a) + stored_bytes(b),
                                stored_bytes(result), {name_of(a.scalar_type())});
  return result;
}

// Module::to() asks this through set_data(); torch's own implementation does not support
// PrivateUse1.
bool has_compatible_shallow_copy_type(const Tensor& /*to*/, const Tensor& /*from*/) { return true; }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", copy_from);
  // CUDA has one kernel for a list of tensors; the CPU calls an operator for each.
  for (const char* name : {"_foreach_copy_", "_foreach_norm.Scalar", "_foreach_zero_"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_operator>());
  }
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("addmm.dtype_out", addmm_dtype_out);
  m.impl("as_strided", as_strided);
  m.impl("empty.memory_format", empty_memory_format);
  m.impl("empty_strided", empty_strided);
  m.impl("mm.dtype", mm_dtype);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("unfold", unfold);
  m.impl("view", view);
  m.impl("view.dtype", view_dtype);
}

}  // namespace
}  // namespace pretend
