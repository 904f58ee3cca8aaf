// SPDX-License-Identifier: MIT
#include <algorithm>

#include "export/gguf_model.h"
#include "export/gguf_tokenizer.h"
#include "export/staged_output.h"
#include "finetune/base/error.h"
#include "finetune/base/printable.h"
#include "finetune/export/export.h"

namespace finetune {
namespace {

GgmlType ggml_type(const std::string& outtype, at::ScalarType stored) {
  if (outtype == "auto") {
    return stored == at::kHalf       ? GgmlType::kF16
           : stored == at::kBFloat16 ? GgmlType::kBF16
                                     : GgmlType::kF32;
  }
  for (const GgmlType type :
       {GgmlType::kF32, GgmlType::kF16, GgmlType::kBF16, GgmlType::kQ8_0, GgmlType::kQ4_0}) {
    if (outtype == traits_of(type).name) return type;
  }
  throw Error(ErrorKind::kUsage, "--outtype " + shortened(outtype, 40) +
                                     ": a GGUF file holds auto, f32, f16, bf16, q8_0 or q4_0");
}

}  // namespace

ExportReport export_gguf(const MergedModel& model, const std::string& out,
                         const ExportOptions& options) {
  const GgmlType type = ggml_type(options.outtype, model.dtype);
  GgufModel gguf = gguf_model(model, type);
  add_tokenizer(gguf.metadata, model);
  StagedOutput output(out, options.overwrite, gguf_bytes(gguf.metadata, gguf.tensors));
  const auto file = output.create();
  write_gguf(*file, gguf.metadata, gguf.tensors);
  file->sync();
  file->close();
  if (options.verify) output.verify();
  output.commit();
  return {.bytes = output.bytes(),
          .tensors = std::ssize(gguf.tensors),
          .type = std::string(traits_of(type).name)};
}

}  // namespace finetune
