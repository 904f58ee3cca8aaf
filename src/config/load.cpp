// SPDX-License-Identifier: MIT
#include "finetune/config/load.h"

#include <algorithm>
#include <optional>
#include <set>

#include "config/reading/aliases.h"
#include "config/reading/assign.h"
#include "config/reading/node.h"
#include "config/reading/other_names.h"
#include "config/reading/problems.h"
#include "config/reading/scalars.h"
#include "config/reading/text.h"
#include "config/reading/train_file.h"
#include "config/reading/typography.h"
#include "config/rules/derive.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/nearest.h"
#include "finetune/base/text.h"
#include "finetune/base/utf8.h"
#include "finetune/config/fields.h"
#include "finetune/config/optimizer_names.h"

namespace finetune {
namespace {

void refuse_unknown(const Setting& setting, Problems& problems) {
  const std::string other = problems.is_full() ? "" : explain_other_name(setting.key);
  const std::string nearest = problems.is_full() || !other.empty() ? "" : nearest_key(setting.key);
  const Node name{.kind = Node::Kind::kQuoted, .text = setting.key};
  const std::vector<std::string>& below = setting.value.names;
  const auto nested = std::ranges::find_if(
      below, [](const std::string& key) { return find_field(key) != nullptr; });
  std::string message = "unknown key " + show(name);
  if (!other.empty()) {
    message += other;
  } else if (nested != below.end()) {
    message += ": keys are not nested; write '" + *nested + "' at the top level";
  } else if (!nearest.empty()) {
    message += " (did you mean '" + nearest + "'?)";
  } else {
    message += " (`finetune config defaults` lists all)";
  }
  problems.add(setting.where, message);
}

// TrainingArguments.to_json_string() writes "<HUB_TOKEN>" for hub_token, also if it is unset, and
// the like for every key that ends in "_token".
bool is_masked_token(const Setting& setting) {
  if (!setting.key.ends_with("_token")) return false;
  return setting.value.is_scalar() && lower_case(setting.value.text) == "<" + setting.key + ">";
}

// Whether two settings of a file are compatible: files written for transformers 4.x often contain
// warmup_steps and warmup_ratio with one of them 0.
bool is_zero(const Setting& setting) { return parse_double(setting.value).value == 0.0; }

// Returns the configured task before anything is checked, because some old names belong to one
// task.
std::string_view task_in(const std::vector<Setting>& file, const std::vector<Setting>& words) {
  static const TrainingArgs defaults;
  std::string_view task = defaults.task;
  for (const auto* settings : {&file, &words}) {
    for (const Setting& setting : *settings) {
      if (setting.key == "task") task = setting.value.text;
    }
  }
  return task;
}

// Replaces old names, rejects unknown ones and keeps one setting per key. On the command line the
// last one wins, as in transformers; a duplicate in a file is an error.
std::vector<Setting> settle(const std::vector<Setting>& settings, bool from_file,
                            std::string_view task, std::vector<std::string>& notes,
                            Problems& problems) {
  std::vector<Setting> settled;
  for (const Setting& setting : settings) {
    if (is_masked_token(setting)) continue;
    std::optional<Setting> current = setting;
    const Alias* alias = find_alias(setting.key);
    if (alias != nullptr && (alias->task.empty() || alias->task == task)) {
      current = apply_alias(*alias, setting, notes, problems);
    } else if (find_field(setting.key) == nullptr) {
      refuse_unknown(setting, problems);
      continue;
    }
    if (!current) continue;
    const auto same = std::find_if(settled.begin(), settled.end(),
                                   [&](const Setting& other) { return other.key == current->key; });
    if (same == settled.end()) {
      settled.push_back(*current);
    } else if (!from_file || is_zero(*same)) {
      *same = *current;
    } else if (!is_zero(*current)) {
      problems.add(current->where, "'" + setting.key + "' is '" + current->key +
                                       "', which is already set at " + same->where);
    }
  }
  return settled;
}

void apply(const std::vector<Setting>& settings, const std::string& folder, LoadedConfig& config,
           Problems& problems) {
  for (const Setting& setting : settings) {
    const Field* field = find_field(setting.key);
    FT_CHECK(field != nullptr, "settle leaves known keys only");
    assign(*field, setting, folder, config.args, config.notes, problems);
    config.origins[setting.key] = setting.where;
  }
}

// Rejects typographic quotes and the like, which become part of keys and values.
void refuse_typography(const std::vector<Setting>& settings, std::string_view text,
                       const std::string& name) {
  Problems problems;
  for (const Setting& setting : settings) {
    const std::optional<Typographic> found = find_mistake(setting);
    if (!found) continue;
    if (text.empty()) {
      problems.add(setting.where, "--" + setting.key + ": " + found->advice);
      continue;
    }
    // The value may be on a later line than its key.
    const size_t lines = std::stoul(setting.where.substr(name.size() + 1)) - 1;
    size_t begin = 0;
    for (size_t i = 0; i < lines; ++i) begin = text.find('\n', begin) + 1;
    const size_t offset = text.find(found->bytes, begin);
    problems.add(name, line_and_column(text, offset) + ": " + found->advice);
  }
  problems.throw_if_any();
}

std::vector<Setting> read_text(std::string_view text, const std::string& name) {
  const auto fail = [&](const std::string& message) {
    throw Error(ErrorKind::kConfig, name + message);
  };
  if (text.size() > kMaxConfigBytes) {
    fail(format_text(": has {} bytes; a configuration may have 1 MiB", text.size()));
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  size_t bad = utf8::find_invalid(text);
  // Control characters could manipulate a terminal or change yaml-cpp's line count.
  for (size_t i = 0; i < text.size() && bad == std::string_view::npos; ++i) {
    const char c = text[i];
    if (c == '\x7F' || (c >= 0 && c < ' ' && c != '\n' && c != '\r' && c != '\t')) bad = i;
  }
  if (bad != std::string_view::npos) {
    const auto line =
        std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(bad), '\n');
    fail(format_text(":{}: holds bytes that are not text in UTF-8", line + 1));
  }
  const bool is_json = name.ends_with(".json");
  std::vector<Setting> settings;
  try {
    settings = is_json ? read_json(text, name) : read_yaml(text, name);
  } catch (const Error& error) {
    const auto found = is_json ? find_typographic(text) : find_typographic_in_yaml(text);
    if (!found) throw;
    throw Error(error.kind(), std::string(error.what()) + "; " +
                                  line_and_column(text, found->offset) + ": " + found->advice);
  }
  refuse_typography(settings, text, name);
  return settings;
}

std::string plain_number(double value) {
  return value < 1e15 ? format_text("{}", static_cast<int64_t>(value)) : format_double(value);
}

// A learning rate whose exponent lost its sign, such as 2e5 for 2e-5, or one at which these
// optimizers diverge.
void check_learning_rate(const std::vector<Setting>& settings, LoadedConfig& config,
                         Problems& problems) {
  const OptimizerNames* optimizer = find_optimizer_of(config.args.optim);
  if (optimizer == nullptr || !optimizer->name.starts_with("adamw")) return;
  const auto last = std::ranges::find_if(settings.rbegin(), settings.rend(), [](const auto& one) {
    return one.key == "learning_rate";
  });
  if (last == settings.rend() || config.args.learning_rate <= 0.1) return;
  const std::string text = lower_case(last->value.text);
  const size_t exponent = text.find('e');
  const bool lost_sign = exponent != std::string::npos && exponent + 1 < text.size() &&
                         config.args.learning_rate >= 10 && text[exponent + 1] != '-';
  if (lost_sign) {
    const size_t digits = text[exponent + 1] == '+' ? exponent + 2 : exponent + 1;
    problems.add(last->where, "'learning_rate: " + last->value.text + "' is " +
                                  plain_number(config.args.learning_rate) + "; did you mean " +
                                  text.substr(0, exponent + 1) + "-" + text.substr(digits) + "?");
    return;
  }
  config.notes.push_back(last->where + ": 'learning_rate: " + last->value.text +
                         "' is far above what 'optim: " + config.args.optim +
                         "' trains with (1e-5 to 1e-3); such a run usually diverges");
}

// Returns " (did you mean 'dir/run.yaml'?)" from the names in the folder of a missing path, or "".
std::string nearest_file(const std::string& path) {
  FileSystem& files = FileSystem::local();
  const std::string folder = parent_path(path);
  if (files.type(folder) != FileType::kDirectory) return "";
  const std::string near = nearest_name(file_name(path), files.list(folder));
  if (near.empty()) return "";
  const bool is_here = path.find('/') == std::string::npos;
  return " (did you mean '" + (is_here ? near : join_path(folder, near)) + "'?)";
}

// Returns what a file is that is no configuration, and where it belongs; "" if it may be one.
std::string what_other_file(const std::string& path) {
  const std::string name = lower_case(file_name(path));
  const auto ends_in = [&](const std::vector<std::string_view>& endings) {
    return std::ranges::any_of(endings, [&](const auto& one) { return name.ends_with(one); });
  };
  if (ends_in({".py"})) return "a Python program";
  if (ends_in({".ipynb"})) return "a notebook";
  if (ends_in({".sh"})) return "a shell script";
  if (ends_in({".toml"})) return "in TOML";
  if (ends_in({".safetensors", ".gguf", ".bin", ".pt", ".pth"})) {
    return "a file of weights, whose folder model_name_or_path names";
  }
  if (ends_in({".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", ".arrow", ".tfrecord", ".gz",
               ".zst", ".xz", ".bz2"})) {
    return "a data file, which train_file names";
  }
  return "";
}

// Adds a model folder that is not there to other problems, so that users see all at once. A name
// that the Hugging Face cache may hold is left to the model's reader.
void add_missing_model(const LoadedConfig& config, Problems& problems) {
  const std::optional<std::string>& model = config.args.model_name_or_path;
  if (problems.empty() || !model) return;
  const bool is_path = model->starts_with('/') || model->starts_with("./") ||
                       model->starts_with("../") || std::ranges::count(*model, '/') > 1;
  if (!is_path || FileSystem::local().exists(*model)) return;
  problems.add(config.where("model_name_or_path"),
               "model_name_or_path: there is no folder '" + *model + "'");
}

LoadedConfig combine(const std::vector<Setting>& from_file, const std::string& path,
                     const std::vector<std::string>& overrides) {
  LoadedConfig config;
  config.path = path;
  Problems problems;
  const std::vector<Setting> given = read_overrides(overrides);
  refuse_typography(given, "", "");
  const std::string task(task_in(from_file, given));
  const std::vector<Setting> file =
      settle(split_train_file(from_file, problems), true, task, config.notes, problems);
  const std::vector<Setting> words =
      settle(split_train_file(given, problems), false, task, config.notes, problems);
  std::set<std::string> overridden;
  for (const Setting& setting : words) {
    overridden.insert(setting.key);
    if (setting.key == "train_file") {
      overridden.insert({"train_file_weights", "train_file_sets"});
    }
  }
  std::vector<Setting> kept;
  for (const Setting& setting : file) {
    if (!overridden.contains(setting.key)) kept.push_back(setting);
  }
  const std::string folder = path.empty() ? "" : parent_path(path);
  apply(kept, folder == "." ? "" : folder, config, problems);
  apply(words, "", config, problems);
  kept.insert(kept.end(), words.begin(), words.end());
  check_learning_rate(kept, config, problems);
  add_missing_model(config, problems);
  problems.throw_if_any();
  derive(config, problems);
  add_missing_model(config, problems);
  problems.throw_if_any();
  return config;
}

}  // namespace

std::string KeyLocations::where(std::string_view key) const {
  const auto origin = origins.find(std::string(key));
  if (origin != origins.end()) return origin->second;
  return path.empty() ? "configuration" : path;
}

bool KeyLocations::is_set(std::string_view key) const { return origins.contains(std::string(key)); }

void refuse_key(const KeyLocations& locations, std::string_view key, const std::string& why) {
  throw Error(ErrorKind::kConfig, locations.where(key) + ": " + std::string(key) + ": " + why);
}

std::string nearest_key(std::string_view name) {
  std::vector<std::string> known;
  for (const Field& field : all_fields()) known.emplace_back(field.name);
  for (const Alias& alias : all_aliases()) known.emplace_back(alias.name);
  return nearest_name(name, known);
}

LoadedConfig load_config_text(std::string_view text, const std::string& name,
                              const std::vector<std::string>& overrides) {
  return combine(read_text(text, name), name, overrides);
}

LoadedConfig load_config(const std::string& path, const std::vector<std::string>& overrides) {
  if (path.empty()) return combine({}, "", overrides);
  std::string text;
  FileSystem& files = FileSystem::local();
  try {
    if (files.type(path) == FileType::kMissing) {
      if (const auto found = find_typographic(path); found && found->offset == 0) {
        throw Error(ErrorKind::kUsage, "'" + path + "': " + found->advice);
      }
      if (path == "help" || (path.size() == 2 && path.front() == '-')) {
        throw Error(ErrorKind::kUsage, "unknown option '" + path +
                                           "': keys are written as '--output_dir FOLDER'; add "
                                           "--help for all of them");
      }
      const std::string near = nearest_file(path);
      throw Error(ErrorKind::kConfig,
                  "there is no configuration '" + path + "'" + near +
                      "; check the path, or write one with 'finetune config init'");
    }
    if (files.type(path) == FileType::kDirectory) {
      throw Error(ErrorKind::kConfig,
                  "'" + path + "' is a folder; name a configuration, a YAML or JSON file");
    }
    if (const std::string other = what_other_file(path); !other.empty()) {
      throw Error(ErrorKind::kConfig,
                  "'" + path + "' is " + other +
                      "; a configuration is a YAML or JSON file with keys, which 'finetune config "
                      "init > run.yaml' writes");
    }
    text = files.read_all(path, kMaxConfigBytes);
  } catch (const Error& error) {
    throw Error(ErrorKind::kConfig, error.what());
  }
  return load_config_text(text, path, overrides);
}

}  // namespace finetune
