// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>

#include "integration/tiny_run.h"

namespace finetune::testing {

// Runs that train a LoRA adapter.
class AdapterRun : public ::testing::Test {
 protected:
  // A base that was trained for a moment, made once.
  static const std::string& base() {
    static const TinyRun run({{"task", "clm"},
                              {"model_type", "llama"},
                              {"config_overrides",
                               "{num_hidden_layers: 2, num_attention_heads: 4, "
                               "num_key_value_heads: 2, hidden_size: 32, intermediate_size: 64, "
                               "max_position_embeddings: 64}"},
                              {"max_steps", "10"},
                              {"save_strategy", "no"}});
    static const std::string folder = [] {
      const ProcessResult made = run.train();
      EXPECT_EQ(made.code, 0) << made.err;
      return run.out();
    }();
    return folder;
  }

  static TinyRun::Keys keys(const TinyRun::Keys& more = {}) {
    TinyRun::Keys all = {{"task", "clm"},
                         {"model_type", ""},
                         {"config_overrides", ""},
                         {"tokenizer_name", ""},
                         {"model_name_or_path", base()},
                         {"use_peft", "true"},
                         {"lora_r", "4"},
                         {"lora_dropout", "0.1"},
                         {"learning_rate", "1e-2"}};
    for (const auto& [key, value] : more) all[key] = value;
    return all;
  }

  // An adapter on an encoder whose masked language model was trained: it has neither a classifier
  // nor a pooler.
  static TinyRun::Keys classifier_keys(const std::string& task, const std::string& data,
                                       const std::string& family = "roberta") {
    static std::map<std::string, TinyRun> encoders;
    const auto [found, is_new] =
        encoders.try_emplace(family, TinyRun::Keys{{"task", "mlm"},
                                                   {"model_type", family},
                                                   {"max_steps", "3"},
                                                   {"eval_strategy", "\"no\""},
                                                   {"save_strategy", "\"no\""}});
    if (is_new) {
      const ProcessResult made = found->second.train();
      EXPECT_EQ(made.code, 0) << made.err;
    }
    return keys({{"task", task},
                 {"model_name_or_path", found->second.out()},
                 {"train_file", kTasks + data + "-train.jsonl"},
                 {"validation_file", kTasks + data + "-valid.jsonl"},
                 {"max_steps", "12"},
                 {"eval_steps", "4"},
                 {"save_steps", "4"}});
  }

  static std::string adapter_of(const TinyRun& run) {
    return read_file(run.out("adapter_model.safetensors"));
  }

  static void expect_same_bits_after_a_stop(const TinyRun::Keys& more) {
    SCOPED_TRACE(more.begin()->first);
    TinyRun::Keys all = keys(more);
    all["max_steps"] = "12";
    all["eval_strategy"] = "no";
    all["validation_file"] = "";
    const TinyRun whole(all);
    const ProcessResult unbroken = whole.train();
    ASSERT_EQ(unbroken.code, 0) << unbroken.err;
    const TinyRun run(all);
    run.train_until(5);
    const ProcessResult result = run.train();
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(adapter_of(run) == adapter_of(whole));
  }
};

}  // namespace finetune::testing
