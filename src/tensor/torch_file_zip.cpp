// SPDX-License-Identifier: MIT
#include "tensor/torch_file_zip.h"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_set>

#include "finetune/base/error.h"

namespace finetune {
namespace {

constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint32_t kCentralSignature = 0x02014b50;
constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint32_t kLocator64Signature = 0x07064b50;
constexpr uint64_t kLocalBytes = 30;
constexpr uint64_t kCentralBytes = 46;
constexpr uint64_t kEndBytes = 22;
constexpr uint64_t kEnd64Bytes = 56;
constexpr uint64_t kLocator64Bytes = 20;
constexpr uint32_t kIn64 = 0xffffffff;  // the value is in the zip64 field
constexpr uint16_t kZip64Id = 1;
constexpr uint16_t kPaddingId = 0x4246;  // torch's padding
constexpr uint16_t kEncrypted = 1;
constexpr uint16_t kSizesFollow = 8;
constexpr uint16_t kUtf8Names = 0x800;
constexpr uint64_t kAlignment = 64;  // of the data, as in torch, so that files can be mapped
constexpr uint64_t kMaxDirectoryBytes = uint64_t{64} << 20;
constexpr size_t kMaxEntryNameBytes = 512;
constexpr size_t kChunkBytes = size_t{4} << 20;

// Slicing by 8 (Kounavis and Berry, 2005): eight tables, eight bytes per round.
constexpr std::array<std::array<uint32_t, 256>, 8> make_crc_tables() {
  std::array<std::array<uint32_t, 256>, 8> tables = {};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xedb88320U : 0U);
    tables[0][i] = value;
  }
  for (size_t t = 1; t < 8; ++t) {
    for (size_t i = 0; i < 256; ++i) {
      tables[t][i] = (tables[t - 1][i] >> 8) ^ tables[0][tables[t - 1][i] & 0xff];
    }
  }
  return tables;
}
constexpr auto kCrcTables = make_crc_tables();

[[noreturn]] void reject_zip(const std::string& path, const std::string& reason) {
  throw Error(ErrorKind::kData, "'" + path + "' is not a usable file of torch.save: " + reason +
                                    "; write or fetch it again");
}

// Reads little-endian fields of a buffer; every access is checked.
class Fields {
 public:
  Fields(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  uint64_t take(size_t count) {
    const std::string_view field = take_bytes(count);
    uint64_t value = 0;
    for (size_t i = count; i-- > 0;) value = value << 8 | static_cast<unsigned char>(field[i]);
    return value;
  }
  uint16_t u16() { return static_cast<uint16_t>(take(2)); }
  uint32_t u32() { return static_cast<uint32_t>(take(4)); }
  uint64_t u64() { return take(8); }
  std::string_view take_bytes(size_t count) {
    if (count > bytes_.size()) reject_zip(path_, "a record of its directory is truncated");
    const std::string_view field = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return field;
  }
  [[nodiscard]] bool empty() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
  const std::string& path_;
};

std::string read_text(const ReadableFile& file, uint64_t offset, uint64_t size) {
  std::string text(size, '\0');
  file.read_at(offset, text.data(), text.size());
  return text;
}

struct Directory {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t entries = 0;
};

Directory find_directory(const ReadableFile& file, const std::string& path) {
  const uint64_t size = file.size();
  if (size < kEndBytes) reject_zip(path, "it has only " + std::to_string(size) + " bytes");
  const std::string end_text = read_text(file, size - kEndBytes, kEndBytes);
  Fields end(end_text, path);
  if (end.u32() != kEndSignature) reject_zip(path, "its end is missing or it is no zip archive");
  end.take(4);  // numbers of disks
  end.take(2);
  Directory directory;
  directory.entries = end.u16();
  directory.bytes = end.u32();
  directory.offset = end.u32();
  if (end.u16() != 0) reject_zip(path, "the archive has a comment");

  uint64_t directory_end = size - kEndBytes;
  if (size >= kEndBytes + kLocator64Bytes + kEnd64Bytes) {
    const std::string locator_text =
        read_text(file, size - kEndBytes - kLocator64Bytes, kLocator64Bytes);
    Fields locator(locator_text, path);
    if (locator.u32() == kLocator64Signature) {
      locator.take(4);
      directory_end = size - kEndBytes - kLocator64Bytes - kEnd64Bytes;
      if (locator.u64() != directory_end) reject_zip(path, "its zip64 record is in a wrong place");
      const std::string end64_text = read_text(file, directory_end, kEnd64Bytes);
      Fields end64(end64_text, path);
      if (end64.u32() != kEnd64Signature) reject_zip(path, "its zip64 record is missing");
      end64.take_bytes(28);  // own size, versions, disks, entries on this disk
      directory.entries = end64.u64();
      directory.bytes = end64.u64();
      directory.offset = end64.u64();
    }
  }
  if (directory.offset > directory_end || directory.bytes != directory_end - directory.offset ||
      directory.bytes > kMaxDirectoryBytes || directory.entries > directory.bytes / kCentralBytes) {
    reject_zip(path, "its directory does not fit into the file");
  }
  return directory;
}

struct Central {
  ZipEntry entry;
  uint64_t header_offset = 0;
  uint16_t flags = 0;
};

// Reads a field that only exists if a value does not fit into 32 bits.
void read_zip64_field(std::string_view extra, Central& central, uint64_t& stored_size,
                      const std::string& path) {
  Fields fields(extra, path);
  while (!fields.empty()) {
    const uint16_t id = fields.u16();
    Fields field(fields.take_bytes(fields.u16()), path);
    if (id != kZip64Id) continue;
    if (central.entry.size == kIn64) central.entry.size = field.u64();
    if (stored_size == kIn64) stored_size = field.u64();
    if (central.header_offset == kIn64) central.header_offset = field.u64();
  }
}

Central read_central(Fields& fields, const std::string& path) {
  Central central;
  if (fields.u32() != kCentralSignature) reject_zip(path, "its directory is damaged");
  fields.take(4);  // versions
  central.flags = fields.u16();
  const uint16_t method = fields.u16();
  fields.take(4);  // time
  central.entry.crc = fields.u32();
  uint64_t stored_size = fields.u32();
  central.entry.size = fields.u32();
  const uint16_t name_bytes = fields.u16();
  const uint16_t extra_bytes = fields.u16();
  const uint16_t comment_bytes = fields.u16();
  fields.take(8);  // disk, attributes
  central.header_offset = fields.u32();
  central.entry.name = std::string(fields.take_bytes(name_bytes));
  read_zip64_field(fields.take_bytes(extra_bytes), central, stored_size, path);
  fields.take_bytes(comment_bytes);
  if (central.entry.name.empty() || name_bytes > kMaxEntryNameBytes)
    reject_zip(path, "an entry has no name");
  if ((central.flags & kEncrypted) != 0 || method != 0 || stored_size != central.entry.size) {
    reject_zip(path, "an entry is compressed or encrypted");
  }
  return central;
}

// Finds the data, and compares the local header with the directory.
void locate_data(const ReadableFile& file, const std::string& path, const Directory& directory,
                 Central& central) {
  ZipEntry& entry = central.entry;
  const uint64_t fixed = kLocalBytes + entry.name.size();
  if (central.header_offset > directory.offset ||
      directory.offset - central.header_offset < fixed) {
    reject_zip(path, "an entry is outside the file");
  }
  const std::string text = read_text(file, central.header_offset, fixed);
  Fields local(text, path);
  const bool signature = local.u32() == kLocalSignature;
  local.take(2);
  const uint16_t flags = local.u16();
  const uint16_t method = local.u16();
  local.take(4);
  const uint32_t crc = local.u32();
  local.take(4);
  const uint32_t size = local.u32();
  const uint16_t name_bytes = local.u16();
  const uint16_t extra_bytes = local.u16();
  const bool sizes_here = (flags & kSizesFollow) == 0;
  if (!signature || method != 0 || flags != central.flags || name_bytes != entry.name.size() ||
      local.take_bytes(name_bytes) != entry.name || (sizes_here && crc != entry.crc) ||
      (sizes_here && size != kIn64 && size != entry.size)) {
    reject_zip(path, "an entry's own header contradicts the directory");
  }
  entry.offset = central.header_offset + fixed + extra_bytes;
  if (entry.offset > directory.offset || entry.size > directory.offset - entry.offset) {
    reject_zip(path, "an entry reaches beyond the data");
  }
}

template <class Use>
void read_checked(const ReadableFile& file, const std::string& path, const ZipEntry& entry,
                  Use use) {
  uint32_t crc = 0;
  for (uint64_t done = 0; done < entry.size;) {
    const size_t count = std::min<uint64_t>(kChunkBytes, entry.size - done);
    char* chunk = use(done);
    file.read_at(entry.offset + done, chunk, count);
    crc = crc32(chunk, count, crc);
    done += count;
  }
  if (crc != entry.crc) {
    const std::string name = entry.name.substr(entry.name.find('/') + 1);
    reject_zip(path, "the checksum of its entry '" + name + "' is wrong");
  }
}

void put(std::string& text, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
}

uint64_t in_32_bits(uint64_t value) { return std::min<uint64_t>(value, kIn64); }

}  // namespace

uint32_t crc32(const void* data, size_t size, uint32_t crc) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  const auto& tables = kCrcTables;
  uint32_t value = ~crc;
  for (; size >= 8; size -= 8, bytes += 8) {
    value ^= uint32_t{bytes[0]} | uint32_t{bytes[1]} << 8 | uint32_t{bytes[2]} << 16 |
             uint32_t{bytes[3]} << 24;
    value = tables[7][value & 0xff] ^ tables[6][value >> 8 & 0xff] ^ tables[5][value >> 16 & 0xff] ^
            tables[4][value >> 24] ^ tables[3][bytes[4]] ^ tables[2][bytes[5]] ^
            tables[1][bytes[6]] ^ tables[0][bytes[7]];
  }
  for (; size > 0; --size, ++bytes) value = (value >> 8) ^ tables[0][(value ^ *bytes) & 0xff];
  return ~value;
}

std::vector<ZipEntry> read_zip_directory(const ReadableFile& file, const std::string& path) {
  const Directory directory = find_directory(file, path);
  const std::string text = read_text(file, directory.offset, directory.bytes);
  Fields fields(text, path);
  std::vector<Central> found;
  std::unordered_set<std::string> names;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    found.push_back(read_central(fields, path));
    if (!names.insert(found.back().entry.name).second)
      reject_zip(path, "two entries have one name");
    locate_data(file, path, directory, found.back());
  }
  if (!fields.empty()) reject_zip(path, "its directory holds more than it says");

  std::sort(found.begin(), found.end(),
            [](const Central& a, const Central& b) { return a.header_offset < b.header_offset; });
  std::vector<ZipEntry> entries;
  uint64_t end = 0;
  for (Central& central : found) {
    if (central.header_offset < end) reject_zip(path, "two entries overlap");
    end = central.entry.offset + central.entry.size;
    entries.push_back(std::move(central.entry));
  }
  return entries;
}

void read_zip_entry(const ReadableFile& file, const std::string& path, const ZipEntry& entry,
                    void* data) {
  read_checked(file, path, entry, [&](uint64_t done) { return static_cast<char*>(data) + done; });
}

void check_zip_entry(const ReadableFile& file, const std::string& path, const ZipEntry& entry) {
  std::string buffer(std::min<uint64_t>(kChunkBytes, entry.size), '\0');
  read_checked(file, path, entry, [&](uint64_t) { return buffer.data(); });
}

void ZipWriter::add(const std::string& name, std::string_view data) {
  add(name, data.size(), [&](const Sink& sink) { sink(data.data(), data.size()); });
}

void ZipWriter::add(const std::string& name, uint64_t size,
                    const std::function<void(const Sink&)>& pieces) {
  ZipEntry entry{.name = name, .offset = 0, .size = size, .crc = 0};
  pieces([&](const void* data, size_t count) { entry.crc = crc32(data, count, entry.crc); });
  std::string extra;
  if (size >= kIn64) {
    put(extra, kZip64Id, 2);
    put(extra, 16, 2);
    put(extra, size, 8);
    put(extra, size, 8);
  }
  const uint64_t before_padding = position_ + kLocalBytes + name.size() + extra.size() + 4;
  const uint64_t padding = (kAlignment - before_padding % kAlignment) % kAlignment;
  put(extra, kPaddingId, 2);
  put(extra, padding, 2);
  extra.append(padding, 'Z');

  std::string header;
  put(header, kLocalSignature, 4);
  put(header, size >= kIn64 ? 45 : 0, 2);
  put(header, kUtf8Names, 2);
  put(header, 0, 2);  // stored
  put(header, 0, 4);  // no time, so that equal content gives equal bytes
  put(header, entry.crc, 4);
  put(header, in_32_bits(size), 4);
  put(header, in_32_bits(size), 4);
  put(header, name.size(), 2);
  put(header, extra.size(), 2);
  header += name;
  header += extra;

  file_.write(header);
  pieces([&](const void* data, size_t count) {
    if (count > 0) file_.write(data, count);
  });
  written_.push_back({.entry = entry, .header_offset = position_});
  position_ += header.size() + size;
}

void ZipWriter::finish() {
  std::string text;
  for (const Written& written : written_) {
    const ZipEntry& entry = written.entry;
    std::string extra;
    if (entry.size >= kIn64) {
      put(extra, entry.size, 8);
      put(extra, entry.size, 8);
    }
    if (written.header_offset >= kIn64) put(extra, written.header_offset, 8);
    std::string extra_header;
    if (!extra.empty()) {
      put(extra_header, kZip64Id, 2);
      put(extra_header, extra.size(), 2);
    }
    put(text, kCentralSignature, 4);
    put(text, 0, 2);
    put(text, extra.empty() ? 0 : 45, 2);
    put(text, kUtf8Names, 2);
    put(text, 0, 6);  // stored, no time
    put(text, entry.crc, 4);
    put(text, in_32_bits(entry.size), 4);
    put(text, in_32_bits(entry.size), 4);
    put(text, entry.name.size(), 2);
    put(text, extra_header.size() + extra.size(), 2);
    put(text, 0, 2);  // comment
    put(text, 0, 8);  // disk, attributes
    put(text, in_32_bits(written.header_offset), 4);
    text += entry.name + extra_header + extra;
  }
  const uint64_t directory_bytes = text.size();
  const uint64_t entries = written_.size();
  put(text, kEnd64Signature, 4);
  put(text, kEnd64Bytes - 12, 8);
  put(text, 45, 2);
  put(text, 45, 2);
  put(text, 0, 8);  // disks
  put(text, entries, 8);
  put(text, entries, 8);
  put(text, directory_bytes, 8);
  put(text, position_, 8);
  put(text, kLocator64Signature, 4);
  put(text, 0, 4);
  put(text, position_ + directory_bytes, 8);
  put(text, 1, 4);
  put(text, kEndSignature, 4);
  put(text, 0, 4);  // disks
  put(text, std::min<uint64_t>(entries, 0xffff), 2);
  put(text, std::min<uint64_t>(entries, 0xffff), 2);
  put(text, in_32_bits(directory_bytes), 4);
  put(text, in_32_bits(position_), 4);
  put(text, 0, 2);
  file_.write(text);
}

}  // namespace finetune
