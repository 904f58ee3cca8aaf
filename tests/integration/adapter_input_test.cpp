// SPDX-License-Identifier: MIT
// Adapters from anywhere: what does not fit is refused with file, reason and what to do.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "integration/adapter_run.h"

namespace finetune::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class AdapterInput : public AdapterRun {
 protected:
  // An adapter in a folder as PEFT writes it, without records of a run, made once.
  static const std::string& adapter() {
    static const TinyRun run(keys({{"max_steps", "2"}, {"eval_strategy", "no"}}));
    static const std::string path = [] {
      const ProcessResult made = run.train();
      EXPECT_EQ(made.code, 0) << made.err;
      const std::string folder = run.folder() / "adapter";
      fs::create_directory(folder);
      for (const auto& entry : fs::directory_iterator(run.out())) {
        const std::string name = entry.path().filename();
        const bool is_plain = name.starts_with("adapter_") || name.starts_with("tokenizer") ||
                              name == "special_tokens_map.json";
        if (is_plain) fs::copy(entry.path(), folder + "/" + name);
      }
      return folder;
    }();
    return path;
  }

  // A copy whose adapter_config.json has other fields.
  std::string changed(const Json& fields) {
    const std::string folder = copies_ / std::to_string(++count_);
    fs::copy(adapter(), folder);
    const std::string path = folder + "/adapter_config.json";
    Json json = parse_json(read_file(path), path);
    for (const auto& [name, value] : fields.items()) json[name] = value;
    write_file(path, json.dump());
    return folder;
  }

  static ProcessResult predict(const std::string& folder) {
    return finetune({"predict", folder, "--text", "The lamp", "--max_new_tokens", "2"});
  }
  static void expect_refused(const std::string& folder, int code, const std::string& why) {
    SCOPED_TRACE(why);
    const ProcessResult result = predict(folder);
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr(folder), HasSubstr(why), Not(HasSubstr("internal"))));
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    EXPECT_EQ(result.out, "");
  }

  TemporaryFolder copies_;
  int count_ = 0;
};

TEST_F(AdapterInput, IsRefusedWhereItsConfigurationIsWrong) {
  ASSERT_EQ(predict(changed(Json::object())).code, 0);
  const std::vector<std::pair<Json, std::string>> mistakes = {
      {{{"peft_type", "IA3"}}, R"(an adapter of type "IA3"; only LORA is available)"},
      {{{"peft_type", nullptr}}, "only LORA is available"},
      {{{"use_dora", true}}, "lacks model.layers.0.self_attn.q_proj.lora_magnitude_vector"},
      {{{"bias", "some"}}, R"(has a 'bias' other than "none", "lora_only" and "all")"},
      {{{"rank_pattern", {{"q_proj", 0}}}}, "'rank_pattern' is not a whole number from 1"},
      {{{"layers_to_transform", {-1}}}, "'layers_to_transform' is not a whole number from 0"},
      {{{"use_future", 3}}, "sets 'use_future', which PEFT 0.21 does not know"},
      {{{"init_lora_weights", "pissa"}}, "init_lora_weights: \"pissa\", which changes the base"},
      {{{"megatron_config", {{"x", 1}}}}, "megatron_config"},
      {{{"r", "4"}}, "'r' is not a whole number from 1"},
      {{{"r", 0}}, "'r' is not a whole number from 1"},
      {{{"r", 4.5}}, "'r' is not a whole number from 1"},
      {{{"r", 65536}}, "does not fit its base: rank 65536 is above the size of"},
      {{{"r", 1'000'000'000'000}}, "'r' is not a whole number from 1"},
      {{{"lora_alpha", "32"}}, "'lora_alpha' is not a number"},
      {{{"lora_alpha", -5}}, "'lora_alpha' is below 0"},
      {{{"lora_dropout", 1.5}}, "'lora_dropout' is not in [0, 1)"},
      {{{"use_rslora", "yes"}}, "'use_rslora' is neither true nor false"},
      {{{"target_modules", 3}}, "'target_modules' is no list of names"},
      {{{"target_modules", Json::array()}}, "'target_modules' is empty"},
      {{{"target_modules", "q_(proj"}}, "is no regular expression: missing closing parenthesis"},
      {{{"target_modules", "([a-z_.0-9]+)+(X|Y)"}}, "match limit exceeded"},
      {{{"rank_pattern", {{"([a-z_.0-9]+)+(X|Y)", 2}}}}, "match limit exceeded"},
      {{{"target_modules", {"absent"}}},
       "no linear layer or embedding of the model is named 'absent'"},
      {{{"modules_to_save", "lm_head"}}, "'modules_to_save' is no list of names"},
      {{{"modules_to_save", {"absent"}}}, "the model has no module 'absent'"},
      {{{"base_model_name_or_path", 3}}, "'base_model_name_or_path' is no text"},
      {{{"base_model_name_or_path", nullptr}}, "names no base model"},
      {{{"base_model_name_or_path", "/nowhere/base"}}, "it is the base of the adapter"},
      {{{"base_model_name_or_path", adapter()}}, "is an adapter itself"},
      // Another rank or other modules than the tensors have.
      {{{"r", 8}}, "adapter_config.json and the base ask for [8, 32]"},
      {{{"target_modules", {"q_proj"}}}, "the base has no place for"},
  };
  for (const auto& [fields, why] : mistakes) expect_refused(changed(fields), 1, why);
  const std::string own = changed(Json::object());
  const std::string path = own + "/adapter_config.json";
  Json json = parse_json(read_file(path), path);
  json["base_model_name_or_path"] = own;
  write_file(path, json.dump());
  expect_refused(own, 1, "is an adapter itself");
  write_file(path, "[]");
  expect_refused(own, 1, "is no JSON object");
  write_file(path, "{\"r\": ");
  expect_refused(own, 1, "adapter_config.json");
}

TEST_F(AdapterInput, IsRefusedWhereItsTensorsAreWrong) {
  const std::string nan = changed(Json::object());
  std::string bytes = read_file(nan + "/adapter_model.safetensors");
  const uint32_t no_number = 0x7FC00000;
  std::memcpy(bytes.data() + bytes.size() - 4, &no_number, 4);
  write_file(nan + "/adapter_model.safetensors", bytes);
  expect_refused(nan, 1, "contains NaN or Inf");

  const std::string pickled = changed(Json::object());
  fs::rename(pickled + "/adapter_model.safetensors", pickled + "/adapter_model.bin");
  expect_refused(pickled, 1,
                 "is a pickled adapter, which finetune does not read; load it with peft");

  const std::string none = changed(Json::object());
  fs::remove(none + "/adapter_model.safetensors");
  expect_refused(none, 1, "holds no weights");

  const std::string both = changed(Json::object());
  fs::copy(base() + "/config.json", both + "/config.json");
  expect_refused(both, 1, "holds a model (config.json) and an adapter (adapter_config.json)");

  // A layer less, and another size.
  for (const auto& [overrides, why] :
       {std::pair{"num_hidden_layers: 1, hidden_size: 32, intermediate_size: 64",
                  "the base has no place for"},
        {"num_hidden_layers: 2, hidden_size: 16, intermediate_size: 64", "they do not belong"}}) {
    const TinyRun other({{"task", "clm"},
                         {"model_type", "llama"},
                         {"config_overrides",
                          "{num_attention_heads: 4, num_key_value_heads: 2, "
                          "max_position_embeddings: 64, " +
                              std::string(overrides) + "}"},
                         {"max_steps", "1"},
                         {"eval_strategy", "no"},
                         {"save_strategy", "no"}});
    ASSERT_EQ(other.train().code, 0);
    expect_refused(changed({{"base_model_name_or_path", other.out()}}), 1, why);
  }
}

TEST_F(AdapterInput, OfTrainingIsRefusedOrHinted) {
  const auto dry_run = [](const TinyRun::Keys& more) {
    const TinyRun run(keys(more));
    return run.train({"--dry_run"});
  };
  const ProcessResult on_adapter = dry_run({{"model_name_or_path", adapter()}});
  EXPECT_EQ(on_adapter.code, 2);
  EXPECT_THAT(on_adapter.err, AllOf(HasSubstr("adapter_name_or_path: " + adapter()),
                                    HasSubstr("model_name_or_path: " + base())));
  const std::string kHint = "learning_rate 1e-05 is low for an adapter";
  EXPECT_THAT(dry_run({{"learning_rate", "1e-5"}}).err, HasSubstr(kHint));
  EXPECT_THAT(dry_run({{"learning_rate", "2e-5"}}).err, Not(HasSubstr("is low for")));
  EXPECT_THAT(dry_run({{"learning_rate", "1e-5"}, {"use_peft", "false"}}).err,
              Not(HasSubstr("is low for")));
}

// A base that was downloaded again, or trained on in its folder, answers as another model.
TEST_F(AdapterInput, OfARunIsRefusedOnAnotherBaseUnderItsName) {
  const std::string own = copies_ / "base";
  fs::copy(base(), own, fs::copy_options::recursive);
  for (const char* name : {"manifest.json", ".finetune.files", "finetune_state.json"}) {
    fs::remove(own + "/" + name);
  }
  const TinyRun run(keys({{"model_name_or_path", own}, {"max_steps", "2"}, {"eval_steps", "2"}}));
  ASSERT_EQ(run.train().code, 0);
  const std::string answer = predict(run.out()).out;
  EXPECT_NE(answer, "");
  const std::string weights = own + "/model.safetensors";
  const std::string before = read_file(weights);
  fs::last_write_time(weights, fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(predict(run.out()).out, answer) << "the same content at another time";

  std::string other = before;
  other[other.size() - 2] = static_cast<char>(other[other.size() - 2] ^ 4);
  write_file(weights, other);
  const std::string kWhy = "was trained on other weights than those of its base '" + own + "'";
  expect_refused(run.out(), 1, kWhy);
  const ProcessResult exported = finetune({"export", run.out(), std::string(copies_ / "merged")});
  EXPECT_EQ(exported.code, 1);
  EXPECT_THAT(exported.err, HasSubstr(kWhy));
  EXPECT_FALSE(fs::exists(copies_ / "merged"));
  const ProcessResult evaluated = finetune({"evaluate", run.config()});
  EXPECT_EQ(evaluated.code, 1);
  EXPECT_THAT(evaluated.err, HasSubstr(kWhy));
  write_file(weights, before);
  EXPECT_EQ(predict(run.out()).out, answer);
}

}  // namespace
}  // namespace finetune::testing
