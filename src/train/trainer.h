// SPDX-License-Identifier: MIT
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "finetune/checkpoint/reader.h"
#include "finetune/checkpoint/writer.h"
#include "finetune/config/batch_split.h"
#include "finetune/config/load.h"
#include "finetune/data/sample_stream.h"
#include "finetune/distributed/bucket_sum.h"
#include "finetune/distributed/gradient_sum.h"
#include "finetune/distributed/owned_tensors.h"
#include "finetune/optim/loss_scaler.h"
#include "finetune/report/event_writer.h"
#include "finetune/state/metrics_log.h"
#include "finetune/state/state_gather.h"
#include "finetune/tensor/safetensors.h"
#include "finetune/train/run.h"
#include "train/assemble.h"
#include "train/checkpoint_saver.h"
#include "train/evaluate.h"
#include "train/poison.h"
#include "train/run_storage.h"
#include "train/save_clock.h"
#include "train/space.h"

namespace finetune {

// How many steps a run has and how often something is due, resolved from keys that may be ratios.
struct Plan {
  int64_t max_steps = 0;
  int64_t warmup_steps = 0;
  int64_t logging_steps = 0;
  int64_t eval_steps = 0;  // 0: never by steps
  int64_t save_steps = 0;
  int64_t num_train_epochs = 0;
};

// The loop. Everything that a run consists of changes at update boundaries only: a stop between
// two micro-batches discards them, and they are done again.
class Trainer {
 public:
  Trainer(const LoadedConfig& config, const RunOptions& options, RunStorage& storage, Parts& parts,
          ProgressDisplay& progress);

  // Begins at step 0, or where the checkpoint is.
  void start_fresh();
  void restore(const checkpoint::CheckpointEntry& from);

  // Trains to the end or until a stop is asked for, exports the model, writes the results.
  // Returns the contract's exit code.
  int run();

 private:
  struct StepReport {
    double loss = 0.0;
    double grad_norm = 0.0;
    double learning_rate = 0.0;
    int64_t tokens = 0;
    int64_t padded_tokens = 0;
    bool interrupted = false;
    bool applied = false;
    bool overflowed = false;                // of float16: no update, the loss scale is halved
    bool left_out = false;                  // its samples led to a fault before
    std::optional<std::string> fault = {};  // why the update may not stand
  };
  // What optimizer_in_backward gathers while a backward pass runs.
  struct ReleasedGradients {
    double squares = 0.0;  // of all norms
    double learning_rate = 0.0;
    int64_t updated = 0;  // parameters
  };

  void prepare(const BatchSplit& asked);
  void read_weights(const std::string& folder);
  void read_foreign_weights(const std::string& folder);
  bool restore_update(const std::string& folder);
  void announce_restored(bool has_optimizer) const;
  void announce_files();
  void restore_state(const std::string& folder);          // of our own checkpoint
  void restore_foreign_state(const std::string& folder);  // of one that transformers wrote
  void open_events();
  void make_loader();
  StepReport step();
  // The micro-batches of this process; the gradients of the whole update are in the store then.
  // False where a stop came.
  bool add_micro_batches(std::span<const Batch> batches, const std::vector<double>& scales,
                         StepReport& report);
  // What all processes have to know of each other's micro-batches. `losses`: of all of the update's
  // micro-batches, 0 where another process has them. False where a stop came in one of them.
  bool share_losses(std::vector<double>& losses, const std::exception_ptr& lack_of_memory,
                    StepReport& report);
  // The logical shards of these micro-batches, at the same time where Parts::batches_at_once says
  // so.
  void add_shards(std::span<const Batch> batches, const std::vector<double>& scales,
                  std::span<double> losses);
  void take_shard(std::vector<Tensor> gradients);
  // Of the logical shards: what all processes have.
  void sum_shards();
  // Where processes sum their gradients beside the backward pass.
  void make_buckets();
  void begin_buckets();
  void sum_buckets();
  void trace_buckets() const;
  // Says which states lie here, before there are any.
  void divide_states();
  // Brings other processes' states to the save that rank 0 writes; to its end.
  void serve_save();
  // What of weights and states is no number, in any process; empty: nothing.
  [[nodiscard]] std::string nonfinite_state();
  [[nodiscard]] int64_t bucket_bytes() const;
  void drop_empty_gradients();
  // Whether to stop, and what rank 0's saves found, in one meeting between updates.
  bool agree_to_stop();
  void share_fault();
  // Rank 0's norm of the gradients; and whether one of them was asked to stop meanwhile.
  [[nodiscard]] double share_norm(double norm);
  [[nodiscard]] ShardSum make_shard_sum() const;
  [[nodiscard]] bool has_shards() const;
  // Whether bits must not depend on the number of threads (full_determinism on the CPU).
  [[nodiscard]] bool is_one_threaded() const { return parts_.batches_at_once > 0; }
  void say_idle_threads() const;
  // Says whether the logical shards are those that the run began with.
  void keep_shards(const RunState& saved);
  [[nodiscard]] Environment environment() const;
  // Rank 0's.
  [[nodiscard]] double broadcast(double value);
  StepReport step_within_memory();
  // After a lack of memory; false where there is one at a time already, in all processes.
  bool compute_fewer_at_once();
  void cut_batch();
  void take_saved_cut(const RunState& saved, const BatchSplit& asked);
  // Adds the micro-batch's gradients; its share of the update's loss, which may not be finite: then
  // the gradients are of no use.
  double add_gradients(const Batch& batch, const std::vector<double>& scales);
  // Applies the update, or leaves it out where the loss scale was too large.
  void update_weights(StepReport& report);
  void update_in_backward();
  void reserve_memory();
  void accept(const StepReport& report);
  // Logging, evaluation and saving that are due behind a step; false where a stop came.
  bool finish_step();
  void log_window();
  bool evaluate_now();
  std::optional<nlohmann::ordered_json> evaluate_weights();
  std::optional<EvaluationResult> evaluate_within_memory(Split split);
  std::optional<nlohmann::ordered_json> predict_test_data();
  [[nodiscard]] std::string how_to_go_on() const;
  // Asks for the stop in time for what comes next, and measures it.
  void begin(SessionClock::Unit unit);
  void end(SessionClock::Unit unit);
  void expect_times();
  void keep_session();
  void say_session() const;
  [[nodiscard]] SessionProgress session_progress() const;
  [[nodiscard]] std::optional<std::string> cost_text() const;
  void take_metrics(const nlohmann::ordered_json& metrics);
  void log(nlohmann::ordered_json values);
  // `on_schedule`: the keys ask for it; else an early stop does.
  void save(bool on_schedule);
  [[nodiscard]] SaveRequest save_request(bool with_optimizer);
  bool wait_for_saver();
  void prepare_saving();
  // Throws Error(kIo) in every process where not even one checkpoint fits.
  void check_space();
  [[nodiscard]] SavesToCome saves_to_come() const;
  [[nodiscard]] uint64_t end_bytes() const;  // of the finished model and the results
  void save_if_due();
  void reserve_copies();
  void collect_save();
  // Waits until nothing is being written, so that saved_step_ is the truth.
  void settle_saves();
  bool save_if_missing();
  int stop_early();
  int finish();
  // Weights that are exported as the best ones, and their record in trainer_state.json.
  struct ExportedBest {
    int64_t step = 0;
    std::optional<double> metric = {};
    std::optional<std::string> checkpoint = {};  // nothing: they are in memory alone
  };
  void load_best_model();
  void choose_best();
  void lose_best(int64_t step, const std::string& why);
  [[nodiscard]] ExportedBest best_that_is_left() const;
  [[nodiscard]] std::optional<int64_t> best_checkpoint_step() const;
  [[nodiscard]] std::optional<double> logged_best_metric(int64_t step) const;
  void describe_exported_best();
  void write_end(const nlohmann::ordered_json& summary,
                 const std::optional<nlohmann::ordered_json>& metrics,
                 const std::optional<nlohmann::ordered_json>& predicted);
  void export_model(const nlohmann::ordered_json& summary,
                    const std::optional<nlohmann::ordered_json>& metrics);
  bool mend(const StepReport& report);
  bool went_back_from_poison(const Position& position);
  // What a save found, which reads everything beside training. True: the run went back.
  bool went_back_from_save();
  void throw_poison(const std::string& reason) const;
  void roll_back(const std::string& reason);
  // `nonfinite`: what is in the state.
  [[noreturn]] void diverged(const StepReport& report, const Damage& damage,
                             const std::string& nonfinite);
  [[nodiscard]] std::string faults_text() const;
  [[nodiscard]] DivergenceOptions divergence_options() const;
  [[nodiscard]] LeftOut samples_of_update(const Position& position) const;

  // The same answer in all processes, which ask at the same places.
  [[nodiscard]] bool stop_is_requested() const;
  [[nodiscard]] double epoch() const;
  [[nodiscard]] bool is_epoch_end() const;
  [[nodiscard]] bool is_last_step() const { return state_.step >= plan_.max_steps; }
  [[nodiscard]] bool log_is_due() const;
  [[nodiscard]] bool evaluation_is_due() const;
  [[nodiscard]] bool save_is_due() const;
  [[nodiscard]] bool automatic_save_is_due() const;
  [[nodiscard]] std::vector<checkpoint::CheckpointFile> model_files(
      const LazyTensors& tensors) const;
  [[nodiscard]] std::vector<checkpoint::CheckpointFile> state_files(bool with_optimizer,
                                                                    Snapshot* snapshot);
  [[nodiscard]] uint64_t checkpoint_bytes(bool with_optimizer) const;
  [[nodiscard]] std::string checkpoint_path(int64_t step) const;
  [[nodiscard]] std::optional<nlohmann::ordered_json> logged_metrics(int64_t step) const;
  void update_trainer_state();

  const LoadedConfig& config_;
  const TrainingArgs& args_;
  RunOptions options_;
  RunStorage& storage_;
  Parts& parts_;
  ProgressDisplay& progress_;
  FileSystem& files_;

  Plan plan_;
  RunState state_;
  TrainerState trainer_state_;
  std::shared_ptr<const SampleStream> stream_;  // the training data where they are streamed
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<Schedule> schedule_;
  std::optional<LossScaler> scaler_;  // with fp16
  ReleasedGradients released_;
  std::optional<ShardSum> shards_;  // of the update at hand, with full_determinism
  // With zero_stage 1: what this process updates, and what it takes from the others.
  std::unique_ptr<OwnedTensors> owned_weights_;
  std::unique_ptr<StateGather> state_gather_;
  std::unique_ptr<BucketSum> buckets_;  // of several processes, without full_determinism
  bool is_last_micro_batch_ = false;    // of this process, in the update at hand
  std::vector<double> has_gradient_;    // of each parameter: in how many processes
  bool stop_came_ = false;              // to one of several processes, before the update
  bool is_updating_ = false;            // weights or states may be half changed
  BatchSplit split_;                 // rows: per_device_train_batch_size, or what fits into memory
  int64_t eval_rows_at_a_time_ = 0;  // the same of per_device_eval_batch_size
  Poison poison_;
  std::unique_ptr<EventWriter> events_;
  int64_t exported_step_ = 0;    // the step whose weights are exported at the end
  bool best_is_loaded_ = false;  // the weights are exported_step_'s, not state_.step's
  std::optional<ExportedBest> exported_best_;  // rank 0's
  bool best_is_lost_ = false;                  // the best weights cannot be exported any more
  int64_t files_of_step_ = -1;  // whose answers evaluation wrote into files last, this session
  double flos_per_token_ = 0.0;
  bool new_best_ = false;
  std::unique_ptr<CheckpointSaver> saver_;
  std::optional<SaveClock> save_clock_;
  int64_t saved_step_ = -1;   // newest checkpoint of this run
  int64_t saving_step_ = -1;  // being written
  bool save_is_owed_ = false;
  std::optional<SaveOutcome> nonfinite_save_;  // whose state was no number
  bool copies_are_reserved_ = false;
  int64_t session_steps_ = 0;
  // What a failed save leaves as it was.
  std::optional<std::string> best_before_save_;
  std::vector<int64_t> automatic_before_save_;
  int64_t saves_ = 0;
  int64_t failed_saves_ = 0;
  bool files_are_announced_ = false;
  int64_t session_tokens_ = 0;
  int64_t session_first_step_ = 0;
  bool device_is_as_before_ = false;
  double session_start_ = 0.0;  // for the speed that is shown
  double counted_until_ = 0.0;  // state_.seconds holds the training time up to here
};

}  // namespace finetune
