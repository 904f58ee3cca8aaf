// SPDX-License-Identifier: MIT
// A task whose loss couples the samples of an update (Task::has_first_pass()). Its results must not
// depend on how the update is divided into micro-batches.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/task/tasks.h"
#include "finetune/tokenizer/train_vocabulary.h"
#include "finetune/train/run.h"
#include "support/paths.h"
#include "task/loss/coupled_loss.h"
#include "task/loss/head_task.h"
#include "task/setup/labelled_setup.h"

namespace finetune {
namespace {

const TaskDescriptor& classes() { return task_of("sequence_classification"); }

// The loss of a text is the distance of its score from what the mean of all scores of the update
// leaves: (score - label + mean)^2.
Tensor losses_of(const Tensor& scores, const Tensor& labels) {
  return (scores - labels + scores.mean()).pow(2).view({-1});
}

class CoupledScores final : public HeadTask {
 public:
  CoupledScores(Model& model, c10::Device device) : HeadTask(model, device) {}

  [[nodiscard]] bool has_first_pass() const override { return true; }
  [[nodiscard]] Tensor first_pass(const Batch& batch, const TrainingPass& pass) override {
    EXPECT_FALSE(c10::GradMode::is_enabled());
    return with_labels(logits(batch, pass.dropout), batch);
  }
  void couple(const Tensor& results) override {
    is_whole_ = !results.defined();
    if (!is_whole_) couple_rows(results);
  }
  void couple_rows(const Tensor& results) {
    rows = results.size(0);
    first_ = results.narrow(1, 0, 1);
    const Tensor labels = results.narrow(1, 1, 1);
    loss_.couple(results.narrow(1, 0, 1), rows, rows,
                 [&](const Tensor& scores, int64_t, int64_t) { return losses_of(scores, labels); });
  }
  std::vector<Tensor> loss_sums(const Batch& batch, const TrainingPass& pass) override {
    const Tensor scores = logits(batch, pass.dropout);
    if (is_whole_) couple_rows(with_labels(scores.detach(), batch));
    EXPECT_TRUE(scores.equal(first_.narrow(0, batch.first_position, batch.rows)))
        << "the second pass is another than the first";
    return {loss_.sum_of(scores, batch.first_position)};
  }

  static inline int64_t rows = 0;  // of the last update

 protected:
  [[nodiscard]] int64_t targets(const Batch& batch) const override { return batch.rows; }
  [[nodiscard]] Tensor summed_loss(const Tensor& scores, const Batch& batch) const override {
    return losses_of(scores, with_labels(scores, batch).narrow(1, 1, 1)).sum();
  }

 private:
  static Tensor with_labels(const Tensor& scores, const Batch& batch) {
    Tensor labels = at::empty({batch.rows, 1}, at::kFloat);
    for (int64_t r = 0; r < batch.rows; ++r) {
      labels[r][0] = static_cast<double>(batch.classes[static_cast<size_t>(r)]);
    }
    return at::cat({scores.cpu(), labels}, 1);
  }

  CoupledLoss loss_;
  Tensor first_;
  bool is_whole_ = false;
};

// Reads classes as sequence_classification does, and learns one score.
class CoupledSetup final : public TaskSetup {
 public:
  explicit CoupledSetup(const SetupContext& context)
      : seed_(static_cast<uint64_t>(context.options.seed)), own_(classes().make_setup(context)) {}

  std::shared_ptr<const Dataset> read(Split split) override { return own_->read(split); }
  [[nodiscard]] std::shared_ptr<const Collator> make_collator() const override {
    return own_->make_collator();
  }
  void learn_from(const Dataset& data) override { own_->learn_from(data); }
  [[nodiscard]] ModelConfig complete(ModelConfig model) const override {
    model.id2label = {"score"};
    return model;
  }
  [[nodiscard]] Learner make_learner(const ModelConfig& config, c10::Device device,
                                     const ModelOptions& options) const override {
    auto model = make_model(Head::kSequenceClassification, config, seed_, device, options);
    auto task = std::make_unique<CoupledScores>(*model, device);
    return {std::move(model), std::move(task)};
  }
  [[nodiscard]] Results make_results(Split split) const override {
    return own_->make_results(split);
  }

 private:
  uint64_t seed_;
  std::unique_ptr<TaskSetup> own_;
};

const TaskKeys kKeys = {.name = "coupled",
                        .title = "Learns scores whose mean is part of every loss.",
                        .yaml = "task: coupled\noutput_dir: run\ntrain_file: train.jsonl\n",
                        .keys = {},
                        .metric_names = {},
                        .metrics_depend_on_data = true,
                        .learns_classes = [](const TaskArgs&) { return true; }};

const bool kIsAdded = [] {
  static const TaskDescriptor descriptor = {
      .keys = kKeys,
      .rows = classes().rows,
      .head = [](const TaskArgs&) { return std::optional(Head::kSequenceClassification); },
      .make_setup = [](const SetupContext& context) -> std::unique_ptr<TaskSetup> {
        return std::make_unique<CoupledSetup>(context);
      },
      .pipeline = {.name = "coupled",
                   .class_suffix = "ForSequenceClassification",
                   .make_predictor = nullptr}};
  add_task(descriptor);
  return true;
}();

class TwoPasses : public ::testing::Test {
 protected:
  TwoPasses() {
    const std::string text = source_dir() + "/tests/fixtures/text/lighthouse.txt";
    const TrainedVocabulary vocabulary = train_byte_level_bpe({text}, {.vocab_size = 300});
    for (const auto& [name, content] : make_tokenizer_files(vocabulary, 32)) {
      folder_.write(name, content);
    }
    std::string rows;
    for (int i = 0; i < 20; ++i) {
      rows += R"({"text": ")";
      for (int word = 0; word < 1 + i % 4; ++word) rows += "the light ";
      rows += R"(", "label": )" + std::to_string(i % 3) + "}\n";
    }
    folder_.write("rows.jsonl", rows);
  }
  ~TwoPasses() override { log::set_level("info"); }

  // Returns the mean loss and the last update's norm.
  std::pair<double, double> train(const std::string& split) {
    const std::string out = folder_ / ("out" + std::to_string(runs_++));
    const LoadedConfig config = load_config_text(
        "task: coupled\noutput_dir: " + out + "\ncache_dir: " + folder_ / "cache" +
            "\nmodel_type: bert\ntokenizer_name: " + folder_.path() +
            "\ntrain_file: " + folder_ / "rows.jsonl" + "\nmax_steps: 12\nlearning_rate: 0.003\n" +
            "dataloader_num_workers: 0\nreport_to: none\nlogging_steps: 1\n"
            "log_level: error\nuse_cpu: true\nconfig_overrides: {num_hidden_layers: 1, "
            "num_attention_heads: 2, hidden_size: 16, intermediate_size: 32, "
            "max_position_embeddings: 32}\n" +
            split,
        "run.yaml", {});
    EXPECT_EQ(run_training(config, {}), 0);
    const auto state =
        parse_json(FileSystem::local().read_all(out + "/trainer_state.json", 1 << 20), "state");
    const auto& history = state.at("log_history");
    double norm = 0.0;
    double sum = 0.0;
    for (const auto& line : history) {
      if (!line.contains("grad_norm")) continue;
      norm = line.at("grad_norm").get<double>();
      sum += line.at("loss").get<double>();
    }
    return {sum, norm};
  }

  testing::TemporaryFolder folder_;
  int runs_ = 0;
};

// The last update of each epoch has 4 of 8 samples.
TEST_F(TwoPasses, AnUpdateDoesNotDependOnItsMicroBatches) {
  const auto [loss, norm] = train("per_device_train_batch_size: 8\n");
  EXPECT_EQ(CoupledScores::rows, 4);
  for (const char* cut : {"per_device_train_batch_size: 2\ngradient_accumulation_steps: 4\n",
                          "per_device_train_batch_size: 2\ngradient_accumulation_steps: "
                          "4\nfull_determinism: true\n"}) {
    const auto [of_cut, norm_of_cut] = train(cut);
    // Sums in float32 in another order, over 12 updates.
    EXPECT_NEAR(of_cut / loss, 1.0, 2e-5) << cut;
    EXPECT_NEAR(norm_of_cut / norm, 1.0, 2e-3) << cut;
  }
}

}  // namespace
}  // namespace finetune
