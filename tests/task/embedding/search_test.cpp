// SPDX-License-Identifier: MIT
#include "task/embedding/search.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/topk.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace finetune {
namespace {

using Found = std::vector<std::vector<Neighbour>>;

// Numbers without an order.
Tensor some_rows(int64_t count, int64_t seed) {
  const Tensor x = at::arange(count * 16, at::kDouble) * 12.9898 + static_cast<double>(seed);
  return (at::sin(x) * 43758.5453).frac().to(at::kFloat).view({count, 16});
}

Found searched(const Tensor& queries, const std::vector<Tensor>& portions, int64_t most) {
  NearestDocuments nearest(queries, most);
  for (const Tensor& portion : portions) nearest.add(portion);
  Found found;
  nearest.visit([&](int64_t query, std::span<const Neighbour> own) {
    EXPECT_EQ(query, std::ssize(found));
    found.emplace_back(own.begin(), own.end());
  });
  return found;
}

TEST(Search, FindsWhatASortOfAllProductsFinds) {
  const Tensor queries = some_rows(600, 1);
  const Tensor documents = some_rows(9000, 2);
  const auto [scores, indices] = at::topk(queries.mm(documents.t()), 7, 1);
  int64_t visited = 0;
  visit_nearest(queries, documents, 7, [&](int64_t query, std::span<const Neighbour> nearest) {
    ASSERT_EQ(nearest.size(), 7U);
    for (size_t i = 0; i < nearest.size(); ++i) {
      const auto rank = static_cast<int64_t>(i);
      EXPECT_EQ(nearest[i].document, indices[query][rank].item<int64_t>());
      EXPECT_NEAR(nearest[i].score, scores[query][rank].item<float>(), 1e-5);
    }
    ++visited;
  });
  EXPECT_EQ(visited, 600);
}

TEST(Search, TakesDocumentsInAnyPortions) {
  const Tensor queries = some_rows(3, 1);
  const Tensor documents = some_rows(9000, 2);
  const Found whole = searched(queries, {documents}, 100);
  std::vector<Tensor> portions;
  for (int64_t first = 0; first < 9000; first += 100) {
    portions.push_back(documents.narrow(0, first, 100));
  }
  const Found parts = searched(queries, portions, 100);
  for (size_t q = 0; q < 3; ++q) {
    ASSERT_EQ(parts[q].size(), 100U);
    for (size_t i = 0; i < 100; ++i) EXPECT_EQ(parts[q][i].document, whole[q][i].document);
  }
}

TEST(Search, OfEqualScoresTheFirstDocumentsAreNearest) {
  const Tensor one = at::ones({1, 16});  // products are exact
  const Found found = searched(one, {one.expand({9000, 16})}, 5);
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(found[0][static_cast<size_t>(i)].document, i);
}

TEST(Search, HasFewerWhereThereAreFewerAndNoneThatIsNaN) {
  const Tensor documents = some_rows(6, 4);
  documents[2].fill_(std::nan(""));
  const Found found = searched(some_rows(2, 5), {documents}, 10);
  for (const auto& own : found) {
    EXPECT_EQ(own.size(), 5U);
    for (const Neighbour& one : own) EXPECT_NE(one.document, 2);
  }
}

}  // namespace
}  // namespace finetune
