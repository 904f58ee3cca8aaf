// SPDX-License-Identifier: MIT
#include "tokenizer/sentencepiece/sentencepiece_model_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/base/utf8.h"
#include "tokenizer/steps/precompiled_charsmap.h"

namespace finetune::tokenizer {
namespace {

constexpr size_t kMaxModelBytes = size_t{64} << 20;
constexpr size_t kMaxPieceBytes = size_t{4} << 10;
constexpr size_t kMaxSelfTests = 1000;
constexpr size_t kMaxPieces = 4'000'000;
// The library stores this many nested matches in an array on its stack without checking.
constexpr size_t kMaxNestedPieces = 32;

using SummaryPiece = SentencePieceSummary::Piece;

class ModelFault {
 public:
  explicit ModelFault(const std::string& where)
      : where_(where + ": is not a usable SentencePiece model") {}
  [[noreturn]] void operator()(const std::string& what) const {
    throw Error(ErrorKind::kData, where_ + ": " + what + "; fetch it again");
  }
  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  std::string where_;
};

// Reads the fields of a protobuf message one by one.
class MessageReader {
 public:
  MessageReader(std::string_view bytes, const ModelFault& fault) : bytes_(bytes), fault_(fault) {}

  // Returns false at the end.
  bool next() {
    if (offset_ == bytes_.size()) return false;
    const uint64_t key = varint();
    number_ = key >> 3;
    wire_ = static_cast<int>(key & 7);
    if (number_ == 0 || number_ > (uint64_t{1} << 29)) fault_("a field has an impossible number");
    switch (wire_) {
      case 0:
        value_ = varint();
        break;
      case 1:
        data_ = take(8);
        break;
      case 2: {
        const uint64_t size = varint();
        data_ = take(size);
        break;
      }
      case 5:
        data_ = take(4);
        break;
      default:
        fault_("a field has an unknown wire type");
    }
    return true;
  }

  [[nodiscard]] uint64_t number() const { return number_; }
  [[nodiscard]] uint64_t number_value() const {
    expect(0);
    return value_;
  }
  [[nodiscard]] std::string_view bytes() const {
    expect(2);
    return data_;
  }
  [[nodiscard]] std::string_view text() const {
    const std::string_view value = bytes();
    if (utf8::find_invalid(value) != std::string_view::npos) fault_("a text is not valid UTF-8");
    return value;
  }
  [[nodiscard]] float real() const {
    expect(5);
    uint32_t bits = 0;
    for (size_t i = 0; i < 4; ++i) bits |= uint32_t{static_cast<uint8_t>(data_[i])} << (8 * i);
    return std::bit_cast<float>(bits);
  }

 private:
  void expect(int wire) const {
    if (wire_ != wire) fault_(format_text("field {} has the wrong type", number_));
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (offset_ == bytes_.size()) fault_("it ends inside a number");
      const auto byte = static_cast<uint8_t>(bytes_[offset_++]);
      if (shift < 63 || byte <= 1) value |= uint64_t{byte & 0x7Fu} << shift;
      if (shift == 63 && byte > 1) fault_("a number is too large");
      if (byte < 0x80) return value;
    }
    fault_("a number is too long");
  }

  std::string_view take(uint64_t size) {
    if (size > bytes_.size() - offset_) fault_("it ends inside a field (truncated?)");
    const std::string_view data = bytes_.substr(offset_, size);
    offset_ += size;
    return data;
  }

  std::string_view bytes_;
  const ModelFault& fault_;
  size_t offset_ = 0;
  uint64_t number_ = 0;
  int wire_ = 0;
  uint64_t value_ = 0;
  std::string_view data_;
};

struct NormalizerSummary {
  std::string_view charsmap;
  bool add_dummy_prefix = true;
};

NormalizerSummary check_normalizer(std::string_view message, const ModelFault& fault) {
  NormalizerSummary summary;
  MessageReader reader(message, fault);
  while (reader.next()) {
    switch (reader.number()) {
      case 1:
      case 6:
        static_cast<void>(reader.text());
        break;
      case 2:
        summary.charsmap = reader.bytes();
        if (!summary.charsmap.empty()) check_charsmap(summary.charsmap, fault.where());
        break;
      case 3:
        summary.add_dummy_prefix = reader.number_value() != 0;
        break;
      case 4:
      case 5:
        static_cast<void>(reader.number_value());
        break;
      default:
        break;
    }
  }
  return summary;
}

void check_trainer(std::string_view message, const ModelFault& fault,
                   SentencePieceSummary& summary) {
  MessageReader reader(message, fault);
  while (reader.next()) {
    switch (reader.number()) {
      case 3:
        if (reader.number_value() < 1 || reader.number_value() > 4) fault("its type is unknown");
        summary.model_type = reader.number_value();
        break;
      case 35:
        summary.byte_fallback = reader.number_value() != 0;
        break;
      case 44:
      case 45:
      case 46:
      case 47:
      case 48:
        if (reader.text().size() > kMaxPieceBytes) fault("the name of a special piece is too long");
        break;
      default:
        break;
    }
  }
}

void check_self_tests(std::string_view message, const ModelFault& fault) {
  MessageReader reader(message, fault);
  size_t count = 0;
  while (reader.next()) {
    if (reader.number() != 1) continue;
    if (++count > kMaxSelfTests) fault("it carries too many self-tests");
    MessageReader sample(reader.bytes(), fault);
    while (sample.next()) {
      if (sample.number() > 2) continue;
      if (sample.text().size() > (size_t{64} << 10)) fault("a self-test is too long");
    }
  }
}

SummaryPiece check_piece(std::string_view message, const ModelFault& fault) {
  SummaryPiece piece;
  uint64_t type = SentencePieceSummary::kNormal;
  MessageReader reader(message, fault);
  while (reader.next()) {
    switch (reader.number()) {
      case 1:
        piece.text = reader.text();
        break;
      case 2:
        piece.score = reader.real();
        if (!std::isfinite(piece.score)) fault("the score of a piece is not a finite number");
        break;
      case 3:
        type = reader.number_value();
        break;
      default:
        break;
    }
  }
  if (piece.text.empty()) fault("a piece is empty");
  if (piece.text.size() > kMaxPieceBytes) fault("a piece is longer than 4 KiB");
  if (piece.text.find('\0') != std::string_view::npos) fault("a piece holds a NUL");
  if (type < SentencePieceSummary::kNormal || type > SentencePieceSummary::kByte) {
    fault("a piece has an unknown type");
  }
  piece.type = static_cast<SentencePieceSummary::PieceType>(type);
  return piece;
}

// Limits how many of the sorted texts may be prefixes of each other.
void check_nesting(std::vector<std::string_view> texts, const ModelFault& fault) {
  std::sort(texts.begin(), texts.end());
  std::vector<std::string_view> chain;
  for (const std::string_view text : texts) {
    while (!chain.empty() && !text.starts_with(chain.back())) chain.pop_back();
    chain.push_back(text);
    if (chain.size() > kMaxNestedPieces) {
      fault(format_text("more than {} of its user-defined pieces start one another",
                        kMaxNestedPieces));
    }
  }
}

}  // namespace

SentencePieceSummary check_sentencepiece_model(std::string_view model, const std::string& where) {
  const ModelFault fault(where);
  if (model.size() > kMaxModelBytes) fault("it is larger than 64 MiB");
  SentencePieceSummary summary;
  std::vector<std::string_view> user_defined;
  int64_t unknown = 0;
  MessageReader reader(model, fault);
  while (reader.next()) {
    switch (reader.number()) {
      case 1: {
        const SummaryPiece piece = check_piece(reader.bytes(), fault);
        if (summary.pieces.size() == kMaxPieces) fault("it has more than 4,000,000 pieces");
        if (piece.type == SentencePieceSummary::kUnknown) ++unknown;
        if (piece.type == SentencePieceSummary::kUserDefined) user_defined.push_back(piece.text);
        summary.pieces.push_back(piece);
        break;
      }
      case 2:
        check_trainer(reader.bytes(), fault, summary);
        break;
      case 3: {
        const NormalizerSummary normalizer = check_normalizer(reader.bytes(), fault);
        summary.charsmap = normalizer.charsmap;
        summary.add_dummy_prefix = normalizer.add_dummy_prefix;
        break;
      }
      case 5:  // denormalisation, which only the library uses
        static_cast<void>(check_normalizer(reader.bytes(), fault));
        break;
      case 4:
        check_self_tests(reader.bytes(), fault);
        break;
      default:
        break;
    }
  }
  if (summary.pieces.empty()) fault("it has no pieces");
  if (unknown != 1) fault("it must have exactly one piece for the unknown");
  check_nesting(std::move(user_defined), fault);
  return summary;
}

}  // namespace finetune::tokenizer
