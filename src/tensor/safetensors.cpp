// SPDX-License-Identifier: MIT
#include "finetune/tensor/safetensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <c10/core/alignment.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/mapped_file.h"
#include "finetune/base/memory_status.h"
#include "finetune/base/model_files.h"
#include "finetune/base/mount.h"
#include "finetune/tensor/weight_files.h"
#include "tensor/safetensors_dtype.h"
#include "tensor/weight_file.h"

namespace finetune {
namespace {

// Reads are split so that a pread's length never reaches the system's limit of 2 GiB.
constexpr size_t kReadBytes = size_t{64} << 20;

TensorInfo describe(const LazyTensor& tensor) {
  return {.name = tensor.name,
          .dtype = dtype_of(tensor.type),
          .shape = tensor.shape,
          .offset = 0,
          .bytes = tensor.bytes()};
}

class SafetensorsWeights final : public WeightFile {
 public:
  // `pages`: of the file; null: it is not mapped.
  SafetensorsWeights(SafetensorsFile file, std::shared_ptr<const MappedFile> pages)
      : file_(std::move(file)), pages_(std::move(pages)) {}

  [[nodiscard]] const std::string& path() const override { return file_.path(); }
  [[nodiscard]] const std::vector<TensorInfo>& tensors() const override { return file_.tensors(); }
  [[nodiscard]] Tensor read(const TensorInfo& info) const override {
    return is_mapped(info) ? mapped(info) : file_.read(info.name);
  }
  [[nodiscard]] bool reads_rows() const override { return true; }
  [[nodiscard]] Tensor read_rows(const TensorInfo& info, int64_t first,
                                 int64_t count) const override {
    return file_.read_rows(info.name, first, count);
  }
  void read_into(const TensorInfo& info, Tensor& target) const override {
    file_.read_into(info.name, target);
  }

 private:
  // A boolean's byte has to be checked. The last bits of a product of float32 may depend on the
  // address, which has to be as that of other memory; narrower types are converted first.
  [[nodiscard]] bool is_mapped(const TensorInfo& info) const {
    const size_t size = c10::elementSize(scalar_type(info.dtype));
    return pages_ && info.dtype != DType::kBool && info.bytes > 0 &&
           info.offset + info.bytes <= pages_->size() &&
           info.offset % (size < 4 ? size : c10::gAlignment) == 0;
  }
  [[nodiscard]] Tensor mapped(const TensorInfo& info) const {
    return at::from_blob(
        const_cast<std::byte*>(pages_->data()) + info.offset, info.shape,
        [pages = pages_](void*) {}, at::TensorOptions().dtype(scalar_type(info.dtype)));
  }

  SafetensorsFile file_;
  std::shared_ptr<const MappedFile> pages_;
};

// A page that could not be written is dropped one day and read again with other bytes.
bool is_on_the_disk(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool is_synced = ::fsync(descriptor) == 0;
  ::close(descriptor);
  return is_synced;
}

// Null: the file is remote, where a page may be missing for a while, or the system refuses.
std::shared_ptr<const MappedFile> map_file(const std::string& path) {
  const std::optional<Mount> mount = mount_of(path);
  if (!mount || is_remote_type(mount->type) || !is_on_the_disk(path)) return nullptr;
  try {
    auto* const pages = new MappedFile(path);
    const auto bytes = static_cast<int64_t>(pages->size());
    count_mapped_memory(bytes);
    return {pages, [bytes](const MappedFile* mapped) {
              count_mapped_memory(-bytes);
              delete mapped;
            }};
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace

void write_safetensors(WritableFile& file, const LazyTensors& tensors,
                       const std::map<std::string, std::string>& metadata, Numbers numbers) {
  const c10::NoGradGuard no_grad;
  SafetensorsHeader header;
  header.metadata = metadata;
  std::map<std::string, const LazyTensor*> by_name;
  for (const LazyTensor& tensor : tensors) {
    FT_CHECK(by_name.emplace(tensor.name, &tensor).second, "tensor named twice: " + tensor.name);
    header.tensors.push_back(describe(tensor));
  }
  file.write(make_safetensors_header(header));
  for (const TensorInfo& info : header.tensors) {
    for_each_piece(
        *by_name.at(info.name), [&](const void* data, size_t bytes) { file.write(data, bytes); },
        numbers);
  }
}

void write_safetensors(WritableFile& file, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata, Numbers numbers) {
  write_safetensors(file, lazy_tensors(tensors), metadata, numbers);
}

std::vector<ModelShard> plan_shards(const NamedTensors& tensors, uint64_t max_shard_bytes) {
  return plan_shards(lazy_tensors(tensors), max_shard_bytes);
}

namespace {

std::vector<ModelShard> plan_own_shards(const LazyTensors& tensors, uint64_t max_shard_bytes) {
  std::vector<ModelShard> shards;
  uint64_t used = 0;
  for (const LazyTensor& tensor : tensors) {
    const uint64_t bytes = tensor.bytes();
    if (shards.empty() || (used > 0 && used + bytes > max_shard_bytes)) {
      shards.emplace_back();
      used = 0;
    }
    shards.back().tensors.push_back(tensor);
    used += bytes;
  }
  if (shards.empty()) shards.emplace_back();
  if (shards.size() == 1) {
    shards.front().file_name = kModelFile;
    return shards;
  }
  const auto five_digits = [](size_t number) {
    const std::string digits = std::to_string(number);
    return std::string(5 - std::min<size_t>(digits.size(), 5), '0') + digits;
  };
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].file_name =
        "model-" + five_digits(i + 1) + "-of-" + five_digits(shards.size()) + ".safetensors";
  }
  return shards;
}

}  // namespace

std::vector<ModelShard> plan_shards(const LazyTensors& tensors, uint64_t max_shard_bytes) {
  LazyTensors own;
  std::map<std::string, LazyTensors> of_modules;  // by folder
  for (const LazyTensor& tensor : tensors) {
    const std::string module(module_folder(tensor.name));
    LazyTensors& part = module.empty() ? own : of_modules[module];
    part.push_back(tensor);
    if (!module.empty()) part.back().name.erase(0, module.size() + 1);
  }
  std::vector<ModelShard> shards = plan_own_shards(own, max_shard_bytes);
  for (auto& [module, part] : of_modules) {
    shards.push_back({.file_name = module + "/" + kModelFile, .tensors = std::move(part)});
  }
  return shards;
}

std::optional<std::string> make_shard_index(const std::vector<ModelShard>& shards) {
  if (shards.front().file_name == kModelFile) return std::nullopt;
  uint64_t bytes = 0;
  uint64_t parameters = 0;
  // Sorted by name, as in Hugging Face's files.
  nlohmann::json weight_map = nlohmann::json::object();
  for (const ModelShard& shard : shards) {
    if (!module_folder(shard.file_name).empty()) continue;
    for (const LazyTensor& tensor : shard.tensors) {
      weight_map[tensor.name] = shard.file_name;
      bytes += tensor.bytes();
      parameters += tensor.elements();
    }
  }
  const nlohmann::json index = {
      {"metadata", {{"total_parameters", parameters}, {"total_size", bytes}}},
      {"weight_map", weight_map}};
  return index.dump(2) + "\n";
}

SafetensorsFile SafetensorsFile::open(FileSystem& files, const std::string& path) {
  SafetensorsFile result;
  result.path_ = path;
  result.file_ = files.open(path);
  result.header_ = read_safetensors_header(*result.file_, path);
  for (size_t i = 0; i < result.header_.tensors.size(); ++i) {
    result.index_.emplace(result.header_.tensors[i].name, i);
  }
  return result;
}

const TensorInfo& SafetensorsFile::info(const std::string& name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) reject_missing_tensor(path_, name);
  return header_.tensors[found->second];
}

void SafetensorsFile::read_bytes(const TensorInfo& info, void* data) const {
  char* bytes = static_cast<char*>(data);
  for (uint64_t done = 0; done < info.bytes;) {
    const size_t count = std::min<uint64_t>(kReadBytes, info.bytes - done);
    file_->read_at(info.offset + done, bytes + done, count);
    done += count;
  }
  if (info.dtype == DType::kBool && !are_booleans(bytes, info.bytes)) {
    throw Error(ErrorKind::kData, "'" + path_ + "': tensor '" + info.name +
                                      "' is boolean but holds other bytes than 0 and 1; write or "
                                      "fetch the file again");
  }
}

Tensor SafetensorsFile::read(const std::string& name) const {
  const TensorInfo& tensor = info(name);
  Tensor result = at::empty(tensor.shape, at::TensorOptions().dtype(scalar_type(tensor.dtype)));
  read_bytes(tensor, result.mutable_data_ptr());
  return result;
}

Tensor SafetensorsFile::read_rows(const std::string& name, int64_t first, int64_t count) const {
  TensorInfo part = info(name);
  FT_CHECK(!part.shape.empty() && first >= 0 && count >= 0 && first + count <= part.shape[0],
           "rows of a tensor");
  const uint64_t row = part.shape[0] > 0 ? part.bytes / static_cast<uint64_t>(part.shape[0]) : 0;
  part.offset += row * static_cast<uint64_t>(first);
  part.bytes = row * static_cast<uint64_t>(count);
  part.shape[0] = count;
  Tensor result = at::empty(part.shape, at::TensorOptions().dtype(scalar_type(part.dtype)));
  read_bytes(part, result.mutable_data_ptr());
  return result;
}

void SafetensorsFile::read_into(const std::string& name, Tensor& target) const {
  const TensorInfo& tensor = info(name);
  check_fits(path_, tensor, target);
  if (scalar_type(tensor.dtype) == target.scalar_type() && target.is_cpu() &&
      target.is_contiguous()) {
    read_bytes(tensor, target.detach().mutable_data_ptr());
  } else {
    target.detach().copy_(read(name));
  }
}

std::shared_ptr<const WeightFile> open_safetensors_weights(FileSystem& files,
                                                           const std::string& path, bool maps) {
  SafetensorsFile file = SafetensorsFile::open(files, path);
  return std::make_shared<SafetensorsWeights>(std::move(file), maps ? map_file(path) : nullptr);
}

}  // namespace finetune
