// SPDX-License-Identifier: MIT
#include "train/setup/quantized_base.h"

#include <chrono>
#include <thread>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/hash.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/locked_file.h"
#include "finetune/base/log.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/manifest.h"
#include "finetune/data/cache_entries.h"
#include "finetune/export/export.h"
#include "finetune/model/model_folder.h"
#include "finetune/tensor/device.h"
#include "train/setup/weights_hash.h"

namespace finetune {
namespace {

constexpr char kFormula[] = "nf4 1";  // changes whenever the same base gets other codes
constexpr auto kKeptUnused = std::chrono::hours(30 * 24);
constexpr auto kBetweenLooks = std::chrono::milliseconds(100);

std::string name_of_entry(const BaseFormat& format, const std::string& hash_of_base) {
  Hasher hasher;
  hasher.update(std::string(kFormula) + "\n" + hash_of_base + "\n" + name_of(*format.matrices) +
                "\n" + name_of(format.weights));
  for (const std::string& name : format.skipped) hasher.update("\n" + name);
  return hasher.hex();
}

// The layers that stay whole, in one order and spelling: what a key leaves out, and what is trained
// whole, which starts from the base's own values.
std::vector<std::string> whole_layers(const Parts& parts) {
  std::vector<std::string> modules;
  for (const Parameter& parameter : parts.model->store().parameters()) {
    const std::string& name = parameter.name();
    const bool is_four_bits =
        parts.base_format.of(name, parameter.role()) == parts.base_format.matrices;
    if (parameter.role() != ParameterRole::kLinear) continue;
    if (is_four_bits && parameter.format.home == WeightHome::kBase) continue;
    modules.push_back(name.substr(0, name.rfind('.')));
  }
  return modules;
}

// Why the entry cannot be used; empty: it can.
std::string problem_of(const std::string& folder) {
  FileSystem& files = FileSystem::local();
  const std::string path = join_path(folder, checkpoint::kManifestFile);
  if (!files.exists(path)) return "'" + path + "' is missing";
  try {
    const checkpoint::Manifest manifest = checkpoint::parse_manifest(files.read_all(path), path);
    if (manifest.run_id != file_name(folder)) return "'" + folder + "' is that of another base";
    for (const auto& [name, record] : manifest.files) {
      const std::string file = join_path(folder, name);
      checkpoint::verify_file(*files.open(file), record, file);
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Other processes wait here for the one that quantises. Where the file system has no locks, several
// may write the same bytes.
void wait_for(LockedFile& lock, const std::string& path) {
  if (!lock.open(path)) return;
  bool is_noted = false;
  while (lock.lock() == LockedFile::Outcome::kHeld) {
    interrupt::throw_if_requested("waiting for another process that quantizes the base");
    if (!is_noted) log::info("another process quantizes the base; waiting for it");
    is_noted = true;
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

void quantize(const std::string& base, const BaseFormat& format, const std::string& entry) {
  log::info("base: quantizing '" + base + "' to four bits, once, into '" + entry + "'");
  const KeptMemory pieces;
  const MergedModel model = merge_model(base, std::nullopt);
  // Each start compares the checksums, so a power cut costs the entry and nothing else.
  (void)export_folder(model, entry,
                      {.outtype = "nf4",
                       .nested = format.matrices == WeightFormat::kNf4Nested,
                       .quantized_from = traits_of(format.weights).type,
                       .skipped = format.skipped,
                       .manifest_id = file_name(entry),
                       .verify = false,
                       .sync = false});
  const std::string problem = problem_of(entry);
  if (!problem.empty()) throw Error(ErrorKind::kIo, problem);
}

}  // namespace

QuantizedBase quantized_base(const TrainingArgs& args, const Parts& parts) {
  const std::string base = config_folder(parts.pretrained);
  BaseFormat format = parts.base_format;
  // A folder of nf4 has no experts in MXFP4.
  const bool is_done = parts.model_config.is_nf4 || !format.mxfp4.empty();
  if (!format.matrices || is_done || args.cache_dir.empty()) return {base};
  const std::string cache = join_path(args.cache_dir, "nf4");
  FileSystem& files = FileSystem::local();
  try {
    format.skipped = whole_layers(parts);
    const std::string hash = hash_of_weights(base, hash_cache(args, {}));
    const std::string entry = join_path(cache, name_of_entry(format, hash));
    files.make_directories(cache);
    LockedFile lock;
    wait_for(lock, join_path(cache, "lock"));
    const std::string problem = problem_of(entry);
    if (problem.empty()) {
      log::info("base: four bits, quantized before, from '" + entry + "'");
    } else {
      if (files.exists(entry)) {
        log::warning("the quantized base in the cache is damaged and is made again: " + problem);
        files.remove_tree(entry);
      }
      (void)remove_unused_entries(cache, kKeptUnused);
      quantize(base, format, entry);
    }
    const EntryUse use(entry);
    return {entry, problem.empty()};
  } catch (const Error& error) {
    // What is wrong with the base itself is said where it is loaded; a base without the head of a
    // language model is quantised in memory.
    if (error.kind() != ErrorKind::kIo) return {base};
    log::warning("the base is quantized in memory, at each start: " + std::string(error.what()));
    return {base};
  }
}

}  // namespace finetune
