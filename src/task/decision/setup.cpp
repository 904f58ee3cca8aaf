// SPDX-License-Identifier: MIT
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"
#include "finetune/data/decision_collator.h"
#include "task/decision/decision.h"
#include "task/metrics/calibration.h"
#include "task/setup/labelled_setup.h"

namespace finetune {
namespace {

class DecisionSetup final : public LabelledSetup {
 public:
  explicit DecisionSetup(const SetupContext& context)
      : LabelledSetup(context, 512),
        chat_template_(context.chat_template),
        files_(DecisionFiles::read(context.model_folder, args().decision_template_path)) {
    check_head();
    take_labels();
    if (context.trains) files_.settings.temperature = {1.0, 1.0, 1.0};
    const bool is_mixed = !args().train_file_weights.empty() || !args().train_file_sets.empty();
    if (is_mixed && args().shuffle_options) {
      refuse_key(args().locations, "shuffle_options",
                 "is not available for a train_file of several entries; set it to false");
    }
    try {
      prompter_ = make_prompter(files_, context.tokenizer, chat_template_, context.chat_date);
    } catch (const Error& error) {
      refuse_key(args().locations, "chat_template_path", error.what());
    }
    labels_ = has_jev() ? jev_rows(jev_of(context.model)) : label_ids(files_.settings, *prompter_);
    identity_ =
        nlohmann::ordered_json{{"version", 1},
                               {"settings", files_.settings.text()},
                               {"head", args().decision_head},
                               {"decision_template", text_of(files_.decision_template.get())},
                               {"chat_template", text_of(chat_template_.get())},
                               {"date", uses_date() ? context.chat_date : ""}}
            .dump();
  }

  [[nodiscard]] int64_t truncation_length() const override { return 0; }  // rows are left out

  std::shared_ptr<const Dataset> read(Split split) override {
    static_cast<void>(columns_of(split, RowTask::kDecision));
    DecisionOptions options;
    options.prompter = prompter_;
    options.settings = files_.settings;
    options.identity = identity_;
    if (has_jev()) options.most_options = sizes_of(labels_);
    options.orders = split == Split::kTrain && args().shuffle_options ? kOrders : 1;
    const auto build = [&](const std::vector<std::string>& files, const Tokenizer& tokenizer,
                           const DecisionOptions& complete) {
      return build_decision_dataset(files, tokenizer, complete, seed());
    };
    auto data = read_rows(split, options, build, "questions");
    const DecisionCounts& counts = data->counts();
    const std::string key = files_of(split).key;
    const auto warn = [&](int64_t number, const std::string& why) {
      if (number == 0) return;
      log::warning(format_text("{}: {} of {} questions are left out: {}", key, number,
                               counts.samples + counts.too_long + counts.unanswered, why));
    };
    warn(counts.too_long,
         format_text("they have more than max_seq_length {} tokens", max_seq_length()));
    warn(counts.unanswered, "their rows have no answer to them");
    return data;
  }

  [[nodiscard]] std::shared_ptr<const Collator> make_collator() const override {
    PaddingOptions options;
    options.pad_id = static_cast<int32_t>(padding_id());
    set_lengths(options, context(), max_seq_length());
    return std::make_shared<DecisionCollator>(options);
  }

  [[nodiscard]] Learner make_learner(const ModelConfig& config, c10::Device device,
                                     const ModelOptions& options) const override {
    const auto head = has_jev() ? std::optional(Head::kDecision) : std::nullopt;
    auto model = make_model(head, config, seed(), device, options);
    auto task = make_decision_task(*model, device,
                                   {.labels = labels_,
                                    .label_smoothing_factor = args().label_smoothing_factor,
                                    .temperature = files_.settings.temperature});
    return {std::move(model), std::move(task)};
  }

  [[nodiscard]] ModelConfig complete(ModelConfig model) const override {
    model.jev = has_jev() ? jev_of(model) : JevConfig{};
    return model;
  }

  [[nodiscard]] Results make_results(Split split) const override {
    const bool calibrates = args().calibrate.value_or(true) && context().trains;
    Results results{make_decision_metrics(calibrates), nullptr};
    if (calibrates && split == Split::kValidation) results.files = make_decision_files();
    return results;
  }

  // What transformers' decision pipeline reads next to the model.
  [[nodiscard]] Files model_files(const Files& /*of_start*/) const override {
    Files files = {{kDecisionFile, files_.settings.text()}};
    if (files_.decision_template != nullptr) {
      files.emplace_back(kDecisionTemplateFile, files_.decision_template->text());
    }
    if (chat_template_ != nullptr) {
      files.emplace_back(kChatTemplateFile, chat_template_->joined_text());
    }
    return files;
  }

  [[nodiscard]] Files calibrated_files(const nlohmann::ordered_json& metrics) const override {
    DecisionSettings settings = files_.settings;
    for (size_t type = 0; type < kQuestionTypes; ++type) {
      const std::string name(name_of(static_cast<QuestionType>(type)));
      const auto found = metrics.find("eval_temperature_" + name);
      if (found == metrics.end() || !found->is_number()) continue;
      const double temperature = settings.temperature[type] = found->get<double>();
      warn_of_bound(name + " questions", temperature);
    }
    return {{kDecisionFile, settings.text()}};
  }

 private:
  [[nodiscard]] bool has_jev() const { return args().decision_head == "jev"; }
  [[nodiscard]] static JevConfig jev_of(const ModelConfig& model) {
    return model.jev.num_verbalizers > 0 ? model.jev : fresh_jev();
  }

  void check_head() {
    const ModelConfig& model = context().model;
    const auto refuse = [&](const std::string& why) {
      refuse_key(args().locations, "decision_head", why);
    };
    if (!has_jev() && model.jev.num_verbalizers > 0) {
      refuse("is labels, and the starting model has a head; set decision_head: jev");
    }
    if (!has_jev() && !is_causal(model)) {
      refuse("is labels, which reads the next word of a decoder, and a " + model.model_type +
             " predicts masked words; set decision_head: jev, or start from a decoder");
    }
    if (has_jev() && model.lora) {
      refuse("is jev, which has no adapter here; take labels, or train the whole model");
    }
    if (has_jev() && files_.decision_template == nullptr) files_.decision_template = jev_template();
  }

  void take_labels() {
    const std::string& text = args().decision_labels.text;
    if (text.empty()) return;
    try {
      const nlohmann::ordered_json labels = parse_json(text, "decision_labels");
      for (const auto& item : labels.items()) {
        if (item.key() != "noul" && item.key() != "choice" && item.key() != "score") {
          throw Error(ErrorKind::kConfig,
                      "has no type '" + item.key() + "'; the types are noul, choice and score");
        }
      }
      files_.settings.labels =
          DecisionSettings::parse(nlohmann::ordered_json{{"labels", labels}}.dump(),
                                  "decision.json")
              .labels;
    } catch (const Error& error) {
      refuse_key(args().locations, "decision_labels", error.what());
    }
  }

  // In how many orders the options of a choice are shown.
  static constexpr int64_t kOrders = 8;

  [[nodiscard]] static std::string text_of(const chat::ChatTemplate* text) {
    return text != nullptr ? text->joined_text() : "";
  }
  [[nodiscard]] bool uses_date() const {
    const chat::ChatTemplate* used =
        files_.decision_template != nullptr ? files_.decision_template.get() : chat_template_.get();
    return used->uses("strftime_now");
  }

  std::shared_ptr<const chat::ChatTemplate> chat_template_;
  DecisionFiles files_;
  std::shared_ptr<const DecisionPrompter> prompter_;
  LabelIds labels_;
  std::string identity_;
};

}  // namespace

std::unique_ptr<TaskSetup> make_decision_setup(const SetupContext& context) {
  return std::make_unique<DecisionSetup>(context);
}

}  // namespace finetune
