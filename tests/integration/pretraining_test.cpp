// SPDX-License-Identifier: MIT
// Task pretraining for users: documents or shards as input, with interruptions. tests/parity
// compares the weights.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;

TinyRun::Keys keys(const TinyRun::Keys& more = {}) {
  TinyRun::Keys keys = {{"task", "pretraining"},
                        {"model_type", "bert"},
                        {"config_overrides",
                         "{num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 32, "
                         "intermediate_size: 64, max_position_embeddings: 32}"},
                        {"line_by_line", "true"},
                        {"dupe_factor", "2"},
                        {"max_steps", "12"},
                        {"eval_steps", "6"},
                        {"save_steps", "5"}};
  for (const auto& [key, value] : more) keys[key] = value;
  return keys;
}

ProcessResult command(const std::string& verb, const TinyRun& run, Arguments more = {}) {
  more.insert(more.begin(), {verb, run.config()});
  return finetune(more);
}

// Writes shards of lighthouse.txt whose sample counts are no multiple of any batch size.
std::string make_shards(const TemporaryFolder& folder, const TinyRun::Keys& more = {}) {
  TinyRun::Keys asked = {{"prepare_output_dir", folder / "shards"}, {"num_shards", "5"}};
  for (const auto& [key, value] : more) asked[key] = value;
  const TinyRun run(keys(asked));
  const ProcessResult result = command("prepare", run);
  EXPECT_EQ(result.code, 0) << result.err;
  return parse_json(result.out, "prepare")["files"].get<std::string>();
}

void expect_equal_ends(const TinyRun::Keys& how) {
  const TinyRun whole(how);
  const ProcessResult result = whole.train();
  ASSERT_EQ(result.code, 0) << result.err;
  const TinyRun cut(how);
  cut.train_until(3);
  cut.train_until(8);
  ASSERT_EQ(cut.train().code, 0);
  EXPECT_EQ(log_without_times(cut.out()), log_without_times(whole.out()));
  EXPECT_TRUE(read_file(cut.out("model.safetensors")) == read_file(whole.out("model.safetensors")));
  EXPECT_TRUE(read_file(cut.out("checkpoint-12/optimizer.pt")) ==
              read_file(whole.out("checkpoint-12/optimizer.pt")));
}

TEST(Pretraining, EndsAlikeWithAndWithoutInterruptionsOnDocuments) {
  // 21 samples, 8 per update: epochs end inside the run, and each has its own masks.
  expect_equal_ends(keys({{"max_train_samples", "21"}}));
}

TEST(Pretraining, EndsAlikeWithAndWithoutInterruptionsOnAMixture) {
  const std::string text = kText + "lighthouse";
  expect_equal_ends(keys({{"train_file", "[{path: " + text + ".txt, weight: 0.5}, {path: " + text +
                                             "-valid.txt, weight: 1.5}]"}}));
}

TEST(Pretraining, EndsAlikeWithAndWithoutInterruptionsOnShards) {
  const TemporaryFolder folder;
  expect_equal_ends(keys({{"train_file", "'" + make_shards(folder) + "'"}}));
}

// Shards cannot have the order of the original data, so only the first loss is compared, over a
// batch with the whole epoch.
void expect_same_first_loss(const TinyRun::Keys& data, int64_t samples) {
  const TemporaryFolder folder;
  TinyRun::Keys one = {{"per_device_train_batch_size", std::to_string(samples)},
                       {"gradient_accumulation_steps", "1"},
                       {"max_steps", "1"},
                       {"config_overrides",
                        "{num_hidden_layers: 1, num_attention_heads: 2, hidden_size: 32, "
                        "intermediate_size: 64, max_position_embeddings: 32, "
                        "hidden_dropout_prob: 0, attention_probs_dropout_prob: 0}"}};
  TinyRun::Keys shards = one;
  one.insert(data.begin(), data.end());
  shards["train_file"] = "'" + make_shards(folder, data) + "'";
  const TinyRun from_documents(keys(one));
  const TinyRun from_shards(keys(shards));
  ASSERT_EQ(from_documents.train().code, 0);
  ASSERT_EQ(from_shards.train().code, 0);
  const auto first_loss = [](const TinyRun& run) {
    return trainer_state(run.out())["log_history"][0]["loss"].get<double>();
  };
  EXPECT_NEAR(first_loss(from_documents), first_loss(from_shards), 1e-5);
}

TEST(Pretraining, LearnsFromShardsWhatItLearnsFromDocuments) {
  expect_same_first_loss({{"max_train_samples", "40"}}, 40);
}

TEST(Pretraining, LearnsFromShardsOfAMixtureWhatItLearnsFromTheMixture) {
  const std::string text = kText + "lighthouse";
  // A batch larger than an epoch contains all of it.
  expect_same_first_loss({{"train_file", "[{path: " + text + ".txt, weight: 1}, {path: " + text +
                                             "-valid.txt, weight: 0.5}]"}},
                         20000);
}

TEST(Pretraining, ReportsBothLossesAndEvaluatesAgain) {
  const TinyRun run(keys({{"metric_for_best_model", "next_sentence_accuracy"}}));
  const ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  const Json metrics = parse_json(read_file(run.out("eval_results.json")), "eval_results.json");
  for (const char* name :
       {"masked_lm_accuracy", "next_sentence_accuracy", "masked_lm_loss", "next_sentence_loss"}) {
    EXPECT_TRUE(metrics.contains("eval_" + std::string(name))) << name;
  }
  const ProcessResult again = command("evaluate", run, {"--checkpoint", "auto"});
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(parse_json(again.out, "stdout")["eval_loss"], metrics["eval_loss"]);
  const ProcessResult plan = command("plan", run);
  EXPECT_EQ(plan.code, 0) << plan.err;
}

TEST(Pretraining, WithoutTheNextSentenceIsForEveryFamily) {
  const TinyRun run(keys({{"model_type", "roberta"},
                          {"use_nsp", "false"},
                          {"line_by_line", "false"},
                          {"config_overrides",
                           "{num_hidden_layers: 1, num_attention_heads: 2, hidden_size: 32, "
                           "intermediate_size: 64, max_position_embeddings: 34, "
                           "type_vocab_size: 1}"}}));
  const ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(read_file(run.out("config.json")), HasSubstr("RobertaForMaskedLM"));
}

TEST(Pretraining, RefusesToGoOnWithOtherExamples) {
  const TinyRun run(keys());
  run.train_until(3);
  for (const auto& [key, value] : TinyRun::Keys{{"dupe_factor", "3"},
                                                {"short_seq_prob", "0.5"},
                                                {"use_nsp", "false"},
                                                {"max_predictions_per_seq", "2"},
                                                {"sentence_delimiters", "[\".\"]"}}) {
    const ProcessResult result = run.train({"--" + key, value});
    EXPECT_EQ(result.code, 2) << key;
    EXPECT_THAT(result.err, HasSubstr(key + " is "));
  }
}

TEST(Pretraining, SaysWhatIsWrongWithItsData) {
  const TemporaryFolder folder;
  const auto fault = [&](const TinyRun::Keys& more) {
    const ProcessResult result = TinyRun(keys(more)).train();
    EXPECT_NE(result.code, 0);
    EXPECT_THAT(result.err, ::testing::Not(HasSubstr("internal error")));
    return result.err;
  };
  EXPECT_THAT(fault({{"line_by_line", "false"}}), HasSubstr("one document only"));
  EXPECT_THAT(fault({{"train_file", folder.write("text.tfrecord", "this is no record at all")}}),
              HasSubstr("text.tfrecord: record 1 at byte 0"));
  const std::string shards = make_shards(folder);
  EXPECT_THAT(fault({{"train_file", "'" + shards + "'"}, {"max_seq_length", "16"}}),
              HasSubstr("more than the 16 of max_seq_length"));
  EXPECT_THAT(fault({{"train_file", "['" + shards + "', " + kText + "lighthouse.txt]"}}),
              HasSubstr("TFRecord shards and other files"));
  const std::string damaged = folder / "shards/examples-00000-of-00005.tfrecord";
  std::string bytes = read_file(damaged);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(damaged, bytes);
  EXPECT_THAT(
      fault({{"train_file", "'" + shards + "'"}, {"num_train_epochs", "1"}, {"max_steps", "-1"}}),
      HasSubstr("examples-00000-of-00005.tfrecord: record"));
  std::filesystem::remove(folder / "shards/examples-00004-of-00005.tfrecord");
  EXPECT_THAT(fault({{"train_file", "'" + shards + "'"}}), HasSubstr("gives 4 of 5 shards"));
  EXPECT_THAT(fault({{"train_file", damaged}, {"task", "mlm"}, {"dupe_factor", ""}}),
              HasSubstr("is an example of task pretraining"));
}

TEST(Prepare, KeepsWhatIsThereAndSaysWhatItNeeds) {
  const TemporaryFolder folder;
  make_shards(folder);
  const TinyRun run(keys({{"prepare_output_dir", folder / "shards"}, {"num_shards", "5"}}));
  const ProcessResult again = command("prepare", run);
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(parse_json(again.out, "prepare")["shards_kept"], 5);
  const ProcessResult other = command("prepare", run, {"--seed", "9"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("other data or with other keys"));
  EXPECT_THAT(command("prepare", TinyRun(keys())).err, HasSubstr("prepare_output_dir"));
  const std::string shards = folder / "shards/*.tfrecord";
  const TinyRun both(
      keys({{"prepare_output_dir", folder / "more"},
            {"train_file", "[{path: " + kText + "lighthouse.txt, weight: 1}, '" + shards + "']"}}));
  EXPECT_THAT(command("prepare", both).err, HasSubstr("names shards already"));
}

TEST(Prepare, NamesTheKeyOfAFolderThatIsInUse) {
  const TemporaryFolder folder;
  make_shards(folder);
  const int lock = ::open((folder / "shards/.finetune.lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(lock, 0);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  const TinyRun run(keys({{"prepare_output_dir", folder / "shards"}, {"num_shards", "5"}}));
  const ProcessResult result = command("prepare", run);
  ::close(lock);
  EXPECT_EQ(result.code, 5) << result.err;
  EXPECT_THAT(result.err, HasSubstr("or choose another prepare_output_dir"));
}

}  // namespace
}  // namespace finetune::testing
