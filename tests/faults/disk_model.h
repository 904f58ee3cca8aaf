// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace finetune::testing {

// Models the content and the durable state of a disk, below one folder: the contents of files now
// and at their last sync, and the entries of folders now and at their last sync. A power cut
// chooses one of the states that the difference allows. Not thread-safe.
class DiskModel {
 public:
  // Everything in `root` counts as durable.
  explicit DiskModel(std::string root);

  void create(const std::string& path);  // or truncates it
  void truncate(const std::string& path, uint64_t size);
  void make_directory(const std::string& path);
  void sync_directory(const std::string& path);
  void rename(const std::string& from, const std::string& to);  // within one folder
  void remove(const std::string& path);

  // A handle that follows its file through renames.
  struct Node;
  [[nodiscard]] std::shared_ptr<Node> node(const std::string& path) const;
  static void write(Node& file, const void* data, size_t size);
  static void sync(Node& file);

  // Replaces everything below `root` on the real disk with a state after a power cut, chosen by the
  // seed. Seed 0 loses everything that was not synced. Other seeds let at most three files deviate
  // (lost, zeros, half, pages in any order) and keep none, all, the first or any of each folder's
  // unsynced changes.
  void cut_power(uint64_t seed);

 private:
  [[nodiscard]] std::string inside(const std::string& path) const;

  std::string root_;
  std::shared_ptr<Node> top_;
};

}  // namespace finetune::testing
