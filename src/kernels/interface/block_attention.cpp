// SPDX-License-Identifier: MIT
#include "finetune/kernels/block_attention.h"

#include <atomic>
#include <memory>

#include "finetune/base/error.h"
#include "finetune/tensor/backward.h"
#include "kernels/interface/dropout_mask.h"
#include "kernels/interface/kernels.h"

namespace finetune {
namespace kernels {
namespace {

std::atomic<int64_t> passes{0};

void check_blocks(const BlockAttention& inputs) {
  FT_CHECK(inputs.query.is_contiguous() && inputs.key.is_contiguous() &&
               inputs.value.is_contiguous() && inputs.query.size(2) % inputs.pattern.heads == 0,
           "attention takes contiguous [B, T, C] that its heads divide");
  FT_CHECK(!inputs.mask.defined() ||
               (inputs.mask.is_contiguous() && inputs.mask.scalar_type() == at::kBool &&
                inputs.mask.numel() == inputs.query.size(0) * inputs.query.size(1)),
           "the mask of attention is a contiguous bool [B, 1, 1, T]");
}

}  // namespace

BlockContext block_attention(const BlockAttention& inputs) {
  check_blocks(inputs);
  ++passes;
  return kernels_for(inputs.query).block_attention(inputs);
}

void block_attention_backward(const BlockAttention& inputs, const BlockContext& forward,
                              const Tensor& gradient) {
  check_blocks(inputs);
  kernels_for(inputs.query).block_attention_backward(inputs, forward, gradient);
}

BlockAttention make_block_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& mask, const BlockLayer& layer,
                                    const BlockSparseOptions& options) {
  const double p = options.like_transformers ? 0.0 : layer.dropout_probability;
  return {.query = query,
          .key = key,
          .value = value,
          .pattern = make_block_pattern(options, layer.layer, layer.heads, query.size(1),
                                        !layer.dropout.has_value()),
          .mask = mask,
          .dropout = make_dropout_numbers(p, layer.dropout, layer.layer,
                                          DropoutSite::kAttentionProbabilities)};
}

}  // namespace kernels

int64_t count_block_sparse_passes() { return kernels::passes; }

Tensor block_sparse_attention(const BlockSparseAttention& inputs,
                              const BlockSparseOptions& options) {
  const kernels::BlockLayer layer = {.layer = inputs.layer,
                                     .heads = inputs.heads,
                                     .dropout_probability = inputs.dropout_probability,
                                     .dropout = inputs.dropout};
  const auto made = std::make_shared<kernels::BlockAttention>(kernels::make_block_attention(
      inputs.query.detach().contiguous(), inputs.key.detach().contiguous(),
      inputs.value.detach().contiguous(),
      inputs.mask.defined() ? inputs.mask.contiguous() : Tensor(), layer, options));
  const auto forward = std::make_shared<kernels::BlockContext>(kernels::block_attention(*made));
  return attach_backward(forward->context, {inputs.query, inputs.key, inputs.value},
                         [made, forward](const Tensor& gradient) -> std::vector<Tensor> {
                           // The backward pass overwrites its inputs, which may belong to others:
                           // copy them.
                           made->query = made->query.clone();
                           made->key = made->key.clone();
                           made->value = made->value.clone();
                           kernels::block_attention_backward(*made, *forward,
                                                             gradient.contiguous());
                           return {made->query, made->key, made->value};
                         });
}

}  // namespace finetune
