// SPDX-License-Identifier: MIT
#include "finetune/base/log.h"
#include "finetune/data/classification_dataset.h"
#include "train/task_setup.h"

namespace finetune {
namespace {

constexpr const char* kProblemNames[] = {"single_label_classification",
                                         "multi_label_classification", "regression"};

std::optional<ProblemType> find_problem(const std::optional<std::string>& name) {
  for (const ProblemType type :
       {ProblemType::kSingleLabel, ProblemType::kMultiLabel, ProblemType::kRegression}) {
    if (name == kProblemNames[static_cast<size_t>(type)]) return type;
  }
  return std::nullopt;
}

// As run_glue and run_classification.
class SequenceClassificationSetup final : public TaskSetup {
 public:
  explicit SequenceClassificationSetup(const SetupContext& context)
      : context_(context),
        args_(context.config.args),
        max_seq_length_(sequence_length(context, 128)) {
    learn_from_model();
  }

  std::shared_ptr<const Dataset> read(Split split) override {
    const SplitFiles files = split_files(context_.config, split);
    if (split == Split::kTrain) learn_from_data(files);
    ClassificationOptions options;
    static_cast<SampleOptions&>(options) = sample_options(context_, split, max_seq_length_);
    options.text_column = args_.text_column;
    options.text_pair_column = args_.text_pair_column;
    options.label_column = args_.label_column;
    options.problem = survey_.problem;
    options.labels = survey_.labels;
    options.outputs = survey_.outputs;
    std::shared_ptr<const TokenDataset> data;
    show_reading(context_.progress, files, [&](const std::function<void(double)>& progress) {
      options.progress = progress;
      data = build_classification_dataset(files.files, context_.tokenizer, options);
    });
    log::info(files.what + " data: " + std::to_string(data->size()) + " samples, " +
              std::to_string(data->tokens()) + " tokens");
    return data;
  }

  [[nodiscard]] std::shared_ptr<const Collator> make_collator() const override {
    return make_padding_collator(context_, max_seq_length_);
  }

  [[nodiscard]] ModelConfig complete(ModelConfig model) const override {
    model.id2label = survey_.labels.empty() ? LabelMap::numbered(survey_.outputs).names()
                                            : survey_.labels.names();
    model.problem_type = kProblemNames[static_cast<size_t>(survey_.problem)];
    return model;
  }

  [[nodiscard]] Learner make_learner(const ModelConfig& config, c10::Device device) const override {
    auto model = make_head_model(Head::kSequenceClassification, config,
                                 static_cast<uint64_t>(args_.seed), device);
    auto task = make_sequence_classification_task(
        *model, device, survey_.problem, {.label_smoothing_factor = args_.label_smoothing_factor});
    return {std::move(model), std::move(task)};
  }

  [[nodiscard]] Results make_results(Split split) const override {
    Results results;
    results.metrics =
        make_sequence_classification_metrics(survey_.problem, args_.metric_name.value_or(""));
    if (split == Split::kTest) {
      results.files = make_classification_files(survey_.problem, complete({}).id2label);
    }
    return results;
  }

 private:
  // What a trained model's configuration says: all there is where nothing is trained.
  void learn_from_model() {
    survey_.labels = LabelMap(context_.model.id2label, "config.json: id2label");
    survey_.outputs = survey_.labels.size();
    const bool is_number = survey_.outputs == 1 && !context_.model.problem_type;
    survey_.problem =
        is_number
            ? ProblemType::kRegression
            : find_problem(context_.model.problem_type)
                  .value_or(find_problem(args_.problem_type).value_or(ProblemType::kSingleLabel));
    if (survey_.problem == ProblemType::kRegression) survey_.labels = LabelMap();
  }

  void learn_from_data(const SplitFiles& files) {
    RowOptions options;
    options.key = files.key;
    survey_ =
        survey_labels(files.files, options, args_.label_column, find_problem(args_.problem_type));
    if (context_.model_is_trained) {
      survey_.labels = survey_.labels.in_order_of(context_.model.id2label);
    }
    if (args_.label_smoothing_factor != 0 && survey_.problem != ProblemType::kSingleLabel) {
      refuse_key(context_.config, "label_smoothing_factor",
                 std::string("needs labels that are classes, but the labels are those of ") +
                     kProblemNames[static_cast<size_t>(survey_.problem)] + "; set it to 0");
    }
    log::info(survey_.problem == ProblemType::kRegression
                  ? "labels: " + std::to_string(survey_.outputs) +
                        (survey_.outputs == 1 ? " number (regression)" : " numbers (regression)")
                  : "labels: " + survey_.labels.list() +
                        (survey_.problem == ProblemType::kMultiLabel ? " (several at once)" : ""));
  }

  SetupContext context_;
  const TrainingArgs& args_;
  int64_t max_seq_length_;
  LabelSurvey survey_;
};

}  // namespace

std::unique_ptr<TaskSetup> make_sequence_classification_setup(const SetupContext& context) {
  return std::make_unique<SequenceClassificationSetup>(context);
}

}  // namespace finetune
