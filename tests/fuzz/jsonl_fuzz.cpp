// SPDX-License-Identifier: MIT
// Data files with any content: they become a dataset or an Error. The first byte chooses the
// options.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "../data/byte_tokenizer.h"
#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/data/text_dataset.h"

namespace {

std::string scratch_file(const std::string& ending) {
  const std::filesystem::path memory = "/dev/shm";
  const std::filesystem::path folder =
      std::filesystem::exists(memory) ? memory : std::filesystem::temp_directory_path();
  return (folder / ("finetune-fuzz-" + std::to_string(::getpid()) + ending)).string();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace finetune;
  log::set_level("error");
  if (size == 0) return 0;
  const std::uint8_t choice = data[0];
  TextOptions options;
  options.line_by_line = (choice & 1) != 0;
  options.max_seq_length = 3 + (choice >> 5);
  options.vocabulary_limit = 300;
  options.position_limit = 8;
  if ((choice & 2) != 0) options.text_column = "t";
  if ((choice & 4) != 0) options.max_samples = 2;
  if ((choice & 8) != 0) options.rows = {.begin = 1, .end = 3};
  static const std::string json = scratch_file(".jsonl");
  static const std::string text = scratch_file(".txt");
  const std::string& path = (choice & 16) != 0 ? text : json;
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data) + 1, static_cast<std::streamsize>(size - 1));
  try {
    const auto dataset = build_text_dataset({path}, testing::ByteTokenizer(), options);
    if (dataset->size() == 0) std::abort();
    for (std::int64_t i = 0; i < dataset->size(); ++i) {
      const Example example = dataset->get(i);
      for (const std::int32_t id : example.input_ids) {
        if (id < 0 || id >= options.vocabulary_limit) std::abort();
      }
      if (!example.labels.empty() && example.labels.size() != example.input_ids.size())
        std::abort();
    }
  } catch (const Error&) {  // expected for a bad file
  }
  std::filesystem::remove(path);
  return 0;
}
