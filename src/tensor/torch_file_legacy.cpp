// SPDX-License-Identifier: MIT
// The format of torch.save before 1.6, and later with _use_new_zipfile_serialization=False: pickles
// of a magic number, the format's version, properties of the machine, the value, and the storages'
// keys; then, in the order of the keys, each storage's count of elements (int64) and its data.
#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "finetune/base/error.h"
#include "tensor/torch_file_archive.h"

namespace finetune {
namespace {

using pickle::Kind;
using pickle::Node;
using pickle::Pickle;
using std::string_view_literals::operator""sv;

// The first two pickles are always these bytes: 0x1950a86a20f9469cfc6c and 1001.
constexpr std::string_view kMagic = "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19."sv;
constexpr std::string_view kVersion = "\x80\x02M\xe9\x03."sv;
constexpr uint64_t kMaxHeadBytes = uint64_t{16} << 20;

[[noreturn]] void reject_legacy(const std::string& path, const std::string& reason) {
  throw Error(ErrorKind::kData, "'" + path + "' is not a usable file of torch.save: " + reason);
}

const Node& root_of(const Pickle& pickle) { return pickle.nodes[pickle.root]; }

void check_machine(const Pickle& pickle, const std::string& path) {
  const Node& machine = root_of(pickle);
  if (machine.kind == Kind::kDict) {
    for (size_t i = 0; i < machine.children.size(); i += 2) {
      if (pickle.nodes[machine.children[i]].text != "little_endian") continue;
      const Node& value = pickle.nodes[machine.children[i + 1]];
      if (value.kind == Kind::kBool && value.integer == 1) return;
      reject_legacy(path, "its numbers are big-endian");
    }
  }
  reject_legacy(path, "it does not say what machine wrote it");
}

// Returns the pickle of keys as indices of the value's storages, each exactly once.
std::vector<size_t> storage_order(const Pickle& keys, const Pickle& value,
                                  const std::string& path) {
  const Node& list = root_of(keys);
  if (list.kind != Kind::kList || list.children.size() != value.storages.size()) {
    reject_legacy(path, "its storage list does not match its tensors");
  }
  std::vector<std::pair<std::string_view, size_t>> known;
  for (size_t i = 0; i < value.storages.size(); ++i) known.emplace_back(value.storages[i].key, i);
  std::sort(known.begin(), known.end());
  std::vector<size_t> order;
  std::vector<bool> seen(known.size());
  for (const uint32_t child : list.children) {
    const Node& key = keys.nodes[child];
    const auto found = std::lower_bound(known.begin(), known.end(),
                                        std::pair<std::string_view, size_t>(key.text, 0));
    if (key.kind != Kind::kString || found == known.end() || found->first != key.text ||
        seen[found->second]) {
      reject_legacy(path, "its storage list does not match its tensors");
    }
    seen[found->second] = true;
    order.push_back(found->second);
  }
  return order;
}

uint64_t read_count(const ReadableFile& file, uint64_t offset) {
  std::array<unsigned char, 8> bytes = {};
  file.read_at(offset, bytes.data(), bytes.size());
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | bytes[i];
  return value;
}

}  // namespace

bool is_legacy_torch_file(const ReadableFile& file) {
  char first = 0;
  if (file.size() > 0) file.read_at(0, &first, 1);
  return first == kMagic.front();
}

TorchArchive open_legacy_torch_file(const ReadableFile& file, const std::string& path) {
  const uint64_t size = file.size();
  std::string head(std::min(size, kMaxHeadBytes), '\0');
  file.read_at(0, head.data(), head.size());
  std::string_view rest = head;
  for (const std::string_view prefix : {kMagic, kVersion}) {
    if (!rest.starts_with(prefix)) reject_legacy(path, "it does not begin as torch.save begins");
    rest.remove_prefix(prefix.size());
  }
  check_machine(pickle::parse_legacy(rest, path), path);

  TorchArchive archive;
  archive.has_checksums = false;
  archive.pickle = pickle::parse_legacy(rest, path);
  archive.storages.resize(archive.pickle.storages.size());
  const Pickle keys = pickle::parse_legacy(rest, path);
  uint64_t offset = head.size() - rest.size();
  for (const size_t index : storage_order(keys, archive.pickle, path)) {
    const pickle::Storage& storage = archive.pickle.storages[index];
    const std::string name = "the data of its storage " + storage.key;
    if (size - offset < 8) reject_legacy(path, name + " is missing");
    if (read_count(file, offset) != storage.elements)
      reject_legacy(path, name + " has another size");
    offset += 8;
    const uint64_t width = dtype_bytes(storage.dtype);
    if (storage.elements > (size - offset) / width) reject_legacy(path, name + " is truncated");
    archive.storages[index] = {
        .name = storage.key, .offset = offset, .size = storage.elements * width, .crc = 0};
    offset += storage.elements * width;
  }
  if (offset != size)
    reject_legacy(path, std::to_string(size - offset) + " bytes at its end belong to none");
  return archive;
}

}  // namespace finetune
