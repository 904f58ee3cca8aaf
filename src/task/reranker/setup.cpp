// SPDX-License-Identifier: MIT
#include <algorithm>
#include <limits>
#include <set>

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/data/drawn_negatives.h"
#include "finetune/data/sample_stream.h"
#include "finetune/data/text_list_dataset.h"
#include "task/reranker/reranker.h"
#include "task/setup/labelled_setup.h"
#include "task/setup/sample_collator.h"

namespace finetune {
namespace {

class RerankerSetup final : public LabelledSetup {
 public:
  explicit RerankerSetup(const SetupContext& context) : LabelledSetup(context, 512) {
    if (!args().loss_type) return;
    const RerankerLoss* loss = find_reranker_loss(*args().loss_type);
    if (loss == nullptr) {
      refuse_key(args().locations, "loss_type",
                 *args().loss_type + " is no loss of task reranker; it has " +
                     join(reranker_loss_names()));
    }
    (void)loss_args(*loss);
  }

  std::shared_ptr<const Dataset> read(Split split) override {
    const ColumnNames columns = columns_of(split, RowTask::kEmbedding);
    TextListOptions options;
    options.text_columns = columns.text_columns;
    options.label_column = columns.label_column;
    const bool draws = split == Split::kTrain && draws_negatives();
    options.bare = draws;
    options.pairs_with_first = !draws;
    options.lists_may_differ = !draws;
    if (draws && options.label_column) {
      log::warning(
          format_text("column '{}' is not read: {} takes the first document of a row as "
                      "the right one",
                      *options.label_column, *args().loss_type));
      options.label_column.reset();
    }
    const bool takes_shares =
        split == Split::kTrain && args().loss_type.value_or("") == "BinaryCrossEntropyLoss";
    if (takes_shares) options.label_rule = "BinaryCrossEntropyLoss";
    options.problem_of_label = [takes_shares](double label) -> std::string {
      if (!takes_shares || (label >= 0 && label <= 1)) return "";
      return "BinaryCrossEntropyLoss takes labels of 0 to 1: scale them, or take MSELoss";
    };
    std::shared_ptr<const SequenceDataset> data =
        read_rows(split, options, build_text_list_dataset);
    if (draws) data = with_negatives(data);
    Shape& shape = split == Split::kTrain ? train_ : validation_;
    shape = {.documents = data->choices(), .has_label = options.label_column.has_value()};
    check(split, shape, *data);
    return data;
  }

  [[nodiscard]] std::shared_ptr<const Collator> make_collator() const override {
    return make_sample_collator(make_drawn_negatives_collator(LabelledSetup::make_collator()));
  }

  [[nodiscard]] ModelConfig complete(ModelConfig model) const override {
    return with_one_score(std::move(model));
  }

  [[nodiscard]] Learner make_learner(const ModelConfig& config, c10::Device device,
                                     const ModelOptions& options) const override {
    const RerankerLoss& loss = loss_of(train_.documents > 0 ? train_ : validation_);
    auto model = make_model(Head::kSequenceClassification, config, seed(), device, options);
    auto task = make_reranker_task(*model, device, loss, loss_args(loss));
    return {std::move(model), std::move(task)};
  }

  [[nodiscard]] Results make_results(Split /*split*/) const override {
    return {make_reranker_metrics(validation_.documents > 1), nullptr};
  }

 private:
  struct Shape {  // of the samples of a split
    int64_t documents = 0;
    bool has_label = false;
  };

  [[nodiscard]] bool draws_negatives() const {
    return args().loss_type && !find_reranker_loss(*args().loss_type)->takes_labels;
  }

  // What sentence-transformers draws from a batch, drawn from all samples.
  [[nodiscard]] std::shared_ptr<const SequenceDataset> with_negatives(
      const std::shared_ptr<const SequenceDataset>& texts) const {
    const auto refuse = [&](const std::string& why) {
      refuse_key(args().locations, "loss_type", *args().loss_type + " " + why);
    };
    if (is_stream(*texts)) refuse("draws documents of all samples; leave streaming out");
    if (!args().train_file_weights.empty()) {
      refuse("draws documents of all samples; leave train_file_weights out");
    }
    const std::optional<int64_t> count =
        loss_args(*find_reranker_loss(*args().loss_type)).num_negatives;
    auto data = std::make_shared<const DrawnNegatives>(
        texts, context().tokenizer, sample_options(Split::kTrain),
        count.value_or(std::numeric_limits<int64_t>::max()), seed());
    if (data->choices() < 2) {
      refuse(count == 0 ? "compares documents, and a row has one; let num_negatives be above 0"
                        : "compares documents, and there is one row with one");
    }
    warn_of_equal(*texts, data->choices());
    const int64_t own = texts->choices() - 1;
    log::info(format_text("{} compares {} documents of a query, {} of them of other samples",
                          *args().loss_type, data->choices(), data->choices() - own));
    return data;
  }

  // Documents that are equal to a query's right one are no wrong ones.
  void warn_of_equal(const SequenceDataset& texts, int64_t documents) const {
    constexpr int64_t kMostTexts = int64_t{4} << 20;  // are looked at
    if (texts.size() * texts.choices() > kMostTexts) return;
    const std::vector<uint64_t> hashes = hash_sequences(texts);
    std::set<uint64_t> different;
    for (size_t i = 0; i < hashes.size(); ++i) {
      if (static_cast<int64_t>(i) % texts.choices() != 0) different.insert(hashes[i]);
    }
    const int64_t count = std::ssize(different);
    if (count == 1) {
      refuse_key(args().locations, "train_file",
                 "has the same document in all rows, and nothing can be learned from that");
    }
    if (count >= documents) return;
    log::warning(format_text(
        "the rows have {} different documents, and {} are compared: those that are equal to a "
        "query's own are left out, and others are there twice",
        count, documents));
  }

  [[nodiscard]] const RerankerLoss& loss_of(const Shape& shape) const {
    const bool ranks = shape.documents > 1 && shape.has_label;
    return *find_reranker_loss(
        args().loss_type.value_or(ranks ? "LambdaLoss" : "BinaryCrossEntropyLoss"));
  }

  [[nodiscard]] RerankerLossArgs loss_args(const RerankerLoss& loss) const {
    try {
      return parse_reranker_args(loss, args().loss_kwargs.text);
    } catch (const Error& error) {
      refuse_key(args().locations, "loss_kwargs", error.what());
    }
  }

  void check(Split split, const Shape& shape, const Dataset& data) const {
    const char* key = split == Split::kTrain ? "train_file" : "validation_file";
    const bool streams = is_stream(data);
    if (split == Split::kTrain && draws_negatives()) return;
    const int64_t labels = streams ? shape.documents : std::ssize(data.get(0).values);
    if (shape.has_label && labels != shape.documents) {
      refuse_key(args().locations, key,
                 format_text("has {} labels and {} documents of a query; a row has a label for "
                             "each document",
                             labels, shape.documents));
    }
    if (!shape.has_label && shape.documents < 2) {
      refuse_key(args().locations, key,
                 "has one document of a query and no column 'label' or 'score'; set label_column, "
                 "or give wrong documents after the right one");
    }
    const RerankerLoss& loss = loss_of(shape);
    if (split == Split::kTrain && loss.takes_lists && shape.documents < 2) {
      refuse_key(args().locations, "loss_type",
                 std::string(loss.name) +
                     " compares the documents of a query, and the rows have "
                     "one; take BinaryCrossEntropyLoss or MSELoss");
    }
    if (split == Split::kTrain && loss.name == "BinaryCrossEntropyLoss" && shape.has_label &&
        !streams) {
      check_probabilities(data);
    }
  }

  void check_probabilities(const Dataset& data) const {
    for (int64_t sample = 0; sample < std::min<int64_t>(data.size(), 10000); ++sample) {
      const Example example = data.get(sample);
      const auto wrong =
          std::ranges::find_if(example.values, [](float v) { return v < 0 || v > 1; });
      if (wrong == example.values.end()) continue;
      refuse_key(args().locations, "loss_type",
                 format_text("sample {} has the label {}, and BinaryCrossEntropyLoss takes labels "
                             "of 0 to 1; scale them, or take MSELoss",
                             sample, format_double(*wrong)));
    }
  }

  Shape train_, validation_;
};

}  // namespace

std::unique_ptr<TaskSetup> make_reranker_setup(const SetupContext& context) {
  return std::make_unique<RerankerSetup>(context);
}

}  // namespace finetune
