// SPDX-License-Identifier: MIT
#include "finetune/model/parameter_shapes.h"

#include <algorithm>

#include "model/backbone_with_head.h"

namespace finetune {

int64_t ParameterShape::count() const {
  int64_t values = 1;
  for (const int64_t size : sizes) values *= size;
  return values;
}

std::vector<int64_t> ParameterShape::own_sizes() const {
  if (!is_divided()) return sizes;
  return {part_of_values(count(), division.rank, division.ranks).count};
}

int64_t loss_rows_per_chunk(const ModelConfig& config, int64_t head_rows_per_chunk) {
  constexpr int64_t kMostLogits = int64_t{1} << 24;  // of 4 bytes
  constexpr int64_t kUsualRows = 128;                // the factor is that of any number of rows
  if (!is_causal(config)) return head_rows_per_chunk;
  const int64_t factor = kMostLogits / (kUsualRows * config.vocab_size);
  return head_rows_per_chunk * std::clamp<int64_t>(factor, 1, 4);
}

std::vector<ParameterShape> parameter_shapes(const ModelConfig& config, std::optional<Head> head,
                                             const std::vector<std::string>& freeze,
                                             const ShardingOptions& sharding) {
  const ModelParts parts = make_parts(config_for(head, config), head);
  ModelOptions options;
  options.freeze = freeze;
  options.sharding = sharding;
  const std::vector<ParameterFormat> formats = parameter_formats(parts, config, options);
  std::vector<ParameterShape> shapes;
  for (const Weight& weight : parts.weights) {
    const ParameterFormat& format = formats[weight.id()];
    shapes.push_back({weight.name(), weight.sizes().vec(), weight.role(), format.trainable,
                      format.home == WeightHome::kBase, format.division});
  }
  return shapes;
}

}  // namespace finetune
