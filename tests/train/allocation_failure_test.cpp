// SPDX-License-Identifier: MIT
// The n-th tensor allocation of a training run fails, n = 1, 2, ...: each run ends with the same
// files or with one error, and can be resumed from what it left. Nothing kills the process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/tensor/allocation_faults.h"
#include "finetune/tensor/device.h"
#include "finetune/tokenizer/train_vocabulary.h"
#include "finetune/train/run.h"
#include "support/file_content.h"
#include "support/paths.h"

namespace finetune {
namespace {

const std::string kText = source_dir() + "/tests/fixtures/text/lighthouse.txt";

class AllocationFailure : public ::testing::Test {
 protected:
  AllocationFailure() {
    const TrainedVocabulary vocabulary = train_byte_level_bpe({kText}, {.vocab_size = 300});
    for (const auto& [name, content] : make_tokenizer_files(vocabulary, 32)) {
      folder_.write(name, content);
    }
  }
  ~AllocationFailure() override {
    set_allocation_faults({});
    log::set_level("info");  // a run sets its own level
  }

  [[nodiscard]] int train(const std::string& out) const {
    const std::string text = "output_dir: " + folder_ / out + "\ncache_dir: " + folder_ / "cache" +
                             "\nmodel_type: roberta\ntokenizer_name: " + folder_.path() +
                             "\ntrain_file: " + kText +
                             "\nmax_seq_length: 16\nmax_steps: 2\nsave_steps: 1\n"
                             "per_device_train_batch_size: 4\ndataloader_num_workers: 0\n"
                             "save_total_limit: 2\nreport_to: none\nlog_level: error\n"
                             "use_cpu: true\nconfig_overrides: {num_hidden_layers: 1, "
                             "num_attention_heads: 2, hidden_size: 16, intermediate_size: 32, "
                             "max_position_embeddings: 18, type_vocab_size: 1}\n";
    return run_training(load_config_text(text, "run.yaml", {}), {});
  }

  // Trains with the failing allocation, then without; returns whether there was one to fail.
  bool fails_well(int64_t number) {
    const std::string out = "out" + std::to_string(number);
    set_allocation_faults({.failing = number});
    bool finished = false;
    try {
      finished = train(out) == 0;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kDevice) << number << ": " << error.what();
      EXPECT_THAT(error.what(), ::testing::HasSubstr("out of memory")) << number;
      ++errors_;
    }
    const bool was_reached = !allocation_fault_is_ahead();
    set_allocation_faults({});
    rescued_ += finished && was_reached;
    EXPECT_EQ(train(out), 0) << number;
    EXPECT_FALSE(testing::file_content(folder_ / out + "/model.safetensors").empty()) << number;
    std::filesystem::remove_all(folder_ / out);
    return was_reached;
  }

  testing::TemporaryFolder folder_;
  int errors_ = 0;
  int rescued_ = 0;
};

TEST_F(AllocationFailure, IsAnErrorOrASmallerBatchWhereverItHappens) {
  ASSERT_EQ(train("whole"), 0);
  int64_t tried = 0;
  // All allocations of startup, then every seventh: a step has hundreds.
  for (int64_t number = 1; fails_well(number) && tried < 300; number += number < 100 ? 1 : 7) {
    ++tried;
  }
  EXPECT_GT(tried, 100);
  EXPECT_GT(errors_, 10);
  EXPECT_GT(rescued_, 30);
}

}  // namespace
}  // namespace finetune
