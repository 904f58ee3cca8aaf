// SPDX-License-Identifier: MIT
// Every shipped configuration trains, evaluates and saves on a device, with a small model.
#include <sstream>

#include "accelerator/accelerator.h"

namespace finetune::testing {
namespace {

const std::string kSmallModel =
    "num_hidden_layers=2,num_attention_heads=2,hidden_size=32,intermediate_size=64,"
    "max_position_embeddings=130";

bool brings_its_data(const std::string& text) {
  return text.find("\ntask: ") != std::string::npos &&
         text.find("\ntask: mlm") == std::string::npos;
}

// Returns keys that make a configuration small and replace downloaded data.
Arguments small(const std::string& name, const std::string& text, const TemporaryFolder& folder) {
  Arguments keys = {"--output_dir", folder / name, "--cache_dir", folder / "cache"};
  const auto add = [&](const Arguments& more) {
    keys.insert(keys.end(), more.begin(), more.end());
  };
  add({"--tokenizer_name", source_dir() + "/tests/fixtures/tokenizers/lighthouse"});
  add({"--max_steps", "2", "--eval_steps", "2", "--save_steps", "2", "--logging_steps", "1"});
  add({"--warmup_steps", "0", "--max_eval_samples", "8", "--report_to", "none"});
  add({"--per_device_train_batch_size", "1", "--gradient_accumulation_steps", "2"});
  if (name == "bigbird_pretraining.yaml") {  // keeps its attention sparse
    add({"--max_seq_length", "256", "--max_predictions_per_seq", "30", "--config_overrides",
         "num_hidden_layers=2,num_attention_heads=2,hidden_size=32,intermediate_size=64,"
         "max_position_embeddings=256,block_size=16,num_random_blocks=1"});
    return keys;
  }
  const std::string small_llama =
      "num_hidden_layers=2,num_attention_heads=4,num_key_value_heads=2,hidden_size=32,"
      "intermediate_size=64";
  if (name == "smollm2_shakespeare.yaml") {  // its model and text must be fetched first
    add({"--model_name_or_path", "null", "--model_type", "llama", "--config_overrides", small_llama,
         "--max_seq_length", "64", "--train_file", kText + "lighthouse.txt"});
    return keys;
  }
  // A decoder, whose tokenizer has the special tokens of answers.
  if (name == "sft.yaml" || name == "decision.yaml") {
    add({"--tokenizer_name", source_dir() + "/tests/fixtures/tokenizers/causal",
         "--config_overrides", small_llama});
    return keys;
  }
  const bool is_lora = name == "lora.yaml" || name == "qlora.yaml";
  const bool is_dpo = name == "dpo.yaml";
  if (is_lora || is_dpo || name == "chat.yaml") {  // without a base there is no adapter
    add({"--model_name_or_path", "null", "--use_peft", "false", "--load_in_4bit", "false",
         "--model_type", "llama", "--config_overrides", small_llama});
    if (is_lora) {
      add({"--max_seq_length", "64", "--train_file", kText + "lighthouse.txt"});
    } else {
      const std::string tasks = source_dir() + "/tests/fixtures/tasks/";
      add({"--tokenizer_name", source_dir() + "/tests/fixtures/tokenizers/causal",
           "--chat_template_path", "alpaca", "--max_seq_length", "256", "--train_file",
           tasks + (is_dpo ? "pairs-train.jsonl" : "keeper-train.jsonl"), "--validation_file",
           tasks + (is_dpo ? "pairs-valid.jsonl" : "keeper-valid.jsonl")});
    }
    return keys;
  }
  if (name == "embedding.yaml") {  // its model and pairs must be fetched first
    const std::string tasks = source_dir() + "/tests/fixtures/tasks/";
    add({"--model_name_or_path", "null", "--model_type", "bert", "--config_overrides", kSmallModel,
         "--max_seq_length", "32", "--effective_batch_size", "null", "--text_columns",
         "[question, answer]", "--train_file", tasks + "answers-train.jsonl", "--validation_file",
         tasks + "answers-valid.jsonl"});
    return keys;
  }
  if (name == "embedding_small.yaml") {
    add({"--effective_batch_size", "null", "--matryoshka_dims", "null"});
  }
  add({"--config_overrides", kSmallModel});
  if (!brings_its_data(text)) {
    add({"--train_file", kText + "lighthouse.txt", "--validation_file",
         kText + "lighthouse-valid.txt"});
  }
  return keys;
}

// Returns a text as documents of 20 lines, separated by empty lines.
std::string documents() {
  std::istringstream text(read_file(kText + "lighthouse.txt"));
  std::string result;
  int lines = 0;
  for (std::string line; std::getline(text, line);) {
    result += line + (++lines % 20 == 0 ? "\n\n" : "\n");
  }
  return result;
}

TEST(AcceleratorConfigurations, TrainEvaluateAndSave) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "japanese");
  write_file(folder / "japanese/a.txt", documents());
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() + "/configs")) {
    Accelerator accelerator;
    const std::string name = entry.path().filename();
    Arguments words = {"train", entry.path().string()};
    const Arguments keys = small(name, read_file(entry.path()), folder);
    words.insert(words.end(), keys.begin(), keys.end());
    const ProcessResult result = accelerator.run(
        finetune_command(words),
        {{"ESPERANTO_DATA", folder.path()}, {"JAPANESE_DATA", folder / "japanese"}});
    EXPECT_EQ(result.code, 0) << name << "\n" << result.err;
    if (result.code != 0) continue;
    EXPECT_THAT(result.err, ::testing::HasSubstr("on pretend (pretend:0 of 1"));
    EXPECT_EQ(trainer_state(folder / name)["global_step"], 2) << name;
    EXPECT_GT(accelerator.report().kernels, 100) << name;
  }
}

}  // namespace
}  // namespace finetune::testing
