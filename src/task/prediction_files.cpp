// SPDX-License-Identifier: MIT
#include "finetune/task/prediction_files.h"

#include <ATen/ops/argmax.h>

#include <cmath>
#include <cstdio>
#include <span>

#include "finetune/data/token_classification_dataset.h"

namespace finetune {
namespace {

// As Python prints a string in a list.
std::string quoted(const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos;
  const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == '\\' || c == quote) {
      out += '\\';
      out += c;
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if ((c >= 0 && c < ' ') || c == '\x7f') {
      char code[8];
      std::snprintf(code, sizeof(code), "\\x%02x", static_cast<unsigned>(c));
      out += code;
    } else {
      out += c;
    }
  }
  return out + quote;
}

std::string with_three_decimals(float value) {
  if (std::isnan(value)) return "nan";  // printf may give it a sign
  char text[64];
  std::snprintf(text, sizeof(text), "%3.3f", static_cast<double>(value));
  return text;
}

std::string in_brackets(const std::vector<std::string>& items) {
  std::string out = "[";
  for (const std::string& item : items) out += (out.size() > 1 ? ", " : "") + item;
  return out + "]";
}

std::span<const float> numbers(const Tensor& host) {
  return {host.const_data_ptr<float>(), static_cast<size_t>(host.numel())};
}

// predict_results.txt; what stands in a line is the heir's.
class Results : public PredictionFiles {
 public:
  void add(const Batch& /*batch*/, const Outputs& outputs) final {
    const Tensor logits = outputs.logits.to(at::kFloat).cpu().contiguous();  // [samples, outputs]
    const std::span<const float> all = numbers(logits);
    const auto columns = static_cast<size_t>(logits.size(-1));
    for (size_t begin = 0; begin < all.size(); begin += columns) {
      text_ += std::to_string(samples_++) + "\t" + prediction(all.subspan(begin, columns)) + "\n";
    }
  }

  void write(FileSystem& files, const std::string& output_dir) const final {
    files.make_directories(output_dir);
    files.write_atomically(join_path(output_dir, "predict_results.txt"), text_);
  }

 protected:
  // Of equal numbers the first, as numpy's argmax.
  [[nodiscard]] static size_t best_of(std::span<const float> scores) {
    size_t best = 0;
    for (size_t i = 1; i < scores.size(); ++i) {
      if (scores[i] > scores[best]) best = i;
    }
    return best;
  }

 private:
  [[nodiscard]] virtual std::string prediction(std::span<const float> scores) const = 0;

  std::string text_ = "index\tprediction\n";
  int64_t samples_ = 0;
};

class LabelResults final : public Results {
 public:
  LabelResults(ProblemType problem, std::vector<std::string> labels)
      : problem_(problem), labels_(std::move(labels)) {}

 private:
  [[nodiscard]] std::string prediction(std::span<const float> scores) const override {
    if (problem_ == ProblemType::kSingleLabel) return labels_.at(best_of(scores));
    std::vector<std::string> items;
    for (size_t i = 0; i < scores.size(); ++i) {
      if (problem_ == ProblemType::kRegression) {
        items.push_back(with_three_decimals(scores[i]));
      } else if (scores[i] > 0) {
        items.push_back(quoted(labels_.at(i)));
      }
    }
    const bool is_number = problem_ == ProblemType::kRegression && items.size() == 1;
    return is_number ? items[0] : in_brackets(items);
  }

  ProblemType problem_;
  std::vector<std::string> labels_;
};

class ChoiceResults final : public Results {
  [[nodiscard]] std::string prediction(std::span<const float> scores) const override {
    return std::to_string(best_of(scores));
  }
};

class TokenLabels final : public PredictionFiles {
 public:
  TokenLabels(std::vector<std::string> labels,
              std::shared_ptr<const TokenClassificationDataset> dataset)
      : labels_(std::move(labels)), dataset_(std::move(dataset)) {}

  void add(const Batch& batch, const Outputs& outputs) override {
    const Tensor classes = at::argmax(outputs.logits, -1).cpu().contiguous();  // [rows, length]
    const int64_t* row = classes.const_data_ptr<int64_t>();
    for (int64_t r = 0; r < batch.rows; ++r, row += batch.length) {
      std::string line;
      for (const int64_t token : labelled_tokens(batch, r)) {
        line += (line.empty() ? "" : " ") + labels_.at(static_cast<size_t>(row[token]));
      }
      text_ += line + "\n";
    }
  }

  void write(FileSystem& files, const std::string& output_dir) const override {
    files.make_directories(output_dir);
    files.write_atomically(join_path(output_dir, "predictions.txt"), text_);
  }

 private:
  [[nodiscard]] std::vector<int64_t> labelled_tokens(const Batch& batch, int64_t row) const {
    const int64_t begin = row * batch.length;
    std::vector<int64_t> tokens;
    for (int64_t t = 0; t < batch.length && !batch.labels.empty(); ++t) {
      if (batch.labels[static_cast<size_t>(begin + t)] != kIgnoredLabel) tokens.push_back(t);
    }
    if (!tokens.empty()) return tokens;
    const auto words = dataset_->words(batch.samples.at(static_cast<size_t>(row)));
    const bool padded_left = batch.attention_mask[static_cast<size_t>(begin)] == 0;
    const int64_t first = padded_left ? batch.length - static_cast<int64_t>(words.size()) : 0;
    int32_t last_word = TokenClassificationDataset::kNoWord;
    for (size_t t = 0; t < words.size(); ++t) {
      if (words[t] == TokenClassificationDataset::kNoWord || words[t] == last_word) continue;
      last_word = words[t];
      tokens.push_back(first + static_cast<int64_t>(t));
    }
    return tokens;
  }

  std::vector<std::string> labels_;
  std::shared_ptr<const TokenClassificationDataset> dataset_;
  std::string text_;
};

}  // namespace

std::unique_ptr<PredictionFiles> make_classification_files(ProblemType problem,
                                                           std::vector<std::string> labels) {
  return std::make_unique<LabelResults>(problem, std::move(labels));
}

std::unique_ptr<PredictionFiles> make_multiple_choice_files() {
  return std::make_unique<ChoiceResults>();
}

std::unique_ptr<PredictionFiles> make_token_classification_files(
    std::shared_ptr<const TokenClassificationDataset> data, std::vector<std::string> labels) {
  return std::make_unique<TokenLabels>(std::move(labels), std::move(data));
}

}  // namespace finetune
