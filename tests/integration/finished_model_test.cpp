// SPDX-License-Identifier: MIT
// A finished run that is started again: its model is verified, repaired or refused.
#include <sys/stat.h>

#include <sstream>

#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class FinishedRun : public TinyRun {
 public:
  explicit FinishedRun(const Keys& keys = {}) {
    set({{"max_steps", "12"}, {"save_steps", "6"}, {"eval_steps", "6"}});
    set(keys);
    const ProcessResult result = train();
    EXPECT_EQ(result.code, 0) << result.err;
    model_ = read_file(out("model.safetensors"));
  }

  [[nodiscard]] const std::string& model() const { return model_; }  // as trained
 private:
  std::string model_;
};

void flip(const std::string& path) {
  std::string bytes = read_file(path);
  bytes[bytes.size() / 2] ^= 4;
  write_file(path, bytes);
}

ProcessResult verify(const TinyRun& run) {
  return finetune({"checkpoints", run.out(), "--verify"});
}

void expect_finished(const ProcessResult& result) {
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("already finished"));
  EXPECT_THAT(result.err, Not(HasSubstr("warning")));
}

class MirroredFinishedRun : public TinyRun {
 public:
  MirroredFinishedRun() {
    set({{"max_steps", "12"}, {"save_steps", "6"}, {"eval_steps", "6"}, {"mirror_dir", mirror()}});
    const ProcessResult result = train();
    EXPECT_EQ(result.code, 0) << result.err;
    model_ = read_file(out("model.safetensors"));
  }
  [[nodiscard]] std::string mirror() const { return folder() / "mirror"; }
  [[nodiscard]] std::string mirror(const std::string& name) const { return mirror() + "/" + name; }
  void expect_both_good() const {
    EXPECT_TRUE(read_file(out("model.safetensors")) == model_);
    EXPECT_TRUE(read_file(mirror("model.safetensors")) == model_);
    const ProcessResult verified = verify(*this);
    EXPECT_EQ(verified.code, 0) << verified.out;
  }

 private:
  std::string model_;
};

TEST(FinishedModel, IsRestoredFromTheMirrorAndNeverOverwritesIt) {
  const MirroredFinishedRun run;
  for (const bool is_cut : {true, false}) {
    const std::string path = run.out("model.safetensors");
    if (is_cut) {
      std::filesystem::resize_file(path, 1000);
    } else {
      flip(path);
    }
    EXPECT_EQ(verify(run).code, 3);
    const ProcessResult result = run.train();
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("warning: restored '" + path + "' from the mirror"));
    EXPECT_THAT(result.err, HasSubstr("already finished"));
    run.expect_both_good();
    EXPECT_TRUE(std::filesystem::exists(path + (is_cut ? ".bad-1" : ".bad-2")));
  }
  expect_finished(run.train());
}

TEST(FinishedModel, KeepsTheMirrorsLogsAndCardWhereTheLocalOnesAreDamaged) {
  const MirroredFinishedRun run;
  for (const char* name : {"README.md"}) {
    const std::string good = read_file(run.mirror(name));
    flip(run.out(name));
    const ProcessResult result = run.train();
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("'" + run.out(name) + "' differs from the copy '" +
                                      run.mirror(name) + "'"));
    EXPECT_THAT(result.err, HasSubstr("has everything"));
    EXPECT_TRUE(read_file(run.mirror(name)) == good) << name;
    write_file(run.out(name), good);
  }
  expect_finished(run.train());
}

// A file whose last blocks were never written, as some file systems leave it after a power cut.
void lose_blocks(const std::string& path) {
  std::string bytes = read_file(path);
  for (size_t i = bytes.size() / 2; i + 3 < bytes.size(); ++i) bytes[i] = '\0';
  write_file(path, bytes);
}

TEST(FinishedModel, RestoresLogsThatAPowerCutDamagedFromTheMirror) {
  const MirroredFinishedRun run;
  for (const char* name : {"metrics.jsonl", "sessions.jsonl"}) {
    const std::string good = read_file(run.mirror(name));
    lose_blocks(run.out(name));
    const ProcessResult result = run.train();
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("damaged lines: it is restored from '" + run.mirror()));
    EXPECT_TRUE(read_file(run.out(name)) == good) << name;
    EXPECT_TRUE(read_file(run.mirror(name)) == good) << name;
  }
  expect_finished(run.train());
}

TEST(FinishedModel, RepairsLogsThatAPowerCutDamaged) {
  const FinishedRun run;
  const auto steps = [&] {
    std::vector<Json> found;
    std::istringstream lines(read_file(run.out("metrics.jsonl")));
    for (std::string line; std::getline(lines, line);) {
      const Json json = parse_json(line, "metrics.jsonl", ErrorKind::kData, {.allow_nan = true});
      found.push_back(json.value("loss", Json()));
    }
    return found;
  };
  const std::vector<Json> before = steps();
  lose_blocks(run.out("metrics.jsonl"));
  lose_blocks(run.out("sessions.jsonl"));
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("they are replaced or left out"));
  EXPECT_EQ(steps(), before);
  expect_finished(run.train());
  // A damaged line costs no other line its time.
  const std::string whole = read_file(run.out("metrics.jsonl"));
  write_file(run.out("metrics.jsonl"), "\xff" + whole);
  EXPECT_EQ(run.train().code, 0);
  EXPECT_EQ(steps(), before);
  const std::string repaired = read_file(run.out("metrics.jsonl"));
  EXPECT_EQ(repaired.substr(repaired.find('\n')), whole.substr(whole.find('\n')));
  for (const bool is_deleted : {false, true}) {
    write_file(run.out("metrics.jsonl"), "");
    if (is_deleted) std::filesystem::remove(run.out("metrics.jsonl"));
    EXPECT_THAT(run.train().err, HasSubstr("was empty or missing"));
    EXPECT_EQ(steps(), before);
  }
  expect_finished(run.train());
}

TEST(FinishedModel, WithAnotherTypeInItsLogIsRefusedBeforeTraining) {
  TinyRun run(TinyRun::Keys{{"max_steps", "6"}, {"save_steps", "3"}, {"eval_steps", "3"}});
  run.train_until(3);
  // A checkpoint with valid checksums and an object where a number belongs.
  const std::string folder = run.out("checkpoint-3");
  Json state = trainer_state(folder);
  state["log_history"][0]["step"] = Json::object();
  write_file(folder + "/trainer_state.json", state.dump());
  std::filesystem::remove(folder + "/manifest.json");
  std::filesystem::remove(folder + "/finetune_state.json");  // as of transformers' Trainer
  const ProcessResult result = run.train();
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("log_history"));
  EXPECT_THAT(result.err, Not(HasSubstr("internal error")));
}

TEST(FinishedModel, IsRestoredWhereSomethingElseThanAFileIsInItsPosition) {
  const MirroredFinishedRun run;
  for (const char* name : {"finetune_state.json", "manifest.json", "model.safetensors"}) {
    std::filesystem::remove(run.out(name));
    ASSERT_EQ(::mkfifo(run.out(name).c_str(), 0600), 0);
    const ProcessResult result = run.train();
    EXPECT_EQ(result.code, 0) << name << "\n" << result.err;
    EXPECT_THAT(result.err, HasSubstr("already finished"));
    run.expect_both_good();
  }
  expect_finished(run.train());
}

TEST(FinishedModel, InTheMirrorIsComparedByContentAndRepaired) {
  const MirroredFinishedRun run;
  for (const char* name : {"model.safetensors", "checkpoint-12/optimizer.pt", "manifest.json"}) {
    flip(run.mirror(name));
    const ProcessResult verified = verify(run);
    EXPECT_EQ(verified.code, 3) << verified.out;
    const ProcessResult result = run.train();
    EXPECT_EQ(result.code, 0) << result.err;
    run.expect_both_good();
  }
  flip(run.mirror("model.safetensors"));
  std::filesystem::remove_all(run.out());
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rebuilding the model from"));
  run.expect_both_good();
}

TEST(FinishedModel, IsRebuiltFromTheLastCheckpointWithoutAMirror) {
  const FinishedRun run(TinyRun::Keys{{"save_steps", "5"}});  // the last one is before the end
  for (const char* name : {"model.safetensors", "config.json", "trainer_state.json",
                           "all_results.json", "manifest.json", "finetune_state.json"}) {
    if (name == std::string("config.json")) {
      flip(run.out(name));
    } else {
      std::filesystem::remove(run.out(name));
    }
    EXPECT_EQ(verify(run).code, 3) << name;
    const ProcessResult result = run.train();
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("'" + run.out(name) + "'"));
    EXPECT_TRUE(read_file(run.out("model.safetensors")) == run.model()) << name;
    EXPECT_EQ(verify(run).code, 0) << name;
  }
  expect_finished(run.train());
}

// The best checkpoint, from which the model came, is gone as well: what is left makes another one.
TEST(FinishedModel, IsNotReplacedByAnotherOneWhereItIsWhole) {
  const FinishedRun run(TinyRun::Keys{{"save_steps", "2"},
                                      {"eval_steps", "2"},
                                      {"save_total_limit", ""},
                                      {"greater_is_better", "true"},  // the first one
                                      {"load_best_model_at_end", "true"}});
  const auto state = nlohmann::json::parse(read_file(run.out("trainer_state.json")));
  const int64_t best = state["best_global_step"];
  ASSERT_LT(best, state["global_step"]);
  std::filesystem::remove_all(run.out("checkpoint-" + std::to_string(best)));
  std::filesystem::remove(run.out("all_results.json"));
  flip(run.out("eval_results.json"));
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the model is complete and is kept without all_results.json, "
                                    "eval_results.json: finetune evaluate"));
  EXPECT_TRUE(read_file(run.out("model.safetensors")) == run.model());
  EXPECT_FALSE(std::filesystem::exists(run.out("eval_results.json")));
  EXPECT_EQ(verify(run).code, 0);
  expect_finished(run.train());

  // With a damaged file of the model there is nothing to keep.
  flip(run.out("config.json"));
  for (int i = 0; i < 2; ++i) {
    const ProcessResult refused = run.train();
    EXPECT_EQ(refused.code, 3) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("so nothing was replaced"));
    EXPECT_TRUE(read_file(run.out("model.safetensors")) == run.model());
  }
}

TEST(FinishedModel, IsNotRebuiltWithOtherKeys) {
  const FinishedRun run(TinyRun::Keys{{"save_steps", "5"}});
  std::filesystem::remove(run.out("model.safetensors"));
  std::filesystem::remove_all(run.out("checkpoint-12"));
  const ProcessResult result = run.train({"--learning_rate", "2e-3"});
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("set learning_rate back"));
  EXPECT_EQ(run.train().code, 0);
  EXPECT_TRUE(read_file(run.out("model.safetensors")) == run.model());
}

TEST(FinishedModel, IsAnErrorWhereNothingCanRepairIt) {
  const FinishedRun run(TinyRun::Keys{{"save_strategy", "\"no\""}});
  flip(run.out("model.safetensors"));
  const std::string damaged = read_file(run.out("model.safetensors"));
  for (int i = 0; i < 2; ++i) {
    const ProcessResult result = run.train();
    EXPECT_EQ(result.code, 3) << result.err;
    EXPECT_THAT(result.err, HasSubstr("model.safetensors' is damaged between byte 0"));
    EXPECT_THAT(result.err, HasSubstr("put a good copy of the file back, add --restart"));
    EXPECT_TRUE(read_file(run.out("model.safetensors")) == damaged);
  }
  write_file(run.out("model.safetensors"), run.model());
  expect_finished(run.train());
}

TEST(FinishedModel, KeepsItsRecordWhenItIsEvaluatedLater) {
  const FinishedRun run;
  const std::string before = read_file(run.out("eval_results.json"));
  const ProcessResult evaluated =
      finetune({"evaluate", run.config(), "--model_name_or_path", run.out(), "--model_type", "null",
                "--config_overrides", "null", "--max_eval_samples", "3"});
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  const std::string after = read_file(run.out("eval_results.json"));
  EXPECT_NE(after, before);
  EXPECT_EQ(verify(run).code, 0);
  expect_finished(run.train());
  EXPECT_EQ(read_file(run.out("eval_results.json")), after);
  flip(run.out("eval_results.json"));
  EXPECT_EQ(verify(run).code, 3);
}

// A whole model and an adapter in one folder are two models.
TEST(FinishedModel, ReplacesOneOfAnotherKind) {
  const FinishedRun base;
  FinishedRun run;
  const auto exists = [&](const char* name) { return std::filesystem::exists(run.out(name)); };
  const TinyRun::Keys adapter = {{"use_peft", "true"},
                                 {"model_type", ""},
                                 {"config_overrides", ""},
                                 {"model_name_or_path", base.out()}};
  run.set(adapter);
  const ProcessResult changed = run.train({"--restart"});
  ASSERT_EQ(changed.code, 0) << changed.err;
  EXPECT_TRUE(exists("adapter_config.json") && exists("adapter_model.safetensors"));
  EXPECT_FALSE(exists("config.json") || exists("model.safetensors"));
  expect_finished(run.train());
  run.set({{"use_peft", ""}});
  const ProcessResult back = run.train({"--restart"});
  ASSERT_EQ(back.code, 0) << back.err;
  EXPECT_TRUE(exists("config.json") && exists("model.safetensors"));
  EXPECT_FALSE(exists("adapter_config.json") || exists("adapter_model.safetensors"));
}

TEST(FinishedModel, LeavesFilesOfTheUserAlone) {
  const FinishedRun run;
  write_file(run.out("notes.txt"), "first");
  expect_finished(run.train());
  write_file(run.out("notes.txt"), "second");
  std::filesystem::create_directory(run.out("figures"));
  expect_finished(run.train());
  EXPECT_EQ(verify(run).code, 0);
  EXPECT_EQ(read_file(run.out("notes.txt")), "second");
}

// Changes the run to the state that a version without checksums left.
void take_checksums(const TinyRun& run) {
  std::filesystem::remove(run.out("manifest.json"));
  Json state = parse_json(read_file(run.out("finetune_state.json")), "state");
  state.erase("has_manifest");
  write_file(run.out("finetune_state.json"), state.dump(2) + "\n");
}

TEST(FinishedModel, OfAnOlderVersionGetsChecksumsWhereItIsConsistent) {
  const FinishedRun run;
  take_checksums(run);
  EXPECT_THAT(verify(run).out, HasSubstr("no checksums"));
  const ProcessResult result = run.train();
  expect_finished(result);
  EXPECT_THAT(result.err, HasSubstr("without checksums"));
  EXPECT_EQ(verify(run).code, 0);
  EXPECT_THAT(run.train().err, Not(HasSubstr("without checksums")));
  take_checksums(run);
  flip(run.out("model.safetensors"));
  const ProcessResult damaged = run.train();
  EXPECT_EQ(damaged.code, 0) << damaged.err;
  EXPECT_THAT(damaged.err, HasSubstr("differs from the one in"));
  EXPECT_TRUE(read_file(run.out("model.safetensors")) == run.model());
}

TEST(FinishedModel, EndsAsFinishedWhereASignalComesWithTheLastStep) {
  const TinyRun run({{"max_steps", "2"}, {"do_eval", "true"}, {"save_steps", "2"}});
  const ProcessResult result = run.train({"--stop_at_step", "2"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(verify(run).code, 0);
}

TEST(FinishedModel, IsNotOverwrittenWhereItsStateIsLost) {
  const FinishedRun run(TinyRun::Keys{{"save_strategy", "no"}});
  std::filesystem::remove(run.out("finetune_state.json"));
  const ProcessResult result = run.train({"--seed", "7"});
  EXPECT_EQ(result.code, 3) << result.err;
  EXPECT_THAT(result.err, HasSubstr("--restart"));
  EXPECT_TRUE(read_file(run.out("model.safetensors")) == run.model());
}

TEST(FinishedModel, WithoutItsStateIsNoReasonToEvaluateTheBaseModel) {
  FinishedRun run;
  run.set({{"model_name_or_path", run.out("checkpoint-6")},
           {"tokenizer_name", ""},
           {"model_type", ""},
           {"config_overrides", ""}});
  std::filesystem::remove(run.out("finetune_state.json"));
  const ProcessResult result = finetune({"evaluate", run.config()});
  EXPECT_EQ(result.code, 3) << result.err;
  EXPECT_THAT(result.err, HasSubstr("finetune_state.json: is missing, though the manifest.json"));
}

TEST(FinishedModel, OfAnotherRunInTheMirrorIsNotOverwritten) {
  const MirroredFinishedRun other;
  const FinishedRun run(TinyRun::Keys{{"seed", "77"}});
  const ProcessResult result = run.train({"--mirror_dir", other.mirror()});
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("holds the finished model of another run"));
  EXPECT_FALSE(std::filesystem::exists(other.mirror("checkpoint-12.old-1")));
  other.expect_both_good();
}

TEST(FinishedModel, IsNeitherEvaluatedNorAskedWhereItsWeightsAreDamaged) {
  const FinishedRun run(TinyRun::Keys{{"save_strategy", "no"}});
  flip(run.out("model.safetensors"));
  for (const Arguments& words : {Arguments{"evaluate", run.config()},
                                 Arguments{"predict", run.out(), "--text", "The <mask>."}}) {
    const ProcessResult result = finetune(words);
    EXPECT_EQ(result.code, 3) << result.err;
    EXPECT_THAT(result.err, HasSubstr("model.safetensors' is damaged"));
  }
}

// Damaged weights are unusable; the small files may have been edited on purpose.
TEST(FinishedModel, IsNoStartingModelWhereItsWeightsAreDamaged) {
  const FinishedRun run(TinyRun::Keys{{"save_strategy", "no"}});
  TinyRun next(TinyRun::Keys{{"model_type", ""},
                             {"config_overrides", ""},
                             {"tokenizer_name", ""},
                             {"model_name_or_path", run.out()},
                             {"max_steps", "2"}});
  flip(run.out("model.safetensors"));
  const ProcessResult refused = next.train();
  EXPECT_EQ(refused.code, 3) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("model.safetensors' is damaged"));
}

TEST(FinishedModel, WarnsWhereAFileThatDecidesItsAnswersWasChanged) {
  const FinishedRun run(TinyRun::Keys{{"save_strategy", "no"}});
  const Arguments predict = {"predict", run.out(), "--text", "The <mask>."};
  EXPECT_THAT(finetune(predict).err, Not(HasSubstr("warning")));
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json"}) {
    const std::string content = read_file(run.out(name));
    write_file(run.out(name), content + "\n");
    const ProcessResult answered = finetune(predict);
    EXPECT_EQ(answered.code, 0) << answered.err;
    EXPECT_THAT(answered.err, HasSubstr("warning: '" + run.out(name)));
    write_file(run.out(name), content);
  }
  write_file(run.out("manifest.json"), "{");
  EXPECT_THAT(finetune(predict).err, HasSubstr("the files of the model are not verified"));
}

TEST(FinishedModel, WithMoreStepsHasTheirChecksums) {
  const FinishedRun run;
  ASSERT_EQ(run.train({"--max_steps", "18"}).code, 0);
  EXPECT_EQ(verify(run).code, 0);
  expect_finished(run.train({"--max_steps", "18"}));
}

}  // namespace
}  // namespace finetune::testing
