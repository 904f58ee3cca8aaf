// SPDX-License-Identifier: MIT
// R25: damage to the files of a finished run and of its mirror. The same command must restore both
// to the original content, or exit with 3 if nothing is left to restore from; it must never exit
// with 0 if a file is wrong. R25b: the command is killed at every change during this.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "faults/fault_run.h"
#include "finetune/base/json.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/reader.h"

namespace finetune::testing {
namespace {

namespace fs = std::filesystem;
using Random = std::mt19937_64;

std::string bytes_of(const std::string& path) { return FileSystem::local().read_all(path); }
void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

constexpr int kKinds = 18;

// Damages a file in one way; returns false if that changes nothing. `other` is another file.
bool damage(const std::string& path, const std::string& other, int kind, Random& random) {
  const std::string before = bytes_of(path);
  std::string bytes = before;
  const size_t size = bytes.size();
  if (size < 2) return false;
  const size_t position = random() % size;
  const auto flip = [&](size_t at) {
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
  };
  switch (kind) {
    case 0:
      flip(position);
      break;
    case 1:
      flip(0);
      break;
    case 2:
      flip(size - 1);
      break;
    case 3:
      bytes.insert(position, 1, static_cast<char>(random()));
      break;
    case 4:
      bytes.erase(position, 1);
      break;
    case 5:
      bytes.resize(position);
      break;
    case 6:
      bytes.clear();
      break;
    case 7:
      bytes += "garbage";
      break;
    case 8:
      std::fill_n(bytes.begin() + static_cast<long>(position),
                  std::min<size_t>(512, size - position), '\0');
      break;
    case 9:
      std::ranges::fill(bytes, '\0');
      break;
    case 10:
      bytes = bytes_of(other);
      break;
    case 11:
      std::ranges::generate(bytes, [&] { return static_cast<char>(random()); });
      break;
    case 12:
      std::rotate(bytes.begin(), bytes.begin() + static_cast<long>(position), bytes.end());
      break;
    case 13:
      bytes = bytes.substr(0, size / 2) + bytes.substr(0, size - size / 2);
      break;
    case 14:
      fs::rename(path, path + ".moved");
      return true;
    case 15:
      fs::remove(path);
      return true;
    case 16:
      fs::remove(path);
      fs::create_directory(path);
      return true;
    default:
      fs::remove(path);
      fs::create_symlink("nowhere", path);
      return true;
  }
  put(path, bytes);
  return bytes != before;
}

// Whether a key may differ in a rebuilt model: times and the number of sessions.
bool is_of_the_clock(const std::string& key) {
  static const std::set<std::string> kKeys = {"seconds", "sessions", "session",
                                              "created", "checksum", "files"};
  return kKeys.count(key) > 0 || key.find("runtime") != std::string::npos ||
         key.find("per_second") != std::string::npos;
}

nlohmann::ordered_json without_times(const nlohmann::ordered_json& json) {
  if (json.is_array()) {
    auto kept = nlohmann::ordered_json::array();
    for (const auto& item : json) kept.push_back(without_times(item));
    return kept;
  }
  if (!json.is_object()) return json;
  auto kept = nlohmann::ordered_json::object();
  for (const auto& [key, value] : json.items()) {
    if (!is_of_the_clock(key)) kept[key] = without_times(value);
  }
  return kept;
}

bool says_the_same(const std::string& path, const std::string& good) {
  const std::string now = bytes_of(path);
  const std::string then = bytes_of(good);
  if (now == then) return true;
  if (!path.ends_with(".json")) return false;
  JsonLimits limits;
  limits.allow_nan = true;
  return without_times(parse_json(now, path, ErrorKind::kData, limits)) ==
         without_times(parse_json(then, good, ErrorKind::kData, limits));
}

// A finished run, with or without mirror and checkpoints, and copies of both folders.
class FinishedRun {
 public:
  explicit FinishedRun(const RunSettings& settings) : run(settings) {
    run.start_over();
    const Session session = run.start();
    if (session.code != 0) throw std::runtime_error(session.said);
    fs::copy(run.root(), good_, fs::copy_options::recursive);
    collect("out");
    collect("mirror");
  }

  void reset() {
    fs::remove_all(run.root());
    fs::copy(good_, run.root(), fs::copy_options::recursive);
  }
  [[nodiscard]] const std::vector<std::string>& files() const { return files_; }
  [[nodiscard]] std::string path(const std::string& name) const { return run.root() + "/" + name; }

  [[nodiscard]] bool has_whole_checkpoint() const {
    for (const char* folder : {"out", "mirror"}) {
      for (const auto& entry :
           checkpoint::list_checkpoints(FileSystem::local(), path(folder), true)) {
        if (entry.whole) return true;
      }
    }
    return false;
  }

  // Returns the first difference in both folders after a command that exited with 0.
  [[nodiscard]] std::string compare(const Session& session) const {
    try {
      for (const char* folder : {"out", "mirror"}) {
        if (!fs::exists(good_ + "/" + folder)) continue;
        std::string problem = check_model(path(folder));
        if (problem.empty()) problem = check_files(folder, session);
        if (!problem.empty()) return problem;
      }
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }

  FaultRun run;

 private:
  // Whether a file is in a checkpoint that the output folder no longer has. The mirror's thread may
  // end, after the last save, before it has deleted it there; nothing resumes from it.
  [[nodiscard]] bool is_left_over(const std::string& name) const {
    constexpr std::string_view kStart = "mirror/checkpoint-";
    if (!name.starts_with(kStart)) return false;
    const std::string checkpoint = name.substr(7, name.find('/', kStart.size()) - 7);
    return !fs::exists(run.root() + "/out/" + checkpoint);
  }

  void collect(const std::string& folder) {
    const std::string top = run.root() + "/" + folder;
    if (!fs::exists(top)) return;
    for (const auto& entry : fs::recursive_directory_iterator(top)) {
      const std::string name = folder + "/" + fs::relative(entry.path(), top).string();
      // Locks have their own rows; tokens are a cache that is verified when it is read.
      if (!entry.is_regular_file() || name.ends_with(checkpoint::kLockFile)) continue;
      if (name.ends_with(checkpoint::kWrittenFile)) continue;  // only makes a run keep more files
      if (name.starts_with("mirror/tokens/")) continue;
      if (is_left_over(name)) continue;
      // The user may edit the model card.
      if (name.ends_with("/README.md")) continue;
      // Logs contain times; each session continues what it can (tests of MetricsLog).
      if (name.ends_with("/metrics.jsonl") || name.ends_with("/sessions.jsonl")) continue;
      files_.push_back(name);
    }
    std::ranges::sort(files_);
  }

  static std::string check_model(const std::string& folder) {
    const auto model = checkpoint::inspect_finished_model(FileSystem::local(), folder, true);
    if (!model.is_valid()) return checkpoint::describe_damage(model);
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(".tmp-")) return folder + "/" + name + " is left";
    }
    return "";
  }

  [[nodiscard]] std::string check_files(const std::string& folder, const Session& session) const {
    for (const std::string& name : files_) {
      if (!name.starts_with(folder + "/")) continue;
      if (name.ends_with(checkpoint::kTreeIndexFile)) continue;  // see check_index()
      const size_t at = name.find("checkpoint-");
      if (at != std::string::npos) {
        const std::string checkpoint = name.substr(at, name.find('/', at) - at);
        const std::string position = path(folder + "/" + checkpoint);
        // The mirror's copy of one that the run no longer has is verified when it is restored.
        if (folder == "mirror" && !fs::exists(path("out/" + checkpoint + "/manifest.json")))
          continue;
        // Without these two files it counts as a checkpoint of another program.
        if (!fs::exists(position + "/manifest.json") &&
            !fs::exists(position + "/finetune_state.json"))
          continue;
        const bool is_whole =
            checkpoint::inspect_checkpoint(FileSystem::local(), position, true).whole;
        // If both copies are damaged, the older checkpoint of the run cannot be restored.
        if (!is_whole && session.says(checkpoint + " is damaged")) continue;
        if (!is_whole && session.says(checkpoint + " is not used")) continue;
        // A run that resumes from a newer checkpoint does not read this one.
        if (!is_whole && session.says("resuming from") && !session.says(checkpoint)) continue;
        if (!is_whole) return position + " is not whole, and nothing says so";
      }
      if (!says_the_same(path(name), good_ + "/" + name)) return name + " has another content";
    }
    return folder == "mirror" ? check_index() : "";
  }

  [[nodiscard]] std::string check_index() const {
    const std::string file = path(std::string("mirror/") + checkpoint::kTreeIndexFile);
    const auto index =
        checkpoint::parse_manifest(bytes_of(file), file, checkpoint::FileNames::kPaths);
    const auto found =
        checkpoint::compare_with_manifest(FileSystem::local(), path("mirror"), index, true);
    return checkpoint::describe_damage(found);
  }

  std::string good_ = run.folder() / "good";
  std::vector<std::string> files_;
};

// Checks what the next start does about the damage; `may_be_lost`: nothing is left to repair from.
std::string repairs(FinishedRun& finished, const Session& session, bool may_be_lost) {
  std::string problem;
  if (session.code == 0) {
    problem = finished.compare(session);
  } else if (may_be_lost && session.code == 2 && session.says("config.json' is a file that no")) {
    return "";  // another JSON there may be the user's, and is not overwritten
  } else if (session.code != 3 || !may_be_lost) {
    problem = "exit code " + std::to_string(session.code);
  }
  return problem.empty() ? problem : problem + "\n" + session.said;
}

void damage_at_random(FinishedRun& finished, Row& row, const std::string& label, int64_t cases) {
  Random random(base_seed());
  const std::vector<std::string>& files = finished.files();
  ASSERT_GE(files.size(), 8U);
  for (int64_t i = 0; i < cases; ++i) {
    finished.reset();
    std::string what = label;
    std::set<std::string> damaged;
    const auto count = static_cast<size_t>(1 + i % 3);
    while (damaged.size() < count) {
      // Cycles through all files and all kinds of damage, with further random ones.
      const auto turn = static_cast<size_t>(i);
      const bool first = damaged.empty();
      const std::string& name = files[first ? turn % files.size() : random() % files.size()];
      const int kind = static_cast<int>(first ? turn % kKinds : random() % kKinds);
      const std::string& other = files[random() % files.size()];
      if (damaged.count(name) > 0 || damaged.count(other) > 0) continue;
      if (!damage(finished.path(name), finished.path(other), kind, random)) continue;
      damaged.insert(name);
      what += ", damage " + std::to_string(kind) + " to " + name;
    }
    // Whether both copies of a file, or its only copy, are damaged.
    const bool is_in_both = std::ranges::any_of(damaged, [&](const std::string& name) {
      return name.starts_with("out/") && damaged.count("mirror/" + name.substr(4)) > 0;
    });
    const bool may_be_lost =
        (is_in_both || !finished.run.settings().mirrored) && !finished.has_whole_checkpoint();
    row.add(what, repairs(finished, finished.run.start(), may_be_lost));
  }
}

TEST(R25, DamageAfterTheEnd) {
  Row row("R25");
  FinishedRun mirrored({.mirrored = true});
  damage_at_random(mirrored, row, "with a mirror", scaled(120));
  FinishedRun alone({});
  damage_at_random(alone, row, "without a mirror", scaled(60));
  FinishedRun model_only({.more_keys = "save_strategy: \"no\"\n"});
  damage_at_random(model_only, row, "without checkpoints", scaled(30));
  FinishedRun both({.more_keys = "save_strategy: \"no\"\n", .mirrored = true});
  damage_at_random(both, row, "with a mirror, without checkpoints", scaled(30));
}

TEST(R25Adapter, DamageAfterTheEnd) {
  Row row("R25 adapter");
  RunSettings settings = adapter_run();
  settings.mirrored = true;
  FinishedRun mirrored(settings);
  damage_at_random(mirrored, row, "with a mirror", scaled(36));
  settings.mirrored = false;
  settings.more_keys = "save_strategy: \"no\"\n";
  FinishedRun model_only(settings);
  damage_at_random(model_only, row, "without checkpoints", scaled(12));
}

struct Damages {
  const char* label;
  bool mirrored;
  std::vector<std::pair<std::string, int>> files;  // and kinds of damage
};

TEST(R25b, KilledAtEveryChangeOfARepair) {
  Row row("R25b");
  FinishedRun mirrored({.mirrored = true});
  FinishedRun alone({});
  const std::array<Damages, 5> all = {{
      {"the model and the mirror's configuration",
       true,
       {{"out/model.safetensors", 0}, {"mirror/config.json", 5}}},
      {"manifest and state", true, {{"out/manifest.json", 0}, {"out/finetune_state.json", 5}}},
      {"checkpoints",
       true,
       {{"out/checkpoint-12/optimizer.pt", 0}, {"mirror/checkpoint-9/config.json", 15}}},
      {"the model in both places",
       true,
       {{"out/model.safetensors", 0}, {"mirror/model.safetensors", 15}}},
      {"the model, without a mirror", false, {{"out/model.safetensors", 16}}},
  }};
  for (const Damages& item : all) {
    FinishedRun& finished = item.mirrored ? mirrored : alone;
    const auto begin = [&] {
      Random random(base_seed());
      finished.reset();
      for (const auto& [name, kind] : item.files) {
        (void)damage(finished.path(name), finished.path("out/config.json"), kind, random);
      }
    };
    begin();
    ASSERT_EQ(finished.run.start().code, 0);
    const int64_t changes = finished.run.record().changes;
    const int64_t stride = std::max<int64_t>(1, changes / scaled(30));
    for (int64_t at = 1; at <= changes; at += stride) {
      begin();
      const Session killed =
          finished.run.start({.action = Fault::Action::kKill, .at = at, .torn = at % 2 == 0});
      const std::string what = std::string(item.label) + ", killed at change " + std::to_string(at);
      // The mirror's thread may be further along, so that there are fewer changes left.
      std::string problem;
      if (killed.code != 137 && killed.code != 0) problem = "not killed: " + killed.said;
      if (problem.empty()) problem = repairs(finished, finished.run.start(), false);
      row.add(what, problem);
    }
  }
}

}  // namespace
}  // namespace finetune::testing
