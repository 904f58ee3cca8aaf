// SPDX-License-Identifier: MIT
#include "train/loop/run_end.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/rotation.h"
#include "finetune/report/duration_text.h"
#include "finetune/report/figure_text.h"
#include "finetune/task/tasks.h"
#include "train/save/agreement.h"
#include "train/save/model_card.h"
#include "train/session/start_text.h"

namespace finetune {
namespace {

// Discards what is written to it.
class Nowhere final : public WritableFile {
 public:
  using WritableFile::write;
  void write(const void* /*data*/, size_t /*size*/) override {}
  void sync() override {}
  void close() override {}
};

struct LoggedValue {
  double value = 0.0;
  int64_t step = 0;
};

struct LoggedLosses {
  LoggedValue best;
  LoggedValue last;
};

// Returns the lowest and the last of several eval_loss; nullopt if there are fewer than two.
std::optional<LoggedLosses> logged_losses(const TrainerState& state) {
  std::optional<LoggedValue> best;
  LoggedValue last;
  int64_t count = 0;
  for (const nlohmann::ordered_json& entry : state.log_history) {
    const auto loss = entry.find("eval_loss");
    if (loss == entry.end() || !loss->is_number() || !entry.contains("step")) continue;
    ++count;
    last = {.value = loss->get<double>(), .step = entry["step"]};
    if (!best || last.value < best->value) best = last;
  }
  if (count < 2) return std::nullopt;
  return LoggedLosses{.best = *best, .last = last};
}

// "best eval_loss: 1.61 at step 100", and that the model that is kept is another one.
std::string best_loss_text(const LoggedLosses& losses, const TrainingArgs& args) {
  std::string text = format_text("best eval_loss: {} at step {}", figure_text(losses.best.value),
                                 losses.best.step);
  const bool keeps_other = !args.load_best_model_at_end && losses.best.step != losses.last.step &&
                           figure_text(losses.best.value) != figure_text(losses.last.value);
  if (!keeps_other) return text;
  return text + format_text(
                    "; the model that is kept is step {}'s ({}): "
                    "load_best_model_at_end: true keeps the best",
                    losses.last.step, figure_text(losses.last.value));
}

}  // namespace

std::optional<int> RunEnd::finish(const std::string& faults) {
  const TrainingArgs& args = run_.args;
  const bool evaluates = args.do_eval && run_.parts.validation_data;
  if (args.load_best_model_at_end) {
    // Saves the weights now: if evaluation or prediction is interrupted, they are no longer in
    // memory.
    if (run_.parts.test_data || evaluates) (void)saving_.save_if_missing();
    best_.load();
  }
  Metrics metrics;
  Metrics predicted;
  bool is_new = false;
  if (evaluates) metrics = evaluations_.evaluate_exported(is_new);
  if (evaluates && !metrics) return std::nullopt;
  if (run_.parts.test_data) predicted = evaluations_.predict();
  if (run_.parts.test_data && !predicted) return std::nullopt;
  watch_.count_seconds();
  log_.close_window();
  Json summary = summarize();
  log_.log(summary);
  if (is_new) log_.log(*metrics);
  summary["epoch"] = run_.epoch();
  // Otherwise the samples of the stream were not counted.
  if (!run_.stream) summary["train_samples"] = run_.parts.train_data->size();
  if (run_.stream && run_.state.position.epoch > 0) {
    summary["train_samples"] = *run_.stream->samples_per_epoch();
  }
  const auto write_all = [&] { write(summary, metrics, predicted); };
  if (run_.parts.divided) {
    run_.divided.gather->lead(write_all);
  } else if (run_.world().is_first()) {
    write_all();
  }
  const RunState& state = run_.state;
  log::info("finished " + std::to_string(state.step) + " steps in " + duration_text(state.seconds) +
            " of training (" + std::to_string(state.sessions) +
            (state.sessions == 1 ? " session" : " sessions") + ")" + faults + ", train_loss " +
            figure_text(summary["train_loss"].get<double>()) +
            (metrics ? ", " + describe_metrics(*metrics) : "") + "; the model is in " +
            args.output_dir);
  if (const std::optional<std::string> cost = watch_.cost_text()) log::info(*cost);
  if (run_.trainer_state.best_metric && args.metric_for_best_model) {
    const std::optional<int64_t>& best = run_.trainer_state.best_global_step;
    log::info("best " + *args.metric_for_best_model + ": " +
              figure_text(*run_.trainer_state.best_metric) +
              (best ? " at step " + std::to_string(*best) : std::string()));
  } else if (const auto losses = logged_losses(run_.trainer_state)) {
    log::info(best_loss_text(*losses, args));
  }
  for (const std::string& line : usage_lines(run_)) log::info(line);
  return exit_code();
}

RunEnd::Json RunEnd::summarize() const {
  const RunState& state = run_.state;
  Json summary = speed_metrics(
      "train", state.seconds,
      {.samples = state.step * state.effective_batch_size, .steps = state.step, .tokens = {}});
  summary["total_flos"] = state.total_flos;
  summary["train_loss"] = state.total_loss / std::max<double>(1.0, static_cast<double>(state.step));
  return summary;
}

int RunEnd::exit_code() const {
  const bool has_no_save = broadcast(run_.world(), saving_.has_none() ? 1.0 : 0.0) > 0.0;
  if (has_no_save) {
    log::warning("no checkpoint could be written: " + std::to_string(saving_.failed()) +
                 " saves failed");
  }
  return has_no_save || best_.is_lost() ? kExitCheckpointsFailed : kExitFinished;
}

void RunEnd::write(const Json& summary, const Metrics& metrics, const Metrics& predicted) {
  saving_.settle();
  saving_.remove_automatic();
  if (run_.storage.finished().is_rebuilding()) check_rebuilt_weights();
  if (predicted) write_results(run_.files, run_.args.output_dir, "predict", *predicted);
  // Deletes leftovers of failed saves and deletions, so that no later session of the finished run
  // has to.
  checkpoint::sweep_stale(run_.files, run_.args.output_dir,
                          [](const std::string& line) { log::warning(line); });
  log_.sync();  // before the run counts as finished: nothing writes the log again then
  export_model(summary, metrics);
}

// Of a rebuilt model, before anything is replaced: a file that is whole may be the only good copy.
void RunEnd::check_rebuilt_weights() const {
  checkpoint::Manifest rebuilt;
  for (const checkpoint::CheckpointFile& file :
       saving_.contents().save({.kind = SaveKind::kModel})) {
    if (!checkpoint::is_weight_file_name(file.name)) continue;
    Nowhere nowhere;
    checkpoint::RecordingFile recording(nowhere);
    file.write(recording);
    rebuilt.files[file.name] = recording.record();
  }
  const std::string different = run_.storage.finished().difference_to(rebuilt);
  if (different.empty()) return;
  const std::string& folder = run_.args.output_dir;
  const std::string results = run_.storage.finished().give_up_results();
  if (!results.empty()) {
    throw ResultsLost("the rebuilt '" + join_path(folder, different) +
                      "' is not the one that the finished run has (another library version, "
                      "machine or best checkpoint); the model is complete and is kept without " +
                      results + ": finetune evaluate computes metrics again");
  }
  throw Error(ErrorKind::kCheckpoint,
              "the rebuilt '" + join_path(folder, different) +
                  "' is not the one that the finished run had (another library version, machine "
                  "or best checkpoint), so nothing was replaced; put good copies of the damaged "
                  "files back, or delete " +
                  join_path(folder, checkpoint::kManifestFile) +
                  " and run the command again to accept what is there");
}

void RunEnd::export_model(const Json& summary, const Metrics& metrics) {
  const std::string& folder = run_.args.output_dir;
  const SaveScope scope{.kind = SaveKind::kModel};
  const bool may_be_own = run_.storage.finished().is_rebuilding() ||
                          run_.storage.folder().session_log().has_finished_before();
  checkpoint::ModelExport model(run_.files, folder, may_be_own);
  const TaskSetup::Files calibrated =
      run_.parts.setup->calibrated_files(metrics ? *metrics : Json::object());
  for (const checkpoint::CheckpointFile& file : saving_.contents().save(scope)) {
    const auto found =
        std::ranges::find(calibrated, file.name, &TaskSetup::Files::value_type::first);
    model.write(found == calibrated.end() ? file : checkpoint::text_file(file.name, found->second));
  }
  for (const auto& [name, text] : calibrated) {
    if (!model.manifest().files.contains(name)) model.write(checkpoint::text_file(name, text));
  }
  // A rebuilt model gets no new card, because the user may have edited the existing one.
  if (run_.args.model_card && !run_.storage.finished().is_rebuilding() &&
      may_write_model_card(run_.files, folder) && !model.is_of_user(checkpoint::kModelCardFile)) {
    const std::string card = model_card(run_, metrics ? *metrics : Json::object());
    model.write(checkpoint::text_file(checkpoint::kModelCardFile, card));
  }
  write_results(run_.files, folder, "train", summary);
  if (metrics) {
    Json results = *metrics;
    results["epoch"] = run_.epoch();
    results["eval_samples"] = run_.parts.validation_data->size();
    if (task_of(run_.args.task).reports_perplexity && results["eval_loss"].is_number()) {
      results["perplexity"] = std::exp(results["eval_loss"].get<double>());
    }
    write_results(run_.files, folder, "eval", results);
  }
  model.add_results();
  run_.state.finished = true;
  run_.state.has_manifest = true;
  best_.describe();
  saving_.update_records();
  model.write(checkpoint::text_file(checkpoint::kTrainerStateFile, run_.trainer_state.to_text()));
  model.commit(run_.state.run_id, run_.state.step, run_.state.to_text());
}

}  // namespace finetune
