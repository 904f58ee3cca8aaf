// SPDX-License-Identifier: MIT
// R10: damage to any region of any file of a checkpoint is detected, and the previous checkpoint is
// used. R15: clocks and file times have no effect. R22: all of these, one after another.
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "faults/fault_run.h"
#include "support/file_content.h"

namespace finetune::testing {
namespace {

namespace fs = std::filesystem;
using Random = std::mt19937_64;

void put_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// Damages one file in one way, within part `region` of `regions` equal parts. Returns false if that
// changes nothing.
bool damage(const std::string& path, const std::string& other, int kind, size_t region,
            size_t regions, Random& random) {
  const std::string before = file_content(path);
  std::string bytes = before;
  const size_t part = std::max<size_t>(1, bytes.size() / regions);
  const size_t position = std::min(region * part + random() % part, bytes.size() - 1);
  switch (kind) {
    case 0:
      bytes[position] = static_cast<char>(bytes[position] ^ (1 << (random() % 8)));
      break;
    case 1:
      bytes.insert(position, 1, static_cast<char>(random()));
      break;
    case 2:
      bytes.resize(position);
      break;
    case 3: {
      const size_t size = std::min<size_t>(512, bytes.size() - position);
      bytes.replace(position, size, size, '\0');
      break;
    }
    case 4:
      if (!fs::exists(other)) return false;
      bytes = file_content(other);
      break;
    default:
      fs::remove(path);
      return true;
  }
  put_file(path, bytes);
  return bytes != before;
}

// Damages the newer one of two checkpoints.
void damage_a_checkpoint(FaultRun& run, Row& row, int64_t cases) {
  const auto checkpoint = [&](int64_t save) {
    return "checkpoint-" + std::to_string(save * run.settings().save_steps);
  };
  const std::string newer = checkpoint(3);
  const std::string trash = ".trash-" + checkpoint(1) + ".";
  run.keep_killed_at("two", [&](const CaseRecord::Entry& entry) {
    return starts(entry, trash) && entry.operation == Operation::kRemove;
  });
  run.take("two");
  ASSERT_EQ(run.names(newer).size(), 1U);
  std::vector<std::string> files = FileSystem::local().list(run.out(newer));
  ASSERT_GE(files.size(), 8U);
  Random random(base_seed());
  constexpr size_t kRegions = 8;
  for (int64_t i = 0; row.cases() < cases; ++i) {
    const auto turn = static_cast<size_t>(i);
    const std::string& name = files[turn % files.size()];
    const int kind = static_cast<int>(turn / files.size() % 6);
    const size_t region = turn / files.size() / 6 % kRegions;
    // these kinds have no regions
    if (kind >= 4 && i > 2 * static_cast<int64_t>(files.size() * 6)) continue;
    run.take("two");
    if (!damage(run.out(newer + "/" + name), run.out(checkpoint(2) + "/" + name), kind, region,
                kRegions, random)) {
      continue;
    }
    const Session session = run.start();
    std::string problem;
    if (session.code != 0) problem = "exit code " + std::to_string(session.code);
    if (session.resumed != 2 * run.settings().save_steps)
      problem = "resumed from " + std::to_string(session.resumed);
    if (run.names(newer + ".bad-1").size() != 1) problem += " nothing was quarantined";
    if (problem.empty()) problem = run.compare();
    row.add(name + ", damage " + std::to_string(kind) + ", region " + std::to_string(region),
            problem.empty() ? problem : problem + "\n" + session.said);
  }
}

TEST(R10, DamageToAnyRegionOfAnyFile) {
  FaultRun run;
  Row row("R10");
  damage_a_checkpoint(run, row, scaled(500));
}

TEST(R10Adapter, DamageToAnyFile) {
  FaultRun run(adapter_run());
  Row row("R10 adapter");
  damage_a_checkpoint(run, row, scaled(60));
}

// Damages the files next to the checkpoints of a finished run.
TEST(R10b, DamageToTheFilesBesideTheCheckpoints) {
  FaultRun run;
  Row row("R10b");
  ASSERT_EQ(run.start().code, 0);
  run.keep_as("finished");
  Random random(base_seed());
  for (const std::string name : {"finetune_state.json", "trainer_state.json", "all_results.json"}) {
    for (int kind = 0; kind < 6; ++kind) {
      for (size_t region = 0; region < (kind < 4 ? 4U : 1U); ++region) {
        run.take("finished");
        if (!damage(run.out(name), run.out("config.json"), kind, region, 4, random)) continue;
        const Session session = run.start();
        row.add(name + ", damage " + std::to_string(kind) + ", region " + std::to_string(region),
                session.code == 0 ? "" : session.said);
      }
    }
  }
}

TEST(R15, TimesOfFilesMeanNothing) {
  FaultRun run;
  Row row("R15");
  run.keep_killed_at("three", [](const CaseRecord::Entry& entry) {
    return starts(entry, "checkpoint-3") && entry.operation == Operation::kRename;
  });
  run.keep_killed_at("two", [](const CaseRecord::Entry& entry) {
    return starts(entry, ".trash-checkpoint-3.") && entry.operation == Operation::kRemove;
  });
  Random random(base_seed());
  for (int64_t i = 0; i < scaled(10); ++i) {
    run.take(i % 2 == 0 ? "two" : "three");
    for (const auto& entry : fs::recursive_directory_iterator(run.out())) {
      const auto seconds = std::chrono::seconds(random() % 3 == 0 ? 0 : random() % (1U << 31));
      const auto time = std::chrono::file_clock::from_sys(std::chrono::sys_seconds(seconds));
      fs::last_write_time(entry.path(), time);
    }
    row.add("times " + std::to_string(i), run.finish(9));
  }
}

void strike_again_and_again(FaultRun& run, Row& row, int64_t cases) {
  const auto changes = static_cast<int64_t>(run.changes().size());
  Random random(base_seed());
  for (int64_t i = 0; i < cases; ++i) {
    run.start_over();
    int64_t newest = 0;
    std::string what;
    std::string problem;
    for (int fault_number = 0; fault_number < 6 && problem.empty(); ++fault_number) {
      Fault fault{.at = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(changes))};
      constexpr std::array kActions = {Fault::Action::kKill, Fault::Action::kPowerCut,
                                       Fault::Action::kError};
      fault.action = kActions[random() % 3];
      fault.error = random() % 2 == 0 ? EIO : ENOSPC;
      fault.seed = random() % 100;
      fault.torn = random() % 2 == 0;
      fault.until = fault.action == Fault::Action::kError ? fault.at + 1 : fault.at;
      const Session session = run.start(fault);
      what += std::to_string(static_cast<int>(fault.action)) + " at " + std::to_string(fault.at) +
              " seed " + std::to_string(fault.seed) + " -> " + std::to_string(session.code) + ", ";
      const int code = session.code;
      if (code != 0 && code != 1 && code != 4 && code != 137) problem = session.said;
      if (session.resumed >= 0 && session.resumed < newest) problem = "older: " + session.said;
      newest = std::max<int64_t>(newest, run.record().durable);
    }
    row.add(what, problem.empty() ? run.finish(newest) : problem);
  }
}

TEST(R22, OneFaultAfterAnother) {
  FaultRun run;
  Row row("R22");
  strike_again_and_again(run, row, scaled(40));
}

TEST(R22Adapter, OneFaultAfterAnother) {
  FaultRun run(adapter_run());
  Row row("R22 adapter");
  strike_again_and_again(run, row, scaled(6));
}

}  // namespace
}  // namespace finetune::testing
