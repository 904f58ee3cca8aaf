// SPDX-License-Identifier: MIT
// Compares the kernels for NVRTC with the CPU's kernels: equal bits where the arithmetic is exact
// or the same, else within a few units in the last place of float32; and the same bits for every
// order of threads. They run as fibers on the CPU (cuda_on_cpu/), or on a GPU where there is one
// (FINETUNE_TEST_FIBERS=1: on the CPU even so).
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>

#include "cuda_on_cpu/cuda_on_cpu.h"
#include "cuda_on_cpu/kernels.h"
#include "finetune/base/random.h"
#include "finetune/kernels/layer_operations.h"
#include "finetune/kernels/nf4.h"
#include "finetune/params/store.h"
#include "kernels/cpu/operations.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/runner.h"
#include "kernels/cuda/sources.h"
#include "kernels/cuda/tiled_attention.h"
#include "kernels/interface/dropout_mask.h"
#include "kernels/update_numbers.h"

namespace finetune::kernels {
namespace {

using Tensors = std::vector<Tensor>;

bool same_content(const Tensor& a, const Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

// Allowed difference relative to the largest value.
constexpr double kEqualBits = 0.0;
// For float32 sums in another order.
constexpr double kClose = 1e-6;

// Launches on the first GPU and waits. Tensors are in pinned memory of the host, which both sides
// read and write at one address.
void launch_on_gpu(const cuda::KernelLaunch& launch) {
  cuda::KernelLaunch on_gpu = launch;
  on_gpu.device = 0;
  cuda::driver_runner()->launch(on_gpu);
  at::accelerator::synchronizeDevice(0);
}

const cuda::Runner& runner_on_gpu() {
  static const cuda::Runner runner = {
      .address = cuda_on_cpu::cpu_runner().address, .launch = &launch_on_gpu, .is_host = true};
  return runner;
}

// Pinned memory whose blocks are known by their address alone, as torch asks of a CPU's allocator.
class PinnedMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::Device(c10::kCPU)};
    c10::DataPtr block = at::globalContext().getPinnedMemoryAllocator(at::kCUDA)->allocate(bytes);
    void* const data = block.get();
    const std::lock_guard lock(mutex_);
    blocks_.emplace(data, std::move(block));
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    std::memcpy(target, source, bytes);
  }

  // Never destroyed: tensors may outlive static objects.
  static PinnedMemory& instance() {
    static auto* const memory = new PinnedMemory;
    return *memory;
  }

 private:
  static void release(void* data) {
    PinnedMemory& memory = instance();
    const std::lock_guard lock(memory.mutex_);
    memory.blocks_.erase(data);
  }

  std::mutex mutex_;
  std::map<void*, c10::DataPtr> blocks_;
};

const cuda::Runner& make_runner() {
  const char* const fibers = std::getenv("FINETUNE_TEST_FIBERS");
  const bool has_gpu = at::hasCUDA() && at::accelerator::deviceCount() > 0;
  if (fibers != nullptr || !has_gpu) return cuda_on_cpu::cpu_runner();
  if (cuda::driver_runner() == nullptr) throw std::runtime_error("no kernels on this GPU");
  c10::SetCPUAllocator(&PinnedMemory::instance(), /*priority=*/255);
  return runner_on_gpu();
}

const cuda::Runner& tested_runner() {
  static const cuda::Runner& runner = make_runner();
  return runner;
}

class CudaKernels : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const bool on_gpu = &tested_runner() == &runner_on_gpu();
    std::cout << "kernels run " << (on_gpu ? "on the GPU" : "as fibers on the CPU") << "\n";
  }
  void SetUp() override {
    at::manual_seed(11);
    cuda::set_runner(&tested_runner());
  }
  void TearDown() override { cuda_on_cpu::set_thread_order(0); }

  // Calls compute() with this table twice, in two orders of threads, and with the CPU's table.
  static void expect_like_cpu(double tolerance,
                              const std::function<Tensors(const Kernels&)>& compute) {
    const Tensors expected = compute(cpu::kKernels);
    const Tensors actual = compute(cuda::kKernels);
    cuda_on_cpu::set_thread_order(77);
    const Tensors reordered = compute(cuda::kKernels);
    cuda_on_cpu::set_thread_order(0);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_TRUE(same_content(actual[i], reordered[i])) << "threads decide";
      if (tolerance == kEqualBits) {
        EXPECT_TRUE(same_content(actual[i], expected[i]));
        continue;
      }
      const Tensor wanted = expected[i].to(at::kDouble);
      const Tensor error = (actual[i].to(at::kDouble) - wanted).abs().max();
      EXPECT_LE(error.item<double>(), tolerance * wanted.abs().max().item<double>());
    }
  }
};

// A sum over rows where a table gives parts of it.
Tensor sum_of_parts(const Kernels& kernels, const Tensor& gradient) {
  if (gradient.dim() == 1) return gradient;
  const Tensor sum = at::zeros({gradient.size(1)});
  kernels.add_partial_sums({{.target = sum, .parts = gradient, .key = {}}});
  return sum;
}

std::optional<DropoutNumbers> some_dropout(double p) {
  const DropoutStream stream{.seed = 3, .update = 2, .first_position = 9};
  return make_dropout_numbers(p, std::optional(stream), 1, DropoutSite::kAttentionOutput);
}

// For every number of values per thread, with aligned and unaligned rows.
TEST_F(CudaKernels, NormaliseAsTheCpu) {
  const auto layout = make_token_layout({3, 1, 2}, 4, c10::Device(c10::kCPU));
  for (const auto& [columns, type] :
       std::initializer_list<std::pair<int64_t, at::ScalarType>>{{5, at::kFloat},
                                                                 {384, at::kFloat},
                                                                 {768, at::kBFloat16},
                                                                 {768, at::kFloat},
                                                                 {770, at::kFloat},
                                                                 {1024, at::kFloat},
                                                                 {1024, at::kHalf},
                                                                 {1030, at::kFloat},
                                                                 {4096, at::kFloat}}) {
    SCOPED_TRACE(columns);
    const Tensor product = at::randn({1, 6, columns}).to(type);
    const Tensor residual = at::randn({1, 6, columns}).to(type);
    const Tensor gradient = at::randn({1, 6, columns}).to(type);
    // The CPU's rounding of a value that is computed in another order may be its neighbour.
    const double rounding = type == at::kFloat ? 0.0 : type == at::kHalf ? 0x1p-9 : 0x1p-6;
    const Tensor bias = at::randn({columns});
    for (const TokenLayout* sequences :
         std::initializer_list<const TokenLayout*>{nullptr, layout.get()}) {
      expect_like_cpu(2 * kClose + rounding, [&](const Kernels& k) -> Tensors {
        const AddNorm weights = {.gamma = bias + 1,
                                 .beta = bias,
                                 .epsilon = 1e-5,
                                 .dropout = some_dropout(0.2),
                                 .layout = sequences};
        const Tensor sums = product.clone();
        const Tensor y = k.add_norm(sums, bias, residual, weights);
        const Tensor dy = gradient.clone();
        const AddNormGradients back = k.add_norm_backward(dy, sums, weights);
        return {y,
                dy,
                back.product,
                sum_of_parts(k, back.gamma),
                sum_of_parts(k, back.beta),
                sum_of_parts(k, back.bias)};
      });
    }
  }
}

// Rows of warps and of blocks; float32 rows whose norm is rounded to 16 bits, too.
TEST_F(CudaKernels, NormaliseByTheRootMeanSquareAsTheCpu) {
  // The last has no kernel.
  for (const int64_t columns : {5, 64, 200, 576, 1024, 1500, 4096, 8192, 8196}) {
    SCOPED_TRACE(columns);
    const Tensor x = at::randn({1, 19, columns});
    const Tensor gradient = at::randn({1, 19, columns});
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const at::ScalarType of_rows : {at::kFloat, type}) {
        const RmsNorm norm = {.weight = at::randn({columns}), .epsilon = 1e-5, .adds_one = true};
        // The CPU's rounding of a value that is computed in another order may be its neighbour.
        const double rounding = type == at::kFloat ? 0.0 : type == at::kHalf ? 0x1p-10 : 0x1p-7;
        expect_like_cpu(2 * kClose + rounding, [&](const Kernels& k) -> Tensors {
          const Tensor rows = x.to(of_rows, false, true);
          const RmsNormGradients gradients =
              k.rms_norm_backward(gradient.to(type, false, true), rows, norm, {}, false);
          EXPECT_EQ(gradients.input.scalar_type(), of_rows);
          const Tensor sum = rows.clone();
          const Tensor rounded = gradient.to(type, false, true);
          const RmsNormGradients both = k.rms_norm_backward(rounded, rows, norm, sum, true);
          const bool rounds = &k == &cuda::kKernels && of_rows != type && columns <= 8192;
          EXPECT_EQ(both.rounded.is_same(rounded), rounds);
          EXPECT_TRUE(!rounds || rounded.equal(sum.to(type)));
          const Tensor branch = gradient.to(type);
          const SumAndNorm of_sum = k.add_rms_norm(rows, branch, norm, type);
          EXPECT_TRUE(of_sum.sum.equal(rows + branch));
          const SumAndNorm of_wide = k.add_rms_norm(rows, gradient, norm, type);
          EXPECT_TRUE(of_wide.sum.equal(rows + gradient));
          EXPECT_EQ(of_wide.normed.scalar_type(), type);
          EXPECT_TRUE(of_wide.normed.equal(k.rms_norm(of_wide.sum, norm, type)));
          EXPECT_TRUE(of_sum.normed.equal(k.rms_norm(of_sum.sum, norm, type)));
          return {k.rms_norm(rows, norm, type), gradients.input, sum_of_parts(k, gradients.weight),
                  sum, of_sum.normed};
        });
      }
    }
  }
}

TEST_F(CudaKernels, RotateHeadsAsTheCpu) {
  for (const int64_t half : {1, 16, 20, 25}) {
    const Tensor angles = at::randn({9, half});
    for (const int64_t size : {50, 64}) {
      const Tensor query = at::randn({2, 9, 3 * size});
      const Tensor key = at::randn({2, 9, 2 * size});
      for (const bool back : {false, true}) {
        const HeadRotation rotation = {
            .cos = angles.cos(), .sin = angles.sin(), .head_size = size, .back = back};
        expect_like_cpu(kClose, [&](const Kernels& k) -> Tensors {
          Tensors turned = k.rotate_heads({query.clone(), key.clone()}, rotation);
          turned.push_back(k.rotate_heads({key.clone()}, rotation)[0]);
          return turned;
        });
      }
    }
  }
}

TEST_F(CudaKernels, UnpackFourBitsAsTheCpu) {
  for (const int64_t count : {1, 63, 64, 1000, 70'001}) {
    const Tensor values = at::randn({count});
    const Tensor codes = at::empty({nf4_code_bytes(count)}, at::kByte);
    const Tensor scales = at::empty({nf4_blocks(count)}, at::kFloat);
    quantize_nf4(values, codes, scales);
    for (const int64_t first : {0, 8, 24, 64, 192}) {
      if (first >= count) continue;
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
        expect_like_cpu(0.0, [&](const Kernels& k) -> Tensors {
          return {k.dequantize_nf4(codes, scales, first, count - first, type)};
        });
      }
    }
  }
}

TEST_F(CudaKernels, UnpackMxfp4AsTheCpu) {
  const int64_t count = 40 * kMxfp4Block;
  const Tensor codes = at::randint(256, {count / 2}, at::kByte);
  const Tensor scales = at::randint(100, 150, {count / kMxfp4Block}, at::kByte);
  scales[3] = 0;  // whose power is subnormal
  for (const int64_t first : {int64_t{0}, 7 * kMxfp4Block}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      expect_like_cpu(0.0, [&](const Kernels& k) -> Tensors {
        return {k.dequantize_mxfp4(codes, scales, first, count - first, type)};
      });
    }
  }
}

TEST_F(CudaKernels, MultiplyWithAGateAsTheCpu) {
  for (const int64_t columns : {71, 80}) {
    const Tensor x = at::randn({3, 50, columns}) * 4;
    const Tensor other = at::randn({3, 50, columns});
    const Tensor gradient = at::randn({3, 50, columns});
    for (const Activation f : {silu, gelu, tanh_gelu}) {
      expect_like_cpu(2 * kClose, [&](const Kernels& k) -> Tensors {
        const Tensor gate = x.clone();
        const Tensor up = other.clone();
        const Tensor product = k.gated_product(gate, up, f);
        k.gated_product_backward(gate, up, f, gradient);
        return {product, gate, up};
      });
    }
  }
}

TEST_F(CudaKernels, ComputeXieluAsTheCpu) {
  const Xielu f = {.alpha_p = at::full({1}, 0.3F), .alpha_n = at::full({1}, -0.9F)};
  for (const int64_t columns : {71, 80}) {
    const Tensor x = at::randn({3, 50, columns}) * 2;
    const Tensor gradient = at::randn({3, 50, columns});
    expect_like_cpu(2 * kClose, [&](const Kernels& k) -> Tensors {
      const Tensor dy = gradient.clone();
      const Tensor y = k.xielu(x, f);
      const XieluGradients gradients = k.xielu_backward(dy, x, f);
      return {y, dy, gradients.alpha_p.sum(0), gradients.alpha_n.sum(0)};
    });
  }
}

TEST_F(CudaKernels, DropWhatTheCpuDrops) {
  const auto layout = make_token_layout({3, 1, 2}, 4, c10::Device(c10::kCPU));
  const Tensor rows = at::randn({1, 6, 70});
  expect_like_cpu(kEqualBits, [&](const Kernels& k) -> Tensors {
    return {k.dropout(rows, *some_dropout(0.3), layout.get()),
            k.dropout(at::ones({2, 3, 9, 35}), *some_dropout(0.3), nullptr),
            k.dropout(at::ones({2, 70, 9}).transpose(1, 2), *some_dropout(0.3), nullptr)};
  });
}

// drop(x) A^T and both its gradients, by one launch each. `together`: dx is written over x.
Tensors adapter_products(const Kernels& k, const Tensor& x, const Tensor& a, const Tensor& dy,
                         const RowDropout& dropout, bool together) {
  constexpr double kScale = 0.3;
  const Tensor sum = at::ones(x.sizes(), x.options());
  if (k.adapter_products != nullptr) {
    EXPECT_TRUE(k.adapter_products->serves(x, a));
    const Tensor low = k.adapter_products->products(x, {{a, kScale, dropout}}).front();
    const Tensor target = together ? x.clone() : sum;
    const Tensor parts =
        k.adapter_products->backward(target, !together, together ? target : x, dy, a, dropout);
    return {low, target, sum_of_parts(k, parts)};
  }
  Tensor mask = at::ones({x.size(0), x.size(1)});
  if (dropout.p != 0.0) {
    const bool has_samples = dropout.layout == nullptr;
    const Tensor ones =
        has_samples ? mask.view({-1, dropout.rows_of_sample, x.size(1)}) : mask.unsqueeze(0);
    mask = k.dropout(ones,
                     make_dropout_numbers(dropout.p, dropout.stream, dropout.layer, dropout.site),
                     dropout.layout)
               .view_as(x);
  }
  const Tensor dropped = (x.to(at::kFloat) * mask).to(x.scalar_type()).to(at::kFloat);
  const Tensor of_input = dy.to(at::kFloat).mm(a.to(at::kFloat)) * mask;
  return {(dropped.mm(a.to(at::kFloat).t()) * kScale).to(x.scalar_type()),
          (together ? of_input : of_input + 1).to(x.scalar_type()),
          dy.to(at::kFloat).t().mm(dropped).flatten()};
}

// Of every number of ranks, with rows that are aligned and not, and more rows than a block has.
TEST_F(CudaKernels, MultiplyByAnAdapterAsTheCpu) {
  const auto layout = make_token_layout({30, 1, 40}, 64, c10::Device(c10::kCPU));
  const DropoutStream stream{.seed = 3, .update = 2, .first_position = 9};
  for (const int64_t columns : {7, 132, 1100}) {
    for (const int64_t rank : {1, 8, 10, 16}) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        SCOPED_TRACE("columns " + std::to_string(columns) + ", rank " + std::to_string(rank));
        const Tensor x = at::randn({71, columns}).to(type);
        const Tensor a = at::randn({rank, columns}).to(type);
        const Tensor dy = at::randn({71, rank}).to(type);
        const RowDropout none;
        const RowDropout of_samples = {
            .p = 0.3, .stream = stream, .layer = 5, .rows_of_sample = 71};
        RowDropout of_layout = of_samples;
        of_layout.layout = layout.get();
        for (const RowDropout& dropout : {none, of_samples, of_layout}) {
          const double tolerance = type == at::kFloat ? 4 * kClose : 0x1p-7;
          const bool together = dropout.layout == nullptr;
          expect_like_cpu(tolerance, [&](const Kernels& k) {
            return adapter_products(k, x, a, dy, dropout, together);
          });
        }
      }
    }
  }
}

// Of layers that read the same x: more than one launch takes, of other ranks and dropouts.
TEST_F(CudaKernels, MultiplyBySeveralAdaptersAsByEachAlone) {
  const AdapterProducts& products = *cuda::kKernels.adapter_products;
  const Tensor x = at::randn({71, 132});
  std::vector<AdapterFactor> adapters;
  for (const int64_t rank : {16, 3, 8, 16, 5}) {
    const auto layer = static_cast<int64_t>(adapters.size());
    const RowDropout dropout = {
        .p = 0.1, .stream = {.seed = 3}, .layer = layer, .rows_of_sample = 71};
    adapters.push_back({at::randn({rank, 132}), 0.5 + static_cast<double>(layer),
                        layer == 2 ? RowDropout() : dropout});
  }
  const std::vector<Tensor> together = products.products(x, adapters);
  ASSERT_EQ(together.size(), adapters.size());
  for (size_t i = 0; i < adapters.size(); ++i) {
    EXPECT_TRUE(together[i].equal(products.products(x, {adapters[i]}).front())) << i;
  }
}

// A warp goes down more rows than it stages at a time, the last of them without a partner.
TEST_F(CudaKernels, MultiplyManyRowsByAnAdapterAsTheCpu) {
  const Tensor x = at::randn({1061, 4612});
  const Tensor a = at::randn({8, 4612});
  const Tensor dy = at::randn({1061, 8});
  const RowDropout dropout = {.p = 0.1, .stream = {.seed = 3}, .layer = 5, .rows_of_sample = 1061};
  expect_like_cpu(8 * kClose,
                  [&](const Kernels& k) { return adapter_products(k, x, a, dy, dropout, false); });
}

TEST_F(CudaKernels, ActivateAsTheCpu) {
  const Tensor x = at::randn({3, 300, 70}) * 3;
  const Tensor bias = at::randn({70});
  const Tensor gradient = at::randn({3, 300, 70});
  for (const Activation f : {Activation{nullptr}, Activation{tanh_gelu}}) {
    expect_like_cpu(2 * kClose, [&](const Kernels& k) -> Tensors {
      const Tensor output = at::empty_like(x);
      k.bias_activation(x, bias, f, output);
      const Tensor dy = gradient.clone();
      const Tensor of_bias = k.bias_activation_backward(x, bias, f, dy);
      return {output, dy, sum_of_parts(k, of_bias)};
    });
  }
}

struct AttentionCase {
  const char* name;
  int64_t tokens;
  int64_t kv_heads;
  AttentionRule rule;
};

// Rows in warps and in blocks, with the rules of encoders and decoders.
TEST_F(CudaKernels, AttendAsTheCpu) {
  const AttentionCase cases[] = {{"short", 39, 0, {}},
                                 {"two vectors", 160, 0, {}},
                                 {"a block for a row", 1100, 0, {}},
                                 {"causal", 39, 0, {.causal = true}},
                                 {"window", 40, 0, {.causal = true, .window = 7}},
                                 {"windows on both sides", 40, 0, {.window = 7}},
                                 {"grouped", 39, 1, {.causal = true, .scale = 0.3}}};
  for (const AttentionCase& one : cases) {
    SCOPED_TRACE(one.name);
    const int64_t samples = one.tokens > 1000 ? 1 : 2;
    const int64_t kv_heads = one.kv_heads == 0 ? 2 : one.kv_heads;
    const Tensor query = at::randn({samples, one.tokens, 16});
    const Tensor key = at::randn({samples, one.tokens, kv_heads * 8});
    const Tensor value = at::randn({samples, one.tokens, kv_heads * 8});
    const Tensor gradient = at::randn({samples, one.tokens, 16});
    Tensor mask = at::ones({samples, 1, 1, one.tokens}, at::kBool);
    mask[0][0][0][7] = false;
    expect_like_cpu(4 * kClose, [&](const Kernels& k) -> Tensors {
      const Attention inputs{.query = query.clone(),
                             .key = key.clone(),
                             .value = value.clone(),
                             .heads = 2,
                             .kv_heads = one.kv_heads,
                             .rule = one.rule,
                             .mask = mask,
                             .dropout = some_dropout(0.2)};
      const Tensor context = k.attention(inputs);
      k.attention_backward(inputs, gradient);
      return {context, inputs.query, inputs.key, inputs.value};
    });
  }
}

struct TiledCase {
  const char* name;
  std::vector<int64_t> lengths;  // of a layout's sequences; one: of two padded samples
  int64_t size;
  int64_t kv_heads;
  AttentionRule rule;
};

// Two heads; with dropout and a mask.
struct TiledInputs {
  Attention inputs;
  Tensor gradient;
  std::shared_ptr<TokenLayout> layout;

  TiledInputs(const TiledCase& one, at::ScalarType type) {
    const bool is_padded = one.lengths.size() == 1;
    const int64_t longest = *std::ranges::max_element(one.lengths);
    if (!is_padded) {
      layout = std::make_shared<TokenLayout>(
          *make_token_layout(one.lengths, longest, c10::Device(c10::kCPU)));
      layout->starts = at::tensor(layout->offsets, at::kLong);
    }
    const int64_t samples = is_padded ? 2 : 1;
    const int64_t tokens = is_padded ? longest : layout->tokens();
    const auto draw = [&](int64_t heads) {
      return at::randn({samples, tokens, heads * one.size}).to(type);
    };
    Tensor mask = at::ones({samples, 1, 1, tokens}, at::kBool);
    for (const int64_t hole : {0, 7}) mask[0][0][0][hole] = false;
    inputs = {.query = draw(2),
              .key = draw(one.kv_heads),
              .value = draw(one.kv_heads),
              .heads = 2,
              .kv_heads = one.kv_heads,
              .rule = one.rule,
              .mask = mask,
              .dropout = some_dropout(0.2),
              .layout = layout.get()};
    gradient = draw(2);
  }
};

// Tiles of one and several blocks, partly empty ones, and ones that a rule skips. A query whose
// keys are all masked gives zeros. What is rounded to 16 bits: probabilities and their gradients
// besides the results.
TEST_F(CudaKernels, AttendInTilesAsTheCpu) {
  const TiledCase cases[] = {{"one tile", {39}, 64, 2, {}},
                             {"tiles", {130}, 32, 2, {}},
                             {"causal", {90}, 64, 1, {.causal = true, .scale = 0.3}},
                             {"window", {140}, 32, 1, {.causal = true, .window = 20}},
                             {"windows on both sides", {200}, 32, 2, {.window = 9}},
                             {"sequences", {1, 70, 8}, 64, 2, {}},
                             {"causal sequences", {8, 66, 1}, 32, 1, {.causal = true}},
                             {"sinks", {90}, 64, 1, {.causal = true, .window = 20}},
                             {"sinks of sequences", {8, 66, 1}, 32, 2, {.causal = true}}};
  for (const TiledCase& one : cases) {
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      SCOPED_TRACE(one.name);
      const TiledInputs made(one, type);
      ASSERT_TRUE(cuda::has_tiles(made.inputs));
      const bool has_sinks = std::string_view(one.name).starts_with("sinks");
      // The gradient of a sink is a sum over all rows.
      const double rounding = (type == at::kHalf ? 0x1p-10 : 0x1p-7) * (has_sinks ? 2 : 1);
      expect_like_cpu(rounding, [&](const Kernels& k) -> Tensors {
        const bool is_cpu = &k == &cpu::kKernels;
        const at::ScalarType wide = is_cpu ? at::kFloat : type;
        Attention inputs = made.inputs;
        inputs.query = inputs.query.to(wide, false, true);
        inputs.key = inputs.key.to(wide, false, true);
        inputs.value = inputs.value.to(wide, false, true);
        const Tensor gradient = made.gradient.to(wide);
        if (has_sinks) {
          inputs.sinks = at::tensor(at::ArrayRef<float>{0.5F, 3.0F});
          inputs.of_sinks = at::zeros({inputs.samples(), 2});
        }
        const auto of_sinks = [&] {
          return inputs.sinks.defined() ? inputs.of_sinks.sum(0) : at::zeros({1});
        };
        if (is_cpu) {
          const Tensor context = k.attention(inputs);
          k.attention_backward(inputs, gradient);
          return {context, inputs.query, inputs.key, inputs.value, of_sinks()};
        }
        const Attended forward = cuda::tiled_attention(inputs);
        const AttendedGradients back = cuda::tiled_attention_backward(inputs, forward, gradient);
        return {forward.context, back.query, back.key, back.value, of_sinks()};
      });
    }
  }
}

struct BlockCaseOnDevice {
  int64_t tokens;
  int64_t block_size;
  int64_t samples;
  bool like_transformers;
};

// Every number of values that a thread holds; ragged ends, masks, blocks that are seen twice.
TEST_F(CudaKernels, AttendToBlocksAsTheCpu) {
  for (const BlockCaseOnDevice& one : std::initializer_list<BlockCaseOnDevice>{
           {150, 8, 2, false}, {160, 16, 2, true}, {700, 64, 1, false}, {1100, 64, 1, false}}) {
    SCOPED_TRACE(one.tokens);
    const std::vector<int64_t> sizes = {one.samples, one.tokens, 24};
    const Tensor query = at::randn(sizes);
    const Tensor key = at::randn(sizes);
    const Tensor value = at::randn(sizes);
    const Tensor gradient = at::randn(sizes);
    Tensor mask = at::ones({one.samples, 1, 1, one.tokens}, at::kBool);
    mask[0].narrow(-1, one.tokens - 11, 9).fill_(false);
    const BlockSparseOptions options = {.block_size = one.block_size,
                                        .random_blocks = 2,
                                        .seed = 11,
                                        .like_transformers = one.like_transformers};
    const BlockLayer layer = {
        .layer = 1,
        .heads = 2,
        .dropout_probability = 0.2,
        .dropout = DropoutStream{.seed = 5, .update = 9, .first_position = 30}};
    expect_like_cpu(4 * kClose, [&](const Kernels& k) -> Tensors {
      const BlockAttention inputs =
          make_block_attention(query.clone(), key.clone(), value.clone(), mask, layer, options);
      const BlockContext forward = k.block_attention(inputs);
      k.block_attention_backward(inputs, forward, gradient);
      return {forward.context, inputs.query, inputs.key, inputs.value};
    });
  }
}

// More scores than are computed at a time.
TEST_F(CudaKernels, AttendInSeveralParts) {
  const std::vector<int64_t> lengths = {900, 1, 1020, 880};
  const auto layout = make_token_layout(lengths, 1020, c10::Device(c10::kCPU));
  const int64_t tokens = layout->tokens();
  const Tensor rows = at::randn({3, 1, tokens, 32});
  expect_like_cpu(4 * kClose, [&](const Kernels& k) -> Tensors {
    return {k.attention({.query = rows[0],
                         .key = rows[1],
                         .value = rows[2],
                         .heads = 8,
                         .mask = {},
                         .dropout = some_dropout(0.2),
                         .layout = layout.get()})};
  });
}

TEST_F(CudaKernels, CountLossesAsTheCpu) {
  const Tensor logits = at::randn({6, 1000}) * 10;
  const Tensor labels = at::randint(1000, {6}, at::kLong);
  const Tensor bias = at::randn({1000});
  for (const double smoothing : {0.0, 0.1}) {
    expect_like_cpu(2 * kClose, [&](const Kernels& k) -> Tensors {
      const Tensor gradient = logits.clone();
      const SoftmaxCrossEntropyOptions options{.label_smoothing_factor = smoothing,
                                               .gradient_scale = 0.25,
                                               .bias = smoothing > 0 ? bias : Tensor()};
      const Tensor losses = k.softmax_cross_entropy_(gradient, labels, options);
      return {losses, gradient};
    });
  }
}

TEST_F(CudaKernels, AddRowsInTheCpusOrder) {
  const Tensor rows = at::randn({200, 10});
  const Tensor indices = at::randint(17, {200}, at::kLong);
  const Tensor start = at::randn({20, 10});
  expect_like_cpu(kEqualBits, [&](const Kernels& k) -> Tensors {
    const Tensor added = start.clone();
    const Tensor summed = at::zeros({20, 10});
    k.add_rows(added, indices, rows, 3);
    k.add_rows(added, indices.narrow(0, 7, 1), rows.narrow(0, 7, 1), 3);  // not sorted
    k.sum_rows(summed, indices, rows);
    return {added, summed};
  });
}

// Runs of many rows, by parts: another order than the CPU's.
TEST_F(CudaKernels, AddLongRunsOfRows) {
  const Tensor rows = at::randn({1500, 70});
  const Tensor start = at::randn({20, 70});
  for (const int64_t few : {1, 3, 17}) {
    const Tensor indices = at::randint(few, {1500}, at::kLong);
    expect_like_cpu(20 * kClose, [&](const Kernels& k) -> Tensors {
      const Tensor added = start.clone();
      k.add_rows(added, indices, rows, 2);
      return {added};
    });
  }
}

// Of every type, aligned rows and others, more of them than a launch takes.
TEST_F(CudaKernels, SumRowsAsTheCpu) {
  Tensors rows;
  for (const int64_t columns : {4, 70, 1030}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      rows.push_back(at::randn({600, columns}).to(type));
    }
  }
  expect_like_cpu(4 * kClose, [&](const Kernels& k) {
    Tensors sums;
    std::vector<PartialSums> parts;
    for (int i = 0; i < 80; ++i) {
      const Tensor sum = k.sums_of_rows({rows[static_cast<size_t>(i) % rows.size()]}).front();
      sums.push_back(at::ones({sum.size(-1)}) * i);
      if (sum.dim() == 1) sums.back().add_(sum);
      if (sum.dim() == 2) parts.push_back({.target = sums.back(), .parts = sum, .key = {}});
    }
    k.add_partial_sums(parts);
    return sums;
  });
}

// Matrices of one shape, more than a launch takes, to the bits of single ones; one is not
// contiguous, one begins between the addresses of aligned rows.
TEST_F(CudaKernels, SumRowsOfAListToTheBitsOfSingleMatrices) {
  for (const int64_t columns : {72, 1030}) {
    for (const at::ScalarType type : {at::kFloat, at::kHalf}) {
      Tensors matrices;
      for (int i = 0; i < 19; ++i) matrices.push_back(at::randn({300, columns}).to(type));
      matrices[3] = at::randn({columns, 300}).to(type).t();
      matrices[7] = at::randn({300 * columns + 1}).to(type).narrow(0, 1, 300 * columns);
      matrices[7] = matrices[7].view({300, columns});
      const Tensors sums = cuda::kKernels.sums_of_rows(matrices);
      ASSERT_EQ(sums.size(), matrices.size());
      for (size_t i = 0; i < sums.size(); ++i) {
        const Tensor single = cuda::kKernels.sums_of_rows({matrices[i]}).front();
        EXPECT_TRUE(same_content(sums[i], single)) << i;
        EXPECT_TRUE(at::allclose(sums[i].sum(0), matrices[i].to(at::kFloat).sum(0), 1e-4, 1e-4));
      }
    }
  }
}

// Into bfloat16 with the numbers that the CPU rounds with; parts whose sum has one order.
TEST_F(CudaKernels, RoundSumsOfRowsAsTheCpu) {
  const Tensor parts = at::randn({2, 70});
  const Tensor start = at::randn({70}).to(at::kBFloat16);
  expect_like_cpu(kEqualBits, [&](const Kernels& k) -> Tensors {
    const Tensor target = start.clone();
    k.add_partial_sums({{.target = target, .parts = parts, .key = {.key = 99}}});
    return {target};
  });
}

// The store's way on the CPU: sums of each index first, rounded one index after the other.
TEST_F(CudaKernels, RoundAddedRowsAsTheCpu) {
  const Tensor rows = at::randn({200, 10});
  const Tensor indices = at::randint(17, {200}, at::kLong);
  const Tensor start = at::randn({20, 10}).to(at::kBFloat16);
  const RoundingStream stream{.seed = 5, .update = 3, .first_position = 16};
  const auto gradient_of = [&](ParameterStore& store) {
    const Weight weight = store.weight("w");
    store.gradients().begin_micro_batch(stream);
    store.gradients().add(weight, start.to(at::kFloat));
    store.gradients().add_to_indexed_rows(weight, indices, rows, /*skipped=*/3);
    return store.parameters()[0].gradient;
  };
  ParameterStore store({{"w", at::zeros({20, 10})}}, WeightFormat::kFloat32,
                       GradientFormat::kBFloat16);
  const Tensor expected = gradient_of(store);

  ParameterStore own({{"w", at::zeros({20, 10})}}, WeightFormat::kFloat32,
                     GradientFormat::kBFloat16);
  own.gradients().begin_micro_batch(stream);
  own.gradients().add(own.weight("w"), start.to(at::kFloat));
  const Tensor actual = own.parameters()[0].gradient;
  const uint64_t key =
      random::make_key(random::mix(stream.seed ^ random::mix(static_cast<uint64_t>(stream.update))),
                       random::Purpose::kGradientRounding,
                       static_cast<uint64_t>(stream.first_position) << 16 | 1, 0);
  ASSERT_TRUE(cuda::kKernels.add_rows_stochastically(actual, indices, rows, 3, {.key = key}));
  EXPECT_TRUE(same_content(actual, expected));
  EXPECT_FALSE(cpu::kKernels.add_rows_stochastically(actual, indices, rows, 3, {.key = key}));
}

TEST_F(CudaKernels, SumSquaresOfListsOfTwoTypes) {
  const Tensors tensors = {at::randn({40001}), at::randn({0}), at::randn({3, 7}),
                           at::randn({5000}).to(at::kBFloat16)};
  const double expected = cpu::kKernels.sum_of_all_squares(tensors);
  const double sum = cuda::kKernels.sum_of_all_squares(tensors);
  EXPECT_NEAR(sum, expected, kClose * expected);
  cuda_on_cpu::set_thread_order(77);
  EXPECT_EQ(cuda::kKernels.sum_of_all_squares(tensors), sum);
  const Tensor broken = at::randn({100});
  broken[99] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(std::isfinite(cuda::kKernels.sum_of_squares(broken)));
}

struct UpdateCase {
  at::ScalarType weight;
  bool is_split;
  at::ScalarType gradient;
};

// Compares weights, corrections, codes and scales after some updates of parameters of several
// sizes.
TEST_F(CudaKernels, UpdateEveryFormatToTheCpusBits) {
  const UpdateCase cases[] = {
      {at::kFloat, false, at::kFloat},    {at::kFloat, false, at::kBFloat16},
      {at::kBFloat16, false, at::kFloat}, {at::kBFloat16, false, at::kBFloat16},
      {at::kBFloat16, true, at::kFloat},  {at::kBFloat16, true, at::kBFloat16}};
  for (const UpdateCase& one : cases) {
    for (const int64_t count : {1, 130, 2048 * 2 + 389}) {
      const Tensor start = at::randn({count});
      const Tensor gradient = at::randn({count}).to(one.gradient);
      if (count > 100) gradient[100] = std::numeric_limits<float>::infinity();
      for (int state = 0; state < 3; ++state) {
        if (state != 0 && count > 100) gradient[100] = 1.0;  // only the dynamic state skips it
        expect_like_cpu(kEqualBits, [&](const Kernels& k) -> Tensors {
          ParameterTensors parameter{.weight = start.to(one.weight, false, true)};
          parameter.gradient = gradient;
          if (one.is_split) parameter.correction = at::zeros({count}, at::kChar);
          const auto blocks = [&](int64_t block) { return at::zeros({(count - 1) / block + 1}); };
          const auto codes = [&](at::ScalarType type) { return at::zeros({count}, type); };
          const DynamicState dynamic = {codes(at::kByte), codes(at::kByte), blocks(kDynamicBlock),
                                        blocks(kDynamicBlock)};
          const CompandedState companded = {codes(at::kChar), blocks(kCompandedGroup),
                                            codes(at::kByte), blocks(kCompandedGroup)};
          const WideState wide = {codes(at::kFloat), codes(at::kFloat)};
          const AdamWUpdate update{.factor = 0.5, .rounding_key = 8};
          for (int t = 0; t < 3; ++t) {
            if (state == 0) k.update_dynamic(parameter, dynamic, update, kTheirNumbers);
            if (state == 1) k.update_wide(parameter, wide, update, kTheirNumbers);
            if (state == 2) k.update_companded(parameter, companded, update, kOurNumbers);
          }
          Tensors result = {parameter.weight,
                            dynamic.state1,
                            dynamic.state2,
                            dynamic.absmax1,
                            dynamic.absmax2,
                            companded.exp_avg,
                            wide.state1,
                            wide.state2,
                            companded.exp_avg_scale,
                            companded.exp_avg_sq,
                            companded.exp_avg_sq_scale};
          if (one.is_split) result.push_back(parameter.correction);
          return result;
        });
      }
    }
  }
}

int counted_launches = 0;

// One launch updates all parameters with the same formats and gives the bits of single updates.
TEST_F(CudaKernels, UpdateAListInOneLaunch) {
  static const cuda::Runner counting = {.address = cuda_on_cpu::cpu_runner().address,
                                        .launch =
                                            [](const cuda::KernelLaunch& launch) {
                                              ++counted_launches;
                                              tested_runner().launch(launch);
                                            },
                                        .is_host = true};
  cuda::set_runner(&counting);
  std::vector<ParameterTensors> together;
  std::vector<ParameterTensors> single;
  std::vector<AdamWJob> jobs;
  for (const int64_t count : {70, 5000, 3}) {
    const ParameterTensors parameter{.weight = at::randn({count}), .gradient = at::randn({count})};
    together.push_back(parameter);
    single.push_back(parameter);
    single.back().weight = parameter.weight.clone();
  }
  const auto job_of = [](const ParameterTensors& parameter) -> AdamWJob {
    return {.parameter = &parameter,
            .state = WideState{at::zeros_like(parameter.weight), at::zeros_like(parameter.weight)},
            .factor = 0.5,
            .theirs = kTheirNumbers};
  };
  for (const ParameterTensors& parameter : together) jobs.push_back(job_of(parameter));
  counted_launches = 0;
  ASSERT_TRUE(cuda::kKernels.update_together(jobs));
  EXPECT_EQ(counted_launches, 1);
  for (size_t i = 0; i < single.size(); ++i) {
    const WideState state{at::zeros_like(single[i].weight), at::zeros_like(single[i].weight)};
    cpu::kKernels.update_wide(single[i], state, {.factor = 0.5}, kTheirNumbers);
    EXPECT_TRUE(same_content(together[i].weight, single[i].weight)) << i;
  }
}

// --- the test runner on the CPU ---

// A block sum without the barrier between writing and reading.
void sum_without_barrier(const void* arguments) {
  __shared__ int values[64];
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  int sum = 0;
  for (unsigned i = 0; i < blockDim.x; ++i) sum += values[i];
  static_cast<int*>(const_cast<void*>(arguments))[threadIdx.x] = sum;
}

void leave_before_a_barrier(const void* /*arguments*/) {
  if (threadIdx.x == 21) return;
  __syncthreads();
}

void leave_before_an_exchange(const void* arguments) {
  if (threadIdx.x == 21) return;
  static_cast<float*>(const_cast<void*>(arguments))[0] = __shfl_xor_sync(0xFFFFFFFFU, 1.0F, 1);
}

TEST(CudaOnCpu, FindsPlantedFaults) {
  int ascending[64] = {};
  int reordered[64] = {};
  cuda_on_cpu::run(sum_without_barrier, ascending, {1}, {64}, 0);
  cuda_on_cpu::run(sum_without_barrier, reordered, {1}, {64}, 77);
  EXPECT_NE(std::memcmp(ascending, reordered, sizeof(ascending)), 0) << "a missing barrier";
  EXPECT_THROW(cuda_on_cpu::run(leave_before_a_barrier, nullptr, {1}, {64}, 0), std::runtime_error);
  float result = 0;
  EXPECT_THROW(cuda_on_cpu::run(leave_before_an_exchange, &result, {1}, {32}, 0),
               std::runtime_error);
}

TEST(CudaSources, ContainEveryListedKernel) {
  for (const cuda::ListedKernel& kernel : cuda::listed_kernels()) {
    const std::string program = cuda::program_of(kernel, kernel.types.front(), kernel.variants - 1);
    EXPECT_NE(program.find(std::string("void ") + kernel.name + "("), std::string::npos);
    EXPECT_NE(program.find(std::string(kernel.arguments) + " arguments"), std::string::npos);
  }
}

}  // namespace
}  // namespace finetune::kernels
