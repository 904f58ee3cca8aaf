// SPDX-License-Identifier: MIT
#include <nlohmann/json.hpp>

#include "finetune/base/log.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"
#include "finetune/config/class_weights.h"
#include "finetune/data/classification_dataset.h"
#include "task/metrics/calibration.h"
#include "task/metrics/calibration_file.h"
#include "task/metrics/class_metrics.h"
#include "task/sequence_classification/sequence_classification.h"
#include "task/setup/labelled_setup.h"

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

// Sets up the task as run_glue and run_classification do.
class SequenceClassificationSetup final : public LabelledSetup {
 public:
  explicit SequenceClassificationSetup(const SetupContext& context) : LabelledSetup(context, 128) {
    learn_from_model();
  }

  std::shared_ptr<const Dataset> read(Split split) override {
    // Guesses the columns once: evaluation and prediction read the same columns as training.
    if (!columns_) columns_ = columns_of(split, RowTask::kSequenceClassification);
    if (split == Split::kTrain) learn_from_data(split_files(context().options, split));
    ClassificationOptions options;
    options.text_column = columns_->text_column;
    options.text_pair_column = columns_->text_pair_column;
    options.label_column = columns_->label_column ? columns_->label_column : args().label_column;
    options.problem = survey_.problem;
    options.labels = survey_.labels;
    options.outputs = survey_.outputs;
    return read_rows(split, options, build_classification_dataset);
  }

  void learn_from(const Dataset& train_data) override {
    if (survey_.problem != ProblemType::kSingleLabel) return;
    warn_of_many_classes(train_data.size());
    weigh_classes(survey_.labels, train_data);
  }

  [[nodiscard]] ModelConfig complete(ModelConfig model) const override {
    model.id2label = survey_.labels.empty() ? LabelMap::numbered(survey_.outputs).names()
                                            : survey_.labels.names();
    model.problem_type = kProblemNames[static_cast<size_t>(survey_.problem)];
    name_padding(model);
    return model;
  }

  [[nodiscard]] Learner make_learner(const ModelConfig& config, c10::Device device,
                                     const ModelOptions& options) const override {
    auto model = make_model(Head::kSequenceClassification, config, seed(), device, options);
    LossOptions loss = loss_options();
    if (!context().trains && survey_.problem == ProblemType::kSingleLabel) {
      loss.temperature = read_calibration(context().model_folder).value_or(1.0);
    }
    auto task = make_sequence_classification_task(*model, device, survey_.problem, loss);
    return {std::move(model), std::move(task)};
  }

  [[nodiscard]] Results make_results(Split split) const override {
    Results results;
    results.metrics = make_sequence_classification_metrics(survey_.problem, args().metric_name);
    if (calibrates() && split == Split::kValidation) {
      results.metrics = with_calibration(std::move(results.metrics));
      results.files = std::make_unique<CalibrationFile>(for_each_class_sample);
    }
    if (split == Split::kTest) {
      results.files = make_classification_files(survey_.problem, complete({}).id2label);
    }
    return results;
  }

  [[nodiscard]] Files calibrated_files(const nlohmann::ordered_json& metrics) const override {
    const auto found = metrics.find("eval_temperature");
    if (!calibrates() || found == metrics.end() || !found->is_number()) return {};
    const double temperature = found->get<double>();
    warn_of_bound("this classifier", temperature);
    return {{kCalibrationFile, calibration_text(temperature)}};
  }

 private:
  [[nodiscard]] bool calibrates() const {
    if (!args().calibrate.value_or(false) || !context().trains) return false;
    if (survey_.problem == ProblemType::kSingleLabel) return true;
    refuse_key(args().locations, "calibrate",
               std::string("needs one label for each sample, but the labels are those of ") +
                   kProblemNames[static_cast<size_t>(survey_.problem)] + "; leave it out");
  }

  // Texts, numbers or names of rows in the place of labels.
  void warn_of_many_classes(int64_t rows) const {
    constexpr int64_t kRowsOfAClass = 3;
    const int64_t classes = survey_.labels.size();
    if (classes <= 2 || classes * kRowsOfAClass <= rows) return;
    log::warning(format_text(
        "column '{}' holds {} different labels in {} rows: is it the column of labels? check "
        "label_column{}",
        columns_->label_column.value_or("label"), classes, rows,
        args().problem_type ? "" : ", or problem_type: regression if they are numbers"));
  }

  [[nodiscard]] LossOptions loss_options() const {
    if (survey_.problem == ProblemType::kSingleLabel) {
      return LabelledSetup::loss_options(survey_.labels);
    }
    if (!class_weights_of(args()).empty()) {
      refuse_key(context().options.locations, "class_weights",
                 std::string("needs one label for each sample, but the labels are those of ") +
                     kProblemNames[static_cast<size_t>(survey_.problem)] + "; leave it out");
    }
    return {.label_smoothing_factor = args().label_smoothing_factor};
  }

  // Reads the labels of a trained model's configuration, which is all there is if nothing is
  // trained.
  void learn_from_model() {
    survey_.labels = labels_of_model(context());
    survey_.outputs = survey_.labels.size();
    const bool is_number = survey_.outputs == 1 && !context().model.problem_type;
    survey_.problem =
        is_number
            ? ProblemType::kRegression
            : find_problem(context().model.problem_type)
                  .value_or(find_problem(args().problem_type).value_or(ProblemType::kSingleLabel));
    if (survey_.problem == ProblemType::kRegression) survey_.labels = LabelMap();
  }

  void learn_from_data(const SplitFiles& files) {
    RowOptions options;
    options.key = files.key;
    options.replace_broken_utf8 = replaces_broken_utf8(args());
    options.reading = reading_options(args());
    const auto survey = [&](const std::function<void(double)>& progress) {
      options.progress = progress;
      survey_ = survey_labels(files.files, options, columns_->label_column,
                              find_problem(args().problem_type), context().cache);
    };
    show_reading(context().progress, files, survey, "find labels");
    if (context().model_is_trained) {
      survey_.labels = in_order_of_model(context(), survey_.labels);
    }
    if (args().label_smoothing_factor != 0 && survey_.problem != ProblemType::kSingleLabel) {
      refuse_key(context().options.locations, "label_smoothing_factor",
                 std::string("needs labels that are classes, but the labels are those of ") +
                     kProblemNames[static_cast<size_t>(survey_.problem)] + "; set it to 0");
    }
    log::info(survey_.problem == ProblemType::kRegression
                  ? "labels: " + std::to_string(survey_.outputs) +
                        (survey_.outputs == 1 ? " number (regression)" : " numbers (regression)")
                  : "labels: " + survey_.labels.list() +
                        (survey_.problem == ProblemType::kMultiLabel ? " (several at once)" : ""));
    if (survey_.problem == ProblemType::kRegression && survey_.are_whole && !args().problem_type) {
      log::info(
          "the labels are whole numbers; if they are classes, set problem_type: "
          "single_label_classification");
    }
  }

  LabelSurvey survey_;
  std::optional<ColumnNames> columns_;
};

}  // namespace

std::unique_ptr<TaskSetup> make_sequence_classification_setup(const SetupContext& context) {
  return std::make_unique<SequenceClassificationSetup>(context);
}

}  // namespace finetune
