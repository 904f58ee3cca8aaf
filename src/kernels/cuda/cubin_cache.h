// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

// Compiled kernels on disk. An entry is found by what it was compiled from and with, and begins
// with the hash of its bytes: a damaged one counts as missing. Torch-free.
namespace finetune::kernels::cuda {

class CubinCache {
 public:
  // `folder` is made when something is kept; empty: nothing is found or kept.
  explicit CubinCache(std::string folder) : folder_(std::move(folder)) {}

  // Of everything that decides the result: program, headers, options, the compiler's version.
  [[nodiscard]] static std::string key_of(const std::string& program,
                                          const std::vector<std::string>& options,
                                          const std::string& compiler);
  [[nodiscard]] std::optional<std::string> find(const std::string& key) const;
  // Whole or not at all. A folder that cannot be written costs the next process a compilation.
  void keep(const std::string& key, const std::string& code) const;

  [[nodiscard]] const std::string& folder() const { return folder_; }

 private:
  [[nodiscard]] std::string path_of(const std::string& key) const;

  std::string folder_;
};

// kernels/ in $XDG_CACHE_HOME/finetune or ~/.cache/finetune; empty where neither is known.
[[nodiscard]] std::string user_kernel_cache();

}  // namespace finetune::kernels::cuda
