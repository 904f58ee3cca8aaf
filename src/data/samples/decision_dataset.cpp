// SPDX-License-Identifier: MIT
#include "finetune/data/decision_dataset.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "data/columns/json_row.h"
#include "data/samples/sample_building.h"
#include "finetune/base/error.h"
#include "finetune/base/hash.h"
#include "finetune/base/json.h"
#include "finetune/base/text.h"
#include "finetune/data/batch.h"
#include "finetune/data/permutation.h"

namespace finetune {
namespace {

using Json = Row::Json;
using Order = std::vector<size_t>;

// Why a prompt is no sample, stored as its class.
enum DecisionFlag : int32_t { kTooLong = 1, kUnanswered = 2, kDecisionFlags = 4 };

// The form of a group is its type, with these added.
constexpr int32_t kKnown = 4;       // it has probabilities
constexpr int32_t kWeighted = 8;    // it has a weight
constexpr int32_t kMarked = 16;     // it has a mark for each option
constexpr int32_t kOneOption = 32;  // for each option

// Returns a member that is not null.
const Json* member(const Json& object, const std::string& name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// Some orders of `options` options, the given one first: all of them if they are few, else drawn.
std::vector<Order> orders_of(size_t options, int64_t most, uint64_t seed) {
  Order order(options);
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<Order> orders = {order};
  int64_t all = 1;
  for (size_t i = 2; i <= options && all <= most; ++i) all *= static_cast<int64_t>(i);
  if (all <= most) {
    while (std::ranges::next_permutation(order).found) orders.push_back(order);
    return orders;
  }
  for (int64_t number = 1; number < most; ++number) {
    const Permutation drawn(static_cast<int64_t>(options), seed, number);
    for (size_t i = 0; i < options; ++i) {
      order[i] = static_cast<size_t>(drawn[static_cast<int64_t>(i)]);
    }
    if (std::ranges::find(orders, order) == orders.end()) orders.push_back(order);
  }
  return orders;
}

// Lists of options in text: JSON, or separated by bars.
std::vector<std::string> options_in(const Row& row, const std::string& column) {
  const Json& value = row.at(column);
  if (value.is_array()) return row.texts(column);
  const std::string& text = row.text(column);
  std::vector<std::string> options;
  if (text.starts_with('[')) {
    for (const Json& option : parse_json(text, row.position() + ": column '" + column + "'")) {
      options.push_back(option.is_string() ? option.get<std::string>() : option.dump());
    }
    return options;
  }
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('|', begin), text.size());
    std::string option(trimmed(std::string_view(text).substr(begin, end - begin)));
    if (option.empty()) row.fail("column '" + column + "' has an empty option: '" + text + "'");
    options.push_back(std::move(option));
    begin = end + 1;
  }
  return options;
}

constexpr const char* kForms =
    "a row is {\"state\", \"questions\", \"expected\"}, or has columns text, question, options "
    "and answer";

// What a row asks and answers, in the form of requests.
struct DecisionRow {
  Json state, questions;
  Json expected = Json::object(), gold = Json::object(), answers = Json::object();
  Json weight;
};

DecisionRow read_columns(const Row& row) {
  DecisionRow result;
  const auto text = first_column(row, {"state", "text", "sentence"});
  const auto asked = first_column(row, {"question", "instructions"});
  if (!text || !asked) {
    row.refuse("the row has " + column_names(row.columns()) + " and no questions; " + kForms);
  }
  result.state = row.at(*text);
  Json question = {{"instructions", row.at(*asked)}};
  const auto options = first_column(row, {"options", "choices"});
  // An empty cell of a text file counts as absent.
  const auto has = [&](const std::optional<std::string>& column) {
    return column && row.has(*column) && row.at(*column) != Json("");
  };
  const bool has_options = has(options);
  const auto type = first_column(row, {"type"});
  question["type"] = has(type) ? row.at(*type) : Json(has_options ? "choice" : "noul");
  if (has_options) {
    const std::vector<std::string> list = options_in(row, *options);
    Json criteria;
    if (question["type"] == "score") {
      criteria = list;
    } else {
      criteria = Json::object();
      for (const std::string& option : list) {
        if (criteria.contains(option)) row.fail("has the option '" + option + "' twice");
        criteria[option] = nullptr;
      }
    }
    question["criteria"] = std::move(criteria);
  }
  result.questions = {{"answer", std::move(question)}};
  const auto answer = first_column(row, {"answer", "label"});
  if (has(answer)) result.expected["answer"] = row.at(*answer);
  const auto weight = first_column(row, {"weight"});
  if (has(weight)) {
    const Json& given = row.at(*weight);
    const auto number = given.is_string() ? parse_number(given.get<std::string>()) : std::nullopt;
    result.weight = number ? Json(*number) : given;
  }
  return result;
}

DecisionRow read_row(const Row& row) {
  if (!row.find("questions")) return read_columns(row);
  if (!row.find("state")) row.fail(std::string("has questions and no state; ") + kForms);
  DecisionRow result;
  result.state = row.at("state");
  result.questions = row.list("questions");
  for (const auto& [name, answers] :
       {std::pair("expected", &result.expected), std::pair("gold", &result.gold),
        std::pair("answers", &result.answers)}) {
    if (!row.has(name)) continue;
    *answers = row.list(name);
    if (!answers->is_object()) {
      row.fail(std::string(name) + " is " + describe(*answers) + "; it is an object of answers");
    }
    for (const auto& [question, answer] : answers->items()) {
      if (result.questions.is_object() && result.questions.contains(question)) continue;
      row.fail(std::string(name) + " answers '" + question + "', and there is no such question");
    }
  }
  if (row.has("weight")) result.weight = row.at("weight");
  const Json weights = result.weight.is_object() ? result.weight : Json::object();
  for (const auto& item : weights.items()) {
    if (result.questions.is_object() && result.questions.contains(item.key())) continue;
    row.fail("weight names '" + item.key() + "', and there is no such question");
  }
  return result;
}

float weight_of(const Json& weight, const std::string& question, const Row& row) {
  const Json* number = weight.is_object() ? member(weight, question) : &weight;
  if (number == nullptr || number->is_null()) return 1.0F;
  const double value = number->is_number() ? number->get<double>() : -1.0;
  if (!(value > 0.0 && value <= 1e6)) {
    row.fail("the weight of question '" + question + "' is " + describe(*number) +
             "; it is a number above 0");
  }
  return static_cast<float>(value);
}

class DecisionEncoder {
 public:
  explicit DecisionEncoder(const DecisionOptions& options) : options_(options) {
    options_.progress = {};
  }

  [[nodiscard]] TokenContent encode(const RowBlock& block) const {
    TokenContent content;
    content.choices = options_.orders;
    for (const RowBlock::Row& position : block.rows) add(content, Row(block, position));
    return content;
  }

 private:
  struct Asked {
    DecisionQuestion question;
    DecisionGroup group;
    std::vector<Order> orders;
  };

  void add(TokenContent& content, const Row& row) const {
    try {
      const DecisionRow given = read_row(row);
      const std::vector<Asked> asked = questions_of(given, row);
      if (options_.prompter->asks_together()) return add_sample(content, row, given.state, asked);
      for (const Asked& one : asked) add_sample(content, row, given.state, std::span(&one, 1));
    } catch (const Error& error) {
      const std::string what = error.what();
      if (error.kind() != ErrorKind::kData || what.starts_with(row.position())) throw;
      row.fail(what);
    }
  }

  [[nodiscard]] std::vector<Asked> questions_of(const DecisionRow& given, const Row& row) const {
    std::vector<Asked> asked;
    for (DecisionQuestion& question : parse_questions(given.questions, options_.settings)) {
      Asked one{.question = std::move(question), .group = {}, .orders = {}};
      options_.prompter->check(one.question);
      const std::string& name = one.question.name;
      one.group.type = one.question.type;
      one.group.options = std::ssize(one.question.options);
      one.group.weight = weight_of(given.weight, name, row);
      one.group.target = target_of(given, one.question);
      if (one.group.type == QuestionType::kChoice) {
        const std::string content = given.state.dump() + one.question.json().dump();
        one.orders = orders_of(one.question.options.size(), options_.orders,
                               hash_number(content.data(), content.size()));
      }
      asked.push_back(std::move(one));
    }
    return asked;
  }

  [[nodiscard]] static std::vector<float> target_of(const DecisionRow& row,
                                                    const DecisionQuestion& question) {
    if (const Json* gold = member(row.gold, question.name)) {
      const Json* of = gold->is_object() ? member(*gold, "probabilities") : nullptr;
      return probable_target(question, of != nullptr ? *of : *gold);
    }
    if (const Json* answer = member(row.answers, question.name)) {
      return answered_target(question, *answer);
    }
    if (const Json* expected = member(row.expected, question.name)) {
      return expected_target(question, *expected);
    }
    return {};
  }

  void add_sample(TokenContent& content, const Row& row, const Json& state,
                  std::span<const Asked> asked) const {
    int32_t flags = 0;
    const bool is_known =
        std::ranges::any_of(asked, [](const Asked& one) { return !one.group.target.empty(); });
    if (!is_known && options_.labels_required) flags |= kUnanswered;
    const size_t first = content.offsets.size();
    for (int64_t number = 0; flags == 0 && number < options_.orders; ++number) {
      if (!add_order(content, row, state, asked, number, flags)) break;
      const int64_t length = content.offsets.back() - content.offsets[content.offsets.size() - 2];
      if (length > options_.max_seq_length) flags |= kTooLong;
    }
    if (flags != 0 && content.offsets.size() > first) {
      const int64_t begin = content.offsets[first - 1];
      content.offsets.resize(first);
      content.ids.resize(static_cast<size_t>(begin));
      content.labels.resize(static_cast<size_t>(begin));
    }
    while (content.offsets.size() < first + static_cast<size_t>(options_.orders)) {
      content.offsets.push_back(std::ssize(content.ids));
    }
    content.classes.push_back(flags);
  }

  // Adds the prompt with the options in order `number`. Returns false if there is no such order, or
  // no such prompt, which `flags` then says.
  [[nodiscard]] bool add_order(TokenContent& content, const Row& row, const Json& state,
                               std::span<const Asked> asked, int64_t number, int32_t& flags) const {
    std::vector<DecisionQuestion> questions;
    std::vector<DecisionGroup> groups;
    bool is_new = number == 0;
    for (const Asked& one : asked) {
      DecisionGroup group = one.group;
      DecisionQuestion question = one.question;
      if (!one.orders.empty() && number > 0) {
        const Order& order = one.orders[static_cast<size_t>(number) % one.orders.size()];
        is_new = is_new || number < std::ssize(one.orders);
        question = one.question.reordered(order);
        for (size_t i = 0; i < group.target.size(); ++i) {
          group.target[i] = one.group.target[order[i]];
        }
      }
      questions.push_back(std::move(question));
      groups.push_back(std::move(group));
    }
    if (!is_new) return false;
    const DecisionPrompt prompt = options_.prompter->prompt(state, questions);
    if (!prompt.unreadable.empty()) {
      flags |= kTooLong;
      return false;
    }
    for (size_t i = 0; i < groups.size(); ++i) groups[i].marks = prompt.marks[i];
    for (const int32_t id : prompt.ids) check_token(id, row.position(), options_.vocabulary_limit);
    content.ids.insert(content.ids.end(), prompt.ids.begin(), prompt.ids.end());
    std::vector<int32_t> labels(prompt.ids.size(), static_cast<int32_t>(kIgnoredLabel));
    if (!write_groups(groups, labels)) {
      row.fail("the prompt has fewer tokens than its questions have options");
    }
    content.labels.insert(content.labels.end(), labels.begin(), labels.end());
    content.offsets.push_back(std::ssize(content.ids));
    return true;
  }

  DecisionOptions options_;
};

}  // namespace

bool write_groups(const std::vector<DecisionGroup>& groups, std::span<int32_t> labels) {
  std::vector<int32_t> numbers = {static_cast<int32_t>(groups.size())};
  for (const DecisionGroup& group : groups) {
    const bool is_known = !group.target.empty();
    const bool has_weight = group.weight != 1.0F;
    const bool is_marked = group.marks.size() > 1;
    FT_CHECK(!is_marked || std::ssize(group.marks) == group.options, "a mark for each option");
    numbers.push_back(static_cast<int32_t>(group.type) + (is_known ? kKnown : 0) +
                      (has_weight ? kWeighted : 0) + (is_marked ? kMarked : 0) +
                      static_cast<int32_t>(group.options) * kOneOption);
    for (const int64_t mark : group.marks) numbers.push_back(static_cast<int32_t>(mark));
    if (has_weight) numbers.push_back(std::bit_cast<int32_t>(group.weight));
    for (const float value : group.target) numbers.push_back(std::bit_cast<int32_t>(value));
  }
  if (numbers.size() > labels.size()) return false;
  std::ranges::copy(numbers, labels.begin());
  return true;
}

std::vector<DecisionGroup> read_groups(std::span<const int64_t> labels) {
  size_t at = 0;
  const auto next = [&] {
    FT_CHECK(at < labels.size(), "the questions of a row are in its labels");
    return static_cast<int32_t>(labels[at++]);
  };
  std::vector<DecisionGroup> groups(static_cast<size_t>(next()));
  for (DecisionGroup& group : groups) {
    const int32_t form = next();
    group.type = static_cast<QuestionType>(form % kKnown);
    group.options = form / kOneOption;
    group.marks.resize(form % kOneOption >= kMarked ? static_cast<size_t>(group.options) : 1);
    for (int64_t& mark : group.marks) mark = next();
    if (form % kMarked >= kWeighted) group.weight = std::bit_cast<float>(next());
    if (form % kWeighted < kKnown) continue;
    for (int64_t i = 0; i < group.options; ++i) {
      group.target.push_back(std::bit_cast<float>(next()));
    }
  }
  return groups;
}

DecisionDataset::DecisionDataset(std::shared_ptr<const SequenceDataset> rows, uint64_t seed)
    : KeptSamples(rows), orders_(rows->choices()), seed_(seed) {
  for (int64_t i = 0; i < rows->size(); ++i) {
    const Example row = rows->get(i);
    const int64_t flags = row.label.value_or(0);
    counts_.too_long += (flags & kTooLong) != 0 ? 1 : 0;
    counts_.unanswered += (flags & kUnanswered) != 0 ? 1 : 0;
    if (flags != 0) continue;
    keep(i);
    counts_.tokens += std::ssize(row.labels);
  }
  counts_.samples = size();
}

Example DecisionDataset::get_in_epoch(int64_t index, int64_t epoch) const {
  if (orders_ == 1 || epoch < 0) return get(index);
  int64_t there = 1;
  while (there < orders_ && length(index, there) > 0) ++there;
  const Permutation turns(there, seed_of_sample(seed_, index), epoch / there);
  return get(index, turns[epoch % there]);
}

Json decision_request(const Json& row, const std::string& where) {
  const DecisionRow given = read_row(Row(row, where, /*typed=*/true));
  return {{"state", given.state}, {"questions", given.questions}};
}

std::shared_ptr<const DecisionDataset> build_decision_dataset(const std::vector<std::string>& files,
                                                              const Tokenizer& tokenizer,
                                                              const DecisionOptions& options,
                                                              uint64_t seed) {
  FT_CHECK(options.prompter != nullptr && options.orders >= 1, "decisions need a prompter");
  const auto encoder = std::make_shared<const DecisionEncoder>(options);
  Json key = cache_options(options, "decisions");
  key["prompter"] = options.identity;
  key["orders"] = options.orders;
  auto data = std::make_shared<const DecisionDataset>(
      build_samples({.files = files,
                     .tokenizer = tokenizer,
                     .cache_options = std::move(key),
                     .limits = {.labels = 0, .classes = kDecisionFlags},
                     .encode = [encoder](const RowBlock& block) { return encoder->encode(block); }},
                    options),
      seed);
  if (data->size() == 0) {
    throw Error(
        ErrorKind::kConfig,
        format_text("{}: no question is left: {} do not fit in max_seq_length {}, {} have no "
                    "answer",
                    options.key, data->counts().too_long, options.max_seq_length,
                    data->counts().unanswered));
  }
  return data;
}

}  // namespace finetune
