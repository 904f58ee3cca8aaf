// SPDX-License-Identifier: MIT
#include "faults/disk_model.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "finetune/base/file_system.h"
#include "support/file_content.h"

namespace finetune::testing {

namespace fs = std::filesystem;

struct DiskModel::Node {
  // An entry that was added, removed, or both (a rename) in one operation of the disk.
  struct Change {
    std::string removed;
    std::string added;
    std::shared_ptr<Node> node;
  };

  bool is_directory = false;
  std::string content;
  std::string synced;
  std::map<std::string, std::shared_ptr<Node>> entries;
  std::map<std::string, std::shared_ptr<Node>> durable;
  std::vector<Change> pending;

  void change(const std::string& removed, const std::string& added, std::shared_ptr<Node> node) {
    apply(entries, {removed, added, node});
    pending.push_back({removed, added, std::move(node)});
  }
  static void apply(std::map<std::string, std::shared_ptr<Node>>& to, const Change& change) {
    if (!change.removed.empty()) to.erase(change.removed);
    if (!change.added.empty()) to[change.added] = change.node;
  }
};

namespace {

using Node = DiskModel::Node;

std::shared_ptr<Node> load(const fs::path& path) {
  auto node = std::make_shared<Node>();
  node->is_directory = fs::is_directory(path);
  if (node->is_directory) {
    for (const auto& entry : fs::directory_iterator(path)) {
      node->entries[entry.path().filename().string()] = load(entry.path());
    }
    node->durable = node->entries;
  } else {
    node->content = file_content(path);
    node->synced = node->content;
  }
  return node;
}

using Random = std::mt19937_64;

// Returns a possible content of a file that was written after its last sync.
std::string deviation(const Node& file, Random& random) {
  const std::string& now = file.content;
  const size_t kept = std::min(file.synced.size(), now.size());
  switch (random() % 4) {
    case 0:
      return file.synced;
    case 1:
      return now.substr(0, kept) + std::string(now.size() - kept, '\0');
    case 2:
      return now.substr(0, kept + (now.size() - kept) / 2);
    default: {
      std::string pages = now;
      constexpr size_t kPage = 512;
      for (size_t at = kept; at < pages.size(); at += kPage) {
        if (random() % 2 != 0) continue;
        const size_t size = std::min(kPage, pages.size() - at);
        pages.replace(at, size, size, '\0');
      }
      return pages;
    }
  }
}

struct CutChoices {
  explicit CutChoices(uint64_t cut_seed) : seed(cut_seed), random(cut_seed) {}
  uint64_t seed;
  Random random;
  int deviating = 0;
};

std::string content_after(const Node& file, CutChoices& choices) {
  if (file.content == file.synced) return file.synced;
  if (choices.seed == 0) return file.synced;
  if (choices.deviating >= 3 || choices.random() % 3 == 0) return file.content;
  ++choices.deviating;
  return deviation(file, choices.random);
}

std::map<std::string, std::shared_ptr<Node>> entries_after(const Node& folder,
                                                           CutChoices& choices) {
  std::map<std::string, std::shared_ptr<Node>> entries = folder.durable;
  if (choices.seed == 0) return entries;
  const uint64_t way = choices.random() % 4;
  const size_t prefix = choices.random() % (folder.pending.size() + 1);
  for (size_t i = 0; i < folder.pending.size(); ++i) {
    const bool kept =
        way == 1 || (way == 2 && i < prefix) || (way == 3 && choices.random() % 2 == 0);
    if (kept) Node::apply(entries, folder.pending[i]);
  }
  return entries;
}

void put(const Node& node, const fs::path& path, CutChoices& choices) {
  if (!node.is_directory) {
    std::ofstream(path, std::ios::binary) << content_after(node, choices);
    return;
  }
  fs::create_directory(path);
  for (const auto& [name, entry] : entries_after(node, choices)) put(*entry, path / name, choices);
}

}  // namespace

DiskModel::DiskModel(std::string root) : root_(std::move(root)), top_(load(root_)) {}

std::string DiskModel::inside(const std::string& path) const {
  if (path == root_) return "";
  if (path.rfind(root_ + "/", 0) != 0) throw std::logic_error("outside of the model: " + path);
  return path.substr(root_.size() + 1);
}

std::shared_ptr<DiskModel::Node> DiskModel::node(const std::string& path) const {
  std::shared_ptr<Node> found = top_;
  const fs::path relative = inside(path);
  for (const fs::path& part : relative) {
    const auto entry = found->entries.find(part.string());
    if (entry == found->entries.end()) return nullptr;
    found = entry->second;
  }
  return found;
}

void DiskModel::create(const std::string& path) {
  if (const std::shared_ptr<Node> old = node(path)) {
    old->content.clear();
    return;
  }
  node(parent_path(path))->change("", file_name(path), std::make_shared<Node>());
}

void DiskModel::write(Node& file, const void* data, size_t size) {
  file.content.append(static_cast<const char*>(data), size);
}

void DiskModel::sync(Node& file) { file.synced = file.content; }

void DiskModel::truncate(const std::string& path, uint64_t size) {
  node(path)->content.resize(size);
}

void DiskModel::make_directory(const std::string& path) {
  auto folder = std::make_shared<Node>();
  folder->is_directory = true;
  node(parent_path(path))->change("", file_name(path), std::move(folder));
}

void DiskModel::sync_directory(const std::string& path) {
  if (path.size() < root_.size()) return;  // outside of the model
  const std::shared_ptr<Node> folder = node(path);
  folder->durable = folder->entries;
  folder->pending.clear();
}

void DiskModel::rename(const std::string& from, const std::string& to) {
  const std::shared_ptr<Node> folder = node(parent_path(from));
  const std::shared_ptr<Node> moved = node(from);
  if (folder == node(parent_path(to))) {
    folder->change(file_name(from), file_name(to), moved);
  } else {  // two folders: each half may be durable alone
    node(parent_path(to))->change("", file_name(to), moved);
    folder->change(file_name(from), "", nullptr);
  }
}

void DiskModel::remove(const std::string& path) {
  node(parent_path(path))->change(file_name(path), "", nullptr);
}

void DiskModel::cut_power(uint64_t seed) {
  CutChoices choices(seed);
  for (const auto& entry : fs::directory_iterator(root_)) fs::remove_all(entry.path());
  for (const auto& [name, entry] : entries_after(*top_, choices)) {
    put(*entry, fs::path(root_) / name, choices);
  }
}

}  // namespace finetune::testing
