// SPDX-License-Identifier: MIT
#include <ATen/ops/softmax.h>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/model_files.h"
#include "task/predict/code_points.h"
#include "task/predict/head_runner.h"
#include "task/token_classification/entity_groups.h"
#include "task/token_classification/token_classification.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::pair<std::string_view, Aggregation>, 5> kAggregations = {
    {{"none", Aggregation::kNone},
     {"simple", Aggregation::kSimple},
     {"first", Aggregation::kFirst},
     {"average", Aggregation::kAverage},
     {"max", Aggregation::kMax}}};

Aggregation parse_aggregation(const std::string& name) {
  for (const auto& [known, aggregation] : kAggregations) {
    if (name == known) return aggregation;
  }
  throw Error(
      ErrorKind::kUsage,
      "--aggregation_strategy takes none, simple, first, average or max, not '" + name + "'");
}

// Whether the vocabulary marks tokens that continue a word ("##ing"), as WordPiece does.
bool marks_continuations(const Tokenizer& tokenizer) {
  bool has_vocabulary_text = false;
  for (const auto& [name, content] : tokenizer.files()) {
    has_vocabulary_text |= name == kVocabularyTextFile;
    if (name != kTokenizerFile) continue;
    const Json json = parse_json(content, name);
    const auto model = json.find("model");
    if (model == json.end() || !model->is_object()) return false;
    const auto prefix = model->find("continuing_subword_prefix");
    return prefix != model->end() && prefix->is_string() && *prefix != "";
  }
  return has_vocabulary_text;
}

// A text with its tokens, truncated to what the model accepts.
struct Sentence {
  std::string text;
  Tokens tokens;
  size_t first_kept = 0;  // index of the first token kept
};

class TokenClassificationPredictor final : public Predictor {
 public:
  TokenClassificationPredictor(const std::string& folder, const PredictOptions& options)
      : runner_(Head::kTokenClassification, "token-classification", folder, options),
        aggregation_(parse_aggregation(options.aggregation_strategy)),
        ignored_(options.ignore_labels),
        options_(options),
        marks_continuations_(marks_continuations(runner_.encoder().tokenizer())) {
    if (aggregation_ != Aggregation::kNone && has_probabilities()) {
      throw Error(ErrorKind::kUsage,
                  "--probabilities are those of tokens; leave --aggregation_strategy out");
    }
  }

  std::vector<Json> answer(const std::vector<Query>& queries) override {
    std::vector<Sentence> sentences;
    std::vector<ModelText> rows;
    for (const Query& query : queries) {
      Sentence& sentence = sentences.emplace_back(tokenize(query));
      const auto kept = runner_.encoder().cut(sentence.tokens.ids, query.where);
      sentence.first_kept = static_cast<size_t>(kept.data() - sentence.tokens.ids.data());
      rows.push_back(runner_.encoder().tokenizer().combine(kept, std::nullopt));
    }
    std::vector<Json> answers;
    runner_.run(rows, options_.batch_size, [&](size_t row, const Tensor& logits) {
      const auto tokens = tag(sentences[row], rows[row], at::softmax(logits, -1).contiguous());
      answers.push_back(describe(tokens));
    });
    return answers;
  }

 private:
  // Joins words by spaces; offsets refer to the joined text.
  [[nodiscard]] Sentence tokenize(const Query& query) {
    TextEncoder& encoder = runner_.encoder();
    if (query.parts.empty()) {
      return {.text = query.text, .tokens = encoder.tokens(query.text, query.where)};
    }
    Sentence sentence;
    for (const std::string& word : query.parts) {
      if (!sentence.text.empty()) sentence.text += ' ';
      const auto begin = static_cast<int64_t>(sentence.text.size());
      sentence.text += word;
      const Tokens tokens = encoder.word(word, query.where);
      sentence.tokens.ids.insert(sentence.tokens.ids.end(), tokens.ids.begin(), tokens.ids.end());
      for (const TextRange& range : tokens.ranges) {
        sentence.tokens.ranges.push_back({.begin = begin + range.begin, .end = begin + range.end});
      }
    }
    return sentence;
  }

  // `scores`: [T, labels].
  [[nodiscard]] std::vector<TaggedToken> tag(const Sentence& sentence, const ModelText& row,
                                             const Tensor& scores) const {
    const CodePoints positions(sentence.text);
    const auto labels = static_cast<size_t>(scores.size(-1));
    const std::span<const float> all(scores.const_data_ptr<float>(), row.ids.size() * labels);
    std::vector<TaggedToken> tokens;
    for (size_t t = 0; t < row.ids.size(); ++t) {
      if (row.texts[t] == ModelText::kSpecial) continue;
      const size_t number = sentence.first_kept + static_cast<size_t>(row.tokens[t]);
      const TextRange range = sentence.tokens.ranges[number];
      const auto of_token = all.subspan(t * labels, labels);
      TaggedToken token = {.index = static_cast<int64_t>(t),
                           .id = row.ids[t],
                           .word = runner_.tokenizer().id_to_token(row.ids[t]),
                           .scores = {of_token.begin(), of_token.end()},
                           .start = positions.at(range.begin),
                           .end = positions.at(range.end)};
      const std::string part = sentence.text.substr(static_cast<size_t>(range.begin),
                                                    static_cast<size_t>(range.end - range.begin));
      token.is_subword = continues_word(sentence.text, range, token, positions);
      if (is_unknown(token.id)) {
        token.word = part;
        token.is_subword = false;
      }
      tokens.push_back(std::move(token));
    }
    return tokens;
  }

  // Follows the pipeline. If the vocabulary marks continuations, a token continues a word if its
  // text differs in length from the text it covers; otherwise, if no space precedes it.
  [[nodiscard]] bool continues_word(const std::string& text, const TextRange& range,
                                    const TaggedToken& token, const CodePoints& positions) const {
    if (marks_continuations_) {
      return CodePoints(token.word).size() != positions.at(range.end) - positions.at(range.begin);
    }
    const auto begin = static_cast<size_t>(range.begin);
    return begin > 0 && text[begin - 1] != ' ' && (begin == text.size() || text[begin] != ' ');
  }

  [[nodiscard]] bool is_unknown(int32_t id) const {
    const auto& unknown = runner_.tokenizer().special_tokens().unk;
    return unknown && unknown->id == id;
  }

  [[nodiscard]] Json describe(const std::vector<TaggedToken>& tokens) const {
    Json list = Json::array();
    for (const EntityGroup& entity :
         find_entities(tokens, aggregation_, runner_.config().id2label, ignored_)) {
      Json item;
      if (aggregation_ == Aggregation::kNone) {
        item = {{"entity", entity.label},
                {"score", entity.score},
                {"index", entity.tokens[0].index},
                {"word", entity.tokens[0].word}};
      } else {
        item = {{"entity_group", entity.label},
                {"score", entity.score},
                {"word", text_of(entity.tokens)}};
      }
      if (has_probabilities()) item["scores"] = scores_of(entity.tokens[0]);
      item["start"] = entity.start;
      item["end"] = entity.end;
      list.push_back(std::move(item));
    }
    return list;
  }

  [[nodiscard]] bool has_probabilities() const {
    return options_.probabilities != Probabilities::kUsual;
  }

  // {label: probability}, best first.
  [[nodiscard]] Json scores_of(const TaggedToken& token) const {
    std::vector<std::pair<float, size_t>> ranked;
    for (size_t i = 0; i < token.scores.size(); ++i) ranked.emplace_back(token.scores[i], i);
    std::ranges::stable_sort(ranked, std::greater(), &std::pair<float, size_t>::first);
    ranked.resize(options_.answers_of(ranked.size(), 1));
    Json scores = Json::object();
    for (const auto& [score, label] : ranked) scores[runner_.config().id2label[label]] = score;
    return scores;
  }

  // The tokens decoded, with the text itself where a token is not known.
  [[nodiscard]] std::string text_of(std::span<const TaggedToken> tokens) const {
    std::vector<int32_t> ids;
    for (const TaggedToken& token : tokens) ids.push_back(token.id);
    std::string text = runner_.tokenizer().decode(ids, false);
    size_t position = 0;
    for (const TaggedToken& token : tokens) {
      if (!is_unknown(token.id)) continue;
      const std::string& unknown = runner_.tokenizer().special_tokens().unk->text;
      position = text.find(unknown, position);
      if (position == std::string::npos) break;
      text.replace(position, unknown.size(), token.word);
      // WordPiece's decoder removes the space before these.
      const bool is_closing =
          !token.word.empty() && std::string(".?!,").find(token.word[0]) != std::string::npos;
      if (marks_continuations_ && is_closing && position > 0 && text[position - 1] == ' ') {
        text.erase(--position, 1);
      }
      position += token.word.size();
    }
    return text;
  }

  HeadRunner runner_;
  Aggregation aggregation_;
  std::vector<std::string> ignored_;
  PredictOptions options_;
  bool marks_continuations_;
};

}  // namespace

std::unique_ptr<Predictor> make_token_classification(const std::string& folder,
                                                     const PredictOptions& options) {
  return std::make_unique<TokenClassificationPredictor>(folder, options);
}

}  // namespace finetune
