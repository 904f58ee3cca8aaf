// SPDX-License-Identifier: MIT
#include "train/loop/update.h"

#include <algorithm>

namespace finetune {

std::span<const Batch> Update::group(size_t first, size_t at_once) const {
  first = std::min(first, batches.size());
  return batches.subspan(first, std::min(at_once, batches.size() - first));
}

Targets Targets::count(const Task& task, const Update& update, World& world) {
  const size_t terms = static_cast<size_t>(task.terms()) + task.measures().size();
  // One message: targets, tokens, tokens with padding, and whether this rank has targets of each
  // term.
  std::vector<int64_t> message(2 * terms + 2, 0);
  for (const Batch& batch : update.batches) {
    const std::vector<int64_t> targets = task.count_targets(batch);
    for (size_t term = 0; term < terms; ++term) message[term] += targets[term];
    message[terms] += batch.tokens;
    message[terms + 1] += batch.cells();
  }
  Targets targets;
  const auto end_of_terms = message.begin() + static_cast<std::ptrdiff_t>(terms);
  targets.own.assign(message.begin(), end_of_terms);
  for (size_t term = 0; term < terms; ++term) {
    message[terms + 2 + term] = targets.own[term] > 0 ? 1 : 0;
  }
  world.sum(message);
  targets.all.assign(message.begin(), end_of_terms);
  targets.ranks.assign(end_of_terms + 2, message.end());
  targets.tokens = message[terms];
  targets.padded_tokens = message[terms + 1];
  return targets;
}

std::vector<double> Targets::scales(double loss_scale, bool over_all_ranks) const {
  std::vector<double> scales;
  for (size_t term = 0; term < all.size(); ++term) {
    const auto targets = static_cast<double>(over_all_ranks ? all[term] : own[term] * ranks[term]);
    scales.push_back(loss_scale / std::max(1.0, targets));
  }
  return scales;
}

}  // namespace finetune
