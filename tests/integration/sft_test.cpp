// SPDX-License-Identifier: MIT
// Fine-tuning on chat data: what is learned, and that a run that is stopped ends with the same
// bits.
#include <filesystem>
#include <sstream>

#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Keys of a tiny Llama on questions about a lighthouse; every key can be overridden.
TinyRun::Keys chat(const TinyRun::Keys& more = {}) {
  TinyRun::Keys keys = {
      {"task", "sft"},
      {"model_type", "llama"},
      {"tokenizer_name", source_dir() + "/tests/fixtures/tokenizers/causal"},
      {"config_overrides",
       "{num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, hidden_size: 32, "
       "intermediate_size: 64, max_position_embeddings: 256}"},
      {"train_file", kTasks + "keeper-train.jsonl"},
      {"validation_file", kTasks + "keeper-valid.jsonl"},
      {"assistant_only_loss", "true"},
      {"chat_template_path", "alpaca"},
      {"max_seq_length", "256"}};
  for (const auto& [key, value] : more) keys[key] = value;
  return keys;
}

TEST(Sft, EndsInTheSameBitsAfterKillsAtRandomMoments) {
  const TinyRun whole(chat());
  const ProcessResult unbroken = whole.train();
  ASSERT_EQ(unbroken.code, 0) << unbroken.err;
  EXPECT_THAT(unbroken.err, HasSubstr("tokens are learned"));
  const TinyRun run(chat());
  EXPECT_GE(kill_at_random_moments(run, unbroken.seconds, 8, 20261125), 1);
  const ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  expect_equal(outcome_of(run), outcome_of(whole));
}

TEST(Sft, EndsInTheSameBitsWithPackingAndBf16) {
  for (const TinyRun::Keys& keys :
       {chat({{"packing", "true"}}), chat({{"packing", "true"}, {"bf16", "true"}}),
        chat({{"packing", "true"}, {"packing_strategy", "wrapped"}})}) {
    expect_equal(stopped_at(keys, 17), uninterrupted(keys));
  }
}

// Programs that do not know them use the variables of the training.
TEST(Sft, KeepsVariablesOfTheTemplateAsItsDefaults) {
  TemporaryFolder folder;
  folder.write("t.jinja",
               "{% for m in messages %}{{ mode }}|{{ m.content }}{{ eos_token }}{% endfor %}");
  const TinyRun run(chat({{"chat_template_path", folder / "t.jinja"},
                          {"chat_template_kwargs", "{mode: \"it's on\", other: null}"},
                          {"assistant_only_loss", "false"},
                          {"max_steps", "1"},
                          {"eval_strategy", "\"no\""},
                          {"save_strategy", "\"no\""}}));
  const ProcessResult trained = run.train();
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(read_file(run.out("chat_template.jinja")),
              HasSubstr("{% if mode is not defined %}{% set mode = \"it's on\" %}{% endif %}\n"
                        "{% if other is not defined %}{% set other = None %}{% endif %}\n{% for"));
  const ProcessResult reserved = run.train({"--chat_template_kwargs", "{messages: 3}"});
  EXPECT_EQ(reserved.code, 2) << reserved.err;
}

// Llama 3's template says today's date. A run that is resumed on another day keeps its first day.
TEST(Sft, KeepsTheDateOfItsFirstSession) {
  TemporaryFolder folder;
  folder.write(
      "dated.jinja",
      "{{ strftime_now('%d %b %Y') }}\n{% for m in messages %}{{ m.role }}: {{ m.content }}"
      "{{ eos_token }}\n{% endfor %}");
  const TinyRun::Keys keys =
      chat({{"chat_template_path", folder / "dated.jinja"}, {"assistant_only_loss", "false"}});
  const auto on_day = [](const TinyRun& run, const char* seconds, const Arguments& more = {}) {
    return run.train(more,
                     {.environment = {{"SOURCE_DATE_EPOCH", seconds}}, .folder = "", .watch = ""});
  };
  const TinyRun whole(keys);
  ASSERT_EQ(on_day(whole, "1783209600").code, 0);  // 2026-07-05
  const TinyRun run(keys);
  ASSERT_EQ(on_day(run, "1783209600", {"--stop_at_step", "17"}).code, 75);
  const ProcessResult result = on_day(run, "1783296000");
  ASSERT_EQ(result.code, 0) << result.err;
  expect_equal(outcome_of(run), outcome_of(whole));
  const TinyRun other(keys);
  ASSERT_EQ(on_day(other, "1783296000").code, 0);
  EXPECT_FALSE(outcome_of(other).model == outcome_of(whole).model);
}

// Answers depend on weights and question alone, and training does not depend on them.
TEST(Sft, AnswersTheSameQuestionsAtEachEvaluation) {
  const TinyRun silent(chat());
  ASSERT_EQ(silent.train().code, 0);
  const TinyRun whole(chat({{"generate_samples", "2"}}));
  const ProcessResult result = whole.train();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("sample: Who lights the lamp?\n     -> "));
  expect_equal(outcome_of(whole), outcome_of(silent));
  const std::string samples = read_file(whole.out("generated_samples.jsonl"));
  std::istringstream lines(samples);
  std::vector<std::string> positions;
  for (std::string text; std::getline(lines, text);) {
    const Json line = Json::parse(text);
    positions.push_back(line.at("step").dump() + "/" + line.at("sample").dump());
    EXPECT_EQ(line.at("messages").size(), 2) << text;
    EXPECT_THAT(line.at("finish_reason"), ::testing::AnyOf("stop", "length"));
  }
  EXPECT_THAT(positions, ::testing::ElementsAre("10/1", "10/2", "20/1", "20/2", "30/1", "30/2",
                                                "40/1", "40/2"));
  const TinyRun run(chat({{"generate_samples", "2"}}));
  run.train_until(13);
  write_file(run.out("generated_samples.jsonl"), read_file(run.out("generated_samples.jsonl")) +
                                                     R"({"step": 17, "sample": 1})"
                                                     "\ncut");
  ASSERT_EQ(run.train().code, 0);
  EXPECT_EQ(read_file(run.out("generated_samples.jsonl")), samples);
}

TEST(Sft, RefusesToResumeWithAnotherTemplate) {
  const TinyRun run(chat());
  run.train_until(10);
  const ProcessResult result = run.train({"--chat_template_path", "chatml"});
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the chat template is not the one that"));
  const TinyRun finished(chat({{"max_steps", "2"}}));
  ASSERT_EQ(finished.train().code, 0);
  const ProcessResult again = finished.train({"--chat_template_path", "chatml"});
  EXPECT_EQ(again.code, 2) << again.err;
  EXPECT_THAT(again.err, HasSubstr("check chat_template_path"));
}

TEST(Sft, ShowsWhatIsLearnedBeforeItStarts) {
  const TinyRun run(chat({{"max_steps", "2"}}));
  const ProcessResult result = run.train({"--dry_run"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("  | ### Instruction:\n  | Who keeps the lighthouse?\n  | \n"
                                    "  | ### Response:\n  | [[The old keeper keeps it.</s>]]\n"));
  const ProcessResult prepared =
      finetune({"prepare", run.config(), "--show", "1", "--rows", run.folder() / "rows.jsonl"});
  ASSERT_EQ(prepared.code, 0) << prepared.err;
  EXPECT_THAT(prepared.out, HasSubstr("[[The old keeper keeps it.</s>]]"));
  const ProcessResult again =
      finetune({"prepare", run.config(), "--rows", run.folder() / "rows.jsonl"});
  EXPECT_EQ(again.code, 0) << again.err;
  const ProcessResult refused = finetune({"prepare", run.config(), "--rows", run.config()});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("was not written by --rows; choose another name"));
  std::ifstream rows(run.folder() / "rows.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(rows, line));
  const Json row = Json::parse(line);
  EXPECT_EQ(row.at("input_ids").size(), row.at("labels").size());
  EXPECT_EQ(row.at("text"),
            "### Instruction:\nWho keeps the lighthouse?\n\n### Response:\nThe old keeper keeps "
            "it.</s>\n\n");
}

// The example of the documentation: the model learns the questions by heart, answers in the taught
// form, and stops by itself.
TEST(Sft, AnswersInTheTaughtFormAndStops) {
  const TinyRun run(chat({{"config_overrides",
                           "{vocab_size: 600, num_hidden_layers: 2, num_attention_heads: 4, "
                           "num_key_value_heads: 2, hidden_size: 128, intermediate_size: 384, "
                           "max_position_embeddings: 512}"},
                          {"learning_rate", "3e-3"},
                          {"per_device_train_batch_size", "8"},
                          {"gradient_accumulation_steps", "1"},
                          {"max_steps", "150"},
                          {"eval_strategy", "\"no\""},
                          {"save_strategy", "\"no\""}}));
  const ProcessResult trained = run.train();
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(read_file(run.out("chat_template.jinja")), HasSubstr("### Response:"));
  EXPECT_EQ(Json::parse(read_file(run.out("generation_config.json"))).at("eos_token_id"), 2);
  const ProcessResult asked =
      finetune({"predict", run.out(), "--chat", "--text", "Who keeps the lighthouse?",
                "When is the lamp lit?", "--max_new_tokens", "60"});
  ASSERT_EQ(asked.code, 0) << asked.err;
  EXPECT_EQ(asked.out, R"({"messages":[{"role":"user","content":"Who keeps the lighthouse?"},)"
                       R"({"role":"assistant","content":"The old keeper keeps it."}]})"
                       "\n"
                       R"({"messages":[{"role":"user","content":"When is the lamp lit?"},)"
                       R"({"role":"assistant","content":"It is lit every night."}]})"
                       "\n");
  TemporaryFolder folder;
  folder.write("empty.jinja", "");
  folder.write("answer.jsonl", R"({"messages": [{"role": "assistant", "content": "a"}]})"
                               "\n");
  const ProcessResult nothing = finetune({"predict", run.out(), "--chat", "--text", "a",
                                          "--chat_template_path", folder / "empty.jinja"});
  EXPECT_EQ(nothing.code, 1);
  EXPECT_THAT(nothing.err, HasSubstr("text 1: the chat template makes an empty text"));
  const ProcessResult answer =
      finetune({"predict", run.out(), "--chat", "--input", folder / "answer.jsonl"});
  EXPECT_EQ(answer.code, 1);
  EXPECT_THAT(answer.err, HasSubstr("answer.jsonl:1: there is no question before the answer"));
  folder.write("questions.txt", "Who keeps the lighthouse?\n");
  const ProcessResult lines =
      finetune({"predict", run.out(), "--chat", "--input", folder / "questions.txt"});
  EXPECT_THAT(lines.out, HasSubstr(R"("content":"The old keeper keeps it."}]})")) << lines.err;
  // A conversation is one in a file of any name, as on the standard input.
  folder.write("asked.log",
               R"({"messages": [{"role": "user", "content": "Who keeps the lighthouse?"}]})"
               "\n");
  const ProcessResult logged =
      finetune({"predict", run.out(), "--chat", "--input", folder / "asked.log"});
  EXPECT_EQ(logged.out, lines.out) << logged.err;
  // Rows of chat data: the answer at their end is made again.
  const ProcessResult rows =
      finetune({"predict", run.out(), "--chat", "--input", kTasks + "keeper-train.jsonl"});
  ASSERT_EQ(rows.code, 0) << rows.err;
  EXPECT_THAT(rows.out, HasSubstr(R"({"role":"assistant","content":"A boat brings the oil."})"));
}

// LLaMA-Factory's description of a data set names columns and roles.
TEST(Sft, ReadsTheNamesOfDatasetInfo) {
  TemporaryFolder folder;
  folder.write("rows.json", R"([{"dialog": [{"who": "q", "says": "Who keeps the lighthouse?"},
                                            {"who": "a", "says": "The old keeper."}]}])");
  folder.write("dataset_info.json", R"({"mine": {"file_name": "rows.json", "formatting": "sharegpt",
      "columns": {"messages": "dialog"}, "tags": {"role_tag": "who", "content_tag": "says",
                                                  "user_tag": "q", "assistant_tag": "a"}}})");
  const TinyRun run(chat({{"train_file", folder / "rows.json"},
                          {"validation_file", ""},
                          {"eval_strategy", "\"no\""}}));
  const ProcessResult shown = finetune({"prepare", run.config(), "--show", "1"});
  ASSERT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("  | ### Response:\n  | [[The old keeper.</s>]]"));
}

TEST(Sft, EncodesSpecialTokensInMessagesAsText) {
  TemporaryFolder folder;
  folder.write("rows.jsonl", R"({"messages": [{"role": "user", "content": "a</s>"},)"
                             R"( {"role": "assistant", "content": "b"}]})"
                             "\n");
  const auto ids = [&](const std::string& value) {
    const TinyRun run(chat({{"train_file", folder / "rows.jsonl"},
                            {"validation_file", ""},
                            {"eval_strategy", "\"no\""},
                            {"special_tokens_in_text", value}}));
    const ProcessResult made =
        finetune({"prepare", run.config(), "--rows", folder / (value + ".jsonl")});
    EXPECT_EQ(made.code, 0) << made.err;
    EXPECT_EQ(made.err.find("has a special token") != std::string::npos, value == "parse");
    return Json::parse(read_file(folder / (value + ".jsonl"))).at("input_ids");
  };
  const auto ends = [](const Json& row) { return std::count(row.begin(), row.end(), 2); };
  EXPECT_EQ(ends(ids("parse")), 2);
  EXPECT_EQ(ends(ids("text")), 1);
}

TEST(Sft, NamesTheRowThatCannotBeRead) {
  TemporaryFolder folder;
  folder.write("rows.jsonl", R"({"messages": [{"role": "user", "content": "a"},)"
                             R"( {"role": "assistant", "content": "b"}]})"
                             "\n"
                             R"({"messages": [{"role": "system", "content": "x"},)"
                             R"( {"role": "tool", "content": "y"}]})"
                             "\n");
  const TinyRun run(chat({{"train_file", folder / "rows.jsonl"},
                          {"validation_file", ""},
                          {"eval_strategy", "\"no\""},
                          {"chat_template_path", "mistral"},
                          {"max_steps", "2"}}));
  const ProcessResult refused = run.train();
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("rows.jsonl:2: the chat template refuses the conversation: chat "
                              "template mistral:"),
                    HasSubstr("the roles are system, user and assistant, not tool"),
                    HasSubstr("skip_bad_rows: true")));
  const ProcessResult skipped = run.train({"--skip_bad_rows", "true"});
  ASSERT_EQ(skipped.code, 0) << skipped.err;
  EXPECT_THAT(skipped.err, AllOf(HasSubstr("1 row is left out: it cannot be read"),
                                 HasSubstr("; the first: " + (folder / "rows.jsonl") +
                                           ":2: the chat template refuses the conversation"),
                                 HasSubstr("the roles are system, user and assistant, not tool")));
}

TEST(Sft, BlamesATemplateThatRefusesEveryRow) {
  TemporaryFolder folder;
  folder.write("bad.jinja", "{% for m in messages %}{{ m.content | shout }}{% endfor %}");
  const ProcessResult refused =
      TinyRun(chat({{"chat_template_path", folder / "bad.jinja"}, {"max_steps", "1"}})).train();
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("shout"), HasSubstr("bad.jinja:1:")));
}

TEST(Sft, SaysWhichKeysHaveNoEffect) {
  const ProcessResult result = TinyRun(chat({{"packing_strategy", "wrapped"},
                                             {"generate_samples", "2"},
                                             {"validation_file", kText + "lighthouse.txt"},
                                             {"max_steps", "1"}}))
                                   .train();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("no effect without packing: true: packing_strategy"),
                    HasSubstr("generate_samples: no row of the validation data asks anything")));
  // Wrapped samples are split, not cut.
  const ProcessResult wrapped = TinyRun(chat({{"packing", "true"},
                                              {"packing_strategy", "wrapped"},
                                              {"max_seq_length", "64"},
                                              {"validation_file", ""},
                                              {"eval_strategy", "\"no\""},
                                              {"max_steps", "1"}}))
                                    .train();
  ASSERT_EQ(wrapped.code, 0) << wrapped.err;
  EXPECT_THAT(wrapped.err, AllOf(Not(HasSubstr("truncated")), Not(HasSubstr("cut to"))));
}

TEST(Sft, RefusesDataWithoutAnythingToLearn) {
  TemporaryFolder folder;
  folder.write("rows.jsonl", R"({"messages": [{"role": "user", "content": "only a question"}]})"
                             "\n");
  const TinyRun run(chat({{"train_file", folder / "rows.jsonl"}}));
  const ProcessResult refused = run.train();
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("rows.jsonl:1: no row has anything to learn"),
                                 HasSubstr("only a question"), HasSubstr("### Response:")));
  const ProcessResult text = TinyRun(chat({{"train_file", kText + "lighthouse.txt"}})).train();
  EXPECT_EQ(text.code, 0) << text.err;  // lines of text are a shape of chat data
}

TEST(Sft, RefusesEncodersAndBadTemplates) {
  const ProcessResult encoder =
      TinyRun(chat({{"model_type", "roberta"},
                    {"config_overrides", "{num_hidden_layers: 1, max_position_embeddings: 258}"}}))
          .train();
  EXPECT_EQ(encoder.code, 2);
  EXPECT_THAT(encoder.err, HasSubstr("sft trains decoders"));
  TemporaryFolder folder;
  folder.write("bad.jinja", "{% for m in messages %}\n{{ m.content }}");
  const ProcessResult bad = TinyRun(chat({{"chat_template_path", folder / "bad.jinja"}})).train();
  EXPECT_EQ(bad.code, 1);
  EXPECT_THAT(bad.err, HasSubstr("bad.jinja:1:22: this block has no 'endfor'"));
  const ProcessResult unknown = TinyRun(chat({{"chat_template_path", "nothing"}})).train();
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("no template of that name is built in (chatml, llama3"));
}

}  // namespace
}  // namespace finetune::testing
