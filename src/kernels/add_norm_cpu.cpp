// SPDX-License-Identifier: MIT
#include "kernels/add_norm_cpu.h"

#include <cmath>

#include "kernels/vector_block.h"

namespace finetune::kernels {
namespace {

FT_INLINE DropoutRow row_numbers(const DropoutNumbers& numbers, int64_t row,
                                 int64_t rows_per_sample) {
  return {static_cast<uint32_t>(row % rows_per_sample),
          numbers.first_place + static_cast<uint32_t>(row / rows_per_sample),
          numbers.layer_and_site,
          numbers.key,
          numbers.threshold(),
          numbers.scale()};
}

struct Statistics {
  float mean;
  float inverse_deviation;
};

FT_INLINE Statistics statistics_of(const float* row, int64_t columns, float sum, float epsilon) {
  const float mean = sum / static_cast<float>(columns);
  Block squares = {};
  for (int64_t c = 0; c < columns; c += kBlock) {
    Block x;
    load_block(row + c, columns - c, mean, x);
    for (int i = 0; i < kBlock; ++i) squares[i] += (x[i] - mean) * (x[i] - mean);
  }
  const float variance = sum_of(squares) / static_cast<float>(columns);
  return {mean, 1.0F / std::sqrt(variance + epsilon)};
}

// s into the scratch row, as it is stored; returns its sum.
template <typename Storage>
FT_INLINE float add_row(const AddNormRows<Storage>& rows, int64_t r) {
  const bool drops = rows.dropout.has_value();
  const DropoutRow numbers =
      drops ? row_numbers(*rows.dropout, r, rows.rows_per_sample) : DropoutRow{};
  Block totals = {};
  for (int64_t c = 0; c < rows.columns; c += kBlock) {
    const int64_t count = rows.columns - c;
    const int64_t at = r * rows.columns + c;
    Block x;
    load_block(rows.sums + at, count, 0.0F, x);
    if (rows.residual != nullptr) {
      Block bias;
      Block residual;
      load_block(rows.bias + c, count, 0.0F, bias);
      load_block(rows.residual + at, count, 0.0F, residual);
      for (int i = 0; i < kBlock; ++i) x[i] += bias[i];
      if (drops) {
        Block factors;
        dropout_factors(numbers, c, factors);
        for (int i = 0; i < kBlock; ++i) x[i] *= factors[i];
      }
      // What lies behind the row stays zero: its number may be the scale, but it has no value.
      for (int i = 0; i < kBlock; ++i) x[i] += residual[i];
      round_block<Storage>(x);
      store_block(x, count, rows.sums + at);
    }
    for (int i = 0; i < kBlock; ++i) totals[i] += x[i];
    store_block(x, count, rows.scratch + c);
  }
  return sum_of(totals);
}

template <typename Storage>
FT_INLINE void forward(const AddNormRows<Storage>& rows) {
  for (int64_t r = rows.first_row; r < rows.last_row; ++r) {
    const float sum = add_row(rows, r);
    const Statistics statistics = statistics_of(rows.scratch, rows.columns, sum, rows.epsilon);
    for (int64_t c = 0; c < rows.columns; c += kBlock) {
      const int64_t count = rows.columns - c;
      Block x;
      Block gamma;
      Block beta;
      load_block(rows.scratch + c, count, 0.0F, x);
      load_block(rows.gamma + c, count, 0.0F, gamma);
      load_block(rows.beta + c, count, 0.0F, beta);
      for (int i = 0; i < kBlock; ++i) {
        x[i] = (x[i] - statistics.mean) * statistics.inverse_deviation * gamma[i] + beta[i];
      }
      store_block(x, count, rows.output + r * rows.columns + c);
    }
  }
}

// s normalised, in the scratch row.
template <typename Storage>
FT_INLINE Statistics normalise(const AddNormBackwardRows<Storage>& rows, int64_t r) {
  Block totals = {};
  for (int64_t c = 0; c < rows.columns; c += kBlock) {
    Block x;
    load_block(rows.sums + r * rows.columns + c, rows.columns - c, 0.0F, x);
    for (int i = 0; i < kBlock; ++i) totals[i] += x[i];
    store_block(x, rows.columns - c, rows.scratch + c);
  }
  const Statistics statistics =
      statistics_of(rows.scratch, rows.columns, sum_of(totals), rows.epsilon);
  for (int64_t c = 0; c < rows.columns; c += kBlock) {
    Block x;
    load_block(rows.scratch + c, rows.columns - c, 0.0F, x);
    for (int i = 0; i < kBlock; ++i) x[i] = (x[i] - statistics.mean) * statistics.inverse_deviation;
    store_block(x, rows.columns - c, rows.scratch + c);
  }
  return statistics;
}

struct Means {
  float gradient;             // of dy * gamma
  float gradient_normalised;  // of dy * gamma * normalised s
};

template <typename Storage>
FT_INLINE Means add_norm_sums(const AddNormBackwardRows<Storage>& rows, int64_t r) {
  Block totals = {};
  Block products = {};
  for (int64_t c = 0; c < rows.columns; c += kBlock) {
    const int64_t count = rows.columns - c;
    Block x;
    Block gradient;
    Block gamma;
    load_block(rows.scratch + c, count, 0.0F, x);
    load_block(rows.gradient + r * rows.columns + c, count, 0.0F, gradient);
    load_block(rows.gamma + c, count, 0.0F, gamma);
    Block of_gamma;
    for (int i = 0; i < kBlock; ++i) {
      of_gamma[i] = gradient[i] * x[i];
      totals[i] += gradient[i] * gamma[i];
      products[i] += of_gamma[i] * gamma[i];
    }
    add_block(of_gamma, count, rows.column_sums + c);
    add_block(gradient, count, rows.column_sums + rows.columns + c);
  }
  const auto width = static_cast<float>(rows.columns);
  return {sum_of(totals) / width, sum_of(products) / width};
}

template <typename Storage>
FT_INLINE void backward(const AddNormBackwardRows<Storage>& rows) {
  const bool drops = rows.dropout.has_value();
  for (int64_t r = rows.first_row; r < rows.last_row; ++r) {
    const DropoutRow numbers =
        drops ? row_numbers(*rows.dropout, r, rows.rows_per_sample) : DropoutRow{};
    const Statistics statistics = normalise(rows, r);
    const Means means = add_norm_sums(rows, r);
    for (int64_t c = 0; c < rows.columns; c += kBlock) {
      const int64_t count = rows.columns - c;
      const int64_t at = r * rows.columns + c;
      Block x;
      Block gradient;
      Block gamma;
      load_block(rows.scratch + c, count, 0.0F, x);
      load_block(rows.gradient + at, count, 0.0F, gradient);
      load_block(rows.gamma + c, count, 0.0F, gamma);
      for (int i = 0; i < kBlock; ++i) {
        gradient[i] = statistics.inverse_deviation *
                      (gradient[i] * gamma[i] - means.gradient - x[i] * means.gradient_normalised);
      }
      store_block(gradient, count, rows.gradient + at);
      if (drops) {
        Block factors;
        dropout_factors(numbers, c, factors);
        for (int i = 0; i < kBlock; ++i) gradient[i] *= factors[i];
        store_block(gradient, count, rows.sums + at);
      }
      add_block(gradient, count, rows.column_sums + 2 * rows.columns + c);
    }
  }
}

}  // namespace

FT_CLONES void add_norm_rows(const AddNormRows<float>& rows) { forward(rows); }
FT_CLONES void add_norm_rows(const AddNormRows<BFloat16Bits>& rows) { forward(rows); }
FT_CLONES void add_norm_rows(const AddNormRows<HalfBits>& rows) { forward(rows); }

FT_CLONES void add_norm_backward_rows(const AddNormBackwardRows<float>& rows) { backward(rows); }
FT_CLONES void add_norm_backward_rows(const AddNormBackwardRows<BFloat16Bits>& rows) {
  backward(rows);
}
FT_CLONES void add_norm_backward_rows(const AddNormBackwardRows<HalfBits>& rows) { backward(rows); }

}  // namespace finetune::kernels
