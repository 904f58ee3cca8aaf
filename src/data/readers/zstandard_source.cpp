// SPDX-License-Identifier: MIT
#include <zstd.h>
#include <zstd_errors.h>

#include <new>
#include <utility>

#include "data/readers/byte_source.h"
#include "data/readers/packed_input.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

class ZstandardSource final : public ByteSource {
 public:
  ZstandardSource(std::unique_ptr<ReadableFile> file, const std::string& name)
      : input_(std::move(file), name), stream_(::ZSTD_createDStream()) {
    if (stream_ == nullptr) throw std::bad_alloc();
  }
  ~ZstandardSource() override { ::ZSTD_freeDStream(stream_); }
  ZstandardSource(const ZstandardSource&) = delete;
  ZstandardSource& operator=(const ZstandardSource&) = delete;

  [[nodiscard]] size_t read(void* data, size_t size) override {
    ZSTD_outBuffer out = {data, size, 0};
    while (out.pos == 0 && size > 0) {
      // The remaining content of a block is returned without further input.
      if (piece_.pos == piece_.size && !has_more_ && !take_input()) return 0;
      const size_t before = piece_.pos;
      const size_t wanted = ::ZSTD_decompressStream(stream_, &out, &piece_);
      if (::ZSTD_isError(wanted) != 0) fail(wanted, out.pos);
      in_frame_ = wanted != 0;
      has_more_ = in_frame_ && out.pos == size;
      if (out.pos == 0 && piece_.pos == before && piece_.pos < piece_.size) fail(wanted, 0);
    }
    unpacked_ += out.pos;
    return out.pos;
  }
  [[nodiscard]] uint64_t offset() const override {
    return input_.offset() - (piece_.size - piece_.pos);
  }
  [[nodiscard]] uint64_t size() const override { return input_.size(); }

 private:
  bool take_input() {
    const std::string_view piece = input_.next();
    if (piece.empty()) {
      if (in_frame_) input_.fail_truncated(unpacked_);
      return false;
    }
    piece_ = {piece.data(), piece.size(), 0};
    return true;
  }

  [[noreturn]] void fail(size_t code, size_t read) const {
    const std::string reason =
        ::ZSTD_isError(code) != 0 ? ::ZSTD_getErrorName(code) : "no progress";
    const bool is_other = ::ZSTD_getErrorCode(code) == ZSTD_error_prefix_unknown;
    input_.fail(
        is_other && unpacked_ + read == 0
            ? "is named .zst but is no zstd file; give it the ending of what it holds"
            : format_text("is damaged after {} bytes of its content ({}); fetch or make it again",
                          unpacked_ + read, reason));
  }

  PackedInput input_;
  ZSTD_DStream* stream_;
  ZSTD_inBuffer piece_ = {nullptr, 0, 0};
  bool in_frame_ = false;
  bool has_more_ = false;
  uint64_t unpacked_ = 0;
};

}  // namespace

std::unique_ptr<ByteSource> read_zstandard(std::unique_ptr<ReadableFile> file,
                                           const std::string& name) {
  return std::make_unique<ZstandardSource>(std::move(file), name);
}

}  // namespace finetune
