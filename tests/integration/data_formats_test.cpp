// SPDX-License-Identifier: MIT
// Files in common formats: GLUE's TSV, CSV with semicolons, CoNLL in .txt; and class weights.
#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;

const std::string kTsv =
    "Quality\t#1 String\t#2 String\n"
    "1\t\"The lamp,\" he said.\tThe lamp burns.\n"
    "0\tA \"wave\" came.\t\"No ship\n"
    "1\tIt rained.\tRain fell.\n"
    "0\tWind rose.\tThe sea was calm.\n";

// Trains two steps of `task` on `file`.
ProcessResult train_on_file(TinyRun& run, const std::string& task, const std::string& file,
                            const TinyRun::Keys& keys = {}) {
  run.set({{"task", task},
           {"train_file", file},
           {"validation_file", ""},
           {"eval_strategy", "no"},
           {"max_steps", "2"},
           {"save_steps", "2"}});
  run.set(keys);
  return run.train();
}

TEST(DataFormats, TakeGluesTsvAsItIs) {
  TinyRun run;
  const std::string file = run.folder().write("mrpc.tsv", kTsv);
  const TinyRun::Keys keys = {{"label_column", "quality"}};
  const ProcessResult result = train_on_file(run, "sequence_classification", file, keys);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("quotes are read as text"));
  EXPECT_THAT(result.err, HasSubstr("label_column: 'Quality' (set); text_column: '#1 String', "
                                    "text_pair_column: '#2 String' (guessed"));
  EXPECT_EQ(finetune({"predict", run.out(), "--use_cpu", "--input", file}).code, 0);
}

TEST(DataFormats, TakeATableWithoutNames) {
  TinyRun run;
  const std::string file = run.folder().write(
      "cola.tsv",
      "gj04\t1\t\tThe lamp burns.\ngj04\t0\t*\t\"Lamp the burn\ngj05\t1\t\tIt rains.\n");
  const TinyRun::Keys keys = {
      {"header", "false"}, {"label_column", "column_2"}, {"text_column", "column_4"}};
  const ProcessResult result = train_on_file(run, "sequence_classification", file, keys);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("training data: 3 samples"));
  // Read as in training, unless the command says otherwise.
  const ProcessResult answered = finetune({"predict", run.out(), "--use_cpu", "--input", file});
  EXPECT_EQ(answered.code, 0) << answered.err;
  EXPECT_EQ(std::count(answered.out.begin(), answered.out.end(), '\n'), 3);
  EXPECT_THAT(answered.err, HasSubstr("header: false (as the model was trained)"));
  // Reading the first row as names is an error, instead of one answer less.
  const ProcessResult headed =
      finetune({"predict", run.out(), "--use_cpu", "--input", file, "--header", "true"});
  EXPECT_EQ(headed.code, 2);
  EXPECT_THAT(headed.err, HasSubstr("trained with the column 'column_4'"));
}

// Quotes that are part of the text in training are part of it in prediction.
TEST(DataFormats, AskAModelAsItWasTrained) {
  TinyRun run;
  const std::string rows = "text\tlabel\n\"The lamp burns.\"\ta\n\"It rains.\"\tb\n";
  const std::string file = run.folder().write("a.tsv", rows);
  const TinyRun::Keys keys = {{"quoting", "none"}};
  ASSERT_EQ(train_on_file(run, "sequence_classification", file, keys).code, 0);
  const auto answers = [&](const Arguments& more) {
    Arguments words = {"predict", run.out(), "--use_cpu", "--input", file};
    words.insert(words.end(), more.begin(), more.end());
    const ProcessResult result = finetune(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return result;
  };
  const ProcessResult as_trained = answers({});
  EXPECT_THAT(as_trained.err, HasSubstr("quoting: none (as the model was trained)"));
  EXPECT_EQ(as_trained.out, answers({"--quoting", "none"}).out);
  EXPECT_NE(as_trained.out, answers({"--quoting", "auto"}).out);
}

TEST(DataFormats, TakeSemicolonsAndSayIt) {
  TinyRun run;
  const std::string rows = "Text ;LABEL\nThe lamp burns, or not.;a\nIt rains.;b\n";
  const std::string file = run.folder().write("europe.csv", rows);
  const ProcessResult result = train_on_file(run, "sequence_classification", file);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("europe.csv: fields are separated by a semicolon"));
  EXPECT_THAT(result.err, HasSubstr("text_column: 'Text ', label_column: 'LABEL' (guessed from"));
}

TEST(DataFormats, TakeConllInTextFiles) {
  TinyRun run;
  const std::string corpus = "-DOCSTART- -X- O\n\nAda NNP B-PER\nran VBD O\n\nBonn NNP B-LOC\n";
  const std::string file = run.folder().write("train.txt", corpus);
  const ProcessResult result = train_on_file(run, "token_classification", file);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("labels: 'B-LOC', 'B-PER', 'O'"));
  EXPECT_THAT(result.err, HasSubstr("training data: 2 samples"));
  const ProcessResult answered = finetune({"predict", run.out(), "--use_cpu", "--input", file});
  EXPECT_EQ(answered.code, 0) << answered.err;
  EXPECT_EQ(std::count(answered.out.begin(), answered.out.end(), '\n'), 2);

  TinyRun plain;
  const std::string text = plain.folder().write("plain.txt", "It rained.\nThe sea was high.\n");
  const ProcessResult refused = train_on_file(plain, "token_classification", text);
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("plain text has no tags"));
}

// The keys of the format are part of the cache's key.
TEST(DataFormats, AreReadAgainWhereTheKeysChange) {
  TinyRun run;
  const std::string file = run.folder().write("a.csv", "text,label\n\"a b\",x\n\"c d\",y\n");
  ASSERT_EQ(train_on_file(run, "sequence_classification", file).code, 0);
  const ProcessResult same = run.train({"--restart"});
  EXPECT_THAT(same.err, HasSubstr("tokenised before"));
  const ProcessResult other = run.train({"--restart", "--quoting", "none"});
  ASSERT_EQ(other.code, 0) << other.err;
  EXPECT_THAT(other.err, ::testing::Not(HasSubstr("tokenised before")));
  EXPECT_THAT(other.err, HasSubstr("training data: 2 samples"));
}

const std::string kUnequal =
    "text,label\n"
    "The lamp burns.,calm\nIt is still.,calm\nNo wind.,calm\nA quiet sea.,calm\nStorm!,rough\n";

TEST(ClassWeights, OfBalancedClassesAreCountedAndKeptWithTheModel) {
  TinyRun run;
  const std::string file = run.folder().write("unequal.csv", kUnequal);
  const TinyRun::Keys keys = {{"class_weights", "balanced"}, {"validation_file", file},
                              {"eval_strategy", "epoch"},    {"max_steps", "4"},
                              {"save_steps", "1"},           {"save_total_limit", ""}};
  const ProcessResult result = train_on_file(run, "sequence_classification", file, keys);
  ASSERT_EQ(result.code, 0) << result.err;
  // 5 / (2 * 4) and 5 / (2 * 1), the formula of scikit-learn.
  EXPECT_THAT(result.err, HasSubstr("class weights: 'calm' 0.625, 'rough' 2.5"));
  const Json record = parse_json(read_file(run.out("finetune_data.json")), "record");
  EXPECT_EQ(record["class_weights"], Json({0.625, 2.5}));

  TinyRun cut;
  ASSERT_EQ(train_on_file(cut, "sequence_classification", file, keys).code, 0);
  TinyRun again;
  again.set({{"task", "sequence_classification"}, {"train_file", file}});
  again.set(keys);
  again.train_until(2);
  ASSERT_EQ(again.train().code, 0);
  EXPECT_TRUE(read_file(again.out("model.safetensors")) == read_file(run.out("model.safetensors")));

  // The same weights by name; evaluation without training uses those computed in training.
  TinyRun named;
  TinyRun::Keys by_name = keys;
  by_name["class_weights"] = "{calm: 0.625, rough: 2.5}";
  ASSERT_EQ(train_on_file(named, "sequence_classification", file, by_name).code, 0);
  EXPECT_TRUE(read_file(named.out("model.safetensors")) == read_file(run.out("model.safetensors")));
  run.set({{"model_type", ""}, {"config_overrides", ""}, {"model_name_or_path", run.out()}});
  const ProcessResult evaluated = finetune({"evaluate", run.config()});
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  const Json trained = parse_json(read_file(run.out("eval_results.json")), "eval_results.json");
  EXPECT_EQ(parse_json(evaluated.out, "stdout")["eval_loss"], trained["eval_loss"]);
}

TEST(ClassWeights, ChangeWhatIsLearnedAndAreOfferedToNoOtherLabels) {
  TinyRun plain;
  const std::string file = plain.folder().write("unequal.csv", kUnequal);
  ASSERT_EQ(train_on_file(plain, "sequence_classification", file).code, 0);
  TinyRun weighted;
  ASSERT_EQ(
      train_on_file(weighted, "sequence_classification", file, {{"class_weights", "[1, 20]"}}).code,
      0);
  EXPECT_FALSE(read_file(weighted.out("model.safetensors")) ==
               read_file(plain.out("model.safetensors")));

  const auto refused = [&](const std::string& value, const std::string& rows, int code) {
    TinyRun run;
    const std::string data = run.folder().write("data.jsonl", rows);
    const ProcessResult result =
        train_on_file(run, "sequence_classification", data, {{"class_weights", value}});
    EXPECT_EQ(result.code, code) << result.err;
    return result.err;
  };
  const std::string two =
      "{\"text\": \"a\", \"label\": \"x\"}\n{\"text\": \"b\", \"label\": \"y\"}\n";
  EXPECT_THAT(refused("[1, 2, 3]", two, 2), HasSubstr("3 weights for the 2 labels 'x', 'y'"));
  EXPECT_THAT(refused("{z: 2}", two, 2), HasSubstr("there is no label 'z'"));
  EXPECT_THAT(refused("[1, 0]", two, 2),
              HasSubstr("class_weights: '1' must be a number from 1e-06 to 1000000.0, not 0"));
  EXPECT_THAT(refused("equal", two, 2), HasSubstr("class_weights must be none, balanced"));
  EXPECT_THAT(refused("balanced",
                      "{\"text\": \"a\", \"label\": [\"x\"]}\n{\"text\": \"b\", \"label\": "
                      "[\"y\", \"x\"]}\n",
                      2),
              HasSubstr("class_weights: needs one label for each sample"));
}

}  // namespace
}  // namespace finetune::testing
