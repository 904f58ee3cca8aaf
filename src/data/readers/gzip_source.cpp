// SPDX-License-Identifier: MIT
#include <zlib.h>

#include <limits>
#include <new>
#include <utility>

#include "data/readers/byte_source.h"
#include "data/readers/packed_input.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

class GzipSource final : public ByteSource {
 public:
  GzipSource(std::unique_ptr<ReadableFile> file, const std::string& name)
      : input_(std::move(file), name) {
    // 16: a gzip header and trailer; 15: the largest window.
    if (::inflateInit2(&stream_, 15 + 16) != Z_OK) throw std::bad_alloc();
  }
  ~GzipSource() override { ::inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  [[nodiscard]] size_t read(void* data, size_t size) override {
    const auto room = static_cast<uInt>(std::min<size_t>(size, std::numeric_limits<uInt>::max()));
    stream_.next_out = static_cast<Bytef*>(data);
    stream_.avail_out = room_ = room;
    while (stream_.avail_out == room && room > 0) {
      if (stream_.avail_in == 0 && !take_input()) return 0;
      inflate_some();
    }
    const size_t count = room - stream_.avail_out;
    unpacked_ += count;
    return count;
  }
  [[nodiscard]] uint64_t offset() const override { return input_.offset() - stream_.avail_in; }
  [[nodiscard]] uint64_t size() const override { return input_.size(); }

 private:
  bool take_input() {
    const std::string_view piece = input_.next();
    if (stream_.next_in == nullptr) has_header_ = piece.starts_with("\x1f\x8b");
    if (piece.empty()) {
      if (!between_members_) input_.fail_truncated(unpacked_);
      return false;
    }
    // zlib does not modify its input.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));
    stream_.avail_in = static_cast<uInt>(piece.size());
    return true;
  }

  void inflate_some() {
    if (between_members_) {
      skip_padding();
      if (stream_.avail_in == 0) return;
      between_members_ = false;
    }
    const int result = ::inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_MEM_ERROR) throw std::bad_alloc();
    if (result == Z_STREAM_END) {
      between_members_ = true;
      any_member_ = true;
      ::inflateReset(&stream_);
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      const uint64_t after = unpacked_ + (room_ - stream_.avail_out);
      input_.fail(
          has_header_
              ? format_text("is damaged after {} bytes of its content; fetch or make it again",
                            after)
              : "is named .gz but is no gzip file; give it the ending of what it "
                "holds");
    }
  }

  // Tapes and some writers pad with zeros, which gzip ignores too.
  void skip_padding() {
    while (any_member_ && stream_.avail_in > 0 && *stream_.next_in == 0) {
      ++stream_.next_in;
      --stream_.avail_in;
    }
  }

  PackedInput input_;
  z_stream stream_ = {};
  bool between_members_ = true;
  bool any_member_ = false;
  bool has_header_ = false;  // the file begins with a gzip header
  uInt room_ = 0;            // of the last read()
  uint64_t unpacked_ = 0;
};

}  // namespace

std::unique_ptr<ByteSource> read_gzip(std::unique_ptr<ReadableFile> file, const std::string& name) {
  return std::make_unique<GzipSource>(std::move(file), name);
}

}  // namespace finetune
