// SPDX-License-Identifier: MIT
#include "state/optimizer_safetensors.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <map>
#include <set>

#include "finetune/base/error.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/state/optimizer_torch.h"
#include "state/optimizer_source.h"

namespace finetune {
namespace {

constexpr char kVersionKey[] = "format_version";
constexpr char kVersion[] = "1";
constexpr char kKindKey[] = "optimizer";
constexpr char kStep[] = "step";

std::string tensor_name(const std::string& parameter, const std::string& state) {
  return parameter + "." + state;
}

// Returns "adamw_companded_8bit"; with several kinds "sgd+adamw", and each parameter has its own
// entry.
std::string kinds_text(const Optimizer& optimizer) {
  if (const OptimizerKind* kind = optimizer.only_kind()) return kind->name;
  std::vector<std::string> names;
  for (const ParameterGroup& group : optimizer.groups()) {
    if (std::ranges::find(names, group.options.kind) == names.end()) {
      names.push_back(group.options.kind);
    }
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : "+") + name;
  return text;
}

class SafetensorsSource final : public OptimizerSource {
 public:
  SafetensorsSource(SafetensorsFile file, const Optimizer& optimizer)
      : OptimizerSource(file.path(), optimizer), file_(std::move(file)) {
    const std::string& text = file_.metadata().at(kKindKey);
    only_kind_ = find_optimizer(text);
    if (only_kind_ == nullptr && text.find('+') == std::string::npos) reject_kind(text);
    for (size_t i = 0; i < optimizer.slots().size(); ++i) kinds_.push_back(kind_in_file(i));
    check_names();
  }

  [[nodiscard]] const OptimizerKind& kind(size_t slot) const override { return *kinds_[slot]; }

  [[nodiscard]] Description describe(size_t slot) const override {
    const std::string step = tensor_name(name(slot), kStep);
    if (!file_.has(step)) return {};
    const TensorInfo& info = file_.info(step);
    if (info.dtype != DType::kI64 || !info.shape.empty()) reject(slot, kStep, "is not a number");
    const int64_t updates = checked_updates(slot, file_.read(step).item<double>());
    return {.has_state = true, .is_8bit = has_8bit_state(slot), .updates = updates};
  }

  void read(size_t slot, Optimizer::Slot& target) const override {
    for (const StateTensor& state : tensors(slot, target.is_8bit)) {
      if (state.table.defined()) continue;  // a constant that this program wrote
      Tensor values = target.at(state.name);
      const std::string stored = tensor_name(name(slot), state.name);
      if (!file_.has(stored)) reject(slot, state.name, "is missing");
      const TensorInfo& info = file_.info(stored);
      if (at::IntArrayRef(info.shape) != values.sizes()) {
        reject(slot, state.name, "has another shape than the model gives it");
      }
      if (info.bytes != values.nbytes()) {
        reject(slot, state.name, "has another type than its optimizer gives it");
      }
      file_.read_into(stored, values);
      check_values(slot, state, values);
    }
  }

 private:
  [[noreturn]] void reject_kind(const std::string& kind) const {
    throw Error(ErrorKind::kData, path() + ": is of the optimizer '" + kind +
                                      "', which this finetune does not keep there");
  }

  // Returns the kind in the file; for a parameter without an entry (no state), its configured kind.
  [[nodiscard]] const OptimizerKind* kind_in_file(size_t slot) const {
    if (only_kind_ != nullptr) return only_kind_;
    const auto entry = file_.metadata().find(tensor_name(name(slot), kKindKey));
    if (entry == file_.metadata().end()) return &optimizer().kind_of(optimizer().slots()[slot]);
    const OptimizerKind* kind = find_optimizer(entry->second);
    if (kind == nullptr) reject_kind(entry->second);
    return kind;
  }

  [[nodiscard]] bool has_8bit_state(size_t slot) const {
    if (!kind(slot).is_8bit) return false;
    const std::string first = tensor_name(name(slot), tensors(slot, true).front().name);
    return !file_.has(first) || file_.info(first).dtype != DType::kF32;
  }

  // Rejects unknown tensors: they belong to another model or version.
  void check_names() const {
    std::set<std::string> prefixes;
    for (const Parameter& p : optimizer().parameters().parameters()) prefixes.insert(p.name());
    for (const TensorInfo& info : file_.tensors()) {
      const size_t dot = info.name.rfind('.');
      if (dot == std::string::npos || prefixes.count(info.name.substr(0, dot)) == 0) {
        throw Error(ErrorKind::kData, path() + ": has a tensor '" + info.name +
                                          "', which belongs to no parameter of the model");
      }
    }
  }

  SafetensorsFile file_;
  const OptimizerKind* only_kind_ = nullptr;
  std::vector<const OptimizerKind*> kinds_;  // by slot
};

}  // namespace

std::string correction_name(const std::string& parameter) {
  return tensor_name(parameter, "correction");
}

bool needs_optimizer_safetensors(const Optimizer& optimizer) {
  return !transformers_reads_states(optimizer) || optimizer.parameters().has_corrections();
}

OptimizerTensors optimizer_to_safetensors(const Optimizer& optimizer, Snapshot* snapshot,
                                          StateGather* gather) {
  FT_CHECK(needs_optimizer_safetensors(optimizer), "nothing for optimizer.safetensors");
  OptimizerTensors file{.tensors = {}, .metadata = {{"format", "pt"}, {kVersionKey, kVersion}}};
  const auto add = [&](const std::string& name, const Tensor& values) {
    file.tensors.push_back(lazy_or_held(snapshot, name, values));
  };
  const std::vector<Parameter>& parameters = optimizer.parameters().parameters();
  for (const Parameter& parameter : parameters) {
    if (!parameter.correction.defined()) continue;
    if (parameter.is_divided()) {
      FT_CHECK(gather != nullptr, "a divided parameter");
      file.tensors.push_back(gather->correction(parameter));
      file.tensors.back().name = correction_name(parameter.name());
    } else {
      add(correction_name(parameter.name()), parameter.correction);
    }
  }
  if (transformers_reads_states(optimizer)) return file;
  file.metadata[kKindKey] = kinds_text(optimizer);
  for (size_t i = 0; i < optimizer.slots().size(); ++i) {
    const Optimizer::Slot& slot = optimizer.slots()[i];
    if (slot.updates == 0) continue;
    const std::string& name = parameters[slot.parameter].name();
    if (optimizer.only_kind() == nullptr) {
      file.metadata[tensor_name(name, kKindKey)] = optimizer.kind_of(slot).name;
    }
    file.tensors.push_back(
        lazy_tensor(tensor_name(name, kStep), at::full({}, slot.updates, at::kLong)));
    for (LazyTensor& values : state_tensors(optimizer, i, snapshot, gather)) {
      values.name = tensor_name(name, values.name);
      file.tensors.push_back(std::move(values));
    }
  }
  return file;
}

std::string optimizer_tensors_path(const std::string& folder) {
  return join_path(folder, checkpoint::kOptimizerTensorsFile);
}

SafetensorsFile open_optimizer_tensors(FileSystem& files, const std::string& path) {
  SafetensorsFile file = SafetensorsFile::open(files, path);
  const auto version = file.metadata().find(kVersionKey);
  if (version == file.metadata().end() || version->second != kVersion) {
    throw Error(ErrorKind::kData,
                path + ": has the format version " +
                    (version == file.metadata().end() ? "(none)" : version->second) +
                    ", this finetune reads " + kVersion +
                    "; continue with the version that wrote it");
  }
  return file;
}

std::unique_ptr<OptimizerSource> open_optimizer_safetensors(FileSystem& files,
                                                            const std::string& path,
                                                            const Optimizer& optimizer) {
  SafetensorsFile file = open_optimizer_tensors(files, path);
  if (file.metadata().count(kKindKey) == 0) return nullptr;
  return std::make_unique<SafetensorsSource>(std::move(file), optimizer);
}

}  // namespace finetune
