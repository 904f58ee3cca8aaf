// SPDX-License-Identifier: MIT
#include "kernels/cuda/cubin_cache.h"

#include <cstdlib>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/hash.h"
#include "finetune/base/log.h"
#include "kernels/cuda/sources.h"

namespace finetune::kernels::cuda {
namespace {

constexpr size_t kHashDigits = 32;
constexpr uint64_t kLargestCubin = uint64_t{64} << 20;

void add_with_length(Hasher& hasher, std::string_view text) {
  hasher.update(std::to_string(text.size()) + ":");
  hasher.update(text);
}

}  // namespace

std::string CubinCache::key_of(const std::string& program, const std::vector<std::string>& options,
                               const std::string& compiler) {
  Hasher hasher;
  add_with_length(hasher, program);
  for (const SourceFile& header : header_files()) {
    add_with_length(hasher, header.name);
    add_with_length(hasher, header.text);
  }
  for (const std::string& option : options) add_with_length(hasher, option);
  add_with_length(hasher, compiler);
  return hasher.hex();
}

std::string CubinCache::path_of(const std::string& key) const {
  return join_path(folder_, key + ".cubin");
}

std::optional<std::string> CubinCache::find(const std::string& key) const {
  if (folder_.empty()) return std::nullopt;
  try {
    FileSystem& files = FileSystem::local();
    if (files.type(path_of(key)) != FileType::kFile) return std::nullopt;
    const std::string content = files.read_all(path_of(key), kLargestCubin);
    if (content.size() <= kHashDigits) return std::nullopt;
    std::string code = content.substr(kHashDigits);
    if (hash_hex(code) != content.substr(0, kHashDigits)) return std::nullopt;
    return code;
  } catch (const Error& error) {
    log::debug(std::string("a compiled kernel cannot be read: ") + error.what());
    return std::nullopt;
  }
}

void CubinCache::keep(const std::string& key, const std::string& code) const {
  if (folder_.empty()) return;
  try {
    FileSystem& files = FileSystem::local();
    files.make_directories(folder_);
    files.write_atomically(path_of(key), hash_hex(code) + code);
  } catch (const Error& error) {
    log::debug(std::string("a compiled kernel was not kept: ") + error.what());
  }
}

std::string user_kernel_cache() {
  const auto folder = [](const char* variable) -> std::string {
    const char* const value = std::getenv(variable);
    return value == nullptr ? "" : value;
  };
  std::string cache = folder("XDG_CACHE_HOME");
  if (cache.empty() && !folder("HOME").empty()) cache = join_path(folder("HOME"), ".cache");
  return cache.empty() ? "" : join_path(join_path(cache, "finetune"), "kernels");
}

}  // namespace finetune::kernels::cuda
