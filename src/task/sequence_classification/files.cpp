// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "task/predict/result_lines.h"
#include "task/sequence_classification/sequence_classification.h"

namespace finetune {
namespace {

// Quotes a string as Python does when it prints a list.
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

class LabelResults final : public ResultLines {
 public:
  LabelResults(ProblemType problem, std::vector<std::string> labels)
      : ResultLines(problem == ProblemType::kSingleLabel  ? "probability"
                    : problem == ProblemType::kMultiLabel ? "loss"
                                                          : "error"),
        problem_(problem),
        labels_(std::move(labels)) {}

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

  void rate(const Batch& batch, size_t row, std::span<const float> scores,
            int64_t sample) override {
    if (problem_ == ProblemType::kSingleLabel) {
      if (batch.classes.empty() || batch.classes[row] == kIgnoredLabel) return;
      return rate_class(sample, scores, static_cast<size_t>(batch.classes[row]),
                        [&](size_t label) { return labels_.at(label); });
    }
    if (batch.values.size() < (row + 1) * scores.size()) return;
    const auto values = std::span(batch.values).subspan(row * scores.size(), scores.size());
    double sum = 0.0;
    for (size_t i = 0; i < scores.size(); ++i) sum += fault_of(scores[i], values[i]);
    const double mean = sum / static_cast<double>(scores.size());
    worst().add(sample, mean, {.first = mean}, [&]() -> WorstSamples::Json {
      return {{"label", described(values)}, {"predicted", described(scores)}};
    });
  }

  // The absolute error of a number; binary cross entropy of a logit.
  [[nodiscard]] double fault_of(double score, double value) const {
    if (problem_ == ProblemType::kRegression) return std::abs(score - value);
    return std::max(score, 0.0) - score * value + std::log1p(std::exp(-std::abs(score)));
  }

  // The numbers, or the names of the labels whose value is above 0.
  [[nodiscard]] WorstSamples::Json described(std::span<const float> values) const {
    WorstSamples::Json list = WorstSamples::Json::array();
    for (size_t i = 0; i < values.size(); ++i) {
      if (problem_ == ProblemType::kRegression) {
        list.push_back(values[i]);
      } else if (values[i] > 0) {
        list.push_back(labels_.at(i));
      }
    }
    return problem_ == ProblemType::kRegression && list.size() == 1 ? list[0] : list;
  }

  ProblemType problem_;
  std::vector<std::string> labels_;
};

}  // namespace

std::unique_ptr<PredictionFiles> make_classification_files(ProblemType problem,
                                                           std::vector<std::string> labels) {
  return std::make_unique<LabelResults>(problem, std::move(labels));
}

}  // namespace finetune
