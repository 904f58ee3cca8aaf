// SPDX-License-Identifier: MIT
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"
#include "finetune/data/data_files.h"
#include "finetune/data/preference_dataset.h"
#include "finetune/task/chat_tokens.h"
#include "task/reward/reward.h"
#include "task/setup/labelled_setup.h"
#include "task/setup/sample_collator.h"

namespace finetune {
namespace {

// Sets up the task as TRL's RewardTrainer does.
class RewardSetup final : public LabelledSetup {
 public:
  explicit RewardSetup(const SetupContext& context)
      : LabelledSetup(context, 1024), template_(context.chat_template) {
    chat::RenderOptions options = chat_render_options(
        context.tokenizer, args().chat_template_kwargs.text,
        context.options.locations.where("chat_template_kwargs") + ": chat_template_kwargs");
    options.date = parse_chat_date(context.chat_date);
    identity_ = nlohmann::ordered_json{
        {"version", 1},
        {"template", template_ != nullptr ? template_->joined_text() : ""},
        {"kwargs", args().chat_template_kwargs.text},
        {"date",
         template_ != nullptr && template_->uses("strftime_now")
             ? context.chat_date
             : ""}}.dump();
    renderer_ = std::make_shared<const chat::ChatRenderer>(template_, std::move(options));
  }

  [[nodiscard]] int64_t truncation_length() const override { return 0; }  // rows are left out

  std::shared_ptr<const Dataset> read(Split split) override {
    ChatOptions options;
    options.renderer = renderer_;
    options.renderer_identity = identity_;
    options.special_tokens_as_text = args().special_tokens_in_text == "text";
    const auto data = read_rows(split, options, build_preference_dataset, "pairs");
    report_left_out(split, data->size());
    return data;
  }

  [[nodiscard]] std::shared_ptr<const Collator> make_collator() const override {
    return make_sample_collator(LabelledSetup::make_collator());
  }

  [[nodiscard]] ModelConfig complete(ModelConfig model) const override {
    return with_one_score(std::move(model));
  }

  // The template that was used.
  [[nodiscard]] Files model_files(const Files& /*of_start*/) const override {
    if (template_ == nullptr) return {};
    return {{kChatTemplateFile, template_->joined_text()}};
  }

  [[nodiscard]] Learner make_learner(const ModelConfig& config, c10::Device device,
                                     const ModelOptions& options) const override {
    auto model = make_model(Head::kSequenceClassification, config, seed(), device, options);
    auto task = make_reward_task(*model, device, args().center_rewards_coefficient.value_or(0.0));
    return {std::move(model), std::move(task)};
  }

  [[nodiscard]] Results make_results(Split /*split*/) const override {
    return {make_reward_metrics(), nullptr};
  }

 private:
  void report_left_out(Split split, int64_t pairs) const {
    const SplitFiles files = files_of(split);
    const bool is_part = files.max_samples || sample_options(split).share;
    if (is_part || split == Split::kTest) return;
    const int64_t rows =
        count_rows(files.files, files.key, context().cache, {}, reading_options(args()));
    if (rows == pairs) return;
    log::warning(
        format_text("{} of {} pairs of {} are left out: an answer has more than "
                    "max_seq_length {} tokens",
                    rows - pairs, rows, files.key, max_seq_length()));
  }

  std::shared_ptr<const chat::ChatTemplate> template_;
  std::shared_ptr<const chat::ChatRenderer> renderer_;
  std::string identity_;
};

}  // namespace

std::unique_ptr<TaskSetup> make_reward_setup(const SetupContext& context) {
  return std::make_unique<RewardSetup>(context);
}

}  // namespace finetune
