// SPDX-License-Identifier: MIT
// Calls that fail: full disks (R5), errors of the device (R6), reads during a resume (R7), a slow
// disk (R21).
#include <gtest/gtest.h>

#include <cerrno>

#include "faults/fault_run.h"

namespace finetune::testing {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// Whether the change belongs to a save or to what follows it; such errors must not end a run.
bool belongs_to_a_save(const CaseRecord::Entry& entry) {
  return starts(entry, ".tmp-checkpoint-") || starts(entry, ".trash-checkpoint-") ||
         starts(entry, "checkpoint-");
}

// Runs with a fault, then without. Returns the problem; empty: none.
std::string survive(FaultRun& run, const Fault& fault, bool is_transient, bool in_a_save) {
  run.start_over();
  const Session session = run.start(fault);
  const int64_t committed = run.record().committed;
  if (run.record().hits == 0) return "the fault did not strike";
  if (run.record().repeated_syncs > 0) return "synced a file again whose sync had failed";
  const auto said = [&](const std::string& what) { return what + "\n" + session.said; };
  const int code = session.code;
  if (code != 0 && code != 1 && code != 4) return said("exit code " + std::to_string(code));
  if (in_a_save && is_transient && code != 0) return said("a failed save ended the run");
  if (code == 4 && run.record().commits > 0) return said("4 although a save succeeded");
  if (code == 1 && !session.says("error: ")) return said("ended without a reason");
  if (is_transient && in_a_save) {
    if (count(session.said, "was not saved") > 1) return said("more than one warning");
    if (const std::string different = run.compare(); !different.empty()) return said(different);
  }
  const std::string problem = run.finish(committed);
  return problem.empty() ? problem : said(problem);
}

void fill_the_disk(FaultRun& run, Row& row, int64_t cases) {
  const auto changes = static_cast<int64_t>(run.changes().size());
  for (int64_t i = 0; row.cases() < cases; ++i) {
    const int64_t at = 1 + (i * 977 + static_cast<int64_t>(base_seed())) % changes;
    const auto& entry = run.changes()[static_cast<size_t>(at - 1)];
    if (entry.operation == Operation::kClose || entry.operation == Operation::kRemove) continue;
    const bool transient = i % 2 == 0;
    Fault fault{.action = Fault::Action::kError, .at = at, .torn = i % 3 == 0};
    fault.error = i % 5 == 0 ? EDQUOT : ENOSPC;
    if (!transient) {
      fault.until = i % 4 == 1 ? Fault::kForever : at + 20 * (i % 30);
      if (i % 8 == 3) fault.free_bytes = 0;
    }
    row.add(std::string(transient ? "once, " : "for long, ") + describe(at, entry),
            survive(run, fault, transient, belongs_to_a_save(entry)));
  }
}

TEST(R5, DisksThatAreFullForAMomentOrForGood) {
  FaultRun run;
  Row row("R5");
  fill_the_disk(run, row, scaled(400));
}

TEST(R5Adapter, DisksThatAreFullForAMomentOrForGood) {
  FaultRun run(adapter_run());
  Row row("R5 adapter");
  fill_the_disk(run, row, scaled(40));
}

void fail_at_any_call(FaultRun& run, Row& row, int64_t cases) {
  const auto changes = static_cast<int64_t>(run.changes().size());
  // First all calls except repeated writes, then those too.
  for (const bool writes : {false, true}) {
    for (int64_t at = 1; at <= changes && row.cases() < cases; ++at) {
      const auto& entry = run.changes()[static_cast<size_t>(at - 1)];
      if ((entry.operation == Operation::kWrite) != writes || !is_chosen(at / 4)) continue;
      if (writes && scaled(1) <= 1 && at % 4 != static_cast<int64_t>(base_seed() % 4)) continue;
      row.add(describe(at, entry),
              survive(run, {.action = Fault::Action::kError, .at = at, .torn = true, .error = EIO},
                      true, belongs_to_a_save(entry)));
    }
  }
}

TEST(R6, DevicesThatFailAtAnyCall) {
  FaultRun run;
  Row row("R6");
  const int64_t cases = scaled(400);
  fail_at_any_call(run, row, cases);
  EXPECT_GE(row.cases(), std::min<int64_t>(cases, 400) * 3 / 4);
}

TEST(R6Adapter, DevicesThatFailAtAnyCall) {
  FaultRun run(adapter_run());
  Row row("R6 adapter");
  fail_at_any_call(run, row, scaled(60));
}

void fail_reads(FaultRun& run, Row& row, int64_t usual) {
  const std::string oldest = ".trash-checkpoint-" + std::to_string(run.settings().save_steps) + ".";
  const int64_t committed = run.keep_killed_at("two", [&](const CaseRecord::Entry& entry) {
    return starts(entry, oldest) && entry.operation == Operation::kRemove;
  });
  run.take("two");
  ASSERT_EQ(run.start().code, 0);
  const int64_t reads = run.record().reads;
  for (int64_t i = 0; i < std::max(usual, scaled(usual)); ++i) {
    if (!is_chosen(i)) continue;
    run.take("two");
    Fault fault{.action = Fault::Action::kError, .in_reads = true, .at = 1 + i % reads};
    fault.error = i % 2 == 0 ? EIO : ESTALE;
    fault.until = i < reads ? fault.at : fault.at + i % 7;
    const Session session = run.start(fault);
    std::string problem;
    // Exit code 4 if the faults outlasted both tries of the only save.
    const bool is_finished = session.code == 0 || (i >= reads && session.code == 4);
    if (!is_finished && session.code != 1) problem = "exit code " + std::to_string(session.code);
    // After one failed read in a checkpoint, the read is retried or another checkpoint is used.
    const bool inside = session.says("checkpoint-");
    if (i < reads && session.code != 0 && inside) problem = "did not fall back";
    if (problem.empty()) problem = run.finish(is_finished ? 0 : committed);
    row.add("read " + std::to_string(fault.at) + " of " + std::to_string(reads),
            problem.empty() ? problem : problem + "\n" + session.said);
  }
}

TEST(R7, ReadsThatFailWhileResuming) {
  FaultRun run;
  Row row("R7");
  fail_reads(run, row, 200);
}

TEST(R7Adapter, ReadsThatFailWhileResuming) {
  FaultRun run(adapter_run());
  Row row("R7 adapter");
  fail_reads(run, row, 40);
}

TEST(R21, SlowDisks) {
  FaultRun run;
  Row row("R21");
  for (int64_t i = 0; i < scaled(5); ++i) {
    run.start_over();
    const Session session = run.start({.delay_ms = static_cast<int>(1 + i % 5)});
    std::string problem = session.code == 0 ? run.compare() : session.said;
    if (run.record().most_staged > 1) problem = "two saves were written at once";
    row.add("delay " + std::to_string(1 + i % 5) + " ms", problem);
  }
}

}  // namespace
}  // namespace finetune::testing
