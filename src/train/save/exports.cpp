// SPDX-License-Identifier: MIT
#include "train/save/exports.h"

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/log.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/export/export.h"
#include "finetune/task/tasks.h"

namespace finetune {

void write_exports(const TrainingRun& run) {
  const TrainingArgs& args = run.args;
  if (!args.export_merged && !args.export_gguf) return;
  const std::string folder = join_path(args.output_dir, "export");
  const auto write =
      [&](const std::optional<std::string>& type, const char* name,
          ExportReport (*exported)(const MergedModel&, const std::string&, const ExportOptions&)) {
        if (!type) return;
        const std::string out = join_path(folder, name);
        const std::string command = command_name() + " export " + shell_word(args.output_dir) +
                                    " " + shell_word(out) + " --overwrite --outtype " + *type;
        try {
          const MergedModel model = merge_model(args.output_dir, task_of(args).head(args));
          const ExportReport report =
              exported(model, out, {.outtype = *type, .overwrite = true, .verify = true});
          log::info(format_text("exported {}: {}, {}", out, report.type, bytes_text(report.bytes)));
        } catch (const Interrupted&) {
          log::warning("'" + out +
                       "' is not written, because a stop was requested; write it with: " + command);
        } catch (const Error& error) {
          log::warning("'" + out + "' is not written: " + error.what() +
                       "; try again with: " + command);
        }
      };
  write(args.export_merged, "merged", export_folder);
  write(args.export_gguf, "model.gguf", export_gguf);
}

}  // namespace finetune
