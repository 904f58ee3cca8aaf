// SPDX-License-Identifier: MIT
// Where `finetune predict` reads from and writes to apart from its command line.
#include <csignal>
#include <filesystem>
#include <map>

#include "integration/tiny_run.h"
#include "support/paths.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;

const std::string kLines = "A <mask> light.\nThe \"sea\" is <mask>.\n";

Arguments predict(const Arguments& more) {
  Arguments words = {"predict", kMaskedLm, "--use_cpu", "--top_k", "2"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Runs a command with `input` on standard input.
ProcessResult piped(const std::string& input, const Arguments& words) {
  const TemporaryFolder folder;
  std::string command = "exec '" + binary_path() + "'";
  for (const std::string& word : words) command += " '" + word + "'";
  return run({"/bin/sh", "-c", command + " < '" + folder.write("stdin", input) + "'"});
}

TEST(PredictCommand, ReadsTextFromStandardInput) {
  const TemporaryFolder folder;
  const ProcessResult file = finetune(predict({"--input", folder.write("in.txt", kLines)}));
  ASSERT_EQ(file.code, 0) << file.err;
  const ProcessResult implied = piped(kLines, predict({}));
  EXPECT_EQ(implied.code, 0) << implied.err;
  EXPECT_EQ(implied.out, file.out);
  EXPECT_EQ(piped(kLines, predict({"--input", "-"})).out, file.out);
  const ProcessResult nothing = piped("", predict({}));
  EXPECT_EQ(nothing.code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("needs --text or --input, or text on standard input"));
}

TEST(PredictCommand, RefusesTheNameOfAFileAsAText) {
  const TemporaryFolder folder;
  for (const std::string& word : {folder.write("in.txt", kLines), std::string("-")}) {
    const ProcessResult result = finetune({"predict", kMaskedLm, word});
    EXPECT_EQ(result.code, 2) << word;
    EXPECT_THAT(result.err, HasSubstr("--input"));
  }
}

TEST(PredictCommand, WritesJsonLinesToAFile) {
  const TemporaryFolder folder;
  const Arguments words = predict({"--input", folder.write("in.txt", kLines)});
  const ProcessResult shown = finetune(words);
  Arguments to_file = words;
  to_file.insert(to_file.end(), {"--output", folder / "out.jsonl"});
  const ProcessResult written = finetune(to_file);
  EXPECT_EQ(written.code, 0) << written.err;
  EXPECT_EQ(written.out, "");
  EXPECT_EQ(read_file(folder / "out.jsonl"), shown.out);
}

TEST(PredictCommand, NeverReplacesItsInput) {
  const TemporaryFolder folder;
  const std::string input = folder.write("in.jsonl", "{\"text\": \"a <mask> lamp\"}\n");
  std::filesystem::create_symlink(input, folder / "link.jsonl");
  for (const std::string& output : {input, folder / "link.jsonl"}) {
    const ProcessResult result = finetune(predict({"--input", input, "--output", output}));
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr("is the file that --input names"));
    EXPECT_EQ(read_file(input), "{\"text\": \"a <mask> lamp\"}\n");
  }
}

TEST(PredictCommand, WritesATableWithALineForEachAnswer) {
  const TemporaryFolder folder;
  const std::string input = folder.write("in.txt", kLines);
  const ProcessResult shown = finetune(predict({"--input", input}));
  for (const auto& [name, separator] : {std::pair{"out.csv", ','}, std::pair{"out.tsv", '\t'}}) {
    const ProcessResult written = finetune(predict({"--input", input, "--output", folder / name}));
    ASSERT_EQ(written.code, 0) << written.err;
    const std::string table = read_file(folder / name);
    const std::string s(1, separator);
    EXPECT_TRUE(table.starts_with("row" + s + "score" + s + "token" + s + "token_str" + s +
                                  "sequence\n1" + s))
        << table;
    EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 1 + 4);
    EXPECT_THAT(table, HasSubstr("\n2" + s));
    const Json first = parse_json(shown.out.substr(0, shown.out.find('\n')), "line");
    EXPECT_THAT(table, HasSubstr("row" + s + "score" + s + "token" + s + "token_str" + s +
                                 "sequence\n1" + s + first[0]["score"].dump() + s));
  }
  // A value with quotes is quoted, and its quotes are doubled.
  EXPECT_THAT(read_file(folder / "out.csv"), HasSubstr("\"\"sea\"\""));
}

TEST(PredictCommand, LeavesNoOutputBehindWhereItFails) {
  const TemporaryFolder folder;
  const std::string rows =
      folder.write("in.jsonl", "{\"text\": \"A <mask> light.\"}\n{\"text\": 7}\n");
  const std::string output = folder.write("out.jsonl", "as before\n");
  const ProcessResult failed = finetune(predict({"--input", rows, "--output", output}));
  EXPECT_EQ(failed.code, 1);
  EXPECT_EQ(read_file(output), "as before\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()),
                          std::filesystem::directory_iterator()),
            2);
  const ProcessResult unknown =
      finetune(predict({"--input", rows, "--output", folder / "out.xlsx"}));
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("end it in .jsonl (JSON lines), .csv or .tsv"));
}

std::string many_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += "Keeper " + std::to_string(i) + " saw a <mask> \"light\".\n";
  }
  return text;
}

// Stopped by the signal once answers were recorded; the same command then ends as if it had not.
void expect_resumes(const std::string& name, int signal) {
  const TemporaryFolder folder;
  const std::string input = folder.write("in.txt", many_lines(6000));
  const auto words = [&](const std::string& output) {
    return finetune_command(predict({"--input", input, "--output", output}));
  };
  const std::string whole = folder / ("whole." + name);
  ASSERT_EQ(run(words(whole)).code, 0);
  const std::string output = folder / ("out." + name);
  Process process(words(output), {.environment = {}, .folder = "", .watch = folder.path()});
  ASSERT_TRUE(process.wait_for_file("out." + name + ".partial.json", 2));  // staged and named
  process.send(signal);
  const ProcessResult stopped = process.finish();
  EXPECT_EQ(stopped.code, signal == SIGKILL ? 128 + SIGKILL : 75) << stopped.err;
  EXPECT_FALSE(std::filesystem::exists(output));
  const Json record = Json::parse(read_file(output + ".partial.json"));
  EXPECT_EQ(record["rows"].get<int>() % 256, 0);
  const ProcessResult resumed = run(words(output));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("resuming after row " + record["rows"].dump() + ": " + output +
                                     ".partial has the answers so far"));
  EXPECT_TRUE(read_file(output) == read_file(whole));
  EXPECT_FALSE(std::filesystem::exists(output + ".partial"));
  EXPECT_FALSE(std::filesystem::exists(output + ".partial.json"));
}

TEST(PredictCommand, ResumesAfterAKill) { expect_resumes("csv", SIGKILL); }

TEST(PredictCommand, ResumesAfterASignal) { expect_resumes("jsonl", SIGTERM); }

TEST(PredictCommand, StartsAgainWhereTheAnswersSoFarAreOfAnotherQuestion) {
  const TemporaryFolder folder;
  const std::string input = folder.write("in.txt", kLines);
  const std::string output = folder / "out.jsonl";
  const auto answered = [&] {
    const ProcessResult result = finetune(predict({"--input", input, "--output", output}));
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_FALSE(std::filesystem::exists(output + ".partial"));
    return result.err;
  };
  (void)answered();
  const std::string expected = read_file(output);
  write_file(output + ".partial", "{}\n");
  const auto record = [](int64_t bytes) {
    return Json({{"identity", "{}"}, {"rows", 1}, {"bytes", bytes}, {"columns", Json::array()}});
  };
  for (const std::string& text : {record(3).dump(), std::string("{\"rows\":")}) {
    write_file(output + ".partial.json", text);
    EXPECT_THAT(answered(), HasSubstr("out.jsonl.partial was written with another model, input"));
    EXPECT_EQ(read_file(output), expected);
  }
}

TEST(PredictCommand, LeavesTheFileToTheProcessThatWritesIt) {
  const TemporaryFolder folder;
  const std::string input = folder.write("in.txt", many_lines(6000));
  const Arguments words = predict({"--input", input, "--output", folder / "out.jsonl"});
  Process first(finetune_command(words), {.environment = {}, .folder = "", .watch = folder.path()});
  ASSERT_TRUE(first.wait_for_file("out.jsonl.partial"));
  const ProcessResult second = finetune(words);
  EXPECT_EQ(second.code, 5) << second.err;
  EXPECT_THAT(second.err, HasSubstr("another process is writing"));
  EXPECT_EQ(first.finish().code, 0);
}

// A model of the task, trained for a moment.
const TinyRun& labelled_model(const std::string& task, const std::string& name) {
  static std::map<std::string, TinyRun> models;
  const auto found = models.find(name);
  if (found != models.end()) return found->second;
  const TinyRun& run =
      models
          .try_emplace(name, TinyRun::Keys{{"task", task},
                                           {"train_file", kTasks + name + "-train.jsonl"},
                                           {"validation_file", ""},
                                           {"eval_strategy", "\"no\""},
                                           {"max_steps", "3"}})
          .first->second;
  EXPECT_EQ(run.train().code, 0);
  return run;
}

Json first_answer(const TinyRun& model, const Arguments& more) {
  Arguments words = {"predict", model.out(), "--use_cpu"};
  words.insert(words.end(), more.begin(), more.end());
  const ProcessResult result = finetune(words);
  EXPECT_EQ(result.code, 0) << result.err;
  return Json::parse(result.out.substr(0, result.out.find('\n')));
}

TEST(PredictCommand, GivesTheProbabilitiesOfAllLabelsOrTheBest) {
  const TinyRun& model = labelled_model("sequence_classification", "weather");
  const Json labels = Json::parse(read_file(model.out("config.json")))["id2label"];
  const Arguments text = {"--text", "The sea was calm."};
  const Json all = first_answer(model, {"--probabilities", "all", "--text", "The sea was calm."});
  ASSERT_EQ(all.size(), labels.size());
  double sum = 0;
  for (const Json& one : all) sum += one["score"].get<double>();
  EXPECT_NEAR(sum, 1, 1e-5);
  EXPECT_GE(all[0]["score"], all[1]["score"]);
  EXPECT_EQ(first_answer(model, text), Json::array({all[0]}));
  EXPECT_EQ(first_answer(
                model, {"--probabilities", "top_k", "--top_k", "2", "--text", "The sea was calm."}),
            Json::array({all[0], all[1]}));
}

TEST(PredictCommand, GivesTheProbabilitiesOfTokensAndChoices) {
  const TinyRun& tagger = labelled_model("token_classification", "names");
  const Json token = first_answer(
      tagger, {"--probabilities", "all", "--ignore_labels", "none", "--text", "Anna Hale came"})[0];
  const Json labels = Json::parse(read_file(tagger.out("config.json")))["id2label"];
  ASSERT_EQ(token["scores"].size(), labels.size());
  EXPECT_EQ(token["scores"].items().begin().key(), token["entity"]);
  EXPECT_EQ(token["scores"].items().begin().value(), token["score"]);
  double sum = 0;
  for (const Json& score : token["scores"]) sum += score.get<double>();
  EXPECT_NEAR(sum, 1, 1e-5);

  const TinyRun& chooser = labelled_model("multiple_choice", "choices");
  const Arguments choices = {"--text",     "What grows?", "--choice",
                             "the garden", "the waves",   "the hour"};
  const Json usual = first_answer(chooser, choices);
  Arguments words = choices;
  words.insert(words.begin(), {"--probabilities", "all"});
  const Json ranked = first_answer(chooser, words);
  ASSERT_EQ(ranked.size(), 3U);
  EXPECT_EQ(ranked[0]["label"], usual["label"]);
  EXPECT_EQ(ranked[0]["choice"], usual["choice"]);
  for (const Json& one : ranked) {
    EXPECT_EQ(one["score"], usual["scores"][one["label"].get<size_t>()]);
  }
  words[1] = "top_k";
  words.insert(words.begin(), {"--top_k", "1"});
  EXPECT_EQ(first_answer(chooser, words), Json::array({ranked[0]}));
}

TEST(PredictCommand, RefusesProbabilitiesThatATaskDoesNotHave) {
  const auto refused = [](const Arguments& more) {
    const ProcessResult result = finetune(predict(more));
    EXPECT_EQ(result.code, 2) << result.err;
    return result.err;
  };
  EXPECT_THAT(refused({"--probabilities", "all", "--text", "a <mask>"}),
              HasSubstr("take --probabilities top_k with --top_k N"));
  EXPECT_THAT(refused({"--probabilities", "some", "--text", "a <mask>"}),
              HasSubstr("takes all or top_k, not 'some'"));
  const ProcessResult grouped =
      finetune({"predict", labelled_model("token_classification", "names").out(),
                "--aggregation_strategy", "simple", "--probabilities", "all", "--text", "Anna"});
  EXPECT_EQ(grouped.code, 2);
  EXPECT_THAT(grouped.err, HasSubstr("leave --aggregation_strategy out"));
}

}  // namespace
}  // namespace finetune::testing
