// SPDX-License-Identifier: MIT
// Runs of ModernBERT, DeBERTa, DistilBERT, ELECTRA, MPNet, EuroBERT and Nomic BERT end with the
// same bits, however they are split, stopped and killed.
#include <csignal>

#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

// Windows and distance buckets are shorter than the samples.
TinyRun::Keys encoder(const std::string& type, const TinyRun::Keys& more = {}) {
  if (type == "distilbert" || type == "electra" || type == "mpnet" || type == "eurobert" ||
      type == "nomic_bert" || type == "roformer") {
    const std::string own = type == "electra" || type == "roformer"
                                ? "embedding_size: 16, intermediate_size: 48"
                                : "intermediate_size: 48";
    TinyRun::Keys keys = {{"model_type", type},
                          {"config_overrides",
                           "{num_hidden_layers: 2, num_attention_heads: 4, hidden_size: 32, "
                           "max_position_embeddings: 64, pad_token_id: 1, " +
                               own + "}"}};
    for (const auto& [key, value] : more) keys[key] = value;
    return keys;
  }
  const std::string own =
      type == "modernbert"
          ? "local_attention: 8, attention_dropout: 0.1, mlp_dropout: 0.1, pad_token_id: 1"
          : "relative_attention: true, share_att_key: true, position_buckets: 8, "
            "pos_att_type: [p2c, c2p], norm_rel_ebd: layer_norm, position_biased_input: false, "
            "pad_token_id: 1";
  TinyRun::Keys keys = {{"model_type", type},
                        {"config_overrides",
                         "{num_hidden_layers: 2, num_attention_heads: 4, hidden_size: 32, "
                         "intermediate_size: 48, max_position_embeddings: 64, " +
                             own + "}"}};
  for (const auto& [key, value] : more) keys[key] = value;
  return keys;
}

class Encoders : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Families, Encoders,
                         ::testing::Values("modernbert", "deberta-v2", "distilbert", "electra",
                                           "mpnet", "eurobert", "nomic_bert", "roformer"),
                         [](const auto& shown) {
                           std::string name = shown.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST_P(Encoders, EndInTheSameBitsAfterKills) {
  const TinyRun run(encoder(GetParam()));
  for (const char* checkpoint : {"checkpoint-7", "checkpoint-21"}) {
    Process process(run.command(), {.environment = {}, .folder = "", .watch = run.out()});
    ASSERT_TRUE(process.wait_for_file(checkpoint));
    process.send(SIGKILL);
    ASSERT_EQ(process.finish().code, 128 + SIGKILL);
  }
  const ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  expect_equal(outcome_of(run), uninterrupted(encoder(GetParam())));
}

TEST_P(Encoders, EndInTheSameBitsWithEveryPrecisionAndTechnique) {
  const std::vector<std::pair<std::string, TinyRun::Keys>> variants = {
      {"packed, bf16, recomputing layers",
       {{"packing", "true"}, {"bf16", "true"}, {"gradient_checkpointing", "true"}}},
      {"fp16", {{"fp16", "true"}}},
      {"bfloat16 weights, 8-bit states, update in the backward pass",
       {{"optim", "adamw_8bit"},
        {"param_dtype", "bfloat16"},
        {"max_grad_norm", "0"},
        {"gradient_accumulation_steps", "1"},
        {"optimizer_in_backward", "true"}}}};
  for (const auto& [name, keys] : variants) {
    SCOPED_TRACE(name);
    expect_equal(stopped_at(encoder(GetParam(), keys), 17),
                 uninterrupted(encoder(GetParam(), keys)));
  }
}

TEST_P(Encoders, EndInTheSameBitsWhereTheBatchIsSplitOtherwise) {
  const TinyRun::Keys keys = encoder(GetParam(), {{"full_determinism", "true"},
                                                  {"per_device_train_batch_size", "2"},
                                                  {"gradient_accumulation_steps", "4"}});
  const Outcome split =
      stopped_at(keys, 17, {{"num_processes", "2"}, {"gradient_accumulation_steps", "2"}});
  const Outcome straight = uninterrupted(keys);
  EXPECT_TRUE(split.model == straight.model) << "other weights";
}

}  // namespace
}  // namespace finetune::testing
