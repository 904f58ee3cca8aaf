// SPDX-License-Identifier: MIT
#include "kernels/cuda/nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "finetune/base/file_system.h"
#include "kernels/cuda/sources.h"

namespace finetune::kernels::cuda {
namespace {

// Declarations of nvrtc.h from CUDA 12 and 13.
struct NvrtcProgram;
using NvrtcResult = int;
using CreateProgram = NvrtcResult(NvrtcProgram**, const char*, const char*, int, const char* const*,
                                  const char* const*);
using DestroyProgram = NvrtcResult(NvrtcProgram**);
using CompileProgram = NvrtcResult(NvrtcProgram*, int, const char* const*);
using GetSize = NvrtcResult(NvrtcProgram*, size_t*);
using GetText = NvrtcResult(NvrtcProgram*, char*);
using GetErrorString = const char*(NvrtcResult);

std::vector<const char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<const char*> pointers;
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  return pointers;
}

// Loads NVRTC's built-in functions first: NVRTC opens them by file name only, and that of CUDA 13.0
// does not search its own folder.
void load_builtins(const std::string& folder) {
  FileSystem& files = FileSystem::local();
  if (files.type(folder) != FileType::kDirectory) return;
  for (const std::string& name : files.list(folder)) {
    if (!name.starts_with("libnvrtc-builtins.so.")) continue;
    ::dlopen(join_path(folder, name).c_str(), RTLD_NOW | RTLD_LOCAL);
  }
}

void* load(const std::string& path) {
  load_builtins(parent_path(path));
  return ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

template <typename Function>
Function* Nvrtc::find(const char* name) const {
  void* const function = ::dlsym(library_, name);
  if (function == nullptr) throw std::runtime_error(std::string("NVRTC has no ") + name);
  return reinterpret_cast<Function*>(function);
}

Nvrtc::Nvrtc(const std::string& path) : library_(load(path)) {
  if (library_ == nullptr) throw std::runtime_error(::dlerror());
  int major = 0;
  int minor = 0;
  find<NvrtcResult(int*, int*)>("nvrtcVersion")(&major, &minor);
  version_ = std::to_string(major) + "." + std::to_string(minor);
}

std::vector<int> Nvrtc::architectures() const {
  int count = 0;
  find<NvrtcResult(int*)>("nvrtcGetNumSupportedArchs")(&count);
  std::vector<int> known(static_cast<size_t>(count));
  find<NvrtcResult(int*)>("nvrtcGetSupportedArchs")(known.data());
  return known;
}

Nvrtc::Result Nvrtc::compile(const std::string& program, const std::string& name,
                             const std::vector<std::string>& options, bool to_ptx) const {
  const auto check = [&](NvrtcResult result, const std::string& log) {
    if (result == 0) return;
    throw std::runtime_error("NVRTC " + version_ + " cannot compile " + name + ": " +
                             find<GetErrorString>("nvrtcGetErrorString")(result) +
                             (log.empty() ? "" : "\n" + log));
  };
  std::vector<const char*> texts;
  std::vector<const char*> names;
  for (const SourceFile& header : header_files()) {
    texts.push_back(header.text);
    names.push_back(header.name);
  }
  NvrtcProgram* created = nullptr;
  check(find<CreateProgram>("nvrtcCreateProgram")(&created, program.c_str(), name.c_str(),
                                                  static_cast<int>(names.size()), texts.data(),
                                                  names.data()),
        "");
  const auto destroy = [this](NvrtcProgram* one) {
    find<DestroyProgram>("nvrtcDestroyProgram")(&one);
  };
  const std::unique_ptr<NvrtcProgram, decltype(destroy)> owner(created, destroy);
  const std::vector<const char*> words = pointers_to(options);
  const NvrtcResult compiled = find<CompileProgram>("nvrtcCompileProgram")(
      created, static_cast<int>(words.size()), words.data());
  const auto read = [&](const char* size_of, const char* text_of) {
    size_t size = 0;
    check(find<GetSize>(size_of)(created, &size), "");
    std::string text(size, '\0');
    check(find<GetText>(text_of)(created, text.data()), "");
    return text;
  };
  std::string log = read("nvrtcGetProgramLogSize", "nvrtcGetProgramLog");
  while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
  check(compiled, log);
  return {
      to_ptx ? read("nvrtcGetPTXSize", "nvrtcGetPTX") : read("nvrtcGetCUBINSize", "nvrtcGetCUBIN"),
      log};
}

CompileTarget target_of(int architecture, const std::vector<int>& known) {
  // SASS also runs on later GPUs of the same major version.
  int best = 0;
  for (const int one : known) {
    if (one <= architecture && one / 10 == architecture / 10) best = std::max(best, one);
  }
  if (best != 0) return {"--gpu-architecture=sm_" + std::to_string(best), false};
  for (const int one : known) {
    if (one <= architecture) best = std::max(best, one);
  }
  if (best == 0) {
    throw std::runtime_error("NVRTC knows no architecture as old as sm_" +
                             std::to_string(architecture));
  }
  return {"--gpu-architecture=compute_" + std::to_string(best), true};
}

const std::vector<std::string>& compile_options() {
  static const std::vector<std::string> options = {"--std=c++17", "--fmad=false"};
  return options;
}

std::vector<std::string> nvrtc_beside(const std::string& cudart) {
  FileSystem& files = FileSystem::local();
  const std::string beside = parent_path(cudart);
  const std::string packages = parent_path(parent_path(beside));
  std::vector<std::string> found;
  for (const std::string& folder : {beside, join_path(join_path(packages, "cuda_nvrtc"), "lib")}) {
    if (files.type(folder) != FileType::kDirectory) continue;
    for (const std::string& name : files.list(folder)) {
      if (name.starts_with("libnvrtc.so.")) found.push_back(join_path(folder, name));
    }
  }
  return found;
}

}  // namespace finetune::kernels::cuda
