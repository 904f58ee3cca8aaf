// SPDX-License-Identifier: MIT
// The process is killed (R1, R3) or the machine loses power (R4) at every change that a run makes
// to the disk.
#include <gtest/gtest.h>

#include "faults/fault_run.h"
#include "support/paths.h"

namespace finetune::testing {
namespace {

using Entries = std::vector<CaseRecord::Entry>;

// Consecutive writes to one file are equivalent: the first, the second and the last are tested, all
// of them only if there is time.
bool is_worth_it(const Entries& entries, size_t i) {
  const auto same = [&](size_t a, size_t b) {
    return b < entries.size() && entries[b].operation == Operation::kWrite &&
           entries[a].name == entries[b].name;
  };
  if (scaled(1) > 1 || entries[i].operation != Operation::kWrite) return true;
  return i < 2 || !same(i, i - 1) || !same(i, i - 2) || !same(i, i + 1);
}

void kill_at_every_change(FaultRun& run, Row& row) {
  for (size_t i = 0; i < run.changes().size(); ++i) {
    if (!is_worth_it(run.changes(), i) || !is_chosen(static_cast<int64_t>(i))) continue;
    const bool is_write = run.changes()[i].operation == Operation::kWrite;
    const auto at = static_cast<int64_t>(i + 1);
    for (int torn = 0; torn <= (is_write ? 1 : 0); ++torn) {
      run.start_over();
      const Session killed =
          run.start({.action = Fault::Action::kKill, .at = at, .torn = torn == 1});
      const int64_t committed = run.record().committed;
      row.add((torn == 1 ? "in " : "before ") + describe(at, run.changes()[i]),
              killed.code != 137 ? "not killed: " + killed.said : run.finish(committed));
    }
  }
}

TEST(R1, KilledAtEveryChangeOfAWholeRun) {
  FaultRun run;
  Row row("R1");
  kill_at_every_change(run, row);
}

// A packed causal language model, which has other samples and other files.
TEST(R1Causal, KilledAtEveryChangeOfARun) {
  FaultRun run({.steps = 4, .save_steps = 2, .eval_steps = 4, .model_keys = kTinyLlama});
  Row row("R1 causal");
  kill_at_every_change(run, row);
}

// Pairs of answers, whose log has measures.
TEST(R1Pairs, KilledAtEveryChangeOfARun) {
  FaultRun run({.steps = 4,
                .save_steps = 2,
                .eval_steps = 4,
                .model_keys = kTinyPairs,
                .data = source_dir() + "/tests/faults/pairs.jsonl"});
  Row row("R1 pairs");
  kill_at_every_change(run, row);
}

// The base is read and never changed; its folder is outside what a run may change.
TEST(R1Adapter, KilledAtEveryChangeOfARun) {
  RunSettings settings = adapter_run();
  settings.steps = settings.save_steps = 2;
  FaultRun run(settings);
  Row row("R1 adapter");
  kill_at_every_change(run, row);
}

// Without checkpoints only the files of the finished model show the progress of the run.
TEST(R1b, KilledAtEveryChangeOfTheEndWithoutCheckpoints) {
  FaultRun run({.more_keys = "save_strategy: \"no\"\n"});
  Row row("R1b");
  const Entries& entries = run.changes();
  const auto is_export = [](const CaseRecord::Entry& entry) {
    return starts(entry, ".tmp-") || starts(entry, "manifest.json") ||
           starts(entry, "finetune_state.json") || entry.operation == Operation::kSyncDirectory;
  };
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto at = static_cast<int64_t>(i + 1);
    if (!is_export(entries[i]) || !is_worth_it(entries, i) || !is_chosen(at)) continue;
    for (const auto action : {Fault::Action::kKill, Fault::Action::kPowerCut}) {
      run.start_over();
      const Session killed = run.start({.action = action, .at = at, .seed = base_seed()});
      const bool is_cut = action == Fault::Action::kPowerCut;
      row.add((is_cut ? "power cut before " : "killed before ") + describe(at, entries[i]),
              killed.code != 137 ? "not killed: " + killed.said : run.finish(0));
    }
  }
}

bool deletes(const CaseRecord::Entry& entry) {
  return entry.operation == Operation::kRemove || entry.operation == Operation::kRename ||
         entry.operation == Operation::kSyncDirectory ||
         entry.operation == Operation::kMakeDirectory;
}

// Kills a start from a saved state at every change that sweeps, deletes or renames.
void kill_while_deleting(FaultRun& run, Row& row, const std::string& state, int64_t committed) {
  const Entries entries = run.changes_from(state);
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto at = static_cast<int64_t>(i + 1);
    if (!deletes(entries[i]) || !is_chosen(at)) continue;
    run.take(state);
    const Session killed = run.start({.action = Fault::Action::kKill, .at = at});
    const std::string what = state + ", " + describe(at, entries[i]);
    const int64_t newest = std::max<int64_t>(committed, run.record().committed);
    std::string problem = killed.code == 137 ? "" : "not killed: " + killed.said;
    const int64_t kept = run.settings().save_total_limit;
    if (run.record().fewest >= 0 && run.record().fewest < kept) {
      problem = "only " + std::to_string(run.record().fewest) + " checkpoints were left";
    }
    row.add(what, problem.empty() ? run.finish(newest) : problem);
  }
}

TEST(R3, KilledWhileDeletingResumingOrSweeping) {
  Row row("R3");
  for (const int64_t limit : {2, 1}) {
    FaultRun run({.save_total_limit = limit});
    const int64_t staging = run.keep_killed_at("staging", [](const CaseRecord::Entry& entry) {
      return starts(entry, ".tmp-checkpoint-9.") && entry.operation == Operation::kSync;
    });
    kill_while_deleting(run, row, "staging", staging);
    const int64_t trash = run.keep_killed_at("trash", [](const CaseRecord::Entry& entry) {
      return starts(entry, ".trash-checkpoint-3.") && entry.operation == Operation::kRemove;
    });
    kill_while_deleting(run, row, "trash", trash);
  }
}

TEST(R3Adapter, KilledWhileDeletingOrSweeping) {
  FaultRun run(adapter_run());
  Row row("R3 adapter");
  const int64_t trash = run.keep_killed_at("trash", [](const CaseRecord::Entry& entry) {
    return starts(entry, ".trash-checkpoint-1.") && entry.operation == Operation::kRemove;
  });
  kill_while_deleting(run, row, "trash", trash);
}

void cut_power(FaultRun& run, Row& row, int64_t cases) {
  const std::string second =
      ".tmp-checkpoint-" + std::to_string(2 * run.settings().save_steps) + ".";
  const int64_t resumed_at = run.keep_killed_at("resumed", [&](const CaseRecord::Entry& entry) {
    return starts(entry, second) && entry.operation == Operation::kSync;
  });
  const Entries resumed = run.changes_from("resumed");
  const uint64_t seed = base_seed() * 1'000'000;
  for (int64_t i = 0; i < cases; ++i) {
    const bool resumes = i % 3 == 2;
    const Entries& entries = resumes ? resumed : run.changes();
    const auto changes = static_cast<int64_t>(entries.size());
    // Every third case loses everything that was not synced, the others a part of it.
    const uint64_t cut_seed = i % 3 == 0 ? 0 : seed + static_cast<uint64_t>(i);
    const int64_t at = 1 + (i * 7919 + static_cast<int64_t>(base_seed())) % changes;
    if (resumes) {
      run.take("resumed");
    } else {
      run.start_over(i % 2 == 0);
    }
    const Session cut = run.start(
        {.action = Fault::Action::kPowerCut, .at = at, .torn = i % 2 == 1, .seed = cut_seed});
    const int64_t durable = std::max<int64_t>(run.record().durable, resumes ? resumed_at : -1);
    const std::string what =
        "seed " + std::to_string(cut_seed) + ", " + describe(at, entries[size_t(at - 1)]);
    // If the folder must be created, the last changes may not exist.
    const bool missed = cut.code != 137 && cut.code != 0;
    row.add(what, missed ? "not cut: " + cut.said : run.finish(durable));
  }
}

TEST(R4, PowerCutsAtEveryChange) {
  FaultRun run;
  Row row("R4");
  cut_power(run, row, scaled(2000));
}

TEST(R4Adapter, PowerCutsAtChangesOfARun) {
  FaultRun run(adapter_run());
  Row row("R4 adapter");
  cut_power(run, row, scaled(40));
}

}  // namespace
}  // namespace finetune::testing
