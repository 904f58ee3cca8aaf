// SPDX-License-Identifier: MIT
// Prediction and evaluation read the columns that the model was trained with.
#include <filesystem>

#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kNews =
    "id,title,text,label\n"
    "1,The harbour light,It burned all night.,calm\n"
    "2,A storm at sea,The waves broke the pier.,rough\n"
    "3,The keeper sleeps,No ship was seen.,calm\n"
    "4,Wind from the north,Sails were torn.,rough\n";

TinyRun::Keys classification(const std::string& file) {
  return {{"task", "sequence_classification"},
          {"train_file", file},
          {"validation_file", ""},
          {"eval_strategy", "no"},
          {"max_steps", "2"},
          {"save_steps", "2"}};
}

// Trains a run on `content` with `keys`.
void train(TinyRun& run, const std::string& name, const std::string& content,
           const TinyRun::Keys& keys = {}) {
  run.set(classification(run.folder().write(name, content)));
  run.set(keys);
  const ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
}

ProcessResult predict(const std::string& model, const std::string& input,
                      const Arguments& more = {}) {
  Arguments words = {"predict", model, "--use_cpu", "--input", input};
  words.insert(words.end(), more.begin(), more.end());
  return finetune(words);
}

std::string answers(const std::string& model, const std::string& input,
                    const Arguments& more = {}) {
  const ProcessResult result = predict(model, input, more);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out, "");
  return result.out;
}

TEST(TrainedColumns, AreThoseOfTheGuessThatTrainingMade) {
  TinyRun run;
  train(run, "news.csv", kNews);
  const std::string file = run.folder() / "news.csv";
  const std::string right =
      answers(run.out(), file, {"--text_column", "title", "--text_pair_column", "text"});
  EXPECT_NE(right, answers(run.out(), file, {"--text_column", "id"})) << "the test sees nothing";
  EXPECT_EQ(answers(run.out(), file), right);
  EXPECT_EQ(answers(run.out("checkpoint-2"), file), right);
  EXPECT_THAT(
      predict(run.out(), file).err,
      HasSubstr("text_column: 'title', text_pair_column: 'text' (as the model was trained"));
}

TEST(TrainedColumns, AreThoseThatTheConfigurationNamed) {
  TinyRun run;
  train(run, "news.csv", kNews, {{"text_column", "text"}});
  const std::string file = run.folder() / "news.csv";
  const std::string right = answers(run.out(), file, {"--text_column", "text"});
  EXPECT_NE(right, answers(run.out(), file, {"--text_column", "title"}));
  EXPECT_EQ(answers(run.out(), file), right);
}

TEST(TrainedColumns, GoWithACopyOfTheModel) {
  TinyRun run;
  train(run, "news.csv", kNews, {{"text_column", "text"}});
  const std::string file = run.folder() / "news.csv";
  const std::string copy = run.folder() / "copy";
  std::filesystem::create_directories(copy);
  for (const auto& entry : std::filesystem::directory_iterator(run.out())) {
    const std::string name = entry.path().filename();
    if (!entry.is_regular_file() || name == "finetune_state.json") continue;
    std::filesystem::copy_file(entry.path(), copy + "/" + name);
  }
  EXPECT_EQ(answers(copy, file), answers(run.out(), file, {"--text_column", "text"}));
}

TEST(TrainedColumns, AreFoundInTheStateOfAnEarlierVersionsRun) {
  TinyRun run;
  train(run, "news.csv", kNews, {{"text_column", "text"}});
  const std::string file = run.folder() / "news.csv";
  std::filesystem::remove(run.out("finetune_data.json"));
  EXPECT_EQ(answers(run.out(), file), answers(run.out(), file, {"--text_column", "text"}));
}

TEST(TrainedColumns, ThatAreMissingAreAnErrorUnlessOneTextIsLeft) {
  TinyRun run;
  train(run, "news.csv", kNews, {{"text_column", "text"}});
  const ProcessResult two =
      predict(run.out(), run.folder().write("two.csv", "a,b\nThe pier.,A ship.\n"));
  EXPECT_EQ(two.code, 1);
  EXPECT_EQ(two.out, "");
  EXPECT_THAT(two.err, HasSubstr("two.csv:2: the model was trained with the column 'text', which "
                                 "is not there; the row has the columns \"a\", \"b\"; name the one "
                                 "to use with --text_column"));
  const std::string one = run.folder().write("one.csv", "id,body\n7,The pier.\n");
  const ProcessResult result = predict(run.out(), one);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, answers(run.out(), one, {"--text_column", "body"}));
  EXPECT_THAT(result.err, HasSubstr("using 'body', the only other text column"));

  TinyRun pairs;
  train(pairs, "news.csv", kNews);
  const ProcessResult single = predict(pairs.out(), one);
  EXPECT_EQ(single.code, 1);
  EXPECT_THAT(single.err, HasSubstr("trained with the column 'title'"));
}

TEST(TrainedColumns, OfADamagedRecordAreAnError) {
  TinyRun run;
  train(run, "news.csv", kNews, {{"text_column", "text"}});
  write_file(run.out("finetune_data.json"), "{\"task\": \"sequence_classification\"");
  const ProcessResult result = predict(run.out(), run.folder() / "news.csv");
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("finetune_data.json"));
}

TEST(TrainedColumns, OfWordsQuestionsAndChoices) {
  TinyRun tagger;
  train(tagger, "names.jsonl",
        "{\"note\": \"x\", \"parts\": [\"Ada\", \"ran\"], \"kinds\": [\"B-PER\", \"O\"]}\n"
        "{\"note\": \"y\", \"parts\": [\"He\", \"met\", \"Bo\"], \"kinds\": [\"O\", \"O\", "
        "\"B-PER\"]}\n",
        {{"task", "token_classification"}, {"text_column", "parts"}, {"label_column", "kinds"}});
  const Arguments all = {"--ignore_labels", "-"};
  const std::string words = tagger.folder() / "names.jsonl";
  Arguments named = all;
  named.insert(named.end(), {"--text_column", "parts"});
  EXPECT_EQ(answers(tagger.out(), words, all), answers(tagger.out(), words, named));

  TinyRun chooser;
  train(
      chooser, "choices.jsonl",
      "{\"question\": \"a\", \"start\": \"The sea\", \"one\": \"is wet\", \"two\": \"is dry\", "
      "\"label\": 0}\n"
      "{\"question\": \"b\", \"start\": \"The sun\", \"one\": \"is cold\", \"two\": \"is hot\", "
      "\"label\": 1}\n",
      {{"task", "multiple_choice"}, {"context_column", "start"}, {"choice_columns", "[one, two]"}});
  const std::string rows = chooser.folder() / "choices.jsonl";
  EXPECT_EQ(
      answers(chooser.out(), rows),
      answers(chooser.out(), rows, {"--context_column", "start", "--choice_columns", "one,two"}));

  TinyRun reader;
  train(reader, "asked.jsonl",
        "{\"asked\": \"who?\", \"story\": \"the brig\", \"found\": {\"text\": [\"brig\"], "
        "\"answer_start\": [4]}}\n",
        {{"task", "question_answering"},
         {"text_column", "asked"},
         {"context_column", "story"},
         {"label_column", "found"},
         {"doc_stride", "4"}});
  const std::string asked = reader.folder() / "asked.jsonl";
  const Arguments length = {"--max_seq_len", "30", "--doc_stride", "4"};
  Arguments with_columns = length;
  with_columns.insert(with_columns.end(), {"--text_column", "asked", "--context_column", "story"});
  EXPECT_EQ(answers(reader.out(), asked, length), answers(reader.out(), asked, with_columns));
}

// The keys of the evaluation name no columns: without the record 'title' would be the text.
TEST(TrainedColumns, AreEvaluated) {
  TinyRun run;
  train(run, "news.csv", kNews, {{"text_column", "text"}});
  const std::string file = run.folder() / "news.csv";
  run.set({{"text_column", ""},
           {"model_type", ""},
           {"config_overrides", ""},
           {"model_name_or_path", run.out()},
           {"tokenizer_name", ""},
           {"validation_file", file}});
  const ProcessResult result = finetune({"evaluate", run.config()});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("text_column: 'text', label_column: 'label' (as the model"));
  EXPECT_THAT(result.err, Not(HasSubstr("'title'")));
}

TEST(Columns, ArePrintedWhoeverChoseThem) {
  TinyRun run;
  run.set(classification(run.folder().write("news.csv", kNews)));
  run.set({{"text_column", "Text "}});
  const ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("text_column: 'text' (set); label_column: 'label' (guessed "
                                    "from "));
}

TEST(Columns, OfLabelsAreAWarningWhereTheTaskWasForgotten) {
  TinyRun run;
  run.set(classification(run.folder().write("news.csv", kNews)));
  run.set({{"task", ""}, {"text_column", "text"}});
  const std::string warning =
      "warning: 'task' is not set, so that a masked language model is trained (mlm) and column "
      "'label' is not used; for a classifier set task: sequence_classification";
  ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr(warning));
  run.set({{"task", "mlm"}, {"output_dir", run.out("named")}});
  result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("'label'")));
}

}  // namespace
}  // namespace finetune::testing
