// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "finetune/config/load.h"
#include "finetune/data/loader.h"
#include "finetune/distributed/divided_parameters.h"
#include "finetune/distributed/world.h"
#include "finetune/model/model.h"
#include "finetune/optim/optimizer.h"
#include "finetune/optim/schedule.h"
#include "finetune/plan/memory_plan.h"
#include "finetune/report/progress.h"
#include "finetune/state/run_state.h"
#include "finetune/state/standard_parts.h"
#include "finetune/task/setup.h"
#include "finetune/task/task.h"
#include "finetune/tokenizer/tokenizer.h"
#include "train/setup/session.h"

namespace finetune {

// The initial model and tokenizer, before the data are known.
struct StartingPoint {
  std::string pretrained = {};  // folder of the initial weights; empty: none
  std::string adapter = {};     // folder of an adapter that the run continues; empty: none
  std::shared_ptr<const Tokenizer> tokenizer = {};
  std::shared_ptr<const chat::ChatTemplate> chat_template = {};  // for chat data; null: none
  ModelConfig model_config = {};
  TextFiles copied_files = {};  // of the starting model; they go with every saved model
  [[nodiscard]] std::string config_text() const;  // config.json
};

// The parts of a run before it has a model. Copies share the data.
struct DataParts : StartingPoint {
  c10::Device device{c10::kCPU};
  std::shared_ptr<World> world = {};
  bool is_stand_in = false;          // whether `pretrained` is AssemblyRequest::stand_in
  std::string starting_config = {};  // config.json before labels of the data were added
  std::string chat_date = {};        // RunState::chat_date
  BaseFormat base_format = {};       // of an adapter's frozen base
  // What memory_budget may choose for its matrices (load_in_4bit: auto).
  std::optional<WeightFormat> four_bits = {};
  std::shared_ptr<TaskSetup> setup = {};
  std::shared_ptr<const Dataset> train_data = {};       // null if nothing is trained
  std::shared_ptr<const Dataset> validation_data = {};  // null if nothing is evaluated
  std::shared_ptr<const Dataset> test_data = {};        // null if nothing is predicted
  std::shared_ptr<const Collator> collator = {};
  std::string reference = {};  // Reference::identity(); empty: the loss has none
};

// The number format that ranks send gradients in (ddp_comm_hook).
[[nodiscard]] SentFormat sent_format(const TrainingArgs& args);

// All parts, before anything is restored from a checkpoint.
struct Parts : DataParts {
  std::unique_ptr<Model> model = {};
  std::unique_ptr<DividedParameters> divided = {};  // null: each rank has all of the model
  std::unique_ptr<Task> task = {};
  std::unique_ptr<Optimizer> optimizer = {};  // null if nothing is trained
  RunIdentity identity = {};
  std::shared_ptr<Session> session = {};                             // null if nothing is trained
  nlohmann::ordered_json memory = nlohmann::ordered_json::object();  // RunState::memory
  nlohmann::ordered_json inputs = nlohmann::ordered_json::object();  // RunState::inputs
  // With full_determinism on the CPU each batch is computed by one thread; this is the number of
  // batches computed at the same time. 0: all threads compute each batch.
  int64_t batches_at_once = 0;
};

enum class WeightSource {
  kStart,              // the model that the keys name, or drawn
  kCheckpoint,         // restored afterwards, all of them
  kForeignCheckpoint,  // restored afterwards; what transformers does not save is drawn
};

struct AssemblyRequest {
  std::shared_ptr<World> world = {};  // null: one process
  bool train = true;
  bool evaluate = false;
  bool predict = false;
  // Folder (a checkpoint) to load tokenizer and model from, instead of those that the keys name.
  std::string model_folder;
  // A folder of this run that provides tokenizer and config.json if the folders that the keys name
  // no longer exist; empty: that is an error.
  std::string stand_in = {};
  // A folder of this run, whose adapter_config.json decides if adapter_name_or_path no longer
  // exists; empty: that is an error.
  std::string run_folder = {};
  WeightSource weights = WeightSource::kStart;
  // The model is the training's, to be read alone: it has no optimizer.
  bool is_reference = false;
  // How the model is stored and computed; nullopt: as the keys say.
  std::optional<MemoryChoices> memory = {};
  bool int8_products = false;  // of an evaluation: as an export in int8 has them
  // RunState::chat_date of the run's first session; empty: today.
  std::string chat_date = {};
  // The mirror for tokenised data; the keys decide whether and where it is cached.
  TokenCacheOptions cache = {};
};

[[nodiscard]] TaskOptions make_task_options(const LoadedConfig& config);

// Returns the request of a training with these keys: its data and those of its evaluations.
[[nodiscard]] AssemblyRequest training_request(const TrainingArgs& args);

// Throws Error(kConfig | kData).
[[nodiscard]] StartingPoint find_starting_point(const LoadedConfig& config,
                                                const AssemblyRequest& request);
// Returns the folder of a key that names a model or tokenizer. Throws Error(kConfig).
[[nodiscard]] std::string named_folder(const KeyLocations& keys, const char* key,
                                       const std::string& name);
[[nodiscard]] std::string hash_tokenizer(const Tokenizer& tokenizer);
// Returns an empty text for null.
[[nodiscard]] std::string hash_chat_template(const chat::ChatTemplate* chat_template);

// Builds tokenizer, model configuration, data, model, task and optimizer, in this order. Throws
// Error(kConfig | kData) and Interrupted.
[[nodiscard]] Parts assemble(const LoadedConfig& config, const AssemblyRequest& request,
                             ProgressDisplay& progress);
// The same in two steps; memory is planned between them.
[[nodiscard]] DataParts assemble_data(const LoadedConfig& config, const AssemblyRequest& request,
                                      ProgressDisplay& progress);
[[nodiscard]] Parts assemble_model(const LoadedConfig& config, const AssemblyRequest& request,
                                   const DataParts& data);

[[nodiscard]] ProgressMode progress_mode(const TrainingArgs& args);
[[nodiscard]] Environment current_environment(const c10::Device& device);

}  // namespace finetune
