// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/xielu.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/operations.h"
#include "kernels/cpu/rows.h"

namespace finetune::kernels::cpu {
namespace {

// As torch's, which is its argument from 20 on.
double softplus(double x) { return x > 20.0 ? x : std::log1p(std::exp(x)); }
double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

XieluFactors factors_of(const Xielu& f) {
  const double p = softplus(static_cast<double>(f.alpha_p.item<float>()));
  const double n = softplus(static_cast<double>(f.alpha_n.item<float>()));
  return {.of_squares = static_cast<float>(p), .of_powers = static_cast<float>(0.5 + n)};
}

}  // namespace

Tensor xielu(const Tensor& x, const Xielu& f) {
  const Tensor output = at::empty_like(x);
  const XieluFactors factors = factors_of(f);
  with_storage(x.scalar_type(), [&]<typename Storage>(Storage*) {
    const auto* from = static_cast<const Storage*>(x.const_data_ptr());
    auto* to = static_cast<Storage*>(output.mutable_data_ptr());
    at::parallel_for(0, x.numel(), kValuesPerThread, [&](int64_t begin, int64_t end) {
      xielu_values(XieluValues<Storage>{
          .x = from, .output = to, .factors = factors, .first = begin, .last = end});
    });
  });
  return output;
}

XieluGradients xielu_backward(const Tensor& gradient, const Tensor& x, const Xielu& f) {
  const XieluFactors factors = factors_of(f);
  const int64_t columns = x.size(-1);
  const RowParts parts(x.numel() / std::max<int64_t>(columns, 1));
  std::vector<double> sums(static_cast<size_t>(2 * parts.count()), 0.0);
  with_storage(x.scalar_type(), [&]<typename Storage>(Storage*) {
    const auto* from = static_cast<const Storage*>(x.const_data_ptr());
    auto* to = static_cast<Storage*>(gradient.mutable_data_ptr());
    at::parallel_for(0, parts.count(), part_grain(parts, columns), [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        xielu_backward_values(XieluBackward<Storage>{.x = from,
                                                     .gradient = to,
                                                     .sums = sums.data() + 2 * part,
                                                     .factors = factors,
                                                     .first = parts.begin(part) * columns,
                                                     .last = parts.end(part) * columns});
      }
    });
  });
  double squares = 0.0, powers = 0.0;
  for (size_t part = 0; part < sums.size(); part += 2) {
    squares += sums[part];
    powers += sums[part + 1];
  }
  const auto scaled = [](double sum, const Tensor& alpha) {
    return at::empty({1, 1}, alpha.options())
        .fill_(sum * sigmoid(static_cast<double>(alpha.item<float>())));
  };
  return {.alpha_p = scaled(squares, f.alpha_p), .alpha_n = scaled(powers, f.alpha_n)};
}

}  // namespace finetune::kernels::cpu
