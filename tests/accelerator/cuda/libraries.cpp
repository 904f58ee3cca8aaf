// SPDX-License-Identifier: MIT
// One library with the names and functions of libcudart, NVRTC and libcuda that the program uses,
// without a GPU. "Compiled" code is text that names the kernel, and a launch runs that kernel on
// the CPU (cuda_on_cpu/). Wrong uses get CUDA's error codes. See README.md for the variables.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cuda_on_cpu/kernels.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

// The handle of the current stream; of the pretend accelerator.
extern "C" void* pretend_current_stream();
// ../pretend/driver.cpp, which is part of this library as well.
extern "C" int cuDeviceGetAttribute(int* value, int attribute, int handle);

namespace pretend {
namespace {

using finetune::kernels::cuda::KernelLaunch;
using finetune::kernels::cuda::ValueType;

enum Result {
  kSuccess = 0,
  kInvalidValue = 1,
  kInvalidContext = 201,
  kNoBinaryForGpu = 209,
  kNotFound = 500,
};
constexpr int kNvrtcInvalidInput = 3;
constexpr int kNvrtcInvalidProgram = 4;
constexpr int kNvrtcCompilation = 6;
constexpr std::array kArchitectures = {75, 80, 86, 90, 100};

struct Program {
  std::string text;
  std::string name;
  std::string architecture;  // "sm_75"; "compute_75": PTX
  std::string log = "no messages";
};

// Code for one kernel.
struct Module {
  std::string kernel;
  ValueType type = ValueType::kFloat32;
  int variant = 0;
};

// Calls that were made, written to PRETEND_CUDA_REPORT at exit.
class Calls {
 public:
  static Calls& instance() {
    static auto* const calls = new Calls();
    return *calls;
  }
  // Counts a call. Returns the error that PRETEND_CUDA_FAULT plants here, or 0.
  int add(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const int64_t count = ++counts_[name];
    return name == fault_ && count >= at_ ? error_ : 0;
  }

  void write() {
    const std::lock_guard lock(mutex_);
    const char* const path = std::getenv("PRETEND_CUDA_REPORT");
    std::FILE* const file = path == nullptr || counts_.empty() ? nullptr : std::fopen(path, "w");
    if (file == nullptr) return;
    const char* separator = "{";
    for (const auto& [name, count] : counts_) {
      std::fprintf(file, "%s\"%s\": %ld", separator, name.c_str(), count);
      separator = ", ";
    }
    std::fprintf(file, "}\n");
    std::fclose(file);
  }

 private:
  Calls() {
    const char* const text = std::getenv("PRETEND_CUDA_FAULT");
    std::array<char, 64> name = {};
    if (text != nullptr && std::sscanf(text, "%63s %ld %d", name.data(), &at_, &error_) == 3) {
      fault_ = name.data();
    }
  }

  std::mutex mutex_;
  std::map<std::string, int64_t> counts_;
  std::string fault_;
  int64_t at_ = 0;
  int error_ = 0;
};

int primary_context = 0;
thread_local void* current_context = nullptr;

int capability() {
  int major = 0;
  int minor = 0;
  (void)cuDeviceGetAttribute(&major, 75, 0);
  (void)cuDeviceGetAttribute(&minor, 76, 0);
  return 10 * major + minor;
}

// Returns "row_sums<float, 0>" of the program's entry point.
std::string instance_of(const std::string& program) {
  const size_t end = program.rfind(">(arguments);");
  const size_t begin = end == std::string::npos ? end : program.rfind("  ", end);
  return begin == std::string::npos ? "" : program.substr(begin + 2, end + 1 - begin - 2);
}

std::string code_of(const Program& program) {
  return program.architecture + " " + instance_of(program.text);
}

bool parse_code(const char* code, std::string& architecture, Module& module) {
  std::array<char, 32> target = {};
  std::array<char, 64> kernel = {};
  std::array<char, 32> type = {};
  if (std::sscanf(code, "%31s %63[^<]<%31[^,], %d>", target.data(), kernel.data(), type.data(),
                  &module.variant) != 4) {
    return false;
  }
  architecture = target.data();
  module.kernel = kernel.data();
  const std::string_view name = type.data();
  module.type = name == "bfloat16"  ? ValueType::kBFloat16
                : name == "float16" ? ValueType::kFloat16
                                    : ValueType::kFloat32;
  return true;
}

bool runs_here(const std::string& architecture) {
  const int here = capability();
  int target = 0;
  if (std::sscanf(architecture.c_str(), "compute_%d", &target) == 1) return target <= here;
  if (std::sscanf(architecture.c_str(), "sm_%d", &target) != 1) return false;
  return target <= here && target / 10 == here / 10;
}

int copy_text(const std::string& text, char* to) {
  std::memcpy(to, text.c_str(), text.size() + 1);
  return kSuccess;
}

int size_of(const std::string& text, size_t* size) {
  *size = text.size() + 1;
  return kSuccess;
}

}  // namespace
}  // namespace pretend

using pretend::Calls;
using pretend::Module;
using pretend::Program;

// Called by the pretend accelerator when the process exits.
EXPORTED void pretend_cuda_report() { Calls::instance().write(); }

EXPORTED int nvrtcGetNumSupportedArchs(int* count) {
  *count = static_cast<int>(pretend::kArchitectures.size());
  return 0;
}

EXPORTED int nvrtcGetSupportedArchs(int* architectures) {
  std::ranges::copy(pretend::kArchitectures, architectures);
  return 0;
}

EXPORTED const char* nvrtcGetErrorString(int result) {
  return result == pretend::kNvrtcCompilation ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR";
}

EXPORTED int nvrtcCreateProgram(Program** program, const char* text, const char* name, int headers,
                                const char* const* texts, const char* const* names) {
  for (int i = 0; i < headers; ++i) {
    if (texts[i] == nullptr || names[i] == nullptr) return pretend::kNvrtcInvalidInput;
  }
  *program = new Program{.text = text, .name = name, .architecture = ""};
  return 0;
}

EXPORTED int nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return 0;
}

EXPORTED int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  constexpr std::string_view kTarget = "--gpu-architecture=";
  const std::vector<std::string> given(options, options + count);
  for (const char* needed : {"--std=c++17", "--fmad=false"}) {
    if (std::ranges::find(given, needed) == given.end()) return pretend::kNvrtcInvalidInput;
  }
  for (const std::string& option : given) {
    if (option.starts_with(kTarget)) program->architecture = option.substr(kTarget.size());
  }
  if (const int planted = Calls::instance().add("nvrtcCompileProgram")) {
    program->log = program->name + "(1): error: planted";
    return planted;
  }
  return pretend::instance_of(program->text).empty() ? pretend::kNvrtcCompilation : 0;
}

EXPORTED int nvrtcGetProgramLogSize(Program* program, size_t* size) {
  return pretend::size_of(program->log, size);
}
EXPORTED int nvrtcGetProgramLog(Program* program, char* log) {
  return pretend::copy_text(program->log, log);
}
EXPORTED int nvrtcGetCUBINSize(Program* program, size_t* size) {
  if (!program->architecture.starts_with("sm_")) return pretend::kNvrtcInvalidProgram;
  return pretend::size_of(pretend::code_of(*program), size);
}
EXPORTED int nvrtcGetCUBIN(Program* program, char* code) {
  return pretend::copy_text(pretend::code_of(*program), code);
}
EXPORTED int nvrtcGetPTXSize(Program* program, size_t* size) {
  return pretend::size_of(pretend::code_of(*program), size);
}
EXPORTED int nvrtcGetPTX(Program* program, char* code) {
  return pretend::copy_text(pretend::code_of(*program), code);
}

EXPORTED int cuInit(unsigned /*flags*/) { return 0; }

EXPORTED int cuGetErrorString(int result, const char** text) {
  static const std::map<int, const char*> kTexts = {
      {pretend::kInvalidValue, "invalid argument"},
      {pretend::kInvalidContext, "invalid device context"},
      {pretend::kNoBinaryForGpu, "no kernel image is available for execution on the device"},
      {pretend::kNotFound, "named symbol not found"},
      {700, "an illegal memory access was encountered"}};
  const auto found = kTexts.find(result);
  *text = found == kTexts.end() ? nullptr : found->second;
  return found == kTexts.end() ? pretend::kInvalidValue : 0;
}

EXPORTED int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (const int planted = Calls::instance().add("cuDevicePrimaryCtxRetain")) return planted;
  if (device != 0) return pretend::kInvalidValue;
  *context = &pretend::primary_context;
  return 0;
}

EXPORTED int cuCtxSetCurrent(void* context) {
  if (const int planted = Calls::instance().add("cuCtxSetCurrent")) return planted;
  pretend::current_context = context;
  return 0;
}

EXPORTED int cuModuleLoadData(Module** module, const void* image) {
  if (const int planted = Calls::instance().add("cuModuleLoadData")) return planted;
  if (pretend::current_context != &pretend::primary_context) return pretend::kInvalidContext;
  std::string architecture;
  Module parsed;
  if (!pretend::parse_code(static_cast<const char*>(image), architecture, parsed) ||
      !pretend::runs_here(architecture)) {
    return pretend::kNoBinaryForGpu;
  }
  *module = new Module(parsed);
  return 0;
}

// The module serves as the handle of its only function.
EXPORTED int cuModuleGetFunction(Module** function, Module* module, const char* name) {
  if (!std::string_view(name).starts_with("finetune_")) return pretend::kNotFound;
  *function = module;
  return 0;
}

EXPORTED int cuLaunchKernel(Module* function, unsigned blocks_x, unsigned blocks_y,
                            unsigned blocks_z, unsigned threads_x, unsigned threads_y,
                            unsigned threads_z, unsigned shared_bytes, void* stream,
                            void** arguments, void** extra) {
  if (const int planted = Calls::instance().add("cuLaunchKernel")) return planted;
  if (pretend::current_context != &pretend::primary_context) return pretend::kInvalidContext;
  const bool is_grid = blocks_x > 0 && blocks_x <= INT32_MAX && blocks_y > 0 && blocks_y <= 65535 &&
                       blocks_z == 1 && threads_x > 0 && threads_x <= 1024 && threads_y == 1 &&
                       threads_z == 1;
  if (!is_grid || shared_bytes != 0 || extra != nullptr || arguments == nullptr ||
      stream != pretend_current_stream()) {
    return pretend::kInvalidValue;
  }
  try {
    cuda_on_cpu::run_on_cpu({.kernel = function->kernel.c_str(),
                             .type = function->type,
                             .variant = function->variant,
                             .blocks_x = blocks_x,
                             .blocks_y = blocks_y,
                             .threads = static_cast<int>(threads_x),
                             .arguments = arguments[0]});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pretend CUDA: %s\n", error.what());
    return pretend::kInvalidValue;
  }
  return 0;
}
