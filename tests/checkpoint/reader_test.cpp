// SPDX-License-Identifier: MIT
#include "finetune/checkpoint/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <functional>

#include "checkpoint/run_folder.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/interruptible_reads.h"
#include "finetune/base/trash_safe.h"
#include "support/golden.h"
#include "support/paths.h"

namespace finetune::checkpoint {
namespace {

using finetune::testing::message_of;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

FileSystem& files() { return FileSystem::local(); }

const std::vector<std::string> kNames = {"config.json", "finetune_state.json", "manifest.json",
                                         "model.safetensors", "optimizer.pt"};

// Damages one file of checkpoint 2 of a run with checkpoints 1 and 2; expects that 1 is used and
// the reason reported.
void expect_fallback(const std::string& name, const std::function<void(RunFolder&)>& damage) {
  RunFolder run;
  save(run.files, run.output_dir, 1);
  save(run.files, run.output_dir, 2);
  damage(run);
  EXPECT_EQ(run.newest(), 1) << name;
  ASSERT_THAT(run.lines, SizeIs(1)) << name;
  EXPECT_THAT(run.lines[0], HasSubstr("checkpoint-2 is not used: "));
  EXPECT_THAT(run.lines[0], HasSubstr(name));
  EXPECT_THAT(run.lines[0], HasSubstr("kept as checkpoint-2.bad-1"));
  EXPECT_THAT(run.names(), ElementsAre("checkpoint-1", "checkpoint-2.bad-1"));
}

TEST(FindNewestGood, NeitherJudgesNorMovesWhatItCannotRead) {
  RunFolder run;
  save(run.files, run.output_dir, 4);
  run.files.fail_reads(true);
  try {
    (void)run.newest();
    ADD_FAILURE() << "found one";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_GOLDEN(error.what());
  }
  run.files.fail_reads(false);
  EXPECT_EQ(run.newest(), 4);
}

TEST(FindNewestGood, FindsNothingWhereNothingWas) {
  RunFolder run;
  EXPECT_EQ(run.newest(), -1);
  EXPECT_FALSE(find_newest_good(files(), run.output_dir + "/missing", [](const std::string&) {}));
  run.root.write("out/checkpoint-notes.txt", "");
  EXPECT_EQ(run.newest(), -1);
}

TEST(FindNewestGood, EndsAtASignalAndLeavesEverythingAsItIs) {
  RunFolder run;
  save(FileSystem::local(), run.output_dir, 4);
  const auto reads = interruptible_reads(shared_local_files(), "verifying");
  interrupt::request(SIGTERM);
  EXPECT_THROW((void)find_newest_good(*reads, run.output_dir, [](const std::string&) {}),
               Interrupted);
  interrupt::reset();
  EXPECT_EQ(run.names(), std::vector<std::string>{"checkpoint-4"});
  EXPECT_EQ(find_newest_good(*reads, run.output_dir, [](const std::string&) {})->step, 4);
}

TEST(FindNewestGood, OrdersByNumberNotByName) {
  RunFolder run;
  for (const int64_t step : {10, 9, 100}) save(run.files, run.output_dir, step);
  EXPECT_EQ(run.newest(), 100);
  EXPECT_THAT(run.lines, IsEmpty());
}

TEST(FindNewestGood, FallsBackFromAFlippedBitInAnyRegionOfAnyFile) {
  for (const std::string& name : kNames) {
    for (const double region : {0.0, 0.1, 0.5, 0.9, 1.0}) {
      expect_fallback(name, [&](RunFolder& run) {
        std::string content = files().read_all(run.path_of(2, name));
        const auto position = static_cast<size_t>(region * static_cast<double>(content.size() - 1));
        content[position] = static_cast<char>(content[position] ^ 8);
        run.root.write("out/checkpoint-2/" + name, content);
      });
    }
  }
}

TEST(FindNewestGood, FallsBackFromATruncatedExtendedOrMissingFile) {
  for (const std::string& name : kNames) {
    for (const double kept : {0.0, 0.5, 0.99}) {
      expect_fallback(name, [&](RunFolder& run) {
        const auto size = static_cast<double>(files().open(run.path_of(2, name))->size());
        files().truncate(run.path_of(2, name), static_cast<uint64_t>(size * kept));
      });
    }
    expect_fallback(name, [&](RunFolder& run) {
      run.root.write("out/checkpoint-2/" + name, files().read_all(run.path_of(2, name)) + '\0');
    });
    expect_fallback(name, [&](RunFolder& run) { files().remove_file(run.path_of(2, name)); });
    expect_fallback(name, [&](RunFolder& run) {
      files().remove_file(run.path_of(2, name));
      files().make_directory(run.path_of(2, name));
    });
  }
}

TEST(FindNewestGood, FallsBackFromFilesOfAnotherCheckpoint) {
  for (const std::string name : {"finetune_state.json", "model.safetensors", "optimizer.pt"}) {
    expect_fallback(name, [&](RunFolder& run) {
      run.root.write("out/checkpoint-2/" + name, files().read_all(run.path_of(1, name)));
    });
  }
  expect_fallback("manifest is that of step 1", [&](RunFolder& run) {
    for (const std::string& name : kNames) {
      run.root.write("out/checkpoint-2/" + name, files().read_all(run.path_of(1, name)));
    }
  });
}

TEST(FindNewestGood, FallsBackFromALinkAndFromAFileOfThatName) {
  expect_fallback("not a folder", [](RunFolder& run) {
    files().remove_tree(run.path_of(2));
    run.root.write("out/checkpoint-2", "");
  });
  expect_fallback("not a folder", [](RunFolder& run) {
    files().remove_tree(run.path_of(2));
    std::filesystem::create_directory_symlink(run.path_of(1), run.path_of(2));
  });
  expect_fallback("model.safetensors is not a file", [](RunFolder& run) {
    files().remove_file(run.path_of(2, "model.safetensors"));
    std::filesystem::create_symlink(run.path_of(1, "model.safetensors"),
                                    run.path_of(2, "model.safetensors"));
  });
}

TEST(FindNewestGood, IgnoresFilesThatItDoesNotKnowAndSaysSo) {
  RunFolder run;
  save(run.files, run.output_dir, 1);
  run.root.write("out/checkpoint-1/notes.txt", "mine");
  EXPECT_EQ(run.newest(), 1);
  EXPECT_THAT(run.lines, ElementsAre(HasSubstr("notes.txt is not part of the checkpoint")));
}

TEST(FindNewestGood, RefusesToStartAnewWhereOnlyDamagedOnesAre) {
  RunFolder run;
  save(run.files, run.output_dir, 1);
  files().remove_file(run.path_of(1, "optimizer.pt"));
  for (int start = 0; start < 2; ++start) {
    try {
      run.newest();
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kCheckpoint);
      EXPECT_EQ(error.exit_code(), 3);
      EXPECT_THAT(error.what(), HasSubstr("--restart"));
    }
  }
  EXPECT_THAT(run.names(), ElementsAre("checkpoint-1.bad-1"));
  EXPECT_THAT(quarantine_all(run.files, run.output_dir), SizeIs(1));
  EXPECT_EQ(run.newest(), -1);
  EXPECT_THAT(run.names(), ElementsAre("checkpoint-1.old-1"));
}

TEST(FindNewestGood, NumbersWhatItSetsAside) {
  RunFolder run;
  save(run.files, run.output_dir, 1);
  for (int i = 0; i < 2; ++i) {
    save(run.files, run.output_dir, 2);
    files().truncate(run.path_of(2, "model.safetensors"), 3);
    EXPECT_EQ(run.newest(), 1);
  }
  EXPECT_THAT(run.names(), ElementsAre("checkpoint-1", "checkpoint-2.bad-1", "checkpoint-2.bad-2"));
}

TEST(SetAsideAll, KeepsEverythingUnderOtherNames) {
  RunFolder run;
  for (const int64_t step : {1, 2, 3}) save(run.files, run.output_dir, step);
  EXPECT_THAT(quarantine_all(run.files, run.output_dir, 2), SizeIs(1));
  EXPECT_EQ(run.newest(), 2);
  EXPECT_THAT(quarantine_all(run.files, run.output_dir), SizeIs(2));
  EXPECT_EQ(run.newest(), -1);
  EXPECT_THAT(run.names(),
              ElementsAre("checkpoint-1.old-1", "checkpoint-2.old-1", "checkpoint-3.old-1"));
  save(run.files, run.output_dir, 1, "next-run");
  EXPECT_EQ(run.newest(), 1);
}

TEST(ListCheckpoints, ShowsStepSizeRunAndWhatIsWrong) {
  RunFolder run;
  for (const int64_t step : {20, 3}) save(run.files, run.output_dir, step);
  run.root.write("out/checkpoint-20/config.json", "[]");
  const std::vector<CheckpointEntry> quick = list_checkpoints(files(), run.output_dir, false);
  ASSERT_THAT(quick, SizeIs(2));
  EXPECT_EQ(quick[0].step, 3);
  EXPECT_EQ(quick[0].run_id, "run");
  EXPECT_GT(quick[0].bytes, 800U);
  EXPECT_GT(quick[0].created_unix, 1'600'000'000);
  EXPECT_TRUE(quick[1].whole) << "sizes agree";
  const std::vector<CheckpointEntry> full = list_checkpoints(files(), run.output_dir, true);
  EXPECT_TRUE(full[0].whole);
  EXPECT_FALSE(full[1].whole);
  EXPECT_GOLDEN(full[1].problem);
  EXPECT_THAT(run.names(), ElementsAre("checkpoint-20", "checkpoint-3")) << "listing only reads";
}

// Writes a folder in the format of transformers' Trainer, with a model of one float.
void write_foreign(RunFolder& run, int64_t step, const std::string& state) {
  std::filesystem::create_directory(run.path_of(step));
  const std::string folder = "out/checkpoint-" + std::to_string(step) + "/";
  run.root.write(folder + "config.json", "{}");
  run.root.write(folder + "trainer_state.json", state);
  const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  std::string model(1, static_cast<char>(header.size()));
  model += std::string(7, '\0') + header + std::string(4, '\0');
  run.root.write(folder + "model.safetensors", model);
  const std::string data = source_dir() + "/tests/fixtures/tensor/";
  for (const char* name : {"optimizer.pt", "scheduler.pt"}) {
    run.root.write(folder + name, files().read_all(data + name));
  }
}

TEST(ForeignCheckpoint, IsAcceptedByItsStructureWithANote) {
  RunFolder run;
  write_foreign(run, 5, R"({"global_step": 5, "log_history": [{"loss": NaN}]})");
  EXPECT_EQ(run.newest(), 5);
  EXPECT_THAT(run.lines, ElementsAre(HasSubstr("Hugging Face's Trainer")));
  EXPECT_TRUE(inspect_checkpoint(files(), run.path_of(5), true).foreign);
}

TEST(ForeignCheckpoint, IsAcceptedWithEveryFormOfWeights) {
  const std::string data = source_dir() + "/tests/fixtures/tensor/";
  const std::string index =
      R"({"weight_map":{"a":"pytorch_model-1.bin","b":"pytorch_model-2.bin"}})";
  for (const std::string model : {"pytorch_model.bin", "odd_model_legacy.bin"}) {
    for (const bool sharded : {false, true}) {
      RunFolder run;
      write_foreign(run, 5, R"({"global_step": 5})");
      files().remove_file(run.path_of(5, "model.safetensors"));
      const std::string folder = "out/checkpoint-5/";
      const std::string content = files().read_all(data + model);
      const std::string last = sharded ? "pytorch_model-2.bin" : "pytorch_model.bin";
      if (sharded) run.root.write(folder + "pytorch_model-1.bin", content);
      if (sharded) run.root.write(folder + "pytorch_model.bin.index.json", index);
      run.root.write(folder + last, content);
      EXPECT_TRUE(inspect_checkpoint(files(), run.path_of(5), true).whole) << model << sharded;
      run.root.write(folder + last, content.substr(0, content.size() - 1));
      EXPECT_THAT(inspect_checkpoint(files(), run.path_of(5), true).problem, HasSubstr(last));
      files().remove_file(run.path_of(5, last));
      EXPECT_FALSE(inspect_checkpoint(files(), run.path_of(5), true).whole);
    }
  }
}

TEST(ForeignCheckpoint, LeavesTheFilesAloneThatItHasNoUseFor) {
  RunFolder run;
  write_foreign(run, 5, R"({"global_step": 5})");
  for (const char* name : {"training_args.bin", "rng_state.pth", "rng_state_0.pth"}) {
    run.root.write("out/checkpoint-5/" + std::string(name), "cposix\nsystem\n");
  }
  EXPECT_EQ(run.newest(), 5);
  EXPECT_THAT(run.lines, SizeIs(1));
}

TEST(ForeignCheckpoint, SaysThatALossScaleIsNotUsed) {
  RunFolder run;
  write_foreign(run, 5, R"({"global_step": 5})");
  run.root.write("out/checkpoint-5/scaler.pt", files().read_all(run.path_of(5, "scheduler.pt")));
  EXPECT_EQ(run.newest(), 5);
  EXPECT_THAT(run.lines, Contains(HasSubstr("scaler.pt is not used")));
}

TEST(ForeignCheckpoint, SaysWhichPartsStartAfresh) {
  RunFolder run;
  write_foreign(run, 5, R"({"global_step": 5})");
  files().remove_file(run.path_of(5, "optimizer.pt"));
  EXPECT_EQ(run.newest(), 5);
  EXPECT_THAT(run.lines, Contains(HasSubstr("optimizer.pt is missing")));
}

TEST(ForeignCheckpoint, IsRefusedWhereItsStructureIsBroken) {
  const auto problem = [](const std::string& state, const std::function<void(RunFolder&)>& damage) {
    RunFolder run;
    write_foreign(run, 5, state);
    damage(run);
    const CheckpointEntry entry = inspect_checkpoint(files(), run.path_of(5), true);
    EXPECT_FALSE(entry.whole);
    EXPECT_FALSE(entry.unreadable);
    return entry.problem;
  };
  const std::string good = R"({"global_step": 5})";
  EXPECT_THAT(problem(R"({"global_step": 6})", [](RunFolder&) {}), HasSubstr("step 5"));
  EXPECT_THAT(problem(R"({"global_)", [](RunFolder&) {}), HasSubstr("trainer_state.json"));
  const auto truncate = [](const std::string& name) {
    return [name](RunFolder& run) {
      files().truncate(run.path_of(5, name), files().open(run.path_of(5, name))->size() - 3);
    };
  };
  const auto remove = [](const std::string& name) {
    return [name](RunFolder& run) { files().remove_file(run.path_of(5, name)); };
  };
  EXPECT_GOLDEN(problem(good, truncate("model.safetensors")));
  EXPECT_GOLDEN(problem(good, truncate("optimizer.pt")));
  EXPECT_GOLDEN(problem(good, remove("model.safetensors")));
  EXPECT_THAT(problem(good, remove("trainer_state.json")), HasSubstr("trainer_state.json"));
  EXPECT_GOLDEN(problem(good, remove("config.json")));
}

}  // namespace
}  // namespace finetune::checkpoint
