// SPDX-License-Identifier: MIT
// task: embedding for users: what is compared does not depend on memory, processes or
// interruptions. tests/parity compares what is learned.
#include <cmath>
#include <fstream>
#include <sstream>

#include "integration/launched.h"
#include "integration/task_checks.h"
#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kSteps = 8;

// The halves of lines, which belong together.
std::string pairs(size_t count) {
  std::ifstream text(kText + "lighthouse.txt");
  std::string rows;
  for (std::string line; std::getline(text, line) && count > 0;) {
    const size_t middle = line.find(' ', line.size() / 2);
    if (line.size() < 40 || middle == std::string::npos) continue;
    rows += Json{{"anchor", line.substr(0, middle)}, {"positive", line.substr(middle + 1)}}.dump();
    rows += "\n";
    --count;
  }
  return rows;
}

// 8 samples of 2 texts a step.
class EmbeddingRun : public TinyRun {
 public:
  explicit EmbeddingRun(const Keys& keys = {}) {
    folder().write("train.jsonl", pairs(44));
    folder().write("valid.jsonl", pairs(20));
    Keys all = {{"task", "embedding"},
                {"train_file", folder() / "train.jsonl"},
                {"validation_file", folder() / "valid.jsonl"},
                {"per_device_train_batch_size", "8"},
                {"gradient_accumulation_steps", ""},
                {"effective_batch_size", "8"},
                {"max_steps", std::to_string(kSteps)},
                {"num_train_epochs", "9"},
                {"eval_steps", "4"},
                {"save_steps", "3"},
                {"dataloader_num_workers", "0"}};
    for (const auto& [key, value] : keys) all[key] = value;
    set(all);
  }
};

struct Result {
  std::string model;
  std::vector<double> losses;
  double ndcg = 0.0;
};

Result result_of(const TinyRun& run) {
  Result result{.model = read_file(run.out("model.safetensors")), .losses = {}};
  const Json state = trainer_state(run.out());
  for (const Json& entry : state.at("log_history")) {
    if (entry.contains("loss")) result.losses.push_back(entry["loss"].get<double>());
    result.ndcg = entry.value("eval_cosine_ndcg@10", result.ndcg);
  }
  EXPECT_EQ(result.losses.size(), static_cast<size_t>(kSteps));
  return result;
}

Result finished(const TinyRun& run, const Arguments& more = {}) {
  const ProcessResult end = run.train(more);
  EXPECT_EQ(end.code, 0) << end.err;
  return result_of(run);
}

const Result& alone() {
  static const Result result = finished(EmbeddingRun());
  return result;
}

TinyRun::Keys exact(const std::string& rows) {
  return {{"full_determinism", "true"}, {"per_device_train_batch_size", rows}};
}

TEST(Embedding, ComparesTheWholeUpdateInAnyMicroBatches) {
  EXPECT_GT(alone().ndcg, 0.0);
  for (const TinyRun::Keys& keys :
       {TinyRun::Keys{{"per_device_train_batch_size", "2"}},
        TinyRun::Keys{{"mini_batch_size", "4"}},
        TinyRun::Keys{{"loss_type", "CachedMultipleNegativesRankingLoss"},
                      {"per_device_train_batch_size", "1"}}}) {
    const Result result = finished(EmbeddingRun(keys));
    for (size_t i = 0; i < result.losses.size(); ++i) {
      // Sums in float32 in another order, over some updates of Adam.
      EXPECT_NEAR(result.losses[i], alone().losses[i], 2e-4) << i;
    }
  }
}

TEST(Embedding, ProcessesGiveTheBitsOfOne) {
  const Result one = finished(EmbeddingRun(exact("2")));
  for (const char* count : {"2", "4"}) {
    const Result several = finished(EmbeddingRun(exact("2")), {"--num_processes", count});
    EXPECT_TRUE(several.model == one.model) << count << " processes have other weights";
    EXPECT_EQ(several.losses, one.losses);
    EXPECT_EQ(several.ndcg, one.ndcg);
  }
}

TEST(Embedding, WithoutDuplicatesTheOrderStaysTheSameAfterAStop) {
  const auto write_twins = [](const TinyRun& run) {
    std::string rows = pairs(22);
    rows += rows;
    run.folder().write("train.jsonl", rows);
  };
  const EmbeddingRun warned;
  write_twins(warned);
  EXPECT_THAT(warned.train().err, HasSubstr("44 of 44 samples have a text"));
  const TinyRun::Keys keys = {{"batch_sampler", "no_duplicates"},
                              {"per_device_train_batch_size", "4"}};
  const EmbeddingRun whole(keys);
  const EmbeddingRun stopped(keys);
  write_twins(whole);
  write_twins(stopped);
  stopped.train_until(2);
  stopped.train_until(5);
  EXPECT_TRUE(finished(stopped).model == finished(whole).model);
}

// SimCSE: a column twice is a text with itself under another dropout.
TEST(Embedding, LearnsFromTextsAlone) {
  const EmbeddingRun run(TinyRun::Keys{{"text_columns", "[anchor, anchor]"}});
  const ProcessResult trained = run.train();
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, Not(HasSubstr("44 of 44 samples")));
  EXPECT_GT(result_of(run).losses.front(), 0.0);
}

TEST(Embedding, LearnsFromAStream) {
  const EmbeddingRun run({{"streaming", "true"}, {"per_device_train_batch_size", "4"}});
  const ProcessResult trained = run.train();
  EXPECT_EQ(trained.code, 0) << trained.err;
}

TEST(Embedding, ResumesToTheSameBits) {
  const TinyRun::Keys keys = {{"per_device_train_batch_size", "2"},
                              {"config_overrides",
                               "{num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 32, "
                               "intermediate_size: 64, max_position_embeddings: 34, "
                               "type_vocab_size: 1, hidden_dropout_prob: 0.2}"}};
  const Result unbroken = finished(EmbeddingRun(keys));
  const EmbeddingRun run(keys);
  run.train_until(2);
  run.train_until(5);
  const Result resumed = finished(run);
  EXPECT_TRUE(resumed.model == unbroken.model);
  EXPECT_EQ(resumed.losses, unbroken.losses);

  const EmbeddingRun killed(keys);
  EXPECT_GE(kill_at_random_moments(killed, 2.0, 6, 20261129), 1);
  EXPECT_TRUE(finished(killed).model == unbroken.model);
}

// Lines of a text and the share of the words that follow.
std::string scored_pairs(size_t count) {
  std::string rows;
  std::istringstream lines(pairs(count));
  for (std::string line; std::getline(lines, line);) {
    const Json row = parse_json(line, "");
    const std::string second = row["positive"];
    const double score = static_cast<double>(second.size() % 5) / 4;
    rows += Json{{"one", row["anchor"]}, {"two", second}, {"score", score}}.dump() + "\n";
  }
  return rows;
}

// Each update of 8 is of pairs or of scored pairs; the latter are fewer.
class TwoSets : public EmbeddingRun {
 public:
  explicit TwoSets(const Keys& keys = {}) : EmbeddingRun(keys) {
    folder().write("scored.jsonl", scored_pairs(20));
    Keys all = {{"train_file", "{pairs: '" + (folder() / "train.jsonl") + "', scored: {path: '" +
                                   (folder() / "scored.jsonl") +
                                   "', loss_type: AnglELoss, loss_kwargs: {scale: 10}}}"},
                {"multi_dataset_batch_sampler", "round_robin"}};
    for (const auto& [key, value] : keys) all[key] = value;
    set(all);
  }
};

TEST(Embedding, EachUpdateHasTheSamplesAndTheLossOfOneSet) {
  const std::string no_dropout =
      "{num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 32, intermediate_size: 64, "
      "max_position_embeddings: 34, type_vocab_size: 1, hidden_dropout_prob: 0.0, "
      "attention_probs_dropout_prob: 0.0}";
  const TinyRun::Keys still = {{"learning_rate", "0"}, {"config_overrides", no_dropout}};
  const Result both = finished(TwoSets(still));
  const Result first = finished(EmbeddingRun(still));
  TinyRun::Keys scored = still;
  scored.insert({{"loss_type", "AnglELoss"}, {"loss_kwargs", "{scale: 10}"}});
  EmbeddingRun second_run(scored);
  second_run.folder().write("train.jsonl", scored_pairs(20));
  const Result second = finished(second_run);
  // An epoch is three updates of each; the last of the scored ones is filled up here alone.
  for (size_t step = 0; step < 5; ++step) {
    const Result& alone_it_is = step % 2 == 0 ? first : second;
    EXPECT_NEAR(both.losses[step], alone_it_is.losses[step / 2], 1e-4) << step;
  }
}

TEST(Embedding, SetsResumeToTheSameBitsInAnyProcesses) {
  for (const char* order : {"round_robin", "proportional"}) {
    TinyRun::Keys keys = exact("2");
    keys["multi_dataset_batch_sampler"] = order;
    const Result unbroken = finished(TwoSets(keys));
    const TwoSets stopped(keys);
    stopped.train_until(2);
    stopped.train_until(5);
    EXPECT_TRUE(finished(stopped).model == unbroken.model) << order;
    const Result several = finished(TwoSets(keys), {"--num_processes", "2"});
    EXPECT_TRUE(several.model == unbroken.model) << order;
    keys["per_device_train_batch_size"] = "8";
    const Result whole = finished(TwoSets(keys));
    for (size_t i = 0; i < whole.losses.size(); ++i) {
      EXPECT_NEAR(whole.losses[i], unbroken.losses[i], 2e-4) << order << i;
    }
  }
}

TEST(Embedding, VerifyResumeFindsEqualBits) {
  const TwoSets run(TinyRun::Keys{{"per_device_train_batch_size", "2"},
                                  {"batch_sampler", "no_duplicates"},
                                  {"dense", "{out_features: 12}"}});
  expect_equal_bits_by_verify_resume(run);
}

TEST(Embedding, AGuideChangesNothingAboutResumes) {
  const EmbeddingRun guide(TinyRun::Keys{{"max_steps", "8"}});
  ASSERT_EQ(guide.train().code, 0);
  TinyRun::Keys keys = exact("2");
  keys["loss_type"] = "GISTEmbedLoss";
  keys["loss_kwargs"] = "{guide: '" + guide.out() + "', temperature: 0.1}";
  const Result unbroken = finished(EmbeddingRun(keys));
  const EmbeddingRun stopped(keys);
  stopped.train_until(3);
  const Result resumed = finished(stopped, {"--num_processes", "2"});
  EXPECT_TRUE(resumed.model == unbroken.model);
  keys["per_device_train_batch_size"] = "8";
  const Result whole = finished(EmbeddingRun(keys));
  for (size_t i = 0; i < whole.losses.size(); ++i) {
    EXPECT_NEAR(whole.losses[i], unbroken.losses[i], 5e-4) << i;
  }
  EXPECT_NE(whole.losses, alone().losses);
  const EmbeddingRun swapped(keys);
  swapped.train_until(3);
  const EmbeddingRun second(TinyRun::Keys{{"max_steps", "3"}});
  ASSERT_EQ(second.train().code, 0);
  std::filesystem::rename(guide.out(), guide.out() + "-first");
  std::filesystem::copy(second.out(), guide.out(), std::filesystem::copy_options::recursive);
  const ProcessResult noticed = swapped.train();
  EXPECT_EQ(noticed.code, 2) << noticed.err;
  EXPECT_THAT(noticed.err, HasSubstr("the guide's) are not those that"));
  const EmbeddingRun other(
      TinyRun::Keys{{"max_steps", "1"},
                    {"tokenizer_name", source_dir() + "/tests/fixtures/tokenizers/lighthouse"}});
  ASSERT_EQ(other.train().code, 0);
  for (const auto& [folder, why] :
       {std::pair<std::string, const char*>{other.out(), "another vocabulary"},
        {source_dir() + "/tests/fixtures/parity/tasks/bert/likeness", "holds no tokenizer"}}) {
    keys["loss_kwargs"] = "{guide: '" + folder + "'}";
    const ProcessResult refused = EmbeddingRun(keys).train();
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr(std::string("guide: ")));
    EXPECT_THAT(refused.err, HasSubstr(why));
  }
}

TEST(Embedding, SetsKeepTheirUpdates) {
  TwoSets run;
  run.train_until(2);
  const ProcessResult other = run.train({"--effective_batch_size", "16"});
  EXPECT_EQ(other.code, 2) << other.err;
  EXPECT_THAT(other.err, HasSubstr("effective_batch_size"));
  const TwoSets few(TinyRun::Keys{{"effective_batch_size", "24"}});
  const ProcessResult refused = few.train();
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("'scored' has 20 samples"));
}

TEST(Embedding, EveryModelHasTheModulesOfSentenceTransformers) {
  const EmbeddingRun run({{"pooling_mode", "cls"}, {"prompts", "{anchor: 'query: '}"}});
  ASSERT_EQ(run.train().code, 0);
  for (const std::string folder : {"", "checkpoint-8/"}) {
    EXPECT_EQ(parse_json(read_file(run.out(folder + "modules.json")), "").size(), 2U);
    const Json pooling = parse_json(read_file(run.out(folder + "1_Pooling/config.json")), "");
    EXPECT_EQ(pooling["pooling_mode_cls_token"], true);
    EXPECT_EQ(pooling["word_embedding_dimension"], 32);
    const Json model =
        parse_json(read_file(run.out(folder + "config_sentence_transformers.json")), "");
    EXPECT_EQ(model["prompts"]["anchor"], "query: ");
    EXPECT_EQ(parse_json(read_file(run.out(folder + "config.json")), "")["architectures"][0],
              "RobertaModel");
  }
  std::filesystem::remove(run.out("1_Pooling/config.json"));
  const ProcessResult repaired = run.train();
  EXPECT_EQ(repaired.code, 0) << repaired.err;
  EXPECT_TRUE(std::filesystem::exists(run.out("1_Pooling/config.json")));
}

TEST(Embedding, AMirrorBringsTheFolderBack) {
  const TemporaryFolder mirror;
  const EmbeddingRun run({{"mirror_dir", mirror / "copy"}});
  const Result before = finished(run);
  for (const std::string& lost : {run.out(), run.out("1_Pooling")}) {
    std::filesystem::remove_all(lost);
    const ProcessResult again = run.train();
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_TRUE(read_file(run.out("model.safetensors")) == before.model);
    EXPECT_TRUE(std::filesystem::exists(run.out("1_Pooling/config.json"))) << lost;
  }
}

TEST(Embedding, PredictPrintsVectorsSimilaritiesAndTheNearest) {
  const EmbeddingRun run;
  ASSERT_EQ(run.train().code, 0);
  const auto predict = [&](const Arguments& more) {
    Arguments words = finetune_command({"predict", run.out(), "--use_cpu"});
    words.insert(words.end(), more.begin(), more.end());
    const ProcessResult result = testing::run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return parse_json(result.out, "answer");
  };
  EXPECT_EQ(predict({"--text", "the lamp"})["embedding"].size(), 32U);
  const Json both = predict({"--text", "the lamp", "--compare", "the lamp", "a boat"});
  EXPECT_NEAR(both["similarity"][0].get<double>(), 1.0, 1e-6);
  EXPECT_LT(both["similarity"][1].get<double>(), 1.0);
  const Json found = predict({"--query", "the lamp", "--top_k", "3", "--text_column", "anchor",
                              "--input", run.folder() / "valid.jsonl"});
  ASSERT_EQ(found["nearest"].size(), 3U);
  EXPECT_GE(found["nearest"][0]["score"], found["nearest"][1]["score"]);
  EXPECT_EQ(found["query"], "the lamp");
  const ProcessResult refused = testing::run(finetune_command(
      {"predict", run.out(), "--query", "a", "--compare", "b", "--input", run.folder() / "x"}));
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("exclude each other"));
}

TEST(Embedding, HardNegativesReplaceNoFileOfTheUser) {
  const EmbeddingRun run(TinyRun::Keys{{"max_steps", "1"}});
  ASSERT_EQ(run.train().code, 0);
  const std::string data = run.folder() / "train.jsonl";
  const std::string valid = run.folder() / "valid.jsonl";
  const std::string mined = run.folder() / "mined.jsonl";
  const auto mine = [&](const std::string& to) {
    return testing::run(finetune_command(
        {"prepare", "--task", "embedding", "--model_name_or_path", run.out(), "--train_file", data,
         "--max_seq_length", "32", "--output_dir", run.folder() / "out2", "--cache_dir",
         run.folder() / "cache", "--use_cpu", "true", "--hard_negatives", "2", "--rows", to}));
  };
  for (const std::string& file : {data, valid}) {
    const std::string before = read_file(file);
    const ProcessResult refused = mine(file);
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_TRUE(read_file(file) == before);
  }
  EXPECT_EQ(mine(mined).code, 0);
  const std::string first = read_file(mined);
  EXPECT_EQ(mine(mined).code, 0);
  EXPECT_TRUE(read_file(mined) == first);
  std::string renamed = read_file(data);
  for (size_t at; (at = renamed.find("anchor")) != std::string::npos;) {
    renamed.replace(at, 6, "negative_1");
  }
  run.folder().write("train.jsonl", renamed);
  std::filesystem::remove(mined);
  EXPECT_EQ(mine(mined).code, 0);
  const Json row = parse_json(first.substr(0, first.find('\n')), "");
  const std::string again = read_file(mined);
  EXPECT_EQ(parse_json(again.substr(0, again.find('\n')), "")["anchor"], row["anchor"]);
}

// The cache of tokens has not passed the rules of every loss.
TEST(Embedding, LabelsAreCheckedAlsoWhereTheirTokensAreCached) {
  EmbeddingRun run(TinyRun::Keys{{"eval_strategy", "no"}});
  run.folder().write("train.jsonl", scored_pairs(20));
  ASSERT_EQ(run.train().code, 0);
  run.set({{"loss_type", "OnlineContrastiveLoss"}});
  const ProcessResult refused = run.train({"--restart"});
  EXPECT_EQ(refused.code, 1) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("labels of 0 and 1"));
  run.set({{"loss_type", "MultipleNegativesRankingLoss"}});
  const ProcessResult warned = run.train({"--restart"});
  EXPECT_EQ(warned.code, 0) << warned.err;
  EXPECT_THAT(warned.err, HasSubstr("column 'score' is not read"));
}

TEST(Embedding, TheCommandLineTakesSeveralSets) {
  const TwoSets run;
  const std::string sets =
      Json{{"a", run.folder() / "train.jsonl"},
           {"b", {{"path", run.folder() / "scored.jsonl"}, {"loss_type", "CoSENTLoss"}}}}
          .dump();
  const ProcessResult trained = run.train({"--train_file", sets});
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("'b': 20 samples of 2 texts, CoSENTLoss"));
}

TEST(Embedding, TheReportShowsSimilaritiesAndWhatWasFoundWrongly) {
  const EmbeddingRun run(TinyRun::Keys{{"matryoshka_dims", "[32, 4]"}});
  ASSERT_EQ(run.train().code, 0);
  const Json written = parse_json(read_file(run.out("worst_samples.json")), "");
  EXPECT_EQ(written["samples"], 20);
  ASSERT_GT(written["worst"].size(), 0U);
  EXPECT_NE(written["worst"][0]["label"], written["worst"][0]["predicted"]);
  const ProcessResult report =
      testing::run(finetune_command({"report", run.out(), "--format", "json", "-o", "-"}));
  ASSERT_EQ(report.code, 0) << report.err;
  const Json page = parse_json(report.out, "");
  const Json& shown = page["runs"][0]["worst"];
  EXPECT_EQ(shown["measure"], "rank");
  EXPECT_EQ(shown["worst"][0]["text"], written["worst"][0]["text"]);
  int64_t pairs = 0;
  for (const Json& count : shown["similarities"]["positives"]) pairs += count.get<int64_t>();
  EXPECT_EQ(pairs, 20);
  EXPECT_TRUE(page["runs"][0]["results"].contains("eval_dim_4_cosine_ndcg@10"));
}

TEST(Embedding, PredictUsesTheModelsPrompts) {
  const EmbeddingRun run(TinyRun::Keys{{"prompts", "{anchor: 'the light ', positive: 'a boat '}"},
                                       {"include_prompt", "false"},
                                       {"normalize_embeddings", "true"}});
  ASSERT_EQ(run.train().code, 0);
  const auto predict = [&](const Arguments& more, int code = 0) {
    Arguments words = finetune_command({"predict", run.out(), "--use_cpu"});
    words.insert(words.end(), more.begin(), more.end());
    const ProcessResult result = testing::run(words);
    EXPECT_EQ(result.code, code) << result.err;
    return code == 0 ? parse_json(result.out, "answer") : Json(result.err);
  };
  const Json plain = predict({"--text", "keeper"})["embedding"];
  const Json prompted = predict({"--text", "keeper", "--prompt_name", "anchor"})["embedding"];
  EXPECT_NE(plain, prompted);
  EXPECT_NE(prompted, predict({"--text", "the light keeper"})["embedding"]);  // pools the prompt
  EXPECT_THAT(predict({"--text", "keeper", "--prompt_name", "query"}, 2).get<std::string>(),
              HasSubstr("anchor, positive"));
  run.folder().write("corpus.jsonl", "{\"positive\": \"keeper\"}\n");
  const Json found = predict(
      {"--query", "keeper", "--input", run.folder() / "corpus.jsonl", "--text_column", "positive"});
  const double score = found["nearest"][0]["score"].get<double>();
  const Json other = predict({"--text", "keeper", "--prompt_name", "positive"})["embedding"];
  double product = 0;
  for (size_t i = 0; i < other.size(); ++i) {
    product += other[i].get<double>() * prompted[i].get<double>();
  }
  EXPECT_NEAR(score, product, 1e-5);
}

// The vector of a decoder is that of its last token.
TEST(Embedding, AnAdapterOfADecoderIsMergedWithItsModules) {
  const std::string llama = source_dir() + "/tests/fixtures/parity/tasks/llama";
  for (const char* bits : {"false", "true"}) {
    const EmbeddingRun run({{"model_type", ""},
                            {"config_overrides", ""},
                            {"model_name_or_path", llama + "/weather"},
                            {"tokenizer_name", llama + "/tokenizer"},
                            {"use_peft", "true"},
                            {"lora_r", "4"},
                            {"load_in_4bit", bits},
                            {"learning_rate", "1e-2"},
                            {"dense", "{out_features: 20, bias: false}"},
                            {"normalize_embeddings", "true"}});
    const ProcessResult trained = run.train();
    ASSERT_EQ(trained.code, 0) << trained.err;
    const std::string merged = run.folder() / "merged";
    const ProcessResult exported = testing::run(
        finetune_command({"export", run.out(), merged, "--outtype", "f32", "--merge_base",
                          std::string(bits) == "true" ? "trained" : "original"}));
    ASSERT_EQ(exported.code, 0) << exported.err;
    const auto vector_of = [](const std::string& folder) {
      const ProcessResult result =
          testing::run(finetune_command({"predict", folder, "--use_cpu", "--text", "the lamp"}));
      EXPECT_EQ(result.code, 0) << result.err;
      return parse_json(result.out, "")["embedding"].get<std::vector<double>>();
    };
    const std::vector<double> own = vector_of(run.out());
    const std::vector<double> of_merged = vector_of(merged);
    ASSERT_EQ(own.size(), 20U);
    ASSERT_EQ(of_merged.size(), 20U);
    for (size_t i = 0; i < own.size(); ++i) EXPECT_NEAR(own[i], of_merged[i], 1e-5) << bits;
  }
}

// scripts/ci/llama_cpp compares the files with llama.cpp's.
TEST(Embedding, GgufHasTheTensorsAndThePooling) {
  const EmbeddingRun run(TinyRun::Keys{
      {"model_type", "bert"},
      {"pooling_mode", "cls"},
      {"tokenizer_name", source_dir() + "/tests/fixtures/parity/tasks/bert/tokenizer"}});
  ASSERT_EQ(run.train().code, 0);
  const std::string file = run.folder() / "model.gguf";
  const ProcessResult done = testing::run(
      finetune_command({"export", run.out(), file, "--outtype", "f32", "--verify", "logits"}));
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.out + done.err, HasSubstr("0 apart"));
  const std::string content = read_file(file);
  for (const char* name : {"bert.pooling_type", "blk.1.layer_output_norm.weight", "token_types"}) {
    EXPECT_NE(content.find(name), std::string::npos) << name;
  }
  EXPECT_EQ(content.find("pooler"), std::string::npos);
  const std::string copy = run.folder() / "copy";
  std::filesystem::copy(run.out(), copy, std::filesystem::copy_options::recursive);
  std::filesystem::remove(copy + "/manifest.json");
  Json cased = parse_json(read_file(copy + "/tokenizer.json"), "");
  cased["normalizer"]["lowercase"] = false;
  write_file(copy + "/tokenizer.json", cased.dump());
  const ProcessResult refused =
      testing::run(finetune_command({"export", copy, run.folder() / "cased.gguf"}));
  EXPECT_EQ(refused.code, 1) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("uncased"));
}

TEST(Embedding, ARestartMovesTheModulesOfTheFormerModel) {
  const EmbeddingRun run(TinyRun::Keys{{"dense", "{out_features: 12}"}});
  ASSERT_EQ(run.train().code, 0);
  const std::string former = read_file(run.out("2_Dense/model.safetensors"));
  const ProcessResult again = run.train({"--restart", "--dense", "{out_features: 7}"});
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_TRUE(read_file(run.out("run.old-1/2_Dense/model.safetensors")) == former);
  const ProcessResult without = run.train({"--restart", "--dense", "null"});
  ASSERT_EQ(without.code, 0) << without.err;
  EXPECT_FALSE(std::filesystem::exists(run.out("2_Dense")));
  const auto dims = [](const std::string& folder) {
    const ProcessResult result =
        testing::run(finetune_command({"predict", folder, "--use_cpu", "--text", "the lamp"}));
    EXPECT_EQ(result.code, 0) << result.err;
    return parse_json(result.out, "")["embedding"].size();
  };
  EXPECT_EQ(dims(run.out()), 32U);
  EXPECT_EQ(dims(run.out("run.old-1")), 12U);
  EXPECT_EQ(dims(run.out("run.old-2")), 7U);
}

TEST(Embedding, ADenseLayerThatDoesNotFitIsRefused) {
  const EmbeddingRun run(TinyRun::Keys{{"dense", "{out_features: 12}"}});
  ASSERT_EQ(run.train().code, 0);
  const EmbeddingRun again({{"model_type", ""},
                            {"config_overrides", ""},
                            {"model_name_or_path", run.out()},
                            {"tokenizer_name", run.out()},
                            {"dense", "{out_features: 12}"}});
  const ProcessResult second = again.train();
  EXPECT_EQ(second.code, 2);
  EXPECT_THAT(second.err, HasSubstr("already"));
  std::filesystem::remove(run.out("manifest.json"));
  const auto refused = [&](const char* key, const Json& value, const std::string& why) {
    const std::string path = run.out("2_Dense/config.json");
    const std::string intact = read_file(path);
    Json json = parse_json(intact, path);
    json[key] = value;
    write_file(path, json.dump());
    const ProcessResult result =
        testing::run(finetune_command({"predict", run.out(), "--use_cpu", "--text", "the lamp"}));
    EXPECT_NE(result.code, 0) << key;
    EXPECT_THAT(result.err, HasSubstr(why));
    write_file(path, intact);
  };
  refused("in_features", 31, "2_Dense asks for vectors of 31 dimensions, and the model has 32");
  refused("out_features", 13, "2_Dense.linear.weight");
  refused("bias", false, "2_Dense.linear.bias");
  refused("use_residual", true, "use_residual is not available");
  refused("activation_function", "torch.nn.modules.activation.Softmax", "Softmax");
  const auto refused_modules = [&](const std::string& file, const std::string& content,
                                   const std::string& why) {
    const std::string intact = read_file(run.out(file));
    write_file(run.out(file), content);
    const ProcessResult result =
        testing::run(finetune_command({"predict", run.out(), "--use_cpu", "--text", "the lamp"}));
    EXPECT_EQ(result.code, 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr(why));
    write_file(run.out(file), intact);
  };
  Json modules = parse_json(read_file(run.out("modules.json")), "");
  std::swap(modules[1], modules[2]);
  refused_modules("modules.json", modules.dump(), "in this order");
  refused_modules("config_sentence_transformers.json", "{\"truncate_dim\": 5}", "--dims 5");
  std::filesystem::remove(run.out("2_Dense/model.safetensors"));
  refused("bias", true, "2_Dense");
}

TEST(Embedding, RefusesWhatItCannotLearn) {
  const std::vector<Refusal> refusals = {
      {R"({"a": "x y", "b": " "})", {}, 1, {"train.jsonl:1", "'b'"}},
      {R"({"a": "x y"})", {}, 2, {"text_columns", "'a'"}},
      {R"({"a": "x", "b": "y"})", {{"loss_type", "CoSENTLoss"}}, 2, {"loss_type", "label"}},
      {R"({"a": "x", "b": "y", "score": 3.5})",
       {{"loss_type", "CosineSimilarityLoss"}},
       1,
       {"train.jsonl:1", "'score'", "3.5"}},
      {R"({"a": "x", "b": "y", "label": 2})",
       {{"loss_type", "ContrastiveLoss"}},
       1,
       {"train.jsonl:1", "'label'"}},
      {R"({"a": "x", "b": "y"})", {{"loss_type", "TripletLoss"}}, 2, {"loss_type", "TripletLoss"}},
      {R"({"a": "x", "b": "y"})", {{"loss_kwargs", "{scales: 3}"}}, 2, {"loss_kwargs", "'scales'"}},
      {R"({"a": "x", "b": "y"})", {{"prompts", "{c: 'q: '}"}}, 2, {"prompts", "'c'"}},
      {R"({"a": "x", "b": "y"})",
       {{"prompts",
         "{a: 'a long text before each of the texts, which leaves them no room at all'}"}},
       2,
       {"prompts", "max_seq_length 32"}},
      {R"({"a": "x", "b": "y"})", {{"matryoshka_dims", "[64]"}}, 2, {"matryoshka_dims", "32"}},
      {R"({"a": "x", "b": "y"})", {{"dense", "{size: 3}"}}, 2, {"dense", "size: 3"}},
      {R"({"a": "x", "b": "y"})", {{"dense", "{bias: true}"}}, 2, {"dense", "out_features"}},
      {R"({"a": "x", "b": "y"})",
       {{"dense", "{out_features: 3, activation_function: Softmax}"}},
       2,
       {"dense", "'Softmax'", "Tanh"}},
      {R"({"a": "x", "b": "y"})", {{"mini_batch_size", "3"}}, 2, {"mini_batch_size"}},
      {"{\"a\": \"x\", \"b\": [\"y\", \"z\"]}\n{\"a\": \"x\", \"b\": [\"y\"]}",
       {},
       1,
       {"train.jsonl:2", "train.jsonl:1"}}};
  expect_refused<EmbeddingRun>(refusals);
}

}  // namespace
}  // namespace finetune::testing
