// SPDX-License-Identifier: MIT
#include "train/save/agreement.h"

#include <algorithm>
#include <array>

#include "finetune/base/interrupt.h"

namespace finetune {
namespace {

void share_nonfinite_save(World& world, std::optional<SaveOutcome>& save) {
  const std::string found =
      world.broadcast(save ? std::to_string(save->step) + " " + *save->nonfinite : "");
  if (save) return;
  const size_t space = found.find(' ');
  save =
      SaveOutcome{.step = std::stoll(found.substr(0, space)), .nonfinite = found.substr(space + 1)};
}

}  // namespace

// Marks the stop as requested here too; a later signal to this rank then counts as the first.
void note_stop() {
  if (!interrupt::is_requested()) interrupt::request_at(0.0, "a signal to another process");
  (void)interrupt::is_requested();
}

bool stop_is_requested(World& world) {
  const bool is_asked = world.any(interrupt::is_requested());
  if (is_asked) note_stop();
  return is_asked;
}

bool agree_between_updates(World& world, std::optional<SaveOutcome>& nonfinite_save) {
  if (world.size() == 1) return interrupt::is_requested();
  const bool has_fault = world.is_first() && nonfinite_save;
  std::array<int64_t, 2> message = {interrupt::is_requested() ? 1 : 0, has_fault ? 1 : 0};
  world.sum(std::span<int64_t>(message));
  if (message[1] > 0) share_nonfinite_save(world, nonfinite_save);
  if (message[0] > 0) note_stop();
  return message[0] > 0;
}

double broadcast(World& world, double value) {
  double shared = world.is_first() ? value : 0.0;
  world.sum(std::span(&shared, 1));
  return world.size() > 1 ? shared : value;
}

int64_t least(World& world, int64_t value) {
  if (world.size() == 1) return value;
  for (const std::string& one : world.gather(std::to_string(value))) {
    value = std::min<int64_t>(value, std::stoll(one));
  }
  return value;
}

SharedNorm share_norm(World& world, double norm) {
  if (world.size() == 1) return {.norm = norm};
  std::array<double, 2> message = {world.is_first() ? norm : 0.0,
                                   interrupt::is_requested() ? 1.0 : 0.0};
  world.sum(std::span<double>(message));
  const bool stops = message[1] > 0.0;
  if (stops) note_stop();
  return {.norm = message[0], .stops = stops};
}

}  // namespace finetune
