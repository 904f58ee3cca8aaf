// SPDX-License-Identifier: MIT
#pragma once

#include <zlib.h>
#include <zstd.h>

#include <string>

namespace finetune::testing {

[[nodiscard]] inline std::string gzip(const std::string& content) {
  z_stream stream = {};
  ::deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string packed(::deflateBound(&stream, content.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  ::deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  ::deflateEnd(&stream);
  return packed;
}

// Returns a frame with a checksum, as the zstd command writes it.
[[nodiscard]] inline std::string zstandard(const std::string& content) {
  ZSTD_CCtx* context = ::ZSTD_createCCtx();
  ::ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string packed(::ZSTD_compressBound(content.size()), '\0');
  packed.resize(
      ::ZSTD_compress2(context, packed.data(), packed.size(), content.data(), content.size()));
  ::ZSTD_freeCCtx(context);
  return packed;
}

}  // namespace finetune::testing
