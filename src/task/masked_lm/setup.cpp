// SPDX-License-Identifier: MIT
#include "task/loss/words_task.h"
#include "task/masked_lm/masked_lm.h"
#include "task/setup/text_setup.h"

namespace finetune {
namespace {

// Sets up the task as run_mlm does.
class MaskedLmSetup final : public TextSetup {
 public:
  explicit MaskedLmSetup(const SetupContext& context) : TextSetup(context) {
    if (!context.tokenizer.special_tokens().mask) {
      refuse_key(context.options.locations, "tokenizer_name",
                 "the tokenizer names no mask token, which task 'mlm' needs");
    }
    if (is_causal(context.model)) {
      refuse_key(context.options.locations, "task",
                 "a " + context.model.model_type +
                     " predicts the next word, not masked ones; set task to clm");
    }
    const ModelConfig& model = context.model;
    const int64_t longest_full = (5 + 2 * model.num_random_blocks) * model.block_size;
    if (args().packing && model.attention_type == "block_sparse" &&
        max_seq_length() > longest_full) {
      refuse_key(context.options.locations, "packing",
                 "block-sparse attention takes whole batches of one length, which " +
                     std::to_string(max_seq_length()) + " tokens ask for; set max_seq_length to " +
                     std::to_string(longest_full) + " or less, or leave packing out");
    }
    split_rows_of_train_file();
  }

  [[nodiscard]] std::shared_ptr<const Collator> make_collator() const override {
    MaskedLmOptions options = MaskedLmOptions::from(context().tokenizer);
    options.masking = MaskingOptions::from(context().tokenizer, args().whole_word_mask);
    options.masking.mlm_probability = args().mlm_probability;
    options.masking.seed = static_cast<uint64_t>(args().data_seed.value_or(args().seed));
    options.pad_id = static_cast<int32_t>(context().model.pad_token_id);
    // only padding at the end of a sequence is skipped
    if (args().packing) options.pad_left = false;
    set_lengths(options, context(), max_seq_length());
    return std::make_shared<MaskedLmCollator>(std::move(options));
  }

  [[nodiscard]] Learner make_learner(const ModelConfig& config, c10::Device device,
                                     const ModelOptions& options) const override {
    auto model =
        make_model(std::nullopt, config, static_cast<uint64_t>(args().seed), device, options);
    auto task = make_masked_lm_task(*model, device,
                                    {.label_smoothing_factor = args().label_smoothing_factor});
    return {std::move(model), std::move(task)};
  }

  [[nodiscard]] Results make_results(Split) const override {
    return {make_masked_lm_metrics(), nullptr};
  }
};

}  // namespace

std::unique_ptr<TaskSetup> make_masked_lm_setup(const SetupContext& context) {
  return std::make_unique<MaskedLmSetup>(context);
}

}  // namespace finetune
