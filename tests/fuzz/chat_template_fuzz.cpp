// SPDX-License-Identifier: MIT
// Input: a chat template. It renders a conversation within its limits, or is refused with a reason.
#include <cstddef>
#include <cstdint>
#include <string>

#include "finetune/base/error.h"
#include "finetune/chat/chat_template.h"

namespace {

finetune::chat::Value message(int32_t index, const std::string& role, const std::string& content) {
  using finetune::chat::TracedText;
  using finetune::chat::Value;
  return finetune::chat::Dict{{{Value("role"), Value(TracedText(role, {.message = index}))},
                               {Value("content"), Value(TracedText(content, {.message = index}))}}};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace finetune;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const chat::ChatTemplate chat_template(text, "input");
    const chat::List messages{
        .items = {message(0, "user", " Naïve\nquestion 😀 "), message(1, "assistant", "answer")}};
    const auto rendered = chat_template.render({.values = {{"messages", messages}, {"x", true}}});
    std::size_t begin = 0;
    for (const auto& piece : rendered.pieces()) {
      if (piece.end <= begin || piece.end > rendered.size()) __builtin_trap();
      begin = piece.end;
    }
    if (begin != rendered.size()) __builtin_trap();
  } catch (const Error&) {
  }
  return 0;
}
