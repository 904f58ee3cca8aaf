// SPDX-License-Identifier: MIT
#include "finetune/tensor/torch_file.h"

#include <bit>
#include <limits>

#include "finetune/base/error.h"
#include "tensor/safetensors_dtype.h"
#include "tensor/torch_file_zip.h"

namespace finetune {
namespace {

const char* storage_class(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "BoolStorage";
    case DType::kU8:
      return "ByteStorage";
    case DType::kI8:
      return "CharStorage";
    case DType::kI16:
      return "ShortStorage";
    case DType::kF16:
      return "HalfStorage";
    case DType::kBF16:
      return "BFloat16Storage";
    case DType::kI32:
      return "IntStorage";
    case DType::kF32:
      return "FloatStorage";
    case DType::kF64:
      return "DoubleStorage";
    case DType::kI64:
      return "LongStorage";
  }
  FT_CHECK(false, "unknown DType");
}

// Writes values in pickle's protocol 2 without memo, because no object is referenced twice. Tensors
// are described and collected; their storages are numbered in that order.
class PickleWriter {
 public:
  std::string write(const TorchValue& value) {
    text_ = "\x80\x02";
    put(value);
    text_ += '.';
    return std::move(text_);
  }
  [[nodiscard]] const LazyTensors& tensors() const { return tensors_; }

 private:
  void put(const TorchValue& value) {
    std::visit([this](const auto& alternative) { put_alternative(alternative); }, value.variant());
  }

  void put_alternative(std::monostate) { text_ += 'N'; }
  void put_alternative(bool value) { text_ += value ? '\x88' : '\x89'; }
  void put_alternative(int64_t value) {
    if (value >= 0 && value <= 0xff) {
      text_ += 'K';
      bytes(static_cast<uint64_t>(value), 1);
    } else if (value >= std::numeric_limits<int32_t>::min() &&
               value <= std::numeric_limits<int32_t>::max()) {
      text_ += 'J';
      bytes(static_cast<uint64_t>(value), 4);
    } else {
      text_ += "\x8a\x08";
      bytes(static_cast<uint64_t>(value), 8);
    }
  }
  void put_alternative(double value) {
    text_ += 'G';
    bytes(__builtin_bswap64(std::bit_cast<uint64_t>(value)), 8);
  }
  void put_alternative(const std::string& value) {
    text_ += 'X';
    bytes(value.size(), 4);
    text_ += value;
  }
  void put_alternative(const TorchList& list) {
    text_ += "](";
    for (const TorchValue& item : list) put(item);
    text_ += 'e';
  }
  void put_alternative(const TorchTuple& tuple) {
    if (!tuple.items.empty()) text_ += '(';
    for (const TorchValue& item : tuple.items) put(item);
    text_ += tuple.items.empty() ? ')' : 't';
  }
  void put_alternative(const TorchDict& dict) {
    text_ += "}(";
    for (const auto& [key, value] : dict.items) {
      std::visit([this](const auto& alternative) { put_alternative(alternative); }, key);
      put(value);
    }
    text_ += 'u';
  }
  void put_alternative(const Tensor& tensor) { put_alternative(lazy_tensor("", tensor)); }
  void put_alternative(const LazyTensor& tensor) {
    const DType dtype = dtype_of(tensor.type);
    text_ += "ctorch._utils\n_rebuild_tensor_v2\n((";
    put_alternative(std::string("storage"));
    text_ += std::string("ctorch\n") + storage_class(dtype) + "\n";
    put_alternative(std::to_string(tensors_.size()));
    put_alternative(std::string("cpu"));
    put_alternative(static_cast<int64_t>(tensor.elements()));
    text_ += "tQK";
    text_ += '\0';  // offset
    put_integers(tensor.shape);
    std::vector<int64_t> strides(tensor.shape.size(), 1);
    for (size_t i = strides.size(); i-- > 1;) {
      strides[i - 1] = strides[i] * std::max<int64_t>(tensor.shape[i], 1);
    }
    put_integers(strides);
    text_ += "\x89";  // requires_grad
    text_ += "ccollections\nOrderedDict\n)RtR";
    tensors_.push_back(tensor);
  }
  [[noreturn]] void put_alternative(const StoredTensor&) {
    FT_CHECK(false, "a tensor of another file cannot be written");
  }

  void put_integers(at::IntArrayRef values) {
    if (!values.empty()) text_ += '(';
    for (const int64_t value : values) put_alternative(value);
    text_ += values.empty() ? ')' : 't';
  }
  void bytes(uint64_t value, size_t count) {
    for (size_t i = 0; i < count; ++i) text_ += static_cast<char>(value >> (8 * i) & 0xff);
  }

  std::string text_;
  LazyTensors tensors_;
};

}  // namespace

void write_torch_file(WritableFile& file, const TorchValue& value, Numbers numbers) {
  PickleWriter pickle;
  const std::string text = pickle.write(value);
  ZipWriter zip(file);
  zip.add("archive/data.pkl", text);
  zip.add("archive/byteorder", "little");
  for (size_t i = 0; i < pickle.tensors().size(); ++i) {
    const LazyTensor& tensor = pickle.tensors()[i];
    zip.add("archive/data/" + std::to_string(i), tensor.bytes(),
            [&](const ZipWriter::Sink& sink) { for_each_piece(tensor, sink, numbers); });
  }
  zip.add("archive/version", "3\n");
  zip.finish();
}

}  // namespace finetune
