// SPDX-License-Identifier: MIT
#include <algorithm>
#include <map>
#include <mutex>

#include "finetune/base/error.h"
#include "tensor/safetensors_dtype.h"
#include "tensor/torch_file_archive.h"
#include "tensor/weight_file.h"

namespace finetune {
namespace {

using pickle::Kind;
using pickle::Node;
using pickle::TensorView;

constexpr size_t kMaxTensorNameBytes = 512;

[[noreturn]] void reject_weights(const std::string& path, const std::string& reason) {
  throw Error(ErrorKind::kData, "'" + path + "' holds no model's weights: " + reason);
}

bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= kMaxTensorNameBytes &&
         std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

// The tensors of a file of torch.save by name. Only their descriptions are in memory.
class TorchWeights final : public WeightFile {
 public:
  TorchWeights(FileSystem& files, const std::string& path)
      : path_(path), file_(files.open(path)), archive_(open_torch_archive(*file_, path)) {
    std::map<size_t, size_t> uses;
    const Node& dictionary = state_dict();
    for (size_t i = 0; i < dictionary.children.size(); i += 2) {
      add(node(dictionary.children[i]), node(dictionary.children[i + 1]));
      ++uses[views_.back().storage];
    }
    shared_.resize(archive_.storages.size());
    for (const auto& [storage, count] : uses) shared_[storage] = count > 1;
  }

  [[nodiscard]] const std::string& path() const override { return path_; }
  [[nodiscard]] const std::vector<TensorInfo>& tensors() const override { return tensors_; }

  [[nodiscard]] Tensor read(const TensorInfo& info) const override {
    const TensorView& view = view_of(info);
    Tensor data = storage(view.storage);
    Tensor tensor = data.as_strided(view.sizes, view.strides, view.offset);
    // Copy if tensors share the storage, or if it has more data than the tensor.
    const bool is_whole = tensor.is_contiguous() && tensor.numel() == data.numel();
    if (is_whole && !shared_[view.storage]) return tensor;
    return tensor.clone(at::MemoryFormat::Contiguous);
  }

  void read_into(const TensorInfo& info, Tensor& target) const override {
    check_fits(path_, info, target);
    const TensorView& view = view_of(info);
    target.detach().copy_(storage(view.storage).as_strided(view.sizes, view.strides, view.offset));
  }

 private:
  [[nodiscard]] const Node& node(uint32_t index) const { return archive_.pickle.nodes[index]; }

  // Returns the dictionary of torch.save(model.state_dict()), or the one inside a trainer's
  // dictionary.
  [[nodiscard]] const Node& state_dict() const {
    const Node& root = node(archive_.pickle.root);
    if (root.kind != Kind::kDict) reject_weights(path_, "it is no dictionary of tensors by name");
    for (const char* wrapper : {"state_dict", "model", "model_state_dict"}) {
      for (size_t i = 0; i < root.children.size(); i += 2) {
        const Node& value = node(root.children[i + 1]);
        if (node(root.children[i]).text == wrapper && value.kind == Kind::kDict) return value;
      }
    }
    return root;
  }

  void add(const Node& key, const Node& value) {
    if (key.kind != Kind::kString || !is_name(key.text)) {
      reject_weights(path_, "a key of its dictionary is no tensor's name");
    }
    if (value.kind != Kind::kTensor) reject_weights(path_, "'" + key.text + "' is no tensor");
    const TensorView& view = archive_.pickle.tensors[static_cast<size_t>(value.integer)];
    const DType dtype = archive_.pickle.storages[view.storage].dtype;
    TensorInfo info{.name = key.text,
                    .dtype = dtype,
                    .shape = view.sizes,
                    .offset = archive_.storages[view.storage].offset +
                              static_cast<uint64_t>(view.offset) * dtype_bytes(dtype),
                    .bytes = dtype_bytes(dtype)};
    for (const int64_t size : view.sizes) info.bytes *= static_cast<uint64_t>(size);
    index_.emplace(info.name, views_.size());
    views_.push_back(view);
    tensors_.push_back(std::move(info));
  }

  [[nodiscard]] const TensorView& view_of(const TensorInfo& info) const {
    return views_[index_.at(info.name)];
  }

  // Keeps the last storage that several tensors share, because these are usually read
  // consecutively.
  [[nodiscard]] Tensor storage(size_t index) const {
    if (!shared_[index]) return read_storage(*file_, path_, archive_, index);
    const std::lock_guard lock(mutex_);
    if (!kept_.defined() || kept_index_ != index) {
      kept_ = Tensor();
      kept_ = read_storage(*file_, path_, archive_, index);
      kept_index_ = index;
    }
    return kept_;
  }

  std::string path_;
  std::unique_ptr<ReadableFile> file_;
  TorchArchive archive_;
  std::vector<TensorInfo> tensors_;
  std::vector<TensorView> views_;        // as tensors_
  std::map<std::string, size_t> index_;  // name -> index in tensors_
  std::vector<bool> shared_;             // by storage: several tensors use it
  mutable std::mutex mutex_;
  mutable Tensor kept_;
  mutable size_t kept_index_ = 0;
};

}  // namespace

std::shared_ptr<const WeightFile> open_torch_weights(FileSystem& files, const std::string& path) {
  return std::make_shared<TorchWeights>(files, path);
}

}  // namespace finetune
