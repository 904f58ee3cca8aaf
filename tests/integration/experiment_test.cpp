// SPDX-License-Identifier: MIT
// Whether a command belongs to the run in the folder: another experiment is refused, finished or
// not, and the same experiment is recognised wherever its files are.
#include <functional>

#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

const TinyRun::Keys kShort = {{"max_steps", "6"}, {"eval_steps", "3"}, {"save_steps", "3"}};

TinyRun::Keys six_steps(const TinyRun::Keys& more) {
  TinyRun::Keys keys = kShort;
  for (const auto& [key, value] : more) keys[key] = value;
  return keys;
}

// Returns names and bytes of every file below a folder except the lock.
std::map<std::string, std::string> contents_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().string();
    if (entry.is_regular_file() && name.find(".finetune.lock") == std::string::npos) {
      files[name] = read_file(name);
    }
  }
  return files;
}

void expect_already_finished(const TinyRun& run, const Arguments& more = {},
                             const std::string& part = "already finished") {
  const ProcessResult result = run.train(more);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("already finished"));
  EXPECT_THAT(result.err, HasSubstr(part));
  EXPECT_THAT(result.err, Not(HasSubstr("warning")));
}

// Expects a message with all of `parts`, and no change in the folder.
void expect_refused(const TinyRun& run, const Arguments& more,
                    const std::vector<std::string>& parts) {
  const auto before = contents_of(run.out());
  const ProcessResult result = run.train(more);
  EXPECT_EQ(result.code, 2) << result.err;
  for (const std::string& part : parts) EXPECT_THAT(result.err, HasSubstr(part));
  EXPECT_THAT(result.err, Not(HasSubstr("nothing to do")));
  EXPECT_TRUE(contents_of(run.out()) == before);
}

// Writes a file into a subfolder of the run's folder.
std::string write_below(const TinyRun& run, const std::string& name, const std::string& content) {
  fs::create_directories(fs::path(run.folder() / name).parent_path());
  return run.folder().write(name, content);
}

// Writes a copy of the text with an additional line.
std::string other_text(const TinyRun& run) {
  return run.folder().write("other.txt", read_file(kText + "lighthouse.txt") + "One more line.\n");
}

// The best model is the best of all evaluations, so all must be of the same samples.
TEST(UnfinishedFolder, RefusesOtherValidationLabelsOnlyWhereEvaluationsAreCompared) {
  TinyRun run(six_steps({{"task", "sequence_classification"},
                         {"load_best_model_at_end", "true"},
                         {"metric_for_best_model", "eval_loss"}}));
  std::string rows = "sentence,label\n";
  for (int i = 0; i < 24; ++i) rows += "The lamp " + std::to_string(i) + ",yes\nA boat,no\n";
  const std::string train = run.folder().write("train.csv", rows);
  const std::string validation = run.folder().write("validation.csv", rows);
  run.set({{"train_file", train}, {"validation_file", validation}});
  const ProcessResult stopped = run.train({"--stop_at_step", "3"});
  ASSERT_EQ(stopped.code, 75) << stopped.err;
  std::string other = rows;
  other.replace(other.rfind(",no"), 3, ",yes");
  run.folder().write("validation.csv", other);
  expect_refused(run, {}, {"the validation data have changed since", "the best model is chosen"});
  const ProcessResult last = run.train({"--load_best_model_at_end", "false"});
  EXPECT_EQ(last.code, 0) << last.err;
  EXPECT_THAT(last.err, HasSubstr("eval_loss before and after do not compare"));
}

TEST(FinishedFolder, RefusesEveryOtherExperimentWithBothValues) {
  const TinyRun run(kShort);
  ASSERT_EQ(run.train().code, 0);
  expect_refused(run, {"--seed", "7"}, {"seed is 7", "began with 42", "--restart"});
  expect_refused(run, {"--data_seed", "7"}, {"data_seed is 7", "began without it"});
  expect_refused(run, {"--task", "sequence_classification"},
                 {"task is sequence_classification", "began with mlm"});
  expect_refused(run, {"--max_seq_length", "16"}, {"max_seq_length is 16", "began with 32"});
  expect_refused(run, {"--line_by_line", "true"}, {"line_by_line is true", "began with false"});
  expect_refused(run, {"--max_train_samples", "9"}, {"max_train_samples is 9", "began without it"});
  expect_refused(run, {"--validation_split_percentage", "9"},
                 {"validation_split_percentage is 9", "began with 5"});
  expect_refused(run, {"--model_type", "bert"}, {"model_type is bert", "began with roberta"});
  expect_refused(run, {"--config_overrides", "num_hidden_layers=1"}, {"config_overrides is"});
  const std::string other = other_text(run);
  expect_refused(run, {"--train_file", other}, {other, "lighthouse.txt", "content hash"});
  expect_refused(run, {"--train_file", run.folder() / "none.txt"},
                 {"none.txt", "is missing or empty", "lighthouse.txt"});
  const std::string tokenizer = run.folder() / "tokenizer";
  ASSERT_EQ(finetune({"tokenizer", "train", "--type", "byte_level_bpe", "--vocab_size", "300",
                      "--output", tokenizer, kText + "lighthouse-valid.txt"})
                .code,
            0);
  expect_refused(run, {"--tokenizer_name", tokenizer}, {"tokenizer", "then", "now"});
  expect_refused(run, {"--tokenizer_name", run.folder() / "none"}, {"none", "is missing or empty"});
  // More steps of another experiment neither train nor remove the mark that this one is finished.
  expect_refused(run, {"--max_steps", "9", "--seed", "7"}, {"seed is 7"});
  expect_refused(run, {"--max_steps", "9", "--train_file", other}, {other});
  expect_already_finished(run);
}

TEST(OtherData, AreRefusedWithTheColumnsAndLabelsThatDiffer) {
  TinyRun run(six_steps({{"task", "sequence_classification"},
                         {"validation_file", ""},
                         {"eval_strategy", "\"no\""},
                         {"eval_steps", ""}}));
  std::string rows = "text,other,label\n";
  for (int i = 0; i < 12; ++i) {
    rows += "It is day " + std::to_string(i) + ",night " + std::to_string(i) + "," +
            (i % 2 == 0 ? "calm" : "rough") + "\n";
  }
  run.set({{"train_file", run.folder().write("days.csv", rows)}, {"text_column", "text"}});
  run.train_until(3);
  for (const bool is_finished : {false, true}) {
    if (is_finished) {
      ASSERT_EQ(run.train().code, 0);
    }
    expect_refused(run, {"--text_column", "other"},
                   {"the training data are not those that", "text_column was text and is other"});
    expect_refused(run, {"--label_column", "other"},
                   {"the labels are not those that", "'calm', 'rough' then",
                    "and 7 more now; check train_file and label_column"});
    expect_refused(run, {"--task", "multiple_choice"}, {"it may not change within a run"});
  }
}

TEST(FinishedFolder, WarnsOnceOfKeysThatMayChange) {
  const TinyRun run(kShort);
  ASSERT_EQ(run.train().code, 0);
  const ProcessResult result = run.train({"--learning_rate", "5e-4", "--weight_decay", "0.1"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("not applied, because the run is finished: "));
  EXPECT_EQ(result.err.find("warning"), result.err.rfind("warning")) << result.err;
  EXPECT_THAT(result.err, HasSubstr("nothing to do"));
}

TEST(FinishedFolder, RecognisesItsDataByContent) {
  TinyRun run(kShort);
  const std::string data = run.folder().write("data.txt", read_file(kText + "lighthouse.txt"));
  run.set({{"train_file", data}});
  ASSERT_EQ(run.train().code, 0);
  fs::last_write_time(data, fs::last_write_time(data) + std::chrono::hours(1));
  expect_already_finished(run);
  const std::string moved = run.folder() / "moved.txt";
  fs::rename(data, moved);
  const ProcessResult result = run.train({"--train_file", moved});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("tokenise")));  // compared by bytes alone
  // In two files the bytes of each differ, but the samples are the same.
  const std::string text = read_file(moved);
  const size_t half = text.find('\n', text.size() / 2) + 1;
  write_below(run, "parts/1.txt", text.substr(0, half));
  write_below(run, "parts/2.txt", text.substr(half));
  expect_already_finished(run, {"--train_file", run.folder() / "parts/*.txt"});
}

TEST(FinishedFolder, SaysWhatIsNoLongerThereAndIsStillFinished) {
  TinyRun run(kShort);
  const std::string data = run.folder().write("data.txt", read_file(kText + "lighthouse.txt"));
  const std::string tokenizer = run.folder() / "tokenizer";
  fs::copy(tiny_tokenizer(), tokenizer);
  run.set({{"train_file", data}, {"tokenizer_name", tokenizer}});
  ASSERT_EQ(run.train().code, 0);
  fs::remove(data);
  expect_already_finished(run, {}, "not on this machine: train_file '" + data + "'");
  fs::remove_all(tokenizer);
  expect_already_finished(run, {}, "tokenizer_name '" + tokenizer + "'");
  // Without its tokenizer, different data are still detected.
  run.folder().write("data.txt", "Something else.\n");
  expect_refused(run, {}, {"train_file", "data.txt", "content hash"});
}

TEST(FinishedFolder, IsRecognisedOnAMachineThatHasTheMirrorAlone) {
  TinyRun run(kShort);
  const std::string data = write_below(run, "here/data.txt", read_file(kText + "lighthouse.txt"));
  run.set({{"train_file", data}, {"mirror_dir", run.folder() / "mirror"}});
  ASSERT_EQ(run.train().code, 0);
  fs::remove_all(run.out());
  fs::remove_all(run.folder() / "cache");
  fs::remove_all(run.folder() / "here");
  run.set({{"train_file", run.folder() / "there/data.txt"}});
  expect_already_finished(run, {}, "not on this machine: train_file");
  expect_refused(run, {"--seed", "7"}, {"seed is 7"});
}

// Another experiment with this run's mirror: nothing is copied, nothing changes.
void expect_mirror_refused(const TinyRun& run, const Arguments& more,
                           const std::vector<std::string>& parts) {
  const std::string mirror = run.folder() / "mirror";
  const std::string out = run.folder() / "second";
  const auto before = contents_of(mirror);
  Arguments words = {"--output_dir", out};
  words.insert(words.end(), more.begin(), more.end());
  const ProcessResult result = run.train(words);
  EXPECT_EQ(result.code, 2) << result.err;
  for (const std::string& part : parts) EXPECT_THAT(result.err, HasSubstr(part));
  EXPECT_THAT(result.err, HasSubstr(mirror));
  EXPECT_THAT(result.err, HasSubstr("name another mirror_dir"));
  EXPECT_THAT(result.err, Not(HasSubstr("another output_dir")));
  EXPECT_THAT(result.err, Not(HasSubstr("restored from")));
  EXPECT_THAT(contents_of(out), ::testing::IsEmpty());
  EXPECT_TRUE(contents_of(mirror) == before);
}

TEST(MirrorOfAnotherRun, IsRefusedBeforeAnythingIsCopied) {
  TinyRun run(kShort);
  run.set({{"mirror_dir", run.folder() / "mirror"}});
  const std::string other = other_text(run);
  run.train_until(2);
  for (const bool is_finished : {false, true}) {
    SCOPED_TRACE(is_finished);
    if (is_finished) {
      ASSERT_EQ(run.train().code, 0);
    }
    expect_mirror_refused(run, {"--seed", "7"}, {"seed is 7", "began with 42"});
    expect_mirror_refused(run, {"--train_file", other}, {other, "content hash"});
    expect_mirror_refused(run, {"--max_steps", "9", "--max_seq_length", "16"},
                          {"max_seq_length is 16"});
    // Starting over is no permission to rename the checkpoints of another run.
    expect_mirror_refused(run, {"--seed", "7", "--restart"}, {"seed is 7", "began with 42"});
    expect_mirror_refused(run, {"--seed", "7", "--resume_from_checkpoint", "none"}, {"seed is 7"});
    expect_mirror_refused(run, {"--train_file", other, "--restart"}, {other, "content hash"});
    // The command of the run itself is at home there.
    const std::string third = run.folder() / (is_finished ? "third" : "unfinished");
    const ProcessResult own = run.train({"--output_dir", third, "--stop_at_step", "3"});
    EXPECT_EQ(own.code, is_finished ? 0 : 75) << own.err;
    EXPECT_THAT(own.err, HasSubstr("restored from"));
  }
}

TEST(MirrorOfAnotherRun, IsRefusedByAFolderWithARunOfItsOwn) {
  const TinyRun other(kShort);  // the same experiment, but another run
  const std::string mirror = other.folder() / "mirror";
  ASSERT_EQ(other.train({"--mirror_dir", mirror, "--stop_at_step", "5"}).code, 75);
  const TinyRun run(kShort);
  run.train_until(2);
  const auto theirs = contents_of(mirror);
  const auto ours = contents_of(run.out());
  for (const Arguments& more : {Arguments{}, Arguments{"--restart"}}) {
    Arguments words = {"--mirror_dir", mirror};
    words.insert(words.end(), more.begin(), more.end());
    const ProcessResult result = run.train(words);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr("mirror_dir: '" + mirror + "' holds another run than"));
    EXPECT_THAT(result.err, HasSubstr("checkpoint-5 is of run "));
    EXPECT_TRUE(contents_of(mirror) == theirs);
    EXPECT_TRUE(contents_of(run.out()) == ours);
  }
  // A mirror that has known an earlier run of the folder is its own.
  const std::string own = run.folder() / "own";
  ASSERT_EQ(run.train({"--mirror_dir", own, "--stop_at_step", "3"}).code, 75);
  ASSERT_EQ(run.train({"--restart", "--stop_at_step", "2"}).code, 75);
  const ProcessResult again = run.train({"--mirror_dir", own, "--restart"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_TRUE(fs::exists(own + "/checkpoint-3.old-1"));
}

// One digit less is valid JSON that names a run nobody has; the checksum says that it is damage.
TEST(MirrorOfAnotherRun, IsNotWhatADamagedStateSays) {
  const TinyRun run(kShort);
  const std::string mirror = run.folder() / "mirror";
  ASSERT_EQ(run.train({"--mirror_dir", mirror}).code, 0);
  const std::string state = mirror + "/finetune_state.json";
  const std::string good = read_file(state);
  std::string damaged = good;
  damaged.erase(damaged.find("\"run_id\"") + 12, 1);
  write_file(state, damaged);
  const ProcessResult result = run.train({"--mirror_dir", mirror});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(read_file(state), good);
  // Without the output folder, the mirror's checkpoints finish the run again.
  fs::remove_all(run.out());
  write_file(state, damaged);
  const ProcessResult restored = run.train({"--mirror_dir", mirror});
  EXPECT_EQ(restored.code, 0) << restored.err;
  EXPECT_THAT(restored.err, HasSubstr("restored from"));
}

TEST(MirrorOfAnotherRun, IsLeftAloneWhereItIsReachedLater) {
  const TinyRun other(kShort);
  const std::string mirror = other.folder() / "drive/run";
  ASSERT_EQ(other.train({"--mirror_dir", mirror}).code, 0);
  const auto before = contents_of(mirror);
  fs::rename(other.folder() / "drive", other.folder() / "away");
  write_file(other.folder() / "drive", "not mounted");
  const TinyRun run(TinyRun::Keys{{"seed", "7"}, {"mirror_dir", mirror}});
  Process process(run.command({"--restart"}), {.environment = {}, .folder = "", .watch = ""});
  ASSERT_TRUE(process.wait_for_output("train 10/40"));
  fs::remove(other.folder() / "drive");
  fs::rename(other.folder() / "away", other.folder() / "drive");
  const ProcessResult result = process.finish();
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("'" + mirror + "' holds another run"));
  EXPECT_THAT(result.err, HasSubstr("lacks what"));
  EXPECT_TRUE(contents_of(mirror) == before);
}

TEST(FinishedFolder, RefusesOtherColumnsOfTheSameFile) {
  TinyRun run(six_steps(
      {{"task", "sequence_classification"}, {"validation_file", ""}, {"eval_strategy", "no"}}));
  std::string rows;
  for (int i = 0; i < 40; ++i) {
    rows += R"({"title": "the )" + std::to_string(i) + R"( sea", "body": "a lamp )" +
            std::to_string(i * 7) + R"(", "label": ")" + (i % 2 == 0 ? "up" : "down") + "\"}\n";
  }
  run.set({{"train_file", run.folder().write("rows.jsonl", rows)}, {"text_column", "title"}});
  ASSERT_EQ(run.train().code, 0);
  expect_refused(run, {"--text_column", "body"}, {"training data", "then", "now"});
  expect_already_finished(run);
}

TEST(FinishedFolder, RefusesAnotherReadingOfTheSameFile) {
  TinyRun run(six_steps(
      {{"task", "sequence_classification"}, {"validation_file", ""}, {"eval_strategy", "no"}}));
  std::string rows = "text,label\n";
  for (int i = 0; i < 40; ++i) {
    rows += "\"the sea " + std::to_string(i) + "\"," + (i % 2 == 0 ? "up" : "down") + "\n";
  }
  run.set({{"train_file", run.folder().write("rows.csv", rows)}});
  ASSERT_EQ(run.train().code, 0);
  expect_refused(run, {"--quoting", "none"}, {"training data", "then", "now"});
  expect_already_finished(run);
}

// Returns a model folder that a run with this seed creates once.
std::string model_folder(const TinyRun& run, const std::string& name, const std::string& seed) {
  const std::string out = run.folder() / ("made-" + name);
  const TinyRun maker(six_steps({{"seed", seed}, {"output_dir", out}, {"max_steps", "1"}}));
  EXPECT_EQ(maker.train().code, 0);
  const std::string folder = run.folder() / name;
  fs::create_directories(folder);
  for (const char* file : {"config.json", "model.safetensors", "tokenizer.json"}) {
    fs::copy(out + "/" + file, folder + "/" + file);
  }
  return folder;
}

TinyRun::Keys from_model(const std::string& model) {
  return six_steps({{"model_type", ""},
                    {"config_overrides", ""},
                    {"tokenizer_name", ""},
                    {"model_name_or_path", model}});
}

TEST(StartingModel, IsComparedByTheContentOfItsWeights) {
  TinyRun run(kShort);
  const std::string model = model_folder(run, "model", "1");
  const std::string other = model_folder(run, "other", "2");  // of the same shape
  run.set(from_model(model));
  run.train_until(2);
  for (const bool is_finished : {false, true}) {
    SCOPED_TRACE(is_finished);
    expect_refused(run, {"--model_name_or_path", other},
                   {"model_name_or_path", "'" + other + "'", "'" + model + "'", "content hash"});
    expect_refused(run, {"--model_name_or_path", run.folder() / "none"},
                   {"none", "is missing or empty", "'" + model + "'"});
    const std::string elsewhere = run.folder() / "elsewhere";
    fs::rename(model, elsewhere);
    const ProcessResult moved =
        run.train({"--model_name_or_path", elsewhere, "--stop_at_step", "3"});
    EXPECT_EQ(moved.code, is_finished ? 0 : 75) << moved.err;
    fs::rename(elsewhere, model);
    EXPECT_EQ(run.train().code, 0);
  }
  // The weight file changes in place.
  fs::copy(other + "/model.safetensors", model + "/model.safetensors",
           fs::copy_options::overwrite_existing);
  expect_refused(run, {}, {"model_name_or_path", "content hash"});
}

TEST(StartingModel, MayBeGoneOnceThereIsACheckpoint) {
  TinyRun whole(kShort);
  const std::string model = model_folder(whole, "model", "1");
  whole.set(from_model(model));
  ASSERT_EQ(whole.train().code, 0);
  TinyRun run(kShort);
  run.set(from_model(model));
  run.train_until(2);
  fs::rename(model, model + "-away");
  const ProcessResult resumed = run.train();
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("is not on this machine"));
  EXPECT_TRUE(read_file(run.out("model.safetensors")) == read_file(whole.out("model.safetensors")));
  expect_already_finished(run, {}, "not on this machine: model_name_or_path '" + model + "'");
  const ProcessResult fresh = run.train({"--restart"});
  EXPECT_EQ(fresh.code, 2) << fresh.err;
  EXPECT_THAT(fresh.err, HasSubstr("there is no folder"));
}

TEST(StartingModel, IsNoFreshOne) {
  TinyRun run(kShort);
  const std::string model = model_folder(run, "model", "1");
  run.train_until(2);
  expect_refused(run, {"--model_name_or_path", model, "--config_overrides", ""},
                 {"config_overrides"});
  run.set({{"config_overrides", ""},
           {"model_type", ""},
           {"output_dir", run.folder() / "second"},
           {"config_name", model}});
  ASSERT_EQ(run.train({"--stop_at_step", "2"}).code, 75);
  const ProcessResult result = run.train({"--model_name_or_path", model});
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("a fresh model"));
}

TEST(StartingModel, IsNeverTheFolderThatIsWritten) {
  TinyRun run(kShort);
  const std::string model = model_folder(run, "model", "1");
  run.set(from_model(model));
  fs::create_directory_symlink("model", run.folder() / "link");
  const auto before = contents_of(model);
  for (const std::string& folder :
       {model, run.folder() / "link", run.folder() / "none/../model", model + "/"}) {
    for (const char* key : {"--output_dir", "--mirror_dir"}) {
      const ProcessResult result = run.train({key, folder});
      EXPECT_EQ(result.code, 2) << key << " " << folder << result.err;
      EXPECT_THAT(result.err, HasSubstr("is the folder of model_name_or_path '" + model + "'"));
    }
  }
  EXPECT_TRUE(contents_of(model) == before);
  EXPECT_FALSE(fs::exists(model + "/.finetune.lock"));
  // Evaluating a model in its own folder writes only results.
  const ProcessResult evaluated =
      run.train({"--output_dir", model, "--do_train", "false", "--do_eval", "true"});
  EXPECT_EQ(evaluated.code, 0) << evaluated.err;
  EXPECT_TRUE(read_file(model + "/model.safetensors") == before.at(model + "/model.safetensors"));
}

TEST(ConfigName, GivesTheConfigurationOfTheModelWhoseWeightsAreLoaded) {
  TinyRun run(kShort);
  const std::string model = model_folder(run, "model", "1");
  Json config = parse_json(read_file(model + "/config.json"), "config.json");
  config["hidden_dropout_prob"] = 0.0;
  write_below(run, "changed/config.json", config.dump());
  run.set(from_model(model));
  run.set({{"config_name", run.folder() / "changed"}});
  ASSERT_EQ(run.train({"--stop_at_step", "2"}).code, 75);
  ASSERT_EQ(run.train().code, 0);
  const Json written = parse_json(read_file(run.out("config.json")), "config.json");
  EXPECT_EQ(written["hidden_dropout_prob"], 0.0);
  expect_already_finished(run);
  run.set({{"config_name", ""}});
  expect_refused(run, {}, {"hidden_dropout_prob was 0.0 and is now 0.1"});

  config["max_position_embeddings"] = 66;
  write_below(run, "larger/config.json", config.dump());
  const std::string second = run.folder() / "second";
  const Arguments larger = {"--config_name", run.folder() / "larger", "--output_dir", second};
  const ProcessResult result = run.train(larger);
  EXPECT_EQ(result.code, 2) << result.err;
  for (const std::string& part :
       {std::string("'" + (run.folder() / "larger") + "'"), "'" + model + "'",
        std::string("position_embeddings.weight [34, 32] instead of [66, 32]")}) {
    EXPECT_THAT(result.err, HasSubstr(part));
  }
  Arguments fresh = larger;
  fresh.insert(fresh.end(), {"--ignore_mismatched_sizes", "true"});
  EXPECT_EQ(run.train(fresh).code, 0);
  EXPECT_EQ(parse_json(read_file(second + "/config.json"), "")["max_position_embeddings"], 66);
}

// Another model of the same name: nothing says that it is the one that the run began with.
TEST(StartingModel, ThatIsMissingIsNotRecognisedByItsLastName) {
  TinyRun run(kShort);
  const std::string model = model_folder(run, "first/model", "1");
  run.set(from_model(model));
  ASSERT_EQ(run.train().code, 0);
  fs::rename(model, run.folder() / "gone");
  expect_already_finished(run, {}, "not on this machine: model_name_or_path '" + model + "'");
  const std::string other = run.folder() / "second/model";
  expect_refused(run, {"--model_name_or_path", other},
                 {"'" + other + "', which is missing or empty", "'" + model + "'"});
}

}  // namespace
}  // namespace finetune::testing
