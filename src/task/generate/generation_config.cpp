// SPDX-License-Identifier: MIT
#include "task/generate/generation_config.h"

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/json_fields.h"
#include "finetune/base/log.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostTokens = int64_t{1} << 20;

// Unsupported settings of transformers that change the text, with the values that have no effect.
struct Neutral {
  const char* name;
  double value;
};
constexpr Neutral kUnknown[] = {{"num_beams", 1},      {"no_repeat_ngram_size", 0},
                                {"min_new_tokens", 0}, {"min_p", 0},
                                {"typical_p", 1},      {"epsilon_cutoff", 0},
                                {"eta_cutoff", 0},     {"encoder_repetition_penalty", 1},
                                {"guidance_scale", 1}};

void report_unknown(const Json& json, const std::string& path) {
  std::vector<std::string> names;
  for (const Neutral& setting : kUnknown) {
    const auto found = json.find(setting.name);
    if (found != json.end() && found->is_number() && found->get<double>() != setting.value) {
      names.emplace_back(setting.name);
    }
  }
  if (!names.empty()) log::warning(path + ": has no effect here: " + join(names));
}

// Reads a number, a list of numbers, or null.
std::vector<int64_t> read_eos(const JsonFields& fields, int64_t vocabulary) {
  const Json& value = fields.at("eos_token_id");
  const IntegerRange range = {.low = 0, .high = vocabulary - 1};
  if (value.is_array()) return fields.integers("eos_token_id", range, 256);
  return {fields.integer("eos_token_id", range)};
}

void read_file(GenerationConfig& config, const std::string& path, int64_t vocabulary) {
  Json json = read_json_file(path);
  if (json.is_object()) {  // null is "not set"
    for (auto it = json.begin(); it != json.end();)
      it = it->is_null() ? json.erase(it) : std::next(it);
  }
  const JsonFields fields(json, path);
  fields.read("max_new_tokens", config.max_new_tokens, {.low = 1, .high = kMostTokens});
  fields.read("do_sample", config.do_sample);
  fields.read("temperature", config.temperature, {.low = 0, .high = 1e6});
  fields.read("top_k", config.top_k, {.low = 0, .high = kMostTokens});
  fields.read("top_p", config.top_p, {.low = 0, .high = 1});
  fields.read("repetition_penalty", config.repetition_penalty, {.low = 1e-6, .high = 1e6});
  if (fields.find("eos_token_id") != nullptr) {
    config.eos_token_ids = read_eos(fields, vocabulary);
  }
  report_unknown(json, path);
}

void refuse_unless(bool is_valid, const std::string& option, const std::string& range) {
  if (!is_valid) throw Error(ErrorKind::kUsage, "finetune predict: " + option + " takes " + range);
}

}  // namespace

std::vector<int64_t> eos_token_ids_of(const ModelConfig& model) {
  const std::vector<int64_t>& ids = model.decoder.eos_token_ids;
  return ids.empty() && model.eos_token_id ? std::vector<int64_t>{*model.eos_token_id} : ids;
}

GenerationConfig read_generation_config(const std::string& folder, const ModelConfig& model,
                                        const PredictOptions& options) {
  GenerationConfig config;
  config.eos_token_ids = eos_token_ids_of(model);
  const std::string path = join_path(folder, kGenerationConfigFile);
  if (FileSystem::local().exists(path)) read_file(config, path, model.vocab_size);
  if (options.temperature || options.top_k || options.top_p) config.do_sample = true;
  config.do_sample = options.do_sample.value_or(config.do_sample);
  config.max_new_tokens = options.max_new_tokens.value_or(config.max_new_tokens);
  config.temperature = options.temperature.value_or(config.temperature);
  config.top_k = options.top_k.value_or(config.top_k);
  config.top_p = options.top_p.value_or(config.top_p);
  config.repetition_penalty = options.repetition_penalty.value_or(config.repetition_penalty);
  refuse_unless(config.temperature > 0 && std::isfinite(config.temperature), "--temperature",
                "a number above 0; '--do_sample false' takes the most probable token");
  refuse_unless(config.top_p > 0 && config.top_p <= 1, "--top_p", "a share above 0, at most 1");
  refuse_unless(config.repetition_penalty > 0 && std::isfinite(config.repetition_penalty),
                "--repetition_penalty", "a number above 0");
  return config;
}

}  // namespace finetune
