// SPDX-License-Identifier: MIT
// NaN and Inf in a loss, a gradient, a weight or an optimizer state, at any step, under each
// policy, with a kill in addition (R17).
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <map>

#include "faults/fault_run.h"
#include "finetune/checkpoint/reader.h"
#include "finetune/state/finite_state.h"

namespace finetune::testing {
namespace {

// Sets FINETUNE_TEST_POISON during its lifetime.
class PoisonedStarts {
 public:
  explicit PoisonedStarts(const std::string& text) {
    ::setenv("FINETUNE_TEST_POISON", text.c_str(), 1);
  }
  ~PoisonedStarts() { ::unsetenv("FINETUNE_TEST_POISON"); }
  PoisonedStarts(const PoisonedStarts&) = delete;
  PoisonedStarts& operator=(const PoisonedStarts&) = delete;
};

std::string weights_of(const FaultRun& run) {
  return FileSystem::local().read_all(run.out("model.safetensors"));
}

// Returns the first valid checkpoint that contains NaN or Inf; empty: none.
std::string poisoned_checkpoint(const FaultRun& run) {
  FileSystem& files = FileSystem::local();
  for (const auto& entry : checkpoint::list_checkpoints(files, run.out(), true)) {
    const std::string problem = nonfinite_in_files(files, entry.path);
    if (!problem.empty()) return entry.path + ": " + problem;
  }
  return "";
}

// Starts with the poison, killed the first time, until the run ends by itself.
Session start_until_over(FaultRun& run, const std::vector<std::string>& policy, int64_t kill_at,
                         std::string& problem) {
  Session session = run.start(
      kill_at == 0 ? Fault{} : Fault{.action = Fault::Action::kKill, .at = kill_at}, policy);
  problem = poisoned_checkpoint(run);
  for (int tries = 0; session.code == 137 && tries < 2; ++tries) {
    session = run.start({}, policy);
    if (problem.empty()) problem = poisoned_checkpoint(run);
  }
  return session;
}

struct PoisonCase {
  std::string what;
  std::string policy;
  int64_t step = 0;
  int64_t kill_at = 0;
};

class PoisonedRun {
 public:
  // Returns the problem; empty: none.
  std::string survive(const PoisonCase& item) {
    run_.start_over();
    std::string problem;
    Session session;
    {
      const PoisonedStarts poison(item.what + "@" + std::to_string(item.step));
      session = start_until_over(run_, {"--divergence_policy", item.policy}, item.kill_at, problem);
    }
    const auto said = [&](const std::string& what) { return what + "\n" + session.said; };
    if (!problem.empty()) return said(problem);
    if (item.policy == "stop") {
      if (session.code != 1) return said("not stopped: exit code " + std::to_string(session.code));
      // Without the fault the run must end as if there had been none.
      problem = run_.finish(0);
      return problem.empty() ? problem : said(problem);
    }
    if (session.code != 0) return said("ended with exit code " + std::to_string(session.code));
    if (weights_of(run_) != without_update(item.step)) return said("other weights");
    return "";
  }

  [[nodiscard]] FaultRun& run() { return run_; }

 private:
  // Returns the weights of the run that skips this update, computed once for each step.
  const std::string& without_update(int64_t step) {
    std::string& weights = skipped_[step];
    if (!weights.empty()) return weights;
    FaultRun& run = reference_;
    run.start_over();
    const PoisonedStarts poison("loss@" + std::to_string(step));
    const Session session = run.start({}, {"--divergence_policy", "skip"});
    if (session.code != 0) throw std::runtime_error(session.said);
    return weights = weights_of(run);
  }

  FaultRun run_;
  FaultRun reference_;
  std::map<int64_t, std::string> skipped_;
};

TEST(R17, NumbersThatAreNone) {
  PoisonedRun poisoned;
  Row row("R17");
  static constexpr std::array kWhat = {"loss", "gradient", "weight", "moment"};
  static constexpr std::array kPolicies = {"stop", "skip", "rollback"};
  const auto seed = static_cast<int64_t>(base_seed());
  const auto changes = static_cast<int64_t>(poisoned.run().changes().size());
  for (int64_t i = 0; i < scaled(24); ++i) {
    // After the first save, so that there is a checkpoint to roll back to.
    PoisonCase item{.what = kWhat[static_cast<size_t>(i % 4)],
                    .policy = kPolicies[static_cast<size_t>(i / 4 % 3)],
                    .step = 4 + (i / 12 * 3 + i + seed) % 9};
    if (i % 2 == 1) item.kill_at = 1 + (i * 977 + seed) % changes;
    row.add(item.what + " at step " + std::to_string(item.step) + ", " + item.policy +
                ", killed at change " + std::to_string(item.kill_at),
            poisoned.survive(item));
  }
}

}  // namespace
}  // namespace finetune::testing
