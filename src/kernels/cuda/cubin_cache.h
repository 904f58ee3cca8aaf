// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

// Cache of compiled kernels on disk. The key covers everything that decides the result. An entry
// begins with the hash of its bytes, and a damaged one counts as missing. Torch-free.
namespace finetune::kernels::cuda {

class CubinCache {
 public:
  // `folder` is created with the first entry; if it is empty, nothing is found or kept.
  explicit CubinCache(std::string folder) : folder_(std::move(folder)) {}

  // Hashes the program with its headers, the options and the compiler's version.
  [[nodiscard]] static std::string key_of(const std::string& program,
                                          const std::vector<std::string>& options,
                                          const std::string& compiler);
  [[nodiscard]] std::optional<std::string> find(const std::string& key) const;
  // Writes the entry atomically. An unwritable folder is no error: the next process compiles again.
  void keep(const std::string& key, const std::string& code) const;

  [[nodiscard]] const std::string& folder() const { return folder_; }

 private:
  [[nodiscard]] std::string path_of(const std::string& key) const;

  std::string folder_;
};

// Returns kernels/ in $XDG_CACHE_HOME/finetune or ~/.cache/finetune; empty where neither is set.
[[nodiscard]] std::string user_kernel_cache();

}  // namespace finetune::kernels::cuda
