// SPDX-License-Identifier: MIT
// A SentencePiece model with any content: the library and the pipelines of XLM-RoBERTa and BigBird
// must survive what the check accepts.
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

void write(const std::string& path, const char* data, std::size_t size) {
  std::ofstream(path, std::ios::binary).write(data, static_cast<std::streamsize>(size));
}

void check(const std::string& folder) {
  using namespace finetune;
  constexpr std::string_view kText =
      "La suno <x>\xEF\xBC\xA1 e\xCC\x81\xEF\xAC\x81 \xE6\x9C\x9D uuuuuuuuuu [MASK]";
  try {
    const auto tokenizer = load_tokenizer(folder);
    const auto tokens = tokenizer->encode_with_ranges(kText);
    for (const auto id : tokens.ids) {
      if (id < 0 || id >= tokenizer->size()) __builtin_trap();
    }
    for (const auto& range : tokens.ranges) {
      if (range.begin < 0 || range.end > static_cast<int64_t>(kText.size())) __builtin_trap();
    }
    if (tokens.ids != tokenizer->encode(kText)) __builtin_trap();
    const auto text = tokenizer->decode(tokens.ids, false);
    if (utf8::find_invalid(text) != std::string::npos) __builtin_trap();
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  for (const std::string name : {"", "XLMRobertaTokenizer", "BigBirdTokenizer"}) {
    const std::string config = "{\"tokenizer_class\": \"" + name + "\"}";
    write(folder.path + "/tokenizer_config.json", config.data(), config.size());
    write(folder.path + "/spiece.model", reinterpret_cast<const char*>(data), size);
    check(folder.path);
  }
  return 0;
}
