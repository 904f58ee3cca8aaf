// SPDX-License-Identifier: MIT
#include "train/session/shared_start.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/hash.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/owner.h"
#include "train/setup/run_inputs.h"

namespace finetune {

using checkpoint::CheckpointEntry;
using Json = nlohmann::ordered_json;

namespace {

// Returns the owner of the folder's lock as visible to this process.
std::string holder_of(const std::string& folder) {
  try {
    const std::string path = join_path(folder, checkpoint::kLockFile);
    const auto owner = checkpoint::parse_owner(FileSystem::local().read_all(path, 4096));
    return owner ? owner->token : "";
  } catch (const Error& error) {
    log::debug(error.what());
    return "";
  }
}

}  // namespace

std::string share_text(World& world, const std::function<std::string()>& choose) {
  return world.broadcast(world.is_first() ? choose() : "");
}

std::optional<CheckpointEntry> share_checkpoint(
    World& world, const std::function<std::optional<CheckpointEntry>()>& choose) {
  if (world.size() == 1) return choose();
  std::optional<CheckpointEntry> entry;
  const std::string text = share_text(world, [&] {
    entry = choose();
    if (!entry) return std::string();
    return Json{{"path", entry->path},       {"step", entry->step},   {"run_id", entry->run_id},
                {"foreign", entry->foreign}, {"whole", entry->whole}, {"problem", entry->problem}}
        .dump();
  });
  if (world.is_first() || text.empty()) return entry;
  const Json json = parse_json(text, "rank 0's checkpoint");
  entry.emplace();
  entry->path = json["path"];
  entry->step = json["step"];
  entry->run_id = json["run_id"];
  entry->foreign = json["foreign"];
  entry->whole = json["whole"];
  entry->problem = json["problem"];
  return entry;
}

void check_same_folder(World& world, const std::string& folder, double timeout_seconds) {
  if (world.size() == 1) return;
  const std::string holder = share_text(world, [&] { return holder_of(folder); });
  const double end = interrupt::seconds_since_boot() + timeout_seconds;
  while (!world.is_first() && holder_of(folder) != holder) {
    interrupt::throw_if_requested("starting");
    if (interrupt::seconds_since_boot() > end) {
      throw Error(ErrorKind::kConfig,
                  "this machine does not see what rank 0 wrote in '" + folder +
                      "': all machines must see the folder that a run works in; put output_dir on "
                      "a file system that they share, and cache_dir too where output_dir is on a "
                      "slow mount");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

void check_same(World& world, const std::string& text, const std::string& what) {
  const std::string first = world.broadcast(text);
  if (first == text) return;
  throw Error(ErrorKind::kData, what + " differ between rank 0 and rank " +
                                    std::to_string(world.rank()) +
                                    ": all processes must see the same files; put them on a file "
                                    "system that the machines share");
}

void check_same_weights(World& world, const std::vector<Parameter>& parameters) {
  if (world.size() == 1) return;
  Hasher hasher;
  for (const Parameter& parameter : parameters) {
    if (parameter.format.home == WeightHome::kBase) continue;  // see check_same_base()
    if (parameter.is_divided()) continue;                      // a rank has no other's values
    for (const Tensor& tensor : {parameter.weight, parameter.correction, parameter.scales}) {
      if (!tensor.defined()) continue;
      const Tensor host = tensor.detach().to(at::kCPU).contiguous();
      hasher.update(host.const_data_ptr(), host.nbytes());
    }
  }
  check_same(world, hasher.hex(), "the model's weights");
}

void check_same_base(World& world, const std::string& folder, const TokenCacheOptions& cache) {
  if (world.size() == 1) return;
  const std::string seen = look_at_files(weight_paths(folder)).seen;
  if (!world.any(world.broadcast(seen) != seen)) return;
  check_same(world, hash_of_weights(folder, cache), "the weights of the base '" + folder + "'");
}

}  // namespace finetune
