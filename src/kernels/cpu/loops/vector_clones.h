// SPDX-License-Identifier: MIT
#pragma once

// Marks plain loops that the compiler clones for three generations of x86; the loader picks one at
// startup. They are compiled without contraction to fused multiply-add, so that all clones give the
// same bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FT_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FT_CLONES
#endif

// For functions that clones call: inlined, so that they are compiled for the clone's processor.
#define FT_INLINE inline __attribute__((always_inline))
