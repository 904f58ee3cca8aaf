// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/runner.h"

// The files of device/, compiled into the binary as text. Torch-free.
namespace finetune::kernels::cuda {

struct SourceFile {
  const char* name;  // as it is included
  const char* text;
};

// A row of device/kernels.def.
struct ListedKernel {
  const char* source;  // name of its file in device/, without ".cu"
  const char* name;
  const char* arguments;
  std::vector<ValueType> types;
  int variants;
};

[[nodiscard]] const std::vector<SourceFile>& header_files();
[[nodiscard]] const std::vector<ListedKernel>& listed_kernels();
[[nodiscard]] const ListedKernel& find_kernel(std::string_view name);

// Returns the name of a program's entry, which profilers show: "finetune_rms_norm".
[[nodiscard]] std::string entry_name(const ListedKernel& kernel);
// Returns a program for NVRTC whose only entry is the kernel for one type and variant.
[[nodiscard]] std::string program_of(const ListedKernel& kernel, ValueType type, int variant);
// Returns one with an entry for every type and variant: entry_0, entry_1, ... For tests.
[[nodiscard]] std::string program_of_all(const ListedKernel& kernel);

}  // namespace finetune::kernels::cuda
