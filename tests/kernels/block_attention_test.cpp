// SPDX-License-Identifier: MIT
#include "finetune/kernels/block_attention.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <set>

#include "kernels/interface/attention_core.h"

namespace finetune {
namespace {

struct BlockCase {
  int64_t batch = 2;
  int64_t tokens = 160;
  int64_t heads = 2;
  int64_t head_size = 16;
  int64_t block_size = 16;
  double dropout = 0.0;
  bool masked = false;
  bool like_transformers = false;
};

// Random inputs, and attention computed with a dense mask of counts.
struct Setting {
  BlockCase wanted;
  BlockSparseOptions options;
  BlockSparseAttention inputs;
  Tensor gradient;

  explicit Setting(const BlockCase& given, at::ScalarType type = at::kFloat) : wanted(given) {
    at::manual_seed(3);
    options = {.block_size = given.block_size,
               .random_blocks = 2,
               .seed = 11,
               .like_transformers = given.like_transformers};
    const std::vector<int64_t> shape = {given.batch, given.tokens, given.heads * given.head_size};
    const auto make = [&] { return at::randn(shape, at::kDouble).to(type); };
    inputs = {.query = make(), .key = make(), .value = make(), .heads = given.heads, .layer = 4};
    gradient = make();
    if (given.masked) {
      inputs.mask = at::ones({given.batch, 1, 1, given.tokens}, at::kBool);
      inputs.mask[0].narrow(-1, given.tokens / 2, given.tokens - given.tokens / 2).fill_(false);
      inputs.mask[1].copy_(at::rand({1, 1, given.tokens}).gt(0.3));
    }
    inputs.dropout_probability = given.dropout;
    if (given.dropout > 0) {
      inputs.dropout = DropoutStream{.seed = 5, .update = 9, .first_position = 30};
    }
  }

  // Returns [H, T, T]: how often a query attends to a key.
  [[nodiscard]] Tensor counts() const {
    const kernels::BlockPattern pattern = kernels::make_block_pattern(
        options, inputs.layer, inputs.heads, wanted.tokens, !inputs.dropout.has_value());
    Tensor counts =
        at::zeros({inputs.heads, pattern.blocks, pattern.blocks}, inputs.query.options());
    for (int64_t head = 0; head < inputs.heads; ++head) {
      for (int64_t row = 0; row < pattern.blocks; ++row) {
        for (const int32_t key : pattern.keys.of(head, row)) counts[head][row][key] += 1;
      }
    }
    return counts.repeat_interleave(wanted.block_size, 1)
        .repeat_interleave(wanted.block_size, 2)
        .narrow(1, 0, wanted.tokens)
        .narrow(2, 0, wanted.tokens);
  }

  [[nodiscard]] Tensor dense(const Tensor& query, const Tensor& key, const Tensor& value) const {
    const auto by_head = [&](const Tensor& x) {
      return x.unflatten(-1, {inputs.heads, -1}).transpose(1, 2);
    };
    Tensor scores = by_head(query).matmul(by_head(key).transpose(-1, -2)) /
                        std::sqrt(static_cast<double>(wanted.head_size)) +
                    counts().log();
    Tensor rows = at::ones({wanted.batch, 1, wanted.tokens, 1}, at::kBool);
    if (inputs.mask.defined()) {
      scores =
          scores.masked_fill(inputs.mask.logical_not(), -std::numeric_limits<double>::infinity());
      rows = inputs.mask.transpose(-1, -2);
    }
    Tensor probabilities = at::where(rows, scores.softmax(-1), 0.0);
    if (inputs.dropout && !options.like_transformers) {
      probabilities = probabilities * dropout_mask_reference(probabilities, wanted.dropout,
                                                             *inputs.dropout, inputs.layer,
                                                             DropoutSite::kAttentionProbabilities);
    }
    return probabilities.matmul(by_head(value)).transpose(1, 2).flatten(2);
  }

  // Returns the result and the gradients of query, key and value.
  template <typename Function>
  [[nodiscard]] std::vector<Tensor> differentiate(const Function& function) const {
    const Tensor query = inputs.query.detach().requires_grad_();
    const Tensor key = inputs.key.detach().requires_grad_();
    const Tensor value = inputs.value.detach().requires_grad_();
    const Tensor result = function(query, key, value);
    std::vector<Tensor> all = torch::autograd::grad({result}, {query, key, value}, {gradient});
    all.push_back(result.detach());
    return all;
  }
  [[nodiscard]] std::vector<Tensor> by_blocks() const {
    return differentiate([&](const Tensor& query, const Tensor& key, const Tensor& value) {
      BlockSparseAttention given = inputs;
      given.query = query;
      given.key = key;
      given.value = value;
      return block_sparse_attention(given, options);
    });
  }
  [[nodiscard]] std::vector<Tensor> by_dense_mask() const {
    return differentiate([&](const Tensor& query, const Tensor& key, const Tensor& value) {
      return dense(query, key, value);
    });
  }
};

void expect_near(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected,
                 double tolerance) {
  const char* names[] = {"of query", "of key", "of value", "context"};
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const Tensor wanted = expected[i].to(at::kDouble);
    const double difference = (actual[i].to(at::kDouble) - wanted).abs().max().item<double>();
    EXPECT_LE(difference, tolerance * wanted.abs().max().item<double>()) << names[i];
  }
}

class BlockAttentionLikeDense : public ::testing::TestWithParam<BlockCase> {};

TEST_P(BlockAttentionLikeDense, GivesTheSameInDoublePrecision) {
  const Setting setting(GetParam(), at::kDouble);
  expect_near(setting.by_blocks(), setting.by_dense_mask(), 1e-12);
}

TEST_P(BlockAttentionLikeDense, GivesTheSameInFloat) {
  const Setting setting(GetParam());
  expect_near(setting.by_blocks(), Setting(GetParam(), at::kDouble).by_blocks(), 4e-6);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, BlockAttentionLikeDense,
    ::testing::Values(
        BlockCase{}, BlockCase{.dropout = 0.2}, BlockCase{.masked = true},
        BlockCase{.dropout = 0.2, .masked = true},
        BlockCase{.tokens = 149, .dropout = 0.2, .masked = true},  // padded to whole blocks
        BlockCase{.tokens = 130, .head_size = 60, .block_size = 12, .dropout = 0.1},
        BlockCase{.tokens = 97, .head_size = 5, .block_size = 7, .dropout = 0.1},
        BlockCase{.batch = 1, .tokens = 600, .head_size = 64, .block_size = 64},
        BlockCase{.tokens = 20, .block_size = 16}, BlockCase{.tokens = 9, .block_size = 16},
        BlockCase{.like_transformers = true}, BlockCase{.masked = true, .like_transformers = true},
        BlockCase{.dropout = 0.2, .like_transformers = true}));

TEST(BlockAttention, HasTheGradientOfItsOwnDifferences) {
  Setting setting(
      {.tokens = 21, .heads = 2, .head_size = 3, .block_size = 3, .dropout = 0.2, .masked = true},
      at::kDouble);
  setting.inputs.mask[1][0][0][4].fill_(true);
  const std::vector<Tensor> gradients = setting.by_blocks();
  const auto loss = [&] {
    return (block_sparse_attention(setting.inputs, setting.options) * setting.gradient)
        .sum()
        .item<double>();
  };
  const std::vector<Tensor> inputs = {setting.inputs.query, setting.inputs.key,
                                      setting.inputs.value};
  for (size_t which = 0; which < inputs.size(); ++which) {
    const Tensor flat = inputs[which].view({-1});
    for (int64_t i = 0; i < flat.numel(); i += 5) {
      const double before = flat[i].item<double>();
      flat[i].fill_(before + 1e-5);
      const double above = loss();
      flat[i].fill_(before - 1e-5);
      const double below = loss();
      flat[i].fill_(before);
      EXPECT_NEAR(gradients[which].reshape({-1})[i].item<double>(), (above - below) / 2e-5, 1e-8)
          << which << " " << i;
    }
  }
}

TEST(BlockAttention, GivesZerosWhereNothingMayBeAttendedTo) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    Setting setting({.dropout = 0.2, .masked = true}, type);
    setting.inputs.mask[0].fill_(false);
    for (const Tensor& x : setting.by_blocks()) {
      EXPECT_EQ(x[0].abs().max().item<double>(), 0.0);
      EXPECT_TRUE(x.isfinite().all().item<bool>());
      EXPECT_GT(x[1].abs().max().item<double>(), 0.0);
    }
  }
}

TEST(BlockAttention, GivesEqualBitsForEveryNumberOfThreads) {
  const Setting setting({.batch = 1, .tokens = 300, .heads = 3, .dropout = 0.2});
  const int before = at::get_num_threads();
  std::vector<std::vector<Tensor>> results;
  for (const int threads : {1, 2, 8}) {
    at::set_num_threads(threads);
    results.push_back(setting.by_blocks());
  }
  at::set_num_threads(before);
  for (const auto& result : results) {
    for (size_t i = 0; i < result.size(); ++i) EXPECT_TRUE(result[i].equal(results[0][i])) << i;
  }
}

TEST(BlockAttention, ComputesInTheHalvesWithinTheirPrecision) {
  const Setting exact({.dropout = 0.2, .masked = true}, at::kDouble);
  const std::vector<Tensor> expected = exact.by_blocks();
  expect_near(Setting(exact.wanted, at::kBFloat16).by_blocks(), expected, 0.05);
  expect_near(Setting(exact.wanted, at::kHalf).by_blocks(), expected, 0.005);
}

TEST(BlockAttention, CountsItsPasses) {
  const Setting setting({});
  const int64_t before = count_block_sparse_passes();
  (void)setting.by_blocks();
  EXPECT_EQ(count_block_sparse_passes(), before + 1);
}

TEST(BlockPattern, SeesEndsWindowAndSomeOthers) {
  const BlockSparseOptions options = {.block_size = 64, .random_blocks = 3, .seed = 1};
  const kernels::BlockPattern pattern = kernels::make_block_pattern(options, 2, 4, 4096, false);
  ASSERT_EQ(pattern.blocks, 64);
  std::set<int32_t> drawn;
  for (int64_t head = 0; head < 4; ++head) {
    for (int32_t row = 0; row < 64; ++row) {
      const auto list = pattern.keys.of(head, row);
      const std::set<int32_t> seen(list.begin(), list.end());
      EXPECT_EQ(seen.size(), list.size()) << "a block is listed twice";
      for (const int32_t block : {0, 63, std::max(0, row - 1), row, std::min(63, row + 1)}) {
        EXPECT_TRUE(seen.contains(block)) << row << " " << block;
      }
      const bool at_an_end = row == 0 || row == 63;
      const bool beside_an_end = row == 1 || row == 62;
      EXPECT_EQ(seen.size(), at_an_end ? 64U : beside_an_end ? 7U : 8U) << row;
      if (!at_an_end) drawn.insert(seen.begin(), seen.end());
    }
  }
  EXPECT_EQ(drawn.size(), 64U) << "blocks are drawn from the whole sequence";
}

TEST(BlockPattern, IsAFunctionOfSeedLayerHeadAndLength) {
  const auto lists = [](uint64_t seed, int64_t layer, int64_t tokens) {
    const BlockSparseOptions options = {.block_size = 16, .random_blocks = 3, .seed = seed};
    const kernels::BlockPattern pattern =
        kernels::make_block_pattern(options, layer, 2, tokens, false);
    std::vector<std::vector<int32_t>> rows;
    for (int64_t head = 0; head < 2; ++head) {
      for (int64_t row = 1; row < 40; ++row) {
        const auto list = pattern.keys.of(head, row);
        rows.emplace_back(list.begin(), list.end());
      }
    }
    return rows;
  };
  const auto rows = lists(1, 0, 800);
  EXPECT_EQ(rows, lists(1, 0, 795)) << "the same number of blocks";
  EXPECT_NE(rows, lists(2, 0, 800));
  EXPECT_NE(rows, lists(1, 1, 800));
  EXPECT_NE(rows, lists(1, 0, 816));
  EXPECT_NE(std::vector(rows.begin(), rows.begin() + 39),
            std::vector(rows.begin() + 39, rows.end()));
  // Checkpoints depend on these blocks: never change them.
  EXPECT_EQ(rows[4], (std::vector<int32_t>{0, 4, 5, 6, 10, 27, 34, 49}));
}

TEST(BlockPattern, TransposesItsLists) {
  const BlockSparseOptions options = {.block_size = 8, .random_blocks = 2, .seed = 9};
  const kernels::BlockPattern pattern = kernels::make_block_pattern(options, 0, 2, 200, false);
  for (int64_t head = 0; head < 2; ++head) {
    std::multiset<std::pair<int32_t, int32_t>> forward;
    std::multiset<std::pair<int32_t, int32_t>> backward;
    for (int32_t row = 0; row < pattern.blocks; ++row) {
      for (const int32_t key : pattern.keys.of(head, row)) forward.insert({row, key});
      for (const int32_t query : pattern.queries.of(head, row)) backward.insert({query, row});
    }
    EXPECT_EQ(forward, backward);
  }
}

TEST(BlockPattern, RepeatsTheFirstBlockWhereTransformersEvaluates) {
  const BlockSparseOptions options = {
      .block_size = 8, .random_blocks = 2, .seed = 9, .like_transformers = true};
  const auto list_of = [&](bool evaluation) {
    const auto pattern = kernels::make_block_pattern(options, 0, 1, 200, evaluation);
    const auto list = pattern.keys.of(0, 5);
    return std::vector<int32_t>(list.begin(), list.end());
  };
  EXPECT_EQ(list_of(true), (std::vector<int32_t>{0, 0, 0, 4, 5, 6, 24}));
  const std::vector<int32_t> drawn = list_of(false);
  EXPECT_EQ(std::set<int32_t>(drawn.begin(), drawn.end()).size(), 7U);
}

}  // namespace
}  // namespace finetune
