// SPDX-License-Identifier: MIT
#include "finetune/checkpoint/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/json_fields.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/layout.h"

namespace finetune::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void reject(const std::string& path, const std::string& reason) {
  throw Error(ErrorKind::kCheckpoint, "'" + path + "' " + reason);
}

void check_hash(const std::string& text, const std::string& path) {
  if (text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos) return;
  reject(path, "has a checksum in another form");
}

FileRecord parse_record(const JsonFields& fields, const std::string& path) {
  FileRecord record{.bytes = static_cast<uint64_t>(fields.integer("bytes", {.low = 0})),
                    .hash = fields.text("xxh3_128"),
                    .blocks = fields.texts("blocks")};
  check_hash(record.hash, path);
  for (const std::string& block : record.blocks) check_hash(block, path);
  if (record.blocks.size() != (record.bytes + kBlockBytes - 1) / kBlockBytes) {
    reject(path, "has another number of checksums than the sizes need");
  }
  return record;
}

bool has_valid_checksum(Json json) {
  const auto checksum = json.find("checksum");
  if (checksum == json.end() || !checksum->is_string()) return false;
  const std::string recorded = checksum->get<std::string>();
  json.erase(checksum);
  return hash_hex(json.dump()) == recorded;
}

}  // namespace

NewerFormat::NewerFormat(const std::string& file, int64_t version, int64_t known)
    : NewerFormat(format_text("'{}' was written by a newer version of finetune (format version {}, "
                              "this one reads {}); update finetune, or continue with the version "
                              "that wrote it",
                              file, version, known)) {}

std::string manifest_text(const Manifest& manifest) {
  Json json;
  json["format_version"] = kManifestVersion;
  json["run_id"] = manifest.run_id;
  json["step"] = manifest.step;
  json["created"] = manifest.created_unix;
  json["block_bytes"] = kBlockBytes;
  json["files"] = Json::object();
  for (const auto& [name, record] : manifest.files) {
    json["files"][name] = {
        {"bytes", record.bytes}, {"xxh3_128", record.hash}, {"blocks", record.blocks}};
  }
  json["checksum"] = hash_hex(json.dump());
  return json.dump(1) + "\n";
}

Manifest parse_manifest(std::string_view text, const std::string& path, FileNames names) {
  JsonLimits limits;
  limits.max_bytes = size_t{64} << 20;
  limits.max_depth = 8;
  const Json json = parse_json(text, path, ErrorKind::kCheckpoint, limits);
  const JsonFields fields(json, path, ErrorKind::kCheckpoint);
  const int64_t version = fields.integer("format_version");
  if (version > kManifestVersion && has_valid_checksum(json)) {
    throw NewerFormat(path, version, kManifestVersion);
  }
  if (version != kManifestVersion) {
    reject(path,
           format_text(
               "has format version {} where this program knows {}; use the version that wrote it",
               version, kManifestVersion));
  }
  Manifest manifest;
  manifest.run_id = fields.text("run_id");
  if (!is_identifier(manifest.run_id)) reject(path, "names no run");
  manifest.step = fields.integer("step", {.low = 0});
  manifest.created_unix = fields.integer("created", {.low = 0});
  const JsonFields files = fields.fields("files");
  for (const auto& [name, ignored] : fields.object("files").items()) {
    const bool is_allowed =
        names == FileNames::kPaths ? is_tree_path(name) : is_checkpoint_file_name(name);
    if (!is_allowed || name == kManifestFile) {
      reject(path, "names a file that no checkpoint of ours has");
    }
    manifest.files.emplace(name, parse_record(files.fields(name.c_str()), path));
  }
  if (manifest.files.empty()) reject(path, "names no files");
  // Checks checksum, unknown keys, order and white space at once.
  if (manifest_text(manifest) != text) reject(path, "is damaged: its own checksum does not match");
  return manifest;
}

void RecordingFile::write(const void* data, size_t size) {
  file_.write(data, size);
  const char* bytes = static_cast<const char*>(data);
  record_.bytes += size;
  whole_.update(bytes, size);
  while (size > 0) {
    const auto count = static_cast<size_t>(std::min<uint64_t>(size, kBlockBytes - block_used_));
    block_.update(bytes, count);
    block_used_ += count;
    bytes += count;
    size -= count;
    if (block_used_ == kBlockBytes) {
      record_.blocks.push_back(block_.hex());
      block_.reset();
      block_used_ = 0;
    }
  }
}

FileRecord RecordingFile::record() const {
  FileRecord record = record_;
  record.hash = whole_.hex();
  if (block_used_ > 0) record.blocks.push_back(block_.hex());
  return record;
}

void verify_file(const ReadableFile& file, const FileRecord& record, const std::string& path) {
  if (file.size() != record.bytes) {
    reject(path, format_text("has {} bytes where {} were written", file.size(), record.bytes));
  }
  std::string block(static_cast<size_t>(std::min(kBlockBytes, record.bytes)), '\0');
  Hasher whole;
  for (size_t i = 0; i < record.blocks.size(); ++i) {
    const uint64_t offset = i * kBlockBytes;
    const auto count = static_cast<size_t>(std::min(kBlockBytes, record.bytes - offset));
    file.read_at(offset, block.data(), count);
    const std::string_view content(block.data(), count);
    whole.update(content);
    if (hash_hex(content) != record.blocks[i]) {
      reject(path, format_text("is damaged between byte {} and {}", offset, offset + count));
    }
  }
  if (whole.hex() != record.hash) reject(path, "does not have the checksum that was written");
}

}  // namespace finetune::checkpoint
