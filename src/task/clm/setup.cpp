// SPDX-License-Identifier: MIT
#include "task/clm/clm.h"
#include "task/masked_lm/masked_lm.h"
#include "task/text_setup.h"

namespace finetune {
namespace {

// Sets up the task as run_clm does.
class CausalLmSetup final : public TextSetup {
 public:
  explicit CausalLmSetup(const SetupContext& context) : TextSetup(context) {
    if (!is_causal(context.model)) {
      refuse_key(context.config, "task",
                 "a " + context.model.model_type +
                     " predicts masked words, not the next one; set task to mlm, or start from a "
                     "decoder");
    }
    split_rows_of_train_file();
  }

  [[nodiscard]] std::shared_ptr<const Collator> make_collator() const override {
    return make_causal_lm_collator(context(), max_seq_length());
  }

  [[nodiscard]] Learner make_learner(const ModelConfig& config, c10::Device device,
                                     const ModelOptions& options) const override {
    return make_causal_lm_learner(args(), config, device, options);
  }

  [[nodiscard]] Results make_results(Split) const override {
    return {make_masked_lm_metrics(), nullptr};
  }

 private:
  void adjust(TextOptions& options) const override {
    options.keep_linebreaks = args().keep_linebreaks;
  }
};

}  // namespace

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

TaskSetup::Learner make_causal_lm_learner(const TrainingArgs& args, const ModelConfig& config,
                                          c10::Device device, const ModelOptions& options,
                                          bool measures_entropy) {
  auto model = make_model(std::nullopt, config, static_cast<uint64_t>(args.seed), device, options);
  auto task = make_causal_lm_task(*model, device,
                                  {.label_smoothing_factor = args.label_smoothing_factor,
                                   .measures_entropy = measures_entropy});
  return {std::move(model), std::move(task)};
}

std::unique_ptr<TaskSetup> make_causal_lm_setup(const SetupContext& context) {
  return std::make_unique<CausalLmSetup>(context);
}

}  // namespace finetune
