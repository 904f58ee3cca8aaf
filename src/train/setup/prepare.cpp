// SPDX-License-Identifier: MIT
#include "finetune/train/prepare.h"

#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/checkpoint/output_lock.h"
#include "finetune/config/tasks.h"
#include "finetune/data/document_examples.h"
#include "finetune/data/mixed_pretraining.h"
#include "finetune/data/shard_writer.h"
#include "train/setup/assemble.h"

namespace finetune {

namespace {

// Reads all data of a training with this configuration, which fills cache_dir with tokens.
nlohmann::ordered_json fill_cache(const LoadedConfig& config) {
  const TrainingArgs& args = config.args;
  ProgressDisplay progress(progress_mode(args));
  const Parts parts = assemble_data(
      config,
      {.train = !args.train_file.empty(),
       .evaluate = args.do_eval || args.eval_strategy != "no" || !args.validation_file.empty(),
       .predict = args.do_predict,
       .model_folder = "",
       .cache = {.required = true}},
      progress);
  nlohmann::ordered_json result = {{"cache_dir", args.cache_dir}};
  const auto add = [&](const char* name, const std::shared_ptr<const Dataset>& data) {
    if (data) result[name] = data->size();
  };
  add("train_samples", parts.train_data);
  add("eval_samples", parts.validation_data);
  add("predict_samples", parts.test_data);
  return result;
}

// Returns the sources of the examples: one set of documents, or several in a mixture.
std::vector<const DocumentExamples*> documents_of(const LoadedConfig& config, const Dataset& data) {
  std::vector<const Dataset*> parts = {&data};
  if (const auto* mixed = dynamic_cast<const MixedPretraining*>(&data)) {
    parts.clear();
    for (const MixturePart& part : mixed->mixture().parts()) parts.push_back(part.data.get());
  }
  std::vector<const DocumentExamples*> documents;
  for (const Dataset* part : parts) {
    documents.push_back(dynamic_cast<const DocumentExamples*>(part));
    if (documents.back() == nullptr) {
      refuse_key(config, "train_file",
                 "names shards already; name the documents to make them from");
    }
  }
  return documents;
}

}  // namespace

nlohmann::ordered_json run_prepare(const LoadedConfig& config) {
  const TrainingArgs& args = config.args;
  if (args.streaming) {
    refuse_key(config, "streaming",
               "data that are streamed are not prepared; leave it out to fill cache_dir");
  }
  if (!has_key(task_keys(args.task), "prepare_output_dir")) return fill_cache(config);
  if (!args.prepare_output_dir) {
    refuse_key(config, "prepare_output_dir", "names no folder for the shards; set it");
  }
  const std::string& folder = *args.prepare_output_dir;
  ProgressDisplay progress(progress_mode(args));
  const Parts parts = assemble_data(config, {.train = true, .model_folder = ""}, progress);
  const DocumentExamples& first = *documents_of(config, *parts.train_data).front();
  const auto& examples = dynamic_cast<const PretrainingDataset&>(*parts.train_data);
  FileSystem& files = FileSystem::local();
  files.make_directories(folder);
  const checkpoint::OutputLock lock(folder, {.key = "prepare_output_dir"});
  const ExampleOptions& made = first.options();  // equal for all
  ShardWriterOptions options;
  options.folder = folder;
  options.shards = args.num_shards;
  options.threads = preprocessing_threads(args);
  options.layout = {.max_seq_length = made.max_seq_length,
                    .max_predictions = first.max_predictions(),
                    .pad_id = static_cast<int32_t>(parts.model_config.pad_token_id)};
  options.seed = made.masking.seed;
  options.fingerprint =
      std::to_string(args.mlm_probability) + "," + std::to_string(args.whole_word_mask ? 1 : 0) +
      "," + std::to_string(made.masking.mask_id) + "," + std::to_string(made.masking.vocabulary);
  options.progress = [&](int64_t done) { progress.update(done); };
  progress.begin("prepare", examples.size(), 0, "example");
  const WrittenShards written = write_shards(files, examples, options);
  progress.end();
  return {{"files", join_path(folder, "*.tfrecord")},
          {"examples", written.examples},
          {"shards_written", written.written},
          {"shards_kept", written.kept}};
}

}  // namespace finetune
