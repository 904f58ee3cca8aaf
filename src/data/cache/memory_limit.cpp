// SPDX-License-Identifier: MIT
#include "data/cache/memory_limit.h"

#include <algorithm>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

constexpr int64_t kShare = 2;

std::string megabytes(double bytes) {
  return format_text("{} MB", static_cast<int64_t>((bytes + 999'999) / 1e6));
}

// Returns " (12 MB are free)" for the folder or, if it is missing, its nearest parent.
std::string free_room(std::string folder) {
  FileSystem& files = FileSystem::local();
  while (!files.exists(folder) && parent_path(folder) != folder) folder = parent_path(folder);
  try {
    return " (" + megabytes(static_cast<double>(files.free_bytes(folder))) + " are free)";
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

int64_t memory_bytes(const TokenContent& content) {
  const auto bytes = [](const auto&... lists) {
    return (0 + ... + static_cast<int64_t>(lists.size() * sizeof(lists[0])));
  };
  return bytes(content.ids, content.offsets, content.labels, content.masks, content.types,
               content.classes, content.values, content.answers, content.words,
               content.word_counts);
}

MemoryLimit::MemoryLimit(const TokenCacheOptions& cache, std::string key)
    : key_(std::move(key)), cache_folder_(cache.folder) {
  if (cache.memory_left) most_ = std::max<int64_t>(0, cache.memory_left()) / kShare;
}

void MemoryLimit::check(const TokenContent& content, double fraction) const {
  check(memory_bytes(content), fraction);
}

void MemoryLimit::check(int64_t bytes, double fraction) const {
  if (!most_ || bytes <= *most_) return;
  const double all = static_cast<double>(bytes) / std::clamp(fraction, 1e-6, 1.0);
  throw Error(ErrorKind::kIo,
              key_ + ": the tokens need about " + megabytes(all) + " of memory, but at most " +
                  megabytes(static_cast<double>(*most_)) +
                  " may hold tokens (half of what is available now within RAM, the cgroup's limit "
                  "and memory_budget), and cache_dir cannot keep them in '" +
                  cache_folder_ + "': make room there" + free_room(cache_folder_) +
                  ", or set cache_dir to a folder that can be written");
}

}  // namespace finetune
