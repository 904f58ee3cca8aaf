// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensor/weight_file.h"

namespace finetune {

// A stack of matrices [E, in, out] that files have in MXFP4 (base/mxfp4.h), as transformers writes
// gpt-oss: "<name>_blocks" uint8 [E, out, in / 32, 16] and "<name>_scales" uint8 [E, out, in / 32].
// Its values are read as bfloat16, which holds them exactly.
class Mxfp4Weights final : public WeightFile {
 public:
  // Where a part of such a stack is, in one file or two.
  struct Part {
    std::shared_ptr<const WeightFile> file;
    TensorInfo info;
  };
  static constexpr char kBlocks[] = "_blocks";
  static constexpr char kScales[] = "_scales";

  // Throws Error(kData) naming file and tensor if the parts do not belong together.
  void add(const std::string& name, const Part& blocks, const Part& scales);
  // Blocks and scales as they are, flat; see QuantizedValues. Throws Error(kData) if there is a
  // scale beyond what bfloat16 holds.
  [[nodiscard]] std::pair<Tensor, Tensor> read_codes(const std::string& name) const;

  [[nodiscard]] const std::string& path() const override;
  [[nodiscard]] const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  [[nodiscard]] Tensor read(const TensorInfo& info) const override;
  [[nodiscard]] bool reads_rows() const override { return true; }
  [[nodiscard]] Tensor read_rows(const TensorInfo& info, int64_t first,
                                 int64_t count) const override;
  void read_into(const TensorInfo& info, Tensor& target) const override;

 private:
  struct Stack {
    Part blocks, scales;
  };
  std::vector<TensorInfo> tensors_;
  std::map<std::string, Stack> stacks_;
};

}  // namespace finetune
