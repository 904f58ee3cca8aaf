// SPDX-License-Identifier: MIT
#include "export/gguf_file.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/tensor/finite.h"

namespace finetune {
namespace {

constexpr uint32_t kGgufVersion = 3;
constexpr uint64_t kAlignment = 32;
constexpr size_t kLongestName = 63;  // GGML_MAX_NAME with the end of the text
constexpr uint64_t kPieceValues = uint64_t{512} << 10;

// gguf_type of ggml.
template <class Value>
constexpr uint32_t type_number() {
  if constexpr (std::is_same_v<Value, uint32_t>) return 4;
  if constexpr (std::is_same_v<Value, int32_t>) return 5;
  if constexpr (std::is_same_v<Value, float>) return 6;
  if constexpr (std::is_same_v<Value, bool>) return 7;
  if constexpr (std::is_same_v<Value, std::string>) return 8;
  return 9;  // an array
}

class Bytes {
 public:
  template <class Number>
  void put(Number number) {
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  void put_value(const std::string& text) {
    put<uint64_t>(text.size());
    bytes_ += text;
  }
  void put_value(bool value) { put<uint8_t>(value ? 1 : 0); }
  template <class Number>
  void put_value(Number number) {
    put(number);
  }
  template <class Item>
  void put_value(const std::vector<Item>& list) {
    put(type_number<Item>());
    put<uint64_t>(list.size());
    for (const Item& item : list) put_value(item);
  }
  void pad() { bytes_.resize((bytes_.size() + kAlignment - 1) / kAlignment * kAlignment, '\0'); }
  [[nodiscard]] const std::string& get() const { return bytes_; }

 private:
  std::string bytes_;
};

uint64_t padded(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::string header(const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors) {
  Bytes bytes;
  bytes.put(std::array<char, 4>{'G', 'G', 'U', 'F'});
  bytes.put(kGgufVersion);
  bytes.put<uint64_t>(tensors.size());
  bytes.put<uint64_t>(metadata.all().size());
  for (const auto& [name, value] : metadata.all()) {
    bytes.put_value(name);
    std::visit(
        [&](const auto& content) {
          bytes.put(type_number<std::decay_t<decltype(content)>>());
          bytes.put_value(content);
        },
        value);
  }
  uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    if (tensor.name.size() > kLongestName) {
      throw Error(ErrorKind::kData, format_text("the tensor '{}' has a longer name than the {} "
                                                "bytes that GGUF's readers take",
                                                tensor.name, kLongestName));
    }
    bytes.put_value(tensor.name);
    bytes.put(static_cast<uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) {
      bytes.put(static_cast<uint64_t>(*size));
    }
    bytes.put(static_cast<uint32_t>(tensor.type));
    bytes.put(offset);
    offset += padded(tensor.bytes());
  }
  bytes.pad();
  return bytes.get();
}

void write_values(WritableFile& file, const GgufTensor& tensor) {
  const GgmlTraits& traits = traits_of(tensor.type);
  const int64_t rows = tensor.shape.front();
  const uint64_t row_values =
      tensor.bytes() / traits.block_bytes * traits.block_values / static_cast<uint64_t>(rows);
  const auto step = std::max<int64_t>(1, static_cast<int64_t>(kPieceValues / row_values));
  std::vector<uint8_t> bytes;
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t count = std::min(step, rows - first);
    const Tensor piece = tensor.rows(first, count).contiguous();
    refuse_nonfinite(tensor.name, piece, first * static_cast<int64_t>(row_values));
    const std::span<const float> values(piece.const_data_ptr<float>(),
                                        static_cast<size_t>(piece.numel()));
    bytes.resize(values.size() / traits.block_values * traits.block_bytes);
    if (!encode_ggml(tensor.type, values, bytes.data())) {
      throw Error(ErrorKind::kData, format_text("the tensor '{}' has values that {} cannot hold; "
                                                "export it with --outtype f32 or bf16",
                                                tensor.name, traits.name));
    }
    file.write(bytes.data(), bytes.size());
  }
}

}  // namespace

void GgufMetadata::set(const std::string& name, Value value) {
  const auto found = std::ranges::find(values_, name, [](const auto& one) { return one.first; });
  if (found != values_.end()) {
    found->second = std::move(value);
  } else {
    values_.emplace_back(name, std::move(value));
  }
}

uint64_t GgufTensor::bytes() const {
  uint64_t values = 1;
  for (const int64_t size : shape) values *= static_cast<uint64_t>(size);
  const GgmlTraits& traits = traits_of(type);
  return values / traits.block_values * traits.block_bytes;
}

uint64_t gguf_bytes(const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors) {
  uint64_t bytes = header(metadata, tensors).size();
  for (const GgufTensor& tensor : tensors) bytes += padded(tensor.bytes());
  return bytes;
}

std::vector<uint64_t> gguf_offsets(const GgufMetadata& metadata,
                                   const std::vector<GgufTensor>& tensors) {
  uint64_t offset = header(metadata, tensors).size();
  std::vector<uint64_t> offsets;
  for (const GgufTensor& tensor : tensors) {
    offsets.push_back(offset);
    offset += padded(tensor.bytes());
  }
  return offsets;
}

Tensor read_gguf_tensor(const ReadableFile& file, const GgufTensor& tensor, uint64_t offset) {
  std::vector<uint8_t> bytes(tensor.bytes());
  file.read_at(offset, bytes.data(), bytes.size());
  Tensor values = at::empty(tensor.shape, at::kFloat);
  decode_ggml(tensor.type, bytes.data(),
              {values.mutable_data_ptr<float>(), static_cast<size_t>(values.numel())});
  return values;
}

void write_gguf(WritableFile& file, const GgufMetadata& metadata,
                const std::vector<GgufTensor>& tensors) {
  file.write(header(metadata, tensors));
  constexpr char kZeros[kAlignment] = {};
  for (const GgufTensor& tensor : tensors) {
    if (tensor.bytes() == 0) continue;
    write_values(file, tensor);
    file.write(kZeros, padded(tensor.bytes()) - tensor.bytes());
  }
}

}  // namespace finetune
