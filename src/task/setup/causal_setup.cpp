// SPDX-License-Identifier: MIT
#include "task/setup/causal_setup.h"

#include "task/loss/words_task.h"

namespace finetune {

// Pads on the right even if the tokenizer pads on the left for generation: such padding is not
// computed, and positions begin with the text.
std::shared_ptr<const Collator> make_causal_lm_collator(const SetupContext& context,
                                                        int64_t max_seq_length) {
  const auto& special = context.tokenizer.special_tokens();
  const auto& pad = special.pad ? special.pad : special.eos;
  PaddingOptions options{.pad_id = pad && pad->id >= 0 ? pad->id : 0};
  set_lengths(options, context, max_seq_length);
  return std::make_shared<CausalLmCollator>(options);
}

TaskSetup::Learner make_causal_lm_learner(const TaskOptions& args, const ModelConfig& config,
                                          c10::Device device, const ModelOptions& options,
                                          bool measures_entropy) {
  auto model = make_model(std::nullopt, config, static_cast<uint64_t>(args.seed), device, options);
  auto task = make_causal_lm_task(*model, device,
                                  {.label_smoothing_factor = args.label_smoothing_factor,
                                   .measures_entropy = measures_entropy});
  return {std::move(model), std::move(task)};
}

}  // namespace finetune
