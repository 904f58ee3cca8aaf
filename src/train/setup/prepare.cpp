// SPDX-License-Identifier: MIT
#include "finetune/train/prepare.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/output_lock.h"
#include "finetune/config/tasks.h"
#include "finetune/data/document_examples.h"
#include "finetune/data/mixed_pretraining.h"
#include "finetune/data/rows.h"
#include "finetune/data/shard_writer.h"
#include "finetune/report/learned_text.h"
#include "finetune/task/setup.h"
#include "finetune/task/tasks.h"
#include "train/setup/assemble.h"

namespace finetune {

namespace {

using Json = nlohmann::ordered_json;

// JSON lines that appear under their name when all are written.
class RowsFile {
 public:
  explicit RowsFile(const std::string& path)
      : path_(path), temporary_(path + ".tmp"), out_(temporary_, std::ios::binary) {}

  void add(const Json& row) {
    out_ << row.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
  }
  void commit() {
    out_.close();
    if (!out_) throw Error(ErrorKind::kIo, path_ + ": cannot be written");
    FileSystem::local().rename(temporary_, path_);
  }

 private:
  std::string path_, temporary_;
  std::ofstream out_;
};

// Writes the samples that a training reads, before packing: input_ids, labels (as transformers
// aligns them, -100: not learned) and the decoded text.
void write_rows(const Dataset& data, const Tokenizer& tokenizer, const std::string& path) {
  RowsFile file(path);
  const auto write = [&](int64_t index, int64_t choice) {
    const Example example = data.get(index, choice);
    std::vector<int32_t> ids(example.input_ids.size());
    for (size_t token = 0; token < ids.size(); ++token) ids[token] = example.input_ids[token];
    std::vector<int32_t> labels(example.labels.begin(), example.labels.end());
    if (labels.empty()) labels = ids;
    Json row = {{"input_ids", ids}, {"labels", labels}, {"text", tokenizer.decode(ids, false)}};
    const std::string side = side_name(data, index, choice);
    if (!side.empty()) row["side"] = side;
    file.add(row);
  };
  for (int64_t i = 0; i < data.size(); ++i) {
    for (int64_t choice = 0; choice < data.choices_of(i); ++choice) write(i, choice);
    interrupt::throw_if_requested("writing rows");
  }
  file.commit();
}

// Refuses to replace a file of something else, such as the training data. `is_own`: whether a file
// that begins so was written before by `writer`.
void check_rows_file(const std::string& path, const std::string& writer,
                     const std::function<bool(const std::string& beginning)>& is_own) {
  constexpr size_t kLookedAt = size_t{1} << 20;
  FileSystem& files = FileSystem::local();
  const std::string folder = parent_path(path);
  if (!folder.empty() && !files.exists(folder)) {
    throw Error(ErrorKind::kUsage, "--rows: there is no folder '" + folder + "'");
  }
  if (!files.exists(path)) return;
  std::ifstream file(path, std::ios::binary);
  std::string beginning(kLookedAt, ' ');
  file.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  beginning.resize(static_cast<size_t>(file.gcount()));
  if (is_own(beginning)) return;
  throw Error(ErrorKind::kUsage, "--rows: '" + path + "' exists and was not written by " + writer +
                                     "; choose another name");
}

// Reads all data of a training with this configuration, which fills cache_dir with tokens.
Json fill_cache(const LoadedConfig& config, const PrepareOutput& output) {
  const TrainingArgs& args = config.args;
  ProgressDisplay progress(progress_mode(args));
  const DataParts parts = assemble_data(
      config,
      {.train = !args.train_file.empty(),
       .evaluate = args.do_eval || args.eval_strategy != "no" || !args.validation_file.empty(),
       .predict = args.do_predict,
       .model_folder = "",
       .cache = {.required = true}},
      progress);
  Json result = {{"cache_dir", args.cache_dir}};
  const auto add = [&](const char* name, const std::shared_ptr<const Dataset>& data) {
    if (data) result[name] = data->size();
  };
  add("train_samples", parts.train_data);
  add("eval_samples", parts.validation_data);
  add("predict_samples", parts.test_data);
  progress.end();
  if (!parts.train_data) return result;
  if (output.show > 0) {
    std::cout << learned_text(*parts.train_data, output.show, *parts.tokenizer,
                              LearnedMarks::for_output());
  }
  if (output.rows) {
    write_rows(*parts.train_data, *parts.tokenizer, *output.rows);
    result["rows"] = *output.rows;
  }
  return result;
}

// The first two texts of each row of train_file, as the task reads them.
std::vector<MiningPair> pairs_of(const LoadedConfig& config, const ColumnNames& columns) {
  const TrainingArgs& args = config.args;
  std::vector<MiningPair> pairs;
  RowOptions options;
  options.reading = reading_options(make_task_options(config));
  options.replace_broken_utf8 = replaces_broken_utf8(args);
  visit_rows(args.train_file, options, [&](const DataRow& row) {
    std::vector<std::string> texts;
    for (const std::string& column : columns.text_columns) {
      const Json& value = row.columns.at(column);
      for (const auto& text : value.is_array() ? value : Json::array({value})) {
        texts.push_back(text.get<std::string>());
      }
    }
    pairs.push_back({.query = texts.at(0), .positive = texts.at(1), .where = row.position});
    return !args.max_train_samples || std::ssize(pairs) < *args.max_train_samples;
  });
  return pairs;
}

// Whether a file that begins so has the columns of write_hard_negatives().
bool has_mined_columns(const std::string& beginning, const std::vector<std::string>& columns) {
  const std::string line = beginning.substr(0, beginning.find('\n'));
  const Json row = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!row.is_object()) return false;
  std::vector<std::string> names;
  for (const auto& [name, value] : row.items()) names.push_back(name);
  return names.size() > 2 && names[0] == columns[0] && names[1] == columns[1] &&
         names[2] == "negative_1";
}

// Mined rows that are the training data have the same columns.
void check_mined_file(const LoadedConfig& config, const std::string& path,
                      const std::vector<std::string>& columns) {
  for (const std::string& file : expand_files(config.args.train_file, "train_file")) {
    std::error_code ignored;
    if (!std::filesystem::equivalent(file, path, ignored)) continue;
    throw Error(ErrorKind::kUsage,
                "--rows: '" + path + "' is the training data; choose another name");
  }
  check_rows_file(path, "--hard_negatives", [&](const std::string& beginning) {
    return has_mined_columns(beginning, columns);
  });
}

Json write_hard_negatives(const LoadedConfig& config, const PrepareOutput& output) {
  const TrainingArgs& args = config.args;
  if (args.task != "embedding") refuse_key(config, "task", "--hard_negatives is for embedding");
  if (!args.train_file_sets.empty() || !args.train_file_weights.empty()) {
    refuse_key(config, "train_file", "--hard_negatives searches one set of pairs; name its files");
  }
  if (!args.model_name_or_path) {
    refuse_key(config, "model_name_or_path", "--hard_negatives needs a model that embeds");
  }
  const std::string path = output.rows.value_or(join_path(args.output_dir, "hard_negatives.jsonl"));
  if (!output.rows) FileSystem::local().make_directories(args.output_dir);
  ProgressDisplay progress(progress_mode(args));
  const DataParts parts = assemble_data(
      config, {.train = true, .model_folder = "", .cache = {.required = true}}, progress);
  const ColumnNames columns = parts.setup->record().columns;
  const auto prompt_of = [&](const std::string& column) {
    if (args.prompts.empty()) return std::string();
    return parse_json(args.prompts.text, "prompts").value(column, std::string());
  };
  std::string query = columns.text_columns.front();
  std::string positive = columns.text_columns.size() > 1 ? columns.text_columns[1] : "positive";
  const bool collide =
      query == positive || query.starts_with("negative_") || positive.starts_with("negative_");
  const std::string query_prompt = prompt_of(query);
  const std::string document_prompt = prompt_of(positive);
  if (collide) {
    query = "anchor";
    positive = "positive";
  }
  check_mined_file(config, path, {query, positive});
  if (columns.label_column) {
    log::warning("column '" + *columns.label_column +
                 "' is not read: the texts of each row are taken to belong together");
  }
  if (parts.train_data->choices() > 2) {
    log::warning("the first two texts of each row are read; the others are not written");
  }
  const MiningModel model{
      .folder = named_folder(config, "model_name_or_path", *args.model_name_or_path),
      .query_prompt = query_prompt,
      .document_prompt = document_prompt,
      .use_cpu = args.use_cpu};
  const std::vector<MiningPair> pairs = pairs_of(config, columns);
  bool has_begun = false;
  const Mining mining =
      mine_hard_negatives(model, pairs, *output.hard_negatives, [&](int64_t done, int64_t total) {
        if (!has_begun) progress.begin("embed", total, 0, "text");
        has_begun = true;
        progress.update(done);
      });
  progress.end();
  if (mining.rows.empty()) {
    throw Error(ErrorKind::kData,
                format_text("train_file: no query has {} texts of other pairs within the limits; "
                            "lower --hard_negatives or the margins",
                            output.hard_negatives->num_negatives));
  }
  RowsFile file(path);
  for (const MinedRow& mined : mining.rows) {
    Json row = {{query, mined.query}, {positive, mined.positive}};
    for (size_t i = 0; i < mined.negatives.size(); ++i) {
      row["negative_" + std::to_string(i + 1)] = mined.negatives[i];
    }
    file.add(row);
  }
  file.commit();
  return {{"rows", path},
          {"pairs", pairs.size()},
          {"samples", mining.rows.size()},
          {"without_enough_negatives", mining.without}};
}

// Returns the sources of the examples: one set of documents, or several in a mixture.
std::vector<const DocumentExamples*> documents_of(const KeyLocations& keys, const Dataset& data) {
  std::vector<const Dataset*> parts = {&data};
  if (const auto* mixed = dynamic_cast<const MixedPretraining*>(&data)) {
    parts.clear();
    for (const MixturePart& part : mixed->mixture().parts()) parts.push_back(part.data.get());
  }
  std::vector<const DocumentExamples*> documents;
  for (const Dataset* part : parts) {
    documents.push_back(dynamic_cast<const DocumentExamples*>(part));
    if (documents.back() == nullptr) {
      refuse_key(keys, "train_file", "names shards already; name the documents to make them from");
    }
  }
  return documents;
}

}  // namespace

nlohmann::ordered_json run_prepare(const LoadedConfig& config, const PrepareOutput& output) {
  const TrainingArgs& args = config.args;
  if (args.streaming) {
    refuse_key(config, "streaming",
               "data that are streamed are not prepared; leave it out to fill cache_dir");
  }
  if (output.show > 0 && task_of(args.task).rows != RowTask::kChat) {
    refuse_key(config, "task",
               "--show shows the samples of chat data (sft, dpo); use --dry_run of train");
  }
  if (output.hard_negatives) return write_hard_negatives(config, output);
  if (output.rows) {
    check_rows_file(*output.rows, "--rows", [](const std::string& beginning) {
      return beginning.starts_with(R"({"input_ids":)");
    });
  }
  if (output.rows && !task_of(args.task).learns_next_words) {
    refuse_key(config, "task", "--rows writes the samples of clm, sft, dpo, orpo and kto");
  }
  if (!has_key(task_keys(args.task), "prepare_output_dir")) return fill_cache(config, output);
  if (!args.prepare_output_dir) {
    refuse_key(config, "prepare_output_dir", "names no folder for the shards; set it");
  }
  const std::string& folder = *args.prepare_output_dir;
  ProgressDisplay progress(progress_mode(args));
  const DataParts parts = assemble_data(config, {.train = true, .model_folder = ""}, progress);
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
