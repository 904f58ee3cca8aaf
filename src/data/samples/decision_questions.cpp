// SPDX-License-Identifier: MIT
#include "finetune/data/decision_questions.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "data/columns/row.h"
#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/nearest.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, kQuestionTypes> kNames = {"noul", "choice", "score"};

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorKind::kData, what); }

[[noreturn]] void fail(const std::string& question, const std::string& what) {
  fail("question '" + question + "': " + what);
}

// Whether a value can be instructions or a criterion.
bool is_content(const Json& value) {
  return value.is_null() || value.is_string() || value.is_object() || value.is_array();
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// "A to Z" for choices and scores, whose labels are letters.
std::vector<std::string> letters() {
  std::vector<std::string> labels;
  for (char letter = 'A'; letter <= 'Z'; ++letter) labels.emplace_back(1, letter);
  return labels;
}

const char* example_of(QuestionType type) {
  switch (type) {
    case QuestionType::kNoul:
      return R"({"type": "noul", "instructions": "Is this message spam?"})";
    case QuestionType::kChoice:
      return R"({"type": "choice", "instructions": "What is the tone?", "criteria": {"calm": "A polite message", "angry": null}})";
    case QuestionType::kScore:
      return R"({"type": "score", "instructions": "How urgent is it?", "criteria": ["Can wait", "Today"]})";
  }
  return "";
}

class TypedQuestion {
 public:
  TypedQuestion(const std::string& name, const Json& question, const DecisionSettings& settings)
      : json_(question), settings_(settings) {
    result_.name = name;
  }

  [[nodiscard]] DecisionQuestion read() {
    if (!json_.is_object()) fail(result_.name, "is " + describe(json_) + "; " + wanted_type());
    result_.type = read_type();
    for (const auto& [key, value] : json_.items()) {
      if (key == "type" || key == "instructions" || key == "criteria") continue;
      refuse("has no key '" + key + "'");
    }
    if (const auto found = json_.find("instructions"); found != json_.end()) {
      if (!is_content(*found)) refuse("instructions are " + describe(*found));
      result_.instructions = found->dump();
    }
    read_criteria();
    take_labels();
    return std::move(result_);
  }

 private:
  [[nodiscard]] static std::string wanted_type() { return "type must be noul, choice or score"; }

  [[nodiscard]] QuestionType read_type() const {
    const auto found = json_.find("type");
    const std::string name =
        found != json_.end() && found->is_string() ? found->get<std::string>() : "";
    const auto known = std::ranges::find(kNames, name);
    if (known != kNames.end()) return static_cast<QuestionType>(known - kNames.begin());
    const std::string given =
        found == json_.end() ? "there is no type" : "type is " + describe(*found);
    fail(result_.name, given + "; " + wanted_type());
  }

  [[noreturn]] void refuse(const std::string& what) const {
    fail(result_.name, what + "; a " + std::string(name_of(result_.type)) + " question is like " +
                           example_of(result_.type));
  }

  void add(const std::string& option, const Json& description) {
    if (!is_content(description))
      refuse("the criterion of '" + option + "' is " + describe(description));
    result_.options.push_back(option);
    result_.descriptions.push_back(description.dump());
  }

  void read_criteria() {
    const auto found = json_.find("criteria");
    const Json criteria = found == json_.end() ? Json() : *found;
    switch (result_.type) {
      case QuestionType::kNoul:
        return read_noul(criteria);
      case QuestionType::kChoice:
        if (criteria.is_array() && !criteria.empty()) return read_list(criteria);
        if (!criteria.is_object() || criteria.empty()) refuse("needs criteria with its options");
        for (const auto& [option, description] : criteria.items()) add(option, description);
        return;
      case QuestionType::kScore:
        if (!criteria.is_array() || criteria.empty()) refuse("needs criteria with its levels");
        for (size_t level = 0; level < criteria.size(); ++level) {
          if (criteria[level].is_null()) refuse("level " + std::to_string(level) + " is null");
          add(std::to_string(level), criteria[level]);
        }
        return;
    }
  }

  void read_list(const Json& options) {
    for (const Json& option : options) {
      if (!option.is_string()) refuse("an option of criteria is " + describe(option));
      const auto& name = option.get_ref<const std::string&>();
      if (std::ranges::find(result_.options, name) != result_.options.end()) {
        refuse("has the option '" + name + "' twice");
      }
      add(name, Json());
    }
  }

  void read_noul(const Json& criteria) {
    if (!criteria.is_null() && !criteria.is_object()) refuse("criteria are " + describe(criteria));
    const Json given = criteria.is_object() ? criteria : Json::object();
    for (const auto& item : given.items()) {
      if (item.key() != "true" && item.key() != "false") {
        refuse("has no criterion '" + item.key() + "'");
      }
    }
    for (const std::string& option : settings_.noul_options) {
      add(option, given.value(option, Json()));
    }
  }

  void take_labels() {
    if (!settings_.has_labels) return;
    std::vector<std::string> labels = settings_.labels_of(result_.type);
    if (labels.size() < result_.options.size()) {
      fail(result_.name,
           format_text("has {} options, and this model reads at most {} of a {} question "
                       "(labels.{} in decision.json)",
                       result_.options.size(), labels.size(), name_of(result_.type),
                       name_of(result_.type)));
    }
    labels.resize(result_.options.size());
    result_.labels = std::move(labels);
  }

  const Json& json_;
  const DecisionSettings& settings_;
  DecisionQuestion result_;
};

std::vector<float> one_hot(size_t size, size_t index) {
  std::vector<float> target(size, 0.0F);
  target[index] = 1.0F;
  return target;
}

std::optional<size_t> find_option(const DecisionQuestion& question, std::string_view name) {
  const auto found = std::ranges::find(question.options, name);
  if (found == question.options.end()) return std::nullopt;
  return static_cast<size_t>(found - question.options.begin());
}

[[noreturn]] void fail_answer(const DecisionQuestion& question, const Json& answer) {
  std::string options;
  for (size_t i = 0; i < std::min<size_t>(question.options.size(), 10); ++i) {
    options += (i == 0 ? "'" : ", '") + question.options[i] + "'";
  }
  if (question.options.size() > 10) options += ", ...";
  const std::string near = answer.is_string()
                               ? did_you_mean(answer.get<std::string>(), question.options)
                               : std::string();
  fail(question.name,
       "the answer is " + describe(answer) + ", and its options are " + options + near);
}

std::vector<float> noul_target(const DecisionQuestion& question, double yes) {
  std::vector<float> target(2, static_cast<float>(1.0 - yes));
  target[*find_option(question, "true")] = static_cast<float>(yes);
  return target;
}

std::optional<bool> truth_of(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number() && (value.get<double>() == 0.0 || value.get<double>() == 1.0)) {
    return value.get<double>() == 1.0;
  }
  if (!value.is_string()) return std::nullopt;
  const std::string text = lower_case(value.get<std::string>());
  if (text == "true" || text == "1" || text == "yes") return true;
  if (text == "false" || text == "0" || text == "no") return false;
  return std::nullopt;
}

// The level of a score: its number, also as text, also between two levels; or its description.
std::optional<std::vector<float>> level_target(const DecisionQuestion& question,
                                               const Json& value) {
  const size_t levels = question.options.size();
  std::optional<double> number;
  if (value.is_number()) number = value.get<double>();
  if (value.is_string()) number = parse_number(value.get<std::string>());
  if (number) {
    if (!(*number >= 0.0 && *number <= static_cast<double>(levels - 1))) return std::nullopt;
    const auto low = static_cast<size_t>(*number);
    const double part = *number - static_cast<double>(low);
    std::vector<float> target = one_hot(levels, low);
    if (part == 0.0) return target;
    target[low] = static_cast<float>(1.0 - part);
    target[low + 1] = static_cast<float>(part);
    return target;
  }
  const auto found = std::ranges::find(question.descriptions, value.dump());
  if (!value.is_string() || found == question.descriptions.end()) return std::nullopt;
  if (std::ranges::count(question.descriptions, *found) > 1) {
    fail(question.name, "two levels are " + describe(value) + "; answer by their number");
  }
  return one_hot(levels, static_cast<size_t>(found - question.descriptions.begin()));
}

}  // namespace

std::string_view name_of(QuestionType type) { return kNames[static_cast<size_t>(type)]; }

DecisionSettings DecisionSettings::parse(std::string_view text, const std::string& where) {
  const Json json = parse_json(text, where);
  if (!json.is_object()) fail(where + ": is no object of JSON");
  const auto refuse = [&](const std::string& key, const Json& value, const char* wanted) {
    fail(where + ": " + key + " is " + describe(value) + "; it is " + wanted);
  };
  DecisionSettings settings;
  for (size_t type = 0; type < kQuestionTypes; ++type) {
    const std::string name(kNames[type]);
    const Json labels = json.value("labels", Json::object());
    if (!labels.is_object()) refuse("labels", labels, "an object of lists");
    if (const auto found = labels.find(name); found != labels.end()) {
      if (!found->is_array()) refuse("labels." + name, *found, "a list of texts");
      for (const Json& label : *found) {
        if (!label.is_string()) refuse("a label of labels." + name, label, "a text, in quotes");
        settings.labels[type].push_back(label.get<std::string>());
      }
    }
    const Json temperature = json.value("temperature", Json::object());
    if (!temperature.is_object()) refuse("temperature", temperature, "an object of numbers");
    if (const auto found = temperature.find(name); found != temperature.end()) {
      const double value = found->is_number() ? found->get<double>() : 0.0;
      if (!(value > 0.0 && std::isfinite(value))) {
        refuse("temperature." + name, *found, "a number above 0");
      }
      settings.temperature[type] = value;
    }
  }
  if (const auto found = json.find("noul_options"); found != json.end()) {
    if (*found != Json({"true", "false"}) && *found != Json({"false", "true"})) {
      refuse("noul_options", *found, R"(["true", "false"] in either order)");
    }
    settings.noul_options = found->get<std::vector<std::string>>();
  }
  if (const auto found = json.find("sanitize_control_tokens"); found != json.end()) {
    if (!found->is_boolean()) refuse("sanitize_control_tokens", *found, "true or false");
    settings.sanitize_control_tokens = found->get<bool>();
  }
  if (const auto found = json.find("adapter"); found != json.end() && !found->is_null()) {
    if (!found->is_string()) refuse("adapter", *found, "the name of a folder, or null");
    settings.adapter = found->get<std::string>();
  }
  return settings;
}

std::string DecisionSettings::text() const {
  Json of_labels = Json::object();
  Json of_temperature = Json::object();
  for (size_t type = 0; type < kQuestionTypes; ++type) {
    const std::string name(kNames[type]);
    if (!labels[type].empty()) of_labels[name] = labels[type];
    if (temperature[type] != 1.0) of_temperature[name] = temperature[type];
  }
  const Json json = {{"labels", std::move(of_labels)},
                     {"temperature", std::move(of_temperature)},
                     {"noul_options", noul_options},
                     {"sanitize_control_tokens", sanitize_control_tokens},
                     {"adapter", adapter ? Json(*adapter) : Json()}};
  return json.dump(2) + "\n";
}

std::vector<std::string> DecisionSettings::labels_of(QuestionType type) const {
  const std::vector<std::string>& own = labels[static_cast<size_t>(type)];
  if (!own.empty()) return own;
  if (type == QuestionType::kNoul) return {"Yes", "No"};
  return letters();
}

double DecisionSettings::temperature_of(QuestionType type, int64_t options) const {
  const char* size = options <= 2 ? ":2" : options <= 5 ? ":3-5" : options <= 10 ? ":6-10" : ":11+";
  const auto found = temperature_by_options.find(std::string(name_of(type)) + size);
  return found != temperature_by_options.end() ? found->second
                                               : temperature[static_cast<size_t>(type)];
}

DecisionQuestion DecisionQuestion::reordered(const std::vector<size_t>& order) const {
  DecisionQuestion other = *this;
  for (size_t i = 0; i < order.size(); ++i) {
    other.options[i] = options[order[i]];
    other.descriptions[i] = descriptions[order[i]];
  }
  return other;
}

Json DecisionQuestion::json() const {
  Json parsed = Json::array();
  for (const std::string& description : descriptions) parsed.push_back(Json::parse(description));
  return {
      {"name", name},       {"type", name_of(type)}, {"instructions", Json::parse(instructions)},
      {"options", options}, {"labels", labels},      {"descriptions", std::move(parsed)}};
}

void check_numbers(const Json& json) {
  if (json.is_number_float() && std::abs(json.get<double>()) >= 0x1p63) {
    fail("the number " + json.dump() +
         " has no exact digits here, which have 64 bits; write it as a text, in quotes");
  }
  if (!json.is_structured()) return;
  for (const auto& item : json) check_numbers(item);
}

std::vector<DecisionQuestion> parse_questions(const Json& questions,
                                              const DecisionSettings& settings) {
  if (!questions.is_object() || questions.empty()) {
    fail("questions are " +
         (questions.is_object() ? std::string("an empty object") : describe(questions)) +
         "; they are an object {name: question} with at least one");
  }
  check_numbers(questions);
  std::vector<DecisionQuestion> parsed;
  for (const auto& [name, question] : questions.items()) {
    parsed.push_back(TypedQuestion(name, question, settings).read());
  }
  return parsed;
}

std::vector<float> expected_target(const DecisionQuestion& question, const Json& expected) {
  switch (question.type) {
    case QuestionType::kNoul:
      if (const auto truth = truth_of(expected)) return noul_target(question, *truth ? 1.0 : 0.0);
      break;
    case QuestionType::kChoice:
      if (expected.is_null() || expected.is_array() || expected.is_object()) break;
      if (const auto index = find_option(question, text_of(expected))) {
        return one_hot(question.options.size(), *index);
      }
      break;
    case QuestionType::kScore:
      if (auto target = level_target(question, expected)) return *std::move(target);
      break;
  }
  fail_answer(question, expected);
}

std::vector<float> probable_target(const DecisionQuestion& question, const Json& probabilities) {
  if (!probabilities.is_object()) {
    fail(question.name, "probabilities are " + describe(probabilities) + "; they are an object");
  }
  std::vector<double> values(question.options.size(), 0.0);
  double sum = 0.0;
  for (const auto& [option, value] : probabilities.items()) {
    const auto index = find_option(question, option);
    if (!index) fail_answer(question, Json(option));
    if (!value.is_number() || !(value.get<double>() >= 0.0) ||
        !std::isfinite(value.get<double>())) {
      fail(question.name, "the probability of '" + option + "' is " + describe(value));
    }
    values[*index] = value.get<double>();
    sum += values[*index];
  }
  // 26 probabilities with four digits may be off by this much.
  if (std::abs(sum - 1.0) > 2e-3) {
    fail(question.name, "the probabilities sum to " + format_double(sum) + " and not to 1");
  }
  std::vector<float> target;
  for (const double value : values) target.push_back(static_cast<float>(value / sum));
  return target;
}

std::vector<float> answered_target(const DecisionQuestion& question, const Json& answer) {
  if (!answer.is_object())
    fail(question.name, "the answer is " + describe(answer) + "; it is an object");
  if (const auto found = answer.find("probabilities"); found != answer.end()) {
    return probable_target(question, *found);
  }
  const std::string key(name_of(question.type));
  const auto found = answer.find(key);
  if (found == answer.end()) fail(question.name, "the answer has neither probabilities nor " + key);
  if (question.type != QuestionType::kNoul) return expected_target(question, *found);
  if (found->is_number()) {
    const double yes = found->get<double>();
    if (yes >= 0.0 && yes <= 1.0) return noul_target(question, yes);
    fail(question.name, "the probability of true is " + describe(*found));
  }
  return expected_target(question, *found);
}

Json decision_answer(const DecisionQuestion& question, const std::vector<double>& probabilities) {
  const auto count = static_cast<double>(probabilities.size());
  const auto best =
      static_cast<size_t>(std::ranges::max_element(probabilities) - probabilities.begin());
  if (question.type == QuestionType::kNoul) {
    return {{"type", "noul"}, {"noul", probabilities[*find_option(question, "true")]}};
  }
  Json by_option = Json::object();
  for (size_t i = 0; i < probabilities.size(); ++i)
    by_option[question.options[i]] = probabilities[i];
  if (question.type == QuestionType::kChoice) {
    const double confidence =
        probabilities.size() == 1
            ? 1.0
            : std::max(0.0, (probabilities[best] - 1 / count) / (1 - 1 / count));
    return {{"type", "choice"},
            {"choice", question.options[best]},
            {"confidence", confidence},
            {"probabilities", std::move(by_option)}};
  }
  double score = 0.0, distance = 0.0, uniform = 0.0;
  Json legend = Json::object();
  for (size_t level = 0; level < probabilities.size(); ++level) {
    const auto number = static_cast<double>(level);
    score += number * probabilities[level];
    distance += probabilities[level] * std::abs(number - static_cast<double>(best));
    uniform += std::abs(number - (count - 1) / 2) / count;
    legend[question.options[level]] = Json::parse(question.descriptions[level]);
  }
  const double confidence = probabilities.size() == 1 ? 1.0 : std::max(0.0, 1 - distance / uniform);
  return {{"type", "score"},
          {"score", score},
          {"legend", std::move(legend)},
          {"confidence", confidence},
          {"probabilities", std::move(by_option)}};
}

}  // namespace finetune
