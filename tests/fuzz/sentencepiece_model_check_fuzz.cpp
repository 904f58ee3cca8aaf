// SPDX-License-Identifier: MIT
// A SentencePiece model with any content: what the check lets through, the library must survive.
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace finetune;
  static const Folder folder;
  std::ofstream(folder.path + "/spiece.model", std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    const auto tokenizer = load_tokenizer(folder.path);
    const auto ids =
        tokenizer->encode("La suno <x>\xEF\xBC\xA1 e\xCC\x81\xEF\xAC\x81 \xE6\x9C\x9D uuuuuuuuuu");
    for (const auto id : ids) {
      if (id < 0 || id >= tokenizer->size()) __builtin_trap();
    }
    if (utf8::find_invalid(tokenizer->decode(ids, false)) != std::string::npos) __builtin_trap();
  } catch (const Error&) {
  }
  return 0;
}
