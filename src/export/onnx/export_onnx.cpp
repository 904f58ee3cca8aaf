// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "export/compare_logits.h"
#include "export/onnx/onnx_graph.h"
#include "export/staged_output.h"
#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/base/model_files.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/export/export.h"
#include "finetune/model/embedding_files.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {
namespace {

constexpr const char* kPositions = "positions";
constexpr const char* kQuestionTypes = "qtype";  // laya's name

// Whether an input has one value for each row, and not for each token.
bool is_of_row(const std::string& name) { return name == kPositions || name == kQuestionTypes; }

// What a model's graph reads and returns, under the names of optimum's exports.
struct Signature {
  OnnxNames names;
  bool has_choices = false;  // inputs [batch, choices, sequence]
  // Further input [batch]: the token of each row whose next word is predicted.
  bool has_positions = false;
};

// A decision that is read from the logits of words, those of the options' labels.
bool decides_by_words(const MergedModel& model) {
  return predicts_words(model.head) && is_causal(model.config) &&
         FileSystem::local().exists(join_path(model.folder, kDecisionFile));
}

// Whether the tokenizer numbers the texts of a pair, and the model reads these numbers.
bool reads_token_types(const MergedModel& model) {
  if (model.config.type_vocab_size < 2) return false;
  try {
    const auto tokenizer = load_tokenizer(model.folder);
    const std::vector<int32_t> text = tokenizer->encode("a");
    const ModelText pair = tokenizer->combine(text, text);
    return std::ranges::any_of(pair.token_types, [](uint8_t type) { return type != 0; });
  } catch (const Error&) {
    // One that is not available here is transformers' TokenizersBackend, which makes none. Without
    // a tokenizer the types come from the same source as the ids.
    return !FileSystem::local().exists(join_path(model.folder, kTokenizerFile));
  }
}

Signature signature_of(const MergedModel& model) {
  Signature all{.names = {{"input_ids", "attention_mask"}, {"logits"}}};
  if (reads_token_types(model)) all.names.inputs.emplace_back("token_type_ids");
  all.has_positions = decides_by_words(model);
  if (all.has_positions) all.names.inputs.emplace_back(kPositions);
  if (!model.head) return all;
  switch (*model.head) {
    case Head::kPretraining:
      all.names.outputs = {"prediction_logits", "seq_relationship_logits"};
      break;
    case Head::kQuestionAnswering:
      all.names.outputs = {"start_logits", "end_logits"};
      break;
    case Head::kEmbedding:
      all.names.outputs = {"sentence_embedding"};
      // What sentence-transformers reads first, and pools itself.
      if (!is_causal(model.config)) all.names.outputs = {"last_hidden_state", "sentence_embedding"};
      break;
    case Head::kMultipleChoice:
      all.has_choices = true;
      break;
    case Head::kDecision:
      if (model.config.laya) all.names.inputs.emplace_back(kQuestionTypes);
      break;
    case Head::kSequenceClassification:
    case Head::kTokenClassification:
      break;
  }
  return all;
}

// The outputs of a signature.
std::vector<Tensor> outputs_of(Model& model, const MergedModel& source, const ModelInput& input,
                               const Tensor& positions) {
  if (positions.defined()) {
    const Tensor rows = at::arange(positions.size(0), positions.options());
    return {model.logits(input, rows * input.input_ids.size(1) + positions)};
  }
  if (predicts_words(source.head) || source.head == Head::kDecision) {
    const Encoded encoded = model.encode(input);
    std::vector<Tensor> outputs = {model.head_logits(input, encoded.hidden)};
    if (source.head == Head::kPretraining) {
      outputs.push_back(model.next_sentence(input, encoded));
    }
    return outputs;
  }
  if (source.head == Head::kEmbedding && !is_causal(source.config)) {
    const Encoded encoded = model.encode(input);
    return {encoded.hidden, model.head_logits(input, encoded.hidden)};
  }
  const Tensor logits = model.logits(input);
  if (source.head != Head::kQuestionAnswering) return {logits};
  return {logits.select(-1, 0), logits.select(-1, 1)};
}

RecordedGraph recorded(const MergedModel& source, const OnnxNames& names) {
  const c10::Device meta(c10::kMeta);
  const auto model = make_model(source.head, source.config, 0, meta, {.draw_weights = false});
  RecordedPass pass;
  pass.parameters = model->parameters();
  pass.most_tokens = source.config.max_length();
  pass.inputs = [&](int64_t batch, int64_t tokens) {
    std::vector<Tensor> inputs;
    for (const std::string& name : names.inputs) {
      const at::ScalarType type = name == "attention_mask" ? at::kBool : at::kLong;
      std::vector<int64_t> shape = {batch};
      if (!is_of_row(name)) shape.push_back(tokens);
      inputs.push_back(at::empty(shape, at::TensorOptions(type).device(meta)));
    }
    return inputs;
  };
  pass.run = [&](const std::vector<Tensor>& inputs) {
    ModelInput input{.input_ids = inputs[0], .attention_mask = inputs[1]};
    Tensor positions;
    for (size_t i = 2; i < inputs.size(); ++i) {
      const std::string& name = names.inputs[i];
      (name == kPositions       ? positions
       : name == kQuestionTypes ? input.question_types
                                : input.token_type_ids) = inputs[i];
    }
    return outputs_of(*model, source, input, positions);
  };
  return record_graph(pass);
}

// Inputs are int64 whatever the graph reads; of several choices they have one dimension more.
void add_ports(OnnxModel& model, const RecordedGraph& graph, const Signature& signature,
               const OnnxNames& inner) {
  using Shape = std::vector<std::variant<int64_t, std::string>>;
  const auto is_read = [nodes = model.nodes](const std::string& name) {
    return std::ranges::any_of(nodes, [&](const OnnxNode& node) {
      return std::ranges::find(node.inputs, name) != node.inputs.end();
    });
  };
  std::vector<OnnxNode> first;
  Shape rows = {std::string("batch_size")};
  if (signature.has_choices) rows.emplace_back(std::string("num_choices"));
  for (size_t i = 0; i < inner.inputs.size(); ++i) {
    const std::string& name = signature.names.inputs[i];
    if (!is_read(inner.inputs[i])) continue;  // types of tokens in a model without them
    Shape shape = rows;
    if (!is_of_row(name)) shape.emplace_back(std::string("sequence_length"));
    model.inputs.push_back({.name = name, .type = at::kLong, .shape = shape});
    const bool is_mask = graph.values[graph.inputs[i]].type == at::kBool;
    std::string from = name;
    if (signature.has_choices) {
      const std::string to = is_mask ? name + ".rows" : inner.inputs[i];
      first.push_back({"Flatten", {from}, {to}, {{"axis", int64_t{2}}}});
      from = to;
    }
    if (is_mask) first.push_back({"Cast", {from}, {inner.inputs[i]}, {{"to", int64_t{9}}}});
  }
  model.nodes.insert(model.nodes.begin(), first.begin(), first.end());
  for (size_t i = 0; i < inner.outputs.size(); ++i) {
    Shape shape;
    for (const DynamicSize& size : graph.values[graph.outputs[i]].shape) {
      if (size.is_constant()) {
        shape.emplace_back(size.constant);
      } else {
        shape.emplace_back(std::string(size.batch == 1 ? "batch_size" : "sequence_length"));
      }
    }
    const std::string& name = signature.names.outputs[i];
    if (signature.has_choices) {  // [batch choices, 1] -> [batch, choices]
      shape = rows;
      model.nodes.push_back({"Shape",
                             {signature.names.inputs[0]},
                             {"choices.shape"},
                             {{"start", int64_t{0}}, {"end", int64_t{2}}}});
      model.nodes.push_back({"Reshape", {inner.outputs[i], "choices.shape"}, {name}});
    }
    model.outputs.push_back({.name = name, .type = at::kFloat, .shape = shape});
  }
}

OnnxModel onnx_model(const MergedModel& model, OnnxWeights type) {
  const Signature signature = signature_of(model);
  const RecordedGraph graph = recorded(model, signature.names);
  OnnxNames inner = signature.names;
  for (size_t i = 0; i < inner.inputs.size(); ++i) {
    const bool is_mask = graph.values[graph.inputs[i]].type == at::kBool;
    if (is_mask || signature.has_choices) inner.inputs[i] += ".read";
  }
  if (signature.has_choices) inner.outputs[0] += ".rows";
  OnnxModel result = onnx_graph(graph, inner, model, type);
  add_ports(result, graph, signature, inner);
  return result;
}

// A Python program that uses the file.
std::string example_text(const MergedModel& model, const OnnxModel& onnx, const std::string& name) {
  std::string inputs;
  for (const OnnxPort& port : onnx.inputs) inputs += "\"" + port.name + "\", ";
  std::string outputs;
  for (const OnnxPort& port : onnx.outputs) outputs += (outputs.empty() ? "" : ", ") + port.name;
  const bool has_choices = model.head == Head::kMultipleChoice;
  std::string further;
  if (onnx.inputs.back().name == kPositions) {
    further = "texts[\"positions\"] = texts[\"attention_mask\"].cumsum(1).argmax(1)\n";
  }
  if (onnx.inputs.back().name == kQuestionTypes) {
    further = "texts[\"qtype\"] = texts[\"attention_mask\"][:, 0] * 0  # a choice\n";
  }
  return format_text(
      "import onnxruntime, os, transformers; os.chdir(os.path.dirname(os.path.abspath(__file__)))\n"
      "texts = transformers.AutoTokenizer.from_pretrained(\".\")({}, padding=True, "
      "return_tensors=\"np\")\n"
      "{}print(onnxruntime.InferenceSession({}).run(None, {{name: texts[name]{} for name in "
      "({})}}))  # {}\n",
      has_choices ? "[\"A question.\"] * 2, [\"One answer.\", \"Another.\"]"
                  : "[\"A text.\", \"Another text.\"]",
      further, nlohmann::json(name).dump(), has_choices ? "[None]" : "",
      inputs.substr(0, inputs.size() - 1), outputs);
}

// The names and contents of the files that go with it: tokenizer, configuration and how to use
// them.
using SmallFiles = std::vector<std::pair<std::string, std::string>>;
SmallFiles small_files(const MergedModel& model, const OnnxModel& onnx, const std::string& name) {
  FileSystem& files = FileSystem::local();
  SmallFiles all;
  const auto is_taken = [&](const std::string& one) {
    return std::ranges::any_of(all, [&](const auto& file) { return file.first == one; });
  };
  std::vector<std::string> folders = {model.folder, model.base};
  const std::string laya = join_path(model.folder, kLayaTokenizerFolder);
  if (model.config.laya && files.exists(laya)) folders.push_back(laya);
  for (const std::string& folder : folders) {
    for (const std::string& one : files.list(folder)) {
      const bool is_wanted = is_tokenizer_file_name(one) || one == kDecisionFile ||
                             one == kDecisionTemplateFile || one == kCalibrationFile ||
                             one == kLayaFile ||
                             (one == kChatTemplateFile && decides_by_words(model));
      if (is_wanted && !is_taken(one))
        all.emplace_back(one, files.read_all(join_path(folder, one)));
    }
  }
  if (model.head == Head::kEmbedding) {
    for (const auto& file : embedding_files(model.config, model.config.max_length())) {
      all.push_back(file);
    }
  }
  all.emplace_back(kConfigFile, model_config_json(model.config, model.architecture) + "\n");
  const std::string example = name.substr(0, name.size() - std::string_view(".onnx").size());
  all.emplace_back(example + ".py", example_text(model, onnx, name));
  return all;
}

void check_exportable(const MergedModel& model) {
  const auto refuse = [&](const std::string& why) { throw Error(ErrorKind::kUsage, why); };
  const bool writes = is_causal(model.config) && predicts_words(model.head);
  if (writes && !decides_by_words(model)) {
    refuse("a " + model.config.model_type +
           " that writes text is exported without its cache, so that each token would cost the "
           "whole text: let OUT end in .gguf");
  }
  if (model.config.attention_type == "block_sparse") {
    refuse(
        "ONNX has full attention for a big_bird, and config.json says attention_type: "
        "block_sparse; with attention_type: original_full there it is exported so");
  }
  if (!model.whole_config.empty()) {
    refuse("the model is one of images and text, which ONNX has no form for here");
  }
  if (model.head == Head::kEmbedding) require_embedding(model.config, model.folder);
}

OnnxWeights weights_type(const MergedModel& model, const std::string& outtype) {
  if (outtype == "int8") return OnnxWeights::kInt8;
  if (outtype == "f16") return OnnxWeights::kFloat16;
  if (outtype == "f32") return OnnxWeights::kFloat32;
  if (outtype == "auto") {
    return model.dtype == at::kFloat ? OnnxWeights::kFloat32 : OnnxWeights::kFloat16;
  }
  throw Error(ErrorKind::kUsage,
              "--outtype " + shortened(outtype, 40) +
                  ": an ONNX file holds auto, f32 or f16, and int8 by --quantize int8");
}

// Copies the weights of the file that was written, as its types hold them, into a model.
void load_onnx(Model& model, const StagedOutput& output, const StagedOutput* data) {
  const auto file = FileSystem::local().open(output.path());
  const auto second = data == nullptr ? nullptr : FileSystem::local().open(data->path());
  std::map<std::string, OnnxEntry> entries;
  std::vector<std::string> names;
  for (const OnnxEntry& entry : read_onnx(*file, output.path())) {
    entries[entry.name] = entry;
    const std::string name = entry.name.ends_with(kTransposedEnd)
                                 ? entry.name.substr(0, entry.name.rfind('.'))
                                 : entry.name;
    const auto has_name = [&](const Weight& weight) { return weight.name() == name; };
    if (std::ranges::any_of(model.weights(), has_name)) names.push_back(name);
  }
  const auto values_of = [&](const OnnxEntry& entry) {
    Tensor values = at::empty(entry.shape, at::TensorOptions(entry.type));
    (entry.location.empty() ? *file : *second)
        .read_at(entry.offset, values.mutable_data_ptr(), entry.bytes);
    return values.to(at::kFloat);
  };
  const auto read = [&](const std::string& name) {
    const auto transposed = entries.find(name + kTransposedEnd);
    const bool is_transposed = transposed != entries.end();
    const OnnxEntry& entry = is_transposed ? transposed->second : entries.at(name);
    Tensor values = values_of(entry);
    if (is_transposed) values = values.t();
    if (entry.type != at::kChar) return values;
    for (const bool is_column : {true, false}) {
      const auto scales = entries.find(scales_name(name, is_column));
      if (scales != entries.end()) return values * values_of(scales->second).view({-1, 1});
    }
    throw Error(ErrorKind::kData, "the codes of '" + name + "' have no scales");
  };
  (void)load_weights(model, names, read, output.path());
}

// Throws Error(kUsage) if a file would be replaced that is not the same and may not be.
void check_replaceable(const SmallFiles& others, const std::string& folder, bool overwrite) {
  FileSystem& files = FileSystem::local();
  for (const auto& [file, text] : others) {
    const std::string path = join_path(folder, file);
    if (!files.exists(path) || overwrite || files.read_all(path) == text) continue;
    throw Error(ErrorKind::kUsage,
                "'" + path +
                    "', which goes with the file, exists; choose another folder, or "
                    "replace it with --overwrite");
  }
}

// The file gets its name last, so that where it is the export is complete. One that is replaced
// goes first where weights are in a second file: it must not read those of another.
void commit(StagedOutput& output, StagedOutput* data, const std::string& out, bool overwrite,
            const SmallFiles& others) {
  FileSystem& files = FileSystem::local();
  const std::string second = out + "_data";
  const bool is_replaced = overwrite && files.exists(out);
  if (is_replaced && (data != nullptr || files.exists(second))) files.remove_file(out);
  if (is_replaced && data == nullptr && files.exists(second)) files.remove_file(second);
  for (const auto& [file, text] : others) {
    const std::string path = join_path(parent_path(out), file);
    files.make_directories(parent_path(path));
    files.write_atomically(path, text);
  }
  if (data != nullptr) data->commit();
  output.commit();
}

}  // namespace

ExportReport export_onnx(const MergedModel& model, const std::string& out,
                         const ExportOptions& options) {
  check_exportable(model);
  const OnnxWeights type = weights_type(model, options.outtype);
  OnnxModel onnx;
  try {
    onnx = onnx_model(model, type);
  } catch (const Error& error) {
    throw Error(ErrorKind::kData, "model_type '" + model.config.model_type +
                                      "' is not exported to ONNX: " + error.what() +
                                      "; export a folder, or a GGUF file if llama.cpp has it");
  }
  onnx.metadata = {{"model_type", model.config.model_type}, {"architecture", model.architecture}};
  FileSystem& files = FileSystem::local();
  const std::string name = file_name(out);
  const std::string folder = parent_path(out);
  const SmallFiles others = small_files(model, onnx, name);
  check_replaceable(others, folder, options.overwrite);
  if (files.type(out) == FileType::kDirectory) {
    throw Error(ErrorKind::kUsage, "'" + out + "' is a folder; choose another name");
  }
  ExternalData external;
  if (onnx_bytes(onnx, external) > kMostOnnxBytes) {
    external = plan_external_data(onnx, name + "_data");
  }
  StagedOutput output(out, options.overwrite, onnx_bytes(onnx, external) + external.bytes);
  std::optional<StagedOutput> data;
  if (external.bytes > 0) data.emplace(out + "_data", options.overwrite, external.bytes);
  const auto write = [](StagedOutput& to, const auto& writer) {
    const auto file = to.create();
    writer(*file);
    file->sync();
    file->close();
  };
  write(output, [&](WritableFile& file) { write_onnx(file, onnx, external); });
  if (data) {
    write(*data, [&](WritableFile& file) { write_external_data(file, onnx, external); });
  }
  if (options.verify) {
    output.verify();
    if (data) data->verify();
  }
  const std::string type_name = type == OnnxWeights::kInt8      ? "int8"
                                : type == OnnxWeights::kFloat16 ? "float16"
                                                                : "float32";
  ExportReport report = {.bytes = output.bytes() + (data ? data->bytes() : 0),
                         .tensors = std::ssize(onnx.initializers),
                         .type = type_name};
  if (options.compares_logits) {
    report.logits = compare_logits(
        model, model.config,
        [&](Model& exported) { load_onnx(exported, output, data ? &*data : nullptr); },
        type == OnnxWeights::kInt8);
  }
  const auto is_tokenizer = [](const auto& file) { return is_tokenizer_file_name(file.first); };
  if (std::ranges::none_of(others, is_tokenizer)) {
    log::warning("'" + model.folder + "' has no tokenizer, so that " + out + " goes without one");
  }
  commit(output, data ? &*data : nullptr, out, options.overwrite, others);
  return report;
}

}  // namespace finetune
