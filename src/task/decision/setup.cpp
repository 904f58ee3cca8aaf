// SPDX-License-Identifier: MIT
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"
#include "finetune/data/decision_collator.h"
#include "task/decision/decision.h"
#include "task/decision/laya_files.h"
#include "task/metrics/calibration.h"
#include "task/setup/labelled_setup.h"

namespace finetune {
namespace {

class DecisionSetup final : public LabelledSetup {
 public:
  explicit DecisionSetup(const SetupContext& context)
      : LabelledSetup(context, context.model.laya ? context.model.laya->max_len : 512),
        chat_template_(context.chat_template),
        model_(with_head(context.model)),
        files_(DecisionFiles::read(context.model_folder, args().decision_template_path, scores())) {
    check_head();
    take_labels();
    if (context.trains) {
      files_.settings.temperature = {1.0, 1.0, 1.0};
      files_.settings.temperature_by_options.clear();
    }
    const bool is_mixed = !args().train_file_weights.empty() || !args().train_file_sets.empty();
    if (is_mixed && args().shuffle_options) {
      refuse_key(args().locations, "shuffle_options",
                 "is not available for a train_file of several entries; set it to false");
    }
    try {
      form_ = make_form(files_, model_, context.tokenizer, chat_template_, context.chat_date);
    } catch (const Error& error) {
      refuse_key(args().locations, has_laya() ? "decision_head" : "chat_template_path",
                 error.what());
    }
    identity_ =
        nlohmann::ordered_json{{"version", 2},
                               {"settings", files_.settings.text()},
                               {"head", args().decision_head},
                               {"decision_template", text_of(files_.decision_template.get())},
                               {"chat_template", text_of(chat_template_.get())},
                               {"head_max_len", has_laya() ? model_.laya->head_max_len : 0},
                               {"date", uses_date() ? context.chat_date : ""}}
            .dump();
  }

  [[nodiscard]] int64_t truncation_length() const override { return 0; }  // rows are left out

  std::shared_ptr<const Dataset> read(Split split) override {
    static_cast<void>(columns_of(split, RowTask::kDecision));
    DecisionOptions options;
    options.prompter = form_.prompter;
    options.settings = files_.settings;
    options.identity = identity_;
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
         has_laya()
             ? format_text("max_seq_length {} and head_max_len {} leave too few tokens to "
                           "their options",
                           max_seq_length(), model_.laya->head_max_len)
             : format_text("they have more than max_seq_length {} tokens", max_seq_length()));
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
    const auto head =
        scores() == OptionScores::kLabels ? std::nullopt : std::optional(Head::kDecision);
    auto model = make_model(head, config, seed(), device, options);
    auto task = make_decision_task(*model, device,
                                   {.labels = form_.labels,
                                    .label_smoothing_factor = args().label_smoothing_factor,
                                    .settings = files_.settings});
    return {std::move(model), std::move(task)};
  }

  [[nodiscard]] ModelConfig complete(ModelConfig model) const override {
    return with_head(std::move(model));
  }

  [[nodiscard]] Results make_results(Split split) const override {
    const bool calibrates = args().calibrate.value_or(true) && context().trains;
    Results results{make_decision_metrics(calibrates), nullptr};
    if (calibrates && split == Split::kValidation) results.files = make_decision_files();
    return results;
  }

  // What transformers' decision pipeline, or laya, reads next to the model.
  [[nodiscard]] Files model_files(const Files& /*of_start*/) const override {
    if (has_laya()) return laya_files(files_.laya, model_, files_.settings, context().tokenizer);
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
    if (has_laya()) return {{kLayaFile, laya_settings_text(files_.laya, model_, settings)}};
    return {{kDecisionFile, settings.text()}};
  }

 private:
  [[nodiscard]] OptionScores scores() const { return option_scores(model_); }
  [[nodiscard]] bool has_laya() const { return scores() == OptionScores::kLaya; }

  // The configuration with decision_head, a new one where the starting model has none.
  [[nodiscard]] ModelConfig with_head(ModelConfig model) const {
    const std::string& head = args().decision_head;
    if (head != "jev") model.jev = {};
    if (head == "jev" && model.jev.num_verbalizers == 0) model.jev = fresh_jev();
    if (head != "laya") model.laya.reset();
    if (head == "laya") {
      if (!model.laya) model.laya.emplace();
      model.laya->max_len = max_seq_length();
    }
    return model;
  }

  void check_head() {
    const ModelConfig& model = context().model;
    const auto refuse = [&](const std::string& why) {
      refuse_key(args().locations, "decision_head", why);
    };
    const std::string& head = args().decision_head;
    constexpr std::array kNames = {"labels", "jev", "laya"};
    const OptionScores of_start = option_scores(model);
    if (of_start != OptionScores::kLabels && of_start != scores()) {
      const std::string name = kNames.at(static_cast<size_t>(of_start));
      refuse("is " + head + ", and the starting model has the head " + name +
             "; set decision_head: " + name);
    }
    if (scores() == OptionScores::kLabels && !is_causal(model)) {
      refuse("is labels, which reads the next word of a decoder, and a " + model.model_type +
             " predicts masked words; set decision_head: jev or laya, or start from a decoder");
    }
    if (has_laya() && is_causal(model)) {
      refuse("is laya, which reads all tokens at each mark, and a " + model.model_type +
             " reads the words before it; start from an encoder, or set decision_head: labels");
    }
    if (scores() != OptionScores::kLabels && model.lora) {
      refuse("is " + head + ", which has no adapter here; take labels, or train the whole model");
    }
    if (has_laya() && model_.laya->head_max_len + 16 > max_seq_length()) {
      refuse_key(
          args().locations, "max_seq_length",
          format_text("is {}, and the questions of this model take up to {} (head_max_len); "
                      "set at least {}",
                      max_seq_length(), model_.laya->head_max_len, model_.laya->head_max_len + 16));
    }
    for (const char* key : {"decision_labels", "decision_template_path", "chat_template_path"}) {
      if (!has_laya() || !args().locations.is_set(key)) continue;
      refuse_key(args().locations, key,
                 "is not available with decision_head: laya, whose questions have one form");
    }
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
    if (has_laya()) return false;
    const chat::ChatTemplate* used =
        files_.decision_template != nullptr ? files_.decision_template.get() : chat_template_.get();
    return used->uses("strftime_now");
  }

  std::shared_ptr<const chat::ChatTemplate> chat_template_;
  ModelConfig model_;
  DecisionFiles files_;
  DecisionForm form_;
  std::string identity_;
};

}  // namespace

std::unique_ptr<TaskSetup> make_decision_setup(const SetupContext& context) {
  return std::make_unique<DecisionSetup>(context);
}

}  // namespace finetune
