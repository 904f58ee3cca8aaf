// SPDX-License-Identifier: MIT
#include "finetune/state/optimizer_files.h"

#include <c10/core/GradMode.h>

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/tensor/finite.h"
#include "finetune/tensor/safetensors.h"
#include "finetune/tensor/torch_file.h"
#include "state/optimizer_safetensors.h"
#include "state/optimizer_source.h"

namespace finetune {
namespace {

using checkpoint::CheckpointFile;

std::string described(const std::string& kind) {
  const OptimizerNames* names = find_optimizer_names(kind);
  return names == nullptr || names->label.empty() ? kind : names->label;
}

const std::string& name_of(const Optimizer& optimizer, const Optimizer::Slot& slot) {
  return optimizer.parameters().parameters()[slot.parameter].name();
}

// Restores slots one after another and records conversions.
class RestoringOptimizer {
 public:
  RestoringOptimizer(Optimizer& optimizer, const OptimizerSource& source)
      : optimizer_(optimizer), source_(source) {
    for (size_t i = 0; i < optimizer_.slots().size(); ++i) {
      Optimizer::Slot& slot = optimizer_.slots()[i];
      if (slot.is_elsewhere) {
        Optimizer::Slot checked = slot;  // validate it like its owner does, then discard it
        restore(i, checked);
        slot.updates = checked.updates;
      } else if (parameter_of(slot).is_divided()) {
        Optimizer::Slot whole = slot;
        restore(i, whole);
        slot.updates = whole.updates;
        slot.state = part_of_state(slot, std::move(whole.state));
      } else {
        restore(i, slot);
      }
    }
  }

  [[nodiscard]] int64_t converted() const { return converted_; }
  [[nodiscard]] const std::string& without_state() const { return without_state_; }

 private:
  void restore(size_t index, Optimizer::Slot& slot) {
    const OptimizerSource::Description description = source_.describe(index);
    if (!description.has_state) {
      without_state_ += (without_state_.empty() ? "" : ", ") + name_of(optimizer_, slot);
      return;
    }
    const OptimizerKind& kind = source_.kind(index);
    const bool same_width = !kind.is_8bit || description.is_8bit == slot.is_8bit;
    if (&kind == &optimizer_.kind_of(slot) && same_width) {
      read(optimizer_.options_of(slot), index, slot, description);
    } else {
      convert(index, slot, description);
    }
  }

  void read(const OptimizerOptions& options, size_t index, Optimizer::Slot& slot,
            const OptimizerSource::Description& description) const {
    const Parameter& parameter = parameter_of(slot);
    if (parameter.is_divided()) {
      create_whole_state(options, parameter, slot, c10::Device(c10::kCPU));
    } else {
      create_state(options, parameter, slot);
    }
    const bool keeps_state = !slot.state.empty();
    source_.read(index, slot);
    // Momentum that is missing in the file starts like in the first update.
    slot.updates = keeps_state && slot.state.empty() ? 0 : description.updates;
  }

  void convert(size_t index, Optimizer::Slot& slot,
               const OptimizerSource::Description& description) {
    const OptimizerOptions options = options_for(optimizer_, slot, source_.kind(index));
    Optimizer::Slot stored = slot;
    stored.is_8bit = description.is_8bit;
    read(options, index, stored, description);
    const Moments moments = make_update_rule(options)->read_moments(stored);
    stored.state.clear();
    if (parameter_of(slot).is_divided()) {
      create_whole_state(optimizer_.options_of(slot), parameter_of(slot), slot,
                         c10::Device(c10::kCPU));
      make_update_rule(optimizer_.options_of(slot))->write_moments(slot, moments);
    } else {
      set_moments(optimizer_, slot, moments);
    }
    slot.updates = description.updates;
    ++converted_;
  }

  [[nodiscard]] const Parameter& parameter_of(const Optimizer::Slot& slot) const {
    return optimizer_.parameters().parameters()[slot.parameter];
  }

  // Of all values of a divided parameter, copies of those of this rank.
  using State = decltype(Optimizer::Slot::state);
  [[nodiscard]] State part_of_state(const Optimizer::Slot& like, State whole) const {
    if (whole.empty()) return whole;
    Optimizer::Slot own = like;
    optimizer_.create_state(own);
    const std::vector<int64_t> offsets =
        state_offsets(optimizer_.options_of(like), like.is_8bit, parameter_of(like).part().first);
    const std::vector<StateTensor> kinds = optimizer_.kind_of(like).state(
        parameter_of(like).weight.sizes(), like.is_8bit, optimizer_.options_of(like));
    for (size_t i = 0; i < own.state.size(); ++i) {
      if (kinds[i].table.defined()) continue;
      const Tensor& values = own.state[i].second;
      const Tensor all = std::exchange(whole.at(i).second, {});
      values.copy_(all.view(-1).narrow(0, offsets[i], values.numel()).view_as(values));
    }
    return std::move(own.state);
  }

  Optimizer& optimizer_;
  const OptimizerSource& source_;
  int64_t converted_ = 0;
  std::string without_state_;
};

std::unique_ptr<OptimizerSource> open_source(const Optimizer& optimizer, FileSystem& files,
                                             const std::string& folder) {
  const std::string tensors = optimizer_tensors_path(folder);
  if (files.exists(tensors)) {
    std::unique_ptr<OptimizerSource> source = open_optimizer_safetensors(files, tensors, optimizer);
    if (source) return source;
  }
  const std::string pickled = join_path(folder, checkpoint::kOptimizerFile);
  if (!files.exists(pickled)) return nullptr;
  return open_optimizer_torch(files, pickled, optimizer);
}

// Pairs of a kind in the file and the different configured kind, each pair once.
using KindChanges = std::vector<std::pair<std::string, std::string>>;
KindChanges changed_kinds(const Optimizer& optimizer, const OptimizerSource& source) {
  KindChanges changes;
  for (size_t i = 0; i < optimizer.slots().size(); ++i) {
    const std::pair change(source.kind(i).name, optimizer.kind_of(optimizer.slots()[i]).name);
    if (change.first == change.second) continue;
    if (std::ranges::find(changes, change) == changes.end()) changes.push_back(change);
  }
  return changes;
}

// Returns why the states cannot be converted to the configured kinds; empty if they can.
std::string inconvertible(const std::string& path, const KindChanges& changes) {
  try {
    for (const auto& [from, to] : changes) check_conversion(from, to);
    return "";
  } catch (const Error& error) {
    return path + ": " + error.what();
  }
}

bool is_finite_throughout(const TorchValue& value) {
  if (value.is_stored_tensor()) return is_finite(value.as_stored_tensor().read());
  if (value.is_sequence()) {
    for (const TorchValue& item : value.as_sequence()) {
      if (!is_finite_throughout(item)) return false;
    }
  }
  if (value.is_dict()) {
    for (const auto& [key, item] : value.as_dict().items) {
      if (!is_finite_throughout(item)) return false;
    }
  }
  return true;
}

}  // namespace

std::vector<CheckpointFile> optimizer_checkpoint_files(const Optimizer& optimizer,
                                                       const OptimizerRates& rates,
                                                       Snapshot* snapshot, StateGather* gather) {
  std::vector<CheckpointFile> list;
  if (transformers_reads_states(optimizer)) {
    list.push_back({checkpoint::kOptimizerFile,
                    [value = optimizer_to_torch(optimizer, rates, snapshot, gather)](
                        WritableFile& file) { write_torch_file(file, value); }});
  }
  if (needs_optimizer_safetensors(optimizer)) {
    list.push_back(
        {checkpoint::kOptimizerTensorsFile,
         [content = optimizer_to_safetensors(optimizer, snapshot, gather)](WritableFile& file) {
           write_safetensors(file, content.tensors, content.metadata);
         }});
  }
  return list;
}

uint64_t optimizer_file_bytes(const Optimizer& optimizer) {
  uint64_t bytes = 0;
  for (const Parameter& parameter : optimizer.parameters().parameters()) {
    if (parameter.correction.defined()) {
      bytes += static_cast<uint64_t>(parameter.handle.numel());
    }
  }
  for (const Optimizer::Slot& slot : optimizer.slots()) {
    Optimizer::Slot fresh = slot;
    create_whole_state(optimizer.options_of(slot),
                       optimizer.parameters().parameters()[slot.parameter], fresh,
                       c10::Device(c10::kMeta));
    for (const auto& [name, values] : fresh.state) {
      if (values.defined()) bytes += values.nbytes();
    }
  }
  return bytes;
}

RestoredOptimizer restore_optimizer(Optimizer& optimizer, FileSystem& files,
                                    const std::string& folder) {
  const c10::NoGradGuard no_grad;
  const std::unique_ptr<OptimizerSource> source = open_source(optimizer, files, folder);
  if (!source) return {};
  const KindChanges changes = changed_kinds(optimizer, *source);
  const std::string problem = inconvertible(source->path(), changes);
  if (!problem.empty()) {
    return {.found = true, .exact = false, .lines = {problem + "; the optimizer starts fresh"}};
  }
  const RestoringOptimizer restored(optimizer, *source);
  if (!restored.without_state().empty()) {
    log::debug(source->path() + ": has no state for " + restored.without_state() +
               ", which the task does not use or which starts fresh");
  }
  RestoredOptimizer result{.found = true, .exact = restored.converted() == 0, .lines = {}};
  for (const auto& [from, to] : changes) {
    result.lines.push_back("optimizer states: " + described(from) + " -> " + described(to) +
                           ", converted");
  }
  if (changes.empty() && !result.exact) {
    result.lines.push_back(
        format_text("optimizer states: those of {} tensors are kept at another width than in the "
                    "checkpoint, converted",
                    restored.converted()));
  }
  return result;
}

std::optional<NonfiniteState> find_nonfinite_state(FileSystem& files, const std::string& folder) {
  const std::string tensors = optimizer_tensors_path(folder);
  if (files.exists(tensors)) {
    const SafetensorsFile file = SafetensorsFile::open(files, tensors);
    for (const TensorInfo& info : file.tensors()) {
      if (!is_finite(file.read(info.name))) return NonfiniteState{tensors, info.name};
    }
  }
  const std::string pickled = join_path(folder, checkpoint::kOptimizerFile);
  if (files.exists(pickled) && !is_finite_throughout(open_torch_file(files, pickled))) {
    return NonfiniteState{pickled, ""};
  }
  return std::nullopt;
}

}  // namespace finetune
