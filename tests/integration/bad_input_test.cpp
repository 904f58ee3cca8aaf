// SPDX-License-Identifier: MIT
// Wrong input is reported in one sentence with the documented exit code, and changes nothing.
#include <cctype>
#include <memory>

#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The lines of standard error that report errors.
std::vector<std::string> error_lines(const std::string& err) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < err.size();) {
    const size_t end = std::min(err.find('\n', begin), err.size());
    const std::string line = err.substr(begin, end - begin);
    if (line.starts_with("error: ")) lines.push_back(line);
    begin = end + 1;
  }
  return lines;
}

void expect_one_sentence(const ProcessResult& result, int code,
                         const std::vector<std::string>& parts) {
  EXPECT_EQ(result.code, code) << result.err;
  EXPECT_EQ(error_lines(result.err).size(), 1U) << result.err;
  for (const std::string& part : parts) EXPECT_THAT(result.err, HasSubstr(part));
  EXPECT_THAT(result.err, Not(HasSubstr("internal error")));
  EXPECT_THAT(result.err, Not(HasSubstr("Exception raised from")));  // libtorch's stack trace
  EXPECT_THAT(result.err, Not(HasSubstr("terminate called")));
  EXPECT_EQ(result.out, "");
}

// Only the lock that every start takes and the log of sessions are in the run's folder.
void expect_nothing_written(const TinyRun& run) {
  for (const auto& entry : std::filesystem::directory_iterator(run.out())) {
    EXPECT_THAT(entry.path().filename(), ::testing::AnyOf(".finetune.lock", "sessions.jsonl"));
  }
}

void expect_refused(const TinyRun::Keys& keys, int code, const std::vector<std::string>& parts) {
  const TinyRun run(keys);
  expect_one_sentence(run.train(), code, parts);
  expect_nothing_written(run);
}

struct BadKeys {
  std::string name;
  TinyRun::Keys keys;
  std::vector<std::string> message;
};

void PrintTo(const BadKeys& c, std::ostream* out) { *out << c.name; }

class BadConfiguration : public ::testing::TestWithParam<BadKeys> {};

TEST_P(BadConfiguration, IsRefusedWithFileKeyAndAdvice) {
  expect_refused(GetParam().keys, 2, GetParam().message);
}

// `config check` refuses what `train` refuses, with the same words.
TEST_P(BadConfiguration, IsRefusedByConfigCheckToo) {
  const TinyRun run(GetParam().keys);
  const ProcessResult checked = finetune({"config", "check", run.config()});
  EXPECT_EQ(checked.code, 2) << checked.err;
  for (const std::string& part : GetParam().message) EXPECT_THAT(checked.err, HasSubstr(part));
}

// Keys are written in alphabetical order: lerning_rate is on line 8.
INSTANTIATE_TEST_SUITE_P(
    Table, BadConfiguration,
    ::testing::Values(
        BadKeys{"UnknownKey",
                {{"lerning_rate", "1"}},
                {"run.yaml:8: unknown key 'lerning_rate'", "did you mean 'learning_rate'"}},
        BadKeys{"WrongType", {{"seed", "many"}}, {"'seed' must be a whole number, not 'many'"}},
        BadKeys{"OutOfRange", {{"mlm_probability", "1.5"}}, {"mlm_probability"}},
        BadKeys{"UnknownChoice",
                {{"lr_scheduler_type", "linnear"}},
                {"lr_scheduler_type", "linear", "linnear"}},
        BadKeys{"Contradiction",
                {{"load_best_model_at_end", "true"}},
                {"needs save_steps to be a multiple of eval_steps"}},
        BadKeys{"NoModel", {{"model_type", ""}}, {"model"}},
        BadKeys{"NoTrainFile", {{"train_file", ""}}, {"no training data: set train_file"}},
        BadKeys{"NothingToDo",
                {{"do_train", "false"}, {"do_eval", "false"}, {"eval_strategy", "\"no\""}},
                {"there is nothing to do"}},
        BadKeys{"TwoHalfPrecisions",
                {{"fp16", "true"}, {"bf16", "true"}},
                {"'fp16: true' excludes 'bf16: true'"}},
        BadKeys{"NoHeadForTheNextSentence",
                {{"task", "pretraining"}},
                {"use_nsp", "'roberta' has no head for the next sentence", "use_nsp: false"}},
        BadKeys{"OtherOptimizerNotYet",
                {{"optim", "lion_8bit"}},
                {"'optim: lion_8bit'", "adamw_torch"}},
        BadKeys{"Hub", {{"push_to_hub", "true"}}, {"nothing is sent to a hub"}},
        BadKeys{"SequenceBeyondPositions",
                {{"max_seq_length", "64"}},
                {"max_seq_length", "64 is longer than the 32 tokens"}},
        BadKeys{"UnknownModelField", {{"config_overrides", "{hiden_size: 32}"}}, {"hiden_size"}},
        BadKeys{"HiddenSizeNotDivisible",
                {{"config_overrides", "{hidden_size: 30, num_attention_heads: 4}"}},
                {"hidden_size", "num_attention_heads"}},
        BadKeys{
            "TokenizerLargerThanModel",
            {{"config_overrides", "{vocab_size: 100, hidden_size: 32, num_attention_heads: 2}"}},
            {"the tokenizer has 300 tokens"}},
        BadKeys{"HubNameThatIsNotHere",
                {{"model_name_or_path", "nobody/nothing"},
                 {"model_type", ""},
                 {"config_overrides", ""}},
                {"hf download nobody/nothing"}},
        BadKeys{"KeysOfAnAdapterWithoutOne",
                {{"lora_r", "8"}, {"lora_alpha", "16"}},
                {"lora_r, lora_alpha: for an adapter, and use_peft is not set",
                 "set use_peft: true", "or use_peft: false"}},
        BadKeys{"FourBitsWithoutAnAdapter",
                {{"load_in_4bit", "true"}},
                {"load_in_4bit: is for the frozen weights under an adapter"}},
        BadKeys{"AnAdapterOfNoModel",
                {{"use_peft", "true"}},
                {"use_peft: trains an adapter on a trained model"}},
        BadKeys{"NoNumberOfALayer",
                {{"use_peft", "true"}, {"lora_layers_to_transform", "[first]"}},
                {"'first' is not the number of a layer"}},
        BadKeys{"MarkerWithoutItsStart",
                {{"task", "sft"}, {"instruction_template", "\"Q:\""}},
                {"'instruction_template' says where learning stops"}},
        BadKeys{
            "GgufOfAnEncoder", {{"export_gguf", "f16"}}, {"a roberta cannot be written as GGUF"}},
        BadKeys{"ChatDataForAnEncoder", {{"task", "sft"}}, {"sft trains decoders"}},
        BadKeys{"TokenizerFolderMissing",
                {{"tokenizer_name", "/nonexistent/tokenizer"}},
                {"there is no folder '/nonexistent/tokenizer'"}}),
    [](const auto& test) { return test.param.name; });

TEST(BadConfigurationFile, IsNamedWithItsLine) {
  const TinyRun run;
  const auto train = [&](const std::string& name, const std::string& text) {
    return finetune({"train", run.folder().write(name, text)});
  };
  expect_one_sentence(finetune({"train", run.folder() / "none.yaml"}), 2, {"none.yaml"});
  expect_one_sentence(train("twice.yaml", "seed: 1\nseed: 2\n"), 2, {"twice.yaml:2", "seed"});
  expect_one_sentence(train("anchor.yaml", "seed: &a 1\n"), 2, {"anchor.yaml:1"});
  expect_one_sentence(train("broken.yaml", "seed: [1\n"), 2, {"broken.yaml"});
  expect_one_sentence(train("broken.json", "{\"seed\": }\n"), 2, {"broken.json:1"});
  expect_one_sentence(train("large.yaml", std::string(2 << 20, '#')), 2, {"large.yaml"});
  expect_nothing_written(run);
}

TEST(BadCommandLine, IsRefusedWithUsage) {
  const TinyRun run;
  expect_one_sentence(finetune({"trian"}), 2, {"unknown command 'trian'", "finetune --help"});
  expect_one_sentence(finetune({"resume", "run.yaml"}), 2,
                      {"no command 'resume'", "finetune train CONFIG"});
  expect_one_sentence(finetune({"run.yaml"}), 2, {"finetune train run.yaml"});
  const ProcessResult help = finetune({"train", "help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, ::testing::HasSubstr("usage: finetune train [CONFIG]"));
  expect_one_sentence(finetune({"train", "--config", run.config()}), 2,
                      {"unknown key 'config'", "without a key: finetune train FILE"});
  expect_one_sentence(finetune({"train"}), 2, {"needs a configuration file"});
  expect_one_sentence(finetune({"train", run.config(), "--seed"}), 2, {"--seed needs a value"});
  expect_one_sentence(finetune({"train", run.config(), "--stop_at_step", "x"}), 2,
                      {"--stop_at_step must be a whole number"});
  expect_one_sentence(finetune({"predict"}), 2, {"needs the model's folder"});
  expect_one_sentence(finetune({"predict", "nowhere", "--text", "x"}), 2, {"nowhere"});
  expect_one_sentence(finetune({"evaluate", run.config()}), 2, {"model_name_or_path"});
  expect_one_sentence(finetune({"predict", kMaskedLm, "--input", run.folder() / "none.txt"}), 1,
                      {"--input: cannot open", "No such file or directory; check the path"});
  expect_one_sentence(finetune({"checkpoints", run.folder() / "none"}), 2,
                      {"there is no folder", "name a run's output_dir"});
  expect_one_sentence(finetune({"verify-resume", run.config(), "--steps", "1"}), 2,
                      {"--steps must be at least 2"});
  expect_one_sentence(
      finetune({"verify-resume", run.config(), "--steps", "3", "--interrupt_at", "5"}), 2,
      {"--interrupt_at must be below"});
  expect_one_sentence(finetune({"config", "chek"}), 2, {"config does not know 'chek'"});
  expect_one_sentence(finetune({"completion", "cmd"}), 2, {"bash, zsh or fish"});
  expect_nothing_written(run);
}

TEST(BadData, IsNamedWithFileAndLine) {
  const TemporaryFolder folder;
  expect_refused({{"train_file", folder / "none.txt"}}, 2, {"none.txt' does not exist"});
  expect_refused({{"train_file", folder.write("empty.txt", "")}}, 1, {"empty.txt' is empty"});
  expect_refused({{"train_file", folder.write("blank.txt", "\n\n  \n")}}, 1, {"blank.txt"});
  expect_refused({{"train_file", folder.write("bad.txt", "good\nbad \xff\n")}}, 1,
                 {"bad.txt:2: invalid UTF-8", "encoding_errors: replace"});
  expect_refused({{"train_file", folder.write("ids.jsonl", "{\"input_ids\": [0, 5, 999, 2]}\n")}},
                 1, {"token id 999 in", "ids.jsonl:1", "vocabulary of 300"});
  expect_refused({{"train_file", folder.write("row.jsonl", "{\"text\": \"a\"}\n{\"text\"\n")}}, 1,
                 {"row.jsonl:2"});
  expect_refused({{"validation_file", folder / "none.txt"}}, 2, {"none.txt' does not exist"});
}

// A pretrained model's folder that tests damage.
class BadModel : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    trained_ = new TinyRun(TinyRun::Keys{{"max_steps", "2"}});
    ASSERT_EQ(trained_->train().code, 0);
  }
  static void TearDownTestSuite() { delete trained_; }

  BadModel() {
    for (const char* name :
         {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}) {
      write_file(folder_ / name, read_file(trained_->out(name)));
    }
  }
  [[nodiscard]] std::string content(const std::string& name) const {
    return read_file(folder_ / name);
  }
  void replace(const std::string& name, const std::string& from, const std::string& to) const {
    std::string text = content(name);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_file(folder_ / name, text.replace(at, from.size(), to));
  }
  void expect_refused_with(int code, const std::vector<std::string>& parts) const {
    expect_refused({{"model_name_or_path", folder_.path()},
                    {"model_type", ""},
                    {"config_overrides", ""},
                    {"tokenizer_name", ""}},
                   code, parts);
  }

  TemporaryFolder folder_;
  static TinyRun* trained_;
};
TinyRun* BadModel::trained_ = nullptr;

TEST_F(BadModel, IsNotBadAsLongAsNothingIsDamaged) {
  const TinyRun run({{"model_name_or_path", folder_.path()},
                     {"model_type", ""},
                     {"config_overrides", ""},
                     {"tokenizer_name", ""},
                     {"max_steps", "2"}});
  EXPECT_EQ(run.train().code, 0);
}

TEST_F(BadModel, WithTruncatedWeightsIsRefused) {
  write_file(folder_ / "model.safetensors", content("model.safetensors").substr(0, 60000));
  expect_refused_with(1, {"model.safetensors", "reaches beyond the end"});
}

TEST_F(BadModel, WithAHeaderThatClaimsTheWholeAddressSpaceIsRefused) {
  write_file(folder_ / "model.safetensors", "\xff\xff\xff\xff\xff\xff\xff\x7f{}");
  expect_refused_with(1, {"model.safetensors", "its header claims"});
}

TEST_F(BadModel, WithOverlappingTensorsIsRefused) {
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                             R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  write_file(folder_ / "model.safetensors", bytes + header + std::string(12, '\0'));
  expect_refused_with(1, {"model.safetensors"});
}

TEST_F(BadModel, WithoutWeightsIsRefused) {
  std::filesystem::remove(folder_ / "model.safetensors");
  expect_refused_with(1, {"holds no weights (none of model.safetensors"});
}

TEST_F(BadModel, WithOtherShapesThanItsConfigIsRefused) {
  replace("config.json", "\"intermediate_size\": 64", "\"intermediate_size\": 48");
  expect_refused_with(1, {"intermediate"});
}

TEST_F(BadModel, WithAbsurdSizesIsRefusedBeforeAnythingIsAllocated) {
  const std::string config = content("config.json");
  for (const auto& [field, was] :
       {std::pair("hidden_size", "32"), std::pair("num_hidden_layers", "2"),
        std::pair("vocab_size", "300")}) {
    write_file(folder_ / "config.json", config);
    const std::string key = "\"" + std::string(field) + "\": ";
    replace("config.json", key + was, key + "4000000000");
    expect_refused_with(1, {"config.json", field, "4000000000"});
  }
  write_file(folder_ / "config.json", config);
  replace("config.json", "\"hidden_size\": 32", "\"hidden_size\": -1");
  expect_refused_with(1, {"config.json", "hidden_size"});
  write_file(folder_ / "config.json", config.substr(0, 100));
  expect_refused_with(1, {"config.json"});
}

TEST_F(BadModel, WithATruncatedTokenizerIsRefused) {
  write_file(folder_ / "tokenizer.json", content("tokenizer.json").substr(0, 4000));
  expect_refused_with(1, {"tokenizer.json"});
}

// A trained causal model of a family, with some fields of its config.json changed.
class BadDecoder : public ::testing::Test {
 protected:
  void train(const std::string& family) {
    trained_ = std::make_unique<TinyRun>(TinyRun::Keys{
        {"task", "clm"},
        {"model_type", family},
        {"config_overrides",
         "{num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, hidden_size: 32, "
         "intermediate_size: 64, max_position_embeddings: 64}"},
        {"max_steps", "1"},
        {"eval_strategy", "\"no\""},
        {"eval_steps", ""}});
    ASSERT_EQ(trained_->train().code, 0);
    config_ = parse_json(read_file(trained_->out("config.json")), "config.json");
  }
  void expect_refused_with(const Json& change, int code, const std::vector<std::string>& parts,
                           const TinyRun::Keys& more = {}) const {
    SCOPED_TRACE(change.dump());
    Json config = config_;
    config.update(change);
    write_file(trained_->out("config.json"), config.dump());
    TinyRun::Keys keys = {{"task", "clm"},
                          {"model_name_or_path", trained_->out()},
                          {"model_type", ""},
                          {"config_overrides", ""},
                          {"tokenizer_name", ""}};
    for (const auto& [key, value] : more) keys[key] = value;
    expect_refused(keys, code, parts);
  }

  std::unique_ptr<TinyRun> trained_;
  Json config_;
};

TEST_F(BadDecoder, WithNumbersThatDoNotFitIsRefusedWithFileFieldAndBothValues) {
  train("llama");
  const auto rope = [](const Json& members) -> Json { return {{"rope_parameters", members}}; };
  expect_refused_with({{"num_key_value_heads", 3}}, 1,
                      {"config.json: num_attention_heads 4", "num_key_value_heads 3"});
  expect_refused_with({{"head_dim", 7}}, 1, {"config.json: rope_parameters: 7 of head_dim 7"});
  expect_refused_with(rope({{"rope_type", "yran"}}), 1,
                      {"config.json: rope_parameters: rope_type 'yran'", "did you mean 'yarn'"});
  expect_refused_with(rope({{"rope_type", "yarn"}, {"factor", 2.0}}), 1,
                      {"config.json: rope_parameters", "needs 'original_max_position_embeddings'"});
  expect_refused_with({{"model_type", "qwen2"}, {"layer_types", {"full_attention"}}}, 1,
                      {"config.json: layer_types has 1 entries", "num_hidden_layers is 2"});
  expect_refused_with({{"model_type", "mistral"}, {"sliding_window", 0}}, 1,
                      {"config.json: 'sliding_window' is 0, but must be between 1 and"});
  expect_refused_with({{"vocab_size", 700}}, 1,
                      {"model.embed_tokens.weight [300, 32] instead of [700, 32]"});
  expect_refused_with({{"vocab_size", 200}}, 2, {"the tokenizer has 300 tokens", "only 200"});
  expect_refused_with(Json::object(), 2, {"max_seq_length: 128 is longer than the 64 tokens"},
                      {{"max_seq_length", "128"}});
  expect_refused_with({{"max_position_embeddings", 10'000'000}}, 2,
                      {"max_seq_length: 70000 is longer than 65536 tokens"},
                      {{"max_seq_length", "70000"}});
}

TEST_F(BadDecoder, WithFusedTensorsOfAnotherSizeIsRefused) {
  train("phi3");
  expect_refused_with({{"num_key_value_heads", 4}}, 1,
                      {"model.layers.0.self_attn.qkv_proj.weight [64, 32] instead of [96, 32]"});
  expect_refused_with({{"intermediate_size", 60}}, 1,
                      {"model.layers.0.mlp.gate_up_proj.weight [128, 32] instead of [120, 32]"});
}

TEST(OutputFolder, ThatCannotBeMadeIsNamed) {
  const TinyRun run;
  const std::string file = run.folder().write("file", "");
  expect_one_sentence(run.train({"--output_dir", file + "/below"}), 1,
                      {file, "choose an output_dir"});
  expect_one_sentence(run.train({"--output_dir", "/proc/finetune"}), 1,
                      {"/proc/finetune", "choose an output_dir"});
  expect_one_sentence(run.train({"--output_dir", file}), 2,
                      {"output_dir: '" + file + "' is a file; choose a folder"});
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

const ProcessOptions kRoomForTheModelAlone = {
    .environment = {}, .folder = "", .watch = "", .max_file_bytes = 200000};
const ProcessOptions kNoRoom = {
    .environment = {}, .folder = "", .watch = "", .max_file_bytes = 50000};

TEST(FullDisk, EndsTheTrainingWith4WhereNoCheckpointCouldBeWritten) {
  const TinyRun run;
  const ProcessResult result = run.train({}, kRoomForTheModelAlone);
  EXPECT_EQ(result.code, 4) << result.err;
  EXPECT_EQ(count(result.err, "was not saved: "), 6);  // 7, 14, ... 35 and 40
  EXPECT_EQ(count(result.err, "cannot write"), 6) << "each failed save is reported once";
  EXPECT_THAT(result.err, HasSubstr("training continues"));
  EXPECT_THAT(result.err, HasSubstr("no checkpoint could be written"));
  EXPECT_TRUE(read_file(run.out("model.safetensors")) == unbroken().model);
  for (const auto& entry : std::filesystem::directory_iterator(run.out())) {
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("checkpoint-")));
  }
}

TEST(FullDisk, LosesNothingThatWasSavedBefore) {
  const TinyRun run;
  run.train_until(14);
  const ProcessResult result = run.train({"--stop_at_step", "22"}, kNoRoom);
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the run resumes from the previous checkpoint"));
  EXPECT_TRUE(std::filesystem::exists(run.out("checkpoint-14")));
  expect_resumes_equal(run);  // there is room again
}

TEST(FullDisk, AtTheFinalExportIsAnErrorThatTheNextStartMends) {
  const TinyRun run;
  const ProcessResult result = run.train({}, kNoRoom);
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_EQ(error_lines(result.err).size(), 1U) << result.err;
  EXPECT_FALSE(std::filesystem::exists(run.out("model.safetensors")));
  expect_resumes_equal(run);
}

TEST(NotANumber, EndsTheRunWithTheLastGoodStepSaved) {
  // Written out: of "1e30" the configuration asks whether 1e-30 was meant.
  const TinyRun::Keys keys{{"learning_rate", "1" + std::string(30, '0') + ".0"}};
  const TinyRun run(keys);
  const ProcessResult result = run.train();
  expect_one_sentence(result, 1, {"step 2: the loss is", "lower learning_rate"});
  const TinyRun good(keys);
  good.train_until(1);
  EXPECT_TRUE(read_file(run.out("checkpoint-1/model.safetensors")) ==
              read_file(good.out("checkpoint-1/model.safetensors")));
  EXPECT_FALSE(std::filesystem::exists(run.out("checkpoint-2")));
  EXPECT_FALSE(std::filesystem::exists(run.out("model.safetensors")));
}

}  // namespace
}  // namespace finetune::testing
