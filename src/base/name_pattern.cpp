// SPDX-License-Identifier: MIT
#include "finetune/base/name_pattern.h"

#include <pcre2.h>

#include <array>
#include <new>
#include <utility>

#include "finetune/base/error.h"

namespace finetune {
namespace {

constexpr size_t kLongest = size_t{64} << 10;
constexpr uint32_t kMaxMatchCalls = 1'000'000;  // about 20 ms
constexpr uint32_t kMaxHeapKib = 16 << 10;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

template <typename T>
T* made(T* object) {
  if (object == nullptr) throw std::bad_alloc();
  return object;
}

}  // namespace

NamePattern::NamePattern(std::string text) : text_(std::move(text)) {
  if (text_.size() > kLongest) throw Error(ErrorKind::kConfig, "it is longer than 64 kB");
  int error = 0;
  size_t offset = 0;
  pcre2_code* const code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(),
                    PCRE2_UTF | PCRE2_DOLLAR_ENDONLY, &error, &offset, nullptr);
  if (code == nullptr) {
    throw Error(ErrorKind::kConfig,
                message_of(error) + " (at character " + std::to_string(offset) + ")");
  }
  code_ = {code, [](const void* owned) {
             pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(owned)));
           }};
}

bool NamePattern::matches(std::string_view name) const {
  const auto* const code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context(
      made(pcre2_match_context_create(nullptr)), pcre2_match_context_free);
  pcre2_set_match_limit(context.get(), kMaxMatchCalls);
  pcre2_set_heap_limit(context.get(), kMaxHeapKib);
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      made(pcre2_match_data_create(1, nullptr)), pcre2_match_data_free);
  const int result = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0,
                                 PCRE2_ANCHORED | PCRE2_ENDANCHORED, data.get(), context.get());
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0) {
    throw Error(ErrorKind::kConfig, "the regular expression '" + text_ +
                                        "' cannot be compared with '" + std::string(name) +
                                        "': " + message_of(result));
  }
  return true;
}

}  // namespace finetune
