// SPDX-License-Identifier: MIT
#include "task/embedding/search.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "task/embedding/losses.h"

namespace finetune {
namespace {

constexpr int64_t kQueriesAtOnce = 512;
constexpr int64_t kDocumentsAtOnce = 4096;

bool is_nearer(const Neighbour& x, const Neighbour& y) {
  return x.score != y.score ? x.score > y.score : x.document < y.document;
}

}  // namespace

// The best of the documents seen so far, which come in ascending order.
class NearestDocuments::Best {
 public:
  explicit Best(int64_t most) : most_(static_cast<size_t>(most)) {}

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
    limit_ = (kept - 1)->score;
    found_.erase(kept, found_.end());
  }

  size_t most_;
  std::vector<Neighbour> found_;
  // Later documents with this score are not among the best.
  float limit_ = -std::numeric_limits<float>::infinity();
};

NearestDocuments::NearestDocuments(Tensor queries, int64_t most)
    : queries_(std::move(queries)), best_(static_cast<size_t>(queries_.size(0)), Best(most)) {
  FT_CHECK(most >= 1, "some neighbours");
}

NearestDocuments::~NearestDocuments() = default;

void NearestDocuments::add(const Tensor& documents) {
  waiting_.push_back(documents);
  waiting_rows_ += documents.size(0);
  if (waiting_rows_ < kDocumentsAtOnce) return;
  const Tensor all = waiting_.size() == 1 ? documents : at::cat(waiting_);
  waiting_.clear();
  waiting_rows_ = 0;
  for (int64_t begin = 0; begin < all.size(0); begin += kDocumentsAtOnce) {
    search(all.narrow(0, begin, std::min(kDocumentsAtOnce, all.size(0) - begin)));
  }
}

void NearestDocuments::search(const Tensor& documents) {
  const int64_t width = documents.size(0);
  for (int64_t first = 0; first < queries_.size(0); first += kQueriesAtOnce) {
    interrupt::throw_if_requested("searching");
    const int64_t some = std::min(kQueriesAtOnce, queries_.size(0) - first);
    const Tensor scores = queries_.narrow(0, first, some).mm(documents.t()).contiguous();
    const auto* values = scores.const_data_ptr<float>();
    at::parallel_for(0, some, 16, [&](int64_t from, int64_t to) {
      for (int64_t q = from; q < to; ++q) {
        best_[static_cast<size_t>(first + q)].add(values + q * width, width, documents_);
      }
    });
  }
  documents_ += width;
}

void NearestDocuments::visit(const Visit& visit) {
  if (!waiting_.empty()) {
    const Tensor rest = at::cat(waiting_);
    waiting_.clear();
    waiting_rows_ = 0;
    search(rest);
  }
  for (size_t q = 0; q < best_.size(); ++q) visit(static_cast<int64_t>(q), best_[q].sorted());
}

void visit_nearest(const Tensor& queries, const Tensor& documents, int64_t most,
                   const NearestDocuments::Visit& visit) {
  for (int64_t first = 0; first < queries.size(0); first += kQueriesAtOnce) {
    const int64_t some = std::min(kQueriesAtOnce, queries.size(0) - first);
    NearestDocuments nearest(queries.narrow(0, first, some), most);
    nearest.add(documents);
    nearest.visit(
        [&](int64_t query, std::span<const Neighbour> found) { visit(first + query, found); });
  }
}

Tensor unit_rows(const Tensor& vectors) {
  return unit(vectors.to(at::kCPU, at::kFloat).contiguous());
}

}  // namespace finetune
