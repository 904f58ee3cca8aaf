// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace finetune::testing {

// What a disk holds and what of it is durable, below one folder: content of files as it is and as
// it was last synced, entries of folders as they are and as they were last synced. A power cut
// chooses one of the states that the difference allows. Not thread-safe.
class DiskModel {
 public:
  // Everything in `root` is durable now.
  explicit DiskModel(std::string root);

  void create(const std::string& path);  // or empties it
  void truncate(const std::string& path, uint64_t size);
  void make_directory(const std::string& path);
  void sync_directory(const std::string& path);
  void rename(const std::string& from, const std::string& to);  // within one folder
  void remove(const std::string& path);

  // A handle follows its file through renames.
  struct Node;
  [[nodiscard]] std::shared_ptr<Node> node(const std::string& path) const;
  static void write(Node& file, const void* data, size_t size);
  static void sync(Node& file);

  // The state after a power cut, by seed: replaces everything below `root` on the real disk. Seed 0
  // loses all that was not synced. Others let at most three files deviate (lost, zeros, half,
  // pages in any order) and keep of each folder's unsynced changes none, all, a beginning or any.
  void cut_power(uint64_t seed);

 private:
  [[nodiscard]] std::string inside(const std::string& path) const;

  std::string root_;
  std::shared_ptr<Node> top_;
};

}  // namespace finetune::testing
