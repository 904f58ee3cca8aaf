// SPDX-License-Identifier: MIT
// Input: a block of a tokenised cache, or the text of a cache's manifest.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "data/cache/token_block.h"
#include "data/cache/token_manifest.h"
#include "finetune/base/error.h"
#include "finetune/base/hash.h"
#include "finetune/data/dataset.h"

namespace {

// Fixes the checksums, because a forged block would have correct ones.
std::string with_right_sums(std::string file) {
  using finetune::hash_number;
  uint64_t header = 0;
  if (file.size() < 24) return file;
  const uint64_t size = file.size();
  std::memcpy(file.data() + 16, &size, sizeof(size));
  std::memcpy(&header, file.data() + 8, sizeof(header));
  const uint64_t piece = finetune::TokenBlock::kPiece;
  const uint64_t pieces = header < size ? (size - header + piece - 1) / piece : 0;
  constexpr uint64_t kFirstSum = 8 * finetune::TokenBlock::kFixedWords;
  if (header > size || header < kFirstSum + 8 * (pieces + 1)) return file;
  for (uint64_t i = 0; i < pieces; ++i) {
    const uint64_t begin = header + i * piece;
    const uint64_t sum =
        hash_number(file.data() + begin, static_cast<size_t>(std::min(piece, size - begin)));
    std::memcpy(file.data() + kFirstSum + 8 * i, &sum, sizeof(sum));
  }
  const uint64_t sum = hash_number(file.data(), header - 8);
  std::memcpy(file.data() + header - 8, &sum, sizeof(sum));
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace finetune;
  static const std::string path = [] {
    static std::string made =
        (std::filesystem::temp_directory_path() / "token-cache-fuzz-XXXXXX").string();
    if (const int descriptor = ::mkstemp(made.data()); descriptor >= 0) ::close(descriptor);
    std::atexit([] { ::unlink(made.c_str()); });
    return made;
  }();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    static_cast<void>(parse_token_manifest(text, "input"));
  } catch (const Error&) {
  }
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return 0;
  const std::string content = with_right_sums(std::string(text));
  std::fwrite(content.data(), 1, content.size(), file);
  std::fclose(file);
  try {
    const TokenBlock block(path, {.ids = 300, .labels = 300, .classes = 4});
    int64_t sum = 0;
    for (int64_t sequence = 0; sequence < block.sequences(); ++sequence) {
      const Example example = block.get(sequence);
      for (const int32_t id : example.input_ids) {
        if (id < 0 || id >= 300) std::abort();
      }
      for (const int32_t label : example.labels) sum += label;
      for (const int32_t word : example.words) sum += word;
      sum += static_cast<int64_t>(block.extra().size());
    }
    if (sum == 1) return 0;
  } catch (const Error&) {
  }
  return 0;
}
