// SPDX-License-Identifier: MIT
#include "train/assemble.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/hash.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/version.h"
#include "finetune/data/collate.h"
#include "finetune/model/model_folder.h"
#include "finetune/tensor/device.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const LoadedConfig& config, std::string_view key, const std::string& why) {
  throw Error(ErrorKind::kConfig, config.where(key) + ": " + std::string(key) + ": " + why);
}

std::string tokenizer_folder(const LoadedConfig& config, const std::string& model_folder) {
  const TrainingArgs& args = config.args;
  if (args.tokenizer_name) {
    return resolve_model_folder(*args.tokenizer_name, config.where("tokenizer_name"));
  }
  if (!model_folder.empty()) return model_folder;
  refuse(config, "tokenizer_name",
         "a fresh model needs a tokenizer; make one with 'finetune tokenizer train' and name its "
         "folder here");
}

ModelConfig fresh_model_config(const LoadedConfig& config, const Tokenizer& tokenizer) {
  ModelConfig base;
  if (config.args.config_name) {
    base = read_model_config(
        resolve_model_folder(*config.args.config_name, config.where("config_name")));
  }
  Json overrides = Json::object();
  if (!config.args.config_overrides.empty()) {
    overrides = parse_json(config.args.config_overrides.text, "config_overrides");
  }
  const SpecialTokens& special = tokenizer.special_tokens();
  // What transformers leaves at RoBERTa's own numbers is taken from the tokenizer here, by name.
  if (!overrides.contains("vocab_size") && !config.args.config_name) {
    overrides["vocab_size"] = tokenizer.size();
    log::info("model: vocab_size " + std::to_string(tokenizer.size()) + ", the tokenizer's");
  }
  const auto by_name = [&](const char* field, const std::optional<SpecialTokens::Token>& token) {
    if (!overrides.contains(field) && token) overrides[field] = token->id;
  };
  by_name("pad_token_id", special.pad);
  by_name("bos_token_id", special.bos);
  by_name("eos_token_id", special.eos);
  return override_model_config(base, overrides);
}

void check_tokenizer(const LoadedConfig& config, const Tokenizer& tokenizer,
                     const ModelConfig& model) {
  if (tokenizer.size() > model.vocab_size) {
    refuse(config, config.args.tokenizer_name ? "tokenizer_name" : "model_name_or_path",
           "the tokenizer has " + std::to_string(tokenizer.size()) +
               " tokens, but the model's vocabulary only " + std::to_string(model.vocab_size) +
               "; use the model's own tokenizer or set config_overrides: {vocab_size: " +
               std::to_string(tokenizer.size()) + "}");
  }
  if (!tokenizer.special_tokens().mask) {
    refuse(config, "tokenizer_name", "the tokenizer names no mask token, which task 'mlm' needs");
  }
  if (!tokenizer.special_tokens().pad) {
    refuse(config, "tokenizer_name", "the tokenizer names no padding token");
  }
}

int64_t sequence_length(const LoadedConfig& config, const ModelConfig& model) {
  const int64_t longest = model.max_length();
  if (!config.args.max_seq_length) return std::min<int64_t>(longest, 1024);
  if (*config.args.max_seq_length > longest) {
    refuse(config, "max_seq_length",
           std::to_string(*config.args.max_seq_length) + " is longer than the " +
               std::to_string(longest) + " tokens that the model's " +
               std::to_string(model.max_position_embeddings) + " positions allow; lower it");
  }
  return *config.args.max_seq_length;
}

class DataBuilder {
 public:
  DataBuilder(const LoadedConfig& config, const Parts& parts, ProgressDisplay& progress)
      : args_(config.args), parts_(parts), progress_(progress) {
    const auto cores = static_cast<int64_t>(std::max(1U, std::thread::hardware_concurrency()));
    options_.line_by_line = args_.line_by_line;
    options_.max_seq_length = sequence_length(config, parts.model_config);
    options_.text_column = args_.text_column;
    options_.vocabulary_limit = parts.model_config.vocab_size;
    options_.position_limit = parts.model_config.max_length();
    options_.threads = args_.preprocessing_num_workers.value_or(cores);
    if (!needs_split()) return;
    const int64_t rows = count_rows(args_.train_file, "train_file");
    const bool holds_out_a_row = rows * args_.validation_split_percentage > 50;
    if (args_.do_eval || holds_out_a_row) {
      split_ = split_rows(rows, args_.validation_split_percentage);
    }
  }

  [[nodiscard]] std::shared_ptr<const TokenDataset> train() const {
    TextOptions options = options_;
    options.key = "train_file";
    options.max_samples = args_.max_train_samples;
    options.rows = split_.train;
    return build(args_.train_file, options, "training");
  }

  [[nodiscard]] std::shared_ptr<const TokenDataset> validation() const {
    TextOptions options = options_;
    options.key = args_.validation_file.empty() ? "train_file" : "validation_file";
    options.max_samples = args_.max_eval_samples;
    options.rows = split_.validation;
    return build(args_.validation_file.empty() ? args_.train_file : args_.validation_file, options,
                 "evaluation");
  }

 private:
  // As run_mlm: without a validation file the first percent of the training rows are held out,
  // whether or not this session evaluates, so that the training data stays the same.
  [[nodiscard]] bool needs_split() const {
    return args_.validation_file.empty() && !args_.train_file.empty() &&
           args_.validation_split_percentage > 0;
  }

  [[nodiscard]] std::shared_ptr<const TokenDataset> build(const std::vector<std::string>& files,
                                                          TextOptions options,
                                                          const std::string& what) const {
    uint64_t bytes = 0;
    for (const std::string& file : expand_files(files, options.key)) {
      bytes += FileSystem::local().open(file)->size();
    }
    const auto kilobytes = static_cast<int64_t>(bytes / 1000 + 1);
    progress_.begin("tokenise", kilobytes, 0, "kB");
    options.progress = [&](double fraction) {
      progress_.update(static_cast<int64_t>(fraction * static_cast<double>(kilobytes)));
    };
    auto data = build_text_dataset(files, *parts_.tokenizer, options);
    progress_.end();
    log::info(what + " data: " + std::to_string(data->size()) + " samples, " +
              std::to_string(data->tokens()) + " tokens");
    return data;
  }

  const TrainingArgs& args_;
  const Parts& parts_;
  ProgressDisplay& progress_;
  TextOptions options_;
  RowSplit split_;
};

std::shared_ptr<const Collator> make_collator(const TrainingArgs& args, const Parts& parts,
                                              int64_t max_seq_length) {
  MaskedLmOptions options = MaskedLmOptions::from(*parts.tokenizer);
  options.masking.mlm_probability = args.mlm_probability;
  options.masking.seed = static_cast<uint64_t>(args.data_seed.value_or(args.seed));
  options.pad_id = static_cast<int32_t>(parts.model_config.pad_token_id);
  options.pad_to_max_length = args.pad_to_max_length;
  options.max_seq_length = max_seq_length;
  return std::make_shared<MaskedLmCollator>(std::move(options));
}

void load_pretrained(const LoadedConfig& config, const std::string& folder, Model& model) {
  const LoadReport report = load_folder_weights(model, folder);
  const auto list = [](const std::vector<std::string>& items) {
    std::string text;
    for (size_t i = 0; i < std::min<size_t>(items.size(), 8); ++i) {
      text += (i > 0 ? ", " : "") + items[i];
    }
    return items.size() > 8 ? text + ", ..." : text;
  };
  if (report.missing.size() == model.parameters().size()) {
    refuse(config, "model_name_or_path",
           "'" + folder + "' holds none of the model's " + std::to_string(report.missing.size()) +
               " tensors; is it a RoBERTa model?");
  }
  if (!report.missing.empty()) {
    log::warning(folder + ": " + std::to_string(report.missing.size()) +
                 " tensors are not there and start fresh: " + list(report.missing));
  }
  if (!report.unexpected.empty()) {
    log::warning(
        folder + ": " + std::to_string(report.unexpected.size()) +
        " tensors have no place in the model and are left out: " + list(report.unexpected));
  }
}

std::string hash_tokenizer(const Tokenizer& tokenizer) {
  Hasher hasher;
  for (const auto& [name, content] : tokenizer.files()) {
    hasher.update(name);
    hasher.update(content);
  }
  return hasher.hex();
}

}  // namespace

Parts assemble(const LoadedConfig& config, const AssemblyRequest& request,
               ProgressDisplay& progress) {
  const TrainingArgs& args = config.args;
  Parts parts;
  parts.device = pick_device(args.use_cpu);
  parts.world = make_single_process_world();

  // Tokenizer and model configuration: from a checkpoint, a pretrained folder, or fresh.
  std::string pretrained = request.model_folder;
  if (pretrained.empty() && args.model_name_or_path) {
    pretrained = resolve_model_folder(*args.model_name_or_path, config.where("model_name_or_path"));
  }
  parts.tokenizer = load_tokenizer(
      request.model_folder.empty() ? tokenizer_folder(config, pretrained) : request.model_folder);
  parts.model_config = pretrained.empty() ? fresh_model_config(config, *parts.tokenizer)
                                          : read_model_config(pretrained);
  check_tokenizer(config, *parts.tokenizer, parts.model_config);

  // Data.
  const DataBuilder data(config, parts, progress);
  if (request.train) parts.train_data = data.train();
  if (request.evaluate) parts.validation_data = data.validation();
  parts.collator = make_collator(args, parts, sequence_length(config, parts.model_config));

  // Model and what is learnt.
  auto model = make_masked_lm(parts.model_config, static_cast<uint64_t>(args.seed), parts.device);
  if (!pretrained.empty() && request.load_weights) load_pretrained(config, pretrained, *model);
  parts.task = make_masked_lm_task(*model, parts.device,
                                   {.label_smoothing_factor = args.label_smoothing_factor});
  parts.make_metrics = make_masked_lm_metrics;
  parts.model = std::move(model);

  // The update.
  if (request.train) {
    std::vector<bool> decays;
    for (const NamedTensor& parameter : parts.model->parameters()) {
      decays.push_back(has_weight_decay(parameter.name));
    }
    parts.optimizer = std::make_unique<AdamW>(parts.model->parameters(), decays,
                                              AdamWOptions{.beta1 = args.adam_beta1,
                                                           .beta2 = args.adam_beta2,
                                                           .epsilon = args.adam_epsilon,
                                                           .weight_decay = args.weight_decay});
  }

  parts.identity.data = parts.train_data ? parts.train_data->fingerprint() : "";
  parts.identity.validation = parts.validation_data ? parts.validation_data->fingerprint() : "";
  parts.identity.tokenizer = hash_tokenizer(*parts.tokenizer);
  parts.identity.model = model_config_json(parts.model_config, parts.model->architecture());
  return parts;
}

ProgressMode progress_mode(const TrainingArgs& args) {
  if (!args.disable_tqdm) return ProgressMode::kAuto;
  return *args.disable_tqdm ? ProgressMode::kPlain : ProgressMode::kBar;
}

Environment current_environment(const c10::Device& device) {
  return {.finetune_version = kVersion,
          .torch_version = torch_version(),
          .device = device.is_cpu() ? "cpu" : describe_device(device),
          .cpu_capability = cpu_capability(),
          .threads = num_threads()};
}

}  // namespace finetune
