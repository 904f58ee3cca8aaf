// SPDX-License-Identifier: MIT
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <functional>

#include "finetune/base/error.h"
#include "finetune/tensor/torch_file.h"
#include "tensor/safetensors_dtype.h"
#include "tensor/torch_file_archive.h"

namespace finetune {

Tensor read_storage(const ReadableFile& file, const std::string& path, const TorchArchive& archive,
                    size_t storage) {
  const pickle::Storage& described = archive.pickle.storages[storage];
  Tensor data = at::empty({static_cast<int64_t>(described.elements)},
                          at::TensorOptions().dtype(scalar_type(described.dtype)));
  read_storage(file, path, archive, storage, data.mutable_data_ptr());
  if (described.dtype == DType::kBool && !are_booleans(data.const_data_ptr(), data.nbytes())) {
    throw Error(ErrorKind::kData,
                "'" + path + "': a boolean tensor holds other bytes than 0 and 1");
  }
  return data;
}

// An opened and checked file. Thread-safe for reading.
class TorchFile : public std::enable_shared_from_this<TorchFile> {
 public:
  TorchFile(FileSystem& files, std::string path)
      : path_(std::move(path)),
        file_(files.open(path_)),
        archive_(open_torch_archive(*file_, path_)) {}

  // Returns the value; the data of its tensors is read later.
  [[nodiscard]] TorchValue stored_value() const {
    return value(archive_.pickle.root, [this](size_t tensor) { return stored(tensor); });
  }

  // Returns the value; its tensors share memory as when they were saved.
  [[nodiscard]] TorchValue read_value() const {
    std::vector<Tensor> storages;
    for (size_t i = 0; i < archive_.storages.size(); ++i) storages.push_back(read_data(i));
    return value(archive_.pickle.root, [&](size_t tensor) {
      const pickle::TensorView& described = archive_.pickle.tensors[tensor];
      return as_described(storages[described.storage], described);
    });
  }

  [[nodiscard]] Tensor read(size_t tensor) const {
    const pickle::TensorView& described = archive_.pickle.tensors[tensor];
    const Tensor data = read_data(described.storage);
    const Tensor result = as_described(data, described);
    if (result.numel() > data.numel()) {
      throw Error(ErrorKind::kData, "'" + path_ + "': a tensor repeats its elements");
    }
    // Copy if the storage has more data than the tensor, so that the rest is not kept in memory.
    const bool is_whole = result.is_contiguous() && result.numel() == data.numel();
    return is_whole ? result : result.clone(at::MemoryFormat::Contiguous);
  }

  void read_into(size_t tensor, const Tensor& target) const {
    const pickle::TensorView& described = archive_.pickle.tensors[tensor];
    const pickle::Storage& storage = archive_.pickle.storages[described.storage];
    const bool in_place =
        is_whole(described, storage) && target.is_cpu() && target.is_contiguous() &&
        target.scalar_type() == scalar_type(storage.dtype) && storage.dtype != DType::kBool;
    if (in_place) {
      read_storage(*file_, path_, archive_, described.storage, target.mutable_data_ptr());
    } else {
      target.copy_(as_described(read_data(described.storage), described));
    }
  }

 private:
  using MakeTensor = std::function<TorchValue(size_t tensor)>;

  static Tensor as_described(const Tensor& data, const pickle::TensorView& described) {
    return data.as_strided(described.sizes, described.strides, described.offset);
  }

  // Whether the tensor is contiguous and covers the complete storage.
  static bool is_whole(const pickle::TensorView& described, const pickle::Storage& storage) {
    int64_t elements = 1;
    for (size_t i = described.sizes.size(); i-- > 0;) {
      if (described.sizes[i] != 1 && described.strides[i] != elements) return false;
      elements *= described.sizes[i];
    }
    return described.offset == 0 && static_cast<uint64_t>(elements) == storage.elements;
  }

  [[nodiscard]] Tensor read_data(size_t index) const {
    return read_storage(*file_, path_, archive_, index);
  }

  // Converts the checked description to values; Pickle guarantees every bound.
  [[nodiscard]] TorchValue value(uint32_t index, const MakeTensor& make_tensor) const {
    const pickle::Node& node = archive_.pickle.nodes[index];
    switch (node.kind) {
      case pickle::Kind::kBool:
        return node.integer != 0;
      case pickle::Kind::kInt:
        return node.integer;
      case pickle::Kind::kDouble:
        return node.real;
      case pickle::Kind::kString:
        return node.text;
      case pickle::Kind::kList:
        return values(node, make_tensor);
      case pickle::Kind::kTuple:
        return TorchTuple{values(node, make_tensor)};
      case pickle::Kind::kDict:
        return dict(node, make_tensor);
      case pickle::Kind::kTensor:
        return make_tensor(static_cast<size_t>(node.integer));
      default:
        return {};
    }
  }

  [[nodiscard]] TorchList values(const pickle::Node& node, const MakeTensor& make_tensor) const {
    TorchList list;
    list.reserve(node.children.size());
    for (const uint32_t child : node.children) list.push_back(value(child, make_tensor));
    return list;
  }

  [[nodiscard]] TorchDict dict(const pickle::Node& node, const MakeTensor& make_tensor) const {
    TorchDict result;
    for (size_t i = 0; i < node.children.size(); i += 2) {
      const pickle::Node& key = archive_.pickle.nodes[node.children[i]];
      result.items.emplace_back(
          key.kind == pickle::Kind::kInt ? TorchKey(key.integer) : TorchKey(key.text),
          value(node.children[i + 1], make_tensor));
    }
    return result;
  }

  [[nodiscard]] StoredTensor stored(size_t tensor) const {
    StoredTensor result;
    result.file_ = shared_from_this();
    result.tensor_ = tensor;
    const pickle::TensorView& described = archive_.pickle.tensors[tensor];
    result.type_ = scalar_type(archive_.pickle.storages[described.storage].dtype);
    result.sizes_ = described.sizes;
    return result;
  }

  std::string path_;
  std::unique_ptr<ReadableFile> file_;
  TorchArchive archive_;
};

Tensor StoredTensor::read() const { return file_->read(tensor_); }

void StoredTensor::read_into(const Tensor& target) const {
  const c10::NoGradGuard no_grad;
  FT_CHECK(target.sizes() == at::IntArrayRef(sizes_), "a tensor of another shape");
  file_->read_into(tensor_, target);
}

TorchValue read_torch_file(FileSystem& files, const std::string& path) {
  return TorchFile(files, path).read_value();
}

TorchValue open_torch_file(FileSystem& files, const std::string& path) {
  return std::make_shared<const TorchFile>(files, path)->stored_value();
}

}  // namespace finetune
