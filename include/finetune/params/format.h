// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

#include "finetune/kernels/parameter_tensors.h"
#include "finetune/tensor/tensor.h"

namespace finetune {

// Storage format of a parameter's values.
enum class WeightFormat {
  kFloat32,   // 4 bytes a value
  kBFloat16,  // 2 bytes; updates are rounded stochastically
  kSplit,     // 3 bytes: bfloat16 and an int8 correction, 24 bits in all (FlashOptim, section 3)
  // Of frozen weights alone:
  kFloat16,    // 2 bytes
  kNf4,        // 4.5 bits (QLoRA), as bitsandbytes quantises: codes and a scale for 64 of them
  kNf4Nested,  // with scales that bitsandbytes' double quantisation would keep
  // 4.25 bits (kernels/mxfp4.h): stacks of matrices [E, in, out], stored as files have them, [E,
  // out, in]. Not assigned to: there is no rounding to it.
  kMxfp4,
};
enum class GradientFormat {
  kFloat32,
  kBFloat16,  // 2 bytes; sums are rounded stochastically
};

// What a format of weights is (`sizes`: the logical shape): one row of the table in
// params/format.cpp, which is all that knows it besides the kernels that compute in it (the
// optimizers' updates).
struct WeightFormatTraits {
  const char* name;         // as in the keys param_dtype and dtype
  const char* description;  // in sentences: "split (bfloat16 and int8)"
  double bytes;             // of a value
  at::ScalarType type;      // of ParameterTensors::weight
  bool has_correction;      // whether ParameterTensors::correction is part of the values
  // Returns tensors of this shape with memory that is not initialised.
  ParameterTensors (*allocate)(c10::IntArrayRef sizes, c10::Device device);
  // Sets all values, rounded to the nearest; `values` of any floating type. Conversion needs
  // temporary memory of bounded size only.
  void (*assign)(const ParameterTensors& stored, const Tensor& values);
  // Returns rows [first, first + count) in float32: a view where nothing needs to be unpacked.
  Tensor (*rows)(const ParameterTensors& stored, c10::IntArrayRef sizes, int64_t first,
                 int64_t count);
  // The rows of these indices [...] int64 in float32: [..., C].
  Tensor (*gather)(const ParameterTensors& stored, const Tensor& indices);
  // Returns all values in this type. Only of formats that are there to save memory: what they are
  // converted to is not kept for the next product.
  Tensor (*unpack)(const ParameterTensors& stored, c10::IntArrayRef sizes,
                   at::ScalarType type) = nullptr;
};
[[nodiscard]] const WeightFormatTraits& traits_of(WeightFormat format);

[[nodiscard]] inline const char* name_of(WeightFormat format) { return traits_of(format).name; }

// Bytes of a value, and the name in the key grad_accum_dtype.
[[nodiscard]] int64_t bytes_of(GradientFormat format);
[[nodiscard]] const char* name_of(GradientFormat format);
[[nodiscard]] at::ScalarType type_of(GradientFormat format);

}  // namespace finetune
