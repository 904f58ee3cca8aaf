// SPDX-License-Identifier: MIT
#include <algorithm>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "task/predict/code_points.h"
#include "task/predict/head_runner.h"
#include "task/question_answering/question_answering.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// Sequences of a question and a part of its context each.
struct Windows {
  std::vector<ModelText> rows;
  std::vector<std::vector<std::optional<TextRange>>> ranges;  // of the tokens of each row
  std::vector<size_t> queries;                                // index of the query of each row
};

class QuestionAnsweringPredictor final : public Predictor {
 public:
  QuestionAnsweringPredictor(const std::string& folder, const PredictOptions& options)
      : runner_(Head::kQuestionAnswering, "question-answering", folder, options),
        length_(std::min(options.max_seq_len, runner_.encoder().limit())),
        doc_stride_(options.doc_stride.value_or(std::min<int64_t>(128, length_ / 2))),
        top_k_(options.top_k.value_or(1)),
        batch_size_(options.batch_size) {
    finder_options_.n_best_size = std::max(finder_options_.n_best_size, top_k_);
    finder_options_.max_answer_length = options.max_answer_len;
    finder_options_.version_2_with_negative = options.handle_impossible_answer;
  }

  std::vector<Json> answer(const std::vector<Query>& queries) override {
    Windows windows;
    for (size_t i = 0; i < queries.size(); ++i) cut_into_windows(queries[i], i, windows);
    std::vector<Json> answers;
    AnswerFinder finder(finder_options_);
    runner_.run(windows.rows, batch_size_, [&](size_t row, const Tensor& logits) {
      const Tensor ends = logits.t().contiguous();  // [2, T]
      const auto tokens = static_cast<size_t>(ends.size(1));
      const std::span<const float> all(ends.const_data_ptr<float>(), 2 * tokens);
      finder.add(all.first(tokens), all.last(tokens), windows.ranges[row]);
      const size_t query = windows.queries[row];
      if (row + 1 < windows.rows.size() && windows.queries[row + 1] == query) return;
      const Query& asked = queries[query];
      answers.push_back(best_answers(finder.finish(asked.where, asked.text), asked.text));
    });
    return answers;
  }

 private:
  // As in run_qa, leading white space of the question is removed, and only the context is split.
  void cut_into_windows(const Query& query, size_t number, Windows& windows) {
    const TextEncoder& encoder = runner_.encoder();
    const std::string& asked = query.pair.value_or("");
    const size_t begin = asked.find_first_not_of(" \t\n\v\f\r");
    const std::vector<int32_t> question =
        encoder.ids(begin == std::string::npos ? "" : asked.substr(begin), query.where);
    const Tokens context = encoder.tokens(query.text, query.where);
    if (question.empty() || context.ids.empty()) {
      throw Error(ErrorKind::kData, query.where + ": the " +
                                        (question.empty() ? "question" : "context") + " is empty");
    }
    const int64_t room = length_ - encoder.tokenizer().num_special_tokens_to_add(true) -
                         static_cast<int64_t>(question.size());
    if (room <= doc_stride_) {
      throw Error(ErrorKind::kData,
                  query.where + ": the question has " + std::to_string(question.size()) +
                      " tokens, which leaves " + std::to_string(std::max<int64_t>(room, 0)) +
                      " of " + std::to_string(length_) + " for the context, not more than the " +
                      std::to_string(doc_stride_) +
                      " that two windows share; shorten it or lower --doc_stride");
    }
    const auto size = static_cast<int64_t>(context.ids.size());
    for (int64_t first = 0;; first += room - doc_stride_) {
      add_window(question, context, {.begin = first, .end = std::min(first + room, size)}, windows);
      windows.queries.push_back(number);
      if (first + room >= size) break;
    }
  }

  // `part` is a range of the context's tokens.
  void add_window(const std::vector<int32_t>& question, const Tokens& context,
                  const TextRange& part, Windows& windows) {
    const Tokenizer& tokenizer = runner_.encoder().tokenizer();
    const auto ids =
        std::span(context.ids)
            .subspan(static_cast<size_t>(part.begin), static_cast<size_t>(part.end - part.begin));
    const bool context_first = tokenizer.sides().pad_left;  // as in run_qa
    const ModelText& row = windows.rows.emplace_back(
        context_first ? tokenizer.combine(ids, std::span<const int32_t>(question))
                      : tokenizer.combine(question, ids));
    std::vector<std::optional<TextRange>> ranges(row.ids.size());
    for (size_t t = 0; t < ranges.size(); ++t) {
      if (row.texts[t] != (context_first ? 0 : 1)) continue;
      ranges[t] = context.ranges[static_cast<size_t>(part.begin + row.tokens[t])];
    }
    windows.ranges.push_back(std::move(ranges));
  }

  [[nodiscard]] Json best_answers(const Answer& answer, const std::string& context) const {
    const CodePoints positions(context);
    Json list = Json::array();
    for (const AnswerCandidate& candidate : answer.n_best) {
      if (static_cast<int64_t>(list.size()) == top_k_) break;
      const bool none = candidate.range == TextRange{};
      if (none && !finder_options_.version_2_with_negative) continue;
      list.push_back({{"score", candidate.probability},
                      {"start", positions.at(candidate.range.begin)},
                      {"end", positions.at(candidate.range.end)},
                      {"answer", none ? "" : candidate.text}});
    }
    if (list.empty()) list.push_back({{"score", 0.0}, {"start", 0}, {"end", 0}, {"answer", ""}});
    return top_k_ == 1 ? list[0] : list;
  }

  HeadRunner runner_;
  int64_t length_;
  int64_t doc_stride_;
  int64_t top_k_;
  int64_t batch_size_;
  AnswerOptions finder_options_;
};

}  // namespace

std::unique_ptr<Predictor> make_question_answering(const std::string& folder,
                                                   const PredictOptions& options) {
  return std::make_unique<QuestionAnsweringPredictor>(folder, options);
}

}  // namespace finetune
