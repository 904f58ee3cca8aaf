// SPDX-License-Identifier: MIT
#include "finetune/state/parameter_files.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <optional>

#include "finetune/base/error.h"
#include "finetune/kernels/formats.h"
#include "finetune/tensor/finite.h"
#include "finetune/tensor/model_tensors.h"
#include "state/optimizer_safetensors.h"
#include "state/optimizer_source.h"

namespace finetune {
namespace {

// Opens the file with corrections of split weights, if the folder has one.
std::optional<SafetensorsFile> open_corrections(const ParameterStore& store, FileSystem& files,
                                                const std::string& folder) {
  const std::string path = optimizer_tensors_path(folder);
  if (!files.exists(path)) return std::nullopt;
  SafetensorsFile file = open_optimizer_tensors(files, path);
  const std::vector<Parameter>& parameters = store.parameters();
  const auto has = [&](const Parameter& p) { return file.has(correction_name(p.name())); };
  if (std::none_of(parameters.begin(), parameters.end(), has)) return std::nullopt;
  for (const Parameter& parameter : parameters) {
    if (!has(parameter) && !parameter.format.trainable) continue;
    if (!has(parameter)) reject_state(path, parameter.name(), "correction", "is missing");
    const TensorInfo& info = file.info(correction_name(parameter.name()));
    if (info.dtype != DType::kI8 || at::IntArrayRef(info.shape) != parameter.handle.sizes()) {
      reject_state(path, parameter.name(), "correction", "is not int8 of the parameter's shape");
    }
  }
  return file;
}

class RestoringParameters {
 public:
  RestoringParameters(ParameterStore& store, FileSystem& files, const std::string& folder,
                      const StoredNames& names)
      : store_(store),
        weights_(load_model_tensors(files, folder, /*maps=*/false, names)),
        corrections_(open_corrections(store, files, folder)) {}

  void restore(Parameter& parameter) {
    const TensorInfo& info = weights_.info(parameter.name());
    if (at::IntArrayRef(info.shape) != parameter.handle.sizes()) {
      throw Error(ErrorKind::kData, weights_.path_of(parameter.name()) + ": the tensor '" +
                                        parameter.name() + "' has not the shape of the model's");
    }
    const bool is_corrected = corrections_ && corrections_->has(correction_name(parameter.name()));
    if (is_corrected && info.dtype != DType::kBF16) {
      throw Error(ErrorKind::kData, weights_.path_of(parameter.name()) + ": '" + parameter.name() +
                                        "' is not bfloat16, but " + corrections_->path() +
                                        " has a correction for it");
    }
    is_bfloat16_ = is_bfloat16_ || info.dtype == DType::kBF16;
    is_wider_ = is_wider_ || info.dtype != DType::kBF16;
    const WeightFormat format = parameter.format.weight;
    if (parameter.is_divided()) {
      restore_part(parameter, is_corrected);
    } else if (is_corrected && format == WeightFormat::kSplit) {
      weights_.read_into(parameter.name(), parameter.weight);
      read_correction(parameter, parameter.correction);
    } else if (is_corrected && format == WeightFormat::kFloat32) {
      const Tensor weight = weights_.read(parameter.name()).to(parameter.weight.device());
      Tensor correction = weight.new_empty(weight.sizes(), at::kChar);
      read_correction(parameter, correction);
      join_values(weight, correction, parameter.weight.detach());
    } else if (format == WeightFormat::kSplit) {
      store_.assign(parameter, weights_.read(parameter.name()));
    } else {
      weights_.read_into(parameter.name(), parameter.weight);
    }
    if (!is_finite(parameter.weight.detach())) {
      throw Error(ErrorKind::kData, weights_.path_of(parameter.name()) + ": the tensor '" +
                                        parameter.name() +
                                        "' contains NaN or Inf; resume from an older "
                                        "checkpoint with resume_from_checkpoint");
    }
  }

  [[nodiscard]] RestoredParameters result() const {
    const WeightFormat to = store_.weight_format();
    const WeightFormat from = corrections_                 ? WeightFormat::kSplit
                              : is_bfloat16_ && !is_wider_ ? WeightFormat::kBFloat16
                                                           : WeightFormat::kFloat32;
    if (from == to) return {.exact = true, .line = ""};
    // bfloat16 values are exact in every format, and float32 represents the values of all formats.
    const bool exact = to == WeightFormat::kFloat32 || from == WeightFormat::kBFloat16;
    return {.exact = exact,
            .line = std::string("weights: ") + traits_of(from).description + " -> " +
                    traits_of(to).description +
                    (exact ? ", the same values" : ", rounded to the nearest")};
  }

 private:
  // Reads the rows of which this rank has a part.
  template <class File>
  static Tensor read_part(const File& file, const std::string& name, const Parameter& parameter) {
    const ValueRange part = parameter.part();
    const int64_t row = parameter.handle.numel() / parameter.handle.size(0);
    const int64_t first = part.first / row;
    const int64_t end = (part.first + part.count + row - 1) / row;
    const Tensor rows = file.read_rows(name, first, std::max<int64_t>(0, end - first));
    return rows.contiguous().view(-1).narrow(0, part.first - first * row, part.count);
  }

  void restore_part(Parameter& parameter, bool is_corrected) {
    const Tensor values = read_part(weights_, parameter.name(), parameter);
    const WeightFormat format = parameter.format.weight;
    if (!is_corrected) return store_.assign_part(parameter, values);
    const std::string name = correction_name(parameter.name());
    const Tensor correction = read_part(*corrections_, name, parameter);
    check_state_values(corrections_->path(), parameter.name(), "correction", correction);
    if (format == WeightFormat::kSplit) {
      parameter.weight.detach().copy_(values);
      parameter.correction.copy_(correction);
    } else if (format == WeightFormat::kFloat32) {
      const Tensor joined = at::empty(values.sizes(), at::kFloat);
      join_values(values.contiguous(), correction.contiguous(), joined);
      parameter.weight.detach().copy_(joined);
    } else {
      store_.assign_part(parameter, values);
    }
  }

  void read_correction(const Parameter& parameter, Tensor& target) const {
    corrections_->read_into(correction_name(parameter.name()), target);
    check_state_values(corrections_->path(), parameter.name(), "correction", target);
  }

  ParameterStore& store_;
  ModelTensors weights_;
  std::optional<SafetensorsFile> corrections_;
  bool is_bfloat16_ = false;  // some of the file's tensors are bfloat16
  bool is_wider_ = false;     // some are not
};

}  // namespace

LazyTensors checkpoint_tensors(const ParameterStore& parameters, Snapshot* snapshot,
                               StateGather* gather) {
  LazyTensors tensors;
  for (const Parameter& parameter : parameters.parameters()) {
    if (parameter.format.home != WeightHome::kCheckpoint) continue;
    if (parameter.is_divided()) {
      FT_CHECK(gather != nullptr, "a divided parameter");
      tensors.push_back(gather->weight(parameter));
      continue;
    }
    tensors.push_back(lazy_or_held(snapshot, parameter.name(), parameter.weight.detach()));
  }
  return tensors;
}

LazyTensors exported_tensors(const ParameterStore& parameters, StateGather* gather) {
  LazyTensors tensors = checkpoint_tensors(parameters, nullptr, gather);
  auto tensor = tensors.begin();
  for (const Parameter& parameter : parameters.parameters()) {
    if (parameter.format.home != WeightHome::kCheckpoint) continue;
    LazyTensor& exported = *tensor++;
    if (!parameter.correction.defined()) continue;
    exported.type = at::kFloat;
    if (parameter.is_divided()) {
      exported.rows = [weight = exported.rows, correction = gather->correction(parameter).rows](
                          int64_t first, int64_t count) {
        const Tensor rows = weight(first, count);
        const Tensor values = at::empty_like(rows, rows.options().dtype(at::kFloat));
        join_values(rows, correction(first, count), values);
        return values;
      };
      continue;
    }
    exported.rows = [&parameters, weight = parameter.handle](int64_t first, int64_t count) {
      return parameters.values_of_rows(weight, first, count);
    };
  }
  return tensors;
}

bool has_corrections(const ParameterStore& parameters, FileSystem& files,
                     const std::string& folder) {
  return open_corrections(parameters, files, folder).has_value();
}

RestoredParameters restore_parameters(ParameterStore& parameters, FileSystem& files,
                                      const std::string& folder, const StoredNames& names) {
  const c10::NoGradGuard no_grad;
  RestoringParameters restoring(parameters, files, folder, names);
  for (Parameter& parameter : parameters.parameters()) {
    if (parameter.format.home == WeightHome::kCheckpoint) restoring.restore(parameter);
  }
  if (parameters.exchange() != nullptr) parameters.exchange()->changed();
  return restoring.result();
}

}  // namespace finetune
