// SPDX-License-Identifier: MIT
// Runs with frozen parameters: the word embeddings, which several ranks, logical shards and divided
// states would otherwise sum, send and store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/temporary_folder.h"
#include "distributed/gloo_members.h"
#include "finetune/base/file_system.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/task/setup.h"
#include "finetune/task/tasks.h"
#include "finetune/tensor/safetensors.h"
#include "finetune/tensor/torch_file.h"
#include "finetune/tokenizer/train_vocabulary.h"
#include "finetune/train/run.h"
#include "support/paths.h"

namespace finetune {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

constexpr char kFrozenWeight[] = "roberta.embeddings.word_embeddings.weight";

// Masked language modelling with frozen word embeddings. The head's weight is tied to them.
class FrozenSetup final : public TaskSetup {
 public:
  explicit FrozenSetup(std::unique_ptr<TaskSetup> setup) : setup_(std::move(setup)) {}

  std::shared_ptr<const Dataset> read(Split split) override { return setup_->read(split); }
  [[nodiscard]] std::shared_ptr<const Collator> make_collator() const override {
    return setup_->make_collator();
  }
  [[nodiscard]] Learner make_learner(const ModelConfig& model, c10::Device device,
                                     const ModelOptions& options) const override {
    Learner learner = setup_->make_learner(model, device, options);
    learner.model->store().freeze([](const std::string& name) { return name == kFrozenWeight; });
    return learner;
  }
  [[nodiscard]] Results make_results(Split split) const override {
    return setup_->make_results(split);
  }

 private:
  std::unique_ptr<TaskSetup> setup_;
};

const bool kFrozenTaskIsAdded = [] {
  static const TaskKeys keys = [] {
    TaskKeys same = find_task("mlm")->keys;
    same.name = "frozen_mlm";
    return same;
  }();
  static const TaskDescriptor descriptor = {
      .keys = keys,
      .rows = find_task("mlm")->rows,
      .head = find_task("mlm")->head,
      .make_setup = [](const SetupContext& context) -> std::unique_ptr<TaskSetup> {
        return std::make_unique<FrozenSetup>(find_task("mlm")->make_setup(context));
      },
      .pipeline = {.name = "frozen-fill-mask",
                   .class_suffix = find_task("mlm")->pipeline.class_suffix,
                   .make_predictor = find_task("mlm")->pipeline.make_predictor},
      .learns_words = true};
  add_task(descriptor);
  return true;
}();

class FrozenParameters : public testing::GlooMembers {
 protected:
  FrozenParameters() {
    EXPECT_TRUE(kFrozenTaskIsAdded);
    const std::string text = source_dir() + "/tests/fixtures/text/lighthouse.txt";
    for (const auto& [name, content] :
         make_tokenizer_files(train_byte_level_bpe({text}, {.vocab_size = 300}), 32)) {
      folder_.write(name, content);
    }
  }
  ~FrozenParameters() override {
    interrupt::reset();
    log::set_level("info");
  }

  [[nodiscard]] LoadedConfig config(const std::string& out, const std::string& more) const {
    return load_config_text("task: frozen_mlm\noutput_dir: " + folder_ / out +
                                "\ncache_dir: " + folder_ / "cache" +
                                "\nmodel_type: roberta\ntokenizer_name: " + folder_.path() +
                                "\ntrain_file: " + source_dir() +
                                "/tests/fixtures/text/lighthouse.txt\nmax_seq_length: 16\n"
                                "max_steps: 4\nsave_steps: 4\n"
                                "validation_split_percentage: 0\ndataloader_num_workers: 0\n"
                                "report_to: none\nlog_level: error\nuse_cpu: true\n"
                                "config_overrides: {num_hidden_layers: 2, num_attention_heads: 2, "
                                "hidden_size: 16, intermediate_size: 32, "
                                "max_position_embeddings: 18, type_vocab_size: 1}\n" +
                                more,
                            "run.yaml", {});
  }

  // Trains with `ranks` ranks, stops after 2 of 4 steps and resumes.
  void train_with_a_stop(int64_t ranks, const std::string& out, const std::string& more) {
    EXPECT_THAT(train(ranks, out, more, 2), Each(75));
    interrupt::reset();
    EXPECT_THAT(train(ranks, out, more, {}), Each(0));
  }

  std::vector<int> train(int64_t ranks, const std::string& out, const std::string& more,
                         std::optional<int64_t> stop_at_step) {
    std::vector<int> codes(static_cast<size_t>(ranks), -1);
    const LoadedConfig loaded = config(out, more);
    const std::vector<std::string> ends = run(ranks, [&](World& world) {
      RunOptions options{.stop_at_step = stop_at_step};
      options.world = std::shared_ptr<World>(&world, [](World*) {});
      codes[static_cast<size_t>(world.rank())] = run_training(loaded, options);
    });
    EXPECT_THAT(ends, Each(IsEmpty()));
    return codes;
  }

  [[nodiscard]] std::string file(const std::string& out, const std::string& name) const {
    return FileSystem::local().read_all(folder_ / out + "/checkpoint-4/" + name);
  }
  [[nodiscard]] SafetensorsFile saved_weights(const std::string& out) const {
    return SafetensorsFile::open(FileSystem::local(),
                                 folder_ / out + "/checkpoint-4/model.safetensors");
  }
  [[nodiscard]] std::string weight(const std::string& out, const std::string& name) const {
    const Tensor values = saved_weights(out).read(name);
    return {static_cast<const char*>(values.const_data_ptr()), values.nbytes()};
  }

  void expect_same_run(const std::string& left, const std::string& right) {
    for (const char* name : {"model.safetensors", "optimizer.pt", "scheduler.pt"}) {
      EXPECT_TRUE(file(left, name) == file(right, name)) << name << " of " << right;
    }
  }
};

constexpr char kAlone[] = "per_device_train_batch_size: 4\nlearning_rate: 1e-2\n";
constexpr char kHalf[] = "per_device_train_batch_size: 2\nlearning_rate: 1e-2\n";

TEST_F(FrozenParameters, KeepTheirValuesAndHaveNoState) {
  EXPECT_THAT(train(1, "out", kAlone, {}), Each(0));
  EXPECT_THAT(train(1, "still", "per_device_train_batch_size: 4\nlearning_rate: 0\n", {}), Each(0));
  EXPECT_EQ(weight("out", kFrozenWeight), weight("still", kFrozenWeight));
  EXPECT_NE(weight("out", "lm_head.bias"), weight("still", "lm_head.bias"));
  // All tensors in the file except one have a state in optimizer.pt.
  const TorchValue optimizer =
      read_torch_file(FileSystem::local(), folder_ / "out/checkpoint-4/optimizer.pt");
  const size_t tensors = saved_weights("out").tensors().size();
  EXPECT_EQ(optimizer.at("state").as_dict().items.size() + 1, tensors);
  size_t members = 0;
  for (const TorchValue& group : optimizer.at("param_groups").as_sequence()) {
    members += group.at("params").as_sequence().size();
  }
  EXPECT_EQ(members + 1, tensors);
}

TEST_F(FrozenParameters, ResumeBitForBit) {
  EXPECT_THAT(train(1, "unbroken", kAlone, {}), Each(0));
  train_with_a_stop(1, "broken", kAlone);
  expect_same_run("unbroken", "broken");
}

TEST_F(FrozenParameters, AreTrainedAroundByTwoRanks) {
  EXPECT_THAT(train(2, "unbroken", kHalf, {}), Each(0));
  train_with_a_stop(2, "broken", kHalf);
  expect_same_run("unbroken", "broken");
}

TEST_F(FrozenParameters, TakeNoPartInDividedStates) {
  EXPECT_THAT(train(2, "whole", kHalf, {}), Each(0));
  train_with_a_stop(2, "divided", std::string(kHalf) + "zero_stage: 1\n");
  expect_same_run("whole", "divided");
}

TEST_F(FrozenParameters, TakeNoPartInLogicalShards) {
  const std::string full = "full_determinism: true\n";
  EXPECT_THAT(train(1, "one", std::string(kHalf) + full + "gradient_accumulation_steps: 2\n", {}),
              Each(0));
  train_with_a_stop(2, "two", std::string(kHalf) + full);
  expect_same_run("one", "two");
  train_with_a_stop(2, "divided", std::string(kHalf) + full + "zero_stage: 1\n");
  expect_same_run("one", "divided");
}

}  // namespace
}  // namespace finetune
