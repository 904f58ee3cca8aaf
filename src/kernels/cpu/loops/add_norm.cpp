// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/add_norm.h"

#include <cmath>

#include "kernels/cpu/loops/philox.h"
#include "kernels/cpu/loops/vector_math.h"

namespace finetune::kernels {
namespace {

// Writes the row's dropout factors to the scratch memory after the scratch row.
template <typename Rows>
FT_INLINE const float* make_factors(const Rows& rows, int64_t r) {
  float* factors = rows.scratch + rows.columns;
  const DropoutNumbers& numbers = *rows.dropout;
  const bool divides = rows.row_positions.sequences == nullptr;
  const int64_t sample = divides ? r / rows.rows_per_sample : rows.row_positions.sequences[r];
  const int64_t position = divides ? r % rows.rows_per_sample : rows.row_positions.positions[r];
  dropout_factors(
      {static_cast<uint32_t>(position), numbers.first_position + static_cast<uint32_t>(sample),
       numbers.layer_and_site, numbers.key, numbers.threshold(), numbers.scale()},
      rows.columns, factors);
  return factors;
}

struct Statistics {
  float mean;
  float inverse_deviation;
};

// Mean and 1 / sqrt(variance + epsilon), in two passes for accuracy: the variance is the mean of (x
// - mean)^2. Lanes after the end of the row are loaded as the mean, so they add nothing.
template <int W>
FT_INLINE Statistics statistics_of(const float* row, int64_t columns, float total, float epsilon) {
  const float mean = total / static_cast<float>(columns);
  Lanes<W> squares(0.0F);
  for (int64_t c = 0; c < columns; c += kLanes) {
    const Lanes<W> x = load<W>(row + c, columns - c, mean) - mean;
    squares = squares + x * x;
  }
  const float variance = sum(squares) / static_cast<float>(columns);
  return {mean, 1.0F / std::sqrt(variance + epsilon)};
}

// Computes s of a row, rounded to its storage type, into `sums` and the scratch row; returns the
// row's sum.
template <int W, typename Storage>
FT_INLINE float add_row(const AddNormRows<Storage>& rows, int64_t r) {
  const bool adds = rows.residual != nullptr;
  const float* factors = rows.dropout && adds ? make_factors(rows, r) : nullptr;
  Lanes<W> totals(0.0F);
  for (int64_t c = 0; c < rows.columns; c += kLanes) {
    const int64_t count = rows.columns - c;
    const int64_t position = r * rows.columns + c;
    Lanes<W> x = load<W>(rows.sums + position, count);
    if (adds) {
      x = x + load<W>(rows.bias + c, count);
      if (factors != nullptr) x = x * load<W>(factors + c, count);
      x = rounded_to<Storage>(x + load<W>(rows.residual + position, count));
      store(x, count, rows.sums + position);
    }
    totals = totals + x;
    store(x, count, rows.scratch + c);
  }
  return sum(totals);
}

// y = (s - mean) / sqrt(variance + epsilon) * gamma + beta
template <int W, typename Storage>
FT_INLINE void forward(const AddNormRows<Storage>& rows) {
  for (int64_t r = rows.first_row; r < rows.last_row; ++r) {
    const float total = add_row<W>(rows, r);
    const Statistics statistics = statistics_of<W>(rows.scratch, rows.columns, total, rows.epsilon);
    for (int64_t c = 0; c < rows.columns; c += kLanes) {
      const int64_t count = rows.columns - c;
      const Lanes<W> x =
          (load<W>(rows.scratch + c, count) - statistics.mean) * statistics.inverse_deviation;
      store(x * load<W>(rows.gamma + c, count) + load<W>(rows.beta + c, count), count,
            rows.output + r * rows.columns + c);
    }
  }
}

// Loads s of a row into the scratch row; returns its statistics.
template <int W, typename Storage>
FT_INLINE Statistics load_row(const AddNormBackwardRows<Storage>& rows, int64_t r) {
  Lanes<W> totals(0.0F);
  for (int64_t c = 0; c < rows.columns; c += kLanes) {
    const int64_t count = rows.columns - c;
    const Lanes<W> x = load<W>(rows.sums + r * rows.columns + c, count);
    totals = totals + x;
    store(x, count, rows.scratch + c);
  }
  return statistics_of<W>(rows.scratch, rows.columns, sum(totals), rows.epsilon);
}

struct Means {
  float gradient;             // mean of dy * gamma
  float gradient_normalised;  // mean of dy * gamma * normalised s
};

// Normalises s in the scratch row and adds to the gradients: dgamma += dy * x, dbeta += dy, with x
// the normalised s.
template <int W, typename Storage>
FT_INLINE Means normalise_row(const AddNormBackwardRows<Storage>& rows, int64_t r,
                              const Statistics& statistics) {
  float* of_gamma = rows.column_sums;
  float* of_beta = rows.column_sums + rows.columns;
  Lanes<W> totals(0.0F);
  Lanes<W> products(0.0F);
  for (int64_t c = 0; c < rows.columns; c += kLanes) {
    const int64_t count = rows.columns - c;
    const Lanes<W> x = (load<W>(rows.scratch + c, count, statistics.mean) - statistics.mean) *
                       statistics.inverse_deviation;
    const Lanes<W> gradient = load<W>(rows.gradient + r * rows.columns + c, count);
    const Lanes<W> scaled = gradient * load<W>(rows.gamma + c, count);
    totals = totals + scaled;
    products = products + scaled * x;
    store(x, count, rows.scratch + c);
    store(load<W>(of_gamma + c, count) + gradient * x, count, of_gamma + c);
    store(load<W>(of_beta + c, count) + gradient, count, of_beta + c);
  }
  const auto width = static_cast<float>(rows.columns);
  return {sum(totals) / width, sum(products) / width};
}

// The gradient of s, with x the normalised s and means over the row: ds = (dy gamma - mean(dy
// gamma) - x mean(dy gamma x)) / sqrt(variance + epsilon). The gradient of the product is ds times
// the dropout factors; its sum over rows is that of the bias.
template <int W, typename Storage>
FT_INLINE void backward(const AddNormBackwardRows<Storage>& rows) {
  float* of_bias = rows.column_sums + 2 * rows.columns;
  for (int64_t r = rows.first_row; r < rows.last_row; ++r) {
    const float* factors = rows.dropout ? make_factors(rows, r) : nullptr;
    const Statistics statistics = load_row<W>(rows, r);
    const Means means = normalise_row<W>(rows, r, statistics);
    for (int64_t c = 0; c < rows.columns; c += kLanes) {
      const int64_t count = rows.columns - c;
      const int64_t position = r * rows.columns + c;
      const Lanes<W> scaled =
          load<W>(rows.gradient + position, count) * load<W>(rows.gamma + c, count);
      Lanes<W> gradient =
          (scaled - means.gradient - load<W>(rows.scratch + c, count) * means.gradient_normalised) *
          statistics.inverse_deviation;
      store(gradient, count, rows.gradient + position);
      if (factors != nullptr) {
        gradient = gradient * load<W>(factors + c, count);
        store(gradient, count, rows.sums + position);
      }
      store(load<W>(of_bias + c, count) + gradient, count, of_bias + c);
    }
  }
}

}  // namespace

FT_VECTOR_KERNEL(add_norm_rows, AddNormRows<float>, forward)
FT_VECTOR_KERNEL(add_norm_rows, AddNormRows<BFloat16Bits>, forward)
FT_VECTOR_KERNEL(add_norm_rows, AddNormRows<HalfBits>, forward)

FT_VECTOR_KERNEL(add_norm_backward_rows, AddNormBackwardRows<float>, backward)
FT_VECTOR_KERNEL(add_norm_backward_rows, AddNormBackwardRows<BFloat16Bits>, backward)
FT_VECTOR_KERNEL(add_norm_backward_rows, AddNormBackwardRows<HalfBits>, backward)

}  // namespace finetune::kernels
