// SPDX-License-Identifier: MIT
// An optimizer and a schedule that are registered from outside, as docs/extending.md describes: a
// run must handle them like the built-in ones.
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/config/fields.h"
#include "finetune/kernels/parameter_chunks.h"
#include "finetune/optim/optimizer.h"
#include "finetune/optim/schedule.h"
#include "finetune/plan/memory_plan.h"
#include "finetune/tokenizer/train_vocabulary.h"
#include "finetune/train/run.h"
#include "optim/schedule_kwargs.h"
#include "optim/update_rule.h"
#include "support/file_content.h"
#include "support/golden.h"
#include "support/paths.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;

// w -= learning_rate * (sign(m) + weight_decay * w),  m = kept * m + (1 - kept) * gradient
class SignMomentum final : public UpdateRule {
 public:
  using UpdateRule::UpdateRule;

  void update(const ParameterUpdate& u) override {
    const double kept = options().argument<double>("kept");
    const Tensor& momentum = u.slot.at("momentum");
    update_in_chunks(u.parameter, u.factor, u.rounding_key, [&](const ParameterChunk& chunk) {
      const Tensor average = chunk.of(momentum);
      average.mul_(kept).add_(chunk.gradient, 1.0 - kept);
      chunk.weight.mul_(1.0 - u.learning_rate * options().weight_decay)
          .sub_(average.sign(), u.learning_rate);
    });
  }
};

std::vector<StateTensor> sign_momentum_state(at::IntArrayRef sizes, bool, const OptimizerOptions&) {
  return {{.name = "momentum", .shape = sizes.vec(), .is_signed = true}};
}

OptimizerKind sign_momentum_optimizer() {
  return {.make = make_rule<SignMomentum>, .state = sign_momentum_state, .is_blockwise = true};
}

// Halves the learning rate after each `every` updates.
std::function<double(int64_t)> halving(const ScheduleOptions&, ScheduleKwargs& kwargs) {
  const int64_t every = kwargs.integer("every", 100, 1);
  return [every](int64_t updates) { return std::pow(0.5, updates / every); };
}

// Registered before the first configuration is loaded; a built-in one is a line of optimizers.def
// or schedules.def instead.
const bool kAreAdded = [] {
  add_optimizer({.name = "sign_momentum",
                 .spellings = {"sign_momentum"},
                 .arguments = {{.name = "kept", .fallback = 0.9}}},
                sign_momentum_optimizer());
  add_schedule({.type = "halving", .arguments = {"every"}}, {.factor = halving});
  return true;
}();

const std::string kExtendingText = source_dir() + "/tests/fixtures/text/lighthouse.txt";

class Extending : public ::testing::Test {
 protected:
  Extending() {
    EXPECT_TRUE(kAreAdded);
    const TrainedVocabulary vocabulary =
        train_byte_level_bpe({kExtendingText}, {.vocab_size = 300});
    for (const auto& [name, content] : make_tokenizer_files(vocabulary, 32)) {
      folder_.write(name, content);
    }
  }
  ~Extending() override {
    interrupt::reset();
    log::set_level("info");
  }

  [[nodiscard]] LoadedConfig config(const std::string& out, const std::string& more = "") const {
    return load_config_text(
        "output_dir: " + folder_ / out + "\ncache_dir: " + folder_ / "cache" +
            "\nmodel_type: roberta\ntokenizer_name: " + folder_.path() +
            "\ntrain_file: " + kExtendingText +
            "\nmax_seq_length: 16\nmax_steps: 4\nsave_steps: 4\n"
            "per_device_train_batch_size: 4\ndataloader_num_workers: 0\n"
            "report_to: none\nlog_level: error\nuse_cpu: true\n"
            "optim: sign_momentum\noptim_args: kept=0.8\nlearning_rate: 1e-3\nweight_decay: 0.1\n"
            "lr_scheduler_type: halving\nlr_scheduler_kwargs: {every: 2}\n"
            "config_overrides: {num_hidden_layers: 1, num_attention_heads: 2, hidden_size: 16, "
            "intermediate_size: 32, max_position_embeddings: 18, type_vocab_size: 1}\n" +
            more,
        "run.yaml", {});
  }

  [[nodiscard]] std::string file(const std::string& out, const std::string& name) const {
    return testing::file_content(folder_ / out + "/checkpoint-4/" + name);
  }

  testing::TemporaryFolder folder_;
};

TEST_F(Extending, TrainsAndResumesBitForBit) {
  ASSERT_EQ(run_training(config("unbroken"), {}), 0);
  ASSERT_EQ(run_training(config("broken"), {.stop_at_step = 2}), 75);
  interrupt::reset();
  ASSERT_EQ(run_training(config("broken"), {}), 0);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "scheduler.pt"}) {
    EXPECT_TRUE(file("unbroken", name) == file("broken", name)) << name;
  }
  EXPECT_THAT(file("broken", "optimizer.safetensors"), HasSubstr("lm_head.dense.weight.momentum"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "broken/checkpoint-4/optimizer.pt"));
}

TEST_F(Extending, IsInTheMemoryPlan) {
  const LoadedConfig loaded = config("out", "memory_budget: 2GiB\n");
  const MemoryChoices choices = choices_of(loaded.args);
  const MemoryWorkload workload;
  MemoryChoices adamw = choices;
  adamw.optimizer = {};
  EXPECT_EQ(2 * predict_memory(workload, choices).states, predict_memory(workload, adamw).states);
  const MemoryDecision decision = decide_memory(workload, memory_options(loaded), int64_t{8} << 30);
  EXPECT_EQ(decision.choices.optimizer, choices.optimizer);
  EXPECT_EQ(MemoryDecision::from_json(decision.to_json(), "x").choices.optimizer,
            choices.optimizer);
}

TEST_F(Extending, IsInMessagesAndHelp) {
  const auto problem = [&](const std::string& keys) {
    return testing::message_of<Error>([&] { (void)load_config_text(keys, "run.yaml", {}); });
  };
  EXPECT_GOLDEN(problem("optim: lion_8bit\n"));
  EXPECT_GOLDEN(problem("optim: sign_momentum\noptim_args: kep=0.5\n"));
  EXPECT_GOLDEN(problem("optim: sign_momentum\noptim_args: kept=1\n"));
  EXPECT_THAT(find_field("optim_args")->help, HasSubstr("kept of sign_momentum"));
  EXPECT_THAT(problem("lr_scheduler_type: halvin\n"), HasSubstr("halving"));
  EXPECT_GOLDEN(testing::message_of<Error>([] { (void)optimizer_of_kind("adam"); }));
  EXPECT_GOLDEN(testing::message_of<Error>([] {
    ScheduleOptions options;
    options.type = "x";
    (void)make_schedule(options);
  }));
}

}  // namespace
}  // namespace finetune
