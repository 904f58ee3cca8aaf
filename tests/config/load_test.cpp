// SPDX-License-Identifier: MIT
#include "finetune/config/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../base/temporary_folder.h"
#include "finetune/config/dump.h"
#include "load_helpers.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::load_error;
using testing::load_yaml;
using ::testing::Not;
using testing::TemporaryFolder;

TEST(LoadConfig, NamesTheNearestKey) {
  EXPECT_GOLDEN(load_error("# a\n\nsave_step: 5\n"));
  EXPECT_EQ(nearest_key("learing_rate"), "learning_rate");
  EXPECT_EQ(nearest_key("evaluation_stragety"), "evaluation_strategy");
  EXPECT_EQ(nearest_key("max_setps"), "max_steps");
  EXPECT_EQ(nearest_key("xyz"), "");
  EXPECT_EQ(nearest_key(std::string(10'000, 'a')), "");
}

TEST(LoadConfig, NamesTheNearestValueAndOnlyAvailableOnes) {
  EXPECT_GOLDEN(load_error("lr_scheduler_type: cosin"));
  EXPECT_GOLDEN(load_error("task: sequence_clasification"));
  EXPECT_THAT(
      load_error("optim: adam"),
      AllOf(HasSubstr("must be one of adamw_torch_fused, adamw_torch,"), Not(HasSubstr("galore"))));
  EXPECT_GOLDEN(load_error("optim: lion_8bit"));
}

TEST(LoadConfig, SaysThatKeysAreNotNested) {
  EXPECT_GOLDEN(load_error("training:\n  max_steps: 3\n"));
}

TEST(LoadConfig, SaysHowToNameAConfiguration) {
  const TemporaryFolder folder;
  const auto error_of = [](const std::string& path) -> std::string {
    try {
      (void)load_config(path, {});
    } catch (const Error& error) {
      return error.kind() == ErrorKind::kConfig ? error.what() : "wrong kind of error";
    }
    return "";
  };
  EXPECT_EQ(error_of(folder.path() + "/run.yaml"),
            "there is no configuration '" + folder.path() +
                "/run.yaml'; check the path, or write one with 'finetune config init'");
  EXPECT_EQ(error_of(folder.path()),
            "'" + folder.path() + "' is a folder; name a configuration, a YAML or JSON file");
}

TEST(LoadConfig, ReportsEveryFaultAtOnce) {
  EXPECT_GOLDEN(load_error("sed: 1\nmax_steps: x\nadam_beta1: 1\nsave_strategy: never\n"));
}

TEST(LoadConfig, ReportsTheFirstOfVeryManyFaults) {
  std::string text;
  for (int i = 0; i < 9'000; ++i) text += "unknown_key_" + std::to_string(i) + ": 1\n";
  const std::string message = load_error(text);
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 50);
  EXPECT_TRUE(message.ends_with("\nand 8950 more"));
}

TEST(LoadConfig, ChecksRanges) {
  for (const char* text :
       {"per_device_train_batch_size: 0", "num_train_epochs: 0", "max_steps: -2", "seed: -1",
        "save_total_limit: 0", "mlm_probability: 0", "mlm_probability: 1.01", "weight_decay: -0.1",
        "validation_split_percentage: 100", "warmup_steps: -1", "label_smoothing_factor: 1",
        "dataloader_num_workers: -1", "early_stopping_patience: 0", "max_grad_norm: -1",
        "save_steps: 0", "max_seq_length: 2", "adam_beta1: 1", "adam_beta2: 1"}) {
    EXPECT_GOLDEN(load_error(text)) << text;
  }
}

TEST(LoadConfig, LetsTheCommandLineWin) {
  const LoadedConfig config =
      load_yaml("seed: 1\nlearning_rate: 1e-3\nmax_steps: 5\n",
                {"--learning-rate", "2e-5", "--max_steps=-1", "--line_by_line"});
  EXPECT_EQ(config.args.seed, 1);
  EXPECT_EQ(config.args.learning_rate, 2e-5);
  EXPECT_EQ(config.args.max_steps, -1);
  EXPECT_TRUE(config.args.line_by_line);
  EXPECT_EQ(config.where("seed"), "run.yaml:1");
  EXPECT_EQ(config.where("learning_rate"), "command line");
  EXPECT_EQ(config.where("adam_beta1"), "run.yaml");
  EXPECT_FALSE(config.is_set("adam_beta1"));
}

TEST(LoadConfig, AcceptsAFaultInTheFileThatTheCommandLineMends) {
  EXPECT_EQ(load_yaml("fp16: true\nseed: x\n", {"--fp16", "false", "--seed", "3"}).args.seed, 3);
  EXPECT_EQ(load_yaml("", {"--load_in_4bit", "--seed", "3"}).args.load_in_4bit, "true");
  EXPECT_EQ(load_yaml("", {"--load_in_4bit", "auto"}).args.load_in_4bit, "auto");
}

TEST(LoadConfig, ReadsTheCommandLineAlone) {
  const LoadedConfig config = load_config(
      "", {"--train_file", "a.txt", "b.txt", "--max-steps", "-1", "--no_do_train", "--do_eval",
           "--config_overrides", "hidden_size=64,hidden_act=gelu,tie=true", "--seed", "1", "--seed",
           "2", "--tf32=false", "--validation_file", "[\"c d.txt\"]"});
  EXPECT_THAT(config.args.train_file, ElementsAre("a.txt", "b.txt"));
  EXPECT_THAT(config.args.validation_file, ElementsAre("c d.txt"));
  EXPECT_EQ(config.args.config_overrides.text,
            R"({"hidden_size":64,"hidden_act":"gelu","tie":true})");
  EXPECT_FALSE(config.args.do_train);
  EXPECT_TRUE(config.args.do_eval);
  EXPECT_EQ(config.args.seed, 2);
  EXPECT_EQ(config.args.tf32, false);
}

TEST(LoadConfig, RefusesWordsThatAreNoOverrides) {
  const auto message = [](const std::vector<std::string>& words) {
    return load_error("", "run.yaml", words);
  };
  EXPECT_GOLDEN(message({"seed"}));
  EXPECT_GOLDEN(message({"--seed", "1", "2"}));
  EXPECT_GOLDEN(message({"--seed"}));
  EXPECT_GOLDEN(message({"--seeed", "1"}));
  EXPECT_GOLDEN(message({"--"}));
  EXPECT_GOLDEN(message({"--=1"}));
  EXPECT_THAT(message({"--run_name", "\xFF"}), HasSubstr("UTF-8"));
  EXPECT_GOLDEN(message({"--config_overrides", "{\"a\": }"}));
  EXPECT_GOLDEN(message({"--config_overrides", "a"}));
  EXPECT_THAT(message({"--config_overrides", "a=1,a=2"}), HasSubstr("'a' twice"));
  EXPECT_GOLDEN(message({"--config_overrides", "a=1,"}));
}

TEST(LoadConfig, TakesTheNamesOfBertsScripts) {
  const LoadedConfig config =
      load_yaml("task: pretraining\nmasked_lm_prob: 0.2\nmax_token_length: 4096\n");
  EXPECT_EQ(config.args.mlm_probability, 0.2);
  EXPECT_EQ(config.args.max_seq_length, 4096);
  EXPECT_THAT(config.notes,
              ElementsAre("run.yaml:2: 'masked_lm_prob' is called 'mlm_probability' here",
                          "run.yaml:3: 'max_token_length' is called 'max_seq_length' here"));
  EXPECT_EQ(config.args.sentence_delimiters.front(), "。");
}

TEST(LoadConfig, TakesTheOldNames) {
  const LoadedConfig config = load_yaml(
      "evaluation_strategy: epoch\nno_cuda: true\nper_gpu_train_batch_size: 4\n"
      "warmup_ratio: 0.1\noverwrite_output_dir: true\nsave_safetensors: true\n"
      "fp16_backend: auto\ngroup_by_length: false\nhalf_precision_backend: null\n");
  EXPECT_EQ(config.args.eval_strategy, "epoch");
  EXPECT_TRUE(config.args.use_cpu);
  EXPECT_EQ(config.args.per_device_train_batch_size, 4);
  EXPECT_EQ(config.args.warmup_steps, 0.1);
  EXPECT_THAT(config.notes,
              ElementsAre("run.yaml:1: 'evaluation_strategy' is the old name of 'eval_strategy'",
                          HasSubstr("use_cpu"), HasSubstr("per_device_train_batch_size"),
                          HasSubstr("warmup_steps"), HasSubstr("nothing is ever deleted"),
                          HasSubstr("fp16_backend")));
}

TEST(LoadConfig, TakesTheColumnNamesOfTheExampleScripts) {
  const LoadedConfig config =
      load_yaml("task: token_classification\ntext_column_name: words\nlabel_column_name: tags\n");
  EXPECT_EQ(config.args.text_column, "words");
  EXPECT_EQ(config.args.label_column, "tags");
}

TEST(LoadConfig, RefusesOldNamesThatWouldChangeResults) {
  EXPECT_GOLDEN(load_error("save_safetensors: false"));
  EXPECT_THAT(load_error("warmup_ratio: 1"), HasSubstr("write warmup_steps"));
  EXPECT_GOLDEN(load_error("warmup_ratio: 5"));
  EXPECT_THAT(load_error("task_name: cola"), HasSubstr("run_glue"));
}

TEST(LoadConfig, RefusesAKeyBesideItsOldName) {
  EXPECT_GOLDEN(load_error("eval_strategy: 'no'\nevaluation_strategy: steps\n"));
}

TEST(LoadConfig, TakesTheOneOfWarmupStepsAndRatioThatIsNotZero) {
  EXPECT_EQ(load_yaml("warmup_steps: 0\nwarmup_ratio: 0.06").args.warmup_steps, 0.06);
  EXPECT_EQ(load_yaml("warmup_steps: 10\nwarmup_ratio: 0.0").args.warmup_steps, 10);
  EXPECT_GOLDEN(load_error("warmup_steps: 10\nwarmup_ratio: 0.1"));
}

TEST(LoadConfig, RefusesWhatThisVersionDoesNotHave) {
  for (const char* text :
       {"optim: lion_8bit", "optim: adamw_torch_8bit", "train_sampling_strategy: batch_rebalance",
        "neftune_noise_alpha: 5", "torch_empty_cache_steps: 4", "push_to_hub: true",
        "trackio_space_id: x", "deepspeed: ds.json", "deepspeed: {a: 1}", "fsdp: full_shard",
        "fsdp: true", "torch_compile: true", "use_liger_kernel: true", "report_to: comet_ml",
        "report_to: [tensorboard, comet_ml]", "debug: underflow_overflow",
        "trust_remote_code: true", "dataset_name: wikitext", "ignore_data_skip: true"}) {
    const std::string message = load_error(text);
    EXPECT_GOLDEN(message) << text;
    EXPECT_TRUE(message.find("is not available") != std::string::npos ||
                message.find("is not possible") != std::string::npos)
        << message;
  }
}

TEST(LoadConfig, TakesTheDefaultOfWhatItDoesNotHave) {
  const LoadedConfig config = load_yaml(
      "fp16: false\ngradient_checkpointing: false\noptim: adamw_torch\nnum_processes: 1\n"
      "push_to_hub: false\ndeepspeed: null\nfsdp: false\nreport_to: none\ntask: mlm\n"
      "model_type: roberta\ndivergence_policy: stop\nparam_dtype: float32\ndebug:\n");
  EXPECT_THAT(config.notes, IsEmpty());
}

// TrainingArguments.to_json_string() of transformers 5.23 writes these defaults.
TEST(LoadConfig, AcceptsTheDefaultsOfDumpedTrainingArguments) {
  const LoadedConfig config =
      load_yaml(R"(accelerator_config: {"split_batches": false, "dispatch_batches": null, )"
                R"("even_batches": true, "use_seedable_sampler": true, "non_blocking": false, )"
                R"("gradient_accumulation_kwargs": null})"
                "\ndebug: []\nfsdp: null\nlocal_rank: -1\n");
  EXPECT_THAT(config.notes, IsEmpty());
  EXPECT_GOLDEN(load_error("accelerator_config: {split_batches: true}"));
  EXPECT_THAT(load_error("debug: [underflow_overflow]"), HasSubstr("'debug'"));
}

// to_json_string() writes such a text for every key that ends in "_token", also if it is unset.
TEST(LoadConfig, TakesTheMaskOfADumpedTokenForAnUnsetKey) {
  const LoadedConfig config =
      load_yaml("hub_token: <HUB_TOKEN>\npush_to_hub_token: <PUSH_TO_HUB_TOKEN>\n");
  EXPECT_THAT(config.notes, IsEmpty());
  EXPECT_FALSE(config.is_set("hub_token"));
}

TEST(LoadConfig, WarnsOfNoModelTypeThatIsNull) {
  const std::string model = "model_name_or_path: ./model\n";
  EXPECT_THAT(load_yaml(model + "model_type: null\n").notes, IsEmpty());
  EXPECT_THAT(load_yaml(model + "model_type: roberta\n").notes,
              ElementsAre(HasSubstr("model_type has no effect")));
}

TEST(LoadConfig, SaysWhatHasNoEffect) {
  const LoadedConfig config = load_yaml("dataloader_in_order: false\nhub_token: secret\n");
  EXPECT_THAT(config.notes,
              ElementsAre("run.yaml:1: 'dataloader_in_order: false' has no effect here: batches "
                          "always come in order, so that a resumed run is exact",
                          "run.yaml:2: 'hub_token' has no effect here: nothing is uploaded"));
}

TEST(LoadConfig, SpellsValuesInOneWay) {
  EXPECT_EQ(load_yaml("resume_from_checkpoint: true").args.resume_from_checkpoint, "auto");
  EXPECT_EQ(load_yaml("resume_from_checkpoint: False").args.resume_from_checkpoint, "none");
  EXPECT_EQ(load_yaml("resume_from_checkpoint: null").args.resume_from_checkpoint, "auto");
  EXPECT_EQ(load_yaml("log_level: detail").args.log_level, "debug");
  EXPECT_THAT(load_yaml("report_to: all").args.report_to, ElementsAre("tensorboard"));
  EXPECT_THAT(load_yaml("report_to: []").args.report_to, ElementsAre("none"));
  EXPECT_THAT(load_yaml("report_to: null").args.report_to, ElementsAre("none"));
  EXPECT_TRUE(load_yaml("report_to: [tensorboard]").args.reports_to("tensorboard"));
}

TEST(LoadConfig, ResolvesPathsAgainstTheFilesFolder) {
  const LoadedConfig config = load_config_text(
      "train_file: [a.txt, ../b.txt, /c.txt]\noutput_dir: out/\nvalidation_file: data/*.txt\n"
      "resume_from_checkpoint: out/checkpoint-5\n",
      "configs/run.yaml", {"--cache_dir", "cache", "--logging_dir", "./logs"});
  EXPECT_THAT(config.args.train_file, ElementsAre("configs/a.txt", "b.txt", "/c.txt"));
  EXPECT_THAT(config.args.validation_file, ElementsAre("configs/data/*.txt"));
  EXPECT_EQ(config.args.output_dir, "configs/out");
  EXPECT_EQ(config.args.resume_from_checkpoint, "configs/out/checkpoint-5");
  EXPECT_EQ(config.args.cache_dir, "cache");
  EXPECT_EQ(config.args.logging_dir, "logs");
}

TEST(LoadConfig, ExpandsHomeAndVariables) {
  ASSERT_EQ(setenv("HOME", "/home/me", 1), 0);
  ASSERT_EQ(setenv("FINETUNE_TEST_DATA", "/data", 1), 0);
  ASSERT_EQ(unsetenv("FINETUNE_TEST_NONE"), 0);
  const LoadedConfig config = load_yaml(
      "output_dir: ~/run\ntrain_file: [$FINETUNE_TEST_DATA/a, '${FINETUNE_TEST_DATA}b', a$]\n"
      "model_name_or_path: ~/model\nrun_name: $FINETUNE_TEST_DATA\n");
  EXPECT_EQ(config.args.output_dir, "/home/me/run");
  EXPECT_EQ(config.args.cache_dir, "/home/me/.cache/finetune");
  EXPECT_THAT(config.args.train_file, ElementsAre("/data/a", "/datab", "a$"));
  EXPECT_EQ(config.args.model_name_or_path, "/home/me/model");
  EXPECT_EQ(config.args.run_name, "$FINETUNE_TEST_DATA");
  EXPECT_GOLDEN(load_error("output_dir: $FINETUNE_TEST_NONE/run"));
  EXPECT_GOLDEN(load_error("output_dir: ~other/run"));
  EXPECT_GOLDEN(load_error("output_dir: ''"));
}

TEST(LoadConfig, LeavesBucketsAsTheyAre) {
  const auto mirror = [](const std::string& text) {
    return *load_config_text("mirror_dir: '" + text + "'\n", "configs/run.yaml", {})
                .args.mirror_dir;
  };
  EXPECT_EQ(mirror("s3://bucket/runs/a b/"), "s3://bucket/runs/a b");
  EXPECT_EQ(mirror("rclone:drive:runs/../a"), "rclone:drive:runs/../a");
  EXPECT_EQ(mirror("drive/run"), "configs/drive/run");
  EXPECT_EQ(mirror("./rclone:drive:"), "configs/rclone:drive:");
  EXPECT_EQ(mirror("s3://"), "s3://") << "which is refused later";
  EXPECT_EQ(mirror("s3/run"), "configs/s3/run");
}

// It would be a folder on the disk that may be lost.
TEST(LoadConfig, RefusesAnAddressThatIsNoBucket) {
  for (const char* text : {"S3://bucket/x", "s3:bucket/x", "s3:/bucket/x", "gcs://bucket/x",
                           "az://b/x", "http://bucket/x", "s3//bucket/x", "ftp://host/x"}) {
    EXPECT_GOLDEN(load_error(std::string("mirror_dir: '") + text + "'")) << text;
  }
}

TEST(LoadConfig, TakesAModelsNameForAPathOnlyWhereOneIsThere) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "org/model");
  const std::string path = folder.write("run.yaml",
                                        "model_name_or_path: org/model\n"
                                        "tokenizer_name: org/other\nconfig_name: ./none\n");
  const LoadedConfig config = load_config(path, {});
  EXPECT_EQ(config.args.model_name_or_path, folder / "org/model");
  EXPECT_EQ(config.args.tokenizer_name, "org/other");
  EXPECT_EQ(config.args.config_name, folder / "none");
}

TEST(LoadConfig, FillsInWhatFollows) {
  const TrainingArgs args =
      load_yaml("eval_strategy: steps\nlogging_steps: 20\nload_best_model_at_end: true\n").args;
  EXPECT_TRUE(args.do_eval);
  EXPECT_EQ(args.eval_steps, 20);
  EXPECT_EQ(args.metric_for_best_model, "loss");
  EXPECT_EQ(args.greater_is_better, false);
  EXPECT_EQ(load_yaml("metric_for_best_model: accuracy").args.greater_is_better, true);
  EXPECT_FALSE(load_yaml("").args.metric_for_best_model.has_value());
  EXPECT_EQ(load_yaml("early_stopping_patience: 3").args.metric_for_best_model, "loss");
}

TEST(LoadConfig, DerivesAccumulationFromTheEffectiveBatch) {
  const LoadedConfig config = load_yaml(
      "effective_batch_size: 64\nper_device_train_batch_size: 4\n"
      "gradient_accumulation_steps: 2\n");
  EXPECT_EQ(config.args.gradient_accumulation_steps, 16);
  EXPECT_THAT(config.notes, ElementsAre(HasSubstr("gradient_accumulation_steps is 16, not 2")));
  EXPECT_GOLDEN(load_error("effective_batch_size: 10\n"));
}

TEST(LoadConfig, ReadsMappingsInEveryForm) {
  const std::string expected = R"({"power":2.0,"lr_end":1e-06})";
  EXPECT_EQ(
      load_yaml("lr_scheduler_kwargs: {power: 2.0, lr_end: 1e-6}").args.lr_scheduler_kwargs.text,
      expected);
  EXPECT_EQ(load_yaml("lr_scheduler_kwargs:\n  power: 2.0\n  lr_end: 1e-6\n")
                .args.lr_scheduler_kwargs.text,
            expected);
  EXPECT_EQ(load_yaml("lr_scheduler_kwargs: '{\"power\": 2.0, \"lr_end\": 1e-6}'")
                .args.lr_scheduler_kwargs.text,
            expected);
  EXPECT_EQ(load_yaml("lr_scheduler_kwargs: power=2.0,lr_end=1e-6").args.lr_scheduler_kwargs.text,
            expected);
  EXPECT_GOLDEN(load_error("lr_scheduler_kwargs: [a]"));
  EXPECT_GOLDEN(load_error("learning_rate: {a: 1}"));
  EXPECT_GOLDEN(load_error("on_finish_command: echo done"));
}

TEST(LoadConfig, ReadsJsonAsItReadsYaml) {
  const std::string yaml =
      "learning_rate: 2e-5\nseed: 7\ntrain_file: [a.txt, b.txt]\nline_by_line: true\n"
      "save_total_limit: null\nlr_scheduler_type: polynomial\nlr_scheduler_kwargs: {power: 2}\n"
      "eval_strategy: steps\neval_steps: 0.25\nrun_name: 'x'\nnum_train_epochs: 1.5\n";
  const std::string json = R"({
    "learning_rate": 2e-5, "seed": 7, "train_file": ["a.txt", "b.txt"], "line_by_line": true,
    "save_total_limit": null, "lr_scheduler_type": "polynomial",
    "lr_scheduler_kwargs": {"power": 2}, "eval_strategy": "steps", "eval_steps": 0.25,
    "run_name": "x", "num_train_epochs": 1.5})";
  const nlohmann::ordered_json one = to_json(load_config_text(yaml, "d/run.yaml", {}).args);
  const nlohmann::ordered_json other = to_json(load_config_text(json, "d/run.json", {}).args);
  EXPECT_EQ(one, other);
  EXPECT_EQ(one.at("train_file").at(0), "d/a.txt");
}

TEST(LoadConfig, SaysThatAFileIsNotThere) {
  const TemporaryFolder folder;
  try {
    (void)load_config(folder / "none.yaml", {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_GOLDEN(error.what());
  }
  EXPECT_THROW((void)load_config(folder.path(), {}), Error);
}

TEST(LoadConfig, TakesRunClmsBlockSizeForTaskClmAlone) {
  const LoadedConfig config = load_config_text("block_size: 64\ntask: clm\n", "run.yaml", {});
  EXPECT_EQ(config.args.max_seq_length, 64);
  EXPECT_THAT(config.notes,
              ElementsAre("run.yaml:1: 'block_size' is called 'max_seq_length' here"));
  EXPECT_EQ(load_config_text("task: mlm\n", "run.yaml", {"--task", "clm", "--block_size", "32"})
                .args.max_seq_length,
            32);
  EXPECT_GOLDEN(load_error("block_size: 64\n"));
}

std::string error_of_file(const std::string& path) {
  try {
    (void)load_config(path, {});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(LoadConfig, SaysWhatAnotherKindOfFileIs) {
  const TemporaryFolder folder;
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"train.py", "is a Python program; a configuration is a YAML or JSON file with keys"},
      {"data.jsonl", "is a data file, which train_file names; a configuration is"},
      {"data.CSV", "is a data file, which train_file names; a configuration is"},
      {"model.safetensors", "is a file of weights, whose folder model_name_or_path names"}};
  for (const auto& [name, answer] : expected) {
    const std::string path = folder.path() + "/" + name;
    std::ofstream(path) << "a,b\n";
    EXPECT_THAT(error_of_file(path), HasSubstr("'" + path + "' " + answer));
  }
}

TEST(LoadConfig, RefusesAnAddressAsAFile) {
  EXPECT_GOLDEN(load_error("train_file: https://example.com/a.jsonl\n"));
  EXPECT_GOLDEN(load_error("output_dir: s3://bucket/run\n"));
  EXPECT_EQ(load_error("train_file: 'a: //b.txt'\n"), "");
}

TEST(LoadConfig, NamesAMissingModelBesideOtherMistakes) {
  EXPECT_GOLDEN(load_error("model_name_or_path: /nowhere/model\nsave_step: 1\n"));
  EXPECT_THAT(load_error("model_name_or_path: owner/model\nsave_step: 1\n"),
              Not(HasSubstr("folder")));
}

TEST(LoadConfig, NamesTheNearestFile) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/bert.yaml") << "seed: 1\n";
  EXPECT_GOLDEN(error_of_file(folder.path() + "/brt.yaml"));
}

TEST(LoadConfig, AsksWhereALearningRateLostItsSign) {
  EXPECT_GOLDEN(load_error("learning_rate: 2e5\n"));
  EXPECT_GOLDEN(load_error("", "run.yaml", {"--learning_rate", "1E+4"}));
  EXPECT_EQ(load_error("learning_rate: 2e5\noptim: sgd\n"), "");
  const LoadedConfig high = load_yaml("learning_rate: 0.5\n");
  ASSERT_EQ(high.notes.size(), 1U);
  EXPECT_GOLDEN(high.notes[0]);
  EXPECT_TRUE(load_yaml("learning_rate: 0.1\n").notes.empty());
}

TEST(LoadConfig, ShardedDdpLeadsToZeroStage) {
  EXPECT_THAT(load_error("sharded_ddp: simple\n"), HasSubstr("'zero_stage: 1' divides"));
  EXPECT_EQ(load_error("sharded_ddp: []\n"), "");
  EXPECT_EQ(load_error("sharded_ddp: ''\n"), "");
}

}  // namespace
}  // namespace finetune
