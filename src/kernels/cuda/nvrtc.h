// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

// NVIDIA's run-time compiler, from the package that torch's CUDA came with. Loaded by name, its few
// functions declared by hand: nothing of CUDA is needed to build the binary. Torch-free.
namespace finetune::kernels::cuda {

class Nvrtc {
 public:
  // The library at this path. Throws std::runtime_error with the reason.
  explicit Nvrtc(const std::string& path);
  Nvrtc(const Nvrtc&) = delete;
  Nvrtc& operator=(const Nvrtc&) = delete;

  [[nodiscard]] const std::string& version() const { return version_; }  // "13.0"
  // Of compute capability major.minor as 10 * major + minor, rising.
  [[nodiscard]] std::vector<int> architectures() const;

  struct Result {
    std::string code;  // SASS (cubin), or PTX
    std::string log;
  };
  // Throws std::runtime_error with the compiler's messages.
  [[nodiscard]] Result compile(const std::string& program, const std::string& name,
                               const std::vector<std::string>& options, bool to_ptx = false) const;

 private:
  template <typename Function>
  Function* find(const char* name) const;

  void* library_ = nullptr;  // never closed: code that it made is still used
  std::string version_;
};

// What a GPU of this architecture gets: its own SASS, that of an older one of its generation, or
// PTX, which the driver compiles.
struct CompileTarget {
  std::string option;
  bool to_ptx = false;
};
[[nodiscard]] CompileTarget target_of(int architecture, const std::vector<int>& known);

// Options of every kernel in addition to the target: products and sums are not fused, so that each
// architecture, and the CPU, gives the same bits.
[[nodiscard]] const std::vector<std::string>& compile_options();

// Paths of NVRTC's library that may belong to a libcudart at this path: next to it in the packages
// of CUDA 13, in the package next to it in those of CUDA 12.
[[nodiscard]] std::vector<std::string> nvrtc_beside(const std::string& cudart);

}  // namespace finetune::kernels::cuda
