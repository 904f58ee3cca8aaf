// SPDX-License-Identifier: MIT
#include <filesystem>
#include <string>
#include <system_error>

#include "finetune/base/error.h"
#include "finetune/task/setup.h"
#include "finetune/train/run.h"
#include "train/assemble.h"

namespace finetune {

void check_starting_folder(const LoadedConfig& config) {
  const TrainingArgs& args = config.args;
  if (!args.do_train || !args.model_name_or_path) return;
  std::string model;
  try {
    model = named_folder(config, "model_name_or_path", *args.model_name_or_path);
  } catch (const Error& error) {  // reported where the model is needed
    if (error.kind() != ErrorKind::kConfig) throw;
    return;
  }
  const auto check = [&](const char* key, const std::string& folder) {
    std::error_code failure;  // a folder that is not there is no other's
    if (!std::filesystem::equivalent(folder, model, failure)) return;
    refuse_key(config, key,
               "'" + folder + "' is the folder of model_name_or_path '" + *args.model_name_or_path +
                   "', whose weights the run would overwrite; choose another folder");
  };
  check("output_dir", args.output_dir);
  if (args.mirror_dir) check("mirror_dir", *args.mirror_dir);
}

}  // namespace finetune
