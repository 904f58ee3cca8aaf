// SPDX-License-Identifier: MIT
#include "finetune/nn/linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "finetune/kernels/kernels_in_use.h"
#include "finetune/nn/dora.h"
#include "finetune/nn/elementwise.h"
#include "finetune/nn/int8_products.h"

namespace finetune::nn {
namespace {

bool is_packed(const Weight& weight, const Pass& p) {
  return traits_of(p.options().parameters->at(weight).format.weight).unpack != nullptr;
}

// Rows of a matrix of four bits that are unpacked at a time, beside their product, so that no whole
// copy in float32 exists; 0: all, as of other formats, and on a device, where one launch does it.
int64_t unpacked_rows(const Weight& weight, const Pass& p) {
  if (!is_packed(weight, p) || is_asynchronous(p.options().parameters->tensor(weight).device())) {
    return 0;
  }
  const int64_t rows = std::max<int64_t>(1, kUnpackedAtOnce / weight.size(1));
  return rows < weight.size(0) ? rows : 0;
}

// Calls `visit` with rows [first, first + count) of a matrix.
template <class Visit>
void for_each_block(const Weight& weight, int64_t step, const Pass& p, const Visit& visit) {
  for (int64_t first = 0; first < weight.size(0); first += step) {
    const int64_t count = std::min(step, weight.size(0) - first);
    visit(first, count, p.options().parameters->values_of_rows(weight, first, count));
  }
}

// What the gradient of x is written into: x, if it was kept and nothing else refers to it.
Tensor memory_for(Tensor x, at::IntArrayRef shape, const at::TensorOptions& options) {
  return x.defined() && owns_memory(x) ? x : at::empty(shape, options);
}

// The matrix of a product, [out, in]: the parameter, or its transpose. With an adapter.
struct Matrix {
  Weight weight;
  bool is_transposed = false;
  std::optional<LoraTerm> lora = {};
  bool is_again = false;  // a further call in the same pass: its dropout is another
  bool is_table = false;  // x is shared by all samples

  [[nodiscard]] Tensor of(const Tensor& values) const {
    return is_transposed ? values.t() : values;
  }
  [[nodiscard]] bool is_dora() const { return lora && lora->magnitude.defined(); }
  [[nodiscard]] Tensor norm(const Pass& p) const {
    return dora_norm(*lora, weight, is_transposed, *p.options().parameters);
  }
  [[nodiscard]] DropoutPoint dropout() const {
    const Weight& number = is_again ? lora->b : lora->a;
    return {lora->dropout, static_cast<int64_t>(number.id()), DropoutSite::kAdapter, is_table};
  }
};

Value plain_product(const Matrix& matrix, const Weight& bias, const Value& x, const Pass& p) {
  const auto added = bias.defined() ? std::optional<Tensor>(p.leaf(bias)) : std::nullopt;
  const bool is_dora = matrix.is_dora();  // adds the bias last
  Tensor y = at::linear(x.tensor, matrix.of(p.leaf(matrix.weight)), is_dora ? std::nullopt : added);
  if (matrix.lora) {
    const Tensor dropped = masked(x.tensor, matrix.dropout(), p);
    y = y + matrix.lora->scale *
                at::linear(at::linear(dropped, p.leaf(matrix.lora->a)), p.leaf(matrix.lora->b));
  }
  if (is_dora) y = y * (p.leaf(matrix.lora->magnitude) / matrix.norm(p));
  if (is_dora && added) y = y + *added;
  return {.tensor = y};
}

// The product before DoRA's factor, for the gradient of m.
struct Unscaled {
  Tensor product;  // z [N, out]; undefined: not kept
  Tensor norm;     // ||W + s B A|| [out]
  Tensor factor;   // m / norm [out]
};

// y = factor z + b. Overwrites z unless `keeps`.
Unscaled scale_by_magnitude(const Matrix& matrix, const Weight& bias, bool keeps, Tensor& y,
                            const Pass& p) {
  Unscaled unscaled;
  unscaled.norm = matrix.norm(p);
  unscaled.factor = p.values(matrix.lora->magnitude) / unscaled.norm;
  if (keeps) unscaled.product = std::exchange(y, y.clone());
  y.mul_(unscaled.factor);
  if (bias.defined()) y.add_(p.values(bias));
  return unscaled;
}

// dm = sum of dy z / norm over rows. Returns dz = factor dy, in the memory of dy if that may be
// overwritten.
Tensor give_magnitude(const Weight& magnitude, const Unscaled& unscaled, Tensor dy, bool overwrites,
                      Pass& p) {
  if (p.trains(magnitude)) {
    const Tensor product = rows_of(unscaled.product).to(at::kFloat);
    p.add_sum_of_rows(magnitude, product.mul_(rows_of(dy)).div_(unscaled.norm));
  }
  return (overwrites ? to_overwrite(std::move(dy)) : dy.clone()).mul_(unscaled.factor);
}

// x W^T + b [N, out]
Tensor product_of(const Matrix& matrix, const Tensor& bias, const Tensor& x, const Pass& p) {
  const Precision precision = p.options().precision;
  const int64_t step = matrix.is_transposed ? 0 : unpacked_rows(matrix.weight, p);
  if (step == 0) return linear_in(precision, x, matrix.of(p.factor(matrix.weight)), bias);
  const Tensor y =
      at::empty({x.size(0), matrix.weight.size(0)}, x.options().dtype(scalar_type(precision)));
  for_each_block(matrix.weight, step, p, [&](int64_t first, int64_t count, const Tensor& rows) {
    const Tensor own = bias.defined() ? bias.narrow(0, first, count) : Tensor();
    y.narrow(1, first, count).copy_(linear_in(precision, x, rows, own));
  });
  return y;
}

// dx += dy W. `shape`: of x; `spare`: memory for the first gradient.
void give_input(const Matrix& matrix, const Tensor& dy, at::IntArrayRef shape, const Tensor& spare,
                Slot& dx, const Pass& p) {
  const Precision precision = p.options().precision;
  const int64_t step = matrix.is_transposed ? 0 : unpacked_rows(matrix.weight, p);
  if (step == 0) {
    dx.give_product(precision, dy, matrix.of(p.factor(matrix.weight)), spare);
  } else if (precision == Precision::kFloat32) {
    for_each_block(matrix.weight, step, p, [&](int64_t first, int64_t count, const Tensor& rows) {
      dx.give_product(precision, dy.narrow(1, first, count), rows, spare);
    });
  } else {  // the blocks' products are added in float32
    const Tensor sum =
        at::zeros({dy.size(0), matrix.weight.size(1)}, dy.options().dtype(at::kFloat));
    const bool is_fast = has_fast_products(precision, dy.device());
    for_each_block(matrix.weight, step, p, [&](int64_t first, int64_t count, const Tensor& rows) {
      const Tensor block = dy.narrow(1, first, count);
      if (is_fast) {
        sum.add_(product_in(precision, block, rows));
      } else {
        product_into(Precision::kFloat32, sum, block.to(at::kFloat), rows, 1.0);
      }
    });
    dx.give(dx.has_gradient() ? sum.view(shape) : spare.copy_(sum.view(shape)));
  }
}

// The adapter as a factor of x, where the device has a kernel for it.
std::optional<kernels::AdapterFactor> fused_factor(const Matrix& matrix, const Tensor& x,
                                                   const Pass& p) {
  const Tensor a = p.factor(matrix.lora->a);
  if (!kernels::has_adapter_products(x, a)) return std::nullopt;
  return kernels::AdapterFactor{a, matrix.lora->scale, row_dropout(x, matrix.dropout(), p)};
}

// s drop(x) A^T [N, r]
Tensor low_product(const Matrix& matrix, const Tensor& x, const Pass& p) {
  if (const auto factor = fused_factor(matrix, x, p)) {
    return kernels::fused_adapter_products(rows_of(x), {*factor}).front();
  }
  const LoraTerm& lora = *matrix.lora;
  const Tensor dropped = masked(x, matrix.dropout(), p);
  return linear_in(p.options().precision, rows_of(dropped), p.factor(lora.a), Tensor())
      .mul_(lora.scale);
}

// s dy B [N, r]
Tensor low_gradient(const LoraTerm& lora, const Tensor& dy, const Pass& p) {
  const Tensor b = p.factor(lora.b);
  if (is_asynchronous(dy.device()) && dy.scalar_type() == b.scalar_type()) {  // in one launch
    return at::empty({dy.size(0), b.size(1)}, dy.options()).addmm_(dy, b, 0.0, lora.scale);
  }
  return product_in(p.options().precision, dy, b).mul_(lora.scale);
}

// dx += drop'(s dy B A).
void give_adapter(const Matrix& matrix, const Tensor& d_low, at::IntArrayRef shape, Slot& dx,
                  Pass& p) {
  const LoraTerm& lora = *matrix.lora;
  const Precision precision = p.options().precision;
  if (!p.inputs().dropout || lora.dropout == 0.0) {
    return dx.give_product(precision, d_low, p.factor(lora.a), Tensor());
  }
  const Tensor product = product_in(precision, d_low, p.factor(lora.a)).view(shape);
  dx.give(masked(product, matrix.dropout(), p));
}

// Both gradients of the adapter's product with x, dA = low^T drop(x) and dx += drop'(low A), by one
// kernel. The first gradient of x is written into x, if nothing else refers to it.
void give_adapter_together(const Matrix& matrix, Tensor x, const Tensor& low, Slot* dx, Pass& p) {
  const LoraTerm& lora = *matrix.lora;
  const Tensor a = p.factor(lora.a);
  const kernels::RowDropout dropout = row_dropout(x, matrix.dropout(), p);
  const auto backward = [&](const Tensor& sum) {
    const Tensor of_input = dx == nullptr || sum.defined() ? sum
                            : owns_memory(x)               ? x
                                                           : at::empty_like(x);
    const Tensor rows = of_input.defined() ? rows_of(of_input) : Tensor();
    p.add(lora.a,
          kernels::fused_adapter_backward(rows, sum.defined(), rows_of(x), low, a, dropout));
    return of_input;
  };
  if (dx == nullptr) return (void)backward({});
  dx->give_sum(x.scalar_type(), backward);
}

// A product on the tape: what its backward pass reads besides its input.
struct Product {
  Matrix matrix;
  Weight bias;
  bool trains_weight = false;
  bool trains_adapter = false;
  std::vector<int64_t> shape;  // of x
  at::TensorOptions options;   // of x
  std::shared_ptr<Slot> dx;
  Tensor low = {};         // of the adapter, [N, r]
  Unscaled unscaled = {};  // of DoRA

  [[nodiscard]] bool keeps_input() const { return trains_weight || trains_adapter; }
};

// db = sum of dy over rows, dW = dy^T x, dx = dy W; of the adapter dB = dy^T low, dA = (s dy B)^T
// drop(x) and dx += drop'(s dy B A). `input`: x, undefined if it was not kept.
void give_gradients(Product& product, Tensor input, Tensor gradient, Pass& p) {
  const Matrix& matrix = product.matrix;
  if (p.trains(product.bias)) p.add_sum_of_rows(product.bias, rows_of(gradient));
  if (matrix.is_dora()) {
    gradient = give_magnitude(matrix.lora->magnitude, std::exchange(product.unscaled, {}),
                              std::move(gradient), !p.trains(product.bias), p);
  }
  const Tensor dy = rows_of(gradient);
  if (product.trains_weight) {
    const Tensor x = rows_of(input);
    p.add_product(matrix.weight, matrix.is_transposed ? x : dy, matrix.is_transposed ? dy : x);
  }
  const Tensor d_low = matrix.lora ? low_gradient(*matrix.lora, dy, p) : Tensor();
  if (product.trains_adapter) p.add_product(matrix.lora->b, dy, std::exchange(product.low, {}));
  const bool is_together =
      product.trains_adapter && kernels::has_adapter_products(input, p.factor(matrix.lora->a));
  if (is_together) {
    give_adapter_together(matrix, std::exchange(input, {}), d_low, product.dx.get(), p);
  } else if (product.trains_adapter) {
    p.add_product(matrix.lora->a, d_low, rows_of(masked(input, matrix.dropout(), p)));
  }
  if (!product.dx) return;
  Slot& dx = *product.dx;
  const Tensor spare = dx.has_gradient()
                           ? Tensor()
                           : memory_for(std::exchange(input, {}), product.shape, product.options);
  give_input(matrix, dy, product.shape, spare, dx, p);
  if (matrix.lora && !is_together) give_adapter(matrix, d_low, product.shape, dx, p);
}

// Made once, where the weights stay as they are.
Int8Matrix int8_matrix_of(const Weight& weight, const Pass& p) {
  Int8Matrix made;
  const auto make = [&] {
    if (!made.codes.defined()) made = int8_matrix(p.values(weight));
  };
  const auto part = [&](int number, Tensor Int8Matrix::*member) {
    return p.options().parameters->derived(
        weight,
        [&] {
          make();
          return made.*member;
        },
        number);
  };
  return {.codes = part(0, &Int8Matrix::codes), .scales = part(1, &Int8Matrix::scales)};
}

// y = x W^T + b, and of an adapter y += s drop(x) A^T B^T. `low`: s drop(x) A^T, where it is there.
Value product_with(Matrix matrix, const Weight& bias, Value x, Pass& p, Tensor low = {}) {
  if (p.options().without_adapter) matrix.lora.reset();
  if (p.is_plain()) return plain_product(matrix, bias, x, p);
  if (p.options().int8_products && !matrix.is_transposed && has_int8_codes(matrix.weight.sizes())) {
    FT_CHECK(!p.records() && !matrix.lora, "products of integers have no gradients");
    return {.tensor = int8_linear(x.tensor, int8_matrix_of(matrix.weight, p), p.values(bias))};
  }
  const std::optional<LoraTerm>& lora = matrix.lora;
  Product product{.matrix = matrix,
                  .bias = bias,
                  .trains_weight = p.trains(matrix.weight),
                  .trains_adapter =
                      lora && (p.trains(lora->a) || p.trains(lora->b) || p.trains(lora->magnitude)),
                  .shape = x.tensor.sizes().vec(),
                  .options = x.tensor.options(),
                  .dx = x.slot};
  std::vector<int64_t> sizes = product.shape;
  sizes.back() = matrix.weight.size(matrix.is_transposed ? 1 : 0);
  // A view keeps the tensor that it is of, also without gradients, and would not own its memory.
  Value y = p.result(
      product_of(matrix, matrix.is_dora() ? Tensor() : p.factor(bias), rows_of(x.tensor), p)
          .view(sizes)
          .detach(),
      p.trains(bias) || product.keeps_input() || x.slot);
  if (lora) {
    product.low = low.defined() ? std::move(low) : low_product(matrix, x.tensor, p);
    product_into(p.options().precision, rows_of(y.tensor), product.low, p.factor(lora->b).t(), 1.0);
  }
  if (matrix.is_dora()) {
    const bool keeps = y.slot && p.trains(lora->magnitude);
    product.unscaled = scale_by_magnitude(matrix, bias, keeps, y.tensor, p);
  }
  // Frees a temporary before the caller's expression ends; dx = dy W needs only its shape.
  if (!y.slot || !product.keeps_input()) x = {};
  if (!y.slot) return y;
  p.record(
      y, [&p, product = std::move(product), kept = p.keep(std::move(x))](Tensor gradient) mutable {
        give_gradients(product, kept.take(), std::move(gradient), p);
        const Matrix& own = product.matrix;
        if (own.is_again) return;  // the first call completes them
        p.complete({own.weight, product.bias});
        if (own.lora) p.complete({own.lora->a, own.lora->b, own.lora->magnitude});
      });
  return y;
}

}  // namespace

Value linear(Value x, const Weight& weight, const Weight& bias, Pass& p) {
  return product_with({.weight = weight}, bias, std::move(x), p);
}

Linear::Linear(const Scope& scope, int64_t inputs, int64_t outputs, bool has_bias,
               const LinearNames& names)
    : weight_(scope.parameter(names.weight, {outputs, inputs}, scope.role_of_matrix())) {
  if (has_bias) bias_ = scope.parameter(names.bias, {outputs});
  lora_ = scope.lora(inputs, outputs);
}

Linear::SharedInput::SharedInput(const Value& x, std::initializer_list<const Linear*> layers,
                                 const Pass& p)
    : x_(x.tensor.unsafeGetTensorImpl()) {
  if (p.is_plain() || p.options().without_adapter) return;
  std::vector<kernels::AdapterFactor> adapters;
  for (const Linear* layer : layers) {
    if (layer == nullptr || !layer->lora_) continue;
    const Matrix matrix{.weight = layer->weight_, .lora = layer->lora_};
    if (auto factor = fused_factor(matrix, x.tensor, p)) {
      layers_.push_back(layer);
      adapters.push_back(*std::move(factor));
    }
  }
  if (!adapters.empty()) products_ = kernels::fused_adapter_products(rows_of(x.tensor), adapters);
}

Tensor Linear::SharedInput::low_product(const Linear& layer, const Value& x) const {
  const auto found = std::ranges::find(layers_, &layer);
  const bool is_there = found != layers_.end() && x.tensor.unsafeGetTensorImpl() == x_;
  return is_there ? products_[static_cast<size_t>(found - layers_.begin())] : Tensor();
}

Value Linear::operator()(Value x, Pass& p) const {
  return product_with({.weight = weight_, .lora = lora_}, bias_, std::move(x), p);
}

Value Linear::operator()(Value x, const SharedInput& shared, Pass& p) const {
  const Tensor low = shared.low_product(*this, x);
  return product_with({.weight = weight_, .lora = lora_}, bias_, std::move(x), p, low);
}

Value Linear::again(Value x, Pass& p) const {
  return product_with({.weight = weight_, .lora = lora_, .is_again = true, .is_table = true}, bias_,
                      std::move(x), p);
}

Value Linear::of_table(Value x, Pass& p) const {
  return product_with({.weight = weight_, .lora = lora_, .is_table = true}, bias_, std::move(x), p);
}

Value Linear::product(Value x, Pass& p) const {
  return product_with({.weight = weight_, .lora = lora_}, Weight(), std::move(x), p);
}

TransposedLinear::TransposedLinear(const Scope& scope, int64_t inputs, int64_t outputs)
    : weight_(scope.parameter("weight", {inputs, outputs})),
      bias_(scope.parameter("bias", {outputs})),
      lora_(scope.lora(inputs, outputs)) {}

Value TransposedLinear::operator()(Value x, Pass& p) const {
  return product_with({.weight = weight_, .is_transposed = true, .lora = lora_}, bias_,
                      std::move(x), p);
}

}  // namespace finetune::nn
