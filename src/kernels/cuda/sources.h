// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/runner.h"

// The files of device/, which are compiled into the binary as text. Torch-free.
namespace finetune::kernels::cuda {

struct SourceFile {
  const char* name;  // as sources include it
  const char* text;
};

// A kernel as device/kernels.def lists it.
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

// A program for NVRTC with one entry, kEntry, of a kernel for a type and a variant.
constexpr const char* kEntry = "entry";
[[nodiscard]] std::string program_of(const ListedKernel& kernel, ValueType type, int variant);
// With an entry for every type and variant: entry_0, entry_1, ... For tests.
[[nodiscard]] std::string program_of_all(const ListedKernel& kernel);

}  // namespace finetune::kernels::cuda
