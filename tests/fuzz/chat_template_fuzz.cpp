// SPDX-License-Identifier: MIT
// Input: a chat template. It renders a conversation within its limits, or is refused with a reason
// of less than 1,000 bytes. An input that takes more than 4 s of processor time (20 with the checks
// of a sanitizer) or adds more than 512 MiB to the peak of memory fails.
#include <sys/resource.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
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

#if defined(__SANITIZE_ADDRESS__) || defined(FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION)
constexpr double kMaxSeconds = 20;
#else
constexpr double kMaxSeconds = 4;  // twice what an idle core takes
#endif
constexpr long kMaxKilobytes = 512 << 10;

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

long peak_kilobytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace finetune;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const double seconds = processor_seconds();
  const long kilobytes = peak_kilobytes();
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
  } catch (const Error& error) {
    if (std::string(error.what()).size() > 1000) __builtin_trap();
  }
  if (processor_seconds() - seconds > kMaxSeconds) __builtin_trap();
  if (peak_kilobytes() - kilobytes > kMaxKilobytes) __builtin_trap();
  return 0;
}
