// SPDX-License-Identifier: MIT
#include "finetune/tensor/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_set>

#include "finetune/base/error.h"

namespace finetune {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxNameBytes = 512;
constexpr size_t kMaxDimensions = 8;
constexpr size_t kMaxTensors = 1'000'000;

struct TypeRow {
  DType dtype;
  const char* name;
  uint64_t bytes;
};
constexpr std::array<TypeRow, 10> kTypes = {{{DType::kBool, "BOOL", 1},
                                             {DType::kU8, "U8", 1},
                                             {DType::kI8, "I8", 1},
                                             {DType::kI16, "I16", 2},
                                             {DType::kF16, "F16", 2},
                                             {DType::kBF16, "BF16", 2},
                                             {DType::kI32, "I32", 4},
                                             {DType::kF32, "F32", 4},
                                             {DType::kF64, "F64", 8},
                                             {DType::kI64, "I64", 8}}};

[[noreturn]] void reject(const std::string& path, const std::string& reason) {
  throw Error(ErrorKind::kData, "'" + path + "' is not a usable safetensors file: " + reason +
                                    "; write or fetch it again");
}

bool has_control_characters(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

// Builds the header and checks the grammar: an object of tensors, each with exactly dtype, shape
// and data_offsets, and at most one __metadata__ of strings. Offsets stay relative.
class HeaderParser : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderParser(std::string path) : path_(std::move(path)) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return unexpected("a fraction or a number beyond 64 bits");
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ == State::kShape) {
      if (tensor().shape.size() == kMaxDimensions) fail("has more than 8 dimensions");
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        fail("has a dimension beyond 63 bits");
      }
      tensor().shape.push_back(static_cast<int64_t>(value));
    } else if (state_ == State::kOffsets) {
      if (offsets_.size() == 2) fail("has more than two data_offsets");
      offsets_.push_back(value);
    } else {
      return unexpected("a number");
    }
    return true;
  }

  bool string(string_t& value) override {
    if (state_ == State::kMetadata) {
      header_.metadata[key_] = value;
    } else if (state_ == State::kTensor && key_ == "dtype") {
      const auto row = std::find_if(kTypes.begin(), kTypes.end(),
                                    [&](const TypeRow& type) { return value == type.name; });
      if (row == kTypes.end()) fail("has a type that is not known here");
      tensor().dtype = row->dtype;
    } else {
      return unexpected("a string");
    }
    return true;
  }

  bool start_object(size_t) override {
    if (state_ == State::kStart) {
      state_ = State::kTop;
    } else if (state_ == State::kTop) {
      state_ = key_ == "__metadata__" ? State::kMetadata : State::kTensor;
      if (state_ == State::kTensor) open_tensor();
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (state_ == State::kTensor) close_tensor();
    state_ = state_ == State::kTop ? State::kEnd : State::kTop;
    return true;
  }

  bool start_array(size_t) override {
    if (state_ == State::kTensor && key_ == "shape") {
      state_ = State::kShape;
    } else if (state_ == State::kTensor && key_ == "data_offsets") {
      state_ = State::kOffsets;
    } else {
      return unexpected("an array");
    }
    return true;
  }

  bool end_array() override {
    state_ = State::kTensor;
    return true;
  }

  bool key(string_t& name) override {
    key_ = name;
    if (state_ == State::kTensor) {
      const unsigned bit = key_ == "dtype"          ? 1U
                           : key_ == "shape"        ? 2U
                           : key_ == "data_offsets" ? 4U
                                                    : 0U;
      if (bit == 0) fail("has a key other than dtype, shape and data_offsets");
      if ((seen_ & bit) != 0) fail("has the key '" + key_ + "' twice");
      seen_ |= bit;
    } else if (state_ == State::kMetadata) {
      if (header_.metadata.count(key_) > 0) fail("__metadata__ has a key twice");
      header_.metadata.emplace(key_, "");
    } else if (!names_.insert(key_).second) {
      if (has_control_characters(key_)) fail("a name is there twice");
      fail("the name '" + key_.substr(0, kMaxNameBytes) + "' is there twice");
    }
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    reject(path_, "its header is not valid JSON at byte " + std::to_string(position));
  }

 private:
  enum class State { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };

  TensorInfo& tensor() { return header_.tensors.back(); }

  [[noreturn]] void fail(const std::string& reason) const {
    const bool inside =
        state_ == State::kTensor || state_ == State::kShape || state_ == State::kOffsets;
    reject(path_, (inside ? "tensor '" + header_.tensors.back().name + "' " : "") + reason);
  }

  bool unexpected(const std::string& what) const {
    fail((state_ == State::kTensor ? "has " : "its header has ") + what + " in a wrong place");
  }

  void open_tensor() {
    if (key_.empty() || key_.size() > kMaxNameBytes || has_control_characters(key_)) {
      reject(path_, "a tensor's name is empty, longer than 512 bytes or has control characters");
    }
    if (header_.tensors.size() == kMaxTensors) reject(path_, "it has more than a million tensors");
    header_.tensors.emplace_back();
    tensor().name = key_;
    offsets_.clear();
    seen_ = 0;
  }

  void close_tensor() {
    if (seen_ != 7U || offsets_.size() != 2) fail("lacks dtype, shape or data_offsets");
    if (offsets_[1] < offsets_[0]) fail("ends before it begins");
    uint64_t bytes = dtype_bytes(tensor().dtype);
    for (const int64_t size : tensor().shape) {
      if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) {
        fail("is larger than 64 bits can say");
      }
    }
    if (bytes != offsets_[1] - offsets_[0]) {
      fail("has " + std::to_string(offsets_[1] - offsets_[0]) +
           " bytes of data where its shape and type make " + std::to_string(bytes));
    }
    tensor().offset = offsets_[0];
    tensor().bytes = bytes;
  }

  std::string path_;
  SafetensorsHeader header_;
  State state_ = State::kStart;
  std::string key_;
  std::vector<uint64_t> offsets_;
  unsigned seen_ = 0;
  std::unordered_set<std::string> names_;
};

// Makes offsets absolute, and checks that the tensors cover the data exactly, in any order.
void position_tensors(SafetensorsHeader& header, uint64_t data_start, uint64_t file_size,
                      const std::string& path) {
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) {
              return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
            });
  uint64_t end = 0;
  for (TensorInfo& tensor : header.tensors) {
    if (tensor.offset != end) {
      reject(path,
             "tensor '" + tensor.name + "' leaves a hole before its data or overlaps another");
    }
    if (tensor.bytes > file_size - data_start - end) {
      reject(path, "tensor '" + tensor.name + "' reaches beyond the end of the file");
    }
    end += tensor.bytes;
    tensor.offset += data_start;
  }
  if (end != file_size - data_start) {
    reject(path, std::to_string(file_size - data_start - end) + " bytes at its end belong to none");
  }
}

std::string json_string(const std::string& text) { return nlohmann::json(text).dump(); }

}  // namespace

std::string dtype_name(DType dtype) { return kTypes[static_cast<size_t>(dtype)].name; }

uint64_t dtype_bytes(DType dtype) { return kTypes[static_cast<size_t>(dtype)].bytes; }

SafetensorsHeader read_safetensors_header(const ReadableFile& file, const std::string& path) {
  const uint64_t file_size = file.size();
  if (file_size < kLengthBytes + 2)
    reject(path, "it has only " + std::to_string(file_size) + " bytes");
  std::array<unsigned char, kLengthBytes> prefix = {};
  file.read_at(0, prefix.data(), prefix.size());
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) length = length << 8 | prefix[i];

  const uint64_t limit = std::min(kMaxHeaderBytes, file_size / 2 + 1'000'000);
  if (length < 2 || length > file_size - kLengthBytes || length > limit) {
    reject(path, "its header claims " + std::to_string(length) + " bytes of " +
                     std::to_string(file_size));
  }
  std::string text(length, '\0');
  file.read_at(kLengthBytes, text.data(), text.size());
  const size_t last = text.find_last_not_of(' ');
  if (text.front() != '{' || last == std::string::npos || text[last] != '}') {
    reject(path, "its header does not begin with '{' or not end with '}' and spaces");
  }

  HeaderParser parser(path);
  if (!nlohmann::json::sax_parse(text, &parser)) reject(path, "its header is not valid JSON");
  SafetensorsHeader header = parser.take();
  position_tensors(header, kLengthBytes + length, file_size, path);
  return header;
}

std::string make_safetensors_header(SafetensorsHeader& header) {
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) {
              return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
            });
  std::string json = "{";
  if (!header.metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : header.metadata) {
      if (json.back() != '{') json += ',';
      json += json_string(key) + ":" + json_string(value);
    }
    json += '}';
  }
  uint64_t end = 0;
  for (TensorInfo& tensor : header.tensors) {
    FT_CHECK(!tensor.name.empty() && tensor.name != "__metadata__", "a tensor needs a name");
    tensor.bytes = dtype_bytes(tensor.dtype);
    std::string shape;
    for (const int64_t size : tensor.shape) {
      tensor.bytes *= static_cast<uint64_t>(size);
      if (!shape.empty()) shape += ',';
      shape += std::to_string(size);
    }
    tensor.offset = end;
    end += tensor.bytes;
    if (json.size() > 1) json += ',';
    json += json_string(tensor.name) + ":{\"dtype\":\"" + dtype_name(tensor.dtype) +
            "\",\"shape\":[" + shape + "],\"data_offsets\":[" + std::to_string(tensor.offset) +
            "," + std::to_string(end) + "]}";
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');

  std::string bytes;
  for (size_t i = 0; i < kLengthBytes; ++i)
    bytes += static_cast<char>(json.size() >> (8 * i) & 0xff);
  bytes += json;
  for (TensorInfo& tensor : header.tensors) tensor.offset += bytes.size();
  return bytes;
}

}  // namespace finetune
