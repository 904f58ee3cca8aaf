// SPDX-License-Identifier: MIT
// `finetune export`: the model of a run as other programs take it.
#include <filesystem>
#include <random>
#include <tuple>

#include "integration/adapter_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;

class Export : public AdapterRun {
 protected:
  static std::string answer_of(const std::string& folder) {
    const ProcessResult result = finetune(
        {"predict", folder, "--text", "The keeper of the", "--max_new_tokens", "24", "--use_cpu"});
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  }
  static std::string weights_in(const std::string& folder) {
    return read_file(folder + "/model.safetensors");
  }
  static TinyRun::Keys short_keys(const TinyRun::Keys& more = {}) {
    TinyRun::Keys all = keys({{"max_steps", "12"}, {"save_steps", "4"}, {"eval_steps", "4"}});
    for (const auto& [key, value] : more) all[key] = value;
    return all;
  }
};

TEST_F(Export, AnswersAsTheRunAndTrainsOn) {
  const TinyRun run(short_keys());
  ASSERT_EQ(run.train().code, 0);
  const std::string out = run.folder() / "merged";
  const ProcessResult result = finetune({"export", run.out(), out});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("merged into"));
  EXPECT_EQ(answer_of(out), answer_of(run.out()));
  EXPECT_FALSE(std::filesystem::exists(out + "/adapter_config.json"));
  EXPECT_THAT(read_file(out + "/README.md"), HasSubstr("library_name: transformers"));
  TinyRun::Keys more = short_keys({{"use_peft", "false"},
                                   {"model_name_or_path", out},
                                   {"lora_r", ""},
                                   {"lora_dropout", ""},
                                   {"max_steps", "2"}});
  const TinyRun next(more);
  const ProcessResult trained = next.train();
  EXPECT_EQ(trained.code, 0) << trained.err;
}

// Runs both models: what differs is the rounding of the type.
TEST_F(Export, ComparesTheLogitsOfTheRunAndOfWhatItWrote) {
  const TinyRun run(short_keys());
  ASSERT_EQ(run.train().code, 0);
  for (const auto& [name, type, most] :
       {std::tuple("merged", "f32", 1e-5), std::tuple("m.gguf", "f32", 1e-5),
        std::tuple("half", "bf16", 0.1), std::tuple("m2.gguf", "q8_0", 0.2),
        std::tuple("four", "nf4", 2.0)}) {
    const ProcessResult result = finetune(
        {"export", run.out(), run.folder() / name, "--outtype", type, "--verify", "logits"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("the most probable is the same for"));
    const size_t end = result.out.find(" of their spread");
    ASSERT_NE(end, std::string::npos) << result.out;
    const double share = std::stod(result.out.substr(result.out.rfind(' ', end - 1)));
    EXPECT_LE(share, most) << result.out;
    EXPECT_TRUE(share > 0 || std::string(type) == "f32") << result.out;
  }
}

TEST_F(Export, HasTheSameBytesForAnyNumberOfThreadsAndAfterAStop) {
  const TinyRun whole(short_keys());
  ASSERT_EQ(whole.train().code, 0);
  const TinyRun run(short_keys());
  run.train_until(5);
  ASSERT_EQ(run.train().code, 0);
  const auto exported = [](const TinyRun& source, const std::string& threads,
                           const std::string& name) {
    const std::string out = source.folder() / name;
    const ProcessResult result =
        testing::run(finetune_command({"export", source.out(), out, "--overwrite"}),
                     {.environment = {{"OMP_NUM_THREADS", threads}}, .folder = "", .watch = ""});
    EXPECT_EQ(result.code, 0) << result.err;
    return name.ends_with(".gguf") ? read_file(out) : weights_in(out);
  };
  for (const char* name : {"merged", "model.gguf"}) {
    const std::string first = exported(whole, "1", name);
    EXPECT_TRUE(first == exported(whole, "3", name)) << name;
    EXPECT_TRUE(first == exported(run, "1", name)) << name;
  }
}

TEST_F(Export, TakesTheCheckpointThatIsMeant) {
  const TinyRun run(short_keys({{"metric_for_best_model", "eval_loss"}}));
  run.train_until(9);
  const std::string out = run.folder() / "merged";
  const auto exported = [&](const Arguments& more) {
    Arguments words = {"export", run.out(), out, "--overwrite"};
    words.insert(words.end(), more.begin(), more.end());
    const ProcessResult result = finetune(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  };
  EXPECT_THAT(exported({}), HasSubstr("checkpoint-9 merged"));
  EXPECT_THAT(exported({"--checkpoint", "8"}), HasSubstr("checkpoint-8 merged"));
  EXPECT_THAT(exported({"--checkpoint", "best"}), HasSubstr("checkpoint-8 merged"));
  const ProcessResult none = finetune({"export", run.out(), out, "--checkpoint", "5"});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("no checkpoint of step 5"));
  // A damaged checkpoint is passed over, and refused where it is named.
  const std::string file = run.out("checkpoint-9/adapter_model.safetensors");
  std::string bytes = read_file(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(file, bytes);
  EXPECT_THAT(exported({}), HasSubstr("checkpoint-8 merged"));
  const ProcessResult damaged = finetune({"export", run.out("checkpoint-9"), out, "--overwrite"});
  EXPECT_EQ(damaged.code, 3);
  EXPECT_THAT(damaged.err, HasSubstr("is not valid"));
}

TEST_F(Export, IsWrittenAtTheEndOfARunThatAsksForIt) {
  const TinyRun run(short_keys({{"export_merged", "bf16"}, {"export_gguf", "q8_0"}}));
  const ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  const std::string out = run.folder() / "merged";
  ASSERT_EQ(finetune({"export", run.out(), out, "--outtype", "bf16"}).code, 0);
  EXPECT_TRUE(weights_in(out) == weights_in(run.out("export/merged")));
  ASSERT_EQ(finetune({"export", run.out(), out + ".gguf", "--outtype", "q8_0"}).code, 0);
  EXPECT_TRUE(read_file(out + ".gguf") == read_file(run.out("export/model.gguf")));
  const ProcessResult again = run.train();
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("nothing to do"));
  const TinyRun encoder(TinyRun::Keys{{"export_gguf", "f16"}});
  const ProcessResult refused = encoder.train();
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("a roberta cannot be written as GGUF"));
}

// A run that asks for exports has made them when it is finished, and so has its mirror.
TEST_F(Export, OfAFinishedRunIsMadeByTheSameCommandWhereItIsMissing) {
  TinyRun run(short_keys({{"export_merged", "f32"}, {"export_gguf", "f32"}}));
  const std::string mirror = run.folder() / "mirror";
  run.set({{"mirror_dir", mirror}});
  ASSERT_EQ(run.train().code, 0);
  const std::string whole = read_file(run.out("export/model.gguf"));
  EXPECT_EQ(read_file(mirror + "/export/model.gguf"), whole);
  EXPECT_EQ(weights_in(mirror + "/export/merged"), weights_in(run.out("export/merged")));
  std::filesystem::remove(run.out("export/model.gguf"));
  std::filesystem::remove_all(run.out("export/merged"));
  const ProcessResult again = run.train();
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("missing of its exports and written now: merged, model.gguf"));
  EXPECT_EQ(read_file(run.out("export/model.gguf")), whole);
  EXPECT_TRUE(std::filesystem::exists(run.out("export/merged/config.json")));
  // Another type is another export.
  run.set({{"export_gguf", "q8_0"}});
  EXPECT_THAT(run.train().err, HasSubstr("written now: model.gguf"));
  EXPECT_NE(read_file(run.out("export/model.gguf")), whole);
}

TEST_F(Export, ThatFailsAtTheEndOfARunIsNotFinished) {
  const TinyRun run(short_keys({{"export_merged", "f32"}}));
  std::filesystem::create_directories(run.out("export/merged"));
  write_file(run.out("export/merged/mine.txt"), "mine");
  const ProcessResult failed = run.train();
  EXPECT_EQ(failed.code, 1) << failed.err;
  EXPECT_THAT(failed.err, HasSubstr("holds 'mine.txt', which no export wrote"));
  EXPECT_THAT(failed.err, HasSubstr("the same command tries again"));
  std::filesystem::remove(run.out("export/merged/mine.txt"));
  const ProcessResult again = run.train();
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_TRUE(std::filesystem::exists(run.out("export/merged/config.json")));
}

// What predict refuses is refused here too.
TEST_F(Export, RefusesTensorsThatTheAdaptersConfigurationDoesNotName) {
  const TinyRun dora(short_keys({{"max_steps", "2"}, {"use_dora", "true"}}));
  ASSERT_EQ(dora.train().code, 0);
  std::string config = read_file(dora.out("adapter_config.json"));
  const std::string flag = "\"use_dora\": true";
  config.replace(config.find(flag), flag.size(), "\"use_dora\": false");
  write_file(dora.out("adapter_config.json"), config);
  const TinyRun saved(short_keys({{"max_steps", "2"},
                                  {"lora_modules_to_save", "[embed_tokens]"},
                                  {"lora_ensure_weight_tying", "true"}}));
  const ProcessResult trained = saved.train();
  ASSERT_EQ(trained.code, 0) << trained.err;
  Json json = Json::parse(read_file(saved.out("adapter_config.json")));
  json["modules_to_save"] = nullptr;
  write_file(saved.out("adapter_config.json"), json.dump());
  for (const TinyRun* changed : {&dora, &saved}) {
    for (const char* file : {"finetune_state.json", "manifest.json"}) {
      std::filesystem::remove(changed->out(file));
    }
    const ProcessResult predicted =
        finetune({"predict", changed->out(), "--text", "The", "--use_cpu"});
    EXPECT_NE(predicted.code, 0);
    const ProcessResult exported =
        finetune({"export", changed->out(), changed->folder() / "merged"});
    EXPECT_NE(exported.code, 0) << exported.err;
    EXPECT_FALSE(std::filesystem::exists(changed->folder() / "merged"));
  }
}

TEST_F(Export, LeavesNothingThatLooksCompleteWhenItIsKilled) {
  const TinyRun run(short_keys());
  ASSERT_EQ(run.train().code, 0);
  const std::string position = run.folder() / "exports";
  std::mt19937 random(20261126);
  int kills = 0;
  for (const char* name : {"merged", "model.gguf"}) {
    const std::string out = position + "/" + name;
    const ProcessResult whole = finetune({"export", run.out(), out});
    ASSERT_EQ(whole.code, 0) << whole.err;
    const auto content = [&] {
      return std::string(name) == "merged" ? weights_in(out) : read_file(out);
    };
    const std::string expected = content();
    double life = whole.seconds;
    for (int i = 0; i < 8; ++i) {
      std::filesystem::remove_all(out);
      Process process(finetune_command({"export", run.out(), out, "--overwrite"}),
                      {.environment = {}, .folder = "", .watch = ""});
      const double share = 0.5 + 0.5 * static_cast<double>(random() % 1000) / 1000.0;
      process.wait_until(share * life);
      process.send(SIGKILL);
      const bool was_killed = process.finish().code != 0;
      kills += was_killed ? 1 : 0;
      if (!was_killed) life *= 0.8;  // the first one was slower than the others
      if (std::filesystem::exists(out)) {
        EXPECT_TRUE(content() == expected);
      }
    }
    std::filesystem::remove_all(out);
    ASSERT_EQ(finetune({"export", run.out(), out, "--overwrite"}).code, 0);
    EXPECT_TRUE(content() == expected);
    for (const auto& entry : std::filesystem::directory_iterator(position)) {
      EXPECT_EQ(entry.path().string().find(".partial"), std::string::npos) << entry.path();
    }
  }
  EXPECT_GE(kills, 4);
}

}  // namespace
}  // namespace finetune::testing
