// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "finetune/export/merged_model.h"

namespace finetune {

struct ExportOptions {
  // "auto" (each tensor's own type), "f32", "f16" or "bf16"; for GGUF also "q8_0" and "q4_0", for
  // folders "nf4"; for ONNX "int8", and not "bf16".
  std::string outtype = "auto";
  // Of nf4: with double quantisation; the type to which values are rounded first (unset: their
  // own); layers that are not quantised, as in BaseFormat.
  bool nested = false;
  std::optional<at::ScalarType> quantized_from = {};
  std::vector<std::string> skipped = {};
  // Not empty: a folder gets manifest.json with the checksums of its files and this name.
  std::string manifest_id = {};
  std::optional<int64_t> dims = {};  // of a folder's vectors: the first ones; unset: all
  bool overwrite = false;            // what is there is replaced, once the export is complete
  bool verify = true;                // what was written is read again and compared
  bool sync = true;                  // it survives a power cut
  bool compares_logits = false;      // LogitsDifference: the whole model has to fit into memory
};

// How far the export's logits of a built-in text are from those of what was exported.
struct LogitsDifference {
  double largest = 0.0;  // absolute
  // The standard deviation of the logits of a position; of a head with one output that over the
  // positions, or the logit's size if there is one.
  double spread = 0.0;
  bool has_choice = true;  // whether a position has several logits, so that `same` counts
  int64_t positions = 0;   // that were compared
  int64_t same = 0;        // positions with the same largest logit
};

struct ExportReport {
  uint64_t bytes = 0;  // of all files
  int64_t tensors = 0;
  std::string type = {};  // of the matrices: "bfloat16"
  std::optional<LogitsDifference> logits = {};
};

// Both write under another name beside `out` and rename at the end, so that an interrupted export
// leaves nothing that looks complete. The bytes depend on the model and the type alone. Throw
// Error(kUsage) for a type or a location that is not possible, Error(kData) for a model that the
// format cannot hold, Error(kIo) and Interrupted.

// Writes a folder as save_pretrained does: weights in safetensors, config.json, and the files of
// tokenizer, chat template and generation that the model's folder has.
ExportReport export_folder(const MergedModel& model, const std::string& out,
                           const ExportOptions& options);

// Whether GGUF has the family of a model.
[[nodiscard]] bool is_exported_as_gguf(const ModelConfig& config);

// Writes one file of GGUF, version 3, as llama.cpp's converter does: weights, hyperparameters,
// tokenizer and chat template.
ExportReport export_gguf(const MergedModel& model, const std::string& out,
                         const ExportOptions& options);

// Writes a file of ONNX, and tokenizer, configuration and an example next to it; weights above 2 GB
// are in a second file, OUT_data. Its operators are those of the model's own forward pass. Types:
// auto, f32, f16 and int8.
ExportReport export_onnx(const MergedModel& model, const std::string& out,
                         const ExportOptions& options);

}  // namespace finetune
