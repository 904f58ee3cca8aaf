// SPDX-License-Identifier: MIT
#include "finetune/base/uncached_copy.h"

#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace finetune {

#ifdef __SSE2__

void uncached_copy(void* target, const void* source, size_t bytes) {
  constexpr size_t kVector = sizeof(__m128i);
  constexpr size_t kLine = 4 * kVector;
  auto* to = static_cast<char*>(target);
  const auto* from = static_cast<const char*>(source);
  const size_t head = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
  if (bytes < head + kLine) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  size_t done = head;
  for (; done + kLine <= bytes; done += kLine) {
    __m128i line[4];
    std::memcpy(line, from + done, kLine);
    auto* const out = reinterpret_cast<__m128i*>(to + done);
    for (int i = 0; i < 4; ++i) _mm_stream_si128(out + i, line[i]);
  }
  _mm_sfence();
  std::memcpy(to + done, from + done, bytes - done);
}

#else

void uncached_copy(void* target, const void* source, size_t bytes) {
  std::memcpy(target, source, bytes);
}

#endif

}  // namespace finetune
