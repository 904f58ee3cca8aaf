// SPDX-License-Identifier: MIT
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/commands/answer_output.h"
#include "cli/commands/answer_prompts.h"
#include "cli/commands/bucket_model.h"
#include "cli/process/command_line.h"
#include "cli/process/commands.h"
#include "cli/process/launch.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/base/read_line.h"
#include "finetune/base/text.h"
#include "finetune/base/version.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/data/data_files.h"
#include "finetune/data/rows.h"
#include "finetune/report/duration_text.h"
#include "finetune/report/progress.h"
#include "finetune/task/nearest_texts.h"
#include "finetune/task/predictor.h"
#include "finetune/task/tasks.h"
#include "finetune/train/adapter_base.h"

namespace finetune::cli {
namespace {

constexpr size_t kQueriesAtATime = 256;  // answers are written while the input is read
constexpr std::string_view kTextGeneration = "text-generation";

constexpr char kPredictHelp[] =
    R"(usage: finetune predict MODEL_DIR [--text TEXT ...] [--input FILE] [options]

Answers each text, or each row of FILE (.jsonl, .json, .csv, .tsv, lines of text), with one JSON
line in the format of transformers' pipeline. FILE - is standard input, which is also read without
--text and --input: each line is a text, even if it looks like JSON or CSV. The model defines the
task, and the columns of FILE unless they are named here:

  fill-mask             --text "a <mask> b" ...
  text-classification   --text A ... [--text_pair B ...]
  token-classification  --text A ...
  text-generation       --text A ...; without texts on a terminal: reads prompts and prints words
                        as they are generated
  question-answering    --question Q ... --context C [...]
  multiple-choice       --text A --choice B --choice C ...
  decision              requests of {"state", "questions"} as lines of JSON in FILE or as --text; on
                        standard input each is answered before the next is read
  feature-extraction    --text A ...; with --compare B C the similarity of A to each; with --query Q
                        the texts of FILE that are nearest to Q

  --output FILE               write to FILE: .jsonl (JSON lines), .csv or .tsv (a line for each
                              answer); it appears when all rows are answered. If the command is
                              interrupted while it reads --input, the same command resumes it
  --task NAME                 task, if config.json does not define it
  --top_k N                   answers for each text (fill-mask: 5, else 1)
  --probabilities all|top_k   print the probability of each label or choice, or of the --top_k most
                              probable ones (5); text-classification, token-classification (of
                              each token), multiple-choice; fill-mask: top_k
  --batch_size N              sequences in a batch (8)
  --use_cpu                   do not use a GPU
  --quantize int8             products in 8 bits, as those of an ONNX export: on a processor with VNNI
                              in less than half the time
  --text_column NAME          of FILE: the text (question-answering: the question)
  --text_pair_column NAME     the second text
  --context_column NAME       the context of questions or choices
  --choice_columns A,B,...    a column for each choice, or one column with lists
  --delimiter C               CSV and TSV: separator of fields (as in training)
  --quoting NAME              CSV and TSV: auto, standard, none: quotes are text (as in training)
  --header true|false         CSV and TSV: the first line names the columns (as in training)
  --function_to_apply NAME    text-classification: default, sigmoid, softmax, none
  --aggregation_strategy NAME token-classification: none, simple, first, average, max
  --ignore_labels A,B,...     token-classification: labels to leave out (O)
  --max_answer_len N          question-answering: maximum tokens of an answer (15)
  --max_seq_len N             question-answering: tokens of a window (384)
  --doc_stride N              question-answering: tokens that neighbouring windows share (128)
  --handle_impossible_answer  question-answering: the answer may be ""
  --compare TEXT ...          feature-extraction: print cosines instead of vectors
  --query TEXT ...            feature-extraction: print the --top_k nearest texts (10) of --input
  --prompt_name NAME          feature-extraction: the model's prompt before each text (none; with
                              --query before the queries those of the training)

text-generation; the defaults are those of generation_config.json, else those in brackets:

  --max_new_tokens N          maximum tokens to generate (256)
  --do_sample true|false      draw each token at random, or take the most probable one (false; true
                              with one of the next three options)
  --temperature X             above 1 flattens the probabilities, below 1 sharpens them (1)
  --top_k N                   draw from the N most probable tokens (50)
  --top_p X                   draw from the most probable tokens that add up to this probability (1)
  --repetition_penalty X      above 1 makes tokens of the text so far less probable (1)
  --seed N                    seed of the random draws (42)
  --return_full_text true|false  print the prompt before the generated text (true)
  --chat                      answer as an assistant, with the model's chat template: each --text is
                              a question, each row of FILE a conversation (messages, or another
                              shape of chat data; an answer at its end is made again), each line
                              of a text file a question. Prints {"messages": [...]}; without texts
                              on a terminal: a conversation
  --chat_template_path PATH   with --chat: a template file, a folder, or a built-in template
                              (chatml, llama3, mistral, gemma, phi3, alpaca) (the model's own)
  --chat_template_kwargs JSON with --chat: variables of the template: '{"enable_thinking": false}'
)";

// Options with several values: all words up to the next option.
constexpr std::array<const char*, 7> kLists = {"--text",   "--text_pair", "--question", "--context",
                                               "--choice", "--compare",   "--query"};

using Lists = std::map<std::string, std::vector<std::string>>;

[[noreturn]] void refuse_predict(const std::string& why) {
  throw Error(ErrorKind::kUsage, "finetune predict: " + why);
}

[[noreturn]] void refuse_without_texts() {
  throw Error(ErrorKind::kUsage,
              "finetune predict needs --text or --input, or text on standard input");
}

// Returns the options with several values. `words`: those after the folder's name, without options
// with one value.
Lists take_lists(const Arguments& words) {
  Lists lists;
  std::string option = "--text";
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with("--")) {
      const bool is_bare = lists.empty() && option == "--text" && words[i - 1] != "--text";
      if (is_bare && (word == "-" || FileSystem::local().exists(word))) {
        refuse_predict("'" + word + "' is a file; name it with --input '" + word + "'");
      }
      lists[option].push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    option = word.substr(0, equals);
    if (std::find(kLists.begin(), kLists.end(), option) == kLists.end()) {
      refuse_predict("unknown option '" + word + "'; see 'finetune predict --help'");
    }
    if (equals != std::string::npos) lists[option].push_back(word.substr(equals + 1));
  }
  return lists;
}

std::vector<std::string> split(const std::string& names) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    if (end > begin) parts.push_back(names.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Rejects an option that only one kind of rows has; other tasks would ignore it silently.
void check_owner(bool given, const std::string& option, RowTask owner, const TaskDescriptor& task) {
  if (!given || owner == task.rows) return;
  const auto first = std::ranges::find(all_tasks(), owner, &TaskDescriptor::rows);
  refuse_predict(option + " is for " + std::string((*first)->pipeline.name) +
                 ", the model's task is " + std::string(task.pipeline.name));
}

std::vector<Query> question_queries(Lists& lists) {
  const auto& questions = lists["--question"];
  const auto& contexts = lists["--context"];
  if (!lists["--text"].empty()) refuse_predict("question-answering takes --question and --context");
  if (questions.empty() && contexts.empty()) return {};
  if (questions.empty() || (contexts.size() != 1 && contexts.size() != questions.size())) {
    refuse_predict(format_text(
        "{} of --question and {} of --context: give one context for all, or one for each question",
        questions.size(), contexts.size()));
  }
  std::vector<Query> queries;
  for (size_t i = 0; i < questions.size(); ++i) {
    queries.push_back({.where = format_text("question {}", i + 1),
                       .text = contexts[contexts.size() == 1 ? 0 : i],
                       .pair = questions[i]});
  }
  return queries;
}

std::vector<Query> choice_queries(Lists& lists) {
  const auto& contexts = lists["--context"].empty() ? lists["--text"] : lists["--context"];
  if (contexts.empty() && lists["--choice"].empty()) return {};
  if (contexts.size() != 1 || lists["--choice"].size() < 2) {
    refuse_predict(
        "multiple-choice takes one --text and two or more of --choice; more texts go into a "
        "file, see --input");
  }
  return {{.where = "text 1", .text = contexts[0], .parts = lists["--choice"]}};
}

std::vector<Query> text_queries(Lists& lists) {
  const auto& texts = lists["--text"];
  const auto& pairs = lists["--text_pair"];
  if (!pairs.empty() && pairs.size() != texts.size()) {
    refuse_predict(format_text("{} of --text and {} of --text_pair: give one for each",
                               texts.size(), pairs.size()));
  }
  std::vector<Query> queries;
  for (size_t i = 0; i < texts.size(); ++i) {
    queries.push_back({.where = format_text("text {}", i + 1), .text = texts[i]});
    if (!pairs.empty()) queries.back().pair = pairs[i];
  }
  return queries;
}

std::vector<Query> make_queries(const TaskDescriptor& task, Lists lists) {
  const auto given = [&](const char* option) { return !lists[option].empty(); };
  check_owner(given("--text_pair"), "--text_pair", RowTask::kSequenceClassification, task);
  check_owner(given("--question"), "--question", RowTask::kQuestionAnswering, task);
  check_owner(given("--choice"), "--choice", RowTask::kMultipleChoice, task);
  check_owner(given("--compare"), "--compare", RowTask::kEmbedding, task);
  check_owner(given("--query"), "--query", RowTask::kEmbedding, task);
  if (task.rows == RowTask::kQuestionAnswering) return question_queries(lists);
  if (task.rows == RowTask::kMultipleChoice) return choice_queries(lists);
  check_owner(given("--context"), "--context", RowTask::kQuestionAnswering, task);
  return text_queries(lists);
}

// Options of a single task.
constexpr std::pair<const char*, RowTask> kOwned[] = {
    {"--prompt_name", RowTask::kEmbedding},
    {"--function_to_apply", RowTask::kSequenceClassification},
    {"--aggregation_strategy", RowTask::kTokenClassification},
    {"--ignore_labels", RowTask::kTokenClassification},
    {"--max_answer_len", RowTask::kQuestionAnswering},
    {"--max_seq_len", RowTask::kQuestionAnswering},
    {"--doc_stride", RowTask::kQuestionAnswering},
    {"--handle_impossible_answer", RowTask::kQuestionAnswering}};

// Options of text generation; fill-mask has the same rows.
constexpr const char* kOfGeneration[] = {"--max_new_tokens",
                                         "--do_sample",
                                         "--temperature",
                                         "--top_p",
                                         "--seed",
                                         "--repetition_penalty",
                                         "--return_full_text",
                                         "--chat",
                                         "--chat_template_path",
                                         "--chat_template_kwargs"};

Probabilities probabilities_of(const std::string& value, const TaskDescriptor& task) {
  if (value != "all" && value != "top_k") {
    refuse_predict("--probabilities takes all or top_k, not '" + value + "'");
  }
  const bool has_labels = task.rows == RowTask::kSequenceClassification ||
                          task.rows == RowTask::kTokenClassification ||
                          task.rows == RowTask::kMultipleChoice;
  if (has_labels) return value == "all" ? Probabilities::kAll : Probabilities::kTopK;
  const std::string name(task.pipeline.name);
  if (name != "fill-mask") {
    refuse_predict("--probabilities is for tasks with labels or choices, the model's task is " +
                   name);
  }
  if (value == "all") {
    refuse_predict(
        "fill-mask would list the whole vocabulary; take --probabilities top_k with "
        "--top_k N");
  }
  return Probabilities::kTopK;
}

// What the command line says, as text where it needs a look.
struct PredictWords {
  PredictOptions options;
  ColumnNames columns;
  std::optional<std::string> task;
  std::optional<std::string> input;
  std::optional<std::string> output;
  std::optional<std::string> delimiter;
  std::optional<std::string> choice_columns;
  std::optional<std::string> ignore_labels;
  std::optional<std::string> quoting;
  std::optional<std::string> header;
  std::optional<std::string> probabilities;
  std::optional<std::string> quantize;
  std::optional<bool> return_full_text;

  void declare(CommandLine& line) {
    line.value("--task", task);
    line.value("--input", input);
    line.value("--output", output);
    line.value("--delimiter", delimiter);
    line.value("--quoting", quoting);
    line.value("--header", header);
    line.value("--text_column", columns.text_column);
    line.value("--text_pair_column", columns.text_pair_column);
    line.value("--context_column", columns.context_column);
    line.value("--choice_columns", choice_columns);
    line.flag("--use_cpu", options.use_cpu);
    line.value("--quantize", quantize);
    line.number("--batch_size", options.batch_size);
    line.number("--top_k", options.top_k);
    line.value("--probabilities", probabilities);
    line.value("--function_to_apply", options.function_to_apply);
    line.value("--aggregation_strategy", options.aggregation_strategy);
    line.value("--ignore_labels", ignore_labels);
    line.number("--max_answer_len", options.max_answer_len);
    line.number("--max_seq_len", options.max_seq_len);
    line.number("--doc_stride", options.doc_stride);
    line.flag("--handle_impossible_answer", options.handle_impossible_answer);
    line.number("--max_new_tokens", options.max_new_tokens);
    line.truth("--do_sample", options.do_sample);
    line.number("--temperature", options.temperature);
    line.number("--top_p", options.top_p);
    line.number("--repetition_penalty", options.repetition_penalty);
    line.number("--seed", options.seed);
    line.truth("--return_full_text", return_full_text);
    line.flag("--chat", options.chat);
    line.value("--chat_template_path", options.chat_template_path);
    line.value("--chat_template_kwargs", options.chat_template_kwargs);
    line.value("--prompt_name", options.prompt_name);
  }
};

// All that the answers depend on, as text.
std::string identity_of(const Arguments& arguments, const std::string& model,
                        const std::string& input) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  const auto add = [&](const std::string& path) {
    struct stat status = {};
    if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return;
    files.push_back(
        {file_name(path), status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec});
  };
  add(input);
  if (FileSystem::local().type(model) == FileType::kDirectory) {
    for (const std::string& name : FileSystem::local().list(model)) add(join_path(model, name));
  }
  const nlohmann::ordered_json all = {
      {"version", kVersion}, {"arguments", arguments}, {"files", std::move(files)}};
  return all.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

// Answers the queries collected so far.
void write_answers(Predictor& model, std::vector<Query>& queries, AnswerOutput& output) {
  interrupt::throw_if_requested("predicting");
  output.write(model.answer(queries));
  queries.clear();
}

// Returns the number of rows of a file for the progress display; 0 if unknown.
int64_t rows_of(RowTask rows, const std::string& input, const ReadingOptions& reading) {
  std::error_code ignored;
  const bool is_file = input != "-" && std::filesystem::is_regular_file(input, ignored);
  // Each article has several questions.
  if (!is_file || rows == RowTask::kQuestionAnswering) return 0;
  try {
    return count_rows({input}, "--input", {}, reading);
  } catch (const Error&) {  // reported when the row is read
    return 0;
  }
}

// Shows the progress of answering a file on standard error, unless answers go to the same terminal.
class AnswerProgress {
 public:
  explicit AnswerProgress(bool is_shown)
      : display_(is_shown ? ProgressMode::kAuto : ProgressMode::kNone) {}
  // `total` rows; 0: not known. `done`: by an earlier command.
  void begin(int64_t total, int64_t done) {
    total_ = total;
    done_ = done;
    if (total_ > 0) display_.step("predict", done_, total_, "row");
  }
  void add(int64_t rows) {
    done_ += rows;
    if (total_ > 0) return display_.step("predict", done_, total_, "row");
    if (std::chrono::steady_clock::now() - begun_ < std::chrono::seconds(1)) return;
    if (!is_open_) display_.begin("predict", 0, done_ - rows, "row");
    is_open_ = true;
    display_.update(done_);
  }

 private:
  ProgressDisplay display_;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  bool is_open_ = false;
  int64_t total_ = 0;
  int64_t done_ = 0;
};

// Returns how FILE is read: like the model's training files, except for options of the command
// line.
ReadingOptions reading_of(const PredictWords& words, ReadingOptions reading) {
  const auto refuse_value = [](const std::string& option, const std::string& expected,
                               const std::string& value) {
    refuse_predict(option + " takes " + expected + ", not '" + value + "'");
  };
  if (const auto& delimiter = words.delimiter) {
    const std::map<std::string, char> names = {
        {"tab", '\t'}, {"\\t", '\t'}, {"comma", ','}, {"semicolon", ';'}, {"pipe", '|'}};
    const auto named = names.find(*delimiter);
    if (named == names.end() && (delimiter->size() != 1 || *delimiter == "\"")) {
      refuse_value("--delimiter", "one character, or tab, comma, semicolon or pipe", *delimiter);
    }
    reading.delimiter = named != names.end() ? named->second : delimiter->at(0);
  }
  if (const auto& quoting = words.quoting) {
    const std::map<std::string, Quoting> names = {
        {"auto", Quoting::kAuto}, {"standard", Quoting::kStandard}, {"none", Quoting::kNone}};
    const auto named = names.find(*quoting);
    if (named == names.end()) refuse_value("--quoting", "auto, standard or none", *quoting);
    reading.quoting = named->second;
  }
  if (const auto& header = words.header) {
    if (*header != "true" && *header != "false") {
      refuse_value("--header", "true or false", *header);
    }
    reading.header = *header == "true";
  }
  return reading;
}

// Reports the properties of reading a CSV or TSV file that come from the training.
void report_reading(const ReadingOptions& trained, const PredictWords& words) {
  std::string list;
  const auto add = [&](bool is_given, const std::string& text) {
    if (!is_given) list += (list.empty() ? "" : ", ") + text;
  };
  if (trained.delimiter) {
    add(words.delimiter.has_value(), "delimiter: '" + std::string(1, *trained.delimiter) + "'");
  }
  if (trained.quoting != Quoting::kAuto) {
    const bool has_quotes = trained.quoting == Quoting::kStandard;
    add(words.quoting.has_value(), std::string("quoting: ") + (has_quotes ? "standard" : "none"));
  }
  if (!trained.header) add(words.header.has_value(), "header: false");
  if (!list.empty()) log::info(list + " (as the model was trained)");
}

// Follows links: the predictions would take the place of the texts.
void refuse_to_replace_the_input(const PredictWords& words) {
  if (!words.input || !words.output) return;
  std::error_code missing;
  if (!std::filesystem::equivalent(*words.input, *words.output, missing) || missing) return;
  throw Error(ErrorKind::kUsage, "--output '" + *words.output +
                                     "' is the file that --input names; choose another --output");
}

bool is_delimited(const std::string& input) {
  const FileKind kind = input == "-" ? FileKind::kText : file_kind(input);
  return kind == FileKind::kCsv || kind == FileKind::kTsv;
}

// Returns the model's task. Without a text on a terminal, only text generation is possible.
const TaskDescriptor& task_of_model(const std::optional<std::string>& name,
                                    const std::string& folder, bool has_texts) {
  try {
    const TaskDescriptor& task = name ? parse_predict_task(*name) : find_predict_task(folder);
    if (has_texts || task.pipeline.name == kTextGeneration) return task;
  } catch (const Error&) {
    if (has_texts) throw;
  }
  refuse_without_texts();
}

// A line of text: a row of chat data as JSON, or a question.
Query query_of_line(std::string line, std::string where) {
  Query query{.where = std::move(where), .text = std::move(line)};
  if (query.text.starts_with('{')) query.conversation = query.text;
  return query;
}

// Calls `visit` with each row of chat data, or each line of text.
void visit_conversations(const std::string& input, const ReadingOptions& reading,
                         const std::function<void(Query)>& visit) {
  if (input == "-") {
    std::string line;
    for (int64_t number = 1; read_line(std::cin, line, format_text("line {}", number)); ++number) {
      interrupt::throw_if_requested("predicting");
      if (!line.empty()) visit(query_of_line(line, format_text("line {}", number)));
    }
    return;
  }
  RowOptions options;
  options.key = "--input";
  options.reading = reading;
  const bool has_lines = file_kind(input) == FileKind::kText;
  visit_rows({input}, options, [&](const DataRow& row) {
    if (has_lines) {
      visit(query_of_line(row.columns.at("text").get<std::string>(), row.position));
      return true;
    }
    visit({.where = row.position, .text = {}, .conversation = row.columns.dump()});
    return true;
  });
}

struct AnsweredFile {
  const TaskDescriptor& task;
  const std::string& folder;
  const PredictWords& words;
  bool reads_input;  // of the standard input, because nothing else was given
};

// Answers the rows of --input after the `texts` of the command line and the rows that the output
// has already.
void answer_file(const AnsweredFile& file, int64_t texts, Predictor& model, AnswerOutput& output) {
  const std::string& input = *file.words.input;
  const DataRecord trained = trained_data(file.task, file.folder);
  QueryOptions rows = {.columns = file.words.columns,
                       .trained = trained.columns,
                       .reading = reading_of(file.words, trained.reading)};
  if (is_delimited(input)) report_reading(trained.reading, file.words);
  // Text files of a tagger may be CoNLL; other texts are lines.
  if (file.task.rows == RowTask::kTokenClassification) {
    rows.reading.conll_text = ConllText::kEntities;
  }
  const int64_t answered = std::max<int64_t>(0, output.rows() - texts);
  const bool shows = (output.is_file() || ::isatty(STDOUT_FILENO) == 0) && input != "-";
  AnswerProgress progress(shows);
  if (shows) progress.begin(rows_of(file.task.rows, input, rows.reading), answered);
  int64_t count = 0;
  double seconds = 0.0;  // of answers
  std::vector<Query> queries;
  // A caller that writes requests to standard input waits for each answer.
  const bool waits = file.task.rows == RowTask::kDecision && input == "-";
  const size_t at_a_time = waits ? 1 : kQueriesAtATime;
  const auto answer = [&] {
    const auto size = std::ssize(queries);
    const auto begun = std::chrono::steady_clock::now();
    write_answers(model, queries, output);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun;
    seconds += taken.count();
    progress.add(size);
  };
  const auto add = [&](Query query) {
    if (count++ < answered) return;
    queries.push_back(std::move(query));
    if (queries.size() == at_a_time) answer();
  };
  if (file.words.options.chat) {
    visit_conversations(input, rows.reading, add);
  } else {
    visit_queries(file.task, input, rows, add);
  }
  if (!queries.empty()) answer();
  if (count == 0 && file.reads_input) refuse_without_texts();
  const std::optional<double> of_model = model.model_seconds();
  if (!of_model || count <= answered || seconds <= 0.0) return;
  const double share = 100.0 * *of_model / seconds;
  log::info(
      format_text("{} requests in {}, {} a second: {} % of the time in the model, {} % for "
                  "prompts and answers",
                  count - answered, duration_text(seconds),
                  format_number("%.3g", static_cast<double>(count - answered) / seconds),
                  format_number("%.1f", share), format_number("%.1f", 100.0 - share)));
}

// Prints the nearest of the texts of the command line and of --input.
void search_file(const AnsweredFile& file, std::vector<Query> documents) {
  if (!file.words.input && documents.empty()) {
    refuse_predict("--query searches the texts of --input, which is not there");
  }
  const std::unique_ptr<NearestTexts> search = make_nearest_texts(file.folder, file.words.options);
  AnswerOutput output(file.words.output, "");
  const auto add = [&](Query document) {
    documents.push_back(std::move(document));
    if (documents.size() < kQueriesAtATime) return;
    search->add(documents);
    documents.clear();
  };
  if (file.words.input) {
    const DataRecord trained = trained_data(file.task, file.folder);
    visit_queries(file.task, *file.words.input,
                  {.columns = file.words.columns,
                   .trained = {},
                   .reading = reading_of(file.words, trained.reading)},
                  add);
  }
  search->add(documents);
  output.write(search->results());
  output.finish();
}

void check_model(const std::string& folder) {
  checkpoint::require_undamaged_model(FileSystem::local(), folder);
  check_adapter_base(folder);
}

// Throws Error(kUsage) for options of generation that the task or --chat excludes.
void check_generation(const CommandLine& line, bool chats, const TaskDescriptor& task) {
  for (const char* option : {"--chat_template_path", "--chat_template_kwargs"}) {
    if (line.has(option) && !chats) refuse_predict(std::string(option) + " needs --chat");
  }
  if (chats && line.has("--return_full_text")) {
    refuse_predict("--return_full_text is for texts, and --chat prints messages; leave one out");
  }
  for (const char* option : kOfGeneration) {
    if (line.has(option) && task.pipeline.name != kTextGeneration) {
      refuse_predict(std::string(option) + " is for text-generation, the model's task is " +
                     std::string(task.pipeline.name));
    }
  }
}

}  // namespace

int predict_command(const Arguments& arguments) {
  CommandLine line("predict", kPredictHelp);
  PredictWords words;
  words.declare(line);
  if (!line.parse(arguments)) return kExitFinished;
  if (!works_here("predict")) return kExitFinished;
  static_cast<void>(reading_of(words, {}));  // reject invalid values before anything is read
  words.columns.choice_columns = split(words.choice_columns.value_or(""));
  if (words.ignore_labels) words.options.ignore_labels = split(*words.ignore_labels);
  if (line.rest().empty() || line.rest()[0].starts_with("--")) {
    throw Error(ErrorKind::kUsage, "finetune predict needs the model's folder first");
  }
  const std::string folder = local_model(line.rest()[0]);
  Lists lists = take_lists(line.rest());
  std::optional<std::string>& input = words.input;
  const bool has_texts = !lists.empty() || input;
  const bool reads_input = !has_texts && ::isatty(STDIN_FILENO) == 0;
  if (reads_input) input = "-";
  refuse_to_replace_the_input(words);
  const TaskDescriptor& task = task_of_model(words.task, folder, has_texts || reads_input);
  for (const auto& [option, owner] : kOwned) check_owner(line.has(option), option, owner, task);
  check_generation(line, words.options.chat, task);
  if (words.quantize && *words.quantize != "int8") refuse_predict("--quantize takes int8");
  words.options.int8_products = words.quantize.has_value();
  if (words.probabilities) {
    words.options.probabilities = probabilities_of(*words.probabilities, task);
  }
  words.options.return_full_text = words.return_full_text.value_or(true);
  if (!has_texts && !reads_input) {
    check_model(folder);
    return answer_prompts(task, folder, words.options);
  }
  words.options.compare = lists["--compare"];
  words.options.queries = lists["--query"];
  std::vector<Query> queries = make_queries(task, std::move(lists));
  if (!words.options.compare.empty() && !words.options.queries.empty()) {
    refuse_predict("--query and --compare exclude each other");
  }
  check_model(folder);
  if (!words.options.queries.empty()) {
    search_file({task, folder, words, reads_input}, queries);
    return kExitFinished;
  }
  const auto model = task.pipeline.make_predictor(folder, words.options);
  std::error_code ignored;
  const bool may_resume = input && std::filesystem::is_regular_file(*input, ignored);
  AnswerOutput output(words.output, may_resume ? identity_of(arguments, folder, *input) : "");
  try {
    const auto texts = std::ssize(queries);
    if (texts > output.rows()) write_answers(*model, queries, output);
    if (input) answer_file({task, folder, words, reads_input}, texts, *model, output);
  } catch (const Error& error) {
    // After another error the file, the model or the options are to be changed.
    if (error.kind() == ErrorKind::kIo || error.kind() == ErrorKind::kDevice) output.keep();
    throw;
  } catch (const Interrupted&) {
    output.keep();
    throw;
  }
  output.finish();
  return kExitFinished;
}

}  // namespace finetune::cli
