// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

// The conversions of finetune/kernels/formats.h over contiguous memory, without torch, so that they
// can be compiled with separate flags. bfloat16 values are passed as their bits.
namespace finetune::kernels {

// Element i of the call uses the random number of element `first_element` + i under `key`.
void round_stochastically(const float* values, uint16_t* target, int64_t count, uint64_t key,
                          uint64_t first_element);
void add_stochastically(const float* values, uint16_t* target, int64_t count, uint64_t key,
                        uint64_t first_element);

void split_values(const float* values, uint16_t* weight, int8_t* correction, int64_t count);
void join_values(const uint16_t* weight, const int8_t* correction, float* values, int64_t count);

// Both convert to float32 and multiply by `factor`.
void scale(const float* source, float factor, float* target, int64_t count);
void widen(const uint16_t* source, float factor, float* target, int64_t count);

}  // namespace finetune::kernels
