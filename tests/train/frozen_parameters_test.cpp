// SPDX-License-Identifier: MIT
// Runs with frozen parameters (freeze): the embeddings, whose word embeddings are tied to the head,
// and a layer, which several ranks, logical shards and divided states would otherwise sum, send and
// store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/temporary_folder.h"
#include "distributed/gloo_members.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/tensor/safetensors.h"
#include "finetune/tensor/torch_file.h"
#include "finetune/tokenizer/train_vocabulary.h"
#include "finetune/train/run.h"
#include "support/golden.h"
#include "support/paths.h"

namespace finetune {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

constexpr char kFrozenWeight[] = "roberta.embeddings.word_embeddings.weight";
constexpr size_t kFrozenTensors = 5 + 16;  // of the embeddings and of a layer

class FrozenRun : public testing::GlooMembers {
 protected:
  FrozenRun() {
    const std::string text = source_dir() + "/tests/fixtures/text/lighthouse.txt";
    for (const auto& [name, content] :
         make_tokenizer_files(train_byte_level_bpe({text}, {.vocab_size = 300}), 32)) {
      folder_.write(name, content);
    }
  }
  ~FrozenRun() override {
    interrupt::reset();
    log::set_level("info");
  }

  [[nodiscard]] LoadedConfig config(const std::string& out, const std::string& more) const {
    return load_config_text(config_text(out, more, "[embeddings, 'layer.[0]']"), "run.yaml", {});
  }
  [[nodiscard]] std::string config_text(const std::string& out, const std::string& more,
                                        const std::string& freeze) const {
    return "task: mlm\nfreeze: " + freeze + "\noutput_dir: " + folder_ / out +
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
           more;
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

TEST_F(FrozenRun, KeepTheirValuesAndHaveNoState) {
  EXPECT_THAT(train(1, "out", kAlone, {}), Each(0));
  EXPECT_THAT(train(1, "still", "per_device_train_batch_size: 4\nlearning_rate: 0\n", {}), Each(0));
  EXPECT_EQ(weight("out", kFrozenWeight), weight("still", kFrozenWeight));
  EXPECT_NE(weight("out", "lm_head.bias"), weight("still", "lm_head.bias"));
  // All tensors in the file except the frozen ones have a state in optimizer.pt.
  const TorchValue optimizer =
      read_torch_file(FileSystem::local(), folder_ / "out/checkpoint-4/optimizer.pt");
  const size_t tensors = saved_weights("out").tensors().size();
  EXPECT_EQ(optimizer.at("state").as_dict().items.size() + kFrozenTensors, tensors);
  size_t members = 0;
  for (const TorchValue& group : optimizer.at("param_groups").as_sequence()) {
    members += group.at("params").as_sequence().size();
  }
  EXPECT_EQ(members + kFrozenTensors, tensors);
}

TEST_F(FrozenRun, ResumeBitForBit) {
  EXPECT_THAT(train(1, "unbroken", kAlone, {}), Each(0));
  train_with_a_stop(1, "broken", kAlone);
  expect_same_run("unbroken", "broken");
}

TEST_F(FrozenRun, RefusesAnotherChoiceInTheSameRun) {
  EXPECT_THAT(train(1, "out", kAlone, 2), Each(75));
  interrupt::reset();
  try {
    (void)run_training(load_config_text(config_text("out", kAlone, "[embeddings]"), "run.yaml", {}),
                       {});
    FAIL() << "trained";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_GOLDEN(error.what());
  }
}

TEST_F(FrozenRun, NamesAPatternThatMatchesNothing) {
  for (const auto& [pattern, problem] :
       {std::pair{"[layers.0]",
                  "'layers.0' matches no parameter of the model; the first are roberta."},
        std::pair{"['(']", "'(' is no regular expression"},
        std::pair{"[roberta, lm_head]", "all parameters are frozen"}}) {
    try {
      (void)run_training(load_config_text(config_text("out", kAlone, pattern), "run.yaml", {}), {});
      FAIL() << pattern;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_GOLDEN(error.what());
    }
  }
}

TEST_F(FrozenRun, UsesTwoRanks) {
  EXPECT_THAT(train(2, "unbroken", kHalf, {}), Each(0));
  train_with_a_stop(2, "broken", kHalf);
  expect_same_run("unbroken", "broken");
}

TEST_F(FrozenRun, TakeNoPartInDividedStates) {
  EXPECT_THAT(train(2, "whole", kHalf, {}), Each(0));
  train_with_a_stop(2, "divided", std::string(kHalf) + "zero_stage: 1\n");
  expect_same_run("whole", "divided");
}

TEST_F(FrozenRun, TakeNoPartInLogicalShards) {
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
