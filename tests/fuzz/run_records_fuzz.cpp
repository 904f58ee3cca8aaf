// SPDX-License-Identifier: MIT
// Input: the text of a trainer_state.json, a finetune_state.json or a lock's record. An accepted
// text can be written again.
#include <cstddef>
#include <cstdint>
#include <string>

#include "finetune/base/error.h"
#include "finetune/checkpoint/owner.h"
#include "finetune/state/metrics_log.h"
#include "finetune/state/run_state.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace finetune;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    (void)TrainerState::from_text(text, "input").to_text();
  } catch (const Error&) {
  }
  try {
    const RunState state = RunState::parse(text, "input");
    const std::string written = state.to_text();
    if (RunState::parse(written, "written").to_text() != written) __builtin_trap();
  } catch (const Error&) {
  }
  (void)checkpoint::parse_owner(text);
  return 0;
}
