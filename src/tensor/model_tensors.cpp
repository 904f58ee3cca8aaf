// SPDX-License-Identifier: MIT
#include "finetune/tensor/model_tensors.h"

#include <algorithm>
#include <functional>
#include <set>

#include "finetune/base/error.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"
#include "finetune/tensor/weight_files.h"
#include "tensor/mxfp4_weights.h"
#include "tensor/safetensors_dtype.h"
#include "tensor/weight_file.h"

namespace finetune {
namespace {

// Returns the name in the model of a tensor of an adapter's file.
std::string adapted_name(const std::string& stored, const std::string& path) {
  if (!stored.starts_with(kAdapterPrefix)) {
    throw Error(ErrorKind::kData, "'" + path + "': tensor '" + stored + "' does not begin with '" +
                                      kAdapterPrefix + "'; it is no adapter as PEFT writes it");
  }
  std::string name = stored.substr(std::string_view(kAdapterPrefix).size());
  // A layer that PEFT wraps keeps its own parameters in a module of this name, and experts that it
  // wraps twice keep the inner adapter there.
  constexpr std::string_view kWrapped = ".base_layer.";
  const size_t wrapped = name.find(kWrapped);
  const bool is_adapter = name.find(".base_layer.lora_") != std::string::npos;
  if (wrapped != std::string::npos && !is_adapter) name.replace(wrapped, kWrapped.size(), ".");
  return name;
}

// A name in the model, and which of several equal parts of a stored tensor's rows it has.
struct NamedPart {
  std::string name;
  int64_t part = 0, parts = 1;
};

std::vector<NamedPart> named_parts(const std::string& stored, const StoredNames& rules) {
  std::vector<NamedPart> all = {{stored}};
  for (const StoredName& rule : rules) {
    const bool at_begin = rule.stored.starts_with('^');
    const std::string pattern = rule.stored.substr(at_begin ? 1 : 0);
    const size_t found = all.front().name.find(pattern);
    if (found == std::string::npos || (at_begin && found > 0)) continue;
    const auto parts = static_cast<int64_t>(rule.names.size());
    const NamedPart whole = all.front();
    all.clear();
    for (int64_t part = 0; part < parts; ++part) {
      all.push_back({whole.name, part, parts});
      all.back().name.replace(found, pattern.size(), rule.names[static_cast<size_t>(part)]);
    }
    if (parts > 1) break;
  }
  return all;
}

// A file whose tensors have other names in the model.
class RenamedWeights final : public WeightFile {
 public:
  using Rename = std::function<std::vector<NamedPart>(const std::string& stored)>;
  RenamedWeights(std::shared_ptr<const WeightFile> file, const Rename& rename)
      : file_(std::move(file)) {
    std::set<std::string> names;
    for (const TensorInfo& stored : file_->tensors()) names.insert(stored.name);
    for (const TensorInfo& stored : file_->tensors()) {
      for (NamedPart& own : rename(stored.name)) {
        // A tensor with exactly this name comes before one that is renamed to it.
        if (own.name != stored.name && names.contains(own.name)) continue;
        TensorInfo info = stored;
        info.name = own.name;
        if (own.parts > 1) take_part(stored, own, info);
        stored_[info.name] = {stored, std::move(own)};
        tensors_.push_back(std::move(info));
      }
    }
  }

  [[nodiscard]] const std::string& path() const override { return file_->path(); }
  [[nodiscard]] const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  [[nodiscard]] Tensor read(const TensorInfo& info) const override {
    const auto& [stored, own] = stored_.at(info.name);
    if (own.parts == 1) return file_->read(stored);
    return rows_of(stored, own.part * info.shape.front(), info.shape.front());
  }
  [[nodiscard]] bool reads_rows() const override { return file_->reads_rows(); }
  [[nodiscard]] Tensor read_rows(const TensorInfo& info, int64_t first,
                                 int64_t count) const override {
    const auto& [stored, own] = stored_.at(info.name);
    if (own.parts == 1) return file_->read_rows(stored, first, count);
    return rows_of(stored, own.part * info.shape.front() + first, count);
  }
  void read_into(const TensorInfo& info, Tensor& target) const override {
    const auto& [stored, own] = stored_.at(info.name);
    if (own.parts == 1) return file_->read_into(stored, target);
    check_fits(path(), info, target);
    target.copy_(read(info));
  }

 private:
  void take_part(const TensorInfo& stored, const NamedPart& own, TensorInfo& info) const {
    if (info.shape.empty() || info.shape.front() % own.parts != 0) {
      throw Error(ErrorKind::kData,
                  format_text("'{}': tensor '{}' has the shape {}, but its rows are {} tensors of "
                              "the model",
                              path(), stored.name, shape_text(info.shape), own.parts));
    }
    info.shape.front() /= own.parts;
    info.bytes /= static_cast<uint64_t>(own.parts);
    info.offset += static_cast<uint64_t>(own.part) * info.bytes;
  }
  [[nodiscard]] Tensor rows_of(const TensorInfo& stored, int64_t first, int64_t count) const {
    if (file_->reads_rows()) return file_->read_rows(stored, first, count);
    return file_->read(stored).narrow(0, first, count).clone();
  }

  std::shared_ptr<const WeightFile> file_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::pair<TensorInfo, NamedPart>> stored_;
};

}  // namespace

void reject_missing_tensor(const std::string& path, const std::string& name) {
  throw Error(ErrorKind::kData,
              "'" + path + "' has no tensor '" + name + "'; it belongs to another kind of model");
}

void check_fits(const std::string& path, const TensorInfo& info, const Tensor& target) {
  if (target.sizes() != at::IntArrayRef(info.shape)) {
    throw Error(ErrorKind::kData, "'" + path + "': tensor '" + info.name + "' has the shape " +
                                      shape_text(info.shape) + " where the model has " +
                                      shape_text(target.sizes()) +
                                      "; the file belongs to another configuration");
  }
  const at::ScalarType stored = scalar_type(info.dtype);
  const bool both_floating = at::isFloatingType(stored) && at::isFloatingType(target.scalar_type());
  if (stored != target.scalar_type() && !both_floating) {
    throw Error(ErrorKind::kData, "'" + path + "': tensor '" + info.name + "' has the type " +
                                      dtype_name(info.dtype) + " where the model has " +
                                      at::toString(target.scalar_type()));
  }
}

const WeightFile& ModelTensors::file_of(const std::string& name) const {
  const auto found = positions_.find(name);
  return *files_[found == positions_.end() ? 0 : found->second.file];
}

const std::string& ModelTensors::path_of(const std::string& name) const {
  return file_of(name).path();
}

const TensorInfo& ModelTensors::info(const std::string& name) const {
  const auto found = positions_.find(name);
  if (found == positions_.end()) reject_missing_tensor(path_of(name), name);
  return tensors_[found->second.tensor];
}

const std::string& ModelTensors::stored_name(const std::string& name) const {
  const auto found = stored_names_.find(name);
  return found == stored_names_.end() ? name : found->second;
}

at::ScalarType ModelTensors::type_of(const std::string& name) const {
  return scalar_type(info(name).dtype);
}

Tensor ModelTensors::read(const std::string& name) const { return file_of(name).read(info(name)); }

bool ModelTensors::reads_rows(const std::string& name) const { return file_of(name).reads_rows(); }

Tensor ModelTensors::read_rows(const std::string& name, int64_t first, int64_t count) const {
  return file_of(name).read_rows(info(name), first, count);
}

void ModelTensors::read_into(const std::string& name, Tensor& target) const {
  file_of(name).read_into(info(name), target);
}

bool ModelTensors::is_mxfp4(const std::string& name) const {
  const auto found = positions_.find(name);
  return mxfp4_ != nullptr && found != positions_.end() && files_[found->second.file] == mxfp4_;
}

std::pair<Tensor, Tensor> ModelTensors::read_mxfp4(const std::string& name) const {
  return mxfp4_->read_codes(name);
}

// Puts what their codes mean where the files have blocks and scales.
void ModelTensors::join_mxfp4() {
  constexpr std::string_view kBlocks = Mxfp4Weights::kBlocks, kScales = Mxfp4Weights::kScales;
  const auto stacks = std::make_shared<Mxfp4Weights>();
  const auto part_of = [&](const std::string& name) -> Mxfp4Weights::Part {
    return {files_[positions_.at(name).file], info(name)};
  };
  const auto fail = [&](const std::string& name, const std::string& why) {
    throw Error(ErrorKind::kData, "'" + path_of(name) + "' has tensor '" + name + "', " + why +
                                      "; fetch the folder again");
  };
  std::set<std::string> joined;
  for (const TensorInfo& tensor : tensors_) {
    const bool is_blocks = tensor.name.ends_with(kBlocks);
    const bool is_scales = tensor.name.ends_with(kScales) && tensor.dtype == DType::kU8;
    if (!is_blocks && !is_scales) continue;
    const std::string_view end = is_blocks ? kBlocks : kScales;
    const std::string name = tensor.name.substr(0, tensor.name.size() - end.size());
    const std::string other = name + std::string(is_blocks ? kScales : kBlocks);
    if (!has(other)) fail(tensor.name, "but no '" + other + "' is there");
    if (has(name)) fail(name, "which is there in MXFP4, too");
    joined.insert(tensor.name);
    if (!is_blocks) continue;
    joined.insert(other);
    stacks->add(name, part_of(tensor.name), part_of(other));
  }
  if (joined.empty()) return;
  std::erase_if(tensors_, [&](const TensorInfo& tensor) { return joined.contains(tensor.name); });
  tensors_.insert(tensors_.end(), stacks->tensors().begin(), stacks->tensors().end());
  std::map<std::string, Position> positions;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto found = positions_.find(tensors_[i].name);
    positions[tensors_[i].name] = {
        .file = found == positions_.end() ? files_.size() : found->second.file, .tensor = i};
  }
  positions_ = std::move(positions);
  mxfp4_ = stacks;
  files_.push_back(stacks);
}

ModelTensors load_model_tensors(FileSystem& files, const std::string& folder, bool maps,
                                const StoredNames& names) {
  const WeightFiles weights = find_weight_files(files, folder);
  ModelTensors model;
  std::map<std::string, std::string> path_of;  // by names in the files
  for (const std::string& path : weights.paths) {
    std::shared_ptr<const WeightFile> file = is_pickled(path)
                                                 ? open_torch_weights(files, path)
                                                 : open_safetensors_weights(files, path, maps);
    const std::string module(module_folder(path.substr(join_path(folder, "").size())));
    if (!module.empty()) {
      file = std::make_shared<const RenamedWeights>(file, [&](const std::string& stored) {
        return std::vector<NamedPart>{{module + "." + stored}};
      });
    } else if (weights.is_adapter) {
      file = std::make_shared<const RenamedWeights>(file, [&](const std::string& stored) {
        return std::vector<NamedPart>{{adapted_name(stored, path)}};
      });
    }
    for (const TensorInfo& tensor : file->tensors()) path_of[tensor.name] = path;
    if (!names.empty()) {
      file = std::make_shared<const RenamedWeights>(file, [&](const std::string& stored) {
        std::vector<NamedPart> parts = named_parts(stored, names);
        for (const NamedPart& own : parts) {
          if (own.name != stored) model.stored_names_[own.name] = stored;
        }
        return parts;
      });
    }
    model.files_.push_back(std::move(file));
    for (const TensorInfo& tensor : model.files_.back()->tensors()) {
      const ModelTensors::Position position{.file = model.files_.size() - 1,
                                            .tensor = model.tensors_.size()};
      if (!model.positions_.emplace(tensor.name, position).second) {
        throw Error(ErrorKind::kData,
                    "'" + path + "': tensor '" + tensor.name + "' is in another shard too");
      }
      model.tensors_.push_back(tensor);
    }
  }
  for (const auto& [tensor, path] : weights.owners) {
    const auto found = path_of.find(tensor);
    if (found == path_of.end() || found->second != path) {
      throw Error(ErrorKind::kData, "'" + weights.index + "' says that '" + file_name(path) +
                                        "' holds tensor '" + tensor +
                                        "', but it does not; fetch the shards again");
    }
  }
  model.join_mxfp4();
  return model;
}

}  // namespace finetune
