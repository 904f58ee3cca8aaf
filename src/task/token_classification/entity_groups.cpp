// SPDX-License-Identifier: MIT
#include "task/token_classification/entity_groups.h"

#include <algorithm>

namespace finetune {
namespace {

size_t best_of(const std::vector<float>& scores) {
  return static_cast<size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

// Returns the common label of the tokens of one word.
EntityGroup entity_of_word(std::span<const TaggedToken> word, Aggregation aggregation,
                           const std::vector<std::string>& labels) {
  std::vector<float> scores = word[0].scores;
  if (aggregation == Aggregation::kMax) {
    const auto highest = [](const TaggedToken& token) {
      return token.scores[best_of(token.scores)];
    };
    const auto best = std::max_element(
        word.begin(), word.end(),
        [&](const TaggedToken& a, const TaggedToken& b) { return highest(a) < highest(b); });
    scores = best->scores;
  } else if (aggregation == Aggregation::kAverage) {
    for (size_t label = 0; label < scores.size(); ++label) {
      double sum = 0.0;
      for (const TaggedToken& token : word) sum += token.scores[label];
      scores[label] = static_cast<float>(sum / static_cast<double>(word.size()));
    }
  }
  const size_t best = best_of(scores);
  return {.label = labels[best],
          .score = scores[best],
          .start = word.front().start,
          .end = word.back().end,
          .tokens = word};
}

std::vector<EntityGroup> entities_of_words(std::span<const TaggedToken> tokens,
                                           Aggregation aggregation,
                                           const std::vector<std::string>& labels) {
  const bool by_token = aggregation == Aggregation::kNone || aggregation == Aggregation::kSimple;
  std::vector<EntityGroup> entities;
  for (size_t first = 0; first < tokens.size();) {
    size_t last = first + 1;
    while (!by_token && last < tokens.size() && tokens[last].is_subword) ++last;
    entities.push_back(entity_of_word(tokens.subspan(first, last - first), aggregation, labels));
    first = last;
  }
  return entities;
}

// The label without B- or I-; a label without prefix continues the previous entity.
struct TokenTag {
  explicit TokenTag(const std::string& label)
      : begins(label.starts_with("B-")),
        name(begins || label.starts_with("I-") ? label.substr(2) : label) {}
  bool begins;
  std::string name;
};

EntityGroup group_of(std::span<const TaggedToken> tokens, std::span<const EntityGroup> parts) {
  EntityGroup group = parts[0];
  // As the pipeline's split("-", 1): "ORG-x" is the group "x".
  const size_t dash = group.label.find('-');
  if (dash != std::string::npos) group.label = group.label.substr(dash + 1);
  double sum = 0.0;
  size_t count = 0;
  for (const EntityGroup& part : parts) {
    sum += part.score;
    count += part.tokens.size();
  }
  group.score = sum / static_cast<double>(parts.size());
  group.end = parts.back().end;
  group.tokens = tokens.subspan(static_cast<size_t>(group.tokens.data() - tokens.data()), count);
  return group;
}

std::vector<EntityGroup> grouped(std::span<const TaggedToken> tokens,
                                 const std::vector<EntityGroup>& entities) {
  std::vector<EntityGroup> groups;
  for (size_t first = 0; first < entities.size();) {
    size_t last = first + 1;
    for (; last < entities.size(); ++last) {
      const TokenTag tag(entities[last].label);
      if (tag.begins || tag.name != TokenTag(entities[last - 1].label).name) break;
    }
    groups.push_back(group_of(tokens, std::span(entities).subspan(first, last - first)));
    first = last;
  }
  return groups;
}

}  // namespace

std::vector<EntityGroup> find_entities(std::span<const TaggedToken> tokens, Aggregation aggregation,
                                       const std::vector<std::string>& labels,
                                       const std::vector<std::string>& ignored) {
  std::vector<EntityGroup> entities = entities_of_words(tokens, aggregation, labels);
  if (aggregation != Aggregation::kNone) entities = grouped(tokens, entities);
  std::erase_if(entities, [&](const EntityGroup& entity) {
    return std::find(ignored.begin(), ignored.end(), entity.label) != ignored.end();
  });
  return entities;
}

}  // namespace finetune
