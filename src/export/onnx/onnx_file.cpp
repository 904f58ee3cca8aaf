// SPDX-License-Identifier: MIT
#include "export/onnx/onnx_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/base/version.h"

namespace finetune {
namespace {

constexpr int64_t kIrVersion = 8;
constexpr uint64_t kSmallBytes = 1024;     // initializers up to this size stay in the file
constexpr uint64_t kDataAlignment = 4096;  // of the second file, which readers map
constexpr uint64_t kMostHeader = 1 << 20;  // of an initializer without its values

// onnx.proto's TensorProto.DataType
constexpr std::array<std::pair<at::ScalarType, uint64_t>, 7> kTypes = {{{at::kFloat, 1},
                                                                        {at::kByte, 2},
                                                                        {at::kChar, 3},
                                                                        {at::kInt, 6},
                                                                        {at::kLong, 7},
                                                                        {at::kBool, 9},
                                                                        {at::kHalf, 10}}};

// A message: fields with their numbers in onnx.proto.
class Message {
 public:
  Message& number(uint64_t field, uint64_t value) {
    varint(field << 3);
    varint(value);
    return *this;
  }
  Message& real(uint64_t field, float value) {
    varint(field << 3 | 5);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  Message& text(uint64_t field, std::string_view value) {
    length(field, value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(uint64_t field, const Message& value) { return text(field, value.bytes_); }
  // The begin of a field whose `size` bytes follow elsewhere.
  Message& length(uint64_t field, uint64_t size) {
    varint(field << 3 | 2);
    varint(size);
    return *this;
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 128; value >>= 7) bytes_ += static_cast<char>(value | 128);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

Message pair_message(const std::string& key, const std::string& value) {
  return Message().text(1, key).text(2, value);
}

Message attribute_message(const OnnxAttribute& attribute) {
  Message message;
  message.text(1, attribute.name);
  if (const auto* real = std::get_if<float>(&attribute.value)) {
    return message.real(2, *real).number(20, 1);
  }
  if (const auto* number = std::get_if<int64_t>(&attribute.value)) {
    return message.number(3, static_cast<uint64_t>(*number)).number(20, 2);
  }
  for (const int64_t one : std::get<std::vector<int64_t>>(attribute.value)) {
    message.number(8, static_cast<uint64_t>(one));
  }
  return message.number(20, 7);
}

Message node_message(const OnnxNode& node, size_t index) {
  Message message;
  for (const std::string& input : node.inputs) message.text(1, input);
  for (const std::string& output : node.outputs) message.text(2, output);
  message.text(3, node.op + "_" + std::to_string(index)).text(4, node.op);
  for (const OnnxAttribute& one : node.attributes) message.message(5, attribute_message(one));
  return message;
}

Message port_message(const OnnxPort& port) {
  Message shape;
  for (const auto& size : port.shape) {
    Message dimension;
    if (const auto* name = std::get_if<std::string>(&size)) {
      dimension.text(2, *name);
    } else {
      dimension.number(1, static_cast<uint64_t>(std::get<int64_t>(size)));
    }
    shape.message(1, dimension);
  }
  const Message tensor =
      Message().number(1, static_cast<uint64_t>(onnx_type(port.type))).message(2, shape);
  return Message().text(1, port.name).message(2, Message().message(1, tensor));
}

// What a TensorProto has before its values, which are its last field.
Message tensor_head(const LazyTensor& tensor, const ExternalData& external, size_t index) {
  Message message;
  for (const int64_t size : tensor.shape) message.number(1, static_cast<uint64_t>(size));
  message.number(2, static_cast<uint64_t>(onnx_type(tensor.type))).text(8, tensor.name);
  const std::optional<uint64_t> offset =
      external.offsets.empty() ? std::nullopt : external.offsets[index];
  if (!offset) return message.length(9, tensor.bytes());
  return message.message(13, pair_message("location", external.file_name))
      .message(13, pair_message("offset", std::to_string(*offset)))
      .message(13, pair_message("length", std::to_string(tensor.bytes())))
      .number(14, 1);
}

// The bytes of a file but the values of its initializers, which follow those of each head.
struct Parts {
  std::string begin;               // of the model, up to the graph's initializers
  std::vector<std::string> heads;  // of the initializers
  std::string end;                 // the rest of the graph
  uint64_t bytes = 0;              // of all
};

bool is_inside(const ExternalData& external, size_t index) {
  return external.offsets.empty() || !external.offsets[index];
}

Parts parts_of(const OnnxModel& model, const ExternalData& external) {
  Parts parts;
  Message graph;
  for (size_t i = 0; i < model.nodes.size(); ++i) {
    graph.message(1, node_message(model.nodes[i], i));
  }
  graph.text(2, "finetune");
  uint64_t size = graph.bytes().size();
  for (size_t i = 0; i < model.initializers.size(); ++i) {
    const Message head = tensor_head(model.initializers[i], external, i);
    const uint64_t values = is_inside(external, i) ? model.initializers[i].bytes() : 0;
    parts.heads.push_back(Message().length(5, head.bytes().size() + values).bytes() + head.bytes());
    size += parts.heads.back().size() + values;
  }
  Message ports;
  for (const OnnxPort& port : model.inputs) ports.message(11, port_message(port));
  for (const OnnxPort& port : model.outputs) ports.message(12, port_message(port));
  parts.end = ports.bytes();
  size += parts.end.size();
  Message whole;
  whole.number(1, static_cast<uint64_t>(kIrVersion)).text(2, "finetune").text(3, kVersion);
  whole.message(8, Message().text(1, "").number(2, static_cast<uint64_t>(kOnnxOpset)));
  for (const auto& [key, value] : model.metadata) whole.message(14, pair_message(key, value));
  whole.length(7, size);
  parts.begin = whole.bytes() + graph.bytes();
  parts.bytes = whole.bytes().size() + size;
  return parts;
}

void write_values(WritableFile& file, const LazyTensor& tensor) {
  const bool is_half = tensor.type == at::kHalf;
  const bool is_real = tensor.type == at::kFloat || is_half;
  try {
    for_each_piece(
        tensor, [&](const void* data, size_t bytes) { file.write(data, bytes); },
        is_real ? Numbers::kFinite : Numbers::kAny);
  } catch (const NonFinite&) {
    throw Error(ErrorKind::kData,
                "the weight '" + tensor.name.substr(0, tensor.name.find(kTransposedEnd)) +
                    "' has values that are " +
                    (is_half ? "too large for float16; use --outtype f32" : "NaN or Inf"));
  }
}

// Reads the fields of messages. All lengths are checked against the message that holds them.
class Reader {
 public:
  struct Field {
    uint64_t number = 0, wire = 0;
    uint64_t value = 0;           // of a varint
    uint64_t begin = 0, end = 0;  // of a field with a length
  };

  Reader(const ReadableFile& file, const std::string& where, uint64_t begin, uint64_t end)
      : file_(file), where_(where), position_(begin), end_(end) {}

  std::optional<Field> next() {
    if (position_ == end_) return std::nullopt;
    const uint64_t key = varint();
    Field field{.number = key >> 3, .wire = key & 7};
    switch (field.wire) {
      case 0:
        field.value = varint();
        return field;
      case 1:
        skip(8);
        return field;
      case 2: {
        const uint64_t size = varint();
        field.begin = position_;
        skip(size);
        field.end = position_;
        return field;
      }
      case 5:
        skip(4);
        return field;
      default:
        damaged("a field of an unknown type");
    }
  }
  [[nodiscard]] std::string text(const Field& field) const {
    if (field.wire != 2 || field.end - field.begin > kMostHeader)
      damaged("a field that is not a text");
    std::string value(field.end - field.begin, '\0');
    file_.read_at(field.begin, value.data(), value.size());
    return value;
  }
  [[nodiscard]] Reader inside(const Field& field) const {
    if (field.wire != 2) damaged("a field that is not a message");
    return {file_, where_, field.begin, field.end};
  }
  [[noreturn]] void damaged(const std::string& what) const {
    throw Error(ErrorKind::kData,
                format_text("'{}' is no file of ONNX: {} at byte {}", where_, what, position_));
  }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint64_t byte = next_byte();
      value |= (byte & 127) << shift;
      if (byte < 128) return value;
    }
    damaged("a number of more than 64 bits");
  }
  // From a buffer, since a read of the file is a call of the system.
  uint8_t next_byte() {
    if (position_ == end_) damaged("an end within a number");
    if (position_ < buffered_ || position_ >= buffered_ + buffer_.size()) {
      buffer_.resize(std::min<uint64_t>(end_ - position_, 256));
      file_.read_at(position_, buffer_.data(), buffer_.size());
      buffered_ = position_;
    }
    return static_cast<uint8_t>(buffer_[position_++ - buffered_]);
  }
  void skip(uint64_t size) {
    if (size > end_ - position_) damaged("a field that goes beyond its message");
    position_ += size;
  }

  const ReadableFile& file_;
  const std::string& where_;
  uint64_t position_, end_;
  std::string buffer_ = {};
  uint64_t buffered_ = 0;
};

uint64_t parsed_number(const Reader& reader, const std::string& text) {
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != text.npos) {
    reader.damaged("a position without digits");
  }
  return std::stoull(text);
}

OnnxEntry read_tensor(Reader reader) {
  OnnxEntry entry;
  uint64_t type = 0;
  uint64_t values = 1;
  while (const auto field = reader.next()) {
    if (field->number == 1 && field->wire == 0) {
      if (field->value > (uint64_t{1} << 40) || values > (uint64_t{1} << 40)) {
        reader.damaged("a size beyond all models");
      }
      values *= field->value;
      entry.shape.push_back(static_cast<int64_t>(field->value));
    } else if (field->number == 2) {
      type = field->value;
    } else if (field->number == 8) {
      entry.name = reader.text(*field);
    } else if (field->number == 9 && field->wire == 2) {
      entry.offset = field->begin;
      entry.bytes = field->end - field->begin;
    } else if (field->number == 13) {
      Reader pair = reader.inside(*field);
      std::string key;
      std::string value;
      while (const auto part = pair.next()) (part->number == 1 ? key : value) = pair.text(*part);
      if (key == "location") entry.location = value;
      if (key == "offset") entry.offset = parsed_number(reader, value);
      if (key == "length") entry.bytes = parsed_number(reader, value);
    }
  }
  const auto found = std::ranges::find(kTypes, type, &std::pair<at::ScalarType, uint64_t>::second);
  if (found == kTypes.end()) reader.damaged("a tensor of an unknown type");
  entry.type = found->first;
  if (values > (uint64_t{1} << 40) || values * c10::elementSize(entry.type) != entry.bytes) {
    reader.damaged("a tensor whose values have another size");
  }
  return entry;
}

}  // namespace

int64_t onnx_type(at::ScalarType type) {
  const auto found = std::ranges::find(kTypes, type, &std::pair<at::ScalarType, uint64_t>::first);
  if (found != kTypes.end()) return static_cast<int64_t>(found->second);
  throw Error(ErrorKind::kData,
              std::string("values of type ") + c10::toString(type) + " have no form in ONNX here");
}

ExternalData plan_external_data(const OnnxModel& model, const std::string& file_name) {
  ExternalData external{.file_name = file_name, .offsets = {}};
  for (const LazyTensor& tensor : model.initializers) {
    if (tensor.bytes() <= kSmallBytes) {
      external.offsets.emplace_back();
      continue;
    }
    external.bytes = (external.bytes + kDataAlignment - 1) / kDataAlignment * kDataAlignment;
    external.offsets.emplace_back(external.bytes);
    external.bytes += tensor.bytes();
  }
  return external;
}

uint64_t onnx_bytes(const OnnxModel& model, const ExternalData& external) {
  return parts_of(model, external).bytes;
}

void write_onnx(WritableFile& file, const OnnxModel& model, const ExternalData& external) {
  const Parts parts = parts_of(model, external);
  file.write(parts.begin);
  for (size_t i = 0; i < model.initializers.size(); ++i) {
    file.write(parts.heads[i]);
    if (is_inside(external, i)) write_values(file, model.initializers[i]);
  }
  file.write(parts.end);
}

void write_external_data(WritableFile& file, const OnnxModel& model, const ExternalData& external) {
  const std::string zeros(kDataAlignment, '\0');
  uint64_t position = 0;
  for (size_t i = 0; i < model.initializers.size(); ++i) {
    if (is_inside(external, i)) continue;
    file.write(zeros.data(), *external.offsets[i] - position);
    write_values(file, model.initializers[i]);
    position = *external.offsets[i] + model.initializers[i].bytes();
  }
}

std::vector<OnnxEntry> read_onnx(const ReadableFile& file, const std::string& where) {
  std::vector<OnnxEntry> entries;
  Reader model(file, where, 0, file.size());
  while (const auto field = model.next()) {
    if (field->number != 7) continue;
    Reader graph = model.inside(*field);
    while (const auto part = graph.next()) {
      if (part->number == 5) entries.push_back(read_tensor(graph.inside(*part)));
    }
  }
  return entries;
}

}  // namespace finetune
