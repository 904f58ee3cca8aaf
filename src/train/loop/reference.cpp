// SPDX-License-Identifier: MIT
#include "train/loop/reference.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <span>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/hash.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/data/reference_samples.h"
#include "finetune/kernels/one_threaded.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/out_of_memory.h"
#include "train/loop/outputs_exchange.h"
#include "train/save/agreement.h"
#include "train/setup/weights_hash.h"

namespace finetune {
namespace {

constexpr char kFormula[] = "reference 2";  // changes whenever the same samples get other values
constexpr char kValuesFile[] = "values.bin";
constexpr int64_t kValuesOfSample = 2;  // one for each row of a pair
constexpr auto kBetweenWrites = std::chrono::seconds(30);

// The header of kValuesFile, before the values and the hash of both.
struct Header {
  char magic[8] = {'F', 'T', 'R', 'E', 'F', '0', '0', '1'};
  int64_t samples = 0;
  int64_t done = 0;  // samples that have values: the first ones
};
constexpr size_t kHashDigits = 32;

}  // namespace

struct Reference::Values {
  std::vector<float> values;  // [samples, kValuesOfSample]
  int64_t done = 0;           // samples that have values
};

Reference::Reference(const LoadedConfig& config, const AssemblyRequest& request,
                     const DataParts& start, const RunState* saved, ProgressDisplay& progress)
    : config_(config), request_(request), start_(start), progress_(progress) {
  const TrainingArgs& args = config.args;
  const bool has_adapter = !args.adapter_name_or_path ||
                           (!start.adapter.empty() && FileSystem::local().exists(start.adapter));
  is_there_ = !start.is_stand_in && has_adapter;
  if (!is_there_ && saved != nullptr) {
    identity_ = saved->identity.guides;
    return;
  }
  const auto hash_of = [&](const std::string& folder) {
    return folder.empty() ? "none" : hash_of_weights(folder, hash_cache(args, {}));
  };
  identity_ = "model " +
              (start.pretrained.empty() ? "of seed " + std::to_string(args.seed)
                                        : hash_of(start.pretrained)) +
              ", adapter " + hash_of(start.adapter);
}

Reference::~Reference() = default;

std::shared_ptr<const Dataset> Reference::add_to(const std::shared_ptr<const Dataset>& data,
                                                 const std::string& what) {
  if (data == nullptr || data->size() == 0) return data;
  const std::string entry = entry_of(*data);
  Values values = read(entry, data->size());
  const int64_t kept = values.done;
  if (kept < data->size()) {
    if (!is_there_) {
      const std::string key = start_.is_stand_in ? "model_name_or_path" : "adapter_name_or_path";
      const std::string what_is_gone = start_.is_stand_in ? "the model" : "the adapter";
      throw Error(ErrorKind::kConfig, config_.where(key) + ": " + key +
                                          ": what the starting model says of the rows of " + what +
                                          " is not in cache_dir, and " + what_is_gone +
                                          " is gone, so that it cannot be computed again; put " +
                                          what_is_gone + " back");
    }
    const auto begin = std::chrono::steady_clock::now();
    compute(data, entry, values);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    log::info(
        format_text("reference: the starting model's log probabilities of {} rows of {} "
                    "are computed, once, in {} s",
                    data->size() - kept, what, format_number("%.1f", seconds.count())));
  } else {
    log::info(
        format_text("reference: the starting model's log probabilities of {} rows of {} "
                    "are those computed before",
                    data->size(), what));
  }
  if (request_.cache.keep && start_.world->is_first() && !entry.empty()) {
    request_.cache.keep(entry, file_name(entry));
  }
  return std::make_shared<const ReferenceSamples>(data, std::move(values.values));
}

// Returns the folder of the values; empty: nothing is kept.
std::string Reference::entry_of(const Dataset& data) const {
  const TrainingArgs& args = config_.args;
  if (args.cache_dir.empty()) return "";
  const MemoryChoices memory = request_.memory.value_or(choices_of(args));
  Hasher hasher;
  for (const std::string& part :
       {std::string(kFormula), identity_, start_.config_text(), data.fingerprint(),
        std::to_string(static_cast<int>(memory.precision)), std::string(name_of(memory.weights)),
        start_.device.is_cpu() ? "cpu" : describe_device(start_.device),
        std::to_string(args.tf32.value_or(false)),
        start_.base_format.matrices ? std::string(name_of(*start_.base_format.matrices)) : "",
        std::string(name_of(start_.base_format.weights)), std::to_string(data.size())}) {
    hasher.update(part + "\n");
  }
  return join_path(join_path(args.cache_dir, "reference"), "reference-" + hasher.hex());
}

// Rank 0 reads for all. A damaged file counts as missing.
Reference::Values Reference::read(const std::string& entry, int64_t samples) {
  const auto count = static_cast<size_t>(samples * kValuesOfSample);
  Values found{.values = std::vector<float>(count, 0.0F)};
  std::string bytes;
  if (start_.world->is_first() && !entry.empty()) {
    FileSystem& files = FileSystem::local();
    const std::string path = join_path(entry, kValuesFile);
    try {
      if (files.type(entry) == FileType::kMissing && request_.cache.fetch) fetch(entry);
      if (files.exists(path)) bytes = files.read_all(path);
    } catch (const Error& error) {
      log::warning("the reference in the cache cannot be read and is computed again: " +
                   std::string(error.what()));
    }
    Header header;
    const size_t whole = sizeof header + count * sizeof(float);
    const bool has_size = bytes.size() == whole + kHashDigits;
    if (has_size) std::memcpy(&header, bytes.data(), sizeof header);
    const bool is_whole = has_size &&
                          std::memcmp(header.magic, Header().magic, sizeof header.magic) == 0 &&
                          header.samples == samples && header.done >= 0 && header.done <= samples &&
                          hash_hex(std::string_view(bytes).substr(0, whole)) == bytes.substr(whole);
    if (!bytes.empty() && !is_whole) {
      log::warning("the reference in the cache is damaged and is computed again: '" + path + "'");
    }
    if (!is_whole) bytes.clear();
  }
  bytes = start_.world->broadcast(bytes);
  if (bytes.empty()) return found;
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  std::memcpy(found.values.data(), bytes.data() + sizeof header, count * sizeof(float));
  found.done = header.done;
  return found;
}

// From a mirror. Why nothing can be kept is said by write().
void Reference::fetch(const std::string& entry) const {
  try {
    FileSystem::local().make_directories(parent_path(entry));
    (void)request_.cache.fetch(file_name(entry), entry);
  } catch (const Error& error) {
    log::debug("no reference from a mirror: " + std::string(error.what()));
  }
}

void Reference::write(const std::string& entry, const Values& values) const {
  if (entry.empty() || !start_.world->is_first()) return;
  Header header;
  header.samples = std::ssize(values.values) / kValuesOfSample;
  header.done = values.done;
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes.append(reinterpret_cast<const char*>(values.values.data()),
               values.values.size() * sizeof(float));
  bytes += hash_hex(bytes);
  try {
    FileSystem::local().make_directories(entry);
    FileSystem::local().write_atomically(join_path(entry, kValuesFile), bytes);
  } catch (const Error& error) {
    log::warning("the reference is not kept, and the next session computes it again: " +
                 std::string(error.what()));
  }
}

void Reference::compute(const std::shared_ptr<const Dataset>& data, const std::string& entry,
                        Values& values) {
  Parts& parts = model();
  const KeptMemory kept;  // each pass allocates the same pieces
  World& world = *start_.world;
  const bool is_cpu = start_.device.is_cpu();
  // A new adapter adds zeros; without it the pass is a little shorter.
  const bool without_adapter = parts.model->has_base() && start_.adapter.empty();
  ParameterExchange* const exchange = parts.model->store().exchange();
  const OutputsExchange outputs(world, /*best_alone=*/false);
  EvaluationLoader loader(data, start_.collator, /*batch_size=*/1);
  // All processes compute as many at once: those of one with fewer threads.
  int64_t at_once = least(world, is_cpu && exchange == nullptr ? num_threads() : 1);
  std::vector<Batch> own;
  const auto compute_own = [&] {
    if (exchange != nullptr) exchange->begin_pass(ParameterExchange::Pass::kForward);
    std::vector<Outputs> results(own.size());
    const auto one = [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      results[at].logits = parts.task->reference(own[at], without_adapter);
    };
    if (is_cpu) {
      compute_side_by_side(std::ssize(own), one);
    } else {
      one(0);
    }
    return results;
  };
  auto written = std::chrono::steady_clock::now();
  progress_.begin("reference", data->size(), values.done);
  while (values.done < data->size()) {
    const int64_t mine = values.done + world.rank() * at_once;
    own.resize(static_cast<size_t>(std::clamp<int64_t>(data->size() - mine, 0, at_once)));
    for (size_t i = 0; i < own.size(); ++i) loader.get(mine + static_cast<int64_t>(i), own[i]);
    std::optional<std::vector<Outputs>> round;
    std::exception_ptr lack_of_memory;
    try {
      round = outputs.share(!own.empty(), compute_own, interrupt::is_requested(), exchange);
    } catch (...) {
      lack_of_memory = std::current_exception();
      if (!is_lack_of_memory(lack_of_memory) || at_once == 1) throw;
    }
    if (lack_of_memory) {
      at_once /= 2;
      release_unused_memory(start_.device);
      continue;
    }
    if (!round) {
      progress_.end();
      write(entry, values);
      throw Interrupted("computing the reference");
    }
    for (const Outputs& one : *round) {
      const auto* numbers = one.logits.const_data_ptr<float>();
      for (int64_t i = 0; i < kValuesOfSample; ++i) {
        if (!std::isfinite(numbers[i])) {
          throw Error(ErrorKind::kData,
                      format_text("{}: model_name_or_path: the starting model gives pair {} (from "
                                  "0) a log probability that is not finite; check the model, or "
                                  "compute in another precision",
                                  config_.where("model_name_or_path"), values.done));
        }
        values.values[static_cast<size_t>(values.done * kValuesOfSample + i)] = numbers[i];
      }
      ++values.done;
    }
    progress_.update(values.done);
    const auto now = std::chrono::steady_clock::now();
    if (now - written > kBetweenWrites) {
      write(entry, values);
      written = std::chrono::steady_clock::now();
    }
  }
  progress_.end();
  write(entry, values);
}

// The starting model: a second one, which lives as long as this object.
Parts& Reference::model() {
  if (model_) return *model_;
  own_config_ = config_;
  own_config_->args.bf16_full_eval = own_config_->args.fp16_full_eval = false;
  AssemblyRequest request = request_;
  request.is_reference = true;
  request.weights = WeightSource::kStart;
  return model_.emplace(assemble_model(*own_config_, request, start_));
}

}  // namespace finetune
