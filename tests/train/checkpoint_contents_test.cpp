// SPDX-License-Identifier: MIT
#include "train/save/checkpoint_contents.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/checkpoint/reader.h"
#include "finetune/train/run.h"
#include "support/paths.h"

namespace finetune {
namespace {

// A file that no run of ours has.
class NotesPart : public CheckpointPart {
 public:
  std::vector<checkpoint::CheckpointFile> save(const SaveScope&) override {
    return {checkpoint::text_file("notes.txt", notes)};
  }
  void load(const SavedFolder& folder) override {
    notes = folder.files.read_all(join_path(folder.path, "notes.txt"));
  }
  std::string notes = "nothing yet";
};

// Requests a stop while a checkpoint is restored.
class StoppedPart final : public NotesPart {
 public:
  void load(const SavedFolder& folder) override {
    interrupt::request(SIGTERM);
    NotesPart::load(folder);
  }
};

class TrainedRun {
 public:
  int train_to(int64_t steps, const std::shared_ptr<CheckpointPart>& part) {
    const std::string data = source_dir() + "/tests/fixtures/checkpoints/v1/float32/";
    const LoadedConfig config =
        load_config("", {"--output_dir",
                         folder_ / "out",
                         "--cache_dir",
                         folder_ / "cache",
                         "--model_type",
                         "bert",
                         "--tokenizer_name",
                         data + "tokenizer",
                         "--train_file",
                         data + "train.txt",
                         "--config_overrides",
                         R"({"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 16, )"
                         R"("intermediate_size": 16, "max_position_embeddings": 12})",
                         "--line_by_line",
                         "true",
                         "--max_seq_length",
                         "12",
                         "--max_steps",
                         std::to_string(steps),
                         "--save_steps",
                         "2",
                         "--per_device_train_batch_size",
                         "4",
                         "--use_cpu",
                         "true",
                         "--report_to",
                         "none"});
    return run_training(config, {.more_parts = {part}});
  }
  [[nodiscard]] std::string out(const std::string& name) const { return folder_ / "out/" + name; }

 private:
  testing::TemporaryFolder folder_;
};

TEST(CheckpointContents, APartIsSavedVerifiedAndRestored) {
  TrainedRun run;
  const auto written = std::make_shared<NotesPart>();
  written->notes = "step two";
  ASSERT_EQ(run.train_to(2, written), 0);
  const std::string path = run.out("checkpoint-2");
  ASSERT_TRUE(std::filesystem::exists(path + "/notes.txt"));
  FileSystem& files = FileSystem::local();
  EXPECT_TRUE(checkpoint::inspect_checkpoint(files, path, true).whole);
  EXPECT_TRUE(std::filesystem::exists(run.out("notes.txt"))) << "the finished model has it too";

  const auto read = std::make_shared<NotesPart>();
  ASSERT_EQ(run.train_to(4, read), 0);
  EXPECT_EQ(read->notes, "step two");

  std::ofstream(path + "/notes.txt") << "step six";
  EXPECT_FALSE(checkpoint::inspect_checkpoint(files, path, true).whole);
}

TEST(CheckpointContents, RestoringEndsAtASignal) {
  TrainedRun run;
  ASSERT_EQ(run.train_to(2, std::make_shared<NotesPart>()), 0);
  EXPECT_THROW((void)run.train_to(4, std::make_shared<StoppedPart>()), Interrupted);
  interrupt::reset();
  const auto read = std::make_shared<NotesPart>();
  EXPECT_EQ(run.train_to(4, read), 0);
  EXPECT_EQ(read->notes, "nothing yet");
}

}  // namespace
}  // namespace finetune
