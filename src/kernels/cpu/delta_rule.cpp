// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/delta_rule.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "kernels/cpu/operations.h"
#include "kernels/cpu/rows.h"

namespace finetune::kernels::cpu {
namespace {

static_assert(kDeltaChunk == 16 && kDeltaEpsilon == 1e-6, "loops/delta_rule.cpp has both");

// Products of decays soon are denormal numbers, with which x86 computes a hundred times slower: in
// this scope they are zero.
class WithoutDenormals {
 public:
  WithoutDenormals(const WithoutDenormals&) = delete;
#ifdef __SSE2__
  WithoutDenormals() : before_(__builtin_ia32_stmxcsr()) {
    constexpr unsigned kFlushResults = 1U << 15U, kInputsAreZero = 1U << 6U;
    __builtin_ia32_ldmxcsr(before_ | kFlushResults | kInputsAreZero);
  }
  ~WithoutDenormals() { __builtin_ia32_ldmxcsr(before_); }

 private:
  unsigned before_;
#else
  WithoutDenormals() {}
  ~WithoutDenormals() {}
#endif
};

// A rule with values in float32, and the addresses of its sequences and key heads.
struct FloatRule {
  explicit FloatRule(const DeltaRule& own)
      : rule(own),
        mixed(own.mixed.to(at::kFloat)),
        a(own.a.to(at::kFloat)),
        b(own.b.to(at::kFloat)),
        decay(at::empty_like(a)),
        beta(at::empty_like(a)) {
    delta_gates(gates());
  }

  [[nodiscard]] DeltaGateRows gates() const {
    return {.a = a.const_data_ptr<float>(),
            .b = b.const_data_ptr<float>(),
            .a_log = rule.a_log.const_data_ptr<float>(),
            .dt_bias = rule.dt_bias.const_data_ptr<float>(),
            .decay = decay.mutable_data_ptr<float>(),
            .beta = beta.mutable_data_ptr<float>(),
            .rows = rule.rows(),
            .heads = rule.heads()};
  }

  // Of task `index`: a sequence and a key head.
  [[nodiscard]] DeltaRuleRows rows(int64_t index, const Tensor& output) const {
    const int64_t sequence = index / rule.key_heads;
    const int64_t key_head = index % rule.key_heads;
    const int64_t first = rule.tokens.start(sequence);
    const int64_t heads = rule.heads() / rule.key_heads;
    const int64_t keys = rule.key_heads * rule.key_size;
    const int64_t values = key_head * heads * rule.value_size();
    const int64_t outputs = rule.heads() * rule.value_size();
    const float* const row = mixed.const_data_ptr<float>() + first * mixed.size(-1);
    const int64_t of_head = first * rule.heads() + key_head * heads;
    return {.query = row + key_head * rule.key_size,
            .key = row + keys + key_head * rule.key_size,
            .value = row + 2 * keys + values,
            .stride = mixed.size(-1),
            .decay = decay.const_data_ptr<float>() + of_head,
            .beta = beta.const_data_ptr<float>() + of_head,
            .head_stride = rule.heads(),
            .output = output.mutable_data_ptr<float>() + first * outputs + values,
            .output_stride = outputs,
            .tokens = rule.tokens.start(sequence + 1) - first,
            .heads = heads,
            .size = rule.key_size,
            .value_size = rule.value_size(),
            .state = nullptr,
            .scratch = nullptr};
  }
  [[nodiscard]] int64_t tasks() const { return rule.sequences() * rule.key_heads; }

  DeltaRule rule;
  Tensor mixed, a, b;
  Tensor decay, beta;  // g and beta
};

Tensor scratch(int64_t values) { return at::empty({values}, at::TensorOptions(at::kFloat)); }

}  // namespace

Tensor delta_rule(const DeltaRule& rule, const Tensor& state) {
  const FloatRule all(rule);
  std::vector<int64_t> sizes = rule.mixed.sizes().vec();
  sizes.back() = rule.heads() * rule.value_size();
  const Tensor output = at::empty(sizes, all.mixed.options());
  at::parallel_for(0, all.tasks(), 1, [&](int64_t begin, int64_t end) {
    const WithoutDenormals scope;
    for (int64_t task = begin; task < end; ++task) {
      DeltaRuleRows rows = all.rows(task, output);
      const Tensor memory = scratch(delta_rule_scratch(rows));
      rows.scratch = memory.mutable_data_ptr<float>();
      if (state.defined()) {
        rows.state = state.mutable_data_ptr<float>() +
                     task * rows.heads * rows.size * rows.value_size;  // one sequence
      }
      delta_rule_rows(rows);
    }
  });
  return output.to(rule.mixed.scalar_type());
}

DeltaRuleGradients delta_rule_backward(const DeltaRule& rule, const Tensor& gradient) {
  const FloatRule all(rule);
  const Tensor of_output = gradient.to(at::kFloat);
  const Tensor of_mixed = at::empty_like(all.mixed);
  const Tensor of_decay = at::empty_like(all.decay);
  const Tensor of_beta = at::empty_like(all.decay);
  at::parallel_for(0, all.tasks(), 1, [&](int64_t begin, int64_t end) {
    const WithoutDenormals scope;
    for (int64_t task = begin; task < end; ++task) {
      DeltaRuleBackwardRows rows = {.forward = all.rows(task, of_output),
                                    .of_query = nullptr,
                                    .of_key = nullptr,
                                    .of_value = nullptr,
                                    .of_decay = nullptr,
                                    .of_beta = nullptr};
      DeltaRuleRows& forward = rows.forward;
      const float* const mixed = all.mixed.const_data_ptr<float>();
      const auto like = [&](const float* input) {
        return of_mixed.mutable_data_ptr<float>() + (input - mixed);
      };
      rows.of_query = like(forward.query);
      rows.of_key = like(forward.key);
      rows.of_value = like(forward.value);
      const int64_t of_head = forward.decay - all.decay.const_data_ptr<float>();
      rows.of_decay = of_decay.mutable_data_ptr<float>() + of_head;
      rows.of_beta = of_beta.mutable_data_ptr<float>() + of_head;
      const Tensor memory = scratch(delta_rule_backward_scratch(forward));
      forward.scratch = memory.mutable_data_ptr<float>();
      delta_rule_backward_rows(rows);
    }
  });
  const Tensor of_a_log = at::empty_like(all.decay);
  delta_gates_backward(all.gates(), of_decay.mutable_data_ptr<float>(),
                       of_beta.mutable_data_ptr<float>(), of_a_log.mutable_data_ptr<float>());
  const auto sum = [&](const Tensor& x) { return x.view({-1, rule.heads()}).sum(0); };
  const at::ScalarType type = rule.mixed.scalar_type();
  return {.mixed = of_mixed.to(type),
          .a = of_decay.to(type),
          .b = of_beta.to(type),
          .a_log = sum(of_a_log),
          .dt_bias = sum(of_decay)};
}

namespace {

// Rows and taps in float32, the taps [K, C].
struct FloatConvolution {
  FloatConvolution(const Tensor& x, const ShortConvolution& own)
      : convolution(own),
        input(x.to(at::kFloat)),
        weight(own.weight.t().contiguous()),
        columns(x.size(-1)),
        rows(x.numel() / columns) {}

  // Calls function(rows, tokens of the sequence, first row in all) for parts of all sequences.
  template <typename Function>
  void for_each_part(const Tensor& output, const Tensor& before, const Function& function) const {
    const int64_t grain = row_grain(columns * weight.size(0));
    for (int64_t s = 0; s < convolution.tokens.sequences(rows); ++s) {
      const int64_t first = convolution.tokens.start(s);
      const int64_t tokens = convolution.tokens.start(s + 1) - first;
      at::parallel_for(0, tokens, grain, [&](int64_t begin, int64_t end) {
        function(part(first, begin, end, output, before), tokens, first);
      });
    }
  }
  [[nodiscard]] ConvolutionRows part(int64_t first, int64_t begin, int64_t end,
                                     const Tensor& output, const Tensor& before) const {
    return {.input = input.const_data_ptr<float>() + first * columns,
            .before = before.defined() ? before.const_data_ptr<float>() : nullptr,
            .weight = weight.const_data_ptr<float>(),
            .bias = convolution.bias.defined() ? convolution.bias.const_data_ptr<float>() : nullptr,
            .output = output.mutable_data_ptr<float>() + first * columns,
            .first_row = begin,
            .last_row = end,
            .columns = columns,
            .size = weight.size(0),
            .has_silu = convolution.has_silu};
  }

  const ShortConvolution& convolution;
  Tensor input, weight;
  int64_t columns, rows;
};

}  // namespace

Tensor short_convolution(const Tensor& x, const ShortConvolution& convolution,
                         const Tensor& before) {
  const FloatConvolution all(x, convolution);
  const Tensor output = at::empty_like(all.input);
  const Tensor start = before.defined() ? before.to(at::kFloat).contiguous() : before;
  all.for_each_part(output, start,
                    [](const ConvolutionRows& rows, int64_t /*tokens*/, int64_t /*first*/) {
                      convolution_rows(rows);
                    });
  return output.to(x.scalar_type());
}

ShortConvolutionGradients short_convolution_backward(const Tensor& gradient, const Tensor& x,
                                                     const ShortConvolution& convolution) {
  const FloatConvolution all(x, convolution);
  Tensor of_sums = gradient.to(at::kFloat);
  if (convolution.has_silu && of_sums.is_same(gradient)) of_sums = gradient.clone();
  all.for_each_part(of_sums, {},
                    [](const ConvolutionRows& rows, int64_t /*tokens*/, int64_t /*first*/) {
                      convolution_sum_rows(rows);
                    });
  const Tensor of_input = at::empty_like(all.input);
  all.for_each_part(of_sums, {}, [&](const ConvolutionRows& rows, int64_t tokens, int64_t first) {
    convolution_backward_rows(
        {.forward = rows,
         .tokens = tokens,
         .of_input = of_input.mutable_data_ptr<float>() + first * all.columns});
  });
  // Each sequence's rows in parts that do not depend on the number of threads.
  std::vector<ConvolutionRows> parts;
  for (int64_t s = 0; s < convolution.tokens.sequences(all.rows); ++s) {
    const int64_t first = convolution.tokens.start(s);
    const RowParts own(convolution.tokens.start(s + 1) - first);
    for (int64_t part = 0; part < own.count(); ++part) {
      parts.push_back(all.part(first, own.begin(part), own.end(part), of_sums, {}));
    }
  }
  const auto count = static_cast<int64_t>(parts.size());
  const Tensor sums = at::zeros({count, all.weight.size(0) + 1, all.columns}, all.input.options());
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      float* const own = sums.mutable_data_ptr<float>() + part * sums.stride(0);
      convolution_weight_rows(parts[static_cast<size_t>(part)], own,
                              own + all.weight.size(0) * all.columns);
    }
  });
  const Tensor total = sums.sum(0);
  return {.input = of_input.to(x.scalar_type()),
          .weight = total.narrow(0, 0, all.weight.size(0)).t().contiguous(),
          .bias = convolution.bias.defined() ? total[all.weight.size(0)].clone() : Tensor()};
}

}  // namespace finetune::kernels::cpu
