// SPDX-License-Identifier: MIT
#include "finetune/tensor/lazy_tensor.h"

#include <c10/core/GradMode.h>

#include <algorithm>

#include "finetune/base/error.h"

namespace finetune {
namespace {

// Size of the pieces in which a tensor is copied if it cannot be written in place: some passes over
// one stay in a processor's cache.
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

}  // namespace

uint64_t LazyTensor::elements() const {
  uint64_t count = 1;
  for (const int64_t size : shape) count *= static_cast<uint64_t>(size);
  return count;
}

uint64_t LazyTensor::bytes() const { return elements() * c10::elementSize(type); }

LazyTensor lazy_tensor(std::string name, const Tensor& tensor) {
  return {.name = std::move(name),
          .type = tensor.scalar_type(),
          .shape = tensor.sizes().vec(),
          .rows = [tensor](int64_t first, int64_t count) {
            return tensor.dim() == 0 ? tensor : tensor.narrow(0, first, count);
          }};
}

LazyTensors lazy_tensors(const NamedTensors& tensors) {
  LazyTensors result;
  for (const NamedTensor& named : tensors) result.push_back(lazy_tensor(named.name, named.tensor));
  return result;
}

void for_each_piece(const LazyTensor& tensor,
                    const std::function<void(const void* data, size_t bytes)>& sink,
                    Numbers numbers) {
  const c10::NoGradGuard no_grad;
  const int64_t rows = tensor.shape.empty() ? 1 : tensor.shape.front();
  const uint64_t bytes = tensor.bytes();
  if (bytes == 0) return;
  const uint64_t row_bytes = bytes / static_cast<uint64_t>(rows);
  const auto step = static_cast<int64_t>(std::max<uint64_t>(kPieceBytes / row_bytes, 1));
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t count = std::min(step, rows - first);
    const Tensor piece = tensor.rows(first, count).detach().to(at::kCPU).contiguous();
    FT_CHECK(piece.scalar_type() == tensor.type &&
                 piece.nbytes() == row_bytes * static_cast<uint64_t>(count),
             "rows of tensor " + tensor.name);
    if (numbers == Numbers::kFinite) {
      refuse_nonfinite(tensor.name, piece,
                       first * static_cast<int64_t>(row_bytes / c10::elementSize(tensor.type)));
    }
    sink(piece.const_data_ptr(), piece.nbytes());
  }
}

}  // namespace finetune
