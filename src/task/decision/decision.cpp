// SPDX-License-Identifier: MIT
#include "task/decision/decision.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/log_softmax.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"
#include "finetune/task/chat_tokens.h"
#include "task/decision/laya_files.h"
#include "task/loss/model_input.h"

namespace finetune {
namespace {

// The score of an option that is not there: its probability is 0, and 0 times its logarithm, too.
constexpr float kNoOption = -1e9F;

// Weights count in these units, so that the sum of an update's is exact however it is split.
constexpr double kWeightUnits = 0x1p20;

int64_t units_of(const DecisionGroup& group) {
  if (group.target.empty()) return 0;
  return std::max<int64_t>(std::llround(static_cast<double>(group.weight) * kWeightUnits), 1);
}

int64_t units_of(const BatchGroups& groups) {
  int64_t units = 0;
  for (const DecisionGroup& group : groups.groups) units += units_of(group);
  return units;
}

class DecisionTask final : public Task {
 public:
  DecisionTask(Model& model, c10::Device device, DecisionTaskOptions options)
      : model_(model), device_(device), options_(std::move(options)) {}

  [[nodiscard]] int64_t terms() const override { return 1; }

  [[nodiscard]] std::vector<int64_t> count_targets(const Batch& batch) const override {
    return {units_of(BatchGroups(batch))};
  }

  std::vector<Tensor> loss_sums(const Batch& batch, const TrainingPass& pass) override {
    const BatchGroups groups(batch);
    if (units_of(groups) == 0) return {Tensor()};
    return {summed_loss(scores(batch, groups, pass.dropout), groups)};
  }

  Outputs evaluate(const Batch& batch) override {
    const c10::NoGradGuard no_grad;
    const BatchGroups groups(batch);
    std::vector<float> divisors;
    for (const DecisionGroup& group : groups.groups) {
      divisors.push_back(
          static_cast<float>(options_.settings.temperature_of(group.type, group.options)));
    }
    Outputs outputs{
        .logits = scores(batch, groups, std::nullopt) / to_device(divisors, device_).view({-1, 1}),
        .targets = units_of(groups)};
    if (outputs.targets > 0) {
      outputs.loss =
          summed_loss(outputs.logits, groups).item<double>() / static_cast<double>(outputs.targets);
    }
    return outputs;
  }

 private:
  [[nodiscard]] Tensor scores(const Batch& batch, const BatchGroups& groups,
                              const std::optional<DropoutStream>& dropout) {
    return decision_scores(model_, make_model_input(batch, device_, dropout), groups,
                           options_.labels);
  }

  [[nodiscard]] Tensor summed_loss(const Tensor& scores, const BatchGroups& groups) const {
    const double smoothing = options_.label_smoothing_factor;
    const auto width = static_cast<size_t>(groups.options);
    std::vector<float> factors(groups.groups.size() * width, 0.0F);
    for (size_t g = 0; g < groups.groups.size(); ++g) {
      const DecisionGroup& group = groups.groups[g];
      const auto units = static_cast<double>(units_of(group));
      const auto options = static_cast<double>(group.target.size());
      for (size_t i = 0; i < group.target.size(); ++i) {
        const double p =
            (1 - smoothing) * static_cast<double>(group.target[i]) + smoothing / options;
        factors[g * width + i] = static_cast<float>(units * p);
      }
    }
    const Tensor logs = at::log_softmax(scores, -1);
    const Tensor weights = to_device(factors, device_).view({-1, groups.options});
    return -(logs * weights).sum();
  }

  Model& model_;
  c10::Device device_;
  DecisionTaskOptions options_;
};

// "choice before token 153: 0, 0.9, 0.1"
std::string target_text(const Batch& batch, int64_t row) {
  const auto length = static_cast<size_t>(batch.length);
  std::string text;
  for (const DecisionGroup& group :
       read_groups(std::span(batch.labels).subspan(static_cast<size_t>(row) * length, length))) {
    text += format_text("{}{} before token {}:", text.empty() ? "" : "; ", name_of(group.type),
                        group.marks.front());
    if (group.target.empty()) text += " unknown";
    for (size_t i = 0; i < group.target.size(); ++i) {
      text += (i == 0 ? " " : ", ") + format_number("%.3g", static_cast<double>(group.target[i]));
    }
  }
  return text;
}

}  // namespace

OptionScores option_scores(const ModelConfig& config) {
  if (config.laya) return OptionScores::kLaya;
  return config.jev.num_verbalizers > 0 ? OptionScores::kJev : OptionScores::kLabels;
}

DecisionFiles DecisionFiles::read(const std::string& folder,
                                  const std::optional<std::string>& template_path,
                                  OptionScores scores) {
  FileSystem& local = FileSystem::local();
  constexpr uint64_t kMaxBytes = uint64_t{16} << 20;
  DecisionFiles files;
  if (scores == OptionScores::kLaya) {
    const std::string path = join_path(folder, kLayaFile);
    files.settings = new_laya_settings();
    if (folder.empty() || !local.exists(path)) return files;
    files.laya = read_json_file(path, ErrorKind::kData, {.max_bytes = kMaxBytes});
    files.settings = parse_laya_settings(files.laya, path);
    return files;
  }
  const std::string settings = join_path(folder, kDecisionFile);
  if (!folder.empty() && local.exists(settings)) {
    files.settings = DecisionSettings::parse(local.read_all(settings, kMaxBytes), settings);
    const std::string adapter = files.settings.adapter.value_or("");
    if (!adapter.empty() &&
        local.exists(join_path(join_path(folder, adapter), kAdapterConfigFile))) {
      throw Error(ErrorKind::kData,
                  settings + ": adapter '" + adapter +
                      "' is a LoRA in a folder of the model, which is not available; merge it with "
                      "PEFT (merge_and_unload) and set adapter to null");
    }
  }
  std::string path = template_path.value_or("");
  if (path.empty() && !folder.empty()) {
    path = join_path(folder, kDecisionTemplateFile);
    if (!local.exists(path)) path.clear();
  }
  if (!path.empty()) {
    std::string text = local.read_all(path, kMaxBytes);
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
      throw Error(ErrorKind::kData, path +
                                        ": is empty, and renders no question; delete it for the "
                                        "prompt of transformers' servers");
    }
    files.decision_template = std::make_shared<const chat::ChatTemplate>(std::move(text), path);
  }
  if (scores == OptionScores::kJev && files.decision_template == nullptr) {
    files.decision_template = jev_template();
  }
  return files;
}

namespace {

// The rows of a jev head by type.
LabelIds jev_rows(const JevConfig& jev) {
  LabelIds rows;
  for (size_t type = 0; type < kQuestionTypes; ++type) {
    int64_t end = jev.num_verbalizers;
    for (const int64_t offset : jev.offsets) {
      if (offset > jev.offsets[type]) end = std::min(end, offset);
    }
    for (int64_t row = jev.offsets[type]; row < end; ++row) {
      rows[type].push_back(static_cast<int32_t>(row));
    }
  }
  return rows;
}

LabelIds label_ids(const DecisionSettings& settings, const Tokenizer& tokenizer) {
  LabelIds ids;
  for (size_t type = 0; type < kQuestionTypes; ++type) {
    for (const std::string& label : settings.labels_of(static_cast<QuestionType>(type))) {
      try {
        ids[type].push_back(label_id(tokenizer, label));
      } catch (const Error&) {  // a question with as many options is refused when it is read
        break;
      }
    }
  }
  return ids;
}

}  // namespace

DecisionForm make_form(const DecisionFiles& files, const ModelConfig& config,
                       const Tokenizer& tokenizer,
                       std::shared_ptr<const chat::ChatTemplate> chat_template,
                       const std::string& date) {
  const OptionScores scores = option_scores(config);
  if (scores == OptionScores::kLaya) {
    const LayaPrompterOptions options{
        .max_len = std::min(config.laya->max_len, config.max_length()),
        .head_max_len = config.laya->head_max_len};
    return {.prompter = std::make_shared<const LayaPrompter>(tokenizer, options), .labels = {}};
  }
  TemplatePrompterOptions options{
      .decision_template = files.decision_template,
      .chat_template = std::move(chat_template),
      .variables = chat_render_options(tokenizer, "", "chat_template_kwargs").variables,
      .date = parse_chat_date(date),
      .sanitize_control_tokens = files.settings.sanitize_control_tokens};
  DecisionForm form;
  if (scores == OptionScores::kJev) {
    form.labels = jev_rows(config.jev);
    for (const auto& rows : form.labels) options.most_options.push_back(std::ssize(rows));
  } else {
    form.labels = label_ids(files.settings, tokenizer);
  }
  form.prompter = std::make_shared<const TemplatePrompter>(tokenizer, std::move(options));
  return form;
}

JevConfig fresh_jev() {
  constexpr int64_t kLetters = 26;
  return {.num_verbalizers = 2 + 2 * kLetters, .offsets = {0, 2, 2 + kLetters}};
}

std::shared_ptr<const chat::ChatTemplate> jev_template() {
  static const auto text = std::make_shared<const chat::ChatTemplate>(
      R"({%- macro s(x) %}{{ "" if x is none else x if x is string else x|tojson }}{% endmacro -%}
{{- cls_token if cls_token is defined else bos_token if bos_token is defined else "" -}}
{{- "[kind] " ~ question.type ~ "\n[state] " ~ s(state) ~ "\n[question] " ~ s(question.instructions) ~ "\n[options]\n" -}}
{%- for o in question.options -%}
{%- set d = question.descriptions[loop.index0] -%}
{%- if question.type == "choice" %}{{ question.labels[loop.index0] ~ ") " ~ o ~ (": " ~ s(d) if d is not none and d != "" else "") }}
{%- elif question.type == "score" %}{{ o ~ ": " ~ s(d) }}
{%- else %}{{ o ~ (": " ~ s(d) if d is not none and d != "" else "") }}{% endif -%}
{{- "\n" if not loop.last else "" -}}
{%- endfor -%}
{{- "\n[decision]:<|mark|>" -}}
)",
      "the prompt of a jev head");
  return text;
}

BatchGroups::BatchGroups(const Batch& batch) {
  for (int64_t row = 0; row < batch.rows; ++row) {
    const auto begin = static_cast<size_t>(row * batch.length);
    const auto length = static_cast<size_t>(batch.length);
    for (DecisionGroup& group : read_groups(std::span(batch.labels).subspan(begin, length))) {
      add(std::move(group), row, batch.length);
    }
  }
}

void BatchGroups::add(DecisionGroup group, int64_t row, int64_t length) {
  for (const int64_t mark : group.marks) positions.push_back(row * length + mark - 1);
  options = std::max(options, group.options);
  groups.push_back(std::move(group));
}

namespace {

// The type of the question of each row of the input, as Laya's embedding numbers them.
Tensor laya_types(const BatchGroups& groups, const Tensor& input_ids) {
  constexpr std::array<int64_t, kQuestionTypes> kNumbers = {2, 0, 1};  // noul, choice, score
  std::vector<int64_t> types;
  for (const DecisionGroup& group : groups.groups) {
    types.push_back(kNumbers[static_cast<size_t>(group.type)]);
  }
  types.resize(static_cast<size_t>(input_ids.size(0)), types.back());  // rows that only fill it
  return to_device(types, input_ids.device());
}

}  // namespace

Tensor decision_scores(Model& model, const ModelInput& input, const BatchGroups& groups,
                       const LabelIds& labels) {
  const bool has_marks = option_scores(model.config()) == OptionScores::kLaya;
  const auto width = static_cast<size_t>(groups.options);
  std::vector<int64_t> columns(groups.groups.size() * width, 0);
  std::vector<float> mask(columns.size(), kNoOption);
  int64_t marks = 0;
  for (size_t g = 0; g < groups.groups.size(); ++g) {
    const DecisionGroup& group = groups.groups[g];
    const auto count = static_cast<size_t>(group.options);
    const auto first = columns.begin() + static_cast<int64_t>(g * width);
    if (has_marks) {
      std::iota(first, first + group.options, marks);
      marks += group.options;
    } else {
      const std::vector<int32_t>& of_type = labels[static_cast<size_t>(group.type)];
      FT_CHECK(count <= of_type.size(), "each option has a label");
      std::copy_n(of_type.begin(), count, first);
    }
    std::fill_n(mask.begin() + static_cast<int64_t>(g * width), count, 0.0F);
  }
  const c10::Device device = input.input_ids.device();
  ModelInput asked = input;
  if (has_marks) asked.question_types = laya_types(groups, input.input_ids);
  // Marks of several questions may be one token.
  asked.read_positions = read_positions(groups.positions, device);
  const Tensor logits = model.logits(asked, to_device(groups.positions, device)).to(at::kFloat);
  const Tensor chosen = to_device(columns, device);
  const Tensor scores = has_marks ? logits.flatten().index_select(0, chosen)
                                  : logits.gather(1, chosen.view({-1, groups.options}));
  return scores.view({-1, groups.options}) + to_device(mask, device).view({-1, groups.options});
}

std::unique_ptr<Task> make_decision_task(Model& model, c10::Device device,
                                         DecisionTaskOptions options) {
  return std::make_unique<DecisionTask>(model, device, std::move(options));
}

namespace {

PythonLibrary library_of(const TaskArgs& args) {
  if (args.decision_head == "laya")
    return {.name = "laya", .import_line = "import laya", .callable = "laya.load"};
  return {.name = "transformers",
          .import_line = "from transformers import pipeline",
          .callable = "pipeline",
          .arguments = "\"decision\", model=",
          .adapter_argument = "decision_config="};  // else that of its base
}

}  // namespace

const TaskDescriptor& decision_descriptor() {
  static const TaskDescriptor descriptor = {
      .keys = decision_keys(),
      .rows = RowTask::kDecision,
      .head = [](const TaskArgs& args) -> std::optional<Head> {
        if (args.decision_head == "labels") return std::nullopt;
        return Head::kDecision;
      },
      .make_setup = make_decision_setup,
      .pipeline = {.name = "decision",
                   .class_suffix = "ForCausalLM",
                   .other_suffix = "LMHeadModel",
                   .library = library_of,
                   .make_predictor = make_decision_predictor},
      .pads = false,
      .sample = "question",
      .target_text = target_text};
  return descriptor;
}

}  // namespace finetune
