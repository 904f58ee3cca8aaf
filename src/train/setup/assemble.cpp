// SPDX-License-Identifier: MIT
#include "train/setup/assemble.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "finetune/base/clock.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/hash.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/memory_status.h"
#include "finetune/base/model_files.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/base/version.h"
#include "finetune/chat/find_template.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/config/techniques.h"
#include "finetune/config/training_sets.h"
#include "finetune/data/mixed_dataset.h"
#include "finetune/export/export.h"
#include "finetune/kernels/kernels_in_use.h"
#include "finetune/model/frozen.h"
#include "finetune/model/model_folder.h"
#include "finetune/model/parameter_shapes.h"
#include "finetune/plan/emulated_precision.h"
#include "finetune/plan/exchange_script.h"
#include "finetune/plan/memory_text.h"
#include "finetune/state/parameter_files.h"
#include "finetune/task/chat_tokens.h"
#include "finetune/task/tasks.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/gpu.h"
#include "finetune/tensor/tpu.h"
#include "finetune/tokenizer/named_tokens.h"
#include "finetune/train/accelerator.h"
#include "finetune/train/adapter_base.h"
#include "finetune/train/check_files.h"
#include "train/setup/adapter.h"
#include "train/setup/check_data.h"
#include "train/setup/evaluated_model.h"
#include "train/setup/load_verdict.h"
#include "train/setup/memory_workload.h"
#include "train/setup/quantized_base.h"
#include "train/setup/weights_hash.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// bf16 and fp16 hold for evaluation too, as autocast does in transformers.
}  // namespace

SentFormat sent_format(const TrainingArgs& args) {
  return args.ddp_comm_hook == "fp16"   ? SentFormat::kFloat16
         : args.ddp_comm_hook == "bf16" ? SentFormat::kBFloat16
                                        : SentFormat::kFloat32;
}

namespace {

ModelOptions model_options(const TrainingArgs& args, const MemoryChoices& memory,
                           c10::Device device) {
  ModelOptions options{.fused = true};
  options.weights = memory.weights;
  options.gradients = memory.gradients;
  options.precision = memory.precision;
  options.evaluation_precision = memory.precision;
  if (args.bf16_full_eval) options.evaluation_precision = Precision::kBFloat16;
  if (args.fp16_full_eval) options.evaluation_precision = Precision::kFloat16;
  options.checkpointing = memory.checkpointing;
  options.head_rows_per_chunk = head_rows(memory, has_compiled_kernels(device));
  return options;
}

OptimizerOptions optimizer_options(const TrainingArgs& args, const OptimizerChoice& choice) {
  return {.kind = choice.kind,
          .beta1 = args.adam_beta1,
          .beta2 = args.adam_beta2,
          .epsilon = args.adam_epsilon,
          .weight_decay = args.weight_decay,
          .arguments = choice.arguments,
          .seed = static_cast<uint64_t>(args.seed)};
}

// Returns the bytes of host memory that this process may still use; all processes of the run share
// it.
int64_t memory_left(std::optional<int64_t> budget, int64_t processes) {
  const int64_t available = available_memory();
  int64_t left = available > 0 ? available / processes : INT64_MAX;
  if (budget) left = std::min(left, *budget - resident_memory() - kMappedCode);
  return left;
}

// Reads all of train_file, or its entries mixed by weight.
std::shared_ptr<const Dataset> read_training_data(const TrainingArgs& args, TaskSetup& setup,
                                                  std::optional<size_t>& entry) {
  const bool has_sets = !args.train_file_sets.empty();
  if (args.train_file_weights.empty() && !has_sets) return setup.read(Split::kTrain);
  const std::vector<TrainingSet> sets = training_sets(args);
  std::vector<MixturePart> parts;
  for (size_t i = 0; i < args.train_file.size(); ++i) {
    entry = i;
    const std::shared_ptr<const Dataset> data = setup.read(Split::kTrain);
    const double size = static_cast<double>(std::max<int64_t>(1, data->size()));
    parts.push_back({data, has_sets ? size : std::stod(args.train_file_weights[i]),
                     has_sets ? sets.at(i).name : args.train_file[i]});
    if (has_sets || data->choices() == parts.front().data->choices()) continue;
    throw Error(ErrorKind::kData,
                format_text("train_file: '{}' has {} texts a sample and '{}' {}: a mixture by "
                            "weight has the same number in each",
                            args.train_file[i], data->choices(), args.train_file[0],
                            parts.front().data->choices()));
  }
  const auto mixed = std::make_shared<const MixedDataset>(parts, "train_file");
  for (size_t i = 0; i < parts.size() && !has_sets; ++i) {
    const int64_t size = parts[i].data->size();
    const auto times = static_cast<double>(mixed->share(i)) / static_cast<double>(size);
    char text[32];
    std::snprintf(text, sizeof text, "%.3g", times);
    log::info("mixture: " + args.train_file[i] + ": " + std::to_string(mixed->share(i)) +
              " samples of an epoch's " + std::to_string(mixed->size()) + ", each " + text +
              " times");
  }
  return setup.mix(mixed);
}

// Whether a new model gets the tokenizer's vocabulary size.
bool takes_vocabulary_size(const TrainingArgs& args, const StartingPoint& start) {
  return start.pretrained.empty() && !args.config_name &&
         (args.config_overrides.empty() ||
          !parse_json(args.config_overrides.text, "config_overrides").contains("vocab_size"));
}

}  // namespace

TaskOptions make_task_options(const LoadedConfig& config) {
  const TrainingArgs& args = config.args;
  TaskOptions options{args, args, args, args, args, args};
  options.task = args.task;
  options.do_eval = args.do_eval;
  options.seed = args.seed;
  options.data_seed = args.data_seed;
  options.label_smoothing_factor = args.label_smoothing_factor;
  options.locations = config;
  return options;
}

AssemblyRequest training_request(const TrainingArgs& args) {
  return {.train = true,
          .evaluate = args.do_eval || args.eval_strategy != "no" || args.eval_on_start,
          .predict = args.do_predict,
          .model_folder = ""};
}

std::string named_folder(const KeyLocations& keys, const char* key, const std::string& name) {
  return resolve_model_folder(name, keys.where(key) + ": " + key,
                              keys.path.empty() ? "" : parent_path(keys.path));
}

std::string hash_tokenizer(const Tokenizer& tokenizer) {
  Hasher hasher;
  for (const auto& [name, content] : tokenizer.files()) {
    hasher.update(name);
    hasher.update(content);
  }
  return hasher.hex();
}

std::string hash_chat_template(const chat::ChatTemplate* chat_template) {
  if (chat_template == nullptr) return "";
  Hasher hasher;
  hasher.update(chat_template->joined_text());
  return hasher.hex();
}

namespace {

// Adds the bytes of `name` in a folder, if it is there. Files that no part of the program changes:
// with them a saved model answers as its starting model does, in the same form and to the same end.
void add_copied_file(const std::string& folder, const char* name, TextFiles& files) {
  constexpr uint64_t kMaxBytes = uint64_t{16} << 20;
  const std::string path = join_path(folder, name);
  FileSystem& local = FileSystem::local();
  if (!folder.empty() && local.exists(path)) {  // a link in Hugging Face's cache
    files.emplace_back(name, local.read_all(path, kMaxBytes));
  }
}

// A tokenizer.json in a folder without a class is used as it is. Next to the model's config.json it
// would become the class of the model's type, with other ids, here and in transformers.
void add_tokenizer_class(const std::string& folder, const Tokenizer& tokenizer, TextFiles& files) {
  FileSystem& local = FileSystem::local();
  const auto has = [&](const char* name) { return local.exists(join_path(folder, name)); };
  if (!has(kTokenizerFile) || has(kTokenizerConfigFile) || has(kConfigFile)) return;
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  for (const auto& [name, text] : named_tokens(tokenizer.special_tokens())) config[name] = text;
  files.emplace_back(kTokenizerConfigFile, config.dump(2) + "\n");
}

}  // namespace

std::string StartingPoint::config_text() const { return model_config_json(model_config, ""); }

namespace {

// config.json, with the adapter: another scale, say, would change results without a message.
std::string model_identity(const Model& model) {
  const std::string text = model_config_json(model.config(), model.architecture());
  if (!model.config().lora) return text;
  Json identity = parse_json(text, kConfigFile);
  Json adapter = parse_json(adapter_config_json(model), kAdapterConfigFile);
  adapter.erase("base_model_name_or_path");  // compared by its content
  identity["adapter"] = std::move(adapter);
  return identity.dump(2) + "\n";
}

// A torch that is a CPU build, or newer than the driver, sees no GPU and says nothing.
void warn_of_unused_gpu(const c10::Device& device) {
  if (!device.is_cpu() || !has_nvidia_hardware()) return;
  const std::string driver = nvidia_driver_version();
  log::warning(format_text(
      "this machine has an NVIDIA GPU{} that torch {} cannot use: everything runs on the CPU; "
      "`finetune doctor` says why, and use_cpu: true makes it intended",
      driver.empty() ? "" : " (driver " + driver + ")", torch_version()));
}

// Builds the parts of a run from its keys.
class Assembly {
 public:
  explicit Assembly(const LoadedConfig& config) : config_(config), args_(config.args) {}

  [[nodiscard]] StartingPoint find_starting_point(const AssemblyRequest& request) const {
    StartingPoint start;
    start.pretrained = request.model_folder.empty() ? request.stand_in : request.model_folder;
    if (start.pretrained.empty() && args_.model_name_or_path) {
      start.pretrained = named_folder(config_, "model_name_or_path", *args_.model_name_or_path);
    }
    // Before the tokenizer: a model that is not supported may have one that cannot be read.
    const bool is_named = request.model_folder.empty() && request.stand_in.empty();
    const bool has_own_config = !start.pretrained.empty() && !(is_named && args_.config_name);
    if (has_own_config) start.model_config = read_model_config(start.pretrained);
    const std::string tokenizer = request.model_folder.empty()
                                      ? tokenizer_folder(start.pretrained, request.stand_in)
                                      : request.model_folder;
    start.tokenizer = load_tokenizer(tokenizer);
    if (renders_chat(task_of(args_.task).rows)) {
      start.chat_template =
          chat::find_chat_template(tokenizer, args_.chat_template_path,
                                   config_.where("chat_template_path") + ": chat_template_path");
    }
    add_copied_file(start.pretrained, kGenerationConfigFile, start.copied_files);
    add_copied_file(tokenizer, kChatTemplateFile, start.copied_files);
    add_tokenizer_class(tokenizer, *start.tokenizer, start.copied_files);
    if (start.pretrained.empty()) {
      start.model_config = fresh_model_config(*start.tokenizer);
    } else if (!has_own_config) {
      start.model_config = read_named_config();
    }
    settle_random_blocks(request.train, start.model_config);
    // A named model is evaluated as it is, without the adapter that use_peft would train on it.
    const bool is_as_it_is = !request.model_folder.empty() || (!request.train && args_.use_peft);
    if (!is_as_it_is) add_adapter(config_, request, start);
    check_tokenizer(*start.tokenizer, start.model_config);
    return start;
  }

  void check_parts() const {
    if (!args_.do_train) return;
    const StartingPoint start = find_starting_point(training_request(args_));
    check_export(start.model_config);
    ProgressDisplay progress(ProgressMode::kNone);
    (void)make_task_setup({.options = make_task_options(config_),
                           .tokenizer = *start.tokenizer,
                           .model = start.model_config,
                           .model_is_trained = !start.pretrained.empty(),
                           .progress = progress,
                           .entry = std::make_shared<std::optional<size_t>>(),
                           .cache = {},
                           .trained = {},
                           .chat_template = start.chat_template,
                           .model_folder = start.pretrained,
                           .chat_date = chat_date_today()});
    if (!start.model_config.lora) return;
    try {
      (void)parameter_shapes(start.model_config, task_of(args_.task).head(args_));
    } catch (const nn::LoraError& error) {
      refuse_key(config_, error.key(), error.what());
    }
  }

  [[nodiscard]] DataParts assemble_data(const AssemblyRequest& request,
                                        ProgressDisplay& progress) const {
    DataParts parts;
    parts.device = take_device();
    parts.world = request.world ? request.world : make_single_process_world();

    // Tokenizer and model configuration: from a checkpoint, from a pretrained folder, or new.
    static_cast<StartingPoint&>(parts) = find_starting_point(request);
    parts.is_stand_in = request.model_folder.empty() && !request.stand_in.empty();
    parts.starting_config = parts.config_text();
    if (renders_chat(task_of(args_.task).rows)) {
      parts.chat_date = request.chat_date.empty() ? chat_date_today() : request.chat_date;
    }
    if (takes_vocabulary_size(args_, parts)) {
      log::info("model: vocab_size " + std::to_string(parts.tokenizer->size()) +
                ", the tokenizer's");
    }

    // Data, and the labels that they define.
    DataRecord trained;
    if (!request.train && !parts.pretrained.empty()) {
      trained = trained_record(parts.pretrained, task_of(args_.task).rows);
    }
    const auto entry = std::make_shared<std::optional<size_t>>();
    parts.setup = make_task_setup({.options = make_task_options(config_),
                                   .tokenizer = *parts.tokenizer,
                                   .model = parts.model_config,
                                   .model_is_trained = !parts.pretrained.empty(),
                                   .progress = progress,
                                   .entry = entry,
                                   .cache = token_cache(request, parts, progress),
                                   .trained = std::move(trained),
                                   .chat_template = parts.chat_template,
                                   .model_folder = parts.pretrained,
                                   .trains = request.train,
                                   .few_lengths = compiles_shapes(parts.device),
                                   .chat_date = parts.chat_date});
    for (auto& [name, content] : parts.setup->model_files(parts.copied_files)) {
      std::erase_if(parts.copied_files,
                    [&name = name](const auto& file) { return file.first == name; });
      parts.copied_files.emplace_back(name, std::move(content));
    }
    if (!request.train && !parts.pretrained.empty()) {
      check_head(config_, parts.pretrained, parts.model_config);  // before its labels are compared
    }
    if (request.train) {
      parts.train_data = read_training_data(args_, *parts.setup, *entry);
      parts.setup->learn_from(*parts.train_data);
    }
    entry->reset();
    if (request.evaluate) parts.validation_data = parts.setup->read(Split::kValidation);
    if (request.predict) parts.test_data = parts.setup->read(Split::kTest);
    if (request.train && request.weights == WeightSource::kStart)
      check_training_samples(config_, parts);
    check_token_types(parts);
    parts.collator = parts.setup->make_collator();
    parts.model_config = parts.setup->complete(parts.model_config);
    if (request.train) check_frozen(parts);
    settle_base(config_, parts);
    return parts;
  }

  [[nodiscard]] ShardingOptions sharding_options(const DataParts& parts) const {
    if (args_.zero_stage < 2 || !parts.world || parts.world->size() == 1) return {};
    return {.division = {.rank = parts.world->rank(), .ranks = parts.world->size()},
            .divides_frozen = args_.zero_stage == 3};
  }

  // Before weights are loaded: some are computed from others.
  void divide_parameters(Parts& parts, const MemoryChoices& memory) const {
    ParameterStore& store = parts.model->store();
    if (!has_divided(store)) return;
    DividedParameters::Options options{
        .scripts = exchange_scripts(pass_workload(args_, parts), memory),
        .keeps_whole = args_.zero_stage == 2,
        .sent = sent_format(args_),
        .bucket_bytes = bucket_bytes(args_)};
    parts.divided = std::make_unique<DividedParameters>(*parts.world, store, std::move(options));
  }

  [[nodiscard]] Parts assemble_model(const AssemblyRequest& request, const DataParts& data) const {
    Parts parts{data};
    const bool trains = request.train && !request.is_reference;
    check_arithmetic(parts.device);
    set_device_arithmetic(parts.device, args_.tf32.value_or(false), args_.full_determinism);
    // The model and the task.
    const MemoryChoices memory = request.memory.value_or(choices_of(args_));
    ModelOptions options = model_options(args_, memory, parts.device);
    // A checkpoint of an adapter does not restore its base.
    const bool is_loaded = !parts.pretrained.empty() &&
                           (request.weights == WeightSource::kStart || parts.model_config.lora);
    options.freeze = args_.freeze;
    options.int8_products = request.int8_products;
    if (trains || args_.zero_stage == 3) options.sharding = sharding_options(parts);
    options.base = parts.base_format;
    // load_pretrained draws missing weights
    options.draw_weights = request.weights != WeightSource::kCheckpoint && !is_loaded;
    const std::string note = emulated_precision_note(
        options.precision, has_fast_products(options.precision, parts.device));
    if (!note.empty()) log::warning(note);
    if (trains) check_memory(parts, options);
    auto [model, task] = parts.setup->make_learner(parts.model_config, parts.device, options);
    parts.model = std::move(model);
    parts.model_config = parts.model->config();
    parts.task = std::move(task);
    divide_parameters(parts, memory);
    if (is_loaded) {
      checkpoint::require_undamaged_model(FileSystem::local(), parts.pretrained);
      if (!request.train) check_adapter_base(parts.pretrained);
      load_pretrained(parts, options, request.train);
      if (!parts.adapter.empty() && request.weights == WeightSource::kStart) {
        check_base_of_continued(config_, parts, hash_cache(args_, {}));
        load_adapter_weights(*parts.model, parts.adapter);
      }
      FileSystem& files = FileSystem::local();
      ParameterStore& parameters = parts.model->store();
      if (parts.pretrained == request.model_folder &&
          has_corrections(parameters, files, parts.pretrained)) {
        (void)restore_parameters(parameters, files, parts.pretrained,
                                 stored_names(parts.model->config()));
      }
    }

    // The optimizer.
    if (trains) {
      parts.optimizer =
          make_run_optimizer(args_, *parts.model, optimizer_options(args_, memory.optimizer));
    }

    check_export(parts.model_config);
    check_metric(parts);  // before the first step, not at the first evaluation

    parts.identity.data = parts.train_data ? parts.train_data->fingerprint() : "";
    parts.identity.validation = parts.validation_data ? parts.validation_data->fingerprint() : "";
    parts.identity.tokenizer = hash_tokenizer(*parts.tokenizer);
    parts.identity.model = model_identity(*parts.model);
    parts.identity.chat_template = hash_chat_template(parts.chat_template.get());
    parts.identity.guides = parts.reference;
    for (const std::string& folder : parts.setup->guides()) {
      parts.identity.guides += hash_of_weights(folder, hash_cache(args_, {})) + " ";
    }
    return parts;
  }

 private:
  [[nodiscard]] c10::Device take_device() const {
    const Accelerator wanted = accelerator_of(args_);
    if (takes_tpu(wanted)) keep_tpu_programs(join_path(args_.cache_dir, "tpu-programs"));
    const c10::Device device = pick_device(wanted);
    if (wanted != Accelerator::kCpu) warn_of_unused_gpu(device);
    return device;
  }

  [[nodiscard]] TokenCacheOptions token_cache(const AssemblyRequest& request,
                                              const DataParts& parts,
                                              ProgressDisplay& progress) const {
    TokenCacheOptions cache = request.cache;
    cache.folder = join_path(args_.cache_dir, "tokens");
    cache.overwrite = args_.overwrite_cache;
    cache.show = show_steps(progress);
    const std::optional<int64_t> budget =
        parts.device.is_cpu() ? memory_budget_of(args_) : std::nullopt;
    cache.memory_left = [budget, processes = parts.world->size()] {
      return memory_left(budget, processes);
    };
    return cache;
  }

  [[nodiscard]] std::string tokenizer_folder(const std::string& model_folder,
                                             const std::string& stand_in) const {
    if (args_.tokenizer_name) {
      try {
        return named_folder(config_, "tokenizer_name", *args_.tokenizer_name);
      } catch (const Error&) {
        if (stand_in.empty()) throw;
        return stand_in;
      }
    }
    if (!model_folder.empty()) return model_folder;
    refuse_key(
        config_, "tokenizer_name",
        "a fresh model needs a tokenizer; make one with 'finetune tokenizer train' and name its "
        "folder here");
  }

  [[nodiscard]] ModelConfig read_named_config() const {
    return read_model_config(named_folder(config_, "config_name", *args_.config_name));
  }

  [[nodiscard]] ModelConfig fresh_model_config(const Tokenizer& tokenizer) const {
    ModelConfig base = default_model_config(args_.model_type.value_or("roberta"));
    if (args_.config_name) base = read_named_config();
    Json overrides = Json::object();
    if (!args_.config_overrides.empty()) {
      overrides = parse_json(args_.config_overrides.text, "config_overrides");
    }
    const SpecialTokens& special = tokenizer.special_tokens();
    // transformers leaves these fields at RoBERTa's values; here the tokenizer sets them, by token
    // name.
    if (!overrides.contains("vocab_size") && !args_.config_name) {
      overrides["vocab_size"] = tokenizer.size();
    }
    const auto by_name = [&](const char* field, const std::optional<SpecialTokens::Token>& token) {
      if (!overrides.contains(field) && token) overrides[field] = token->id;
    };
    by_name("pad_token_id", special.pad);
    if (base.bos_token_id) by_name("bos_token_id", special.bos);
    if (base.eos_token_id) by_name("eos_token_id", special.eos);
    if (base.sep_token_id) by_name("sep_token_id", special.sep);
    return override_model_config(base, overrides);
  }

  // BigBird's random blocks are part of the model, so their seed is stored with its weights. A
  // model that was trained elsewhere and has no seed gets that of this run.
  void settle_random_blocks(bool trains, ModelConfig& model) const {
    if (args_.bigbird_compat == "none") {
      model.bigbird_compat.reset();
    } else if (args_.bigbird_compat) {
      if (!has_block_sparse_attention(model)) {
        refuse_key(config_, "bigbird_compat",
                   "this is about BigBird's attention, but the model is a " + model.model_type +
                       "; leave the key out");
      }
      model.bigbird_compat = args_.bigbird_compat;
    }
    if (trains && model.attention_type == "block_sparse" && !model.random_blocks_seed) {
      model.random_blocks_seed = args_.seed;
    }
  }

  void check_tokenizer(const Tokenizer& tokenizer, const ModelConfig& model) const {
    if (tokenizer.size() > model.vocab_size) {
      refuse_key(
          config_, args_.tokenizer_name ? "tokenizer_name" : "model_name_or_path",
          "the tokenizer has " + std::to_string(tokenizer.size()) +
              " tokens, but the model's vocabulary only " + std::to_string(model.vocab_size) +
              (args_.model_name_or_path
                   ? "; use the model's own tokenizer: leave tokenizer_name out"
                   : "; use the model's own tokenizer or set config_overrides: {vocab_size: " +
                         std::to_string(tokenizer.size()) + "}"));
    }
  }

  // Checked here, because RoBERTa-like models often have only one token type, and an index beyond
  // the table would be an error of libtorch in the middle of the run.
  void check_token_types(const DataParts& parts) const {
    const auto refuse_types = [&] {
      refuse_key(config_, args_.tokenizer_name ? "tokenizer_name" : "model_name_or_path",
                 "the tokenizer gives pairs of texts more token types than the model's "
                 "type_vocab_size " +
                     std::to_string(parts.model_config.type_vocab_size) +
                     (args_.model_name_or_path
                          ? "; use the model's own tokenizer"
                          : "; use the model's own tokenizer or set config_overrides: "
                            "{type_vocab_size: 2}"));
    };
    if (parts.model_config.type_vocab_size == 0) return;  // the model ignores types
    for (const auto& data : {parts.train_data, parts.validation_data, parts.test_data}) {
      const auto extent = data ? data->extent() : std::nullopt;
      if (extent && extent->token_types > parts.model_config.type_vocab_size) refuse_types();
      for (int64_t i = 0; data && !extent && i < data->size(); ++i) {
        for (const uint8_t type : data->get(i).token_type_ids) {
          if (type >= parts.model_config.type_vocab_size) refuse_types();
        }
      }
    }
  }

  void check_frozen(const DataParts& parts) const {
    if (args_.freeze.empty()) return;
    std::vector<std::string> names;
    for (const ParameterShape& shape :
         parameter_shapes(parts.model_config, task_of(args_.task).head(args_))) {
      names.push_back(shape.name);
    }
    try {
      FrozenParameters(args_.freeze).check(names);
    } catch (const Error& error) {
      refuse_key(config_, "freeze", error.what());
    }
  }

  // Before a model that cannot be is built. What an update needs besides weights is not counted.
  void check_memory(const DataParts& parts, const ModelOptions& options) const {
    const int64_t there = attainable_memory();
    if (!parts.device.is_cpu() || parts.model_config.lora || there <= 0) return;
    int64_t count = 0;
    for (const ParameterShape& shape :
         parameter_shapes(parts.model_config, task_of(args_.task).head(args_))) {
      count += shape.count();
    }
    const auto bytes =
        static_cast<int64_t>(static_cast<double>(count) * traits_of(options.weights).bytes);
    if (bytes <= there) return;
    refuse_key(config_, args_.model_name_or_path ? "model_name_or_path" : "model_type",
               format_text("the weights of its {} parameters need {} in {}, and {} are attainable; "
                           "take a smaller model, param_dtype: bfloat16, or an adapter (use_peft)",
                           count, mebibytes(bytes), name_of(options.weights), mebibytes(there)));
  }

  // Missing tensors are initialised if the model is trained (load_verdict.h).
  void load_pretrained(const Parts& parts, const ModelOptions& made_with, bool is_trained) const {
    const std::string& folder = parts.pretrained;
    Model& model = *parts.model;
    const ParameterStore& store = model.store();
    LoadOptions options = {.ignore_mismatched_sizes = true};
    if (parts.base_format.matrices) {
      const QuantizedBase base = quantized_base(args_, parts);
      options.base_folder = base.folder;
      // Products in float32 convert weights of 16 bits; others take them as they are, and their
      // last bits may depend on the address.
      options.shares_files = parts.device.is_cpu() && base.was_there &&
                             made_with.precision == Precision::kFloat32 &&
                             made_with.evaluation_precision == Precision::kFloat32;
      options.quantized_from = traits_of(parts.base_format.weights).type;
    }
    const LoadReport report = load_folder_weights(model, folder, options);
    LoadVerdict verdict =
        judge(report, {.folder = folder,
                       .task = args_.task,
                       .model_type = model.config().model_type,
                       .architecture = model.architecture(),
                       .config_name = args_.config_name,
                       .parameters = model.weights().size(),
                       .is_trained = is_trained,
                       .ignores_mismatches = args_.ignore_mismatched_sizes,
                       .has_problem_type = has_key(task_of(args_.task).keys, "problem_type"),
                       .is_base = [&](const std::string& name) {
                         return store.at(store.weight(name)).format.home == WeightHome::kBase;
                       }});
    if (verdict.refusal) {
      const auto& [kind, key, why] = *verdict.refusal;
      throw Error(kind, config_.where(key) + ": " + key + ": " + why);
    }
    draw_weights(model, static_cast<uint64_t>(args_.seed), verdict.fresh);
    // A new adapter is what is trained: nobody expects it in the folder.
    std::erase_if(verdict.fresh, [&](const std::string& name) {
      return store.weight(name).role() == ParameterRole::kAdapter;
    });
    const auto warn = [&](const std::vector<std::string>& names, const std::string& what) {
      if (names.empty()) return;
      log::warning(folder + ": " + std::to_string(names.size()) + " tensors " + what + ": " +
                   listed(names));
    };
    warn(verdict.fresh, "are not there and start fresh");
    warn(report.unexpected, "have no place in the model and are left out");
  }

  void check_metric(const Parts& parts) const {
    if (!args_.metric_for_best_model || !parts.validation_data) return;
    std::string name = *args_.metric_for_best_model;
    if (name.starts_with("eval_")) name = name.substr(5);
    std::vector<std::string> names;
    if (parts.setup->has_loss(Split::kValidation)) names.emplace_back("loss");
    for (const auto& metric : parts.setup->make_results(Split::kValidation).metrics->compute()) {
      names.push_back(metric.first);
    }
    // Metrics whose names depend on the data: of kinds of entities, and of questions without
    // answers.
    const bool of_entities = args_.return_entity_level_metrics &&
                             (name.ends_with("_precision") || name.ends_with("_recall") ||
                              name.ends_with("_f1") || name.ends_with("_number"));
    const bool of_answers = args_.version_2_with_negative &&
                            (name.starts_with("HasAns_") || name.starts_with("NoAns_"));
    if (of_entities || of_answers) return;
    if (std::find(names.begin(), names.end(), name) != names.end()) return;
    std::string list;
    for (const std::string& known : names) list += (list.empty() ? "" : ", ") + known;
    refuse_key(config_, "metric_for_best_model",
               "the evaluation has no '" + name + "'; it has " + list);
  }

  // TensorFloat-32 and bfloat16 need compute capability 8.0.
  void check_arithmetic(const c10::Device& device) const {
    const std::optional<GpuProperties> gpu = gpu_properties(device);
    const bool has_both = gpu && gpu->major >= 8;
    if (args_.tf32.value_or(false) && !has_both) {
      refuse_key(
          config_, "tf32",
          "TensorFloat-32 needs an NVIDIA GPU of compute capability 8.0 or newer, and this is " +
              describe_device(device) +
              (gpu ? format_text(" of compute capability {}.{}", gpu->major, gpu->minor) : "") +
              "; leave tf32 out");
    }
    if (args_.bf16 && gpu && !has_both) {
      log::warning(
          format_text("bf16: true: this GPU (compute capability {}.{}) has no bfloat16 units, so "
                      "that its tensor "
                      "cores stay unused; fp16: true uses them",
                      gpu->major, gpu->minor));
    }
  }

  void check_export(const ModelConfig& model) const {
    if (!args_.export_gguf || is_exported_as_gguf(model)) return;
    refuse_key(config_, "export_gguf",
               "a " + model.model_type + " cannot be written as GGUF; leave it out");
  }

  const LoadedConfig& config_;
  const TrainingArgs& args_;
};

}  // namespace

StartingPoint find_starting_point(const LoadedConfig& config, const AssemblyRequest& request) {
  return Assembly(config).find_starting_point(request);
}

void check_parts(const LoadedConfig& config) { Assembly(config).check_parts(); }

DataParts assemble_data(const LoadedConfig& config, const AssemblyRequest& request,
                        ProgressDisplay& progress) {
  return Assembly(config).assemble_data(request, progress);
}

Parts assemble_model(const LoadedConfig& config, const AssemblyRequest& request,
                     const DataParts& data) {
  return Assembly(config).assemble_model(request, data);
}

Parts assemble(const LoadedConfig& config, const AssemblyRequest& request,
               ProgressDisplay& progress) {
  return assemble_model(config, request, assemble_data(config, request, progress));
}

ProgressMode progress_mode(const TrainingArgs& args) {
  if (args.progress == "bar") return ProgressMode::kBar;
  if (args.progress == "plain") return ProgressMode::kPlain;
  if (args.progress == "json") return ProgressMode::kJson;
  if (args.progress == "none") return ProgressMode::kNone;
  if (!args.disable_tqdm) return ProgressMode::kAuto;
  return *args.disable_tqdm ? ProgressMode::kPlain : ProgressMode::kBar;
}

Environment current_environment(const c10::Device& device) {
  std::string name = device.is_cpu() ? "cpu" : describe_device(device);
  if (const std::string gpu = gpu_environment(device); !gpu.empty()) {
    name += format_text(", {}, {} kernels, {} attention", gpu, kernels_in_use(device),
                        attention_in_use(device));
  }
  return {.finetune_version = kVersion,
          .torch_version = torch_version(),
          .device = name,
          .cpu_capability = cpu_capability(),
          .threads = num_threads(),
          .processors = static_cast<int64_t>(std::thread::hardware_concurrency()),
          .machine_memory = machine_memory(),
          .arithmetic = kArithmeticVersion};
}

}  // namespace finetune
