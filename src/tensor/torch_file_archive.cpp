// SPDX-License-Identifier: MIT
#include "tensor/torch_file_archive.h"

#include <algorithm>
#include <map>
#include <set>

#include "finetune/base/error.h"
#include "finetune/tensor/torch_archive.h"

namespace finetune {
namespace {

constexpr uint64_t kMaxPickleBytes = uint64_t{16} << 20;
constexpr uint64_t kMaxRecordBytes = 256;  // of the records version, byteorder, ...
constexpr size_t kRecordReadBytes = size_t{64} << 20;

[[noreturn]] void reject_archive(const std::string& path, const std::string& reason) {
  throw Error(ErrorKind::kData, "'" + path + "' is not a usable file of torch.save: " + reason);
}

bool is_storage_name(const std::string& name) {
  return name.rfind("data/", 0) == 0 && name.size() > 5 &&
         name.find_first_not_of("0123456789", 5) == std::string::npos;
}

// Returns the entries by their names inside the archive's single folder.
std::map<std::string, ZipEntry> list_entries(const ReadableFile& file, const std::string& path) {
  static const std::set<std::string> kRecords = {"data.pkl",           "version",
                                                 "byteorder",          ".format_version",
                                                 ".storage_alignment", ".data/serialization_id"};
  std::map<std::string, ZipEntry> entries;
  std::string folder;
  for (const ZipEntry& entry : read_zip_directory(file, path)) {
    const size_t slash = entry.name.find('/');
    if (slash == std::string::npos || slash == 0) reject_archive(path, "an entry is in no folder");
    const std::string name = entry.name.substr(slash + 1);
    if (folder.empty()) folder = entry.name.substr(0, slash);
    if (entry.name.compare(0, slash, folder) != 0)
      reject_archive(path, "it has more than one folder");
    if (!is_storage_name(name)) {
      if (kRecords.count(name) == 0)
        reject_archive(path, "it holds an entry that torch.save does not write");
      if (name != "data.pkl" && entry.size > kMaxRecordBytes)
        reject_archive(path, "a record is too long");
    }
    entries.emplace(name, entry);
  }
  return entries;
}

std::string read_entry(const ReadableFile& file, const std::string& path, const ZipEntry& entry) {
  std::string text(entry.size, '\0');
  read_zip_entry(file, path, entry, text.data());
  return text;
}

}  // namespace

TorchArchive open_torch_archive(const ReadableFile& file, const std::string& path) {
  if (is_legacy_torch_file(file)) return open_legacy_torch_file(file, path);
  const std::map<std::string, ZipEntry> entries = list_entries(file, path);
  for (const auto& [name, entry] : entries) {
    if (is_storage_name(name) || name == "data.pkl") continue;
    const std::string text = read_entry(file, path, entry);
    if (name == "byteorder" && text != "little") reject_archive(path, "its numbers are big-endian");
  }
  const auto data = entries.find("data.pkl");
  if (data == entries.end()) reject_archive(path, "it holds no data.pkl");
  if (data->second.size > kMaxPickleBytes) reject_archive(path, "its pickle has more than 16 MiB");

  TorchArchive archive;
  archive.pickle = pickle::parse(read_entry(file, path, data->second), path);
  for (const pickle::Storage& storage : archive.pickle.storages) {
    const auto entry = entries.find("data/" + storage.key);
    const uint64_t width = dtype_bytes(storage.dtype);
    if (entry == entries.end() || entry->second.size % width != 0 ||
        entry->second.size / width != storage.elements) {
      reject_archive(path,
                     "the data of its storage " + storage.key + " is missing or has another size");
    }
    archive.storages.push_back(entry->second);
  }
  return archive;
}

void read_storage(const ReadableFile& file, const std::string& path, const TorchArchive& archive,
                  size_t storage, void* data) {
  const ZipEntry& entry = archive.storages[storage];
  if (archive.has_checksums) {
    read_zip_entry(file, path, entry, data);
    return;
  }
  char* bytes = static_cast<char*>(data);
  for (uint64_t done = 0; done < entry.size;) {
    const size_t count = std::min<uint64_t>(kRecordReadBytes, entry.size - done);
    file.read_at(entry.offset + done, bytes + done, count);
    done += count;
  }
}

void check_torch_file(const ReadableFile& file, const std::string& path, bool checksums) {
  const TorchArchive archive = open_torch_archive(file, path);
  if (!checksums || !archive.has_checksums) return;
  for (const ZipEntry& entry : archive.storages) check_zip_entry(file, path, entry);
}

}  // namespace finetune
