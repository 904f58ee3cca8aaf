// SPDX-License-Identifier: MIT
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/config/training_sets.h"
#include "finetune/data/mixed_dataset.h"
#include "finetune/data/retrieval_files.h"
#include "finetune/data/sample_stream.h"
#include "finetune/data/text_list_dataset.h"
#include "finetune/model/embedding_files.h"
#include "finetune/model/model_folder.h"
#include "task/embedding/embedding.h"
#include "task/embedding/text_vectors.h"
#include "task/predict/text_encoder.h"
#include "task/setup/labelled_setup.h"
#include "task/setup/sample_collator.h"

namespace finetune {
namespace {

constexpr int64_t kDefaultLength = 512;

int64_t default_length(const SetupContext& context) {
  if (const auto own = context.model.embedding.max_seq_length) return *own;
  return model_max_length(context.tokenizer).value_or(kDefaultLength);
}

// Why the loss does not take a label; empty: it does.
std::string problem_of_label(const EmbeddingLoss& loss, double label) {
  const std::string name(loss.name);
  if (loss.label == EmbeddingLoss::Label::kBinary && label != 0 && label != 1) {
    return name + " has labels of 0 and 1; CoSENTLoss takes any score";
  }
  if (loss.name == "CosineSimilarityLoss" && std::abs(label) > 1) {
    return name + " compares it with a cosine: scale the scores to -1 to 1, or take CoSENTLoss";
  }
  return "";
}

class EmbeddingSetup final : public LabelledSetup {
 public:
  explicit EmbeddingSetup(const SetupContext& context)
      : LabelledSetup(context, default_length(context)) {
    try {
      require_embedding(context.model, "the model");
    } catch (const Error& error) {
      refuse_key(args().locations, "model_name_or_path", error.what());
    }
    read_prompts();
    read_dense();
    read_dims();
    read_losses();
  }

  std::shared_ptr<const Dataset> read(Split split) override {
    if (split != Split::kTrain) {
      const SplitFiles files = files_of(split);
      if (const auto found = retrieval_files(files.files, files.key)) {
        return read_corpus(split, files, *found);
      }
    }
    const ColumnNames columns = columns_of(split, RowTask::kEmbedding);
    const bool is_training = split == Split::kTrain;
    const LossChoice& choice = losses_.at(is_training ? entry() : 0);
    const EmbeddingLoss& loss = loss_of(choice, columns);
    TextListOptions options;
    options.text_columns = columns.text_columns;
    options.label_column = columns.label_column;
    if (is_training && !reads_label(loss) && options.label_column) {
      log::warning(
          format_text("column '{}' is not read: {} has no labels, and every row is a "
                      "sample whose texts belong together",
                      *options.label_column, std::string(loss.name)));
      options.label_column.reset();
    }
    options.prompts = prompts_of(columns.text_columns);
    if (is_training && reads_label(loss)) options.label_rule = loss.name;
    options.problem_of_label = [&loss, is_training](double label) {
      return is_training ? problem_of_label(loss, label) : "";
    };
    if (is_training && reads_label(loss) && !options.label_column) {
      refuse_loss(choice, std::string(loss.name) +
                              " needs a score or label of each sample, and the rows have no column "
                              "'label' or 'score'; set label_column, or another loss_type");
    }
    const std::shared_ptr<const SequenceDataset> data =
        read_rows(split, options, build_text_list_dataset);
    if (is_training) train_.resize(losses_.size());
    Shape& shape = is_training ? train_[entry()] : validation_;
    shape = {.texts = data->choices(),
             .columns = columns,
             .has_label = options.label_column.has_value()};
    if (is_training) check_texts(choice, loss, shape);
    if (!is_stream(*data) && std::ssize(data->get(0).values) > 1) {
      refuse_key(args().locations, "label_column",
                 "'" + *options.label_column + "' holds lists, and a sample has one label");
    }
    return data;
  }

  [[nodiscard]] std::shared_ptr<const Collator> make_collator() const override {
    return make_sample_collator(LabelledSetup::make_collator());
  }

  void learn_from(const Dataset& data) override {
    check_prompts();
    if (const auto* mixed = dynamic_cast<const MixedDataset*>(&data); mixed != nullptr) {
      for (size_t i = 0; i < train_.size(); ++i) {
        const Dataset& part = *mixed->parts().at(i).data;
        const EmbeddingLoss& loss = loss_of(losses_[i], train_[i].columns);
        log::info(format_text("'{}': {} samples of {} texts, {}", losses_[i].set, part.size(),
                              part.choices(), std::string(loss.name)));
        count_repeated(part, loss);
      }
    } else {
      count_repeated(data, loss_of(losses_[0], train_[0].columns));
    }
  }

  [[nodiscard]] ModelConfig complete(ModelConfig model) const override {
    EmbeddingConfig& own = model.embedding;
    own.pooling_mode = args().pooling_mode.value_or(pooling_mode_of(model));
    own.include_prompt = args().include_prompt.value_or(own.include_prompt);
    if (dense_) own.dense = {*dense_};
    own.normalize = args().normalize_embeddings.value_or(own.normalize);
    for (const auto& [name, text] : prompts_) {
      const auto same = std::ranges::find(own.prompts, name, [](const auto& p) { return p.first; });
      if (same == own.prompts.end()) {
        own.prompts.emplace_back(name, text);
      } else {
        same->second = text;
      }
    }
    return model;
  }

  [[nodiscard]] Files model_files(const Files& /*of_start*/) const override {
    return embedding_files(complete(context().model), max_seq_length());
  }

  [[nodiscard]] Learner make_learner(const ModelConfig& config, c10::Device device,
                                     const ModelOptions& options) const override {
    check_dims(config);
    EmbeddingTaskOptions learned{.matryoshka_dims = dims_};
    std::map<std::string, std::shared_ptr<Model>> guides;  // by folder
    const auto make_set = [&](const LossChoice& choice, const Shape& shape) {
      EmbeddingSet set = set_of(choice, shape, config);
      if (set.loss->label != EmbeddingLoss::Label::kGuide) return set;
      std::shared_ptr<Model>& guide = guides[set.args.guide];
      if (!guide) guide = make_guide(choice, set.args.guide, device, options);
      set.guide = guide;
      return set;
    };
    for (size_t i = 0; i < train_.size(); ++i) {
      learned.sets.push_back(make_set(losses_[i], train_[i]));
    }
    if (const LossChoice* choice = loss_of_validation()) {
      learned.evaluated = make_set(*choice, validation_);
    } else {
      learned.evaluated = set_of(losses_[0], validation_, config);
      learned.evaluated.loss = nullptr;
    }
    auto model = make_model(Head::kEmbedding, config, seed(), device, options);
    auto task = make_embedding_task(*model, device, learned);
    return {std::move(model), std::move(task)};
  }

  [[nodiscard]] std::vector<std::string> guides() const override {
    std::vector<std::string> folders;
    for (const LossChoice& choice : losses_) {
      if (!choice.loss_type) continue;
      const EmbeddingLoss& loss = embedding_loss(*choice.loss_type);
      if (loss.label != EmbeddingLoss::Label::kGuide) continue;
      folders.push_back(guide_folder(choice, loss_args(choice, loss).guide));
    }
    return folders;
  }

  [[nodiscard]] bool has_loss(Split /*split*/) const override {
    return loss_of_validation() != nullptr;
  }

  [[nodiscard]] Results make_results(Split /*split*/) const override {
    const Shape& shape = validation_;
    return make_embedding_results({.texts = shape.texts,
                                   .has_score = shape.has_label,
                                   .retrieval = shape.retrieval,
                                   .data = shape.data,
                                   .dims = dims_,
                                   .tokenizer = &context().tokenizer});
  }

 private:
  // The loss of an entry of train_file, or of all.
  struct LossChoice {
    std::string set = {};  // the entry's name; empty: all
    std::string key = {};  // that has loss_type
    std::optional<std::string> loss_type = {};
    JsonText kwargs = {};
  };

  // The index of the entry of train_file that is read.
  [[nodiscard]] size_t entry() const {
    const auto& entry = context().entry;
    return losses_.size() > 1 && entry && *entry ? **entry : 0;
  }

  void count_repeated(const Dataset& data, const EmbeddingLoss& loss) const {
    if (loss.label != EmbeddingLoss::Label::kNone || !loss.couples || is_stream(data)) return;
    constexpr int64_t kMostTexts = int64_t{4} << 20;  // are looked at
    if (args().batch_sampler == "no_duplicates" || data.size() * data.choices() > kMostTexts)
      return;
    const int64_t repeated = repeated_samples(data);
    if (repeated == 0) return;
    log::warning(format_text(
        "{} of {} samples have a text that another sample has, too, and in the same update it is a "
        "negative of both; batch_sampler: no_duplicates keeps them apart",
        repeated, data.size()));
  }

  static int64_t repeated_samples(const Dataset& data) {
    const std::vector<uint64_t> hashes = hash_sequences(data);
    const auto texts = static_cast<size_t>(data.choices());
    const auto texts_of = [&](size_t first) { return std::span(hashes).subspan(first, texts); };
    std::unordered_map<uint64_t, int64_t> counts;  // of samples
    for (size_t first = 0; first < hashes.size(); first += texts) {
      const auto own = texts_of(first);
      for (const uint64_t hash : std::set<uint64_t>(own.begin(), own.end())) ++counts[hash];
    }
    int64_t repeated = 0;
    for (size_t first = 0; first < hashes.size(); first += texts) {
      const auto own = texts_of(first);
      repeated += std::ranges::any_of(own, [&](uint64_t h) { return counts.at(h) > 1; }) ? 1 : 0;
    }
    return repeated;
  }

  struct Shape {  // of the samples of a split
    int64_t texts = 0;
    ColumnNames columns = {};
    bool has_label = false;
    std::shared_ptr<const RetrievalTask> retrieval = {};  // if they are queries and a corpus
    std::shared_ptr<const Dataset> data = {};             // the same
  };

  // Queries and all documents of a corpus, as samples of one text.
  std::shared_ptr<const Dataset> read_corpus(Split split, const SplitFiles& files,
                                             const RetrievalFiles& found) {
    SampleOptions common = sample_options(split);
    common.max_samples.reset();  // of queries
    common.stream.reset();
    const auto task = std::make_shared<const RetrievalTask>(
        read_retrieval_task(found, common, files.max_samples));
    if (task->absent > 0) {
      log::warning(
          format_text("{}: {} documents that answer a query are not in {}; no model finds "
                      "them",
                      found.judgements, task->absent, found.corpus));
    }
    TextListOptions options;
    static_cast<SampleOptions&>(options) = common;
    options.joined = true;
    const auto read_texts = [&](const std::string& file, const std::vector<std::string>& columns,
                                const std::string& prompt, const std::string& unit) {
      options.text_columns = columns;
      options.prompts = {{columns.back(), prompt}};
      SplitFiles one = files;
      one.files = {file};
      return read_files(one, options, build_text_list_dataset, unit);
    };
    Shape& shape = validation_;
    shape = {.texts = 1, .columns = prompted_columns(), .retrieval = task};
    const auto documents = read_texts(found.corpus, {"title", "text"},
                                      prompt_of(shape.columns.text_columns[1]), "documents");
    options.json_lines = task->queries;
    const auto queries =
        read_texts(found.queries, {"text"}, prompt_of(shape.columns.text_columns[0]), "queries");
    shape.data = std::make_shared<const MixedDataset>(
        std::vector<MixturePart>{{queries, static_cast<double>(queries->size()), "queries"},
                                 {documents, static_cast<double>(documents->size()), "documents"}},
        files.key, judgements_of(*task));
    return shape.data;
  }

  static std::string judgements_of(const RetrievalTask& task) {
    std::string text;
    for (size_t query = 0; query < task.relevant.size(); ++query) {
      for (const int64_t document : task.relevant[query]) text += std::to_string(document) + " ";
      text += "of " + std::to_string(task.relevant_count[query]) + "\n";
    }
    return text;
  }

  // The columns whose prompts queries and documents have: the first two of the training.
  [[nodiscard]] ColumnNames prompted_columns() const {
    for (const auto& columns :
         {train_.empty() ? std::vector<std::string>() : train_.front().columns.text_columns,
          context().trained.columns.text_columns, args().text_columns}) {
      if (columns.size() > 1) return {.text_columns = {columns[0], columns[1]}};
    }
    return {.text_columns = {"query", "document"}};
  }

  [[nodiscard]] std::string prompt_of(const std::string& column) const {
    const auto same = std::ranges::find(prompts_, column, [](const auto& p) { return p.first; });
    return same == prompts_.end() ? "" : same->second;
  }

  static const EmbeddingLoss& loss_of(const LossChoice& choice, const ColumnNames& columns) {
    if (choice.loss_type) return embedding_loss(*choice.loss_type);
    return embedding_loss(columns.label_column ? "CoSENTLoss" : "MultipleNegativesRankingLoss");
  }

  // The first loss that takes the samples of the validation data, chosen ones before guessed ones;
  // null: none does.
  [[nodiscard]] const LossChoice* loss_of_validation() const {
    for (const bool uses_labels : {validation_.has_label, false}) {
      for (const bool is_chosen : {true, false}) {
        for (const LossChoice& choice : losses_) {
          if (choice.loss_type.has_value() != is_chosen) continue;
          const EmbeddingLoss& loss = loss_of(choice, validation_.columns);
          const bool has_label = reads_label(loss);
          if (has_label == uses_labels && takes(loss, validation_.texts)) return &choice;
        }
      }
    }
    return nullptr;
  }

  [[nodiscard]] EmbeddingSet set_of(const LossChoice& choice, const Shape& shape,
                                    const ModelConfig& config) const {
    const EmbeddingLoss& loss = loss_of(choice, shape.columns);
    return {.loss = &loss,
            .args = loss_args(choice, loss),
            .texts = shape.texts,
            .prompt_tokens =
                config.embedding.include_prompt ? std::vector<int64_t>() : prompt_tokens(shape),
            .queries = shape.retrieval ? std::ssize(shape.retrieval->relevant) : 0};
  }

  [[nodiscard]] std::string guide_folder(const LossChoice& choice, const std::string& name) const {
    const std::string& config = args().locations.path;
    return resolve_model_folder(name, args().locations.where(choice.key) + ": guide",
                                config.empty() ? "" : parent_path(config));
  }

  // A model whose vectors say which texts are similar, from its folder. It reads the same tokens.
  [[nodiscard]] std::shared_ptr<Model> make_guide(const LossChoice& choice, const std::string& name,
                                                  c10::Device device,
                                                  const ModelOptions& trained) const {
    const std::string folder = guide_folder(choice, name);
    const auto refuse = [&](const std::string& why) { refuse_loss(choice, "guide: " + why); };
    ModelConfig config;
    std::shared_ptr<const Tokenizer> own;
    try {
      config = read_model_config(folder);
      own = load_tokenizer(folder);
      require_embedding(config, folder);
    } catch (const Error& error) {
      refuse(error.what());
    }
    const Tokenizer& of_model = context().tokenizer;
    bool is_same = own->size() == of_model.size();
    for (int64_t id = 0; is_same && id < own->size(); ++id) {
      const auto token = static_cast<int32_t>(id);
      is_same = own->id_to_token(token) == of_model.id_to_token(token);
    }
    if (!is_same) {
      refuse("'" + folder +
             "' has another vocabulary than the model, whose tokens it would read; " +
             "take a guide of the same tokenizer");
    }
    if (config.max_length() < max_seq_length()) {
      refuse(format_text("'{}' reads {} tokens at most; lower max_seq_length {}", folder,
                         config.max_length(), max_seq_length()));
    }
    ModelOptions options;
    options.fused = trained.fused;
    options.draw_weights = false;
    options.base = base_format(config, folder);
    std::shared_ptr<Model> guide = make_model(Head::kEmbedding, config, seed(), device, options);
    const LoadReport report = load_folder_weights(*guide, folder);
    if (!report.missing.empty()) {
      refuse("'" + folder + "' lacks the tensor '" + report.missing.front() + "'");
    }
    return guide;
  }

  static bool takes(const EmbeddingLoss& loss, int64_t texts) {
    return texts >= loss.fewest_texts && texts <= loss.most_texts.value_or(texts);
  }

  [[noreturn]] void refuse_loss(const LossChoice& choice, const std::string& why) const {
    refuse_key(args().locations, choice.key,
               choice.set.empty() ? why : "'" + choice.set + "': " + why);
  }

  void read_losses() {
    for (const TrainingSet& set : training_sets(args())) {
      LossChoice choice{.set = set.name, .key = "train_file"};
      choice.loss_type = set.loss_type ? set.loss_type : args().loss_type;
      choice.kwargs =
          set.loss_type || !set.loss_kwargs.empty() ? set.loss_kwargs : args().loss_kwargs;
      losses_.push_back(choice);
    }
    if (losses_.empty()) {
      losses_.push_back(
          {.key = "loss_type", .loss_type = args().loss_type, .kwargs = args().loss_kwargs});
    }
    for (const LossChoice& choice : losses_) {
      if (!choice.loss_type) continue;
      const EmbeddingLoss* loss = find_embedding_loss(*choice.loss_type);
      if (loss == nullptr) {
        refuse_loss(choice, *choice.loss_type + " is no loss of task embedding; it has " +
                                join(embedding_loss_names()));
      }
      (void)loss_args(choice, *loss);
    }
  }

  void check_texts(const LossChoice& choice, const EmbeddingLoss& loss, const Shape& shape) const {
    if (takes(loss, shape.texts)) return;
    std::string wanted = std::to_string(loss.fewest_texts);
    if (!loss.most_texts) {
      wanted += " or more";
    } else if (*loss.most_texts > loss.fewest_texts) {
      wanted += " to " + std::to_string(*loss.most_texts);
    }
    LossChoice blamed = choice;
    if (choice.set.empty() && !choice.loss_type) blamed.key = "text_columns";
    const std::string& first = shape.columns.text_columns.front();
    const std::string twice = shape.texts == 1 && !loss.most_texts
                                  ? "; [" + first + ", " + first +
                                        "] compares each text with itself under another dropout "
                                        "(SimCSE)"
                                  : "";
    refuse_loss(blamed, format_text("{} takes {} texts of a sample, and the rows have {} ('{}'); "
                                    "name them with text_columns{}",
                                    std::string(loss.name), wanted, shape.texts,
                                    join(shape.columns.text_columns, "', '"), twice));
  }

  [[nodiscard]] EmbeddingLossArgs loss_args(const LossChoice& choice,
                                            const EmbeddingLoss& loss) const {
    try {
      return parse_loss_args(loss, choice.kwargs.text);
    } catch (const Error& error) {
      LossChoice blamed = choice;
      if (choice.set.empty()) blamed.key = "loss_kwargs";
      refuse_loss(blamed, error.what());
    }
  }

  void read_prompts() {
    if (args().prompts.empty()) return;
    const nlohmann::ordered_json prompts = parse_json(args().prompts.text, "prompts");
    for (const auto& [column, text] : prompts.items()) {
      if (!text.is_string()) {
        refuse_key(args().locations, "prompts", "'" + column + "' has no text");
      }
      prompts_.emplace_back(column, text.get<std::string>());
      const int64_t tokens = tokens_of_prompt(context().tokenizer, prompts_.back().second);
      if (tokens + 1 >= max_seq_length()) {
        refuse_key(args().locations, "prompts",
                   format_text("the prompt of '{}' has {} tokens, which leaves no room for a text "
                               "in max_seq_length {}",
                               column, tokens, max_seq_length()));
      }
    }
  }

  [[nodiscard]] std::map<std::string, std::string> prompts_of(
      const std::vector<std::string>& columns) const {
    std::map<std::string, std::string> of_columns;
    for (const auto& [column, text] : prompts_) {
      if (std::ranges::find(columns, column) != columns.end()) {
        of_columns[column] = text;
      } else if (losses_.size() == 1) {
        refuse_prompt(column, columns);
      }
    }
    return of_columns;
  }

  // Each of several entries may have other columns.
  void check_prompts() const {
    std::vector<std::string> columns;
    for (const Shape& shape : train_) {
      const std::vector<std::string>& own = shape.columns.text_columns;
      columns.insert(columns.end(), own.begin(), own.end());
    }
    for (const auto& [column, text] : prompts_) {
      if (std::ranges::find(columns, column) == columns.end()) refuse_prompt(column, columns);
    }
  }

  [[noreturn]] void refuse_prompt(const std::string& column,
                                  const std::vector<std::string>& columns) const {
    refuse_key(
        args().locations, "prompts",
        "'" + column + "' is no column of a text; the columns are '" + join(columns, "', '") + "'");
  }

  // By text of a sample: the tokens of its prompt, with the special ones before them.
  [[nodiscard]] std::vector<int64_t> prompt_tokens(const Shape& shape) const {
    std::vector<int64_t> counts;
    for (const std::string& column : shape.columns.text_columns) {
      const std::string prompt = prompt_of(column);
      counts.push_back(prompt.empty() ? 0 : tokens_of_prompt(context().tokenizer, prompt));
    }
    // A column of lists is the last one of the columns that have a prompt.
    while (std::ssize(counts) < shape.texts) counts.push_back(counts.empty() ? 0 : counts.back());
    return counts;
  }

  void read_dense() {
    if (args().dense.empty()) return;
    const auto refuse = [&](const std::string& why) { refuse_key(args().locations, "dense", why); };
    const ModelConfig& model = context().model;
    if (!model.embedding.dense.empty()) {
      refuse(
          "the model has a dense layer already, as its modules.json says; leave dense out to train "
          "that one");
    }
    const nlohmann::ordered_json json = parse_json(args().dense.text, "dense");
    DenseConfig dense{.module = "2_Dense", .in_features = model.hidden_size};
    for (const auto& [name, value] : json.items()) {
      if (name == "out_features" && value.is_number_integer()) {
        dense.out_features = value.get<int64_t>();
      } else if (name == "bias" && value.is_boolean()) {
        dense.bias = value.get<bool>();
      } else if (name == "activation_function" && value.is_string()) {
        dense.activation_function = value.get<std::string>();
        dense.activation_function.erase(0, dense.activation_function.rfind('.') + 1);
      } else {
        refuse("holds " + name + ": " + value.dump() +
               "; it takes {out_features: 256, bias: true, activation_function: Tanh}");
      }
    }
    if (dense.out_features < 1 || dense.out_features > 1 << 20) {
      refuse("out_features has to be the dimensions of the vectors, from 1 to 1048576");
    }
    const std::vector<std::string> known = dense_activations();
    if (std::ranges::find(known, dense.activation_function) == known.end()) {
      refuse("activation_function '" + dense.activation_function + "' is not one of " +
             join(known));
    }
    dense_ = std::move(dense);
  }

  void read_dims() {
    for (const std::string& text : args().matryoshka_dims) {
      int64_t size = 0;
      const auto read = std::from_chars(text.data(), text.data() + text.size(), size);
      if (read.ptr != text.data() + text.size() || size < 1) {
        refuse_key(args().locations, "matryoshka_dims", "'" + text + "' does not count dimensions");
      }
      dims_.push_back(size);
    }
  }

  void check_dims(const ModelConfig& config) const {
    for (const int64_t size : dims_) {
      const int64_t all = embedding_dimension(config);
      if (size <= all) continue;
      refuse_key(args().locations, "matryoshka_dims",
                 format_text("{} is more than the {} dimensions of the model", size, all));
    }
  }

  std::vector<std::pair<std::string, std::string>> prompts_;  // by column
  std::optional<DenseConfig> dense_;
  std::vector<int64_t> dims_;
  std::vector<LossChoice> losses_;
  std::vector<Shape> train_;  // by loss; empty: nothing is trained
  Shape validation_;
};

}  // namespace

std::unique_ptr<TaskSetup> make_embedding_setup(const SetupContext& context) {
  return std::make_unique<EmbeddingSetup>(context);
}

}  // namespace finetune
