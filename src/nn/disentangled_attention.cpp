// SPDX-License-Identifier: MIT
#include "finetune/nn/disentangled_attention.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/segment_reduce.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "finetune/kernels/dry_device.h"
#include "finetune/kernels/kernels_in_use.h"

// DeBERTa's attention: score(i, j) = (q_i k_j + q_i kr_d + k_j qr_d) scale, with d = i - j and kr,
// qr rows of the projected table of distances. T tokens of a sequence, H heads of size D, W = 2T -
// 1 distances, P rows of the table.
namespace finetune::nn {
namespace {

constexpr float kLowestScore = std::numeric_limits<float>::lowest();

// The inputs of one call.
struct Inputs {
  Tensor query, key, value;             // [B, T, C] or [1, N, C]
  Tensor distance_key, distance_query;  // [P, C], or undefined
  Tensor bias;                          // [P, H] float32, or undefined
  Distances distances;
  DisentangledOptions options;
  kernels::PassInputs pass;

  [[nodiscard]] int64_t head_size() const { return query.size(-1) / options.heads; }
  [[nodiscard]] int64_t sequences() const {
    return pass.layout ? pass.layout->rows() : query.size(0);
  }
  // Each head has its own random numbers, as layers have: layer * heads + head.
  [[nodiscard]] Tensor drop(const Tensor& x, int64_t sequence, int64_t head) const {
    DropoutStream stream = *pass.dropout;
    stream.first_position += sequence;
    return finetune::dropout(x, options.dropout, stream, options.layer * options.heads + head,
                             DropoutSite::kAttentionProbabilities);
  }
  [[nodiscard]] bool drops() const { return pass.dropout && options.dropout != 0.0; }
};

// Some sequences, n, and some of their heads, h: `first_head` and the following. Matrices have a
// row for each of n T tokens; shorter sequences are padded to T.
struct Part {
  int64_t sequence;  // the first
  int64_t sequences;
  int64_t first_token;
  int64_t all_tokens;
  int64_t tokens;  // T
  int64_t first_head;
  int64_t heads;
  Tensor rows = {};  // [all_tokens]: which of the n T rows a token is; undefined if all are tokens
};

int64_t first_token(const Inputs& in, int64_t sequence) {
  if (!in.pass.layout) return sequence * in.query.size(1);
  return in.pass.layout->offsets[static_cast<size_t>(sequence)];
}
int64_t length_of(const Inputs& in, int64_t sequence) {
  return in.pass.layout ? in.pass.layout->length(sequence) : in.query.size(1);
}

Part part_of(const Inputs& in, int64_t sequence, int64_t first_head, int64_t heads) {
  const int64_t tokens = length_of(in, sequence);
  return {.sequence = sequence,
          .sequences = 1,
          .first_token = first_token(in, sequence),
          .all_tokens = tokens,
          .tokens = tokens,
          .first_head = first_head,
          .heads = heads};
}

// Bytes of one matrix of scores on an accelerator, of as many sequences as fit.
constexpr int64_t kScoreBytes = int64_t{16} << 20;

// Returns sequences from `sequence` on, with all heads.
Part group_from(const Inputs& in, int64_t sequence) {
  const int64_t heads = in.options.heads;
  Part part = part_of(in, sequence, 0, heads);
  while (part.sequence + part.sequences < in.sequences()) {
    const int64_t next = part.sequence + part.sequences;
    const int64_t tokens = std::max(part.tokens, length_of(in, next));
    if ((part.sequences + 1) * heads * tokens * tokens * 4 > kScoreBytes) break;
    part.tokens = tokens;
    part.all_tokens += length_of(in, next);
    ++part.sequences;
  }
  if (part.all_tokens == part.sequences * part.tokens) return part;
  const TokenLayout& layout = *in.pass.layout;
  part.rows = (layout.sequences.narrow(0, part.first_token, part.all_tokens) - part.sequence)
                  .mul_(part.tokens)
                  .add_(layout.positions.narrow(0, part.first_token, part.all_tokens));
  return part;
}

// Returns [n T, ..] of the tokens' [all_tokens, ..], zeros in padding.
Tensor padded(const Tensor& tokens, const Part& part) {
  if (!part.rows.defined()) return tokens;
  std::vector<int64_t> sizes = tokens.sizes().vec();
  sizes[0] = part.sequences * part.tokens;
  return at::zeros(sizes, tokens.options()).index_copy_(0, part.rows, tokens);
}

// Returns a view [all_tokens, h, D].
Tensor tokens_of(const Tensor& x, const Inputs& in, const Part& part) {
  return x.view({-1, in.options.heads, in.head_size()})
      .narrow(0, part.first_token, part.all_tokens)
      .narrow(1, part.first_head, part.heads);
}

// Returns [h, n T, D] in float32.
Tensor heads_of(const Tensor& x, const Inputs& in, const Part& part) {
  return padded(tokens_of(x, in, part), part).transpose(0, 1).to(at::kFloat);
}

// Overwrites a part of x with `by_head` [h, n T, D].
void store_heads(const Tensor& x, const Inputs& in, const Part& part, const Tensor& by_head) {
  const Tensor tokens = by_head.transpose(0, 1);
  tokens_of(x, in, part).copy_(part.rows.defined() ? tokens.index_select(0, part.rows) : tokens);
}

// Returns a view [h n, T, ..] of [h, n T, ..]: matrices of one head and sequence each.
Tensor by_sequence(const Tensor& x, const Part& part) {
  return x.reshape({part.heads * part.sequences, part.tokens, x.size(-1)});
}
Tensor by_head(const Tensor& x, const Part& part) {
  return x.reshape({part.heads, part.sequences * part.tokens, x.size(-1)});
}

// Returns the table's rows [h, W, D] of the distances T - 1 to -(T - 1), or in ascending order.
Tensor rows_of_distances(const Tensor& table, const Inputs& in, const Part& part, bool ascending) {
  const Tensor rows =
      in.distances.row.narrow(0, in.distances.longest - part.tokens, 2 * part.tokens - 1);
  return table.view({-1, in.options.heads, in.head_size()})
      .narrow(1, part.first_head, part.heads)
      .index_select(0, ascending ? rows : rows.flip(0))
      .to(at::kFloat)
      .transpose(0, 1);
}

// Return [h n, T, T] whose entry (i, j) belongs to distance i - j, as views of [h n, T, W]:
// by_query() of rows for queries i with descending distances, by_key() of rows for keys j with
// ascending ones.
Tensor by_query(const Tensor& x, int64_t tokens) {
  const int64_t width = x.size(2);
  return x.as_strided({x.size(0), tokens, tokens}, {tokens * width, width - 1, 1}, tokens - 1);
}
Tensor by_key(const Tensor& x, int64_t tokens) {
  const int64_t width = x.size(2);
  return x.as_strided({x.size(0), tokens, tokens}, {tokens * width, 1, width - 1}, tokens - 1);
}

// The biases [h, T, T] of queries i and keys j: those of distances T - 1 - w, w = T - 1 - i + j.
Tensor bias_of_pairs(const Inputs& in, const Part& part) {
  const int64_t width = 2 * part.tokens - 1;
  const Tensor rows = in.distances.row.narrow(0, in.distances.longest - part.tokens, width);
  const Tensor by_distance = in.bias.narrow(1, part.first_head, part.heads)
                                 .index_select(0, rows.flip(0))
                                 .t()
                                 .contiguous();  // [h, W]
  return by_distance.as_strided({part.heads, part.tokens, part.tokens}, {width, 1, 1}).flip(1);
}

// Intermediate results of one part that forward and backward passes share.
struct Computed {
  Tensor query, key, value;             // [h, n T, D] float32
  Tensor distance_key, distance_query;  // [h, W, D] float32, or undefined
  Tensor hidden;                        // [n, T or 1, T] bool: pairs with padding; or undefined
  Tensor probabilities;                 // [h n, T, T]
  Tensor factors;                       // dropout factors, same shape; or undefined
};

// Which of the n T rows are tokens that may be attended to, [n, T] bool; undefined: all.
Tensor seen_of(const Inputs& in, const Part& part) {
  Tensor seen;
  if (in.pass.mask.defined()) {
    seen = in.pass.mask.flatten().narrow(0, part.first_token, part.all_tokens);
  } else if (part.rows.defined()) {
    seen = at::ones({part.all_tokens}, in.query.options().dtype(at::kBool));
  } else {
    return {};
  }
  return padded(seen, part).view({part.sequences, part.tokens});
}

// Sets the scores [h n, T, T] of hidden pairs.
void hide(const Tensor& scores, const Tensor& hidden, double value) {
  const int64_t tokens = hidden.size(-1);
  scores.view({-1, hidden.size(0), tokens, tokens}).masked_fill_(hidden, value);
}

Tensor factors_of(const Inputs& in, const Part& part, const Tensor& like) {
  const Tensor ones = at::ones({part.sequences, part.tokens, part.tokens}, like.options());
  std::vector<Tensor> factors;
  for (int64_t head = part.first_head; head < part.first_head + part.heads; ++head) {
    factors.push_back(in.drop(ones, part.sequence, head));
  }
  return factors.size() == 1 ? factors.front() : at::cat(factors);
}

Computed compute(const Inputs& in, const Part& part) {
  Computed c;
  c.query = heads_of(in.query, in, part);
  c.key = heads_of(in.key, in, part);
  c.value = heads_of(in.value, in, part);
  Tensor scores = by_sequence(c.query, part).matmul(by_sequence(c.key, part).transpose(1, 2));
  if (in.distance_key.defined()) {
    c.distance_key = rows_of_distances(in.distance_key, in, part, false);
    const Tensor of_rows = c.query.matmul(c.distance_key.transpose(1, 2));
    scores.add_(by_query(by_sequence(of_rows, part), part.tokens));
  }
  if (in.distance_query.defined()) {
    c.distance_query = rows_of_distances(in.distance_query, in, part, true);
    const Tensor of_rows = c.key.matmul(c.distance_query.transpose(1, 2));
    scores.add_(by_key(by_sequence(of_rows, part), part.tokens));
  }
  scores.mul_(in.options.scale);
  if (in.bias.defined()) {
    scores.view({part.heads, part.sequences, part.tokens, part.tokens})
        .add_(bias_of_pairs(in, part).unsqueeze(1));
  }
  if (const Tensor seen = seen_of(in, part); seen.defined()) {
    c.hidden = in.options.hides_padding_queries
                   ? seen.unsqueeze(2).logical_and(seen.unsqueeze(1)).logical_not_()
                   : seen.logical_not().unsqueeze(1);
    hide(scores, c.hidden, kLowestScore);
  }
  c.probabilities = scores.softmax(-1);
  if (in.drops()) c.factors = factors_of(in, part, c.probabilities);
  return c;
}

Tensor dropped_by(const Tensor& factors, const Tensor& x) {
  return factors.defined() ? x * factors : x;
}

// Gradients of the table's rows by head: [H, W, D] float32, in the order of rows_of_distances(); or
// undefined.
struct DistanceGradients {
  Tensor key, query;
  Tensor bias = {};  // [H, W, 1]
};

// Adds the gradient of one part to that of a table [H, W, D].
void add_rows(const Tensor& sum, const Tensor& gradient, const Inputs& in, const Part& part) {
  sum.narrow(0, part.first_head, part.heads)
      .narrow(1, in.distances.longest - part.tokens, 2 * part.tokens - 1)
      .add_(gradient);
}

// With P the probabilities, f the dropout factors and g = dContext V^T: dV = (P f)^T dContext, dS =
// P (g f - sum(P g f)) scale, dQ = dS K, dK = dS^T Q. For the distance terms dS is spread over
// distances [T, W] and multiplied in the same way.
void backward_part(const Inputs& in, const Part& part, const Tensor& gradient,
                   const DistanceGradients& sums) {
  const Computed c = compute(in, part);
  const Tensor of_context = by_sequence(heads_of(gradient, in, part), part);
  const Tensor query = by_sequence(c.query, part);
  const Tensor key = by_sequence(c.key, part);
  const Tensor value = by_sequence(c.value, part);
  const Tensor of_value = dropped_by(c.factors, c.probabilities).transpose(1, 2).matmul(of_context);
  Tensor of_scores = dropped_by(c.factors, of_context.matmul(value.transpose(1, 2)));
  of_scores = c.probabilities * (of_scores - (c.probabilities * of_scores).sum(-1, true));
  if (c.hidden.defined()) hide(of_scores, c.hidden, 0.0);
  const auto spread = [&](auto view) {
    const Tensor wide = at::zeros({part.heads * part.sequences, part.tokens, 2 * part.tokens - 1},
                                  of_scores.options());
    view(wide, part.tokens).copy_(of_scores);
    return by_head(wide, part);
  };
  if (in.bias.defined()) add_rows(sums.bias, spread(by_query).sum(1).unsqueeze(2), in, part);
  of_scores.mul_(in.options.scale);
  Tensor of_query = by_head(of_scores.matmul(key), part);
  Tensor of_key = by_head(of_scores.transpose(1, 2).matmul(query), part);
  if (c.distance_key.defined()) {
    const Tensor wide = spread(by_query);
    of_query.add_(wide.matmul(c.distance_key));
    add_rows(sums.key, wide.transpose(1, 2).matmul(c.query), in, part);
  }
  if (c.distance_query.defined()) {
    const Tensor wide = spread(by_key);
    of_key.add_(wide.matmul(c.distance_query));
    add_rows(sums.query, wide.transpose(1, 2).matmul(c.key), in, part);
  }
  store_heads(in.query, in, part, of_query);
  store_heads(in.key, in, part, of_key);
  store_heads(in.value, in, part, by_head(of_value, part));
}

// Calls `function` with every part. One thread handles all sequences of a head in order, so that
// sums over them do not depend on the threads. An accelerator handles all heads of several
// sequences at once.
template <typename Function>
void for_each_part(const Inputs& in, const Function& function) {
  const int64_t heads = in.options.heads;
  if (!in.query.is_cpu()) {
    for (int64_t s = 0; s < in.sequences();) {
      const Part part = group_from(in, s);
      function(part);
      s += part.sequences;
    }
    return;
  }
  at::parallel_for(0, heads, 1, [&](int64_t begin, int64_t end) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (int64_t head = begin; head < end; ++head) {
      for (int64_t s = 0; s < in.sequences(); ++s) function(part_of(in, s, head, 1));
    }
  });
}

// Sums [H, W, D], in the order of ascending distances, over the distances of each table row: [P,
// C].
Tensor of_table(const Tensor& rows, const Inputs& in) {
  return at::segment_reduce(rows.transpose(0, 1).flatten(1).contiguous(), "sum", in.distances.count,
                            {}, {}, 0, /*unsafe=*/true, 0);
}

// Whether this is a dry run for the CPU, whose threads compute parts side by side: their memory is
// allocated by allocate_parts(). One for a device goes through the parts as the device does.
bool is_dry_on_cpu(const Inputs& in) {
  return in.query.is_meta() && !is_asynchronous(in.query.device());
}

// For each head and sequence that are computed at once matrices [T, T] (scores, probabilities,
// factors, gradients) and [T, 2T] in float32, and the gradients of all distances; a table of biases
// alone has fewer.
void allocate_parts(const Inputs& in) {
  if (!in.distance_key.defined() && !in.distance_query.defined() && !in.bias.defined()) return;
  const bool has_distances = in.distance_key.defined() || in.distance_query.defined();
  const int64_t matrices = has_distances ? 12 : 6;
  const int64_t tokens = in.query.size(1);
  const int64_t at_once = std::min(in.options.heads, kernels::dry_device().threads);
  const int64_t rows = has_distances ? 8 * tokens * in.query.size(2) : 0;
  const int64_t values = at_once * matrices * tokens * tokens + rows;
  (void)at::empty({values}, in.query.options().dtype(at::kFloat));
}

Tensor forward(const Inputs& in) {
  const Tensor output = at::empty_like(in.query);
  if (is_dry_on_cpu(in)) {
    allocate_parts(in);
    return output;
  }
  for_each_part(in, [&](const Part& part) {
    const Computed c = compute(in, part);
    const Tensor context =
        dropped_by(c.factors, c.probabilities).matmul(by_sequence(c.value, part));
    store_heads(output, in, part, by_head(context, part));
  });
  return output;
}

// Overwrites query, key and value with their gradients; returns the gradients of the tables, [P, C]
// float32.
DistanceGradients backward(const Inputs& in, const Tensor& gradient) {
  const auto zeros = [&](const Tensor& table) {
    if (!table.defined()) return Tensor();
    return at::zeros({in.options.heads, 2 * in.distances.longest - 1, in.head_size()},
                     table.options().dtype(at::kFloat));
  };
  DistanceGradients sums = {zeros(in.distance_key), zeros(in.distance_query)};
  const int64_t width = 2 * in.distances.longest - 1;
  if (in.bias.defined()) {
    sums.bias = at::zeros({in.options.heads, width, 1}, in.bias.options());
  }
  const Tensor dy = gradient.contiguous();
  if (is_dry_on_cpu(in)) {
    allocate_parts(in);
    const auto of_rows = [&](const Tensor& table) {
      return table.defined() ? at::empty({in.distances.count.size(0), in.query.size(2)},
                                         table.options().dtype(at::kFloat))
                             : Tensor();
    };
    return {of_rows(in.distance_key), of_rows(in.distance_query),
            in.bias.defined() ? at::empty_like(in.bias) : Tensor()};
  }
  for_each_part(in, [&](const Part& part) { backward_part(in, part, dy, sums); });
  if (sums.key.defined()) sums.key = of_table(sums.key.flip(1), in);
  if (sums.query.defined()) sums.query = of_table(sums.query, in);
  if (sums.bias.defined()) {  // rows in any order: a product sums in one order on every device
    const Tensor numbers = at::arange(in.bias.size(0), in.distances.row.options());
    const Tensor maps = numbers.unsqueeze(1).eq(in.distances.row).to(at::kFloat);  // [P, W]
    sums.bias = maps.matmul(sums.bias.squeeze(2).flip(1).t());
  }
  return sums;
}

// The same with autograd over [B, H, T, T]; the distance of each pair is looked up.
Tensor plain(const Inputs& in) {
  const auto by_head = [&](const Tensor& x) {
    return x.unflatten(-1, {in.options.heads, -1}).transpose(-3, -2);  // [B, H, T, D] or [H, P, D]
  };
  const Tensor query = by_head(in.query);
  const Tensor key = by_head(in.key);
  const int64_t tokens = query.size(-2);
  const Tensor positions = at::arange(tokens, in.distances.row.options());
  const Tensor rows = in.distances.row.index_select(
      0, (positions.unsqueeze(1) - positions + in.distances.longest - 1).flatten());
  const Tensor of_pair =
      rows.view({tokens, tokens}).expand({query.size(0), query.size(1), tokens, tokens});
  Tensor scores = query.matmul(key.transpose(-1, -2));
  if (in.distance_key.defined()) {
    scores = scores + query.matmul(by_head(in.distance_key).transpose(-1, -2)).gather(-1, of_pair);
  }
  if (in.distance_query.defined()) {
    const Tensor by_keys = key.matmul(by_head(in.distance_query).transpose(-1, -2))
                               .gather(-1, of_pair.transpose(-1, -2));
    scores = scores + by_keys.transpose(-1, -2);
  }
  scores = scores * in.options.scale;
  if (in.bias.defined()) {
    scores = scores + in.bias.index_select(0, rows).view({tokens, tokens, -1}).permute({2, 0, 1});
  }
  if (in.pass.mask.defined()) {  // [B, 1, 1, T]
    const Tensor seen = in.options.hides_padding_queries
                            ? in.pass.mask.logical_and(in.pass.mask.transpose(-1, -2))
                            : in.pass.mask;
    scores = scores.masked_fill(seen.logical_not(), kLowestScore);
  }
  Tensor probabilities = scores.softmax(-1);
  if (in.drops()) {
    std::vector<Tensor> heads;
    for (int64_t head = 0; head < in.options.heads; ++head) {
      heads.push_back(in.drop(probabilities.select(1, head), 0, head));
    }
    probabilities = at::stack(heads, 1);
  }
  return probabilities.matmul(by_head(in.value)).transpose(1, 2).flatten(2);
}

Value attend_all(Projections projections, DistanceProjections distances, const Distances& rows,
                 const DisentangledOptions& options, Pass& p) {
  Inputs in = {.query = projections.query.tensor,
               .key = projections.key.tensor,
               .value = projections.value.tensor,
               .distance_key = distances.key.tensor,
               .distance_query = distances.query.tensor,
               .bias = distances.bias.tensor,
               .distances = rows,
               .options = options,
               .pass = p.inputs()};
  if (p.is_plain()) return {.tensor = plain(in)};
  const bool needs_gradient = projections.query.slot || projections.key.slot ||
                              projections.value.slot || distances.key.slot ||
                              distances.query.slot || distances.bias.slot;
  const Value y = p.result(forward(in), needs_gradient);
  in.query = in.key = in.value = in.distance_key = in.distance_query = in.bias = Tensor();
  if (!y.slot) return y;
  p.record(y, [in, q = std::move(projections.query), k = std::move(projections.key),
               v = std::move(projections.value),
               table = std::move(distances)](const Tensor& dy) mutable {
    in.query = to_overwrite(std::exchange(q.tensor, {}));
    in.key = to_overwrite(std::exchange(k.tensor, {}));
    in.value = to_overwrite(std::exchange(v.tensor, {}));
    in.distance_key = table.key.tensor;
    in.distance_query = table.query.tensor;
    in.bias = table.bias.tensor;
    const DistanceGradients of_tables = backward(in, dy);
    const auto give_table = [](const Value& to, const Tensor& gradient) {
      if (gradient.defined()) give(to.slot, gradient.to(to.tensor.scalar_type()));
    };
    give_table(table.key, of_tables.key);
    give_table(table.query, of_tables.query);
    give_table(table.bias, of_tables.bias);
    give(q.slot, std::exchange(in.query, {}));
    give(k.slot, std::exchange(in.key, {}));
    give(v.slot, std::exchange(in.value, {}));
  });
  return y;
}

}  // namespace

Value attend(Projections projections, DistanceProjections distances, const Distances& rows,
             const DisentangledOptions& options, Pass& p) {
  return read_tokens(attend_all(std::move(projections), std::move(distances), rows, options, p),
                     options.layer, p);
}

}  // namespace finetune::nn
