// SPDX-License-Identifier: MIT
#include "task/clm/clm.h"
#include "task/loss/words_task.h"
#include "task/setup/causal_setup.h"
#include "task/setup/text_setup.h"

namespace finetune {
namespace {

// Sets up the task as run_clm does.
class CausalLmSetup final : public TextSetup {
 public:
  explicit CausalLmSetup(const SetupContext& context) : TextSetup(context) {
    if (!is_causal(context.model)) {
      refuse_key(context.options.locations, "task",
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

std::unique_ptr<TaskSetup> make_causal_lm_setup(const SetupContext& context) {
  return std::make_unique<CausalLmSetup>(context);
}

}  // namespace finetune
