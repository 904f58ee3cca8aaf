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
  EXPECT_EQ(two.code, 2);
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
  EXPECT_EQ(single.code, 2);
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

// What a run learns nothing useful from is an error or a warning that names the column.
TEST(TrainingData, ThatTeachNothingAreRefusedOrWarnedOf) {
  TinyRun run;
  const auto trained = [&](const std::string& rows, const Arguments& more = {}) {
    run.set(classification(run.folder().write("rows.csv", rows)));
    std::filesystem::remove_all(run.out());
    return run.train(more);
  };
  std::string ids = "text,label\n";
  for (int i = 0; i < 30; ++i)
    ids += "text " + std::to_string(i) + ",id" + std::to_string(i) + "\n";
  const ProcessResult many = trained(ids);
  EXPECT_EQ(many.code, 0) << many.err;
  EXPECT_THAT(many.err, HasSubstr("column 'label' holds 30 different labels in 30 rows"));
  EXPECT_THAT(many.err, HasSubstr("'id16', 'id17' and 20 more"));

  std::string numbers = "text,label\n";
  for (int i = 0; i < 30; ++i) numbers += "a text," + std::to_string(i % 2) + ".0\n";
  for (int session = 0; session < 2; ++session) {  // found again without reading the file
    EXPECT_THAT(trained(numbers).err, HasSubstr("set problem_type: single_label_classification"));
  }
  const ProcessResult named = trained(numbers, {"--problem_type", "single_label_classification"});
  EXPECT_THAT(named.err, Not(HasSubstr("whole numbers")));

  std::string texts = "text,label\n";
  for (int i = 0; i < 20; ++i) {
    const std::string words = i % 4 == 0 ? "long text of many, many words" : "short";
    texts += "\"" + words + " here\"," + (i % 2 == 0 ? "yes" : "no") + "\n";
  }
  EXPECT_THAT(trained(texts, {"--max_seq_length", "8"}).err,
              HasSubstr("of 20 sequences reach max_seq_length 8: longer texts are truncated"));
  EXPECT_THAT(trained(texts, {"--validation_file", run.folder() / "rows.csv"}).err,
              HasSubstr("validation_file is not read: set do_eval: true"));
}

TEST(TrainingData, OfUnknownTokensAreReported) {
  TinyRun run;
  const std::string tokenizer = run.folder() / "words";
  std::filesystem::create_directory(tokenizer);
  write_file(tokenizer + "/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nlamp\nlit\n");
  write_file(tokenizer + "/tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer"})");
  const auto trained = [&](const std::string& words, const Arguments& more = {}) {
    std::string rows = "text,label\n";
    for (int i = 0; i < 20; ++i) rows += words + (i % 2 == 0 ? ",yes\n" : ",no\n");
    run.set(classification(run.folder().write("rows.csv", rows)));
    run.set({{"model_type", "bert"}, {"tokenizer_name", tokenizer}});
    std::filesystem::remove_all(run.out());
    return run.train(more);
  };
  EXPECT_THAT(trained("lamp lit").err, Not(HasSubstr("[UNK]")));
  EXPECT_THAT(trained("lamp lit lamp lit lamp lit lamp lit lamp dark").err,
              HasSubstr("\n10 % of the tokens of train_file are [UNK]"));
  EXPECT_THAT(trained("lamp dark").err,
              HasSubstr("warning: 50 % of the tokens of train_file are [UNK]; is the tokenizer"));
  for (const Arguments& more : {Arguments{}, Arguments{"--dry_run"}}) {
    const ProcessResult refused = trained("dark night", more);
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("every token is [UNK]"));
  }
}

TEST(TrainingData, WithoutATargetAreRefused) {
  TinyRun run;
  std::string rows;
  for (int i = 0; i < 20; ++i)
    rows += R"({"input_ids": [5, 6, 7], "labels": [-100, -100, -100]})"
            "\n";
  run.set({{"train_file", run.folder().write("rows.jsonl", rows)},
           {"validation_file", ""},
           {"eval_strategy", "no"}});
  for (const Arguments& more : {Arguments{}, Arguments{"--dry_run"}}) {
    const ProcessResult refused = run.train(more);
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("train_file: no sample has a target to learn from"));
  }
}

// They are known only when the training begins.
TEST(TrainingData, ThatAreStreamedOrDrawnAreLookedAtInTheFirstUpdate) {
  for (const char* kind : {"streamed", "drawn"}) {
    TinyRun run;
    const std::string tokenizer = run.folder() / "words";
    std::filesystem::create_directory(tokenizer);
    write_file(tokenizer + "/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nlamp\nlit\n");
    write_file(tokenizer + "/tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer"})");
    run.set({{"model_type", "bert"},
             {"tokenizer_name", tokenizer},
             {"max_steps", "2"},
             {"validation_file", ""},
             {"eval_strategy", "no"}});
    if (kind == std::string("streamed")) {
      run.set({{"streaming", "true"}});
    } else {
      run.set({{"task", "pretraining"},
               {"config_overrides",
                "{num_hidden_layers: 1, num_attention_heads: 2, hidden_size: 16, "
                "intermediate_size: 16, max_position_embeddings: 34, type_vocab_size: 2}"}});
    }
    const auto trained = [&](const std::string& words, const Arguments& more = {}) {
      std::string text;
      for (int i = 0; i < 200; ++i) text += words + ".\n" + (i % 4 == 3 ? "\n" : "");
      run.set({{"train_file", run.folder().write("text.txt", text)}});
      std::filesystem::remove_all(run.out());
      return run.train(more);
    };
    EXPECT_THAT(trained("lamp lit lamp dark").err,
                HasSubstr("% of the tokens of train_file are [UNK]; is the tokenizer"))
        << kind;
    for (const Arguments& more : {Arguments{}, Arguments{"--dry_run"}}) {
      const ProcessResult refused = trained("dark night", more);
      EXPECT_EQ(refused.code, 2) << kind << refused.err;
      EXPECT_THAT(refused.err, HasSubstr("every token is [UNK]"));
    }
  }
}

TEST(TrainingData, WithEmptyTextsOrOneTagOrNoTargetInTenUpdatesAreRefused) {
  TinyRun run;
  std::string rows = "text,label\n";
  for (int i = 0; i < 20; ++i) rows += i % 2 == 0 ? "\"\",yes\n" : "\"\",no\n";
  run.set(classification(run.folder().write("rows.csv", rows)));
  const ProcessResult empty = run.train();
  EXPECT_EQ(empty.code, 2) << empty.err;
  EXPECT_THAT(empty.err, HasSubstr("train_file: the texts are empty"));

  TinyRun words(
      {{"task", "token_classification"}, {"validation_file", ""}, {"eval_strategy", "no"}});
  std::string tags;
  for (int i = 0; i < 20; ++i)
    tags += R"({"tokens": ["a", "lamp"], "ner_tags": ["O", "O"]})"
            "\n";
  words.set({{"train_file", words.folder().write("rows.jsonl", tags)}});
  const ProcessResult alone = words.train();
  EXPECT_EQ(alone.code, 2) << alone.err;
  EXPECT_THAT(alone.err, HasSubstr("train_file: the only label is 'O'"));

  TinyRun rare;
  rare.set({{"mlm_probability", "0.000001"}});
  const ProcessResult refused = rare.train();
  EXPECT_EQ(refused.code, 1) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("10 updates in a row have no target to learn from"));
}

// The files that chat models are trained on elsewhere.
TEST(TrainingData, OfConversationsAndPreferencesAreRecognised) {
  const std::map<std::string, std::string> expected = {
      {R"({"messages": [{"role": "user", "content": "a"}]})", "conversations (messages)"},
      {R"({"conversations": [{"from": "human", "value": "a"}]})", "ShareGPT"},
      {R"({"instruction": "a", "input": "", "output": "b"})", "Alpaca"},
      {R"({"prompt": "a", "completion": "b"})", "prompts with completions"},
      {R"({"prompt": "a", "chosen": "b", "rejected": "c"})", "preference data"}};
  for (const auto& [row, format] : expected) {
    TinyRun run;
    run.set({{"train_file", run.folder().write("rows.jsonl", row + "\n" + row + "\n")}});
    const ProcessResult refused = run.train();
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("rows.jsonl:1: the rows are "));
    EXPECT_THAT(refused.err, HasSubstr(format));
  }
}

TEST(ModelFolder, OfAnotherKindIsRefusedByName) {
  TinyRun run;
  run.folder().write("model.gguf", "GGUF");
  std::filesystem::create_directories(run.folder() / "adapter");
  write_file(run.folder() / "adapter/adapter_config.json", "{}");
  std::filesystem::create_directories(run.folder() / "t5");
  write_file(run.folder() / "t5/config.json", R"({"model_type": "t5"})");
  const std::map<std::string, std::string> expected = {
      {run.folder() / "model.gguf", "is in GGUF"},
      {run.folder() / "adapter", "only LORA is available"},
      {run.folder() / "t5", "model_type 't5' is not available"},
      {"https://example.com/bert", "is an address, and nothing is downloaded"}};
  for (const auto& [model, why] : expected) {
    run.set({{"model_type", ""},
             {"config_overrides", ""},
             {"tokenizer_name", ""},
             {"model_name_or_path", model}});
    const ProcessResult refused = run.train();
    EXPECT_NE(refused.code, 0);
    EXPECT_THAT(refused.err, HasSubstr(why));
  }
}

// A suggested command runs where it is printed.
TEST(Hints, NameTheProgramAsItWasCalled) {
  const TinyRun run(TinyRun::Keys{{"max_steps", "2"}, {"eval_strategy", "no"}});
  const std::string link = run.folder() / "a b";
  std::filesystem::create_symlink(finetune_command({}).front(), link);
  Arguments words = run.command();
  words.front() = link;
  const ProcessResult by_path = finetune::testing::run(words, {});
  ASSERT_EQ(by_path.code, 0) << by_path.err;
  EXPECT_THAT(by_path.err, HasSubstr("predict:       '" + link + "' predict "));
}

}  // namespace
}  // namespace finetune::testing
