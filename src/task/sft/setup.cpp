// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/data/chat_dataset.h"
#include "finetune/data/data_files.h"
#include "task/loss/words_task.h"
#include "task/setup/causal_setup.h"
#include "task/setup/chat_setup.h"
#include "task/sft/generated_samples.h"
#include "task/sft/sft.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// Means over the learned tokens.
class SftMetrics final : public Metrics {
 public:
  void add(const Batch& batch, const Outputs& outputs) override {
    accuracy_->add(batch, outputs);
    entropy_ += outputs.entropy * static_cast<double>(outputs.targets);
    targets_ += outputs.targets;
  }
  [[nodiscard]] std::vector<std::pair<std::string, double>> compute() const override {
    auto metrics = accuracy_->compute();
    metrics.emplace_back("entropy", targets_ > 0 ? entropy_ / static_cast<double>(targets_) : 0.0);
    return metrics;
  }

 private:
  std::unique_ptr<Metrics> accuracy_ = make_masked_lm_metrics("mean_token_accuracy");
  double entropy_ = 0.0;
  int64_t targets_ = 0;
};

// Sets up the task as TRL's SFTTrainer does.
class SftSetup final : public ChatSetup {
 public:
  explicit SftSetup(const SetupContext& context)
      : ChatSetup(context, masks(context.options),
                  {{"assistant_only", context.options.assistant_only_loss},
                   {"turns", context.options.train_turns},
                   {"instruction", context.options.instruction_template.value_or("")},
                   {"response", context.options.response_template.value_or("")}}) {
    warn_about_keys_without_effect();
  }

  // Samples that are cut are counted when they are read; wrapped ones are not cut.
  [[nodiscard]] int64_t truncation_length() const override { return 0; }

  std::shared_ptr<const Dataset> read(Split split) override {
    ChatOptions options;
    options.names = names_of(split);
    // Other names than the usual ones are known, not guessed, and bad rows may come first.
    if (options.names == chat::ConversationNames{} && !args().skip_bad_rows) {
      static_cast<void>(columns_of(split, RowTask::kChat));
    }
    options.renderer = renderer();
    options.renderer_identity = renderer_identity();
    options.completion_only = args().completion_only_loss.value_or(true);
    options.special_tokens_as_text = args().special_tokens_in_text == "text";
    options.skip_bad_rows = args().skip_bad_rows;
    options.truncates = split != Split::kTrain || !wraps();
    auto data = read_rows(split, options, build_chat_dataset);
    announce(split, *data);
    if (split == Split::kValidation && args().generate_samples > 0) {
      samples_ = std::make_unique<const GeneratedSamples>(
          files_of(split).files, options, options.names, *renderer(), context().tokenizer,
          context().model, args().generate_samples);
      if (samples_->size() == 0) {
        log::warning(context().options.locations.where("generate_samples") +
                     ": generate_samples: no row of the validation data asks anything (plain text "
                     "has no question), so that no answers are written");
      }
    }
    if (split == Split::kTrain && wraps()) return wrapped(*data, max_seq_length());
    return data;
  }

  [[nodiscard]] int64_t packed_length() const override {
    return args().packing && !wraps() ? max_seq_length() : 0;
  }

  [[nodiscard]] Learner make_learner(const ModelConfig& config, c10::Device device,
                                     const ModelOptions& options) const override {
    return make_causal_lm_learner(args(), config, device, options, /*measures_entropy=*/true);
  }

  [[nodiscard]] Results make_results(Split) const override {
    return {std::make_unique<SftMetrics>(), nullptr};
  }

  [[nodiscard]] std::vector<Json> generate_samples(Model& model, c10::Device device,
                                                   const Files& of_start) const override {
    if (samples_ == nullptr) return {};
    return samples_->answer(dynamic_cast<Model&>(model), device, end_ids(config_in(of_start)));
  }

 private:
  void warn_about_keys_without_effect() const {
    const KeyLocations& locations = context().options.locations;
    const auto warn = [&](const char* key, bool has_effect, const char* needed) {
      if (has_effect || !locations.is_set(key)) return;
      log::warning(format_text("{}: no effect without {}: {}", locations.where(key), needed, key));
    };
    warn("packing_strategy", args().packing, "packing: true");
    warn("generate_samples",
         !args().validation_file.empty() || args().validation_split_percentage > 0,
         "validation_file");
  }

  [[nodiscard]] bool wraps() const {
    return args().packing && args().packing_strategy == "wrapped";
  }

  // All files of a split have the same names of columns and roles.
  [[nodiscard]] chat::ConversationNames names_of(Split split) const {
    const SplitFiles split_files = files_of(split);
    const std::vector<std::string> files = expand_files(split_files.files, split_files.key);
    chat::ConversationNames names;
    for (size_t i = 0; i < files.size(); ++i) {
      chat::ConversationNames own = chat::names_in_dataset_info(files[i]);
      if (i > 0 && !(own == names)) {
        refuse_key(context().options.locations, split_files.key.c_str(),
                   "dataset_info.json has other columns or tags for '" + files[i] + "' than for '" +
                       files[0] + "'; name such files as a mixture ({path, weight})");
      }
      names = std::move(own);
    }
    return names;
  }

  // Which masks the renderer is asked for.
  static chat::RenderOptions masks(const TaskOptions& args) {
    chat::RenderOptions options;
    options.assistant_only = args.assistant_only_loss;
    options.turns = args.train_turns == "last" ? chat::TurnChoice::kLast : chat::TurnChoice::kAll;
    options.instruction_template = args.instruction_template.value_or("");
    options.response_template = args.response_template.value_or("");
    return options;
  }

  void announce(Split split, const ChatDataset& data) const {
    const ChatCounts& counts = data.counts();
    const auto& lengths = counts.lengths;
    // "1 row is left out: it ..." and "2 rows are left out: they ...".
    const auto warn = [&](int64_t number, const std::string& one, const std::string& several) {
      if (number > 0) log::warning(std::to_string(number) + " " + (number == 1 ? one : several));
    };
    log::info(
        format_text("{} data: {} of {} tokens are learned; a sample has {} to {} tokens, median "
                    "{}, 99 % at most {}{}",
                    split == Split::kTrain ? "training" : "evaluation", counts.learned,
                    counts.tokens, lengths[0], lengths[4], lengths[1], lengths[3],
                    split == Split::kTrain ? packing_note(counts) : ""));
    if (counts.first_left_out > 0) {
      log::info(format_text("the first row that is left out is row {}, {}", counts.first_left_out,
                            counts.left_out_position));
    }
    const std::string limit = "max_seq_length " + std::to_string(max_seq_length());
    warn(counts.truncated, "sample is cut to " + limit, "samples are cut to " + limit);
    warn(counts.cut_off, "row is left out: its answers lie beyond " + limit,
         "rows are left out: their answers lie beyond " + limit);
    warn(counts.nothing_learned, "row is left out: nothing in it is learned",
         "rows are left out: nothing in them is learned");
    const std::string first =
        counts.first_problem.empty() ? "" : "; the first: " + counts.first_problem;
    warn(counts.bad, "row is left out: it cannot be read, or the chat template refuses it" + first,
         "rows are left out: they cannot be read, or the chat template refuses them" + first);
    warn(args().special_tokens_in_text == "parse" ? counts.special_tokens : 0,
         "sample has a special token in the text of a message; it becomes that token's id; see "
         "special_tokens_in_text",
         "samples have a special token in the text of a message; it becomes that token's id; see "
         "special_tokens_in_text");
    warn(counts.drops_reasoning, "sample loses reasoning: the chat template leaves it out",
         "samples lose reasoning: the chat template leaves it out");
    warn(counts.drops_tools, "sample loses tools or tool calls: the chat template leaves them out",
         "samples lose tools or tool calls: the chat template leaves them out");
    warn(counts.lacks_instruction,
         "sample has several answers and no instruction_template: the text between them is learned",
         "samples have several answers and no instruction_template: the text between them is "
         "learned");
    warn(
        counts.empty_answers,
        "sample has an empty answer: the model learns to end it at once; leave the row out if that "
        "is not wanted",
        "samples have empty answers: the model learns to end them at once; leave the rows out if "
        "that is not wanted");
    if (counts.samples > 0 && counts.learns_end == 0 && !renderer()->stop_token().empty()) {
      log::warning("in no sample is '" + renderer()->stop_token() +
                   "' learned, which ends an answer: the model will not stop by itself; "
                   "{% generation %}, or the markers' texts, should contain it");
    }
    warn(counts.prompt_differs,
         "sample has a prompt that ends otherwise without its completion; learning starts where "
         "the tokens differ",
         "samples have a prompt that ends otherwise without its completion; learning starts where "
         "the tokens differ");
  }

  // What packing gives, or would give.
  [[nodiscard]] std::string packing_note(const ChatCounts& counts) const {
    const double rows = std::max(
        1.0, std::ceil(static_cast<double>(counts.tokens) / static_cast<double>(max_seq_length())));
    const double share = static_cast<double>(counts.samples) / rows;
    if (args().packing || share < 2) return "";
    return format_text("; packing: true would put about {} samples into a row",
                       static_cast<int64_t>(share));
  }

  std::unique_ptr<const GeneratedSamples> samples_;  // null: none are asked for
};

}  // namespace

std::unique_ptr<TaskSetup> make_sft_setup(const SetupContext& context) {
  return std::make_unique<SftSetup>(context);
}

}  // namespace finetune
