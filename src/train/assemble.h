// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "finetune/config/load.h"
#include "finetune/data/loader.h"
#include "finetune/distributed/world.h"
#include "finetune/model/model.h"
#include "finetune/optim/optimizer.h"
#include "finetune/optim/schedule.h"
#include "finetune/plan/memory_plan.h"
#include "finetune/report/progress.h"
#include "finetune/state/run_state.h"
#include "finetune/task/setup.h"
#include "finetune/task/task.h"
#include "finetune/tokenizer/tokenizer.h"
#include "train/session.h"

namespace finetune {

// The parts that a run is made of, before anything is restored.
struct Parts {
  c10::Device device{c10::kCPU};
  std::shared_ptr<World> world;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string pretrained;       // folder whose weights the model starts from; empty: fresh
  bool is_stand_in = false;     // `pretrained` is AssemblyRequest::stand_in
  std::string starting_config;  // config.json as it was before the data added labels
  ModelConfig model_config;
  std::unique_ptr<TaskSetup> setup;
  std::shared_ptr<const Dataset> train_data;       // null where nothing is trained
  std::shared_ptr<const Dataset> validation_data;  // null where nothing is evaluated
  std::shared_ptr<const Dataset> test_data;        // null where nothing is predicted
  std::shared_ptr<const Collator> collator;
  std::unique_ptr<Model> model;
  std::unique_ptr<Task> task;
  std::unique_ptr<Optimizer> optimizer;
  RunIdentity identity;
  std::shared_ptr<Session> session;  // null where nothing is trained
  nlohmann::ordered_json memory = nlohmann::ordered_json::object();  // RunState::memory
  nlohmann::ordered_json inputs = nlohmann::ordered_json::object();  // RunState::inputs
  // With full_determinism on the CPU: each batch is computed by one thread, this number at once.
  // 0: each by all threads.
  int64_t batches_at_once = 0;
};

struct AssemblyRequest {
  std::shared_ptr<World> world = {};  // null: one process
  bool train = true;
  bool evaluate = false;
  bool predict = false;
  // Take tokenizer and model from this folder (a checkpoint) instead of what the keys name.
  std::string model_folder;
  // A folder of the run's own, whose tokenizer and config.json are taken where what the keys name
  // is gone; empty: that is an error.
  std::string stand_in = {};
  bool load_weights = true;  // false: they are restored from a checkpoint afterwards
  bool draw_weights = true;  // false: every one of them is
  // How the model is kept and computed; nothing: as the keys say.
  std::optional<MemoryChoices> memory = {};
  // Its second place; where and whether data are kept is the keys' matter.
  TokenCacheOptions cache = {};
};

// Of a training with these keys: its data, and those of the evaluations that it makes.
[[nodiscard]] AssemblyRequest training_request(const TrainingArgs& args);

// What a run starts from, before its data are known.
struct StartingPoint {
  std::string pretrained;  // as Parts::pretrained
  std::shared_ptr<const Tokenizer> tokenizer;
  ModelConfig model_config;
  [[nodiscard]] std::string config_text() const;  // as Parts::starting_config
};

// Throws Error(kConfig | kData).
[[nodiscard]] StartingPoint find_starting_point(const LoadedConfig& config,
                                                const AssemblyRequest& request);
// The folder of a key that names a model or tokenizer. Throws Error(kConfig).
[[nodiscard]] std::string named_folder(const LoadedConfig& config, const char* key,
                                       const std::string& name);
[[nodiscard]] std::string hash_tokenizer(const Tokenizer& tokenizer);

// Builds tokenizer, model configuration, data, model, task and optimizer in flow order. Throws
// Error(kConfig | kData) and Interrupted.
[[nodiscard]] Parts assemble(const LoadedConfig& config, const AssemblyRequest& request,
                             ProgressDisplay& progress);
// The same in two steps, between which memory is planned. The `config` of the first lives as long
// as the parts.
[[nodiscard]] Parts assemble_data(const LoadedConfig& config, const AssemblyRequest& request,
                                  ProgressDisplay& progress);
void assemble_model(const LoadedConfig& config, const AssemblyRequest& request, Parts& parts);

[[nodiscard]] ProgressMode progress_mode(const TrainingArgs& args);
[[nodiscard]] Environment current_environment(const c10::Device& device);

}  // namespace finetune
