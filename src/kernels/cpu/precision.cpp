// SPDX-License-Identifier: MIT
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernels/cpu/operations.h"

namespace finetune::kernels::cpu {
namespace {

#if defined(__x86_64__)
// Asks the processor itself, because clang's __builtin_cpu_supports knows the name only from
// version 17 on.
bool has_avx512_fp16() {
  unsigned int a = 0;
  unsigned int b = 0;
  unsigned int c = 0;
  unsigned int d = 0;
  constexpr unsigned int kFp16 = 1U << 23U;
  return __builtin_cpu_supports("avx512f") != 0 && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 &&
         (d & kFp16) != 0;
}
#endif

}  // namespace

bool has_fast_products(Precision precision) {
#if defined(__x86_64__)
  // Every processor with AMX for a type also has its AVX512 instructions.
  return precision == Precision::kBFloat16 ? __builtin_cpu_supports("avx512bf16") != 0
                                           : has_avx512_fp16();
#else
  return false;
#endif
}

}  // namespace finetune::kernels::cpu
