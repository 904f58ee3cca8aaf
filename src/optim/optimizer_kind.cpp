// SPDX-License-Identifier: MIT
#include "finetune/optim/optimizer_kind.h"

#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "finetune/base/error.h"

namespace finetune {

#define FINETUNE_OPTIMIZER(NAME, ...) OptimizerKind NAME##_optimizer();
#include "finetune/config/optimizers.def"
#undef FINETUNE_OPTIMIZER

namespace {

OptimizerKind named_kind(OptimizerKind kind, std::string name) {
  kind.name = std::move(name);
  return kind;
}

std::deque<OptimizerKind>& kind_rows() {
  static std::deque<OptimizerKind> rows = {
#define FINETUNE_OPTIMIZER(NAME, ...) named_kind(NAME##_optimizer(), #NAME),
#include "finetune/config/optimizers.def"
#undef FINETUNE_OPTIMIZER
  };
  return rows;
}

// Returns "a, b and c".
std::string listed_kinds(bool (*takes)(const OptimizerKind&)) {
  std::vector<std::string> names;
  for (const OptimizerKind& kind : kind_rows()) {
    if (takes(kind)) names.push_back(kind.name);
  }
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  }
  return text;
}

[[noreturn]] void reject_moments(const std::string& kind) {
  throw Error(ErrorKind::kConfig,
              "optim: the state of '" + kind + "' has no moments to convert; " +
                  listed_kinds([](const OptimizerKind& row) { return row.has_moments; }) + " have");
}

bool has_moments(const std::string& name) {
  const OptimizerKind* kind = find_optimizer(name);
  return kind != nullptr && kind->has_moments;
}

}  // namespace

OptimizerValue OptimizerOptions::value_of(const char* name) const {
  if (const auto given = arguments.find(name); given != arguments.end()) return given->second;
  const OptimizerNames* names = find_optimizer_names(kind);
  FT_CHECK(names != nullptr, "no optimizer '" + kind + "'");
  const auto found = std::ranges::find(names->arguments, name, &OptimizerArgument::name);
  FT_CHECK(found != names->arguments.end(), "'" + kind + "' has no argument " + name);
  return found->fallback;
}

Tensor* OptimizerSlot::find(const std::string& name) {
  for (auto& [key, tensor] : state) {
    if (key == name) return &tensor;
  }
  return nullptr;
}

const Tensor& OptimizerSlot::at(const std::string& name) const {
  for (const auto& [key, tensor] : state) {
    if (key == name) return tensor;
  }
  FT_CHECK(false, "no state of the name " + name);
}

void UpdateRule::update_all(const std::vector<ParameterUpdate>& updates) {
  for (const ParameterUpdate& one : updates) update(one);
}

Moments UpdateRule::read_moments(const OptimizerSlot& /*slot*/) const {
  reject_moments(options_.kind);
}

void UpdateRule::write_moments(OptimizerSlot& /*slot*/, const Moments& /*moments*/) const {
  reject_moments(options_.kind);
}

const std::deque<OptimizerKind>& optimizers() { return kind_rows(); }

const OptimizerKind* find_optimizer(const std::string& name) {
  const auto found = std::ranges::find(kind_rows(), name, &OptimizerKind::name);
  return found == kind_rows().end() ? nullptr : &*found;
}

const OptimizerKind& optimizer_of_kind(const std::string& name) {
  if (const OptimizerKind* kind = find_optimizer(name)) return *kind;
  throw Error(ErrorKind::kConfig, "optim: '" + name + "' is not an optimizer; " +
                                      listed_kinds([](const OptimizerKind&) { return true; }) +
                                      " are");
}

std::vector<std::string> optimizer_kinds() {
  std::vector<std::string> names;
  for (const OptimizerKind& kind : kind_rows()) names.push_back(kind.name);
  return names;
}

void add_optimizer(OptimizerNames names, OptimizerKind kind) {
  kind_rows().push_back(named_kind(std::move(kind), names.name));
  add_optimizer_names(std::move(names));
}

std::unique_ptr<UpdateRule> make_update_rule(const OptimizerOptions& options) {
  return optimizer_of_kind(options.kind).make(options);
}

namespace {

void create_state_of(const OptimizerOptions& options, at::IntArrayRef sizes, c10::Device device,
                     OptimizerSlot& slot) {
  slot.state.clear();
  for (const StateTensor& tensor :
       optimizer_of_kind(options.kind).state(sizes, slot.is_8bit, options)) {
    slot.state.emplace_back(
        tensor.name, tensor.table.defined()
                         ? tensor.table.to(device)
                         : at::zeros(tensor.shape, at::TensorOptions(device).dtype(tensor.type)));
  }
}

}  // namespace

void create_state(const OptimizerOptions& options, const Parameter& parameter,
                  OptimizerSlot& slot) {
  create_state_of(options, parameter.weight.sizes(), parameter.weight.device(), slot);
}

void create_whole_state(const OptimizerOptions& options, const Parameter& parameter,
                        OptimizerSlot& slot, c10::Device device) {
  create_state_of(options, parameter.handle.sizes(), device, slot);
}

std::vector<int64_t> state_offsets(const OptimizerOptions& options, bool is_8bit, int64_t first) {
  std::vector<int64_t> offsets;
  for (const StateTensor& tensor :
       optimizer_of_kind(options.kind).state(at::IntArrayRef(&first, 1), is_8bit, options)) {
    const bool is_shared = tensor.table.defined() || tensor.shape.empty();
    offsets.push_back(is_shared ? 0 : c10::multiply_integers(tensor.shape));
  }
  return offsets;
}

int64_t state_bytes(const OptimizerOptions& options, ParameterRole role, at::IntArrayRef sizes) {
  const OptimizerKind& kind = optimizer_of_kind(options.kind);
  const auto product = [](at::IntArrayRef shape) {
    return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  };
  const bool is_8bit = kind.is_8bit && kind.is_8bit(role, product(sizes), options);
  int64_t bytes = 0;
  for (const StateTensor& tensor : kind.state(sizes, is_8bit, options)) {
    if (tensor.table.defined() || tensor.shape.empty()) continue;
    bytes += product(tensor.shape) * static_cast<int64_t>(c10::elementSize(tensor.type));
  }
  return bytes;
}

void check_conversion(const std::string& from, const std::string& to) {
  if (from == to || (has_moments(from) && has_moments(to))) return;
  throw Error(ErrorKind::kConfig, "optim: the state of '" + from + "' cannot become one of '" + to +
                                      "'; resume with '" + from + "' to keep it");
}

}  // namespace finetune
