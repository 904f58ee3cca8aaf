// SPDX-License-Identifier: MIT
// calibrate of classifiers; decision_test and tests/parity have that of decisions.
#include <cmath>

#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;

TinyRun::Keys weather(const TinyRun::Keys& more) {
  TinyRun::Keys keys = {{"task", "sequence_classification"},
                        {"train_file", kTasks + "weather-train.jsonl"},
                        {"validation_file", kTasks + "weather-valid.jsonl"},
                        {"max_steps", "6"},
                        {"eval_steps", "3"},
                        {"save_steps", "3"}};
  for (const auto& [key, value] : more) keys[key] = value;
  return keys;
}

Json scores_of(const TinyRun& run, const std::string& function) {
  const ProcessResult result = testing::run(
      finetune_command({"predict", run.out(), "--use_cpu", "--text", "A storm broke the glass.",
                        "--function_to_apply", function, "--top_k", "2"}));
  EXPECT_EQ(result.code, 0) << result.err;
  return parse_json(result.out, "");
}

TEST(Calibration, DividesTheLogitsOfAFinishedClassifier) {
  const TinyRun run(weather({{"calibrate", "true"}}));
  ASSERT_EQ(run.train().code, 0);
  const Json results = parse_json(read_file(run.out("eval_results.json")), "");
  const Json file = parse_json(read_file(run.out("calibration.json")), "");
  const auto temperature = file["temperature"].get<double>();
  EXPECT_EQ(temperature, results["eval_temperature"].get<double>());
  EXPECT_NE(temperature, 1.0);
  EXPECT_FALSE(fs::exists(run.out("checkpoint-6/calibration.json")));

  const Json logits = scores_of(run, "none");
  const double margin = logits[0]["score"].get<double>() - logits[1]["score"].get<double>();
  EXPECT_NEAR(scores_of(run, "softmax")[0]["score"].get<double>(),
              1.0 / (1.0 + std::exp(-margin / temperature)), 1e-5);

  const ProcessResult evaluated =
      testing::run(finetune_command({"evaluate", run.config(), "--output_dir", run.out()}));
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  const Json after = parse_json(evaluated.out, "");
  EXPECT_LT(after["eval_loss"].get<double>(), results["eval_loss"].get<double>());

  // The weights are those of a run without it.
  const TinyRun plain(weather({}));
  ASSERT_EQ(plain.train().code, 0);
  EXPECT_TRUE(read_file(plain.out("model.safetensors")) == read_file(run.out("model.safetensors")));
  EXPECT_FALSE(fs::exists(plain.out("calibration.json")));
}

TEST(Calibration, IsInTheReport) {
  const TinyRun run(weather({{"calibrate", "true"}}));
  ASSERT_EQ(run.train().code, 0);
  const auto kinds_of = [&] {
    const ProcessResult result =
        testing::run(finetune_command({"report", run.out(), "--format", "json"}));
    EXPECT_EQ(result.code, 0) << result.err;
    const Json one = parse_json(result.out, "")["runs"][0];
    return one.contains("calibration") ? one["calibration"] : Json();
  };
  const Json kinds = kinds_of();
  ASSERT_EQ(kinds.size(), 1);
  const Json results = parse_json(read_file(run.out("eval_results.json")), "");
  EXPECT_EQ(kinds[0]["temperature"], results["eval_temperature"]);
  double samples = 0.0;
  double distance = 0.0;
  double right = 0.0;
  for (const Json& bin : kinds[0]["before"]) {
    const auto count = bin["samples"].get<double>();
    samples += count;
    right += count * bin["accuracy"].get<double>();
    distance += count * std::abs(bin["accuracy"].get<double>() - bin["confidence"].get<double>());
  }
  EXPECT_EQ(samples, results["eval_samples"].get<double>());
  EXPECT_NEAR(right / samples, results["eval_accuracy"].get<double>(), 1e-9);
  EXPECT_NEAR(distance / samples, results["eval_ece"].get<double>(), 1e-9);
  EXPECT_NEAR(kinds[0]["coverage"][19].get<double>(), results["eval_accuracy"].get<double>(), 1e-9);
  for (const char* damaged : {"{", "{\"kinds\": 3}", "{\"kinds\": [{\"name\": \"x\"}]}"}) {
    write_file(run.out("eval_calibration.json"), damaged);
    EXPECT_TRUE(kinds_of().is_null()) << damaged;
  }
}

TEST(Calibration, IsRepairedAndRefusedWhereThereIsNothingToCalibrate) {
  const TinyRun run(weather({{"calibrate", "true"}}));
  ASSERT_EQ(run.train().code, 0);
  const std::string good = read_file(run.out("calibration.json"));
  write_file(run.out("calibration.json"), "{\"temperature\": 0}");
  EXPECT_EQ(run.train().code, 0);  // damage of a finished model, which its checkpoint repairs
  EXPECT_EQ(read_file(run.out("calibration.json")), good);

  const TinyRun numbers(weather({{"calibrate", "true"},
                                 {"train_file", kTasks + "likeness-train.jsonl"},
                                 {"validation_file", kTasks + "likeness-valid.jsonl"}}));
  const ProcessResult refused = numbers.train();
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("calibrate"));
}

}  // namespace
}  // namespace finetune::testing
