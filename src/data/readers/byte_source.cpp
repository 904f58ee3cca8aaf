// SPDX-License-Identifier: MIT
#include "data/readers/byte_source.h"

#include <algorithm>
#include <utility>

namespace finetune {
namespace {

class PlainSource final : public ByteSource {
 public:
  explicit PlainSource(std::unique_ptr<ReadableFile> file) : file_(std::move(file)) {}

  [[nodiscard]] size_t read(void* data, size_t size) override {
    const auto count = static_cast<size_t>(std::min<uint64_t>(file_->size() - offset_, size));
    if (count > 0) file_->read_at(offset_, data, count);
    offset_ += count;
    return count;
  }
  [[nodiscard]] uint64_t offset() const override { return offset_; }
  [[nodiscard]] uint64_t size() const override { return file_->size(); }
  [[nodiscard]] bool seek(uint64_t offset) override {
    offset_ = std::min(offset, file_->size());
    return offset_ == offset;
  }

 private:
  std::unique_ptr<ReadableFile> file_;
  uint64_t offset_ = 0;
};

bool ends_with(std::string_view name, std::string_view ending) {
  if (name.size() < ending.size()) return false;
  const std::string_view last = name.substr(name.size() - ending.size());
  return std::equal(last.begin(), last.end(), ending.begin(), [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
  });
}

}  // namespace

std::string_view without_packing(std::string_view name) {
  for (const std::string_view ending : {".gz", ".zst"}) {
    if (ends_with(name, ending)) return name.substr(0, name.size() - ending.size());
  }
  return name;
}

std::unique_ptr<ByteSource> read_bytes(std::unique_ptr<ReadableFile> file,
                                       const std::string& name) {
  if (ends_with(name, ".gz")) return read_gzip(std::move(file), name);
  if (ends_with(name, ".zst")) return read_zstandard(std::move(file), name);
  return std::make_unique<PlainSource>(std::move(file));
}

}  // namespace finetune
