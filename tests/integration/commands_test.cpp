// SPDX-License-Identifier: MIT
// The output and exit code of each command.
#include "integration/launched.h"
#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A finished run that the tests read and do not change.
const TinyRun& trained() {
  static const TinyRun* run = [] {
    const auto* made = new TinyRun;
    const ProcessResult result = made->train();
    EXPECT_EQ(result.code, 0) << result.err;
    static const std::unique_ptr<const TinyRun> owner(made);
    return made;
  }();
  return *run;
}

std::vector<Json> json_lines(const std::string& text) {
  std::vector<Json> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(parse_json(text.substr(begin, end - begin), "a line of output"));
    begin = end + 1;
  }
  return lines;
}

TEST(Predict, PrintsTheCandidatesOfEachTextAsAJsonLine) {
  const ProcessResult result = finetune({"predict", trained().out(), "--top_k", "3", "--text",
                                         "The <mask> was lit.", "The <mask> of the <mask>."});
  EXPECT_EQ(result.code, 0) << result.err;
  const std::vector<Json> lines = json_lines(result.out);
  ASSERT_EQ(lines.size(), 2U);
  ASSERT_EQ(lines[0].size(), 3U);  // one mask: a list of candidates
  double last_score = 1.0;
  for (const Json& candidate : lines[0]) {
    EXPECT_LE(candidate["score"].get<double>(), last_score);
    last_score = candidate["score"].get<double>();
    EXPECT_GT(last_score, 0.0);
    EXPECT_LT(candidate["token"].get<int>(), 300);
    EXPECT_THAT(candidate["sequence"].get<std::string>(),
                HasSubstr(candidate["token_str"].get<std::string>()));
    EXPECT_THAT(candidate["sequence"].get<std::string>(), Not(HasSubstr("<s>")));
  }
  ASSERT_EQ(lines[1].size(), 2U);  // two masks: a list for each
  EXPECT_EQ(lines[1][0].size(), 3U);
  EXPECT_EQ(lines[1][1].size(), 3U);
}

TEST(Predict, AnswersTheLinesOfAFileAsItAnswersTexts) {
  const TemporaryFolder folder;
  const std::string input = folder.write("lines.txt", "A <mask> light.\nThe sea is <mask>.\n");
  const ProcessResult from_file = finetune({"predict", trained().out(), "--input", input});
  const ProcessResult from_texts = finetune(
      {"predict", trained().out(), "--text", "A <mask> light.", "--text", "The sea is <mask>."});
  EXPECT_EQ(from_file.code, 0) << from_file.err;
  EXPECT_EQ(json_lines(from_file.out).size(), 2U);
  EXPECT_EQ(from_file.out, from_texts.out);
}

TEST(Evaluate, GivesTheLossThatTheTrainingLogged) {
  double logged = -1.0;
  const Json state = trainer_state(trained().out());
  for (const Json& entry : state["log_history"]) {
    if (entry.contains("eval_loss")) logged = entry["eval_loss"].get<double>();
  }
  const ProcessResult newest = finetune({"evaluate", trained().config(), "--checkpoint", "auto"});
  EXPECT_EQ(newest.code, 0) << newest.err;
  EXPECT_EQ(parse_json(newest.out, "output")["eval_loss"].get<double>(), logged);
  const ProcessResult named =
      finetune({"evaluate", "--model_name_or_path", trained().out(), "--validation_file",
                kText + "lighthouse-valid.txt", "--max_seq_length", "32", "--output_dir",
                trained().folder() / "none"});
  EXPECT_EQ(named.code, 0) << named.err;
  EXPECT_EQ(parse_json(named.out, "output")["eval_loss"].get<double>(), logged);
}

double loss_of(const ProcessResult& result) {
  EXPECT_EQ(result.code, 0) << result.err;
  return parse_json(result.out, "output")["eval_loss"].get<double>();
}

TEST(Evaluate, TakesTheTrainedModelOfAFinishedRunAndTheBaseModelWhereAskedTo) {
  const TinyRun run({{"model_type", ""},
                     {"config_overrides", ""},
                     {"tokenizer_name", ""},
                     {"model_name_or_path", trained().out()},
                     {"max_steps", "3"},
                     {"eval_strategy", "\"no\""},
                     {"save_strategy", "\"no\""}});
  const ProcessResult before = finetune({"evaluate", run.config()});
  const double base = loss_of(before);
  EXPECT_THAT(before.err, HasSubstr("evaluating model_name_or_path, '" + trained().out() + "'"));
  ASSERT_EQ(run.train().code, 0);

  const ProcessResult after = finetune({"evaluate", run.config()});
  const double trained_loss = loss_of(after);
  EXPECT_NE(trained_loss, base);
  EXPECT_THAT(after.err, HasSubstr("evaluating the trained model in '" + run.out() + "' (3 steps"));
  EXPECT_EQ(loss_of(finetune({"evaluate", run.config(), "--checkpoint", "base"})), base);
  // Without a checkpoint the newest model is the finished one.
  ASSERT_FALSE(std::filesystem::exists(run.out("checkpoint-3")));
  EXPECT_EQ(loss_of(finetune({"evaluate", run.config(), "--checkpoint", "auto"})), trained_loss);
  // A model that the command line names has priority.
  EXPECT_EQ(loss_of(finetune({"evaluate", run.config(), "--model_name_or_path", trained().out()})),
            base);
}

TEST(Evaluate, SaysWhatAnUnfinishedRunHasInsteadOfTheBaseModel) {
  const TinyRun run({{"model_type", ""},
                     {"config_overrides", ""},
                     {"model_name_or_path", trained().out()},
                     {"eval_strategy", "\"no\""}});
  run.train_until(2);
  const ProcessResult result = finetune({"evaluate", run.config()});
  const double base = loss_of(result);
  EXPECT_THAT(result.err, HasSubstr("--checkpoint auto evaluates its newest checkpoint, "
                                    "checkpoint-2"));
  EXPECT_NE(loss_of(finetune({"evaluate", run.config(), "--checkpoint", "auto"})), base);
}

TEST(Evaluate, RefusesAFinishedRunOfAnotherTask) {
  const ProcessResult result =
      finetune({"evaluate", trained().config(), "--task", "token_classification"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("holds a finished run of task 'mlm'"));
}

TEST(Evaluate, NamesAMissingHeadBeforeTheLabels) {
  const TemporaryFolder folder;
  const std::string rows = folder.write("rows.csv", "text,label\na b,no\nc d,yes\n");
  const ProcessResult result = finetune({"evaluate", "--model_name_or_path", trained().out(),
                                         "--task", "sequence_classification", "--validation_file",
                                         rows, "--output_dir", folder / "none"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("lacks the head of task 'sequence_classification'"));
  EXPECT_THAT(result.err, Not(HasSubstr("no label")));
}

TEST(OneProcess, IsWhatEvaluateAndPredictWorkIn) {
  const ProcessResult several = finetune({"evaluate", trained().config(), "--num_processes", "2"});
  EXPECT_EQ(several.code, 2);
  EXPECT_THAT(several.err, HasSubstr("finetune evaluate works in one process"));
  EXPECT_EQ(finetune({"predict", trained().out(), "A <mask>.", "--num_processes", "2"}).code, 2);
  for (const Arguments& words : {Arguments{"evaluate", trained().config(), "--checkpoint", "auto"},
                                 Arguments{"predict", trained().out(), "--text", "A <mask>."}}) {
    SCOPED_TRACE(words[0]);
    for (const int rank : {0, 1}) {
      ProcessOptions options;
      options.environment = slurm_task(rank, free_port());
      const ProcessResult result = run(finetune_command(words), options);
      EXPECT_EQ(result.code, 0) << result.err;
      EXPECT_EQ(result.out.empty(), rank == 1) << result.out;
      EXPECT_EQ(result.err.find("works in rank 0 alone") != std::string::npos, rank == 1);
    }
  }
}

TEST(Checkpoints, ListsEachWithItsState) {
  const TinyRun run;
  run.train_until(14);
  const ProcessResult whole = finetune({"checkpoints", run.out(), "--verify"});
  EXPECT_EQ(whole.code, 0);
  EXPECT_THAT(whole.out, HasSubstr("       7 "));
  EXPECT_THAT(whole.out, HasSubstr("      14 "));
  EXPECT_THAT(whole.out, Not(HasSubstr("NOT VALID")));
  write_file(run.out("checkpoint-14/optimizer.pt"), "short");
  const ProcessResult damaged = finetune({"checkpoints", run.out()});
  EXPECT_EQ(damaged.code, 0);
  EXPECT_THAT(damaged.out, HasSubstr("NOT VALID: optimizer.pt has 5 bytes"));
  write_file(run.out("checkpoint-7/optimizer.pt"), "short");
  EXPECT_EQ(finetune({"checkpoints", run.out()}).code, 3);
  EXPECT_TRUE(std::filesystem::exists(run.out("checkpoint-7")));  // `checkpoints` changes nothing
}

TEST(VerifyResume, FindsNoDifferenceAndLeavesNothingBehind) {
  const TinyRun run(TinyRun::Keys{{"save_minutes", "5"}});
  const TemporaryFolder temporary;
  const ProcessResult result =
      finetune({"verify-resume", run.config(), "--steps", "8", "--interrupt_at", "3"},
               {.environment = {{"TMPDIR", temporary.path()}}, .folder = "", .watch = ""});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("equal: 8 steps, interrupted at step 3"));
  EXPECT_TRUE(std::filesystem::is_empty(run.out()));
  EXPECT_TRUE(std::filesystem::is_empty(temporary.path()));
}

TEST(VerifyResume, NamesTheFirstDifference) {
  TinyRun run(TinyRun::Keys{{"eval_steps", "4"}});
  const std::string validation =
      run.folder().write("validation.txt", read_file(kText + "lighthouse-valid.txt"));
  run.set({{"validation_file", validation}});
  Process process(finetune_command({"verify-resume", run.config(), "--steps", "8"}));
  ASSERT_TRUE(process.wait_for_output("then the same command again"));
  // The validation file may change between sessions: the weights stay the same, eval_loss does not.
  write_file(validation, read_file(kText + "lighthouse.txt"));
  const ProcessResult result = process.finish();
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.out, HasSubstr("NOT EQUAL: the first difference is step 4: "));
  EXPECT_THAT(result.out, HasSubstr("eval_loss"));
}

TEST(Doctor, TellsTheDeviceAndLeavesNothingBehind) {
  const TemporaryFolder folder;
  const ProcessResult result =
      finetune({"doctor"}, {.environment = {}, .folder = folder.path(), .watch = ""});
  for (const char* part :
       {"finetune", "libtorch", "device", "processes", "processors", "memory", "disk"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
  const bool problem = result.out.find("problem: ") != std::string::npos;
  EXPECT_EQ(result.code, problem ? 1 : 0) << result.out;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Help, IsThereForEveryCommandOfTheList) {
  const ProcessResult list = finetune({"--help"});
  EXPECT_EQ(list.code, 0);
  for (const char* verb : {"train", "evaluate", "predict", "tokenizer", "checkpoints",
                           "verify-resume", "config", "doctor", "completion"}) {
    EXPECT_THAT(list.out, HasSubstr(std::string("\n  ") + verb + " "));
    const ProcessResult help = finetune({verb, "--help"});
    EXPECT_EQ(help.code, 0) << verb;
    EXPECT_THAT(help.out, HasSubstr(std::string("finetune ") + verb));
    EXPECT_EQ(help.err, "") << verb;
  }
  EXPECT_THAT(finetune({"train", "--help"}).out, HasSubstr("--learning_rate"));
  EXPECT_THAT(finetune({"--version"}).out,
              ::testing::MatchesRegex("finetune [0-9.]+ .for torch [0-9.]+.\n"));
}

TEST(Config, WritesFilesThatItAcceptsItself) {
  const TinyRun run;
  const ProcessResult defaults = finetune({"config", "defaults"});
  EXPECT_EQ(defaults.code, 0);
  const std::string path = run.folder().write("defaults.yaml", defaults.out);
  const ProcessResult checked = finetune({"config", "check", path, "--model_type", "roberta",
                                          "--tokenizer_name", tiny_tokenizer(), "--train_file",
                                          kText + "lighthouse.txt", "--output_dir", run.out()});
  EXPECT_EQ(checked.code, 0) << checked.err;
  EXPECT_EQ(checked.err, "");
  const ProcessResult initial = finetune({"config", "init"});
  EXPECT_EQ(initial.code, 0);
  const std::string init = run.folder().write("init.yaml", initial.out);
  EXPECT_EQ(finetune({"config", "check", "--no_files", init}).code, 0);
  // Options may be given before the sub-command.
  EXPECT_EQ(finetune({"config", "--no_files", "check", init}).code, 0);
  const Json known = parse_json(finetune({"config", "schema"}).out, "");
  for (const Json& task : known.at("properties").at("task").at("enum")) {
    const std::string name = task.get<std::string>();
    const std::string own =
        run.folder().write("own.yaml", finetune({"config", "init", "--task", name}).out);
    EXPECT_EQ(finetune({"config", "check", "--no_files", own}).code, 0) << name;
  }
  const ProcessResult schema = finetune({"config", "schema"});
  EXPECT_EQ(schema.code, 0);
  EXPECT_TRUE(parse_json(schema.out, "schema")["properties"].contains("learning_rate"));
}

TEST(Completion, IsAScriptThatTheShellParses) {
  const TemporaryFolder folder;
  const ProcessResult bash = finetune({"completion", "bash"});
  EXPECT_EQ(bash.code, 0);
  const std::string path = folder.write("finetune.bash", bash.out);
  EXPECT_EQ(run({"bash", "-n", path}).code, 0);
  const ProcessResult words = run({"bash", "-c",
                                   "source " + path +
                                       "; COMP_WORDS=(finetune train --learning_r); COMP_CWORD=2; "
                                       "_finetune; echo ${COMPREPLY[@]}"});
  EXPECT_EQ(words.out, "--learning_rate\n");
}

TEST(Streams, ResultsGoToStandardOutputAndProgressToStandardError) {
  const TinyRun run(TinyRun::Keys{{"max_steps", "2"}});
  const ProcessResult result = run.train();
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("train 2/2"));
  EXPECT_THAT(result.err, Not(HasSubstr("\r")));  // not a terminal: plain lines
}

TEST(EvaluationAlone, IsWhatTrainDoesWhereTrainingIsOff) {
  const TinyRun run({{"do_train", "false"},
                     {"model_type", ""},
                     {"config_overrides", ""},
                     {"model_name_or_path", trained().out()}});
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 0) << result.err;
  const Json results = parse_json(read_file(run.out("eval_results.json")), "results");
  EXPECT_TRUE(results.contains("eval_loss"));
  EXPECT_FALSE(std::filesystem::exists(run.out("model.safetensors")));
}

TEST(TrainedFolder, HoldsTheModelWithoutWhatTheOptimizerNeeds) {
  const Json state = trainer_state(trained().out());
  EXPECT_EQ(state["global_step"], 40);
  EXPECT_FALSE(std::filesystem::exists(trained().out("optimizer.pt")));
  EXPECT_FALSE(std::filesystem::exists(trained().out("checkpoint-28")));  // save_total_limit: 2
  EXPECT_TRUE(std::filesystem::exists(trained().out("checkpoint-35/optimizer.pt")));
  const Json all = parse_json(read_file(trained().out("all_results.json")), "results");
  for (const char* name : {"train_loss", "eval_loss", "perplexity", "epoch", "train_samples"}) {
    EXPECT_TRUE(all.contains(name)) << name;
  }
}

TEST(TotalFlos, CountsSixForEachTokenAndParameterOutsideTheEmbeddings) {
  // As in transformers: 40 updates of 8 rows of 32 tokens; 18,572 parameters outside the
  // embeddings.
  EXPECT_EQ(trainer_state(trained().out())["total_flos"].get<double>(), 6.0 * 40 * 8 * 32 * 18572);
}

TEST(TensorBoard, GetsAnEventFilePerSession) {
  const TinyRun run(TinyRun::Keys{{"report_to", "tensorboard"}});
  run.train_until(5);
  EXPECT_EQ(run.train().code, 0);
  int events = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run.out("runs"))) {
    events += entry.path().filename().string().starts_with("events.out.tfevents");
  }
  EXPECT_EQ(events, 2);
}

TEST(TensorBoard, ThatCannotBeWrittenEndsNoTrainingThatHasBegun) {
  const TinyRun run(TinyRun::Keys{{"report_to", "tensorboard"}});
  run.train_until(5);
  std::filesystem::remove_all(run.out("runs"));
  write_file(run.out("runs"), "in the way");
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("not written for TensorBoard, training continues"));
}

TEST(Checkpoints, PrintTheSameFactsAsJson) {
  const ProcessResult result = finetune({"checkpoints", trained().out(), "--verify", "--json"});
  EXPECT_EQ(result.code, 0) << result.err;
  const Json json = parse_json(result.out, "checkpoints");
  ASSERT_FALSE(json.at("checkpoints").empty());
  for (const Json& entry : json.at("checkpoints")) {
    EXPECT_EQ(entry.at("state"), "valid");
    EXPECT_GT(entry.at("bytes").get<int64_t>(), 0);
  }
  EXPECT_EQ(json.at("checked"), "every byte");
  EXPECT_EQ(json.at("finished_model").at("valid"), true);
}

TEST(Doctor, PrintsTheSameFactsAsJson) {
  const ProcessResult result = finetune({"doctor", "--json"});
  const Json json = parse_json(result.out, "doctor");
  EXPECT_TRUE(json.at("facts").contains("libtorch"));
  EXPECT_EQ(result.code, json.at("problems").empty() ? 0 : 1);
}

TEST(Train, SaysWhereARunGoesWithoutOutputDir) {
  const TemporaryFolder folder;
  const TinyRun run;
  const ProcessResult result =
      finetune({"train", run.config(), "--output_dir", "null", "--max_steps", "1"},
               {.environment = {}, .folder = folder.path(), .watch = ""});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("written to 'trainer_output', the default of output_dir"));
  EXPECT_FALSE(std::filesystem::is_empty(folder / "trainer_output"));
}

TEST(Train, NamesAMissingModelBesideAnotherMistake) {
  const TemporaryFolder folder;
  const std::string config = folder.write(
      "run.yaml", "model_name_or_path: ./none\nmodel_type: bert\ntrain_file: none.txt\n");
  const ProcessResult result = finetune({"train", config, "--load_best_model_at_end"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("load_best_model_at_end"));
  EXPECT_THAT(result.err, HasSubstr("there is no folder '"));
}

}  // namespace
}  // namespace finetune::testing
