// SPDX-License-Identifier: MIT
#include "train/setup/check_data.h"

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/data/pretraining_dataset.h"
#include "finetune/data/sample_stream.h"
#include "finetune/task/tasks.h"

namespace finetune {
namespace {

constexpr double kManyUnknown = 0.2;
constexpr int64_t kSamplesRead = 64;      // each may read and verify a block of the cache
constexpr int64_t kLengthsRead = 100000;  // of more samples only each n-th is asked

// Calls `visit` with at most `most` samples, spread over all, until it returns false.
template <class Visit>
void visit_spread(const Dataset& data, int64_t most, const Visit& visit) {
  const int64_t stride = std::max<int64_t>(1, data.size() / std::max<int64_t>(1, most));
  for (int64_t i = 0; i < data.size(); i += stride) {
    interrupt::throw_if_requested("looking at the training samples");
    for (int64_t choice = 0; choice < data.choices_of(i); ++choice) {
      if (!visit(i, choice)) return;
    }
  }
}

struct TokenCounts {
  int64_t all = 0;  // without special tokens, but with unknown ones
  int64_t unknown = 0;
};

// The id of the unknown token; -1 if the tokenizer has none.
int32_t unknown_id(const Tokenizer& tokenizer) {
  const std::optional<SpecialTokens::Token>& unknown = tokenizer.special_tokens().unk;
  return unknown ? unknown->id : -1;
}

template <class Ids>
void count_tokens(const Ids& ids, const Tokenizer& tokenizer, TokenCounts& counts) {
  const int32_t unknown = unknown_id(tokenizer);
  for (size_t t = 0; t < ids.size(); ++t) {
    const auto id = static_cast<int32_t>(ids[t]);
    const bool is_unknown = unknown >= 0 && id == unknown;
    counts.unknown += is_unknown ? 1 : 0;
    counts.all += is_unknown || !tokenizer.is_special(id) ? 1 : 0;
  }
}

// Reads all samples only if those spread over the data hold no token.
TokenCounts count_tokens(const Dataset& data, const Tokenizer& tokenizer) {
  TokenCounts counts;
  for (const int64_t most : {kSamplesRead, data.size()}) {
    visit_spread(data, most, [&](int64_t index, int64_t choice) {
      count_tokens(data.get(index, choice).input_ids, tokenizer, counts);
      return most == kSamplesRead || counts.all == 0;
    });
    if (counts.all > 0) break;
  }
  return counts;
}

void check_tokens(const LoadedConfig& config, const DataParts& parts, const TokenCounts& counts) {
  if (counts.all == 0) {
    throw Error(ErrorKind::kConfig,
                config.where("train_file") +
                    ": train_file: the texts are empty, so that there is nothing "
                    "to learn; check the columns");
  }
  if (counts.unknown == 0) return;
  const std::string unknown_text = parts.tokenizer->special_tokens().unk->text;
  const std::string key = config.args.tokenizer_name ? "tokenizer_name" : "model_name_or_path";
  const std::string question =
      format_text("is the tokenizer of {} '{}' the one for this text?", key,
                  config.args.tokenizer_name.value_or(config.args.model_name_or_path.value_or("")));
  if (counts.unknown == counts.all) {
    throw Error(
        ErrorKind::kConfig,
        format_text("{}: train_file: every token is {}, so that there is nothing to learn; {}",
                    config.where("train_file"), unknown_text, question));
  }
  const double share = static_cast<double>(counts.unknown) / static_cast<double>(counts.all);
  const std::string line = format_text("{} % of the tokens of train_file are {}",
                                       format_number("%.2g", 100 * share), unknown_text);
  if (share < kManyUnknown) {
    log::info(line);
  } else {
    log::warning(line + "; " + question);
  }
}

// Whether a loss can be computed from an example. Masking and causal models learn tokens of text.
bool has_target(const Example& example, const Tokenizer& tokenizer) {
  if (example.label) return *example.label != kIgnoredLabel;
  if (!example.values.empty() || example.answer) return true;
  if (!example.labels.empty()) {
    return std::ranges::any_of(example.labels,
                               [](int32_t label) { return label != kIgnoredLabel; });
  }
  for (size_t t = 0; t < example.input_ids.size(); ++t) {
    if (!tokenizer.is_special(static_cast<int32_t>(example.input_ids[t]))) return true;
  }
  return false;
}

// Usually stops at the first sample.
void check_targets(const KeyLocations& keys, const DataParts& parts) {
  bool is_found = false;
  visit_spread(*parts.train_data, parts.train_data->size(), [&](int64_t index, int64_t choice) {
    is_found = has_target(parts.train_data->get(index, choice), *parts.tokenizer);
    return !is_found;
  });
  if (is_found || parts.train_data->size() == 0) return;
  throw Error(ErrorKind::kConfig,
              keys.where("train_file") +
                  ": train_file: no sample has a target to learn from: labels are missing or -100, "
                  "or texts hold special tokens only; check the labels and the columns");
}

void report_cut_samples(const DataParts& parts) {
  const int64_t limit = parts.setup->truncation_length();
  if (limit == 0) return;
  const Dataset& data = *parts.train_data;
  int64_t asked = 0;
  int64_t full = 0;
  visit_spread(data, kLengthsRead, [&](int64_t index, int64_t choice) {
    ++asked;
    full += data.length(index, choice) >= limit ? 1 : 0;
    return true;
  });
  if (full == 0) return;
  const bool is_all = data.size() < 2 * kLengthsRead;  // visit_spread() left none out
  log::info(format_text("{} of {} {} reach max_seq_length {}: longer texts are truncated", full,
                        asked, is_all ? "sequences" : "sequences that were looked at", limit));
}

bool can_be_looked_at(const Dataset& data) {
  return !is_stream(data) && dynamic_cast<const PretrainingDataset*>(&data) == nullptr;
}

// Who turns a run of all weights into one of an adapter may keep its learning rate.
void report_low_rate(const TrainingArgs& args) {
  const bool compares = task_of(args.task).compares_sequences;
  const double low = compares ? 5e-6 : 2e-5;
  if (!args.use_peft || args.learning_rate >= low) return;
  log::info(format_text(
      "learning_rate {} is low for an adapter (use_peft): about ten times that of training all "
      "weights is usual, {}",
      format_number("%g", args.learning_rate),
      compares ? "from 5e-6 to 5e-5 for task " + args.task : std::string("such as 2e-4")));
}

}  // namespace

void check_training_samples(const LoadedConfig& config, const DataParts& parts) {
  report_low_rate(config.args);
  const Dataset* data = parts.train_data.get();
  if (!can_be_looked_at(*data)) return;
  TokenCounts counts;
  if (data->size() > 0) counts = count_tokens(*data, *parts.tokenizer);
  // Tokens that are all unknown are no targets either, and this is the reason.
  const bool is_unknown = counts.all > 0 && counts.unknown == counts.all;
  if (!is_unknown) check_targets(config, parts);
  if (data->size() > 0) check_tokens(config, parts, counts);
  report_cut_samples(parts);
}

void check_first_update(const LoadedConfig& config, const DataParts& parts,
                        std::span<const Batch> update) {
  if (can_be_looked_at(*parts.train_data)) return;
  TokenCounts counts;
  for (const Batch& batch : update) count_tokens(batch.input_ids, *parts.tokenizer, counts);
  if (!update.empty()) check_tokens(config, parts, counts);
}

}  // namespace finetune
