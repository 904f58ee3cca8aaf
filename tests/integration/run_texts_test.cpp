// SPDX-License-Identifier: MIT
// The output at the start and end of a run, the model card, and the advice after OOM.
#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> block_of(const std::string& text) {
  std::vector<std::string> block;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const bool begins = line.starts_with("  model     ");
    if (!begins && (block.empty() || !line.starts_with("  "))) {
      if (!block.empty()) break;
      continue;
    }
    block.push_back(line);
  }
  return block;
}

TEST(StartText, SaysInFewLinesWhatWasFoundAndWhereItWasSet) {
  const TinyRun run;
  const ProcessResult first = run.train({"--stop_at_step", "5", "--learning_rate", "2e-3"});
  ASSERT_EQ(first.code, 75) << first.err;
  const std::vector<std::string> block = block_of(first.err);
  EXPECT_GE(block.size(), 7U);
  EXPECT_LE(block.size(), 15U);
  EXPECT_THAT(
      first.err,
      ContainsRegex(
          "  model     a fresh roberta \\(run.yaml:[0-9]+\\), [0-9]+ parameters; task mlm\n"));
  EXPECT_THAT(first.err, ContainsRegex("  data      lighthouse.txt \\(run.yaml:[0-9]+\\): [0-9]+ "
                                       "samples; validation: [0-9]+ samples"));
  EXPECT_THAT(first.err, ContainsRegex("learning rate 0.002 \\(command line\\), linear"));
  EXPECT_THAT(first.err, HasSubstr("  starts    at step 0\n"));
  const ProcessResult second = run.train();
  EXPECT_THAT(second.err, ContainsRegex("  starts    at step 5 of 40, after .* in training\n"));
  EXPECT_THAT(second.err, ContainsRegex("  expected  [0-9.]+ (ms|s|min)\n"));
}

TEST(EndText, NamesCommandsThatWork) {
  const TinyRun run(
      TinyRun::Keys{{"max_steps", "4"}, {"metric_for_best_model", "loss"}, {"eval_steps", "2"}});
  const ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, ContainsRegex("best loss: [0-9.]+ at step [24]\n"));
  EXPECT_THAT(result.err, HasSubstr("AutoModelForMaskedLM.from_pretrained(\"" + run.out() + "\")"));
  EXPECT_THAT(result.err, HasSubstr("finetune predict " + run.out() + " --text"));
  EXPECT_EQ(finetune({"predict", run.out(), "--text", "the <mask> sea"}).code, 0);
  EXPECT_THAT(result.err, HasSubstr("finetune evaluate " + run.config()));
  EXPECT_EQ(finetune({"evaluate", run.config()}).code, 0);
}

// The line's command, run as a shell runs it.
ProcessResult run_command_of(const std::string& said, const std::string& name,
                             const TemporaryFolder& folder) {
  const size_t begin = said.find("\n  " + name + ":");
  EXPECT_NE(begin, std::string::npos) << name << ": " << said;
  const size_t end = said.find('\n', begin + 1);
  const size_t command = said.find("finetune ", begin);
  EXPECT_LT(command, end) << said;
  return run(
      {"bash", "-c", "finetune() { \"$BINARY\" \"$@\"; }; " + said.substr(command, end - command)},
      {.environment = {{"BINARY", binary_path()}}, .folder = folder.path(), .watch = ""});
}

TEST(EndText, NamesCommandsThatWorkForEveryTask) {
  const std::string small_gpt2 = "{n_layer: 2, n_head: 2, n_embd: 32, n_positions: 64}";
  const std::pair<std::string, TinyRun::Keys> tasks[] = {
      {"mlm", {}},
      {"clm", {{"model_type", "gpt2"}, {"config_overrides", small_gpt2}}},
      {"sequence_classification", {{"train_file", "weather"}}},
      {"multiple_choice", {{"train_file", "choices"}}},
      {"token_classification", {{"train_file", "names"}}},
      {"question_answering",
       {{"train_file", "cargo"},
        {"doc_stride", "8"},
        {"max_seq_length", "64"},
        {"config_overrides",
         "{num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 32, intermediate_size: 64, "
         "max_position_embeddings: 66, type_vocab_size: 1}"}}}};
  for (const auto& [task, more] : tasks) {
    TinyRun::Keys keys = more;
    if (const auto data = keys.find("train_file"); data != keys.end()) {
      const std::string start = kTasks + data->second;
      const std::string ending = task == "question_answering" ? ".json" : ".jsonl";
      keys["train_file"] = start + "-train" + ending;
      keys["validation_file"] = start + "-valid" + ending;
    }
    keys.insert({{"task", task}, {"max_steps", "2"}});
    const TinyRun training(keys);
    const TemporaryFolder folder;
    // A folder with a space, named on the command line alone.
    const std::string out = folder / "a model's folder";
    const ProcessResult trained = training.train({"--output_dir", out});
    ASSERT_EQ(trained.code, 0) << trained.err;
    EXPECT_LE(block_of(trained.err).size(), 15U);
    const ProcessResult predicted = run_command_of(trained.err, "predict", folder);
    EXPECT_EQ(predicted.code, 0) << task << predicted.err;
    EXPECT_TRUE(Json::accept(predicted.out)) << predicted.out;
    const ProcessResult evaluated = run_command_of(trained.err, "evaluate", folder);
    EXPECT_EQ(evaluated.code, 0) << task << evaluated.err;
    EXPECT_THAT(evaluated.err, HasSubstr("evaluating the trained model in '" + out + "'"));
    EXPECT_EQ(run_command_of(trained.err, "report", folder).code, 0) << task;
    EXPECT_TRUE(std::filesystem::exists(folder / "report.html"));
    EXPECT_THAT(trained.err, HasSubstr(".from_pretrained(\"" + out + "\")"));
  }
}

TEST(EndText, NamesTheBestOfSeveralEvaluations) {
  const TinyRun run(TinyRun::Keys{{"max_steps", "4"}, {"eval_steps", "2"}, {"save_steps", "2"}});
  const ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  std::map<double, int64_t> losses;
  const Json state = trainer_state(run.out());
  for (const Json& entry : state["log_history"]) {
    if (entry.contains("eval_loss")) losses[entry["eval_loss"]] = entry["step"];
  }
  ASSERT_EQ(losses.size(), 2U);
  const auto& [loss, step] = *losses.begin();
  EXPECT_THAT(result.err, ContainsRegex("best eval_loss: [0-9.]+ at step " + std::to_string(step)));
}

// Returns the last "train STEP/STEPS (N%)" of a log.
std::string last_progress(const std::string& log) {
  const size_t at = log.rfind("\ntrain ");
  return at == std::string::npos ? "" : log.substr(at + 1, log.find(')', at) - at);
}

TEST(EndText, LeavesProgressAtAHundredPercent) {
  const TinyRun run(TinyRun::Keys{{"max_steps", "7"}, {"save_steps", "3"}, {"eval_steps", "4"}});
  const ProcessResult stopped = run.train({"--stop_at_step", "5"});
  EXPECT_EQ(last_progress(stopped.err), "train 5/7 (71%)") << stopped.err;
  const ProcessResult resumed = run.train();
  EXPECT_EQ(last_progress(resumed.err), "train 7/7 (100%)") << resumed.err;
  const TinyRun epochs(
      TinyRun::Keys{{"max_steps", ""}, {"num_train_epochs", "1"}, {"max_train_samples", "30"}});
  const ProcessResult whole = epochs.train();
  EXPECT_EQ(last_progress(whole.err), "train 4/4 (100%)") << whole.err;
  const TinyRun early(TinyRun::Keys{{"max_steps", "40"},
                                    {"eval_steps", "2"},
                                    {"save_steps", "2"},
                                    {"greater_is_better", "true"},
                                    {"metric_for_best_model", "eval_loss"},
                                    {"load_best_model_at_end", "true"},
                                    {"early_stopping_patience", "1"}});
  const ProcessResult ended = early.train();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(last_progress(ended.err), "train 4/40 (10%)") << "stopped early, as the line says";
}

TEST(StartText, NamesThePlanCommandOfThisRun) {
  const TinyRun run(TinyRun::Keys{{"max_steps", "2"}});
  const ProcessResult result = run.train({"--learning_rate", "2e-3"});
  EXPECT_THAT(result.err, HasSubstr("before: " + finetune_command({}).front() + " plan " +
                                    run.config() + " --learning_rate "));
  EXPECT_THAT(result.err, ContainsRegex("--learning_rate 0.002[^\n]* --measure 3\n"));
}

TEST(StartText, OfAResumedRunHasFewLines) {
  const TinyRun run;
  run.train_until(5);
  const ProcessResult result = run.train({"--stop_at_step", "6"});
  ASSERT_EQ(result.code, 75) << result.err;
  const std::string before = result.err.substr(0, result.err.find("\ntrain "));
  EXPECT_LE(std::count(before.begin(), before.end(), '\n'), 14) << before;
  EXPECT_LE(block_of(result.err).size(), 8U);
  EXPECT_THAT(result.err, Not(HasSubstr("restored: ")));
  const ProcessResult detailed = run.train({"--stop_at_step", "7", "--log_level", "debug"});
  EXPECT_THAT(detailed.err, HasSubstr("restored: schedule"));
}

TEST(JsonProgress, HasStandardErrorForItself) {
  const TinyRun run(TinyRun::Keys{{"max_steps", "3"}});
  const ProcessResult result = run.train({"--progress", "json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const ProcessResult refused = run.train({"--progress", "json", "--no_such_key", "1"});
  EXPECT_EQ(refused.code, 2);
  std::map<std::string, int> events;
  std::istringstream lines(result.err + refused.err);
  for (std::string line; std::getline(lines, line);) {
    const Json entry = Json::parse(line, nullptr, false);
    ASSERT_TRUE(entry.is_object()) << line;
    const bool is_message = entry["event"] == "message";
    ++events[is_message ? entry["level"].get<std::string>() : entry["event"].get<std::string>()];
  }
  EXPECT_EQ(events["log"], 3);
  EXPECT_GT(events["info"], 5);
  EXPECT_EQ(events["error"], 1);
}

TEST(StartText, NamesTheColumns) {
  const TinyRun run(TinyRun::Keys{{"task", "multiple_choice"},
                                  {"train_file", kTasks + "choices-train.jsonl"},
                                  {"validation_file", kTasks + "choices-valid.jsonl"},
                                  {"label_column", "label"},
                                  {"max_steps", "1"}});
  EXPECT_THAT(run.train().err,
              ContainsRegex("; columns: context 'question', choices from 'choice0' to 'choice3', "
                            "label 'label' \\(run.yaml:[0-9]+\\)\n"));
}

TEST(EndText, HasDurationAndCost) {
  const TinyRun run(
      TinyRun::Keys{{"max_steps", "3"},
                    {"hardware", "{units_per_hour: 36000, price_per_unit: 2, currency: EUR}"}});
  const ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err,
              ContainsRegex("\nfinished 3 steps in [0-9.]+ m?s of training \\(1 session"));
  EXPECT_THAT(result.err, ContainsRegex("\n[0-9.]+ units \\([0-9.]+ EUR\\) spent\n"));
}

TEST(ModelCard, IsPartOfTheFinishedModelAndTheSameAfterAnInterruption) {
  const TinyRun unbroken_run(TinyRun::Keys{{"max_steps", "6"}});
  ASSERT_EQ(unbroken_run.train().code, 0);
  const std::string card = read_file(unbroken_run.out("README.md"));
  EXPECT_THAT(card, ContainsRegex("^---\nlibrary_name: transformers\npipeline_tag: fill-mask\n"));
  EXPECT_THAT(
      card,
      ContainsRegex("\n    - type: \"loss\"\n      name: \"eval_loss\"\n      value: [0-9.]+\n"));
  EXPECT_THAT(card, HasSubstr("- learning rate: 0.001, linear"));
  EXPECT_THAT(card, HasSubstr("- training data: lighthouse.txt\n"));
  EXPECT_THAT(card, Not(HasSubstr("runtime")));

  const TinyRun run(TinyRun::Keys{{"max_steps", "6"}});
  run.train_until(3);
  ASSERT_EQ(run.train().code, 0);
  EXPECT_EQ(read_file(run.out("README.md")), card);
}

TEST(ModelCard, IsTheUsersToEditAndDelete) {
  const std::string mirror_name = "mirror";
  TinyRun run(TinyRun::Keys{{"max_steps", "2"}, {"save_steps", "2"}});
  const std::string mirror = run.folder() / mirror_name;
  run.set({{"mirror_dir", mirror}});
  ASSERT_EQ(run.train().code, 0);
  const std::string edited = read_file(run.out("README.md")) + "\nTrained on my own texts.\n";
  const auto expect_untouched = [&] {
    const ProcessResult again = run.train();
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_THAT(again.err, HasSubstr("already finished"));
    EXPECT_THAT(again.err, Not(HasSubstr("warning")));
    EXPECT_EQ(finetune({"checkpoints", run.out(), "--verify"}).code, 0);
  };
  write_file(run.out("README.md"), edited);
  expect_untouched();
  EXPECT_EQ(read_file(run.out("README.md")), edited);
  EXPECT_EQ(read_file(mirror + "/README.md"), edited);
  // A damaged model is rebuilt, and the edited card stays.
  write_file(run.out("model.safetensors"), "damaged");
  std::filesystem::rename(mirror, mirror + "-away");
  ASSERT_EQ(run.train().code, 0);
  EXPECT_EQ(read_file(run.out("README.md")), edited);
  std::filesystem::remove(run.out("README.md"));
  expect_untouched();
  EXPECT_FALSE(std::filesystem::exists(run.out("README.md")));
}

TEST(ModelCard, LeavesTheUsersOwnAlone) {
  const TinyRun run(TinyRun::Keys{{"max_steps", "2"}});
  write_file(run.out("README.md"), "# Mine\n");
  ASSERT_EQ(run.train().code, 0);
  EXPECT_EQ(read_file(run.out("README.md")), "# Mine\n");
  EXPECT_THAT(read_file(run.out("manifest.json")), Not(HasSubstr("README.md")));
  const TinyRun without(TinyRun::Keys{{"max_steps", "2"}, {"model_card", "false"}});
  ASSERT_EQ(without.train().code, 0);
  EXPECT_FALSE(std::filesystem::exists(without.out("README.md")));
}

TEST(MemoryAdvice, NamesTheThreeChangesThatHelpMost) {
  const TinyRun run(
      TinyRun::Keys{{"per_device_train_batch_size", "1"},
                    {"gradient_accumulation_steps", "1"},
                    {"config_overrides",
                     "{num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 256, "
                     "intermediate_size: 1024, max_position_embeddings: 34, type_vocab_size: 1}"}});
  const ProcessOptions short_of_memory{
      .environment = {{"FINETUNE_TEST_ALLOCATION_LIMIT", "20000"}}, .folder = "", .watch = ""};
  const ProcessResult result = run.train({}, short_of_memory);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err,
              ContainsRegex("error: out of memory [^\n]*step[^\n]*\n  needed: about [0-9]+ MiB, "
                            "estimated with 1 sample at a time\n  attainable: [0-9]+ MiB\n"
                            "  settings that help, with the estimated peak of each alone:\n"
                            "(    [^\n]+ -> about [0-9]+ MiB\n){3}  set memory_budget"));
  const size_t begin = result.err.find("error: out of memory");
  std::istringstream lines(result.err.substr(begin));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
}

TEST(MemoryAdvice, SaysWhatTheProgramTriedAndIsGivenForStreamsToo) {
  // The weights fit, what a layer keeps of one sample does not.
  const ProcessOptions short_of_memory{
      .environment = {{"FINETUNE_TEST_ALLOCATION_LIMIT", "220000"}}, .folder = "", .watch = ""};
  const TinyRun::Keys keys = {
      {"max_seq_length", "64"},
      {"config_overrides",
       "{num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 32, intermediate_size: 1024, "
       "max_position_embeddings: 66, type_vocab_size: 1}"}};
  const TinyRun run(keys);
  const ProcessResult split = run.train({}, short_of_memory);
  EXPECT_EQ(split.code, 1);
  EXPECT_THAT(split.err, HasSubstr("step 1: out of memory; it is done again, and training "
                                   "continues, with 2 x 4 samples instead of 4 at a time"));
  EXPECT_THAT(split.err, HasSubstr("step 1: out of memory with 1 sample at a time, so the batch "
                                   "cannot be split further"));
  // The advice is about what failed, not about the batch that the keys ask for.
  EXPECT_THAT(split.err, HasSubstr("error: out of memory in step 1\n"));
  EXPECT_THAT(split.err, HasSubstr("estimated with 1 sample at a time"));
  TinyRun stream(keys);
  stream.set({{"streaming", "true"}, {"line_by_line", "true"}, {"pad_to_max_length", "true"}});
  const ProcessResult streamed = stream.train({}, short_of_memory);
  EXPECT_EQ(streamed.code, 1);
  EXPECT_THAT(streamed.err, HasSubstr("out of memory"));
  EXPECT_THAT(streamed.err, HasSubstr("set memory_budget, which cuts the batch"));
  EXPECT_THAT(streamed.err, Not(HasSubstr("internal error")));
}

}  // namespace
}  // namespace finetune::testing
