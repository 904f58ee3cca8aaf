// SPDX-License-Identifier: MIT
#include "cuda_on_cpu/kernels.h"

#include <map>
#include <tuple>
#include <utility>

#include "cuda_on_cpu/cuda_on_cpu.h"
//
#include "kernels/cuda/device/adamw.cu"
#include "kernels/cuda/device/adapter_products.cu"
#include "kernels/cuda/device/add_norm.cu"
#include "kernels/cuda/device/attention_rows.cu"
#include "kernels/cuda/device/bias_gelu.cu"
#include "kernels/cuda/device/block_rows.cu"
#include "kernels/cuda/device/column_sums.cu"
#include "kernels/cuda/device/cross_entropy.cu"
#include "kernels/cuda/device/delta_rule.cu"
#include "kernels/cuda/device/dropout.cu"
#include "kernels/cuda/device/formats.cu"
#include "kernels/cuda/device/gated_product.cu"
#include "kernels/cuda/device/heads.cu"
#include "kernels/cuda/device/nf4.cu"
#include "kernels/cuda/device/rms_norm.cu"
#include "kernels/cuda/device/rotate_heads.cu"
#include "kernels/cuda/device/row_sums.cu"
#include "kernels/cuda/device/short_convolution.cu"
#include "kernels/cuda/device/sum_of_squares.cu"
#include "kernels/cuda/device/tiled_attention.cu"
#include "kernels/cuda/device/xielu.cu"

namespace cuda_on_cpu {
namespace {

namespace device = finetune::kernels::cuda;
using finetune::kernels::cuda::ValueType;
using Call = void (*)(const void* arguments);
using Calls = std::map<std::tuple<std::string, ValueType, int>, Call>;

unsigned thread_order = 0;

template <class T>
constexpr ValueType kTypeOf = ValueType::kFloat32;
template <>
constexpr ValueType kTypeOf<device::bfloat16> = ValueType::kBFloat16;
template <>
constexpr ValueType kTypeOf<device::float16> = ValueType::kFloat16;

// The types of kernels.def.
template <class... Ts>
struct Types {};
constexpr Types<float, device::bfloat16, device::float16> kEveryType;
constexpr Types<float> kFloat32;
constexpr Types<float, device::bfloat16> kFloat32OrBFloat16;
constexpr Types<device::bfloat16, device::float16> k16Bits;

template <class Arguments, class T, class Kernel, int... kVariants>
void add_variants(Calls& calls, const char* name, Kernel,
                  std::integer_sequence<int, kVariants...>) {
  (calls.emplace(std::tuple(name, kTypeOf<T>, kVariants),
                 [](const void* arguments) {
                   Kernel().template operator()<T, kVariants>(
                       *static_cast<const Arguments*>(arguments));
                 }),
   ...);
}

template <class Arguments, int kVariants, class Kernel, class... Ts>
void add(Calls& calls, const char* name, Types<Ts...>, Kernel kernel) {
  (add_variants<Arguments, Ts>(calls, name, kernel, std::make_integer_sequence<int, kVariants>()),
   ...);
}

const Calls& calls() {
  static const Calls calls = [] {
    Calls made;
#define FINETUNE_CUDA_KERNEL(source, kernel, Arguments, types, variants) \
  add<device::Arguments, variants>(                                      \
      made, #kernel, types,                                              \
      []<class T, int kVariant>(const device::Arguments& a) { device::kernel<T, kVariant>(a); });
#include "kernels/cuda/device/kernels.def"
    return made;
  }();
  return calls;
}

}  // namespace

void run_on_cpu(const finetune::kernels::cuda::KernelLaunch& launch) {
  const auto call = calls().find(std::tuple(launch.kernel, launch.type, launch.variant));
  if (call == calls().end() || launch.threads % 32 != 0 || launch.threads > device::kThreads ||
      launch.blocks_y > 65535) {
    throw std::runtime_error(std::string("this launch of ") + launch.kernel + " is not listed");
  }
  run(call->second, launch.arguments,
      {static_cast<unsigned>(launch.blocks_x), static_cast<unsigned>(launch.blocks_y)},
      {static_cast<unsigned>(launch.threads)}, thread_order);
}

void set_thread_order(unsigned order) { thread_order = order; }

const finetune::kernels::cuda::Runner& cpu_runner() {
  static const finetune::kernels::cuda::Runner runner = {
      .address = [](const void* pointer) { return const_cast<void*>(pointer); },
      .launch = run_on_cpu,
      .is_host = true};
  return runner;
}

}  // namespace cuda_on_cpu
