// SPDX-License-Identifier: MIT
// Files that are not regular, names with control characters, endless values, and stacks that are
// too small: one error line of limited length each, at once.
#include <sys/stat.h>

#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Without the checks each of these would wait forever.
constexpr double kSeconds = 60;

class HostileFiles : public ::testing::Test {
 protected:
  HostileFiles() {
    std::filesystem::copy(kMaskedLm, model_, std::filesystem::copy_options::recursive);
  }

  void put_fifo(const std::string& name) const {
    std::filesystem::remove(model_ + "/" + name);
    ASSERT_EQ(::mkfifo((model_ + "/" + name).c_str(), 0600), 0);
  }
  // Sets a field of config.json.
  void set(const std::string& key, const Json& value) const {
    const std::string path = model_ + "/config.json";
    Json config = parse_json(read_file(path), path);
    config[key] = value;
    write_file(path, config.dump());
  }
  [[nodiscard]] ProcessResult predict() const {
    return finetune({"predict", model_, "--text", "a <mask>"}, {}, kSeconds);
  }
  // Expects one error line of limited length without control characters.
  static void expect_one_line(const ProcessResult& result, int code) {
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_TRUE(result.err.starts_with("error: ")) << result.err;
    EXPECT_LT(result.err.size(), 2'200U);
    for (const char c : result.err) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= ' ');
  }

  TemporaryFolder folder_;
  std::string model_ = folder_ / "model";
};

TEST_F(HostileFiles, FifosInAModelFolderAreRefusedAtOnce) {
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json"}) {
    SCOPED_TRACE(name);
    std::filesystem::remove_all(model_);
    std::filesystem::copy(kMaskedLm, model_, std::filesystem::copy_options::recursive);
    put_fifo(name);
    const ProcessResult result = predict();
    expect_one_line(result, 1);
    EXPECT_THAT(result.err, AllOf(HasSubstr(name), HasSubstr("it is a FIFO")));
  }
}

TEST_F(HostileFiles, FifosOfATrainingAreRefusedAtOnce) {
  put_fifo("tokenizer.json");
  const TinyRun run(TinyRun::Keys{{"tokenizer_name", model_}});
  const ProcessResult tokenizer = run.train();
  EXPECT_EQ(tokenizer.code, 1) << tokenizer.err;
  EXPECT_THAT(tokenizer.err, HasSubstr("it is a FIFO"));
  const std::string fifo = folder_ / "run.yaml";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const Arguments& words : {Arguments{"train", fifo}, Arguments{"config", "check", fifo}}) {
    const ProcessResult result = finetune(words, {}, kSeconds);
    expect_one_line(result, 2);
    EXPECT_THAT(result.err, HasSubstr("it is a FIFO"));
  }
  const ProcessResult device = finetune({"train", "/dev/zero"}, {}, kSeconds);
  expect_one_line(device, 2);
  EXPECT_THAT(device.err, HasSubstr("it is a device"));
}

TEST_F(HostileFiles, ReadingFromAPipeObeysTheFirstSignal) {
  const std::string fifo = folder_ / "input.txt";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const bool has_writer : {false, true}) {
    SCOPED_TRACE(has_writer);
    const int writer = has_writer ? ::open(fifo.c_str(), O_RDWR | O_CLOEXEC) : -1;
    Process process(finetune_command({"predict", model_, "--input", fifo}));
    // In pipe_read or wait_for_partner: the process only waits.
    const std::string stat = "/proc/" + std::to_string(process.id()) + "/wchan";
    const auto waits = [&] {
      const std::string where = read_file(stat);
      return where.find("pipe") != std::string::npos || where.find("fifo") != std::string::npos ||
             where.find("partner") != std::string::npos;
    };
    for (int i = 0; i < 100 && !waits(); ++i) (void)process.wait_until(0.1 * (i + 1));
    process.send(SIGTERM);
    const ProcessResult result = process.finish(kSeconds);
    EXPECT_EQ(result.code, 75) << result.err;
    if (writer >= 0) ::close(writer);
  }
}

// In a folder that others can write to, a link or FIFO in place of the program's own file neither
// leads to a file of the user nor keeps the command waiting.
TEST(PlantedFiles, AreNeitherFollowedNorWaitedFor) {
  const TemporaryFolder elsewhere;
  const std::string mine = elsewhere.write("mine.txt", "mine");
  const TinyRun::Keys keys = {{"max_steps", "2"}, {"eval_strategy", "no"}};
  for (const std::string name : {"metrics.jsonl", "sessions.jsonl", ".finetune.lock", "runs"}) {
    for (const bool is_fifo : {false, true}) {
      SCOPED_TRACE(name + (is_fifo ? " FIFO" : " link"));
      TinyRun run(keys);
      run.set({{"report_to", "tensorboard"}});
      const std::string path = run.out(name);
      if (is_fifo) {
        ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
      } else if (name == "runs") {
        std::filesystem::create_directory_symlink(elsewhere.path(), path);
      } else {
        std::filesystem::create_symlink(mine, path);
      }
      const ProcessResult result = run.train();  // ends
      EXPECT_THAT(result.code, ::testing::AnyOf(0, 1, 2)) << result.err;
      EXPECT_EQ(read_file(mine), "mine");
      if (result.code != 0) {
        EXPECT_THAT(result.err, HasSubstr(path));
      }
    }
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(elsewhere.path()), {}), 1);
}

TEST(PlantedFiles, InAMirrorAreRefusedAtTheStart) {
  const TemporaryFolder elsewhere;
  const std::string mine = elsewhere.write("mine.txt", "mine");
  for (const bool is_fifo : {false, true}) {
    TinyRun run(TinyRun::Keys{{"max_steps", "2"}, {"eval_strategy", "no"}});
    const std::string mirror = run.folder() / "mirror";
    std::filesystem::create_directory(mirror);
    run.set({{"mirror_dir", mirror}});
    const std::string lock = mirror + "/.finetune.lock";
    if (is_fifo) {
      ASSERT_EQ(::mkfifo(lock.c_str(), 0600), 0);
    } else {
      std::filesystem::create_symlink(mine, lock);
    }
    const ProcessResult result = run.train();
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr("'" + lock + "' is a link, FIFO or device"));
    EXPECT_EQ(read_file(mine), "mine");
  }
}

TEST_F(HostileFiles, ControlCharactersAreEscaped) {
  set("model_type", "\x1b[31m\a猫");
  const ProcessResult result = predict();
  expect_one_line(result, 1);
  EXPECT_THAT(result.err, HasSubstr("\\u001b[31m\\u0007猫"));
}

TEST_F(HostileFiles, LongValuesAreShortened) {
  set("model_type", std::string(5'000, 'x'));
  const ProcessResult result = predict();
  expect_one_line(result, 1);
  EXPECT_THAT(result.err, HasSubstr(" bytes left out ..."));
}

TEST_F(HostileFiles, ListsOfTensorsAreBounded) {
  set("hidden_size", 16);
  set("num_attention_heads", 2);
  set("num_hidden_layers", 12);
  const ProcessResult result = predict();
  expect_one_line(result, 1);
  EXPECT_LT(result.err.size(), 1'000U) << result.err;
  EXPECT_THAT(result.err, HasSubstr(" more"));
}

ProcessResult with_stack(const std::string& limit, const Arguments& arguments) {
  Arguments words = {"sh", "-c", "ulimit " + limit + " && exec \"$0\" \"$@\""};
  for (const std::string& word : finetune_command(arguments)) words.push_back(word);
  return run(words);
}

TEST(StackLimit, ThatIsTooSmallIsAnError) {
  for (const char* kibibytes : {"64", "512"}) {
    for (const Arguments& words : {Arguments{"--version"}, Arguments{"train", "none.yaml"}}) {
      const ProcessResult result = with_stack("-s " + std::string(kibibytes), words);
      EXPECT_EQ(result.code, 1) << kibibytes << result.err;
      EXPECT_THAT(result.err, AllOf(HasSubstr("error: the stack limit (ulimit -Hs) is below"),
                                    HasSubstr("ulimit -s 8192")));
      EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    }
  }
}

TEST(StackLimit, IsRaisedWhereOnlyTheSoftLimitIsTooSmall) {
  const TinyRun run;
  const ProcessResult result = with_stack("-S -s 64", {"train", run.config()});
  EXPECT_EQ(result.code, 0) << result.err;
  expect_equal(outcome_of(run), unbroken());
}

// The smallest accepted stack must be enough, also for a chat template that recurses without end.
TEST(StackLimit, ThatIsAcceptedIsEnough) {
  const TinyRun run;
  const ProcessResult result = with_stack("-s 2048", {"train", run.config()});
  EXPECT_EQ(result.code, 0) << result.err;
  expect_equal(outcome_of(run), unbroken());
  const TemporaryFolder folder;
  folder.write("deep.jinja",
               "{% macro f(a) %}{% for x in [1] %}{% if true %}{% set y %}{{ f(a) }}"
               "{% endset %}{{ y }}{% endif %}{% endfor %}{% endmacro %}{{ f(1) }}");
  folder.write("data.jsonl", R"({"messages": [{"role": "user", "content": "a"}]})");
  const ProcessResult deep =
      with_stack("-s 2048", {"train", run.config(), "--output_dir", folder / "out", "--task", "sft",
                             "--model_type", "llama", "--config_overrides", "{}", "--train_file",
                             folder / "data.jsonl", "--chat_template_path", folder / "deep.jinja",
                             "--dry_run"});
  EXPECT_EQ(deep.code, 1) << deep.err;
  EXPECT_THAT(deep.err, HasSubstr("the template recurses too deeply"));
}

}  // namespace
}  // namespace finetune::testing
