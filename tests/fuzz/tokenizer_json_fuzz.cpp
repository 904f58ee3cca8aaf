// SPDX-License-Identifier: MIT
// A tokenizer.json with any content encodes and decodes a text, or throws an Error. Its ranges are
// inside the text and on character boundaries.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "finetune/base/error.h"
#include "finetune/base/utf8.h"
#include "finetune/tokenizer/tokenizer.h"

namespace {

// Creates a folder for this process, in memory where possible.
std::string make_folder() {
  const std::filesystem::path memory = "/dev/shm";
  const std::filesystem::path parent =
      std::filesystem::exists(memory) ? memory : std::filesystem::temp_directory_path();
  const std::filesystem::path folder = parent / ("finetune-fuzz-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  return folder.string();
}

struct Folder {
  std::string path = make_folder();
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

bool starts_character(const std::string& text, std::int64_t at) {
  const auto index = static_cast<std::size_t>(at);
  return index == text.size() || (static_cast<unsigned char>(text[index]) & 0xC0) != 0x80;
}

void check(const finetune::TextRange& range, const std::string& text) {
  if (range.begin < 0 || range.begin > range.end ||
      range.end > static_cast<std::int64_t>(text.size()) || !starts_character(text, range.begin) ||
      !starts_character(text, range.end)) {
    __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace finetune;
  static const Folder folder;
  std::ofstream(folder.path + "/tokenizer.json", std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    const auto tokenizer = load_tokenizer(folder.path);
    // The end of the input serves as text, so that it contains words of the vocabulary.
    const std::string tail =
        utf8::replace_invalid({reinterpret_cast<const char*>(data) + size - (size < 64 ? size : 64),
                               size < 64 ? size : 64});
    const std::string text =
        "ab <s><mask>a\xCC\x81 \xE6\x9C\x9D's  x" + tail + std::string(80, 'a');
    const Tokens tokens = tokenizer->encode_with_ranges(text);
    if (tokens.ids != tokenizer->encode(text) || tokens.ranges.size() != tokens.ids.size()) {
      __builtin_trap();
    }
    for (const TextRange& range : tokens.ranges) check(range, text);
    const ModelText pair = tokenizer->combine(tokens.ids, tokenizer->encode_word(tail));
    if (pair.token_types.size() != pair.ids.size()) __builtin_trap();
    const auto ids = tokenizer->add_special_tokens(tokens.ids);
    for (const auto id : ids) {
      if (id < 0 || id >= tokenizer->size()) __builtin_trap();
    }
    const std::string decoded = tokenizer->decode(ids, true) + tokenizer->decode(ids, false);
    if (utf8::find_invalid(decoded) != std::string::npos) __builtin_trap();
  } catch (const Error&) {
  }
  return 0;
}
