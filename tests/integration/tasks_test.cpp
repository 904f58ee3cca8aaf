// SPDX-License-Identifier: MIT
// Tasks with labels for users: files as input; checkpoints, metrics and predictions as output;
// interruptions. tests/parity compares what they learn.
#include <algorithm>
#include <sstream>

#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;

struct Work {
  std::string task;
  std::string name;    // of the files
  std::string ending;  // of the files
  TinyRun::Keys keys;
  std::vector<std::string> metrics;
  std::vector<std::string> files;  // of predictions
};

void PrintTo(const Work& work, std::ostream* out) { *out << work.name; }

const std::vector<Work>& works() {
  static const std::vector<Work> list = {
      {"sequence_classification",
       "weather",
       ".jsonl",
       {},
       {"eval_accuracy", "eval_f1", "eval_matthews_correlation"},
       {"predict_results.txt"}},
      {"sequence_classification",
       "likeness",
       ".jsonl",
       {},
       {"eval_mse", "eval_pearson", "eval_spearmanr"},
       {"predict_results.txt"}},
      {"sequence_classification",
       "topics",
       ".jsonl",
       {},
       {"eval_f1", "eval_accuracy"},
       {"predict_results.txt"}},
      {"multiple_choice", "choices", ".jsonl", {}, {"eval_accuracy"}, {"predict_results.txt"}},
      {"token_classification",
       "names",
       ".jsonl",
       {},
       {"eval_precision", "eval_recall", "eval_f1", "eval_accuracy"},
       {"predictions.txt"}},
      {"question_answering",
       "cargo",
       ".json",
       {{"doc_stride", "8"},
        {"max_seq_length", "64"},
        {"config_overrides",
         "{num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 32, intermediate_size: 64, "
         "max_position_embeddings: 66, type_vocab_size: 1}"}},
       {"eval_exact_match", "eval_f1"},
       {"eval_predictions.json", "predict_predictions.json", "predict_nbest_predictions.json"}}};
  return list;
}

TinyRun::Keys keys_of(const Work& work) {
  TinyRun::Keys keys = {{"task", work.task},
                        {"train_file", kTasks + work.name + "-train" + work.ending},
                        {"validation_file", kTasks + work.name + "-valid" + work.ending},
                        {"test_file", kTasks + work.name + "-test" + work.ending},
                        {"do_predict", "true"},
                        {"max_steps", "12"},
                        {"eval_steps", "6"},
                        {"save_steps", "5"}};
  for (const auto& [key, value] : work.keys) keys[key] = value;
  return keys;
}

class LabelledTask : public ::testing::TestWithParam<Work> {};

TEST_P(LabelledTask, EndsAlikeWithAndWithoutInterruptions) {
  const TinyRun whole(keys_of(GetParam()));
  const ProcessResult result = whole.train();
  ASSERT_EQ(result.code, 0) << result.err;
  const TinyRun cut(keys_of(GetParam()));
  cut.train_until(3);
  cut.train_until(8);
  ASSERT_EQ(cut.train().code, 0);

  EXPECT_EQ(log_without_times(cut.out()), log_without_times(whole.out()));
  EXPECT_TRUE(read_file(cut.out("model.safetensors")) == read_file(whole.out("model.safetensors")));
  EXPECT_TRUE(read_file(cut.out("checkpoint-12/optimizer.pt")) ==
              read_file(whole.out("checkpoint-12/optimizer.pt")));
  for (const std::string& file : GetParam().files) {
    EXPECT_EQ(read_file(cut.out(file)), read_file(whole.out(file))) << file;
  }
}

TEST_P(LabelledTask, ReportsTheScriptsMetricsAndFiles) {
  const TinyRun run(keys_of(GetParam()));
  const ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  const Json metrics = parse_json(read_file(run.out("eval_results.json")), "eval_results.json");
  for (const std::string& name : GetParam().metrics) EXPECT_TRUE(metrics.contains(name)) << name;
  EXPECT_FALSE(metrics.contains("perplexity"));
  for (const std::string& file : GetParam().files) EXPECT_GT(read_file(run.out(file)).size(), 20U);
  EXPECT_TRUE(std::filesystem::exists(run.out("predict_results.json")));

  // A finished run stays unchanged.
  const ProcessResult again = run.train();
  EXPECT_EQ(again.code, 0);
  EXPECT_THAT(again.err, HasSubstr("already finished"));
}

TEST_P(LabelledTask, EvaluatesAndPredictsWithoutTraining) {
  TinyRun run(keys_of(GetParam()));
  ASSERT_EQ(run.train().code, 0);
  const std::vector<std::string>& files = GetParam().files;
  const std::string predicted = read_file(run.out(files.back()));

  const Arguments model = {"--model_name_or_path", run.out(), "--tokenizer_name", run.out(),
                           "--do_train",           "false"};
  TinyRun::Keys without = {{"model_type", ""}, {"config_overrides", ""}, {"train_file", ""}};
  TinyRun plain(keys_of(GetParam()));
  plain.set(without);
  const ProcessResult result = plain.train(model);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(read_file(plain.out(files.back())), predicted);

  Arguments evaluation = {"evaluate", plain.config()};
  evaluation.insert(evaluation.end(), model.begin(), model.begin() + 4);
  const ProcessResult evaluated = finetune(evaluation);
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  const Json metrics = parse_json(evaluated.out, "stdout");
  const Json trained = parse_json(read_file(run.out("eval_results.json")), "eval_results.json");
  EXPECT_EQ(metrics["eval_loss"], trained["eval_loss"]);
  for (const std::string& name : GetParam().metrics) EXPECT_EQ(metrics[name], trained[name]);
}

TEST_P(LabelledTask, EvaluatesOnRowsThatTheSeedHoldsOut) {
  TinyRun::Keys keys = keys_of(GetParam());
  keys["validation_file"] = "";
  keys["validation_split_percentage"] = "20";
  const TinyRun whole(keys);
  const ProcessResult result = whole.train();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("evaluation data: "));
  const TinyRun cut(keys);
  cut.train_until(7);
  ASSERT_EQ(cut.train().code, 0);
  EXPECT_EQ(log_without_times(cut.out()), log_without_times(whole.out()));
  EXPECT_TRUE(read_file(cut.out("model.safetensors")) == read_file(whole.out("model.safetensors")));

  // The command that the run prints evaluates the same rows.
  const ProcessResult evaluated = finetune({"evaluate", whole.config()});
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  const Json trained = parse_json(read_file(whole.out("eval_results.json")), "eval_results.json");
  EXPECT_EQ(parse_json(evaluated.out, "stdout")["eval_loss"], trained["eval_loss"]);
}

INSTANTIATE_TEST_SUITE_P(Works, LabelledTask, ::testing::ValuesIn(works()),
                         [](const auto& test) { return test.param.name; });

struct BadRow {
  std::string name;
  std::string task;
  std::string content;  // of the training file
  std::string ending;
  TinyRun::Keys keys;
  std::vector<std::string> message;
};

void PrintTo(const BadRow& row, std::ostream* out) { *out << row.name; }

class BadData : public ::testing::TestWithParam<BadRow> {};

TEST_P(BadData, IsOneSentenceWithRowAndColumn) {
  TinyRun run({{"task", GetParam().task}, {"eval_strategy", "no"}, {"validation_file", ""}});
  run.set(GetParam().keys);
  const std::string file = run.folder().write("bad" + GetParam().ending, GetParam().content);
  run.set({{"train_file", file}});
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, GetParam().message.front() == "2" ? 2 : 1) << result.err;
  for (size_t i = 1; i < GetParam().message.size(); ++i) {
    EXPECT_THAT(result.err, HasSubstr(GetParam().message[i]));
  }
  EXPECT_EQ(result.err.find("internal error"), std::string::npos) << result.err;
}

const BadRow kBadRows[] = {
    {"label_outside_of_the_choices",
     "multiple_choice",
     R"({"question": "a", "choice0": "b", "choice1": "c", "label": 0})"
     "\n"
     R"({"question": "a", "choice0": "b", "choice1": "c", "label": 2})",
     ".jsonl",
     {},
     {"1", "bad.jsonl:2", "label"}},
    {"choice_missing",
     "multiple_choice",
     R"({"question": "a", "choice0": "b", "choice1": "c", "label": 0})"
     "\n"
     R"({"question": "a", "choice0": "b", "label": 0})",
     ".jsonl",
     {},
     {"2", "bad.jsonl:2", "choice1"}},
    {"column_that_is_not_there",
     "sequence_classification",
     R"({"sentence": "a", "label": "x"})"
     "\n"
     R"({"sentence": "a", "label": "y"})",
     ".jsonl",
     {{"text_column", "text"}},
     {"2", "bad.jsonl:1", "'text'", "sentence"}},
    {"answer_that_does_not_occur",
     "question_answering",
     R"({"id": "q1", "question": "a?", "context": "the brig", )"
     R"("answers": {"text": ["boat"], "answer_start": [4]}})",
     ".jsonl",
     {},
     {"1", "bad.jsonl:1", "boat", "brig"}},
    {"mixed_types",
     "sequence_classification",
     R"({"text": "a", "label": "x"})"
     "\n"
     R"({"text": 7, "label": "y"})",
     ".jsonl",
     {},
     {"1", "bad.jsonl:2", "text"}},
    {"empty_split", "sequence_classification", "", ".jsonl", {}, {"1", "train_file", "empty"}},
    {"words_and_tags_of_different_number",
     "token_classification",
     R"({"tokens": ["a", "b"], "ner_tags": ["O"]})"
     "\n"
     R"({"tokens": ["a"], "ner_tags": ["B"]})",
     ".jsonl",
     {},
     {"1", "bad.jsonl:1", "ner_tags"}},
};

INSTANTIATE_TEST_SUITE_P(Rows, BadData, ::testing::ValuesIn(kBadRows),
                         [](const auto& test) { return test.param.name; });

// Without the key nothing is held out, as in the run_* scripts.
TEST(LabelledTasks, HoldNothingOutUnlessAskedTo) {
  TinyRun::Keys keys = keys_of(works().front());
  keys["validation_file"] = "";
  const TinyRun run(keys);
  const ProcessResult refused = run.train();
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("no data to evaluate on: set validation_file, or "
                                     "validation_split_percentage for a part of train_file"));
}

// Returns the words after "  evaluate:      finetune " in the output of a run.
std::vector<std::string> printed_evaluation(const ProcessResult& result) {
  const std::string mark = "evaluate:      " + finetune_command({}).front() + " ";
  const size_t begin = result.err.find(mark);
  if (begin == std::string::npos) return {};
  std::istringstream line(
      result.err.substr(begin + mark.size(), result.err.find('\n', begin) - begin - mark.size()));
  std::vector<std::string> words;
  for (std::string word; line >> word;) words.push_back(word);
  return words;
}

TEST(LabelledTasks, PrintACommandThatEvaluatesTheRun) {
  const TinyRun run(keys_of(works().front()));
  const std::string config = run.config().substr(0, run.config().rfind('/')) + "/args.json";
  Json keys = {{"output_dir", run.out()},
               {"model_type", "roberta"},
               {"tokenizer_name", tiny_tokenizer()},
               {"config_overrides",
                "num_hidden_layers=1,num_attention_heads=2,hidden_size=32,intermediate_size=64"},
               {"train_file", kTasks + "weather-train.jsonl"},
               {"do_train", true},
               {"max_steps", 2},
               {"report_to", "none"},
               {"fp16", false}};
  write_file(config, keys.dump(1));
  const std::string validation = kTasks + "weather-valid.jsonl";
  const ProcessResult with_data =
      finetune({"train", config, "--task", "sequence_classification", "--validation_file",
                validation, "--test_file", "null"});
  ASSERT_EQ(with_data.code, 0) << with_data.err;
  const ProcessResult evaluated = finetune(printed_evaluation(with_data));
  EXPECT_EQ(evaluated.code, 0) << evaluated.err;
  EXPECT_THAT(evaluated.out, HasSubstr("eval_accuracy"));

  // Without data to evaluate on, the command asks for a file.
  const ProcessResult without = finetune(
      {"train", config, "--task", "sequence_classification", "--output_dir", run.out("other")});
  ASSERT_EQ(without.code, 0) << without.err;
  std::vector<std::string> words = printed_evaluation(without);
  ASSERT_FALSE(words.empty()) << without.err;
  EXPECT_EQ(words.back(), "FILE");
  words.back() = validation;
  EXPECT_EQ(finetune(words).code, 0);
}

TEST(LabelledTasks, RefuseLabelsThatTheModelNeverSaw) {
  TinyRun run({{"task", "sequence_classification"},
               {"train_file", kTasks + "weather-train.jsonl"},
               {"max_steps", "2"},
               {"eval_strategy", "epoch"}});
  run.set({{"validation_file",
            run.folder().write("other.jsonl", "{\"text\": \"a\", \"label\": \"foggy\"}\n")}});
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("other.jsonl:1"));
  EXPECT_THAT(result.err, HasSubstr("foggy"));
  EXPECT_THAT(result.err, HasSubstr("'calm', 'rough'"));
}

TEST(LabelledTasks, EvaluateTheColumnsThatTheyTrainedOn) {
  TinyRun run({{"task", "sequence_classification"},
               {"train_file", kTasks + "weather-train.jsonl"},
               {"max_steps", "2"},
               {"eval_strategy", "epoch"}});
  const std::string titled = R"({"title": "t", "text": "b", "label": "calm"})";
  run.set({{"validation_file", run.folder().write("titled.jsonl", titled)}});
  EXPECT_EQ(run.train().code, 0);
  const std::string untexted = R"({"title": "t", "body": "b", "label": "calm"})";
  run.set({{"validation_file", run.folder().write("untexted.jsonl", untexted)}});
  const ProcessResult result = run.train({"--restart"});
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("untexted.jsonl:1: column 'text' is not there"));
}

TEST(LabelledTasks, NameTheRemedyForAHeadOfAnotherSize) {
  TinyRun::Keys keys = keys_of(works()[0]);
  const TinyRun first(keys);
  ASSERT_EQ(first.train().code, 0);
  keys = keys_of(works()[2]);  // four labels instead of two
  for (const char* key : {"model_type", "config_overrides", "tokenizer_name"}) keys[key] = "";
  keys["model_name_or_path"] = first.out();
  const TinyRun second(keys);
  const ProcessResult refused = second.train();
  EXPECT_EQ(refused.code, 1) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("set ignore_mismatched_sizes: true"));
  const ProcessResult taken = second.train({"--ignore_mismatched_sizes", "true"});
  EXPECT_EQ(taken.code, 0) << taken.err;
}

TEST(LabelledTasks, TakeAColumnByNameThatWasGuessedBefore) {
  TinyRun run(keys_of(works()[0]));
  run.train_until(3);
  run.set({{"text_column", "text"}});
  EXPECT_EQ(run.train().code, 0);
}

// After training the best weights are loaded, and a stop in what follows must not save them as
// those of the last step.
TEST(LabelledTasks, KeepTheLastWeightsWhereTheBestOnesAreLoaded) {
  TinyRun::Keys keys = keys_of(works()[0]);
  keys["save_strategy"] = "best";
  keys["load_best_model_at_end"] = "true";
  keys["metric_for_best_model"] = "mse";
  keys["task"] = "sequence_classification";
  keys["train_file"] = kTasks + "likeness-train.jsonl";
  keys["validation_file"] = kTasks + "likeness-valid.jsonl";
  keys["test_file"] = kTasks + "likeness-test.jsonl";
  keys["greater_is_better"] = "true";  // the first evaluation is the best
  keys["eval_steps"] = "3";
  const TinyRun run(keys);
  EXPECT_EQ(run.train({"--stop_at_step", "12"}).code, 75);
  ASSERT_TRUE(std::filesystem::exists(run.out("checkpoint-12")));
  EXPECT_FALSE(read_file(run.out("checkpoint-12/model.safetensors")) ==
               read_file(run.out("checkpoint-3/model.safetensors")));
  EXPECT_EQ(run.train().code, 0);
}

TEST(LabelledTasks, FinishWhereAMetricIsNotDefined) {
  TinyRun run(keys_of(works()[1]));
  std::string constant;
  for (int i = 0; i < 6; ++i) {
    constant +=
        R"({"sentence1": "a )" + std::to_string(i) + R"(", "sentence2": "b", "label": 1.5})" + "\n";
  }
  run.set({{"validation_file", run.folder().write("constant.jsonl", constant)}});
  EXPECT_EQ(run.train({"--stop_at_step", "12"}).code, 75);
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 0) << result.err;
}

TEST(LabelledTasks, RefuseAMetricThatTheTaskHasNotBeforeTheFirstStep) {
  TinyRun::Keys keys = keys_of(works()[0]);
  keys["metric_for_best_model"] = "exact_match";
  const TinyRun run(keys);
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the evaluation has no 'exact_match'; it has loss, accuracy"));
}

TEST(LabelledTasks, ChooseTheBestModelByTheirOwnMetric) {
  TinyRun::Keys keys = keys_of(works()[0]);
  keys["metric_for_best_model"] = "f1";
  keys["load_best_model_at_end"] = "true";
  keys["save_steps"] = "6";
  const TinyRun run(keys);
  const ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  const Json state = trainer_state(run.out());
  double best = -1;
  for (const Json& entry : state["log_history"]) {
    if (entry.contains("eval_f1")) best = std::max(best, entry["eval_f1"].get<double>());
  }
  EXPECT_EQ(state["best_metric"], best);
}

TEST(LabelledTasks, KeepTheOrderOfAModelsLabels) {
  const TinyRun first(keys_of(works()[0]));
  ASSERT_EQ(first.train().code, 0);
  // The same names in another order, as in a model from elsewhere.
  std::string config = read_file(first.out("config.json"));
  const auto swap_words = [&](const std::string& a, const std::string& b) {
    const size_t position = config.find(a);
    ASSERT_NE(position, std::string::npos) << a << " in " << config;
    config.replace(position, a.size(), b);
  };
  swap_words("\"0\": \"calm\"", "\"0\": \"rough\"");
  swap_words("\"1\": \"rough\"", "\"1\": \"calm\"");
  swap_words("\"calm\": 0", "\"calm\": 1");
  swap_words("\"rough\": 1", "\"rough\": 0");
  write_file(first.out("config.json"), config);
  TinyRun::Keys keys = keys_of(works()[0]);
  for (const char* key : {"model_type", "config_overrides", "tokenizer_name"}) keys[key] = "";
  keys["model_name_or_path"] = first.out();
  const TinyRun second(keys);
  const ProcessResult result = second.train();
  ASSERT_EQ(result.code, 0) << result.err;
  const Json saved = parse_json(read_file(second.out("config.json")), "config.json");
  EXPECT_EQ(saved["id2label"]["0"], "rough");
}

TEST(LabelledTasks, GoOnWhereAnEvaluationsFilesCannotBeWritten) {
  const auto has_files = [](const Work& work) {
    return std::ranges::count(work.files, "eval_predictions.json") > 0;
  };
  const TinyRun run(keys_of(*std::ranges::find_if(works(), has_files)));
  std::filesystem::create_directories(run.out("eval_predictions.json"));
  write_file(run.out("eval_predictions.json/in-the-way"), "");
  const ProcessResult first = run.train();
  EXPECT_EQ(first.code, 1);
  EXPECT_THAT(first.err, HasSubstr("predictions of step 6 are not written, training continues"));
  EXPECT_TRUE(std::filesystem::exists(run.out("checkpoint-10")));
  std::filesystem::remove_all(run.out("eval_predictions.json"));
  EXPECT_EQ(run.train().code, 0);
  EXPECT_GT(read_file(run.out("eval_predictions.json")).size(), 20U);
}

// Many decoders name no padding: rows are filled with the end of the text, and the last token
// before it is read, in a batch as alone.
TEST(LabelledTasks, ADecoderWithoutPaddingClassifiesTheEndOfEachText) {
  const TinyRun::Keys tiny = {
      {"max_steps", "4"}, {"eval_strategy", "\"no\""}, {"validation_file", ""}, {"eval_steps", ""}};
  TinyRun base(tiny);
  const std::string tokenizer = base.folder() / "tokenizer";
  std::filesystem::copy(source_dir() + "/tests/fixtures/tokenizers/causal", tokenizer);
  Json names = parse_json(read_file(tokenizer + "/tokenizer_config.json"), "tokenizer");
  names.erase("pad_token");
  write_file(tokenizer + "/tokenizer_config.json", names.dump());
  base.set({{"task", "clm"},
            {"model_type", "llama"},
            {"tokenizer_name", tokenizer},
            {"config_overrides",
             "{num_hidden_layers: 1, num_attention_heads: 2, hidden_size: 32, "
             "intermediate_size: 64, max_position_embeddings: 64, initializer_range: 0.5}"}});
  ASSERT_EQ(base.train().code, 0);
  ASSERT_FALSE(parse_json(read_file(base.out() + "/config.json"), "config")
                   .value("pad_token_id", Json())
                   .is_number());
  TinyRun run(tiny);
  run.set({{"task", "sequence_classification"},
           {"model_type", ""},
           {"config_overrides", ""},
           {"tokenizer_name", ""},
           {"max_seq_length", "48"},
           {"model_name_or_path", base.out()},
           {"train_file", kTasks + "weather-train.jsonl"}});
  const ProcessResult trained = run.train();
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Json config = parse_json(read_file(run.out() + "/config.json"), "config");
  EXPECT_EQ(config.at("pad_token_id"), config.at("eos_token_id"));
  const auto answers = [&](const std::vector<std::string>& texts) {
    std::vector<std::string> words = {"predict", run.out()};
    for (const std::string& text : texts) words.insert(words.end(), {"--text", text});
    std::istringstream out(finetune(words).out);
    std::vector<Json> found;
    for (std::string line; std::getline(out, line);) found.push_back(parse_json(line, "")[0]);
    return found;
  };
  const std::string brief = "Calm.";
  const std::string longer = "A storm broke the glass of the lamp.";
  const std::vector<Json> together = answers({brief, longer});
  ASSERT_EQ(together.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    const Json alone = answers({i == 0 ? brief : longer}).front();
    EXPECT_EQ(together[i]["label"], alone["label"]);
    // A product of two rows may sum in another order than that of one.
    EXPECT_NEAR(together[i]["score"].get<double>(), alone["score"].get<double>(), 1e-5);
  }
}

}  // namespace
}  // namespace finetune::testing
