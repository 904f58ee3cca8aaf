// SPDX-License-Identifier: MIT
#include "finetune/train/adapter_base.h"

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/model/model_folder.h"
#include "train/setup/run_inputs.h"

namespace finetune {

void check_adapter_base(const std::string& folder) {
  const auto lora = read_adapter_config(folder);
  const std::string path = join_path(folder, checkpoint::kFinetuneStateFile);
  if (!lora || !FileSystem::local().exists(path)) return;
  const nlohmann::ordered_json state = read_json_file(path, ErrorKind::kData);
  RunState saved;
  if (state.is_object() && state.contains("inputs")) saved.inputs = state["inputs"];
  const std::optional<FileRecord> record = recorded_input(saved, kWeightsInput);
  if (!record || record->contents.empty()) return;
  const std::string base = adapter_base(folder, *lora);
  if (look_at_files(weight_paths(base)).seen == record->seen) return;
  const std::string contents = hash_of_weights(base, {});
  if (contents == record->contents) return;
  throw Error(
      ErrorKind::kData,
      format_text("the adapter '{}' was trained on other weights than those of its base '{}' now "
                  "(content hash {}, then {}); put the base back, or write its folder in {} as "
                  "base_model_name_or_path",
                  folder, base, contents, record->contents, kAdapterConfigFile));
}

}  // namespace finetune
