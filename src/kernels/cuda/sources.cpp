// SPDX-License-Identifier: MIT
#include "kernels/cuda/sources.h"

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/text.h"

namespace finetune::kernels::cuda {
namespace {

// kHeaderFiles and kKernelFiles, made by CMake from device/.
#include "kernels/cuda_sources.inc"

const std::vector<ValueType> kEveryType = {ValueType::kFloat32, ValueType::kBFloat16,
                                           ValueType::kFloat16};
const std::vector<ValueType> kFloat32 = {ValueType::kFloat32};
const std::vector<ValueType> kFloat32OrBFloat16 = {ValueType::kFloat32, ValueType::kBFloat16};

const char* name_of(ValueType type) {
  switch (type) {
    case ValueType::kFloat32:
      return "float";
    case ValueType::kBFloat16:
      return "bfloat16";
    case ValueType::kFloat16:
      return "float16";
  }
  return "";
}

std::string text_of(const ListedKernel& kernel) {
  const std::string name = std::string("kernels/cuda/device/") + kernel.source + ".cu";
  const auto file =
      std::ranges::find_if(kKernelFiles, [&](const SourceFile& f) { return f.name == name; });
  FT_CHECK(file != std::end(kKernelFiles), "the source of a listed kernel is in device/");
  return file->text;
}

// Its argument stays where the driver put it, so that an index into it is no copy to the stack.
std::string entry_of(const ListedKernel& kernel, const std::string& entry, ValueType type,
                     int variant) {
  return format_text(
      "\nextern \"C\" __global__ void __launch_bounds__(finetune::kernels::cuda::kThreads)\n"
      "{}(const __grid_constant__ finetune::kernels::cuda::{} arguments) {{\n"
      "  using namespace finetune::kernels::cuda;\n"
      "  {}<{}, {}>(arguments);\n"
      "}}\n",
      entry, kernel.arguments, kernel.name, name_of(type), variant);
}

}  // namespace

const std::vector<SourceFile>& header_files() {
  static const std::vector<SourceFile> files(std::begin(kHeaderFiles), std::end(kHeaderFiles));
  return files;
}

const std::vector<ListedKernel>& listed_kernels() {
  static const std::vector<ListedKernel> kernels = {
#define FINETUNE_CUDA_KERNEL(source, kernel, Arguments, types, variants) \
  {#source, #kernel, #Arguments, types, variants},
#include "kernels/cuda/device/kernels.def"
  };
  return kernels;
}

const ListedKernel& find_kernel(std::string_view name) {
  const auto found = std::ranges::find_if(
      listed_kernels(), [&](const ListedKernel& kernel) { return kernel.name == name; });
  FT_CHECK(found != listed_kernels().end(), "kernels are listed in kernels.def");
  return *found;
}

std::string program_of(const ListedKernel& kernel, ValueType type, int variant) {
  return text_of(kernel) + entry_of(kernel, kEntry, type, variant);
}

std::string program_of_all(const ListedKernel& kernel) {
  std::string text = text_of(kernel);
  int entry = 0;
  for (const ValueType type : kernel.types) {
    for (int variant = 0; variant < kernel.variants; ++variant) {
      text += entry_of(kernel, "entry_" + std::to_string(entry++), type, variant);
    }
  }
  return text;
}

}  // namespace finetune::kernels::cuda
