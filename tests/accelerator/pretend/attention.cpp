// SPDX-License-Identifier: MIT
// Torch's flash and memory-efficient attention, which have no CPU kernels: the equations in
// float64, row by row, with the scores in memory. Without dropout and biases.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <limits>
#include <string>
#include <vector>

namespace pretend {
namespace {

using at::Tensor;

// The arguments of a boxed call by their names in the schema, which differs between versions.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : schema_(op.schema()), stack_(stack), first_(stack.size() - schema_.arguments().size()) {}

  [[nodiscard]] const c10::IValue& operator[](const std::string& name) const {
    const std::optional<int> index = schema_.argumentIndexWithName(name);
    TORCH_CHECK(index, schema_.name(), " has no argument ", name);
    return stack_[first_ + static_cast<size_t>(*index)];
  }
  [[nodiscard]] bool has(const std::string& name) const {
    const std::optional<int> index = schema_.argumentIndexWithName(name);
    return index && !stack_[first_ + static_cast<size_t>(*index)].isNone();
  }
  void return_values(std::vector<c10::IValue> values) {
    stack_.resize(first_);
    for (c10::IValue& value : values) stack_.push_back(std::move(value));
  }

 private:
  const c10::FunctionSchema& schema_;
  torch::jit::Stack& stack_;
  size_t first_;
};

// Which keys a query sees, relative to its own position.
struct Sight {
  int64_t before = std::numeric_limits<int64_t>::max();
  int64_t after = std::numeric_limits<int64_t>::max();
};

struct Row {
  Tensor query, key, value;  // [H, T, D] float64; as many heads each
  Tensor scores, log_sum_exp;
};

// The rows of a call: those of a batch [B, T, H, D], or parts of one row that begin at `starts`.
class Rows {
 public:
  struct Names {
    const char *starts, *key_starts, *longest, *key_longest;
  };
  Rows(const Arguments& in, const Names& names, Sight sight)
      : query_(tokens(in["query"].toTensor())),
        key_(tokens(in["key"].toTensor())),
        value_(tokens(in["value"].toTensor())),
        sight_(sight),
        scale_(in["scale"].toDouble()) {
    TORCH_CHECK(in["dropout_p"].toDouble() == 0.0, "the pretend accelerator's has no dropout");
    const Tensor& query = in["query"].toTensor();
    int64_t longest = query.size(1);
    if (in.has(names.starts) && in[names.starts].toTensor().defined()) {
      const Tensor all = in[names.starts].toTensor();
      TORCH_CHECK(all.scalar_type() == at::kInt, names.starts, " has 32 bits");
      TORCH_CHECK(all.equal(in[names.key_starts].toTensor()), "keys of the same rows");
      for (int64_t i = 0; i < all.numel(); ++i) starts_.push_back(all[i].item<int64_t>());
      longest = all.diff().max().item<int64_t>();
    } else {
      TORCH_CHECK(query.dim() == 4, "a batch of rows");
      for (int64_t i = 0; i <= query.size(0); ++i) starts_.push_back(i * query.size(1));
    }
    TORCH_CHECK(starts_.back() == query_.size(0), "rows of all tokens");
    TORCH_CHECK(in[names.longest].toInt() == longest && in[names.key_longest].toInt() == longest,
                names.longest, " is ", in[names.longest].toInt(), ", not ", longest);
  }

  [[nodiscard]] size_t count() const { return starts_.size() - 1; }
  [[nodiscard]] int64_t heads() const { return query_.size(1); }
  [[nodiscard]] Tensor part(const Tensor& of_tokens, size_t row) const {
    return of_tokens.narrow(0, starts_[row], starts_[row + 1] - starts_[row]);
  }
  // [T, H, D], or fewer heads, each for several -> [H, T, D]
  [[nodiscard]] Tensor for_each_head(const Tensor& x) const {
    return x.repeat_interleave(heads() / x.size(1), 1).transpose(0, 1).to(at::kDouble);
  }
  [[nodiscard]] Row row(size_t i) const {
    Row row = {.query = for_each_head(part(query_, i)),
               .key = for_each_head(part(key_, i)),
               .value = for_each_head(part(value_, i)),
               .scores = {},
               .log_sum_exp = {}};
    const Tensor position = at::arange(row.query.size(1));
    const Tensor distance = position.unsqueeze(0) - position.unsqueeze(1);
    const Tensor hidden = distance.gt(sight_.after).logical_or(distance.neg().gt(sight_.before));
    row.scores = (row.query.matmul(row.key.transpose(1, 2)) * scale_)
                     .masked_fill(hidden, -std::numeric_limits<double>::infinity());
    row.log_sum_exp = row.scores.logsumexp(-1, true);
    return row;
  }
  [[nodiscard]] double scale() const { return scale_; }

  static Tensor tokens(const Tensor& x) { return x.dim() == 4 ? x.flatten(0, 1) : x; }

 private:
  Tensor query_, key_, value_;  // [N, H, D]
  std::vector<int64_t> starts_;
  Sight sight_;
  double scale_;
};

// The context like the query, and [H, N] float32.
std::pair<Tensor, Tensor> forward(const Rows& rows, const Tensor& query) {
  std::vector<Tensor> contexts, sums;
  for (size_t i = 0; i < rows.count(); ++i) {
    const Row row = rows.row(i);
    contexts.push_back((row.scores - row.log_sum_exp).exp().matmul(row.value).transpose(0, 1));
    sums.push_back(row.log_sum_exp.squeeze(-1));
  }
  return {at::cat(contexts).to(query.scalar_type()).view(query.sizes()),
          at::cat(sums, 1).to(at::kFloat)};
}

// The gradients of query, key and value, in their shapes. Reads what the forward pass returned.
std::vector<Tensor> backward(const Rows& rows, const Arguments& in, const Tensor& gradient) {
  const Tensor of_context = Rows::tokens(gradient);
  const Tensor context = Rows::tokens(in["out"].toTensor());
  const Tensor sums = in["logsumexp"].toTensor().transpose(0, 1);  // [N, H]
  std::vector<Tensor> of_query, of_key, of_value;
  for (size_t i = 0; i < rows.count(); ++i) {
    const Row row = rows.row(i);
    const Tensor dy = rows.for_each_head(rows.part(of_context, i));
    const Tensor y = rows.for_each_head(rows.part(context, i));
    const Tensor p = (row.scores - rows.part(sums, i).t().unsqueeze(-1)).exp();
    const Tensor dp = dy.matmul(row.value.transpose(1, 2)) - (dy * y).sum(-1, true);
    const Tensor ds = p * dp * rows.scale();
    of_query.push_back(ds.matmul(row.key).transpose(0, 1));
    of_key.push_back(ds.transpose(1, 2).matmul(row.query).transpose(0, 1));
    of_value.push_back(p.transpose(1, 2).matmul(dy).transpose(0, 1));
  }
  const auto like = [](const std::vector<Tensor>& parts, const Tensor& x) {
    const Tensor all = at::cat(parts);  // of each query head
    return all.unflatten(1, {x.size(-2), -1}).sum(2).to(x.scalar_type()).view(x.sizes());
  };
  return {like(of_query, in["query"].toTensor()), like(of_key, in["key"].toTensor()),
          like(of_value, in["value"].toTensor())};
}

Rows flash_rows(const Arguments& in) {
  Sight sight;
  if (in.has("window_size_left")) sight.before = in["window_size_left"].toInt();
  if (in.has("window_size_right")) sight.after = in["window_size_right"].toInt();
  if (in["is_causal"].toBool()) sight.after = 0;
  const Tensor& query = in["query"].toTensor();
  TORCH_CHECK(query.element_size() == 2, "flash attention has 16 bits");
  const bool has_starts = in.has("cum_seq_q") && in["cum_seq_q"].toTensor().defined();
  TORCH_CHECK(query.dim() == (has_starts ? 3 : 4), "[N, H, D] with starts, else [B, T, H, D]");
  return {in, {"cum_seq_q", "cum_seq_k", "max_q", "max_k"}, sight};
}

void flash_forward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Arguments in(op, *stack);
  auto [context, sums] = forward(flash_rows(in), in["query"].toTensor());
  const Tensor none = at::empty({0}, at::kLong);
  in.return_values({context, sums, none, none, none});
}

void flash_backward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Arguments in(op, *stack);
  TORCH_CHECK(at::globalContext().deterministicAlgorithms(), "sums in a fixed order");
  const std::vector<Tensor> all = backward(flash_rows(in), in, in["grad_out"].toTensor());
  in.return_values({all[0], all[1], all[2]});
}

Rows efficient_rows(const Arguments& in) {
  TORCH_CHECK(!in.has("bias"), "the pretend accelerator's has no bias");
  TORCH_CHECK(in["query"].toTensor().sizes() == in["key"].toTensor().sizes(), "[B, T, H, D] each");
  Sight sight;
  if (in["custom_mask_type"].toInt() != 0) sight.after = 0;
  return {in, {"cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"}, sight};
}

void efficient_forward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Arguments in(op, *stack);
  auto [context, sums] = forward(efficient_rows(in), in["query"].toTensor());
  const int64_t longest = in["query"].toTensor().size(1);
  const Tensor none = at::empty({}, at::kLong);
  in.return_values({context, sums, none, none, longest, longest});
}

void efficient_backward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Arguments in(op, *stack);
  TORCH_CHECK(at::globalContext().deterministicAlgorithms(), "sums in a fixed order");
  const std::vector<Tensor> all = backward(efficient_rows(in), in, in["grad_out_"].toTensor());
  in.return_values({all[0], all[1], all[2], Tensor()});
}

TORCH_LIBRARY_IMPL(aten, CPU, m) {
  using torch::CppFunction;
  m.impl("_flash_attention_forward", CppFunction::makeFromBoxedFunction<&flash_forward>());
  m.impl("_flash_attention_backward", CppFunction::makeFromBoxedFunction<&flash_backward>());
  m.impl("_efficient_attention_forward", CppFunction::makeFromBoxedFunction<&efficient_forward>());
  m.impl("_efficient_attention_backward",
         CppFunction::makeFromBoxedFunction<&efficient_backward>());
}

}  // namespace
}  // namespace pretend
