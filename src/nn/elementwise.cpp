// SPDX-License-Identifier: MIT
#include "finetune/nn/elementwise.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/select_backward.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/kernels/kernels_in_use.h"

namespace finetune::nn {

kernels::RowDropout row_dropout(const Tensor& x, const DropoutPoint& point, const Pass& p) {
  const std::optional<DropoutStream>& stream = p.inputs().dropout;
  if (!stream || point.p == 0.0) return {};
  kernels::RowDropout dropout = {
      .p = point.p, .stream = *stream, .layer = point.layer, .site = point.site};
  if (point.is_table) {
    dropout.stream.first_position = 0;
    dropout.rows_of_sample = x.size(0);
  } else if (x.dim() == 3) {
    dropout.rows_of_sample = x.size(1);
    dropout.layout = p.layout_of(x).get();
  }
  return dropout;
}

Tensor masked(const Tensor& x, const DropoutPoint& point, const Pass& p) {
  const kernels::RowDropout rows = row_dropout(x, point, p);
  if (rows.p == 0.0) return x;
  const Tensor samples = x.reshape({-1, rows.rows_of_sample, x.size(-1)});
  return finetune::dropout(samples, rows.p, rows.stream, rows.layer, rows.site, rows.layout)
      .view(x.sizes());
}

// y = x f with random factors f of 0 or 1 / (1 - p); dx = dy f. The backward pass draws the same
// factors again, so no mask is kept.
Value dropout(Value x, const DropoutPoint& point, Pass& p) {
  if (!p.inputs().dropout || point.p == 0.0) return x;
  const Value y = p.result(masked(x.tensor, point, p), x.slot != nullptr);
  p.record(y, [point, &p, dx = x.slot](const Tensor& dy) { dx->give(masked(dy, point, p)); });
  return y;
}

Value read_tokens(Value x, int64_t layer, Pass& p) {
  const std::shared_ptr<const ReadTokens>& read = p.options().read;
  if (!read || layer != read->layer || p.is_read(x.tensor)) return x;
  const Tensor& index = read->index;
  Tensor selected = x.tensor.flatten(0, 1).index_select(0, index).unsqueeze(0);
  const Value y = p.result(std::move(selected), x.slot != nullptr);
  p.record(y, [index, dx = x.slot, like = x.tensor.options(),
               sizes = x.tensor.sizes().vec()](const Tensor& dy) {
    const Tensor all = at::zeros(sizes, like);
    all.flatten(0, 1).index_copy_(0, index, dy.squeeze(0).to(like.dtype().toScalarType()));
    dx->give(all);
  });
  return y;
}

Value add(const std::vector<Value>& terms, Pass& p) {
  FT_CHECK(!terms.empty(), "a sum without terms");
  Tensor sum = terms.front().tensor;
  for (size_t i = 1; i < terms.size(); ++i) sum = sum + terms[i].tensor;
  const bool needs_gradient =
      std::ranges::any_of(terms, [](const Value& term) { return term.slot != nullptr; });
  const Value y = p.result(std::move(sum), needs_gradient);
  if (!y.slot) return y;
  struct Term {
    std::shared_ptr<Slot> slot;
    std::vector<int64_t> sizes;
    at::ScalarType type;
  };
  std::vector<Term> kept;
  for (const Value& term : terms) {
    if (!term.slot) continue;
    kept.push_back({term.slot, term.tensor.sizes().vec(), term.tensor.scalar_type()});
  }
  // A term that was broadcast gets the sum of dy over the dimensions that it lacked.
  p.record(y, [kept](const Tensor& dy) {
    for (const Term& term : kept) term.slot->give(at::sum_to(dy, term.sizes).to(term.type));
  });
  return y;
}

Value whole(Residual x, Pass& p) {
  return x.branch.tensor.defined() ? add({std::move(x.x), std::move(x.branch)}, p) : x.x;
}

Value split_heads(Value x, int64_t heads, Pass& p) {
  const Value y = p.result(x.tensor.unflatten(-1, {heads, -1}), x.slot != nullptr);
  p.record(y, [dx = x.slot](const Tensor& dy) { dx->give(dy.flatten(-2)); });
  return y;
}

namespace {

// x [..., H D]; `pairs`: of rows [2, R / 2] instead of [R / 2, 2].
Tensor reordered(const Tensor& x, int64_t head_size, int64_t rotated, bool pairs) {
  const Tensor heads = x.unflatten(-1, {-1, head_size});
  std::array<int64_t, 2> sizes = {rotated / 2, 2};
  if (pairs) std::swap(sizes[0], sizes[1]);
  const Tensor turned =
      heads.narrow(-1, 0, rotated).unflatten(-1, sizes).transpose(-1, -2).flatten(-2);
  if (rotated == head_size) return turned.flatten(-2);
  return at::cat({turned, heads.narrow(-1, rotated, head_size - rotated)}, -1).flatten(-2);
}

}  // namespace

Value in_halves(Value x, int64_t head_size, int64_t rotated, Pass& p) {
  const Value y =
      p.result(reordered(x.tensor, head_size, rotated, /*pairs=*/false), x.slot != nullptr);
  p.record(y, [head_size, rotated, dx = x.slot](const Tensor& dy) {
    dx->give(reordered(dy, head_size, rotated, /*pairs=*/true));
  });
  return y;
}

Value product(Value a, Value b, Pass& p) {
  const Value y = p.result(a.tensor * b.tensor, a.slot || b.slot);
  p.record(y, [a = std::move(a), b = std::move(b)](const Tensor& dy) {
    if (a.slot) give(a.slot, dy * b.tensor);
    if (b.slot) give(b.slot, dy * a.tensor);
  });
  return y;
}

Value parts_together(Value x, int64_t groups, int64_t parts, Pass& p) {
  const auto turned = [](const Tensor& all, int64_t first, int64_t second) {
    return all.unflatten(-1, {first, second, -1}).transpose(-3, -2).flatten(-3);
  };
  const Value y = p.result(turned(x.tensor, groups, parts), x.slot != nullptr);
  p.record(y, [=, dx = x.slot](const Tensor& dy) { dx->give(turned(dy, parts, groups)); });
  return y;
}

Value scaled_tokens(Value x, const Tensor& factors, Pass& p) {
  const Tensor wide = factors.to(x.tensor.scalar_type()).unsqueeze(-1);
  const Value y = p.result(x.tensor * wide, x.slot != nullptr);
  p.record(y, [wide, dx = x.slot](const Tensor& dy) { dx->give(dy * wide); });
  return y;
}

Value joined_heads(Value x, Pass& p) {
  const Value y = p.result(x.tensor.flatten(-2), x.slot != nullptr);
  p.record(y, [dx = x.slot, sizes = x.tensor.sizes().vec()](const Tensor& dy) {
    dx->give(dy.reshape(sizes));
  });
  return y;
}

std::vector<Value> split(Value x, const std::vector<int64_t>& sizes, Pass& p) {
  std::vector<Value> parts;
  for (const Tensor& part : x.tensor.split_with_sizes(sizes, -1)) {
    parts.push_back(p.result(p.is_plain() ? part : part.contiguous(), x.slot != nullptr));
  }
  // The gradients of all parts are columns of one tensor, which is given when all of them are
  // there; those of a part without a gradient are zero.
  const Value together = p.result(Tensor(), x.slot != nullptr);
  p.record(together, [dx = x.slot](Tensor whole) { dx->give(std::move(whole)); });
  int64_t first = 0;
  for (size_t i = 0; i < parts.size(); first += sizes[i++]) {
    p.record(parts[i], [all = together.slot, shape = x.tensor.sizes().vec(), first,
                        count = sizes[i]](const Tensor& dy) {
      all->give_sum(dy.scalar_type(), [&](const Tensor& sum) {
        const Tensor whole = sum.defined() ? sum : at::zeros(shape, dy.options());
        whole.narrow(-1, first, count).copy_(dy);
        return whole;
      });
    });
  }
  return parts;
}

Value scaled_by(Value x, const Weight& factor, Pass& p) {
  const Tensor values = p.is_plain() ? p.leaf(factor).detach() : p.values(factor);
  const Value y = p.result(x.tensor * values, x.slot != nullptr);
  p.record(y, [values, dx = x.slot](const Tensor& dy) { dx->give(dy * values); });
  return y;
}

Value scale(Value x, double factor, Pass& p) {
  const Value y = p.result(x.tensor * factor, x.slot != nullptr);
  p.record(y, [factor, dx = x.slot](const Tensor& dy) { dx->give(dy * factor); });
  return y;
}

Value to_precision(Value x, Pass& p) {
  const at::ScalarType type = scalar_type(p.options().precision);
  const at::ScalarType from = x.tensor.scalar_type();
  if (p.is_plain() || from == type) return x;
  const Value y = p.result(x.tensor.to(type), x.slot != nullptr);
  p.record(y, [from, dx = x.slot](const Tensor& dy) { dx->give(dy.to(from)); });
  return y;
}

Value to_factor(Value x, Pass& p) {
  if (!is_asynchronous(x.tensor.device())) return x;
  return to_precision(std::move(x), p);
}

Value zero_padding(Value x, Pass& p) {
  if (p.layout() || !p.inputs().mask.defined()) return x;
  const Tensor keeps = p.inputs().mask.squeeze(1).transpose(1, 2).to(at::kFloat);  // [B, T, 1]
  const Value y = p.result(x.tensor * keeps, x.slot != nullptr);
  p.record(y, [keeps, dx = x.slot](const Tensor& dy) { dx->give(dy * keeps); });
  return y;
}

Value first_token(Value x, Pass& p) {
  const Value y = p.result(x.tensor.select(1, 0), x.slot != nullptr);
  p.record(y, [dx = x.slot, sizes = x.tensor.sizes().vec()](const Tensor& dy) {
    dx->give(at::select_backward(dy, sizes, 1, 0));
  });
  return y;
}

// y = sum(mask x) / count, and every counted token gets dy / count.
Value mean_of_tokens(Value x, const Tensor& mask, Pass& p) {
  const Tensor wide = mask.defined() ? mask.to(x.tensor.scalar_type()).unsqueeze(-1) : Tensor();
  const Tensor count = mask.defined() ? wide.sum(1)  // [B, 1]
                                      : at::full({1, 1}, x.tensor.size(1), x.tensor.options());
  const Tensor kept = mask.defined() ? x.tensor * wide : x.tensor;
  const Value y = p.result(kept.sum(1) / count, x.slot != nullptr);
  p.record(y, [wide, count, dx = x.slot, sizes = x.tensor.sizes().vec()](const Tensor& dy) {
    const Tensor of_token = (dy / count).unsqueeze(1);  // [B, 1, C]
    dx->give(wide.defined() ? of_token * wide : of_token.expand(sizes).contiguous());
  });
  return y;
}

// Row b of the result is row b T + index[b] of x as [B T, C]; all other rows get a zero gradient.
Value token_at(Value x, const Tensor& index, Pass& p) {
  const Tensor rows = at::arange(x.tensor.size(0), index.options()) * x.tensor.size(1) + index;
  const Value y = p.result(x.tensor.flatten(0, 1).index_select(0, rows), x.slot != nullptr);
  p.record(y, [rows, dx = x.slot, sizes = x.tensor.sizes().vec()](const Tensor& dy) {
    const Tensor whole = at::zeros(sizes, dy.options());
    whole.flatten(0, 1).index_copy_(0, rows, dy);
    dx->give(whole);
  });
  return y;
}

Value normalized(Value x, Pass& p) {
  return p.differentiate({std::move(x)}, {}, [](const std::vector<Tensor>& in) {
    return in[0] / at::linalg_vector_norm(in[0], 2, {-1}, /*keepdim=*/true).clamp_min(1e-12);
  });
}

Value softcap(Value x, double c, Pass& p) {
  return p.differentiate({std::move(x)}, {},
                         [c](const std::vector<Tensor>& in) { return (in[0] / c).tanh() * c; });
}

Value clamped(Value x, const Clamp& range, Pass& p) {
  if (p.is_plain()) return {.tensor = x.tensor.clamp(range.least, range.most) + range.added};
  Tensor inside;
  if (x.slot) inside = x.tensor.ge(range.least).logical_and_(x.tensor.le(range.most));
  Tensor values = to_overwrite(std::exchange(x.tensor, {}));
  values.clamp_(range.least, range.most);
  if (range.added != 0.0) values.add_(range.added);
  Value y = p.result(std::move(values), x.slot != nullptr);
  p.record(
      y, [inside, dx = x.slot](Tensor dy) { dx->give(to_overwrite(std::move(dy)).mul_(inside)); });
  return y;
}

Value activate(Value x, Activation f, Pass& p) {
  return p.differentiate({std::move(x)}, {},
                         [f](const std::vector<Tensor>& in) { return f(in[0]); });
}

}  // namespace finetune::nn
