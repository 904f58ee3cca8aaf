// SPDX-License-Identifier: MIT
// Input: a file of ONNX (that of the corpus is an export of tests/fixtures/model). Whatever
// read_onnx() accepts has values within the file, of the size that shape and type say.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "export/onnx/onnx_file.h"
#include "finetune/base/error.h"
#include "finetune/export/export.h"

namespace {

class Bytes final : public finetune::ReadableFile {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  [[nodiscard]] std::uint64_t size() const override { return size_; }
  void read_at(std::uint64_t offset, void* data, std::size_t size) const override {
    if (offset > size_ || size > size_ - offset) __builtin_trap();
    std::memcpy(data, data_ + offset, size);
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace finetune;
  try {
    for (const OnnxEntry& entry : read_onnx(Bytes(data, size), "fuzz.onnx")) {
      std::uint64_t values = 1;
      for (const std::int64_t one : entry.shape) values *= static_cast<std::uint64_t>(one);
      if (values * c10::elementSize(entry.type) != entry.bytes) __builtin_trap();
      if (!entry.location.empty()) continue;
      if (entry.offset > size || entry.bytes > size - entry.offset) __builtin_trap();
    }
  } catch (const Error&) {
  }
  return 0;
}
