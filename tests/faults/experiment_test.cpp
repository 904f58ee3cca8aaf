// SPDX-License-Identifier: MIT
// Another experiment in the folder of a run, finished or not: it is refused (exit code 2), changes
// nothing, and the run still ends with its own bits.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "faults/fault_run.h"
#include "support/file_content.h"
#include "support/paths.h"

namespace finetune::testing {
namespace {

namespace fs = std::filesystem;

struct Change {
  std::vector<std::string> words;
  std::vector<std::string> said;  // both values, in the message
};

std::map<std::string, std::string> files_of(const FaultRun& run) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(run.out())) {
    if (!entry.is_regular_file() || entry.path().filename() == ".finetune.lock") continue;
    files[entry.path().string()] = file_content(entry.path().string());
  }
  return files;
}

// Returns the first file that exists on one side only or has other bytes.
std::string first_change(const std::map<std::string, std::string>& before,
                         const std::map<std::string, std::string>& after) {
  for (const auto& [path, bytes] : before) {
    const auto now = after.find(path);
    if (now == after.end()) return "removed " + path;
    if (now->second != bytes) return "changed " + path + " to\n" + now->second;
  }
  for (const auto& [path, bytes] : after) {
    if (before.count(path) == 0) return "wrote " + path + ":\n" + bytes;
  }
  return "";
}

std::vector<Change> changes_of(const FaultRun& run) {
  const std::string data = source_dir() + "/tests/fixtures/checkpoints/v1/float32/";
  const bool has_pairs = !run.settings().data.empty();
  const std::string text = file_content(has_pairs ? run.settings().data : data + "train.txt");
  const std::string more =
      has_pairs ? R"({"prompt": "one", "chosen": " more", "rejected": " line"})" : "one more line";
  const std::string end = has_pairs ? ".jsonl" : ".txt";
  const std::string longer = run.folder().write("longer" + end, text + more + "\n");
  std::string one_byte = text;
  const size_t at = text.find("the", text.size() / 2) + 2;
  FT_CHECK(at < text.size(), "a word to change");
  one_byte[at] = 'a';
  const std::string changed = run.folder().write("changed" + end, one_byte);
  const std::string tokenizer = run.folder() / "tokenizer";
  fs::create_directory(tokenizer);
  for (const auto& entry : fs::directory_iterator(data + "tokenizer")) {
    const std::string name = entry.path().filename().string();
    run.folder().write("tokenizer/" + name, file_content(entry.path().string()) + "\n");
  }
  std::vector<Change> changes = {
      {{"--seed", "7"}, {"seed is 7", "began with 42"}},
      {{"--data_seed", "7"}, {"data_seed is 7", "began without it"}},
      {{"--max_seq_length", "8"}, {"max_seq_length is 8", "began with"}},
      {{"--max_train_samples", "5"}, {"max_train_samples is 5", "began without it"}},
      {{"--config_overrides", "num_hidden_layers=2"}, {"config_overrides is", "began with"}},
      {{"--train_file", longer}, {"content hash"}},
      {{"--train_file", changed}, {"content hash"}},
      {{"--max_steps", "20", "--train_file", changed}, {"content hash"}},
      {{"--tokenizer_name", tokenizer}, {"vocab_size was 62", "is now 63"}}};
  const std::vector<Change> of_task =
      has_pairs
          ? std::vector<Change>{{{"--beta", "0.5"}, {"beta is 0.5", "began without it"}},
                                {{"--loss_type", "hinge"}, {"loss_type is hinge", "began with"}},
                                {{"--disable_dropout", "false"}, {"disable_dropout is false"}},
                                {{"--model_type", "gemma"}, {"is gemma", "began with llama"}}}
          : std::vector<Change>{
                {{"--line_by_line", "false"}, {"line_by_line is false", "began with true"}},
                {{"--mlm_probability", "0.2"}, {"mlm_probability is 0.2", "began with 0.3"}},
                {{"--packing", "true"}, {"packing is true", "began with false"}},
                {{"--model_type", "roberta"}, {"model_type is roberta", "began with bert"}}};
  changes.insert(changes.end(), of_task.begin(), of_task.end());
  return changes;
}

// Starts another experiment; its cache is deleted afterwards.
Session start_other(FaultRun& run, const Fault& fault, const Change& change) {
  const std::string cache = run.root() + "/cache";
  std::vector<std::string> words = change.words;
  words.insert(words.end(), {"--cache_dir", cache});
  const Session session = run.start(fault, words);
  fs::remove_all(cache);
  return session;
}

// `state`: saved state of the folder. With `kill_at` a first start is killed at that change.
std::string refuse(FaultRun& run, const std::string& state, const Change& change, int64_t kill_at) {
  run.take(state);
  const auto before = files_of(run);
  if (kill_at > 0) {
    const Session killed = run.start({.action = Fault::Action::kKill, .at = kill_at}, change.words);
    if (killed.code != 137 && killed.code != 2) return "the killed start said\n" + killed.said;
  }
  const Session session = start_other(run, {}, change);
  if (session.code != 2) return "exit code " + std::to_string(session.code) + "\n" + session.said;
  for (const std::string& part : change.said) {
    if (!session.says(part)) return "does not say '" + part + "':\n" + session.said;
  }
  if (session.says("nothing to do")) return "says that there is nothing to do";
  const std::string changed = first_change(before, files_of(run));
  if (!changed.empty()) return changed;
  return run.finish(state == "half" ? 3 : 0);
}

TEST(AnotherExperimentInTheFolder, IsRefusedAndChangesNothing) {
  FaultRun run;
  Row row("another_experiment_in_the_folder");
  run.keep_as("finished");
  // Kills inside the second save: a refused start must not touch its leftovers either.
  run.keep_killed_at("half", [](const CaseRecord::Entry& entry) {
    return starts(entry, ".tmp-checkpoint-6.") && entry.operation == Operation::kMakeDirectory;
  });
  const std::vector<Change> changes = changes_of(run);
  for (const std::string state : {"finished", "half"}) {
    for (const Change& change : changes) {
      row.add(state + ", " + change.words.at(0) + " " + change.words.at(1),
              refuse(run, state, change, 0));
    }
    const Change& data = changes.at(9);
    for (int64_t at = 1; at <= scaled(8); ++at) {
      row.add(state + ", killed at change " + std::to_string(at), refuse(run, state, data, at));
    }
  }
}

}  // namespace
}  // namespace finetune::testing
