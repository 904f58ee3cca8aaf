// SPDX-License-Identifier: MIT
// finetune train --dry_run: its output for each task, and the files that it must not change.
#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;

ProcessResult dry_run(const TinyRun& run, const std::string& temporary,
                      const Arguments& more = {}) {
  Arguments words = {"train", "--dry_run", run.config()};
  words.insert(words.end(), more.begin(), more.end());
  return finetune(words, {.environment = {{"TMPDIR", temporary}}, .folder = "", .watch = ""});
}

void expect_passes(const ProcessResult& result) {
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* part : {"dry run passed", "\n  loss ", "at step 2", "\n  step ",
                           "\n  checkpoint ", "every byte verified", "\n  peak memory "}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
}

TEST(DryRun, LeavesNothingBehindAndRunsNoCommand) {
  const TemporaryFolder temporary;
  const TemporaryFolder elsewhere;
  const std::string mark = elsewhere / "command-ran";
  const TinyRun run({{"mirror_dir", elsewhere / "mirror"},
                     {"on_finish_command", "[touch, " + mark + "]"},
                     {"on_interrupt_command", "[touch, " + mark + "]"},
                     {"on_failure_command", "[touch, " + mark + "]"},
                     {"session_hours", "0.0000001"}});
  const ProcessResult result = dry_run(run, temporary.path());
  expect_passes(result);
  EXPECT_TRUE(std::filesystem::is_empty(run.out()));
  EXPECT_TRUE(std::filesystem::is_empty(temporary.path()));
  EXPECT_TRUE(std::filesystem::is_empty(elsewhere.path()));
  // Masked tokens, with the original words.
  EXPECT_THAT(result.out, HasSubstr("<mask>"));
  EXPECT_THAT(result.out, ::testing::ContainsRegex("to learn +[0-9]+: \".*\" is \".*\""));
}

TEST(DryRun, ShowsTheBatchThatTheTrainingBeginsWith) {
  // The loss of the first step is that of the run itself.
  const TemporaryFolder temporary;
  const TinyRun run(TinyRun::Keys{{"max_steps", "2"}});
  const ProcessResult dry = dry_run(run, temporary.path());
  ASSERT_EQ(run.train().code, 0);
  char loss[64];
  std::snprintf(loss, sizeof(loss), "loss         %.4g at step 1",
                trainer_state(run.out())["log_history"][0]["loss"].get<double>());
  EXPECT_THAT(dry.out, HasSubstr(loss));
}

TEST(DryRun, ResumesARunOfOneStep) {
  const TemporaryFolder temporary;
  expect_passes(dry_run(TinyRun(TinyRun::Keys{{"max_steps", "1"}}), temporary.path()));
}

TEST(DryRun, FailsWhereTheTrainingWould) {
  const TemporaryFolder temporary;
  const TinyRun run;
  const ProcessResult data = dry_run(run, temporary.path(), {"--train_file", "/nowhere.txt"});
  EXPECT_EQ(data.code, 2) << data.err;
  EXPECT_THAT(data.err, HasSubstr("/nowhere.txt"));
  EXPECT_EQ(dry_run(run, temporary.path(), {"--restart"}).code, 2);
  EXPECT_EQ(dry_run(run, temporary.path(), {"--do_train", "false", "--do_eval"}).code, 2);
  EXPECT_TRUE(std::filesystem::is_empty(temporary.path()));
}

TEST(DryRun, RefusesWhatTheTrainingWouldRefuseForItsFolder) {
  const TemporaryFolder temporary;
  const TinyRun run(TinyRun::Keys{{"max_steps", "4"}, {"save_steps", "2"}});
  for (const bool is_finished : {false, true}) {
    const Arguments stop = {"--stop_at_step", "2"};
    ASSERT_EQ(run.train(is_finished ? Arguments{} : stop).code, is_finished ? 0 : 75);
    expect_passes(dry_run(run, temporary.path()));
    for (const Arguments& other : {Arguments{"--seed", "7"}, Arguments{"--max_seq_length", "16"}}) {
      const ProcessResult trained = run.train(other);
      const ProcessResult tried = dry_run(run, temporary.path(), other);
      EXPECT_EQ(trained.code, 2) << trained.err;
      EXPECT_EQ(tried.code, 2) << tried.err;
      EXPECT_THAT(tried.err, HasSubstr(other[0].substr(2)));
      EXPECT_EQ(tried.out, "") << "refused before a batch is shown";
    }
  }
  const TinyRun onto({{"model_name_or_path", run.out()},
                      {"model_type", ""},
                      {"config_overrides", ""},
                      {"tokenizer_name", ""},
                      {"output_dir", run.out()}});
  const ProcessResult tried = dry_run(onto, temporary.path());
  EXPECT_EQ(tried.code, 2) << tried.err;
  EXPECT_THAT(tried.err, HasSubstr("is the folder of model_name_or_path"));
}

TEST(DryRun, PrintsNoControlCharactersOfTheData) {
  const TemporaryFolder temporary;
  TinyRun run(TinyRun::Keys{
      {"task", "sequence_classification"}, {"validation_file", ""}, {"eval_strategy", "no"}});
  run.set({{"train_file", run.folder().write("t.csv",
                                             "text,label\nA \x1b[31mlamp,re\x1b[1md\n"
                                             "A boat,blue\n")}});
  const ProcessResult result = dry_run(run, temporary.path());
  expect_passes(result);
  EXPECT_EQ(result.out.find('\x1b'), std::string::npos);
  EXPECT_THAT(result.out, HasSubstr("re\\u001b[1md"));
}

struct Shown {
  std::string task;
  std::string name;  // of the files
  std::string ending;
  TinyRun::Keys keys;
  std::vector<std::string> parts;  // of the output
};

void PrintTo(const Shown& shown, std::ostream* out) { *out << shown.name; }

class DryRunOf : public ::testing::TestWithParam<Shown> {};

TEST_P(DryRunOf, ShowsLabelsAndPasses) {
  const Shown& shown = GetParam();
  TinyRun::Keys keys = {{"task", shown.task}};
  if (!shown.ending.empty()) {
    keys["train_file"] = kTasks + shown.name + "-train" + shown.ending;
    keys["validation_file"] = kTasks + shown.name + "-valid" + shown.ending;
  }
  for (const auto& [key, value] : shown.keys) keys[key] = value;
  const TemporaryFolder temporary;
  const TinyRun run(keys);
  const ProcessResult result = dry_run(run, temporary.path());
  expect_passes(result);
  for (const std::string& part : shown.parts) EXPECT_THAT(result.out, HasSubstr(part));
  EXPECT_TRUE(std::filesystem::is_empty(run.out()));
}

INSTANTIATE_TEST_SUITE_P(
    Tasks, DryRunOf,
    ::testing::Values(
        Shown{"sequence_classification", "weather", ".jsonl", {}, {"\n  label "}},
        Shown{"sequence_classification", "likeness", ".jsonl", {}, {"\n  label "}},
        Shown{"sequence_classification", "topics", ".jsonl", {}, {"\n  label "}},
        Shown{"multiple_choice",
              "choices",
              ".jsonl",
              {},
              {"\n  choice 0 ", "\n  choice 1 ", "\n  label     choice "}},
        Shown{"token_classification", "names", ".jsonl", {}, {"\n  tags ", " O"}},
        Shown{"question_answering",
              "cargo",
              ".json",
              {{"doc_stride", "8"},
               {"max_seq_length", "64"},
               {"config_overrides",
                "{num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 32, "
                "intermediate_size: 64, max_position_embeddings: 66, type_vocab_size: 1}"}},
              {"\n  answer "}},
        Shown{"pretraining",
              "documents",
              "",
              {{"model_type", "bert"},
               {"config_overrides",
                "{num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 32, "
                "intermediate_size: 64, max_position_embeddings: 32}"},
               {"line_by_line", "true"}},
              {"\n  to learn ", "the second text "}},
        Shown{"mlm", "processes", "", {{"num_processes", "2"}}, {"\n  to learn "}}),
    [](const auto& shown) { return shown.param.name; });

}  // namespace
}  // namespace finetune::testing
