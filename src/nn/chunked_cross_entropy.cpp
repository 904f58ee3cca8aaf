// SPDX-License-Identifier: MIT
// N rows, C hidden, V vocabulary.
#include "finetune/nn/chunked_cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "finetune/base/error.h"
#include "finetune/kernels/float32_product.h"
#include "finetune/kernels/kernels_in_use.h"
#include "finetune/kernels/precision.h"
#include "finetune/kernels/softmax_cross_entropy.h"
#include "finetune/kernels/token_product.h"
#include "finetune/tensor/backward.h"

namespace finetune {
namespace {

// How many values of the weight are unpacked, and of its gradient computed, at a time.
constexpr int64_t kValuesPerBlock = int64_t{1} << 20;

bool runs_ahead(const Tensor& x) { return is_asynchronous(x.device()); }

// Whether all rows of the weight are used at once: on a device, if none is unpacked, because a
// launch costs more than memory for the products.
bool is_used_at_once(const Tensor& weight, Precision precision) {
  const at::ScalarType type = weight.scalar_type();
  return runs_ahead(weight) && (type == at::kFloat || type == scalar_type(precision));
}

// Rows of the weight at a time.
int64_t block_of(const Weight& weight, const ParameterStore& parameters, Precision precision) {
  if (is_used_at_once(parameters.tensor(weight), precision)) return weight.size(0);
  return std::clamp<int64_t>(kValuesPerBlock / weight.size(1), 1, weight.size(0));
}

// Passed by address: as inputs of the autograd node they would be edges of the graph.
struct Arguments {
  const Weight& weight;
  const Weight& bias;
  const Tensor& labels;
  ParameterStore& parameters;
  const ChunkedCrossEntropyOptions& options;
};

struct Output {
  Tensor loss;        // float32 scalar
  Tensor x_gradient;  // like x; undefined if not needed
};

// One pass over the rows in chunks, and for each chunk over the vocabulary in blocks.
class ChunkedLoss {
 public:
  ChunkedLoss(const Arguments& arguments, bool with_gradient)
      : weight_(arguments.weight),
        bias_(arguments.bias),
        parameters_(arguments.parameters),
        options_(arguments.options),
        with_gradient_(with_gradient),
        vocabulary_(weight_.size(0)),
        block_(block_of(weight_, parameters_, options_.precision)) {
    // Converted once instead of twice for each chunk of rows.
    if (is_used_at_once(parameters_.tensor(weight_), options_.precision)) {
      operand_ = parameters_.factor(weight_, options_.precision).detach();
    }
    if (!bias_.defined()) return;
    bias_values_ = parameters_.values(bias_).detach();
    // The loss reads the logits anyway, and a product without a bias need not.
    if (runs_ahead(bias_values_) && options_.softcap == 0.0) later_bias_ = bias_values_;
    if (!with_gradient || runs_ahead(bias_values_)) return;
    bias_gradient_ = at::zeros({vocabulary_}, bias_values_.options());
  }

  Output run(const Tensor& x, const Tensor& labels, bool with_x_gradient) {
    const int64_t rows = x.size(0);
    Output output;
    if (with_x_gradient) output.x_gradient = at::empty_like(x, at::MemoryFormat::Contiguous);
    Tensor sum;  // float64
    for_each_chunk(
        x, [&](int64_t first, const Tensor& x_chunk, const Tensor& logits, const Tensor& slopes) {
          const int64_t count = logits.size(0);
          // Only the bias needs the gradient in float32.
          const bool is_narrow = with_gradient_ && !slopes.defined() &&
                                 x_chunk.scalar_type() != logits.scalar_type() &&
                                 operand_.defined() && runs_ahead(logits);
          const Tensor narrow = is_narrow ? at::empty(logits.sizes(), x_chunk.options()) : Tensor();
          const Tensor loss = kernels::softmax_cross_entropy_(
                                  logits, labels.narrow(0, first, count),
                                  {.label_smoothing_factor = options_.label_smoothing_factor,
                                   .gradient_scale = options_.gradient_scale,
                                   .with_gradient = with_gradient_,
                                   .narrow = narrow,
                                   .is_wide_too = bias_.defined(),
                                   .bias = later_bias_})
                                  .sum();
          sum = sum.defined() ? sum.add_(loss) : loss;
          if (!with_gradient_) return;
          if (slopes.defined()) logits.mul_(slopes);
          add_gradients(x_chunk, logits, narrow,
                        with_x_gradient ? output.x_gradient.narrow(0, first, count) : Tensor());
        });
    add_bias_gradient(rows);
    output.loss = sum.defined() ? sum.to(at::kFloat) : at::zeros({}, x.options().dtype(at::kFloat));
    return output;
  }

  // The log probability of each row's label, [N] float32.
  Tensor log_probs(const Tensor& x, const Tensor& labels) {
    Tensor result = at::empty({x.size(0)}, x.options().dtype(at::kFloat));
    for_each_chunk(x, [&](int64_t first, const Tensor& /*x_chunk*/, const Tensor& logits,
                          const Tensor& /*slopes*/) {
      const Tensor loss =
          kernels::softmax_cross_entropy_(logits, labels.narrow(0, first, logits.size(0)),
                                          {.with_gradient = false, .bias = later_bias_});
      result.narrow(0, first, logits.size(0)).copy_(loss.neg());
    });
    return result;
  }

  // Adds the gradients of weight and bias for the gradient [N] of log_probs(); returns x's.
  Tensor log_probs_backward(const Tensor& x, const Tensor& labels, const Tensor& gradient) {
    Tensor dx = at::empty_like(x, at::MemoryFormat::Contiguous);
    for_each_chunk(
        x, [&](int64_t first, const Tensor& x_chunk, const Tensor& logits, const Tensor& slopes) {
          const int64_t count = logits.size(0);
          (void)kernels::softmax_cross_entropy_(logits, labels.narrow(0, first, count),
                                                {.bias = later_bias_});
          logits.mul_(gradient.narrow(0, first, count).neg().unsqueeze(1));
          if (slopes.defined()) logits.mul_(slopes);
          add_gradients(x_chunk, logits, Tensor(), dx.narrow(0, first, count));
        });
    add_bias_gradient(x.size(0));
    return dx;
  }

 private:
  // Calls `visit` with the first row of each chunk, its rows as factors, its logits without
  // later_bias_, which may be overwritten, and the derivatives of the soft cap, if they are needed.
  template <typename Visit>
  void for_each_chunk(const Tensor& x, const Visit& visit) {
    const int64_t rows = x.size(0);
    const int64_t chunks = (rows + options_.rows_per_chunk - 1) / options_.rows_per_chunk;
    const int64_t longest = chunks == 0 ? 0 : (rows + chunks - 1) / chunks;
    const Tensor buffer = at::empty({longest, vocabulary_}, x.options().dtype(at::kFloat));
    const int64_t visited = x.is_meta() ? std::min<int64_t>(2, chunks) : chunks;  // all are alike
    for (int64_t chunk = 0; chunk < visited; ++chunk) {
      const int64_t first = rows * chunk / chunks;  // chunks of nearly equal length
      const int64_t count = rows * (chunk + 1) / chunks - first;
      const Tensor x_chunk = as_factor(x.narrow(0, first, count).contiguous());
      const Tensor logits = buffer.narrow(0, 0, count);
      fill_logits(x_chunk, logits);
      visit(first, x_chunk, logits, cap(logits));
    }
  }

  void add_bias_gradient(int64_t rows) {
    if (bias_gradient_.defined() && rows > 0) parameters_.gradients().add(bias_, bias_gradient_);
  }

  // Converts rows to the type that products use. On a device in half precision they are cast once,
  // so that the gradient of the weight is a product of 16-bit matrices, which tensor cores
  // multiply. The CPU multiplies the rows as they are.
  [[nodiscard]] Tensor as_factor(const Tensor& rows) const {
    if (options_.precision == Precision::kFloat32 || !runs_ahead(rows)) return rows;
    return rows.to(scalar_type(options_.precision));
  }

  template <typename Body>
  void for_each_block(const Body& body) {
    if (operand_.defined()) return body(0, vocabulary_, operand_);
    const bool is_dry = parameters_.tensor(weight_).is_meta();  // all blocks are alike
    const int64_t end = is_dry ? std::min(vocabulary_, 2 * block_) : vocabulary_;
    for (int64_t first = 0; first < end; first += block_) {
      const int64_t count = std::min(block_, vocabulary_ - first);
      body(first, count, parameters_.values_of_rows(weight_, first, count).detach());
    }
  }

  void fill_logits(const Tensor& x, const Tensor& logits) {
    for_each_block([&](int64_t first, int64_t count, const Tensor& weight) {
      Tensor target = logits.narrow(1, first, count);
      const bool has_bias = bias_.defined() && !later_bias_.defined();
      const Tensor bias = has_bias ? bias_values_.narrow(0, first, count) : Tensor();
      if (kernels::has_float32_product(x, weight)) {
        if (bias.defined()) target.copy_(bias);
        kernels::add_float32_product(target, x, weight.t(), bias.defined() ? 1.0 : 0.0);
      } else if (options_.precision != Precision::kFloat32) {
        target.copy_(linear_in(options_.precision, x, weight, bias));
      } else if (kernels::has_token_product(x, weight.t())) {
        if (bias.defined()) target.copy_(bias);
        kernels::token_product(target, x, weight.t(), bias.defined() ? 1.0 : 0.0);
      } else if (bias.defined()) {
        at::addmm_out(target, bias, x, weight.t());
      } else {
        at::mm_out(target, x, weight.t());
      }
    });
  }

  // Soft-caps the logits if asked to: z becomes c tanh(z / c). Returns the derivative 1 - tanh(z /
  // c)^2, or undefined if it is not needed.
  [[nodiscard]] Tensor cap(const Tensor& logits) const {
    if (options_.softcap == 0.0) return {};
    logits.div_(options_.softcap).tanh_();
    const Tensor slopes = with_gradient_ ? 1.0 - logits * logits : Tensor();
    logits.mul_(options_.softcap);
    return slopes;
  }

  // From dlogits [n, V] computes the gradients of these rows of x, and adds to those of the weight
  // and the bias. `rounded`, if defined, is dlogits as a factor.
  void add_gradients(const Tensor& x, const Tensor& dlogits, const Tensor& rounded,
                     const Tensor& dx) {
    const bool wide = options_.precision == Precision::kFloat32;
    Tensor sum = !dx.defined() || dx.scalar_type() == at::kFloat
                     ? dx
                     : at::empty(dx.sizes(), dx.options().dtype(at::kFloat));
    if (bias_gradient_.defined()) {
      bias_gradient_.add_(dlogits.sum(0));
    } else if (bias_.defined()) {  // the rows are partial sums; their memory is used again
      parameters_.gradients().add(bias_, dlogits);
      parameters_.gradients().add_pending();
    }
    for_each_block([&](int64_t first, int64_t count, const Tensor& weight) {
      const Tensor part = dlogits.narrow(1, first, count);
      const Tensor narrow = rounded.defined() ? rounded
                            : wide            ? part
                                              : part.to(scalar_type(options_.precision));
      if (sum.defined() && kernels::has_float32_product(narrow, weight)) {
        kernels::add_float32_product(sum, narrow, weight, first == 0 ? 0.0 : 1.0);
      } else if (sum.defined() && wide) {
        product_into(Precision::kFloat32, sum, part, weight, first == 0 ? 0.0 : 1.0);
      } else if (sum.defined()) {
        const Tensor product = product_in(options_.precision, narrow, weight);
        first == 0 ? sum.copy_(product) : sum.add_(product);
      }
      parameters_.gradients().add_product_to_rows(weight_, first, narrow, x);
    });
    if (sum.defined() && !sum.is_same(dx)) dx.copy_(sum);
  }

  const Weight& weight_;
  const Weight& bias_;
  ParameterStore& parameters_;
  const ChunkedCrossEntropyOptions& options_;
  bool with_gradient_;
  int64_t vocabulary_;
  int64_t block_;
  Tensor operand_;  // the converted weight; undefined if it is converted in blocks
  Tensor bias_values_;
  Tensor later_bias_;     // what the loss adds; else the logits have it already
  Tensor bias_gradient_;  // of all chunks; undefined on devices
};

class ChunkedCrossEntropyFunction : public torch::autograd::Function<ChunkedCrossEntropyFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x,
                        const Tensor& /*anchor*/, const Arguments* arguments) {
    const bool with_x_gradient = x.requires_grad();
    ChunkedLoss loss(*arguments, /*with_gradient=*/true);
    const Output output = loss.run(x.detach(), arguments->labels, with_x_gradient);
    if (with_x_gradient) context->saved_data["x_gradient"] = output.x_gradient;
    context->saved_data["gradient_scale"] = arguments->options.gradient_scale;
    context->saved_data["is_used"] = false;
    return output.loss;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto& saved = context->saved_data;
    FT_CHECK(!saved["is_used"].toBool(), "a chunked loss has one backward pass");
    const double expected = saved["gradient_scale"].toDouble();
    if (!runs_ahead(gradients[0]) && !gradients[0].is_meta()) {
      const double scale = gradients[0].item<double>();
      FT_CHECK(std::abs(scale - expected) <= 1e-6 * std::abs(expected),
               "the loss is multiplied with another scale than the one that was announced");
    }
    saved["is_used"] = true;
    torch::autograd::variable_list result(3);
    if (const auto kept = saved.find("x_gradient"); kept != saved.end()) {
      result[0] = kept->second.toTensor();
      saved.erase(kept);
    }
    return result;
  }
};

void check(const Tensor& x, const Weight& weight, const Weight& bias, const Tensor& labels,
           const ChunkedCrossEntropyOptions& options) {
  FT_CHECK(x.dim() == 2 && weight.dim() == 2 && x.size(1) == weight.size(1), "x W^T of matrices");
  FT_CHECK(!bias.defined() || bias.numel() == weight.size(0), "a bias for every word");
  FT_CHECK(labels.dim() == 1 && labels.size(0) == x.size(0) && labels.scalar_type() == at::kLong,
           "a label for every row");
  FT_CHECK(options.rows_per_chunk > 0, "chunks have rows");
  FT_CHECK(options.label_smoothing_factor >= 0 && options.label_smoothing_factor <= 1,
           "a share of smoothing");
  if (labels.numel() == 0 || runs_ahead(labels) || labels.is_meta()) return;
  const auto [low, high] = at::aminmax(labels);
  const int64_t worst = low.item<int64_t>() < 0 ? low.item<int64_t>() : high.item<int64_t>();
  if (worst >= 0 && worst < weight.size(0)) return;
  throw Error(ErrorKind::kData, "label " + std::to_string(worst) + " is not in the vocabulary of " +
                                    std::to_string(weight.size(0)) +
                                    " entries: use the tokenizer that the model was made for");
}

}  // namespace

Tensor chunked_cross_entropy(const Tensor& x, const Weight& weight, const Weight& bias,
                             const Tensor& labels, ParameterStore& parameters,
                             const ChunkedCrossEntropyOptions& options) {
  check(x, weight, bias, labels, options);
  const Arguments arguments{weight, bias, labels, parameters, options};
  if (c10::GradMode::is_enabled()) {
    return ChunkedCrossEntropyFunction::apply(x, parameters.anchor(), &arguments);
  }
  ChunkedLoss loss(arguments, /*with_gradient=*/false);
  return loss.run(x, labels, /*with_x_gradient=*/false).loss;
}

Tensor chunked_log_probs(const Tensor& x, const Weight& weight, const Weight& bias,
                         const Tensor& labels, ParameterStore& parameters,
                         const ChunkedCrossEntropyOptions& options) {
  check(x, weight, bias, labels, options);
  Tensor result;
  {
    const c10::NoGradGuard no_grad;
    ChunkedLoss loss({weight, bias, labels, parameters, options}, /*with_gradient=*/false);
    result = loss.log_probs(x.detach(), labels);
  }
  return attach_backward(result, {x, parameters.anchor()},
                         [rows = x.detach(), weight, bias, labels, &parameters,
                          options](const Tensor& gradient) -> std::vector<Tensor> {
                           ChunkedLoss loss({weight, bias, labels, parameters, options},
                                            /*with_gradient=*/true);
                           return {loss.log_probs_backward(rows, labels, gradient), Tensor()};
                         });
}

}  // namespace finetune
