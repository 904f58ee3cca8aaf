// SPDX-License-Identifier: MIT
// The best model on a full disk: some saves find no space. The run ends with the best model or
// reports that it could not (exit code 4), and its record always describes the exported model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "faults/fault_run.h"
#include "finetune/base/json.h"
#include "support/file_content.h"

namespace finetune::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kSteps = 12;
constexpr int64_t kEvery = 3;  // steps between evaluations, and between saves

struct Variant {
  std::string name;
  // true: the loss rises in training, so the best model is an early one
  bool greater_is_better = false;
  std::string learning_rate = "1e-2";
  bool async_save = true;
  bool has_adapter = false;
};

Json json_of(const std::string& path) { return parse_json(file_content(path), path); }

// A run with load_best_model_at_end whose uninterrupted outcome is known.
class BestRun : public FaultRun {
 public:
  explicit BestRun(const Variant& variant)
      : FaultRun({.steps = kSteps,
                  .save_steps = kEvery,
                  .save_total_limit = kSteps,
                  .eval_steps = kEvery,
                  .learning_rate = variant.learning_rate,
                  .model_keys = variant.has_adapter ? kTinyLlama : kTinyBert,
                  .more_keys = "load_best_model_at_end: true\nmetric_for_best_model: eval_loss\n"
                               "greater_is_better: " +
                               std::string(variant.greater_is_better ? "true" : "false") +
                               "\nasync_save: " + (variant.async_save ? "true" : "false") + "\n",
                  .has_adapter = variant.has_adapter}),
        greater_(variant.greater_is_better) {
    keep_as("whole");
    const Json state = json_of(out("trainer_state.json"));
    for (const Json& entry : state["log_history"]) {
      if (entry.contains("eval_loss")) losses_[entry["step"]] = entry["eval_loss"];
    }
  }

  [[nodiscard]] const std::map<int64_t, double>& losses() const { return losses_; }
  // Returns the best of the evaluated steps except `lost`.
  [[nodiscard]] int64_t best_without(const std::vector<int64_t>& lost) const {
    int64_t best = 0;
    for (const auto& [step, loss] : losses_) {
      if (std::ranges::find(lost, step) != lost.end()) continue;
      if (best == 0 || (greater_ ? loss > losses_.at(best) : loss < losses_.at(best))) best = step;
    }
    return best;
  }

  // Checks that the model of this step was exported and recorded. Returns the problem; empty: none.
  [[nodiscard]] std::string check_export(int64_t step) const {
    const std::string name = "checkpoint-" + std::to_string(step);
    if (file_content(out(model_file())) !=
        file_content(folder() / ("whole/" + name + "/" + model_file()))) {
      return "the exported model is not that of step " + std::to_string(step);
    }
    const Json state = json_of(out("trainer_state.json"));
    if (state["best_global_step"] != step)
      return "best_global_step " + state["best_global_step"].dump();
    if (state["best_metric"] != losses_.at(step))
      return "best_metric " + state["best_metric"].dump();
    if (json_of(out("eval_results.json"))["eval_loss"] != losses_.at(step)) {
      return "eval_results.json is of another step";
    }
    const bool is_saved = fs::exists(out(name));
    const Json& checkpoint = state["best_model_checkpoint"];
    if (is_saved ? checkpoint != out(name) : !checkpoint.is_null()) {
      return "best_model_checkpoint " + checkpoint.dump();
    }
    return "";
  }

 private:
  bool greater_;
  std::map<int64_t, double> losses_;
};

Fault no_room_for(int64_t step) {
  return {.action = Fault::Action::kError,
          .at = 1,
          .until = Fault::kForever,
          .error = ENOSPC,
          .within = ".tmp-checkpoint-" + std::to_string(step) + "."};
}

// Makes the save of step `lost` fail for lack of space. With `stop` the session ends at that step,
// and another session without a fault follows.
std::string survive(BestRun& run, int64_t lost, int64_t stop) {
  run.start_over();
  Session session = stop == 0
                        ? run.start(no_room_for(lost))
                        : run.start(no_room_for(lost), {"--stop_at_step", std::to_string(stop)});
  std::string said = session.said;
  if (run.record().hits == 0) return "the fault did not strike" + said;
  if (stop > 0) {
    if (session.code != 75) return "the stop ended with " + std::to_string(session.code) + said;
    session = run.start();
    said += session.said;
  }
  const int64_t best = run.best_without({});
  const bool is_lost = best == lost && lost != kSteps;
  const int64_t exported = is_lost ? run.best_without({lost}) : best;
  if (session.code != (is_lost ? 4 : 0)) return "exit code " + std::to_string(session.code) + said;
  if (is_lost && !session.says("the best step is " + std::to_string(lost) + " (")) return said;
  if (is_lost && !session.says("could not be saved")) return "no reason is given" + said;
  if (const auto wrong = run.check_export(exported); !wrong.empty()) return wrong + "\n" + said;
  const Session again = run.start();
  if (again.code != (is_lost ? 4 : 0) || !again.says("already finished")) {
    return "the next start ends with " + std::to_string(again.code) + again.said;
  }
  const bool warns = again.says("not the best one: that was step " + std::to_string(lost));
  if (warns != is_lost) return "the next start says\n" + again.said;
  if (const auto wrong = run.check_export(exported); !wrong.empty()) return wrong + " later";
  if (!is_lost) return "";
  // Follows the advice in the message.
  std::vector<std::string> advice = {"--restart"};
  if (lost > kEvery) {
    const std::string from = run.out("checkpoint-" + std::to_string(lost - kEvery));
    advice = {"--resume_from_checkpoint", from};
    if (!session.says("--resume_from_checkpoint '" + from + "'")) return "no advice" + said;
  }
  const Session redone = run.start({}, advice);
  if (redone.code != 0) return "training again ended with\n" + redone.said;
  return run.check_export(best);
}

TEST(BestModelOnAFullDisk, IsExportedOrMissed) {
  Row row("best_model_on_a_full_disk");
  std::vector<int64_t> bests;
  for (const Variant& variant :
       {Variant{.name = "falling loss"}, Variant{.name = "rising loss", .greater_is_better = true},
        Variant{.name = "wild loss", .learning_rate = "1"},
        Variant{.name = "waiting for the disk", .greater_is_better = true, .async_save = false}}) {
    BestRun run(variant);
    bests.push_back(run.best_without({}));
    for (int64_t lost = kEvery; lost <= kSteps; lost += kEvery) {
      for (const int64_t stop : {int64_t{0}, lost + 1, lost + 2}) {
        if (stop >= kSteps) continue;
        row.add(variant.name + ", no room for step " + std::to_string(lost) + ", stopped at " +
                    std::to_string(stop),
                survive(run, lost, stop));
      }
    }
  }
  // The variants differ: the best model is the last one in one and an earlier one in the other.
  EXPECT_EQ(bests.at(0), kSteps);
  EXPECT_LT(bests.at(1), kSteps);
}

TEST(BestAdapterOnAFullDisk, IsExportedOrMissed) {
  Row row("best_adapter_on_a_full_disk");
  BestRun run({.name = "rising loss", .greater_is_better = true, .has_adapter = true});
  for (const int64_t lost : {kEvery, kSteps}) {
    row.add("no room for step " + std::to_string(lost), survive(run, lost, 0));
  }
}

// No save succeeds, so only the weights in memory are left.
TEST(BestModelOnAFullDisk, IsTheLastOneWhereNothingCouldBeSaved) {
  BestRun run({.name = "falling loss"});
  run.start_over();
  Fault fault = no_room_for(0);
  fault.within = ".tmp-checkpoint-";
  const Session session = run.start(fault);
  EXPECT_EQ(session.code, 4) << session.said;
  EXPECT_TRUE(session.says("no checkpoint could be written")) << session.said;
  EXPECT_EQ(run.check_export(kSteps), "");
}

// A checkpoint that was damaged after it was saved cannot be exported.
TEST(BestModelOnAFullDisk, IsMissedWhereItsCheckpointIsDamaged) {
  BestRun run({.name = "rising loss", .greater_is_better = true});
  const int64_t best = run.best_without({});
  ASSERT_LT(best, kSteps);
  run.start_over();
  ASSERT_EQ(run.start({}, {"--stop_at_step", std::to_string(kSteps - 1)}).code, 75);
  fs::resize_file(run.out("checkpoint-" + std::to_string(best) + "/model.safetensors"), 1000);
  const Session session = run.start();
  EXPECT_EQ(session.code, 4) << session.said;
  EXPECT_TRUE(session.says("the best step is " + std::to_string(best))) << session.said;
  EXPECT_TRUE(session.says("is not valid any more")) << session.said;
}

}  // namespace
}  // namespace finetune::testing
