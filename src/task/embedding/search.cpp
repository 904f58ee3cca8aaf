// SPDX-License-Identifier: MIT
#include "task/embedding/search.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"

namespace finetune {
namespace {

constexpr int64_t kQueriesAtOnce = 256;
constexpr int64_t kDocumentsAtOnce = 4096;

bool is_nearer(const Neighbour& x, const Neighbour& y) {
  return x.score != y.score ? x.score > y.score : x.document < y.document;
}

// The best of the documents seen so far, which come in ascending order.
class Best {
 public:
  void begin(int64_t most) {
    most_ = static_cast<size_t>(most);
    found_.clear();
    limit_ = -std::numeric_limits<float>::infinity();
  }
  void add(const float* scores, int64_t count, int64_t first) {
    for (int64_t i = 0; i < count; ++i) {
      const bool is_better = scores[i] > limit_ || (found_.size() < most_ && scores[i] == limit_);
      if (is_better) take({scores[i], first + i});
    }
  }
  std::span<const Neighbour> sorted() {
    std::ranges::sort(found_, is_nearer);
    found_.resize(std::min(found_.size(), most_));
    return found_;
  }

 private:
  void take(const Neighbour& found) {
    found_.push_back(found);
    if (found_.size() < 2 * most_ + 64) return;
    const auto kept = found_.begin() + static_cast<std::ptrdiff_t>(most_);
    std::nth_element(found_.begin(), kept - 1, found_.end(), is_nearer);
    found_.erase(kept, found_.end());
    limit_ = found_.back().score;
  }

  size_t most_ = 0;
  std::vector<Neighbour> found_;
  float limit_ = 0;  // later documents with this score are not among the best
};

}  // namespace

void visit_nearest(
    const Tensor& queries, const Tensor& documents, int64_t most,
    const std::function<void(int64_t query, std::span<const Neighbour> nearest)>& visit) {
  FT_CHECK(most >= 1, "some neighbours");
  const int64_t count = documents.size(0);
  std::vector<Best> best(kQueriesAtOnce);
  for (int64_t first = 0; first < queries.size(0); first += kQueriesAtOnce) {
    interrupt::throw_if_requested("searching");
    const int64_t some = std::min(kQueriesAtOnce, queries.size(0) - first);
    const Tensor block = queries.narrow(0, first, some);
    for (Best& list : best) list.begin(most);
    for (int64_t begin = 0; begin < count; begin += kDocumentsAtOnce) {
      const int64_t width = std::min(kDocumentsAtOnce, count - begin);
      const Tensor scores = block.mm(documents.narrow(0, begin, width).t()).contiguous();
      const auto* values = scores.const_data_ptr<float>();
      at::parallel_for(0, some, 16, [&](int64_t from, int64_t to) {
        for (int64_t q = from; q < to; ++q) {
          best[static_cast<size_t>(q)].add(values + q * width, width, begin);
        }
      });
    }
    for (int64_t q = 0; q < some; ++q) visit(first + q, best[static_cast<size_t>(q)].sorted());
  }
}

Tensor unit_rows(const Tensor& vectors) {
  const Tensor rows = vectors.to(at::kCPU, at::kFloat).contiguous();
  return rows / at::linalg_vector_norm(rows, 2, {-1}, /*keepdim=*/true).clamp_min(1e-12);
}

}  // namespace finetune
