// SPDX-License-Identifier: MIT
#include "finetune/model/nf4_files.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/text.h"
#include "finetune/kernels/nf4.h"
#include "finetune/kernels/quantized_state.h"
#include "finetune/tensor/finite.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kState = ".quant_state.bitsandbytes__nf4";
constexpr std::array<std::string_view, 5> kParts = {".absmax", ".quant_map", ".nested_absmax",
                                                    ".nested_quant_map", kState};
constexpr int64_t kMostStateBytes = 1 << 16;

class Reader {
 public:
  Reader(const ModelTensors& tensors, const std::string& name) : tensors_(tensors), name_(name) {}

  [[nodiscard]] std::pair<std::vector<int64_t>, at::ScalarType> shape_and_type() {
    read_state();
    return {sizes_, type_};
  }

  [[nodiscard]] QuantizedValues read() {
    read_state();
    QuantizedValues values{.sizes = sizes_, .codes = codes(), .scales = Tensor(), .type = type_};
    check_map(part(".quant_map"), at::tensor(at::ArrayRef<float>(kernels::nf4_map())),
              ".quant_map");
    const Tensor absmax = part(".absmax");
    const bool is_nested = absmax.scalar_type() == at::kByte;
    if (!is_nested && !absmax.is_floating_point())
      fail("'.absmax' holds no floating-point numbers");
    values.scales = is_nested ? nested(absmax) : absmax.to(at::kFloat).flatten().contiguous();
    if (values.scales.numel() != kernels::nf4_blocks(count_)) {
      fail(format_text("'.absmax' has {} scales, and {} values have {}", values.scales.numel(),
                       count_, kernels::nf4_blocks(count_)));
    }
    if (!is_finite(values.scales) || values.scales.min().item<float>() < 0.0F) {
      // A mean may be above what double quantisation keeps of a small scale.
      if (!is_nested || !is_finite(values.scales)) fail("'.absmax' holds NaN, Inf or less than 0");
    }
    return values;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorKind::kData, format_text("'{}': the quantized tensor '{}' is damaged: {}",
                                              tensors_.path_of(name_), name_, why) +
                                      "; fetch the folder again, or quantize the model again");
  }
  [[nodiscard]] Tensor part(std::string_view end) const {
    const std::string name = name_ + std::string(end);
    if (!tensors_.has(name)) fail(format_text("there is no '{}'", name));
    return tensors_.read(name);
  }

  void read_state() {
    if (tensors_.has(name_ + ".quant_state.bitsandbytes__fp4")) fail("it has two states");
    const Tensor bytes = part(kState);
    if (bytes.scalar_type() != at::kByte || bytes.numel() > kMostStateBytes) {
      fail("its quant_state is no text");
    }
    const Tensor flat = bytes.flatten().contiguous();
    const std::string text(reinterpret_cast<const char*>(flat.const_data_ptr<uint8_t>()),
                           static_cast<size_t>(flat.numel()));
    state_ = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!state_.is_object()) fail("its quant_state is no JSON object");
    const auto number = [&](const char* key) -> int64_t {
      const auto found = state_.find(key);
      return found != state_.end() && found->is_number_integer() ? found->get<int64_t>() : -1;
    };
    if (state_.value("quant_type", Json()) != "nf4") fail("its quant_type is not nf4");
    if (number("blocksize") != kernels::kNf4Block) {
      fail("its blocksize is not 64, the only one that can be read");
    }
    const auto shape = state_.find("shape");
    if (shape == state_.end() || !shape->is_array() || shape->empty() || shape->size() > 4) {
      fail("its quant_state has no shape");
    }
    const Json type = state_.value("dtype", Json());
    if (type == "bfloat16") {
      type_ = at::kBFloat16;
    } else if (type == "float16") {
      type_ = at::kHalf;
    } else if (type != "float32") {
      fail("its dtype must be float32, bfloat16 or float16");
    }
    count_ = 1;
    for (const Json& size : *shape) {
      if (!size.is_number_integer() || size.get<int64_t>() <= 0 ||
          size.get<int64_t>() > std::numeric_limits<int32_t>::max() ||
          count_ > std::numeric_limits<int64_t>::max() / size.get<int64_t>()) {
        fail("its quant_state has no shape of positive sizes");
      }
      sizes_.push_back(size.get<int64_t>());
      count_ *= sizes_.back();
    }
  }

  // FSDP stores the bytes as numbers of a wider type.
  [[nodiscard]] Tensor codes() const {
    const Tensor stored = tensors_.read(name_).flatten().contiguous();
    if (stored.scalar_type() != at::kByte && !stored.is_floating_point()) {
      fail("its codes are neither bytes nor stored as floating-point numbers");
    }
    const Tensor bytes = stored.scalar_type() == at::kByte ? stored : stored.view(at::kByte);
    if (bytes.numel() != kernels::nf4_code_bytes(count_)) {
      fail(format_text("{} bytes of codes, and {} values have {}", bytes.numel(), count_,
                       kernels::nf4_code_bytes(count_)));
    }
    return bytes;
  }

  // Requires the values of `expected` but for the last bits, which torch.linspace, of which
  // bitsandbytes makes its map of 8 bits, computes differently on different processors.
  void check_map(const Tensor& map, const Tensor& expected, std::string_view end) const {
    const bool is_it = map.is_floating_point() && map.numel() == expected.numel() &&
                       ((map.to(at::kFloat).flatten() - expected).abs() <= expected.abs() * 0x1p-21)
                           .all()
                           .item<bool>();
    if (!is_it)
      fail(format_text("'{}' is not the map of its type; other maps cannot be read", end));
  }

  // Scales in codes of 8 bits.
  [[nodiscard]] Tensor nested(const Tensor& quantized) const {
    const auto offset = state_.find("nested_offset");
    if (offset == state_.end() || !offset->is_number() || !std::isfinite(offset->get<float>())) {
      fail("its nested_offset is missing, NaN or Inf");
    }
    const auto block = state_.find("nested_blocksize");
    if (block == state_.end() || *block != kernels::kNf4ScaleBlock) {
      fail("its nested_blocksize is not 256");
    }
    const Tensor map = part(".nested_quant_map").to(at::kFloat).flatten();
    check_map(map, dynamic_map(true), ".nested_quant_map");
    const Tensor absmax = part(".nested_absmax").to(at::kFloat).flatten();
    const int64_t scales = quantized.numel();
    const int64_t blocks = (scales + kernels::kNf4ScaleBlock - 1) / kernels::kNf4ScaleBlock;
    if (absmax.numel() != blocks) {
      fail(format_text("'.nested_absmax' has {} numbers, and {} scales have {}", absmax.numel(),
                       scales, blocks));
    }
    if (!is_finite(absmax) || absmax.min().item<float>() < 0.0F) {
      fail("'.nested_absmax' holds NaN, Inf or less than 0");
    }
    return kernels::NestedNf4Scales{.codes = quantized.flatten().contiguous(),
                                    .absmax = absmax,
                                    .offset = offset->get<float>(),
                                    .map = map}
        .unpack();
  }

  const ModelTensors& tensors_;
  const std::string& name_;
  Json state_;
  std::vector<int64_t> sizes_;
  int64_t count_ = 0;
  at::ScalarType type_ = at::kFloat;
};

}  // namespace

bool Nf4Files::has(const std::string& name) const {
  return tensors_.has(name + std::string(kState));
}

bool Nf4Files::is_part(const std::string& name) const {
  return std::ranges::any_of(kParts, [&](std::string_view end) {
    return name.ends_with(end) && has(name.substr(0, name.size() - end.size()));
  });
}

std::pair<std::vector<int64_t>, at::ScalarType> Nf4Files::shape_and_type(
    const std::string& name) const {
  return Reader(tensors_, name).shape_and_type();
}

QuantizedValues Nf4Files::read(const std::string& name) const {
  return Reader(tensors_, name).read();
}

}  // namespace finetune
