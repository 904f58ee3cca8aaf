// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace finetune::kernels {

// One sequence and the heads that one key head serves, without torch. Rows of tokens are `stride`
// values apart; columns of the heads follow each other.
struct DeltaRuleRows {
  const float* query;  // [tokens, size] of the key head
  const float* key;
  const float* value;  // [tokens, heads * value_size]
  int64_t stride;      // of the three
  const float* decay;  // [tokens, heads]
  const float* beta;
  int64_t head_stride;  // of both
  float* output;        // [tokens, heads * value_size]
  int64_t output_stride;
  int64_t tokens, heads, size, value_size;
  float* state;    // [heads, size, value_size], read and written; or null
  float* scratch;  // delta_rule_scratch() values
};

struct DeltaRuleBackwardRows {
  DeltaRuleRows forward;  // `output` is the gradient, which is read
  // Gradients, in rows as those of the forward pass.
  float* of_query;
  float* of_key;
  float* of_value;
  float* of_decay;
  float* of_beta;
};

// The gates of rows of tokens, [rows, heads] each: g and beta.
struct DeltaGateRows {
  const float* a;
  const float* b;
  const float* a_log;  // [heads], and the next
  const float* dt_bias;
  float* decay;
  float* beta;
  int64_t rows, heads;
};
void delta_gates(const DeltaGateRows& rows);
// `decay` and `beta` are as delta_gates() made them. `of_decay` becomes the gradient of a,
// `of_beta` that of b; `of_a_log` [rows, heads] gets each row's part.
void delta_gates_backward(const DeltaGateRows& rows, float* of_decay, float* of_beta,
                          float* of_a_log);

[[nodiscard]] int64_t delta_rule_scratch(const DeltaRuleRows& rows);
[[nodiscard]] int64_t delta_rule_backward_scratch(const DeltaRuleRows& rows);
void delta_rule_rows(const DeltaRuleRows& rows);
void delta_rule_backward_rows(const DeltaRuleBackwardRows& rows);

// A range of rows of one sequence. Values of the weight and sums are [size, columns].
struct ConvolutionRows {
  const float* input;   // the sequence's rows
  const float* before;  // [size - 1, columns], or null
  const float* weight;
  const float* bias;  // or null
  float* output;
  int64_t first_row, last_row;  // in the sequence
  int64_t columns, size;
  bool has_silu;
};
struct ConvolutionBackwardRows {
  ConvolutionRows forward;  // `output`: the gradient, which becomes that of the sum
  int64_t tokens;           // of the sequence
  float* of_input;
};
void convolution_rows(const ConvolutionRows& rows);
// The gradients of the sums, which the input's gradient and the weight's need of all rows.
void convolution_sum_rows(const ConvolutionRows& rows);
void convolution_backward_rows(const ConvolutionBackwardRows& rows);
// += the gradients of weight and bias of these rows; `of_bias` may be null.
void convolution_weight_rows(const ConvolutionRows& rows, float* of_weight, float* of_bias);

}  // namespace finetune::kernels
