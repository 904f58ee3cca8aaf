// SPDX-License-Identifier: MIT
#include "finetune/tensor/model_tensors.h"

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/tensor/weight_files.h"
#include "tensor/safetensors_dtype.h"
#include "tensor/weight_file.h"

namespace finetune {
namespace {

// An adapter's file, with the names of the model that it adapts.
class AdapterWeights final : public WeightFile {
 public:
  explicit AdapterWeights(std::shared_ptr<const WeightFile> file) : file_(std::move(file)) {
    for (TensorInfo info : file_->tensors()) {
      if (!info.name.starts_with(kAdapterPrefix)) {
        throw Error(ErrorKind::kData, "'" + path() + "': tensor '" + info.name +
                                          "' does not begin with '" + kAdapterPrefix +
                                          "'; it is no adapter as PEFT writes it");
      }
      const std::string stored = info.name;
      info.name.erase(0, std::string_view(kAdapterPrefix).size());
      // A layer that PEFT wraps keeps its own parameters in a module of this name.
      constexpr std::string_view kWrapped = ".base_layer.";
      const size_t wrapped = info.name.find(kWrapped);
      if (wrapped != std::string::npos) info.name.replace(wrapped, kWrapped.size(), ".");
      stored_[info.name] = stored;
      tensors_.push_back(std::move(info));
    }
  }

  [[nodiscard]] const std::string& path() const override { return file_->path(); }
  [[nodiscard]] const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  [[nodiscard]] Tensor read(const TensorInfo& info) const override {
    return file_->read(stored(info));
  }
  [[nodiscard]] bool reads_rows() const override { return file_->reads_rows(); }
  [[nodiscard]] Tensor read_rows(const TensorInfo& info, int64_t first,
                                 int64_t count) const override {
    return file_->read_rows(stored(info), first, count);
  }
  void read_into(const TensorInfo& info, Tensor& target) const override {
    file_->read_into(stored(info), target);
  }

 private:
  [[nodiscard]] TensorInfo stored(TensorInfo info) const {
    info.name = stored_.at(info.name);
    return info;
  }

  std::shared_ptr<const WeightFile> file_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::string> stored_;  // names in the file
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

ModelTensors load_model_tensors(FileSystem& files, const std::string& folder, bool maps) {
  const WeightFiles weights = find_weight_files(files, folder);
  ModelTensors model;
  for (const std::string& path : weights.paths) {
    model.files_.push_back(weights.format == WeightFiles::Format::kSafetensors
                               ? open_safetensors_weights(files, path, maps)
                               : open_torch_weights(files, path));
    if (weights.is_adapter) {
      model.files_.back() = std::make_shared<const AdapterWeights>(model.files_.back());
    }
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
    if (!model.has(tensor) || model.path_of(tensor) != path) {
      throw Error(ErrorKind::kData, "'" + weights.index + "' says that '" + file_name(path) +
                                        "' holds tensor '" + tensor +
                                        "', but it does not; fetch the shards again");
    }
  }
  return model;
}

}  // namespace finetune
