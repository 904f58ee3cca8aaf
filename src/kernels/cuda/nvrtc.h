// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

// NVIDIA's run-time compiler, from the package that torch's CUDA came with. It is loaded by name
// and its few functions are declared by hand, so that the binary is built without CUDA. Torch-free.
namespace finetune::kernels::cuda {

class Nvrtc {
 public:
  // Loads the library at this path. Throws std::runtime_error with the reason.
  explicit Nvrtc(const std::string& path);
  Nvrtc(const Nvrtc&) = delete;
  Nvrtc& operator=(const Nvrtc&) = delete;

  [[nodiscard]] const std::string& version() const { return version_; }  // "13.0"
  // The supported compute capabilities major.minor as 10 * major + minor, ascending.
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

  void* library_ = nullptr;  // never closed: its compiled code stays in use
  std::string version_;
};

// What to compile for a GPU of this architecture: its own SASS, SASS of an older architecture of
// the same generation, or PTX, which the driver compiles.
struct CompileTarget {
  std::string option;
  bool to_ptx = false;
};
[[nodiscard]] CompileTarget target_of(int architecture, const std::vector<int>& known);

// Options of every kernel in addition to the target. They forbid fused multiply-add, so that all
// architectures and the CPU give the same bits.
[[nodiscard]] const std::vector<std::string>& compile_options();

// Returns paths where NVRTC's library may be for this libcudart: in the same folder in the packages
// of CUDA 13, in the neighbouring package in those of CUDA 12.
[[nodiscard]] std::vector<std::string> nvrtc_beside(const std::string& cudart);

}  // namespace finetune::kernels::cuda
