// SPDX-License-Identifier: MIT
#include "task/generate/generator.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "finetune/base/interrupt.h"
#include "finetune/base/random.h"
#include "finetune/tensor/device.h"
#include "task/generate/next_token.h"
#include "task/loss/model_input.h"
#include "task/predict/head_runner.h"

namespace finetune {

std::vector<int32_t> Generator::complete(const std::vector<int32_t>& prompt, uint64_t number,
                                         const OnToken& on_token) {
  const c10::NoGradGuard no_grad;
  NextToken next(config_);
  KeyValueCache cache = take_cache(prompt);
  std::vector<int32_t> text = prompt;
  const auto made = [&] { return std::span(text).subspan(prompt.size()); };
  const int64_t most =
      std::min(config_.max_new_tokens, model_.config().max_length() - std::ssize(prompt));
  while (std::ssize(made()) < most) {
    interrupt::throw_if_requested("generating text");
    const auto known = static_cast<size_t>(cache.length);
    Tensor scores = next_scores(std::span(text).subspan(known), cache);
    const auto position = static_cast<uint64_t>(text.size());
    random::Sequence sequence(
        random::make_key(seed_, random::Purpose::kGeneration, number, position));
    const int32_t id =
        next.choose({scores.mutable_data_ptr<float>(), static_cast<size_t>(scores.numel())}, text,
                    sequence.uniform());
    text.push_back(id);
    if (on_token) on_token(id);
    if (ends(id)) break;
  }
  if (keeps_cache_) {
    cached_.assign(text.begin(), text.begin() + cache.length);
    cache_ = std::move(cache);
  }
  return {made().begin(), made().end()};
}

KeyValueCache Generator::take_cache(const std::vector<int32_t>& prompt) {
  const bool continues = std::ssize(cached_) < std::ssize(prompt) &&
                         std::equal(cached_.begin(), cached_.end(), prompt.begin());
  return continues ? std::exchange(cache_, {}) : KeyValueCache();
}

// Returns the logits [V] of the token after `ids`, on the CPU.
Tensor Generator::next_scores(std::span<const int32_t> ids, KeyValueCache& cache) {
  const std::vector<int64_t> row(ids.begin(), ids.end());
  const auto size = static_cast<int64_t>(row.size());
  ModelInput input;
  input.input_ids = to_device(row, device_).view({1, size});
  input.cache = &cache;
  const Tensor last = to_device(std::vector<int64_t>{size - 1}, device_);
  Tensor scores = model_.logits(input, last).to(at::kFloat).cpu().contiguous()[0];
  require_finite(scores, "");
  return scores;
}

bool Generator::ends(int32_t id) const {
  return std::ranges::find(config_.eos_token_ids, int64_t{id}) != config_.eos_token_ids.end();
}

}  // namespace finetune
