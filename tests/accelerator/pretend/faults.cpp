// SPDX-License-Identifier: MIT
#include "faults.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <cstdlib>
#include <sstream>

namespace pretend {
namespace {

struct Fault {
  std::string name;
  int64_t count = 0;
  std::string text;
};

const Fault& planted_fault() {
  static const Fault fault = [] {
    Fault read;
    const char* const text = std::getenv("PRETEND_ACCELERATOR_FAULT");
    if (text == nullptr) return read;
    std::istringstream words(text);
    words >> read.name >> read.count >> std::ws;
    std::getline(words, read.text);
    return read;
  }();
  return fault;
}

}  // namespace

void maybe_fail(const std::string& name) {
  static std::atomic<int64_t> calls = 0;
  static std::atomic<bool> is_lost = false;
  const Fault& fault = planted_fault();
  if (fault.name.empty()) return;
  TORCH_CHECK(!is_lost, fault.text);
  if (name != fault.name || ++calls != fault.count) return;
  is_lost =
      fault.text.starts_with("CUDA error: ") && fault.text.find("CUBLAS") == std::string::npos;
  TORCH_CHECK(false, fault.text);
}

}  // namespace pretend
