// SPDX-License-Identifier: MIT
// task: decision for users. tests/parity compares what is learned, tests/data the rows.
#include <algorithm>
#include <filesystem>

#include "integration/launched.h"
#include "integration/task_checks.h"
#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;

// 195 questions about a lighthouse's log, on a new decoder.
class DecisionRun : public TinyRun {
 public:
  explicit DecisionRun(const Keys& keys = {}) {
    Keys all = {{"task", "decision"},
                {"model_type", "llama"},
                {"tokenizer_name", source_dir() + "/tests/fixtures/tokenizers/causal"},
                {"config_overrides",
                 "{num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 1, "
                 "hidden_size: 32, intermediate_size: 64, max_position_embeddings: 256}"},
                {"chat_template_path", "chatml"},
                {"decision_labels", "{noul: [y, n]}"},
                {"max_seq_length", "160"},
                {"train_file", kTasks + "watches-train.jsonl"},
                {"validation_file", kTasks + "watches-valid.jsonl"},
                {"max_steps", "12"},
                {"eval_steps", "6"},
                {"save_steps", "5"}};
    for (const auto& [key, value] : keys) all[key] = value;
    set(all);
  }
  [[nodiscard]] ProcessResult predict(const std::vector<std::string>& words) const {
    std::vector<std::string> all = {"predict", out(), "--use_cpu"};
    all.insert(all.end(), words.begin(), words.end());
    return testing::run(finetune_command(all));
  }
};

constexpr const char* kRequest =
    R"({"state": "The sea was calm.", "questions": {"rough": {"type": "noul"}, "who": {"type": )"
    R"("choice", "criteria": {"Thomas": null, "several": "we"}}, "hour": {"type": "score", )"
    R"("criteria": ["morning", "night"]}}})";

TEST(Decision, EndsAlikeWithAndWithoutInterruptionsAndInProcesses) {
  const TinyRun::Keys exact = {{"full_determinism", "true"}};
  const DecisionRun whole(exact);
  const ProcessResult trained = whole.train();
  ASSERT_EQ(trained.code, 0) << trained.err;
  const DecisionRun stopped(exact);
  stopped.train_until(4);
  ASSERT_EQ(stopped.train({"--num_processes", "2"}).code, 0);
  EXPECT_TRUE(read_file(whole.out("model.safetensors")) ==
              read_file(stopped.out("model.safetensors")));
  const Json results = parse_json(read_file(whole.out("eval_results.json")), "");
  for (const char* name : {"accuracy", "brier", "ece", "nll", "score_mae"}) {
    EXPECT_TRUE(results.contains("eval_" + std::string(name))) << name;
  }
  const Json settings = parse_json(read_file(whole.out("decision.json")), "");
  EXPECT_EQ(settings["labels"]["noul"], Json({"y", "n"}));
}

TEST(Decision, VerifyResumeFindsEqualBits) {
  const DecisionRun run;
  expect_equal_bits_by_verify_resume(run);
}

// A head on an encoder, in transformers' form.
TEST(Decision, TrainsAHeadOfItsOwnWithEqualBits) {
  const TinyRun::Keys keys = {
      {"decision_head", "jev"},
      {"model_type", "modernbert"},
      {"config_overrides",
       "{num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 32, intermediate_size: 64, "
       "max_position_embeddings: 256, pad_token_id: 1}"},
      {"chat_template_path", ""},
      {"decision_labels", ""}};
  const DecisionRun run(keys);
  expect_equal_bits_by_verify_resume(run);
  const DecisionRun whole(keys);
  ASSERT_EQ(whole.train().code, 0);
  const Json config = parse_json(read_file(whole.out("config.json")), "");
  EXPECT_EQ(config["model_type"], "jev");
  EXPECT_EQ(config["text_config"]["model_type"], "modernbert");
  EXPECT_EQ(whole.predict({"--text", kRequest}).code, 0);
  // It continues from its own folder, and not with the other read-out.
  const TinyRun::Keys next = {{"model_name_or_path", whole.out()},
                              {"model_type", ""},
                              {"config_overrides", ""},
                              {"tokenizer_name", ""},
                              {"chat_template_path", ""},
                              {"decision_labels", ""},
                              {"max_steps", "2"},
                              {"eval_strategy", "no"}};
  TinyRun::Keys same = next;
  same["decision_head"] = "jev";
  const DecisionRun more(same);
  const ProcessResult continued = more.train();
  EXPECT_EQ(continued.code, 0) << continued.err;
  EXPECT_THAT(continued.err, ::testing::Not(HasSubstr("missing")));
  const DecisionRun other(next);
  const ProcessResult refused = other.train();
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("decision_head"));
}

// Layers over an encoder that read a mark of each option, in laya's form.
TEST(Decision, TrainsLayersOverMarksWithEqualBits) {
  TinyRun::Keys keys = {
      {"decision_head", "laya"},
      {"model_type", "modernbert"},
      {"tokenizer_name", source_dir() + "/tests/fixtures/tokenizers/lighthouse"},
      {"config_overrides",
       "{num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 64, intermediate_size: 64, "
       "max_position_embeddings: 256, pad_token_id: 1}"},
      {"chat_template_path", ""},
      {"decision_labels", ""},
      {"max_seq_length", "256"},
      {"full_determinism", "true"}};
  const DecisionRun whole(keys);
  const ProcessResult trained = whole.train();
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("laya.load(\"" + whole.out() + "\")"));
  const DecisionRun stopped(keys);
  stopped.train_until(4);
  ASSERT_EQ(stopped.train({"--num_processes", "2"}).code, 0);
  keys["gradient_checkpointing"] = "true";
  const DecisionRun again(keys);
  ASSERT_EQ(again.train().code, 0);
  for (const DecisionRun* other : {&stopped, &again}) {
    EXPECT_TRUE(read_file(whole.out("model.safetensors")) ==
                read_file(other->out("model.safetensors")));
  }
  expect_equal_bits_by_verify_resume(DecisionRun(keys));
  const Json settings = parse_json(read_file(whole.out("rl_agent_config.json")), "");
  EXPECT_EQ(settings["temperature"].size(), 3U);
  EXPECT_EQ(settings["max_len"], 256);
  const std::string request =
      R"({"state": "calm", "questions": {"a": {"type": "noul", "instructions": "ok?"}}})";
  EXPECT_EQ(whole.predict({"--text", request}).code, 0);
  EXPECT_EQ(whole.predict({"--text", kRequest}).code, 1);  // questions without instructions
  EXPECT_TRUE(std::filesystem::exists(whole.out("tokenizer/tokenizer.json")));
  // An export has laya's files, and may take the place of an earlier one.
  const std::string out = whole.folder() / "exported";
  for (const char* way : {"--outtype=auto", "--overwrite"}) {
    const ProcessResult exported =
        testing::run(finetune_command({"export", whole.out(), out, way}));
    EXPECT_EQ(exported.code, 0) << exported.err;
    EXPECT_TRUE(std::filesystem::exists(out + "/encoder/config.json"));
    EXPECT_TRUE(std::filesystem::exists(out + "/tokenizer/tokenizer.json"));
  }
  // It does not continue with another read-out.
  const DecisionRun other({{"model_name_or_path", out},
                           {"model_type", ""},
                           {"config_overrides", ""},
                           {"tokenizer_name", ""},
                           {"chat_template_path", ""},
                           {"decision_labels", ""},
                           {"decision_head", "jev"}});
  const ProcessResult refused = other.train();
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("set decision_head: laya"));
}

TEST(Decision, AnswersRequestsFromAFileAndFromStandardInput) {
  const DecisionRun run(TinyRun::Keys{{"max_steps", "2"}, {"eval_strategy", "no"}});
  ASSERT_EQ(run.train().code, 0);
  run.folder().write("requests.jsonl", std::string(kRequest) + "\n");
  const ProcessResult of_file = run.predict({"--input", run.folder() / "requests.jsonl"});
  ASSERT_EQ(of_file.code, 0) << of_file.err;
  EXPECT_THAT(of_file.err, HasSubstr("% of the time in the model"));
  const Json answer = parse_json(of_file.out, "");
  EXPECT_EQ(answer["rough"]["type"], "noul");
  EXPECT_TRUE(answer["who"]["probabilities"].contains("several"));
  EXPECT_EQ(answer["hour"]["legend"]["1"], "night");
  const std::string piped = finetune_command({"predict"}).front() + " predict '" + run.out() +
                            "' --use_cpu < '" + (run.folder() / "requests.jsonl") + "'";
  EXPECT_EQ(testing::run({"/bin/sh", "-c", piped}).out, of_file.out);
  EXPECT_EQ(run.predict({"--text", kRequest}).out, of_file.out);

  const ProcessResult no_request = run.predict({"--text", "Is it calm?"});
  EXPECT_EQ(no_request.code, 1) << no_request.err;
  EXPECT_THAT(no_request.err, HasSubstr("questions"));
  run.folder().write("requests.jsonl", R"({"state": "x", "questions": {"q": {"type": "no"}}})");
  const ProcessResult wrong = run.predict({"--input", run.folder() / "requests.jsonl"});
  EXPECT_EQ(wrong.code, 1) << wrong.err;
  EXPECT_THAT(wrong.err, HasSubstr("requests.jsonl:1"));
}

TEST(Decision, SaysWhatIsLeftOutAndRefusesWhatItCannotTrain) {
  const DecisionRun few(TinyRun::Keys{{"max_seq_length", "120"}, {"eval_strategy", "no"}});
  const ProcessResult trained = few.train();
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("of 195 questions are left out"));

  const std::vector<std::pair<TinyRun::Keys, const char*>> bad = {
      {{{"max_seq_length", "16"}}, "no question is left"},
      {{{"chat_template_path", ""}}, "chat_template_path"},
      {{{"metric_for_best_model", "eval_maes"}}, "score_mae"},
      {{{"decision_labels", "{maybe: [a]}"}}, "decision_labels"},
      {{{"decision_labels", "{noul: [Yes, No]}"}}, "decision.json"},
      {{{"decision_template_path", "nowhere.jinja"}}, "nowhere.jinja"},
      {{{"streaming", "true"}}, "streaming"},
      {{{"model_type", "bert"}, {"config_overrides", ""}}, "decoder"}};
  for (const auto& [keys, fact] : bad) {
    const DecisionRun run(keys);
    const ProcessResult result = run.train();
    EXPECT_TRUE(result.code == 1 || result.code == 2) << fact << "\n" << result.err;
    EXPECT_THAT(result.err, HasSubstr(fact));
  }
}

TEST(Decision, RefusesAnEmptyTemplateAndAnAdapterInAFolder) {
  const DecisionRun run(TinyRun::Keys{{"max_steps", "2"}, {"eval_strategy", "no"}});
  ASSERT_EQ(run.train().code, 0);
  run.folder().write("empty.jinja", " \n");
  const ProcessResult empty = run.train({"--output_dir", run.folder() / "other",
                                         "--decision_template_path", run.folder() / "empty.jinja"});
  EXPECT_NE(empty.code, 0);
  EXPECT_THAT(empty.err, HasSubstr("empty.jinja"));

  std::filesystem::create_directory(run.out("lora"));
  write_file(run.out("lora/adapter_config.json"), "{}");
  write_file(run.out("decision.json"), R"({"adapter": "lora"})");
  const ProcessResult adapter = run.predict({"--text", kRequest});
  EXPECT_EQ(adapter.code, 1) << adapter.err;
  EXPECT_THAT(adapter.err, HasSubstr("adapter"));
}

// As a server would: the next request is written when the last one is answered.
TEST(Decision, AnswersEachLineOfStandardInputAtOnce) {
  const DecisionRun run(TinyRun::Keys{{"max_steps", "2"}, {"eval_strategy", "no"}});
  ASSERT_EQ(run.train().code, 0);
  run.folder().write("request", std::string(kRequest) + "\n");
  const std::string predict = finetune_command({"predict"}).front() + " predict '" + run.out() +
                              "' --use_cpu < questions > answers";
  const std::string script = "cd '" + (run.folder() / "") + "'; mkfifo questions answers; (" +
                             predict +
                             ") & exec 3>questions 4<answers; "
                             "for i in 1 2; do cat request >&3; read -r line <&4; echo \"$line\"; "
                             "done; exec 3>&-; wait";
  const ProcessResult result = testing::run({"/bin/bash", "-c", script});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(std::ranges::count(result.out, '\n'), 2) << result.out;
}

TEST(Decision, RefusesOtherPromptsForTheSameRun) {
  const DecisionRun run(TinyRun::Keys{{"save_steps", "2"}});
  run.train_until(4);
  const ProcessResult other = run.train({"--chat_template_path", "llama3"});
  EXPECT_EQ(other.code, 2) << other.err;
  EXPECT_THAT(other.err, HasSubstr("chat_template_path"));
}

}  // namespace
}  // namespace finetune::testing
