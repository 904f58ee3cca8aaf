// SPDX-License-Identifier: MIT
// BigBird's random blocks belong to the model: they survive stops and are stored with its weights.
#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Full attention is used up to 14 tokens; the samples have 32.
const TinyRun::Keys kSparse = {
    {"model_type", "big_bird"},
    {"config_overrides",
     "{num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 32, intermediate_size: 64, "
     "max_position_embeddings: 32, block_size: 2, num_random_blocks: 1}"},
    {"max_steps", "4"},
    {"save_steps", "2"},
    {"eval_steps", "4"},
    {"seed", "17"}};

TEST(BlockSparse, GoesOnInTheSameBits) {
  const TinyRun straight(kSparse);
  const ProcessResult result = straight.train();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("block-sparse attention, blocks of 2 tokens"));
  EXPECT_THAT(result.err, Not(HasSubstr("full attention"))) << "each step took the sparse path";
  EXPECT_THAT(read_file(straight.out("config.json")), HasSubstr("\"random_blocks_seed\": 17"));

  const TinyRun stopped(kSparse);
  stopped.train_until(2);
  ASSERT_EQ(stopped.train().code, 0);
  EXPECT_EQ(read_file(stopped.out("model.safetensors")),
            read_file(straight.out("model.safetensors")));
  EXPECT_EQ(log_without_times(stopped.out()), log_without_times(straight.out()));
}

TEST(BlockSparse, KeepsTheBlocksOfTheModelThatItStartsFrom) {
  const TinyRun first(kSparse);
  ASSERT_EQ(first.train().code, 0);
  TinyRun second({{"model_type", ""},
                  {"config_overrides", ""},
                  {"model_name_or_path", first.out()},
                  {"max_steps", "1"},
                  {"eval_strategy", "no"},
                  {"bigbird_compat", "huggingface"},
                  {"seed", "5"}});
  ASSERT_EQ(second.train().code, 0);
  const std::string written = read_file(second.out("config.json"));
  EXPECT_THAT(written, HasSubstr("\"random_blocks_seed\": 17"));
  EXPECT_THAT(written, HasSubstr("\"bigbird_compat\": \"huggingface\""));

  second.set({{"bigbird_compat", ""}, {"max_steps", "2"}});
  const ProcessResult resumed = second.train();
  EXPECT_EQ(resumed.code, 2);
  EXPECT_THAT(resumed.err, HasSubstr("bigbird_compat was \"huggingface\" and is now (none)"));
}

TEST(BlockSparse, GoesOnWhereWhatWasNotSaidIsSaidInWords) {
  TinyRun run(kSparse);
  run.train_until(2);
  run.set({{"bigbird_compat", "none"}});
  const ProcessResult resumed = run.train();
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("resuming"));
  run.set({{"bigbird_compat", "huggingface"}, {"max_steps", "6"}});
  const ProcessResult other = run.train();
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("bigbird_compat was (none) and is now \"huggingface\""));
}

TEST(BlockSparse, RefusesCompatibilityOfOtherModels) {
  const TinyRun other(TinyRun::Keys{{"bigbird_compat", "huggingface"}});
  const ProcessResult result = other.train();
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("about BigBird's attention, but the model is a roberta"));
}

}  // namespace
}  // namespace finetune::testing
