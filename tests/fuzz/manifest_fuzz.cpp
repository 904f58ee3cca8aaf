// SPDX-License-Identifier: MIT
// Input: the text of a manifest.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "finetune/base/error.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace finetune::checkpoint;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const Manifest manifest = parse_manifest(text, "input");
    for (const auto& item : manifest.files) {
      if (!is_checkpoint_file_name(item.first)) __builtin_trap();
    }
  } catch (const finetune::Error&) {
  }
  // Names on disk are untrusted.
  if (const auto step = parse_checkpoint_name(text)) {
    if (checkpoint_name(*step) != text) __builtin_trap();
  }
  if (const auto aside = parse_quarantine_name(text)) {
    if (quarantine_name(*aside) != text) __builtin_trap();
  }
  return 0;
}
