// SPDX-License-Identifier: MIT
#include "finetune/chat/limits.h"

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"

namespace finetune::chat {
namespace {

constexpr int64_t kUnitsBetweenPolls = 4'000'000;  // milliseconds

}  // namespace

Limits::Rendering::Rendering() {
  state_.units = 0;
  state_.next_look = kUnitsBetweenPolls;
  state_.memory_end = state_.memory + kMaxMemory;
  state_.depth = 0;
  state_.is_active = true;
}

Limits::Rendering::~Rendering() {
  state_.next_look = internal::LimitsState::kNever;
  state_.memory_end = internal::LimitsState::kNever;
  state_.is_active = false;
}

void Limits::look() {
  if (state_.units > kMaxSteps * kUnitsOfStep) {
    throw Error(ErrorKind::kData, "the template takes more than 10 million steps");
  }
  interrupt::throw_if_requested("rendering a chat template");
  state_.next_look = std::min(state_.units + kUnitsBetweenPolls, kMaxSteps * kUnitsOfStep + 1);
}

void Limits::fail_text() {
  throw Error(ErrorKind::kData, "the template makes a text of more than 64 MiB");
}
void Limits::fail_items() {
  throw Error(ErrorKind::kData, "the template makes a list of more than 1,000,000 items");
}
void Limits::fail_memory() {
  throw Error(ErrorKind::kData, "the template needs more than 256 MiB of memory");
}
void Limits::fail_depth() { throw Error(ErrorKind::kData, "the template recurses too deeply"); }
void Limits::fail_nesting() { throw Error(ErrorKind::kData, "the value is nested too deeply"); }

}  // namespace finetune::chat
