// SPDX-License-Identifier: MIT
#include "state/optimizer_safetensors.h"

#include <ATen/ops/full.h>

#include <map>
#include <set>

#include "finetune/base/error.h"
#include "state/optimizer_source.h"

namespace finetune {
namespace {

constexpr char kVersionKey[] = "format_version";
constexpr char kVersion[] = "1";
constexpr char kKindKey[] = "optimizer";
constexpr char kCompanded[] = "adamw_companded_8bit";
constexpr char kStep[] = "step";

std::string tensor_name(const std::string& parameter, const std::string& state) {
  return parameter + "." + state;
}

class SafetensorsSource final : public OptimizerSource {
 public:
  SafetensorsSource(SafetensorsFile file, const Optimizer& optimizer)
      : OptimizerSource(file.path(), file.metadata().at(kKindKey)),
        file_(std::move(file)),
        optimizer_(optimizer) {
    if (kind() != kCompanded) {
      throw Error(ErrorKind::kData, path() + ": is of the optimizer '" + kind() +
                                        "', which this finetune does not keep there");
    }
    check_names();
  }

  [[nodiscard]] Description describe(size_t slot) const override {
    const std::string step = tensor_name(name(slot), kStep);
    if (!file_.has(step)) return {};
    const TensorInfo& info = file_.info(step);
    if (info.dtype != DType::kI64 || !info.shape.empty()) {
      reject_state(path(), name(slot), kStep, "is no number");
    }
    return {.has_state = true,
            .is_8bit = true,
            .updates = checked_updates(path(), name(slot), file_.read(step).item<double>())};
  }

  void read(size_t slot, Optimizer::Slot& target) const override {
    for (auto& [state, values] : target.state) {
      const std::string stored = tensor_name(name(slot), state);
      if (!file_.has(stored)) reject_state(path(), name(slot), state, "is missing");
      const TensorInfo& info = file_.info(stored);
      if (at::IntArrayRef(info.shape) != values.sizes()) {
        reject_state(path(), name(slot), state, "has another shape than the model gives it");
      }
      if (info.bytes != values.nbytes()) {
        reject_state(path(), name(slot), state, "has another type than its optimizer gives it");
      }
      file_.read_into(stored, values);
      check_state_values(path(), name(slot), state, values);
    }
  }

 private:
  [[nodiscard]] const std::string& name(size_t slot) const {
    return optimizer_.parameters().parameters()[optimizer_.slots()[slot].parameter].name;
  }

  // Whatever has no place here is of another model or of another version.
  void check_names() const {
    std::set<std::string> prefixes;
    for (const Parameter& p : optimizer_.parameters().parameters()) prefixes.insert(p.name);
    for (const TensorInfo& info : file_.tensors()) {
      const size_t dot = info.name.rfind('.');
      if (dot == std::string::npos || prefixes.count(info.name.substr(0, dot)) == 0) {
        throw Error(ErrorKind::kData, path() + ": has a tensor '" + info.name +
                                          "', which belongs to no parameter of the model");
      }
    }
  }

  SafetensorsFile file_;
  const Optimizer& optimizer_;
};

}  // namespace

std::string correction_name(const std::string& parameter) {
  return tensor_name(parameter, "correction");
}

bool needs_optimizer_safetensors(const Optimizer& optimizer) {
  return optimizer.options().kind == kCompanded || optimizer.parameters().has_corrections();
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
    if (parameter.correction.defined()) add(correction_name(parameter.name), parameter.correction);
  }
  if (optimizer.options().kind != kCompanded) return file;
  file.metadata[kKindKey] = kCompanded;
  for (size_t i = 0; i < optimizer.slots().size(); ++i) {
    const Optimizer::Slot& slot = optimizer.slots()[i];
    if (slot.updates == 0) continue;
    const std::string& name = parameters[slot.parameter].name;
    file.tensors.push_back(
        lazy_tensor(tensor_name(name, kStep), at::full({}, slot.updates, at::kLong)));
    for (LazyTensor& values : state_tensors(optimizer, i, snapshot, gather)) {
      values.name = tensor_name(name, values.name);
      file.tensors.push_back(std::move(values));
    }
  }
  return file;
}

SafetensorsFile open_optimizer_tensors(FileSystem& files, const std::string& path) {
  SafetensorsFile file = SafetensorsFile::open(files, path);
  const auto version = file.metadata().find(kVersionKey);
  if (version == file.metadata().end() || version->second != kVersion) {
    throw Error(ErrorKind::kData,
                path + ": has the format version " +
                    (version == file.metadata().end() ? "(none)" : version->second) +
                    ", this finetune reads " + kVersion + "; go on with the version that wrote it");
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
