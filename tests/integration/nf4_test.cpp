// SPDX-License-Identifier: MIT
// An adapter on a base of four bits (QLoRA): quantised once, resumed to the same bits.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "integration/adapter_run.h"

namespace finetune::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Nf4Run : public AdapterRun {
 protected:
  static TinyRun::Keys four_bits(const TinyRun::Keys& more = {}) {
    TinyRun::Keys all = keys({{"load_in_4bit", "true"},
                              {"max_steps", "12"},
                              {"eval_strategy", "no"},
                              {"validation_file", ""}});
    for (const auto& [key, value] : more) all[key] = value;
    return all;
  }
  static std::string trained(const TinyRun& run) {
    const ProcessResult result = run.train();
    EXPECT_EQ(result.code, 0) << result.err;
    return adapter_of(run);
  }
  // 17 million values in layers: 64 MiB in float32, 9 in four bits. Made once.
  static const std::string& large_base() {
    static const TinyRun run(
        {{"task", "clm"},
         {"model_type", "llama"},
         {"config_overrides",
          "{num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 4, "
          "hidden_size: 512, intermediate_size: 2048, max_position_embeddings: 64}"},
         {"max_steps", "1"},
         {"save_strategy", "no"},
         {"eval_strategy", "no"},
         {"validation_file", ""}});
    static const std::string folder = [] {
      const ProcessResult made = run.train();
      EXPECT_EQ(made.code, 0) << made.err;
      return run.out();
    }();
    return folder;
  }
  // The only entry of a cache of quantised bases.
  static std::string entry_of(const std::string& cache) {
    std::string found;
    for (const auto& one : fs::directory_iterator(cache + "/nf4")) {
      if (one.is_directory()) found = one.path();
    }
    return found;
  }
};

TEST_F(Nf4Run, EndsInTheSameBitsAfterKillsAtRandomMoments) {
  const TinyRun whole(four_bits({{"max_steps", "40"}}));
  const ProcessResult unbroken = whole.train();
  ASSERT_EQ(unbroken.code, 0) << unbroken.err;
  const TinyRun run(four_bits({{"max_steps", "40"}}));
  EXPECT_GE(kill_at_random_moments(run, unbroken.seconds, 6, 20261126), 1);
  EXPECT_TRUE(trained(run) == adapter_of(whole));
}

TEST_F(Nf4Run, EndsInTheSameBitsWithEveryPrecisionAndTechnique) {
  for (const TinyRun::Keys& more :
       std::vector<TinyRun::Keys>{{{"load_in_4bit", "true"}},
                                  {{"load_in_4bit", "true"}, {"bf16", "true"}},
                                  {{"load_in_4bit", "true"}, {"fp16", "true"}},
                                  {{"load_in_4bit", "true"}, {"use_bnb_nested_quant", "true"}},
                                  {{"load_in_4bit", "true"}, {"dtype", "bfloat16"}},
                                  {{"load_in_4bit", "true"}, {"use_dora", "true"}},
                                  {{"load_in_4bit", "true"},
                                   {"optim", "adamw_8bit"},
                                   {"gradient_checkpointing", "true"}}}) {
    expect_same_bits_after_a_stop(more);
  }
}

// load_in_4bit: auto.
TEST_F(Nf4Run, ChoosesFourBitsWhereTheWholeBaseDoesNotFit) {
  const auto keys_with = [&](const std::string& bits, int64_t budget) {
    return four_bits({{"model_name_or_path", large_base()},
                      {"load_in_4bit", bits},
                      {"memory_budget", budget == 0 ? "" : std::to_string(budget)},
                      {"max_steps", "4"},
                      {"save_steps", "2"},
                      {"per_device_train_batch_size", "1"},
                      {"gradient_accumulation_steps", "1"},
                      {"gradient_checkpointing", "true"},
                      {"optim", "adamw_torch"},
                      {"param_dtype", "float32"},
                      {"grad_accum_dtype", "float32"}});
  };
  const auto peak_with = [&](const char* bits) {
    const TinyRun run(keys_with(bits, 0));
    const ProcessResult plan = finetune({"plan", run.config(), "--json"});
    EXPECT_EQ(plan.code, 0) << plan.err;
    return parse_json(plan.out, "plan").at("peak").get<int64_t>();
  };
  const int64_t whole = peak_with("false");
  const int64_t four = peak_with("true");
  ASSERT_GT(whole, four + (40 << 20));
  const int64_t between = (whole + four) / 2 + (10 << 20);

  const TinyRun chosen(keys_with("auto", between));
  const ProcessResult result = chosen.train();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("four bits for the base"), HasSubstr("NF4")));
  const TinyRun asked(keys_with("true", between));
  EXPECT_TRUE(trained(asked) == adapter_of(chosen));

  // The decision stays, whatever fits later.
  fs::remove_all(chosen.out("checkpoint-4"));
  fs::remove(chosen.out("finetune_state.json"));
  fs::remove(chosen.out("manifest.json"));
  fs::remove(chosen.out("adapter_model.safetensors"));
  const ProcessResult again = chosen.train({"--memory_budget", std::to_string(8 * whole)});
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err,
              AllOf(HasSubstr("checkpoint-2"), HasSubstr("keeps its base in four bits")));
  EXPECT_TRUE(adapter_of(chosen) == adapter_of(asked));

  const TinyRun enough(keys_with("auto", 2 * whole));
  const ProcessResult unchanged = enough.train();
  ASSERT_EQ(unchanged.code, 0) << unchanged.err;
  EXPECT_THAT(unchanged.err, Not(HasSubstr("NF4")));
  EXPECT_TRUE(trained(TinyRun(keys_with("false", 0))) == adapter_of(enough));

  const TinyRun without_budget(keys_with("auto", 0));
  const ProcessResult planned =
      finetune({"plan", without_budget.config(), "--memory", std::to_string(between)});
  EXPECT_THAT(planned.out, HasSubstr("four bits for the base")) << planned.err;
  const ProcessResult without = without_budget.train();
  EXPECT_EQ(without.code, 2);
  EXPECT_THAT(without.err, HasSubstr("set memory_budget, or true or false here"));
}

// Bytes of the base's file that are in a process's memory, and the process's share of them.
std::pair<int64_t, int64_t> mapped_of(pid_t process) {
  std::ifstream maps("/proc/" + std::to_string(process) + "/smaps");
  int64_t resident = 0;
  int64_t share = 0;
  bool is_base = false;
  for (std::string line; std::getline(maps, line);) {
    const bool is_region = line.find(':') > line.find(' ');
    if (is_region) is_base = line.find("/nf4/") != std::string::npos;
    if (!is_base || is_region) continue;
    if (line.starts_with("Rss:")) resident += 1024 * std::atoll(line.c_str() + 4);
    if (line.starts_with("Pss:")) share += 1024 * std::atoll(line.c_str() + 4);
  }
  return {resident, share};
}

TEST_F(Nf4Run, SharesTheBaseBetweenProcesses) {
  const TinyRun position;
  const auto keys_of_run = [&](const std::string& steps) {
    return four_bits({{"model_name_or_path", large_base()},
                      {"cache_dir", position.folder() / "cache"},
                      {"dtype", "bfloat16"},
                      {"max_steps", steps},
                      {"save_strategy", "no"}});
  };
  ASSERT_EQ(TinyRun(keys_of_run("1")).train().code, 0);
  const TinyRun first(keys_of_run("100000"));
  const TinyRun second(keys_of_run("100000"));
  Process one(finetune_command({"train", first.config()}));
  Process other(finetune_command({"train", second.config()}));
  ASSERT_TRUE(one.wait_for_output("starts"));
  ASSERT_TRUE(other.wait_for_output("starts"));
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const auto [resident, share] = mapped_of(one.id());
  const auto [other_resident, other_share] = mapped_of(other.id());
  EXPECT_GT(resident, 8 << 20);
  EXPECT_NEAR(static_cast<double>(resident), static_cast<double>(other_resident), 1 << 20);
  EXPECT_LT(share + other_share, 1.1 * static_cast<double>(resident));
}

// The choice of --merge_base is one of numbers.
TEST_F(Nf4Run, ComparesBothBasesOnTheValidationData) {
  const TinyRun run(keys({{"load_in_4bit", "true"}, {"max_steps", "4"}, {"eval_steps", "4"}}));
  const ProcessResult trained = run.train();
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::string out = run.folder() / "merged";
  const std::string results = read_file(run.out("eval_results.json"));
  const ProcessResult result = finetune({"export", run.out(), out, "--compare_bases"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(read_file(run.out("eval_results.json")), results);
  char own[32];
  const double loss = Json::parse(results).at("eval_loss");
  std::snprintf(own, sizeof(own), "%.4f with trained", loss);
  EXPECT_THAT(result.out, AllOf(HasSubstr("with --merge_base original, "), HasSubstr(own)));
  EXPECT_EQ(result.out.find(std::string(own).substr(0, 6)), result.out.rfind(own)) << result.out;
  const TinyRun whole(keys({{"max_steps", "2"}, {"eval_strategy", "no"}, {"validation_file", ""}}));
  ASSERT_EQ(whole.train().code, 0);
  const ProcessResult refused =
      finetune({"export", whole.out(), whole.folder() / "merged", "--compare_bases"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("did not keep its base in four bits"));
}

TEST_F(Nf4Run, QuantisesOnceAndMakesADamagedCopyAgain) {
  const TemporaryFolder folder;
  const std::string cache = folder / "cache";
  const TinyRun first(four_bits({{"cache_dir", cache}}));
  const ProcessResult made = first.train();
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr("to four bits, once, into"));
  const std::string entry = entry_of(cache);
  const std::string weights = entry + "/model.safetensors";
  const std::string bytes = read_file(weights);

  const TinyRun second(four_bits({{"cache_dir", cache}}));
  const ProcessResult found = second.train();
  ASSERT_EQ(found.code, 0) << found.err;
  EXPECT_THAT(found.err, AllOf(HasSubstr("four bits, quantized before"), Not(HasSubstr("once"))));
  EXPECT_TRUE(adapter_of(second) == adapter_of(first));

  for (const size_t position : {bytes.size() - 9, bytes.size() / 2}) {
    std::string damaged = bytes;
    damaged[position] = static_cast<char>(damaged[position] ^ 1);
    write_file(weights, damaged);
    const TinyRun third(four_bits({{"cache_dir", cache}}));
    const ProcessResult again = third.train();
    ASSERT_EQ(again.code, 0) << again.err;
    EXPECT_THAT(again.err, HasSubstr("is damaged and is made again"));
    EXPECT_TRUE(read_file(weights) == bytes);
    EXPECT_TRUE(adapter_of(third) == adapter_of(first));
  }
  // The copy of another base under this name.
  const std::string manifest = read_file(entry + "/manifest.json");
  std::string other = manifest;
  other.replace(other.find(fs::path(entry).filename().string()), 4, "0000");
  write_file(entry + "/manifest.json", other);
  EXPECT_TRUE(trained(TinyRun(four_bits({{"cache_dir", cache}}))) == adapter_of(first));
  EXPECT_TRUE(read_file(entry + "/manifest.json") == manifest);
  // What is trained whole starts from the base's own values, also from a copy.
  const TinyRun::Keys whole = {{"lora_modules_to_save", "[q_proj]"},
                               {"lora_target_modules", "[v_proj]"}};
  write_file(folder / "file", "");
  TinyRun::Keys cached = whole;
  cached["cache_dir"] = cache;
  TinyRun::Keys in_memory_keys = whole;
  in_memory_keys["cache_dir"] = folder / "file";
  EXPECT_TRUE(trained(TinyRun(four_bits(cached))) == trained(TinyRun(four_bits(in_memory_keys))));
  // Another kind of codes has another copy, and without a place the same bits come from memory.
  const TinyRun nested(four_bits({{"cache_dir", cache}, {"use_bnb_nested_quant", "true"}}));
  EXPECT_FALSE(trained(nested) == adapter_of(first));
  const TinyRun unwritable(four_bits({{"cache_dir", folder / "file"}}));
  const ProcessResult in_memory = unwritable.train();
  ASSERT_EQ(in_memory.code, 0) << in_memory.err;
  EXPECT_THAT(in_memory.err, HasSubstr("the base is quantized in memory"));
  EXPECT_TRUE(adapter_of(unwritable) == adapter_of(first));
}

TEST_F(Nf4Run, ReadsAQuantizedFolderAndMergesIntoWhatItSaw) {
  const TemporaryFolder folder;
  const std::string quantized = folder / "base";
  ASSERT_EQ(finetune({"export", base(), quantized, "--outtype", "nf4"}).code, 0);
  const TinyRun whole(four_bits());
  const TinyRun run(four_bits({{"model_name_or_path", quantized}, {"load_in_4bit", "false"}}));
  EXPECT_TRUE(trained(run) == trained(whole));
  ASSERT_EQ(finetune({"export", run.out(), folder / "merged"}).code, 0);
  const Json config = parse_json(read_file(folder / "merged/config.json"), "config");
  EXPECT_FALSE(config.contains("quantization_config"));
  for (const std::string& model : {run.out(), quantized, folder / "merged"}) {
    const ProcessResult answer =
        finetune({"predict", model, "--text", "The lamp", "--max_new_tokens", "4"});
    EXPECT_EQ(answer.code, 0) << answer.err;
  }
}

TEST_F(Nf4Run, RefusesWhatFourBitsCannotDo) {
  const auto refused = [](const TinyRun::Keys& all, const std::string& why) {
    const ProcessResult result = TinyRun(all).train();
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(why));
  };
  TinyRun::Keys whole = four_bits();
  whole["use_peft"] = "false";
  whole.erase("lora_r");
  whole.erase("lora_dropout");
  refused(whole, "weights of four bits cannot be trained; set use_peft: true");
  refused(four_bits({{"bnb_4bit_quant_type", "fp4"}}), "nf4");
  refused(four_bits({{"llm_int8_skip_modules", "[nonsense]"}}), "'nonsense' is the beginning");
  refused(four_bits({{"llm_int8_skip_modules", "[\"\"]"}}), "llm_int8_skip_modules");
  refused(four_bits({{"llm_int8_skip_modules", "[model.layers]"}}), "nothing is left to quantize");
}

}  // namespace
}  // namespace finetune::testing
