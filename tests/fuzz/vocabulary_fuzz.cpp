// SPDX-License-Identifier: MIT
// Input: a vocab.txt; or, with a NUL, a vocab.json before it and a merges.txt after it.
#include <cstddef>
#include <cstdint>
#include <string>

#include "../../src/tokenizer/pipeline/pipeline_files.h"
#include "../../src/tokenizer/pipeline/pipeline_tokenizer.h"
#include "finetune/base/error.h"
#include "finetune/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace finetune::tokenizer;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::size_t nul = text.find('\0');
  try {
    TokenizerFolder folder;
    folder.class_name = nul == std::string::npos ? "BertTokenizer" : "RobertaTokenizer";
    const PipelineTokenizer tokenizer(
        nul == std::string::npos
            ? parse_vocab_txt(text, std::move(folder))
            : parse_vocab_and_merges(text.substr(0, nul), text.substr(nul + 1), std::move(folder)));
    for (const auto id : tokenizer.encode("The keeper's lamp, 12 \xE2\x98\x83!")) {
      if (id < 0) __builtin_trap();
    }
  } catch (const finetune::Error&) {
  }
  return 0;
}
