// SPDX-License-Identifier: MIT
#include "finetune/train/check_files.h"

#include <functional>
#include <string>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/chat/find_template.h"
#include "finetune/checkpoint/bucket.h"
#include "finetune/data/data_files.h"
#include "finetune/model/model_folder.h"
#include "finetune/tensor/weight_files.h"

namespace finetune {
namespace {

class FileCheck {
 public:
  explicit FileCheck(const LoadedConfig& config) : config_(config) {}

  void data(const std::string& key, const std::vector<std::string>& patterns) {
    if (patterns.empty()) return;
    note([&] {
      try {
        (void)expand_files(patterns, key);
      } catch (const Error& error) {
        throw Error(error.kind(), config_.where(key) + ": " + error.what());
      }
    });
  }

  // `weights`: the folder must contain a model, not only a configuration or tokenizer.
  void folder(const std::string& key, const std::optional<std::string>& name, bool weights) {
    if (!name) return;
    note([&] {
      const std::string where = config_.where(key) + ": " + key;
      const std::string found = resolve_model_folder(*name, where, config_folder());
      if (!weights) return;
      try {
        (void)find_weight_files(FileSystem::local(), found);
      } catch (const Error& error) {
        throw Error(error.kind(), where + ": " + error.what());
      }
    });
  }

  void path(const std::string& key, const std::string& value) {
    note([&] {
      if (FileSystem::local().exists(value)) return;
      throw Error(ErrorKind::kConfig,
                  config_.where(key) + ": " + key + ": there is no '" + value + "'");
    });
  }

  void chat_template(const std::string& key, const std::optional<std::string>& path) {
    if (!path) return;
    note([&] { (void)chat::find_chat_template("", path, config_.where(key) + ": " + key); });
  }

  // A bucket must answer; whether it may be written to is what `finetune doctor` tries.
  void bucket(const std::string& key, const std::optional<std::string>& location) {
    if (!location || !checkpoint::is_bucket(*location)) return;
    note([&] {
      try {
        (void)checkpoint::bucket_files(*location)->list(*location);
      } catch (const Error& error) {
        throw Error(error.kind(), config_.where(key) + ": " + key + ": " + error.what());
      }
    });
  }

  void throw_if_any() const {
    if (!text_.empty()) throw Error(only_io_ ? ErrorKind::kIo : ErrorKind::kConfig, text_);
  }

 private:
  [[nodiscard]] std::string config_folder() const {
    return config_.path.empty() ? "" : parent_path(config_.path);
  }

  void note(const std::function<void()>& look) {
    try {
      look();
    } catch (const Error& error) {
      only_io_ = only_io_ && error.kind() == ErrorKind::kIo;
      text_ += (text_.empty() ? "" : "\n") + std::string(error.what());
    }
  }

  const LoadedConfig& config_;
  std::string text_;
  bool only_io_ = true;
};

void add_inputs(const TrainingArgs& args, FileCheck& check) {
  check.data("train_file", args.train_file);
  check.data("validation_file", args.validation_file);
  check.data("test_file", args.test_file);
  check.folder("model_name_or_path", args.model_name_or_path, true);
  check.folder("adapter_name_or_path", args.adapter_name_or_path, false);
  check.folder("config_name", args.config_name, false);
  check.folder("tokenizer_name", args.tokenizer_name, false);
  check.chat_template("chat_template_path", args.chat_template_path);
}

}  // namespace

void check_inputs(const LoadedConfig& config) {
  FileCheck check(config);
  add_inputs(config.args, check);
  check.throw_if_any();
}

void check_files(const LoadedConfig& config) {
  const TrainingArgs& args = config.args;
  FileCheck check(config);
  add_inputs(args, check);
  check.bucket("mirror_dir", args.mirror_dir);
  const std::string& from = args.resume_from_checkpoint;
  if (from != "auto" && from != "none") check.path("resume_from_checkpoint", from);
  check.throw_if_any();
}

}  // namespace finetune
