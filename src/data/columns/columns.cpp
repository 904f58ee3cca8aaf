// SPDX-License-Identifier: MIT
#include "finetune/data/columns.h"

#include <algorithm>
#include <array>
#include <utility>

#include "data/columns/json_row.h"
#include "data/columns/row_columns.h"
#include "data/readers/file_format.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/text.h"
#include "finetune/chat/conversation.h"

namespace finetune {
namespace {

using Names = std::vector<std::string>;

// Names of text pairs, in the order in which a model reads them.
const std::array<std::pair<const char*, const char*>, 4> kPairs = {{{"sentence1", "sentence2"},
                                                                    {"premise", "hypothesis"},
                                                                    {"question1", "question2"},
                                                                    {"text1", "text2"}}};
const Names kTexts = {"text",   "sentence", "sentence1", "content",
                      "review", "body",     "document",  "comment"};
const Names kMoreLabels = {"target",    "targets", "class", "category", "gold_label",
                           "sentiment", "intent",  "stars", "rating",   "score"};

constexpr std::string_view kPreference = "preference data";

bool is_row_number(std::string name) {
  name = plain_column_name(name);
  return name == "id" || name == "idx" || name == "guid" || name == "index" ||
         name.ends_with("_id");
}

bool holds_list(const Row& row, const std::string& column) {
  const Row::Json& value = row.at(column);
  if (value.is_array()) return true;
  return !row.typed() && value.is_string() && value.get_ref<const std::string&>().starts_with('[');
}

class ColumnFinder {
 public:
  ColumnFinder(const Row& row, const ColumnSearch& search) : row_(row), search_(search) {}

  [[nodiscard]] FoundColumns find() {
    switch (search_.task) {
      case RowTask::kText:
        find_text();
        break;
      case RowTask::kChat:
        find_chat();
        break;
      case RowTask::kSequenceClassification:
        find_classification();
        break;
      case RowTask::kTokenClassification:
        find_words();
        break;
      case RowTask::kMultipleChoice:
        find_choice();
        break;
      case RowTask::kQuestionAnswering:
        find_question();
        break;
      case RowTask::kEmbedding:
        search_.labels == LabelUse::kUnused ? find_text() : find_texts();
        break;
      case RowTask::kDecision:
        break;
    }
    report();
    return std::move(found_);
  }

  [[nodiscard]] std::string find_class() {
    find_label({"label", "labels", "label_ids"}, kMoreLabels, true);
    return *found_.names.label_column;
  }

 private:
  enum Source { kSet, kTrained, kGuessed };
  using Column = std::optional<std::string>;
  struct Note {
    Source source;
    const char* key;
    std::string column;
  };

  // --- Shared by all tasks ---

  void note(Source source, const char* key, const std::string& column) {
    notes_.push_back({.source = source, .key = key, .column = column});
  }

  void report() {
    const std::array<std::string, 3> reasons = {" (set)", " (as the model was trained)",
                                                " (guessed from " + row_.position() + ")"};
    // The label is searched first but reported last.
    std::stable_partition(notes_.begin(), notes_.end(), [](const Note& note) {
      return std::string_view(note.key) != "label_column";
    });
    for (const Source source : {kSet, kTrained, kGuessed}) {
      std::string list;
      for (const Note& note : notes_) {
        if (note.source != source) continue;
        list += (list.empty() ? "" : ", ") + std::string(note.key) + ": '" + note.column + "'";
      }
      if (list.empty()) continue;
      found_.report += (found_.report.empty() ? "" : "; ") + list + reasons.at(source);
    }
  }

  void take(Column ColumnNames::*member, const char* key, const std::string& column,
            Source source) {
    found_.names.*member = column;
    note(source, key, column);
  }

  [[nodiscard]] std::string key(const char* name) const { return search_.key_prefix + name; }

  // Returns the row's spelling of a required column.
  [[nodiscard]] std::string present(const std::string& name) const {
    static_cast<void>(row_.at(name));
    return *row_.find(name);
  }

  // Selects the named column, else the column of the training if the row has it.
  bool take_known(Column ColumnNames::*member, const char* name) {
    if (const Column& named = search_.named.*member) {
      take(member, name, present(*named), kSet);
      return true;
    }
    if (const Column& trained = search_.trained.*member) {
      if (const Column there = row_.find(*trained)) {
        take(member, name, *there, kTrained);
        return true;
      }
    }
    return false;
  }

  // Without a header line the columns are named column_1, column_2 and so on.
  [[nodiscard]] bool has_header() const { return !row_.typed() && !row_.find("column_1"); }
  [[nodiscard]] std::string header_false() const {
    return key("header") + (search_.key_prefix.empty() ? ": false" : " false");
  }

  [[noreturn]] void fail_untrained(const std::string& column, const char* name) const {
    const bool lacks_header = column.starts_with("column_") && has_header();
    row_.refuse(format_text(
        "the model was trained with the column '{}', which is not there; the row has {}; {}name "
        "the one to use with {}",
        column, column_names(row_.columns()),
        lacks_header ? "set " + header_false() + " if the first line is a row, or " : "",
        key(name)));
  }

  // Replaces the column of the training by the only other column that can contain the text.
  void replace_trained(const Names& candidates) {
    const std::string& trained = *search_.trained.text_column;
    if (candidates.size() != 1) fail_untrained(trained, "text_column");
    found_.warning = row_.position() + ": the model was trained with the column '" + trained +
                     "', which is missing; using '" + candidates.front() +
                     "', the only other text column";
    take(&ColumnNames::text_column, "text_column", candidates.front(), kGuessed);
  }

  // Returns the columns that may be texts: not the label, row numbers or the named second text.
  [[nodiscard]] Names others() const {
    Names names;
    const Column& label = found_.names.label_column;
    for (const std::string& name : row_.names()) {
      if (label && name == *label) continue;
      if (is_row_number(name) || name == found_.names.text_pair_column) continue;
      names.push_back(name);
    }
    return names;
  }

  [[nodiscard]] Names texts_of(const Names& names) const {
    Names texts;
    for (const std::string& name : names) {
      if (holds_text(row_, name)) texts.push_back(name);
    }
    return texts;
  }

  [[nodiscard]] bool has_columns(const Names& names) const {
    return std::ranges::all_of(
        names, [&](const std::string& name) { return row_.find(name).has_value(); });
  }

  // Returns what rows of chat, instruction or preference data are; empty for others.
  [[nodiscard]] std::string format_of_trainers() const {
    if (has_columns({"chosen", "rejected"}))
      return std::string(kPreference) + " (chosen, rejected)";
    if (has_columns({"messages"})) return "conversations (messages)";
    if (has_columns({"conversations"})) return "conversations (ShareGPT's conversations)";
    if (has_columns({"instruction", "output"})) return "instructions (Alpaca's columns)";
    if (has_columns({"prompt", "completion"})) return "prompts with completions";
    return "";
  }

  [[noreturn]] void fail_texts(bool several) const {
    const std::string format = format_of_trainers();
    if (search_.task == RowTask::kText && format.starts_with(kPreference)) {
      row_.refuse(
          "the rows are " + format +
          ", which task: dpo, orpo and kto learn from; a text to complete or to learn as it is "
          "has a column 'text', or the one that " +
          key("text_column") + " names");
    }
    if (search_.task == RowTask::kText && !format.empty()) {
      row_.refuse("the rows are " + format + ": set task: sft, which reads them, or set " +
                  key("text_column") + " to the column of a text to learn as it is");
    }
    const bool pairs = search_.task == RowTask::kSequenceClassification;
    row_.refuse(std::string(several ? "several columns hold text" : "no column holds text") +
                "; the row has " + column_names(row_.columns()) + "; set " + key("text_column") +
                (pairs ? " (and " + key("text_pair_column") + ")" : ""));
  }

  void find_label(const Names& usual, const Names& more, bool must_be_found) {
    Column guess = first_column(row_, usual);
    if (!guess) guess = first_column(row_, more);
    if (search_.labels == LabelUse::kUnused) {
      const Column& trained = search_.trained.label_column;
      found_.names.label_column = trained && row_.find(*trained) ? row_.find(*trained) : guess;
      return;
    }
    const Column& named = search_.named.label_column;
    if (named && search_.labels == LabelUse::kOptional && !row_.find(*named)) return;
    if (take_known(&ColumnNames::label_column, "label_column")) return;
    if (guess) {
      take(&ColumnNames::label_column, "label_column", *guess, kGuessed);
    } else if (search_.labels == LabelUse::kRequired && must_be_found) {
      row_.refuse(
          "there is no column 'label', 'labels' or 'label_ids', nor 'target', 'class' or "
          "another usual name; the row has " +
          column_names(row_.columns()) + "; set " + key("label_column") +
          (has_header() ? ", or " + header_false() + " if the first line is a row" : ""));
    }
  }

  // --- Chat data ---

  // Each row names its own shape by its columns; the first one shows that there is one.
  void find_chat() {
    if (!search_.named.empty()) {
      row_.refuse("sft finds chat data by the names of its columns; leave the keys " +
                  key("text_column") + " and the like out, and rename the columns");
    }
    const std::string columns = chat::conversation_columns(row_.columns());
    if (columns.empty()) {
      try {
        static_cast<void>(chat::read_conversation(row_.columns()));
      } catch (const Error& error) {
        row_.refuse(error.what());
      }
    }
    found_.report = "chat data: " + columns + " (guessed from " + row_.position() + ")";
  }

  // --- Language modelling and pretraining ---

  void find_text() {
    if (take_known(&ColumnNames::text_column, "text_column")) return;
    if (search_.trained.text_column) return replace_trained(texts_of(others()));
    take(&ColumnNames::text_column, "text_column", guess_text(), kGuessed);
  }

  [[nodiscard]] std::string guess_text() const {
    if (row_.columns().contains("text")) return "text";
    // One text of several, such as the prompt of a conversation, is not what is to be learned.
    if (!format_of_trainers().empty()) fail_texts(true);
    Names texts;  // numbers of CSV count only if there is no text
    for (const auto& [name, value] : row_.columns().items()) {
      if (value.is_string()) texts.push_back(name);
    }
    if (texts.size() == 1) return texts.front();
    if (texts.empty()) fail_texts(false);
    const Names likely = texts_of(others());
    if (likely.size() == 1) return likely.front();
    const Column usual = first_column(row_, kTexts);
    if (!usual || !row_.at(*usual).is_string()) fail_texts(true);
    return *usual;
  }

  // --- Sequence classification ---

  void find_classification() {
    find_label({"label", "labels", "label_ids"}, kMoreLabels, true);
    if (const Column& pair = search_.named.text_pair_column) {
      take(&ColumnNames::text_pair_column, "text_pair_column", present(*pair), kSet);
    }
    if (search_.named.text_column) {
      (void)take_known(&ColumnNames::text_column, "text_column");
      take_trained_pair();
    } else if (search_.trained.text_column) {
      take_trained_texts();
    } else {
      guess_texts();
    }
    static_cast<void>(row_.text(*found_.names.text_column));
    if (found_.names.text_pair_column) static_cast<void>(row_.text(*found_.names.text_pair_column));
    if (search_.labels == LabelUse::kUnused) found_.names.label_column.reset();
  }

  // A single named text has no second one, unless the training had a second one that is present.
  void take_trained_pair() {
    const Column& trained = search_.trained.text_pair_column;
    if (found_.names.text_pair_column || !trained) return;
    const Column there = row_.find(*trained);
    if (!there || there == found_.names.text_column) return;
    take(&ColumnNames::text_pair_column, "text_pair_column", *there, kTrained);
  }

  void take_trained_texts() {
    const Column& trained_pair = search_.trained.text_pair_column;
    const bool found = take_known(&ColumnNames::text_column, "text_column");
    if (!found && trained_pair) fail_untrained(*search_.trained.text_column, "text_column");
    if (!found) return replace_trained(texts_of(others()));
    if (!trained_pair || found_.names.text_pair_column) return;
    if (!take_known(&ColumnNames::text_pair_column, "text_pair_column")) {
      fail_untrained(*trained_pair, "text_pair_column");
    }
  }

  void guess_texts() {
    const bool has_pair = found_.names.text_pair_column.has_value();
    const auto take_texts = [&](const std::string& first, const Column& second) {
      take(&ColumnNames::text_column, "text_column", first, kGuessed);
      if (second && !has_pair) {
        take(&ColumnNames::text_pair_column, "text_pair_column", *second, kGuessed);
      }
    };
    for (const auto& [first, second] : kPairs) {
      const Column one = row_.find(first);
      const Column two = row_.find(second);
      if (has_pair || !one || !two) continue;
      if (first != std::string("sentence1") && !(holds_text(row_, *one) && holds_text(row_, *two)))
        continue;
      return take_texts(*one, two);
    }
    const Names names = others();
    const Names texts = texts_of(names);
    if (names.size() >= 2 && holds_text(row_, names[0]) && holds_text(row_, names[1])) {
      return take_texts(names[0], names[1]);
    }
    if (texts.size() == 1) return take_texts(texts.front(), std::nullopt);
    if (names.size() == 1 && !row_.typed()) return take_texts(names.front(), std::nullopt);
    const Column usual = first_column(row_, kTexts);
    if (!usual || std::ranges::find(texts, *usual) == texts.end()) fail_texts(!texts.empty());
    take_texts(*usual, std::nullopt);
  }

  // --- Token classification ---

  void find_words() {
    const Names names = row_.names();
    if (names.empty()) row_.refuse("has no columns");
    if (!take_known(&ColumnNames::text_column, "text_column")) {
      if (search_.trained.text_column) {
        replace_trained(words_or_texts(names));
      } else {
        take(&ColumnNames::text_column, "text_column", guess_words(names), kGuessed);
      }
    }
    const std::string& words = *found_.names.text_column;
    if (search_.labels == LabelUse::kUnused) return;
    find_label({"ner_tags", "labels", "tags"}, {"label"}, false);
    if (found_.names.label_column || search_.named.label_column) return;
    Column guess;
    if (names.size() > 1 && names[1] != words) guess = names[1];
    for (const std::string& name : names) {
      if (!guess && name != words && holds_list(row_, name)) guess = name;
    }
    if (guess) {
      take(&ColumnNames::label_column, "label_column", *guess, kGuessed);
    } else if (search_.labels == LabelUse::kRequired) {
      row_.refuse("there is no column of labels; the row has " + column_names(row_.columns()) +
                  "; set " + key("label_column"));
    }
  }

  [[nodiscard]] Names words_or_texts(const Names& names) const {
    for (const char* usual : {"tokens", "words"}) {
      if (const Column there = row_.find(usual)) return {*there};
    }
    Names likely;
    for (const std::string& name : names) {
      const bool is_words = search_.labels == LabelUse::kUnused
                                ? holds_text(row_, name) && !is_row_number(name)
                                : holds_list(row_, name);
      if (is_words) likely.push_back(name);
    }
    return likely;
  }

  [[nodiscard]] std::string guess_words(const Names& names) const {
    if (const Column usual = first_column(row_, {"tokens", "words"})) return *usual;
    if (search_.labels != LabelUse::kUnused) {
      const auto list = std::ranges::find_if(
          names, [&](const std::string& name) { return holds_list(row_, name); });
      return list != names.end() ? *list : names.front();
    }
    // Text for prediction need not be split into words.
    if (const Column usual = first_column(row_, kTexts)) return *usual;
    const Names texts = words_or_texts(names);
    if (texts.size() != 1) fail_texts(!texts.empty());
    return texts.front();
  }

  // --- Multiple choice ---

  void find_choice() {
    const bool named = search_.named.context_column && !search_.named.choice_columns.empty();
    if (!named && !search_.trained.empty() && !take_trained_choices()) {
      found_.names = {};
      notes_.clear();
      found_.warning = row_.position() + ": the columns that the model was trained with " +
                       "(context_column '" + search_.trained.context_column.value_or("") +
                       "', ...) are not all there; others are taken by their usual names";
    }
    find_choices();
    find_context();
    if (search_.labels == LabelUse::kUnused) return;
    find_label({"label", "labels", "answer", "answerKey", "answer_key"}, {"target"}, true);
  }

  // Selects the columns of the training; returns whether all that are not named are present.
  [[nodiscard]] bool take_trained_choices() {
    const ColumnNames& trained = search_.trained;
    const auto is_there = [&](const std::string& name) { return row_.find(name).has_value(); };
    const bool all =
        (search_.named.context_column || !trained.context_column ||
         is_there(*trained.context_column)) &&
        (search_.named.text_column || !trained.text_column || is_there(*trained.text_column)) &&
        (!search_.named.choice_columns.empty() ||
         std::ranges::all_of(trained.choice_columns, is_there));
    if (!all) return false;
    uses_trained_ = true;
    return true;
  }

  void find_choices() {
    Names columns = search_.named.choice_columns;
    Source source = kSet;
    if (columns.empty() && uses_trained_) {
      columns = search_.trained.choice_columns;
      source = kTrained;
    }
    if (columns.empty()) {
      columns = guess_choices();
      source = kGuessed;
    }
    for (std::string& column : columns) column = present(column);
    note(source, "choice_columns",
         columns.size() == 1 ? columns.front() : columns.front() + "' to '" + columns.back());
    found_.names.choice_columns = std::move(columns);
  }

  // Looks for ending0, ending1, ... (or from 1), at least two; else for one column of lists.
  [[nodiscard]] Names guess_choices() const {
    for (const std::string stem : {"ending", "choice", "option", "answer"}) {
      Names names;
      const size_t first = row_.find(stem + "0") ? 0 : 1;
      while (const Column next = row_.find(format_text("{}{}", stem, first + names.size()))) {
        names.push_back(*next);
      }
      if (names.size() >= 2) return names;
    }
    const Column list = first_column(row_, {"choices", "endings", "options", "answers"});
    if (list) return {*list};
    row_.refuse("no columns look like choices (ending0, choice0, ..., or choices); the row has " +
                column_names(row_.columns()) + "; set " + key("choice_columns"));
  }

  void find_context() {
    const Column trained = uses_trained_ ? search_.trained.context_column : std::nullopt;
    if (search_.named.context_column || trained) {
      (void)take_known(&ColumnNames::context_column, "context_column");
    } else {
      const Column guess =
          first_column(row_, {"sent1", "question", "context", "premise", "sentence", "text"});
      if (!guess) {
        row_.refuse(
            "no column looks like the context (sent1, question, context, ...); the row has " +
            column_names(row_.columns()) + "; set " + key("context_column"));
      }
      take(&ColumnNames::context_column, "context_column", *guess, kGuessed);
    }
    if (search_.named.text_column || uses_trained_) {
      (void)take_known(&ColumnNames::text_column, "text_column");
      return;
    }
    const Column prefix = row_.find("sent2");
    if (prefix && plain_column_name(*found_.names.context_column) == "sent1") {
      take(&ColumnNames::text_column, "text_column", *prefix, kGuessed);
    }
  }

  // --- Question answering ---

  // SQuAD's articles have fixed names.
  void find_question() {
    if (row_.find("paragraphs")) return;
    find_part(&ColumnNames::text_column, "text_column", "question");
    find_part(&ColumnNames::context_column, "context_column", "context");
    if (search_.labels == LabelUse::kUnused) return;
    if (take_known(&ColumnNames::label_column, "label_column")) return;
    const Column answers = row_.find("answers");
    if (answers) take(&ColumnNames::label_column, "label_column", *answers, kGuessed);
  }

  void find_part(Column ColumnNames::*member, const char* name, const char* usual) {
    if (take_known(member, name)) return;
    const Column& trained = search_.trained.*member;
    const Column guess = row_.find(usual);
    if (!guess && trained) fail_untrained(*trained, name);
    if (!guess) {
      row_.refuse("column '" + std::string(usual) + "' is not there; the row has " +
                  column_names(row_.columns()) + "; set " + key(name));
    }
    if (trained) {
      found_.warning += (found_.warning.empty() ? row_.position() + ": " : "; ") +
                        "the model was trained with the column '" + *trained +
                        "', which is not there; '" + *guess + "' is taken";
    }
    take(member, name, *guess, kGuessed);
  }

  // --- Embeddings ---

  // As sentence-transformers: the columns in their order, without that of a label or score.
  void find_texts() {
    if (search_.named.label_column) {
      (void)take_known(&ColumnNames::label_column, "label_column");
    } else if (const Column usual = first_column(row_, {"label", "labels", "score", "scores"})) {
      take(&ColumnNames::label_column, "label_column", *usual, kGuessed);
    }
    Names columns = search_.named.text_columns;
    const Source source = columns.empty() ? kGuessed : kSet;
    if (columns.empty()) {
      for (const std::string& name : others()) {
        if (holds_text(row_, name) || row_.at(name).is_array()) columns.push_back(name);
      }
    }
    for (std::string& column : columns) column = present(column);
    if (columns.empty()) {
      row_.refuse("no column holds text; the row has " + column_names(row_.columns()) + "; set " +
                  key("text_columns"));
    }
    note(source, "text_columns", join(columns, "', '"));
    found_.names.text_columns = std::move(columns);
  }

  const Row& row_;
  const ColumnSearch& search_;
  FoundColumns found_;
  std::vector<Note> notes_;
  bool uses_trained_ = false;  // multiple choice
};

}  // namespace

FoundColumns find_columns(const Row& row, const ColumnSearch& search) {
  return ColumnFinder(row, search).find();
}

std::string find_label_column(const Row& row, const std::optional<std::string>& wanted) {
  const ColumnSearch search{.task = RowTask::kSequenceClassification,
                            .named = {.label_column = wanted}};
  return ColumnFinder(row, search).find_class();
}

RowSchema find_schema(const Row& row, const std::optional<std::string>& text_column) {
  RowSchema schema;
  schema.bare_lists = row.bare_lists();
  const Row::Json& columns = row.columns();
  if (text_column) {
    schema.text_column = *text_column;  // each row is checked for it
  } else if (columns.contains("input_ids")) {
    schema.tokens = true;
    schema.labels = columns.contains("labels");
    schema.masks = columns.contains("attention_mask");
  } else {
    schema.text_column = *find_columns(row, {}).names.text_column;
  }
  return schema;
}

FoundColumns find_columns(const DataRow& row, const ColumnSearch& search) {
  return find_columns(Row(row.columns, row.position, row.typed, row.bare_lists), search);
}

namespace {

FileKind kind_of_first(const std::vector<std::string>& files, const RowOptions& options) {
  if (options.json_lines) return FileKind::kJsonLines;
  const std::string name = expand_files(files, options.key).front();
  return find_format(name, options.reading, [&] { return FileSystem::local().open(name); }).kind;
}

}  // namespace

FoundColumns find_columns(const std::vector<std::string>& files, const RowOptions& options,
                          const ColumnSearch& search) {
  const Row row = first_row(files, options);
  const bool is_text = search.task == RowTask::kText && !search.named.text_column;
  // Lines of text, token ids and pretraining examples have no columns to select.
  const FileKind kind = kind_of_first(files, options);
  if (search.task == RowTask::kText && kind == FileKind::kText) return {};
  if (search.task == RowTask::kTokenClassification && kind == FileKind::kText &&
      search.labels == LabelUse::kRequired) {
    row.fail(
        "plain text has no tags; token_classification needs a word and its tag on each line "
        "(CoNLL, "
        "as many columns in each line, a blank line between sentences) or rows with lists of words "
        "and tags");
  }
  if (is_text && (row.find("input_ids") || row.find("masked_lm_positions"))) return {};
  return find_columns(row, search);
}

}  // namespace finetune
