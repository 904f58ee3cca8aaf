// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "finetune/tensor/tensor.h"

namespace finetune {

struct Neighbour {
  float score;  // product with the query
  int64_t document;
};

// Keeps, for each query, the documents with the highest products: exact, and of equal ones the
// first; of NaN none. Documents come in any portions and are not kept.
class NearestDocuments {
 public:
  using Visit = std::function<void(int64_t query, std::span<const Neighbour> nearest)>;

  // `queries` [Q, D], float32 on the CPU.
  NearestDocuments(Tensor queries, int64_t most);
  ~NearestDocuments();
  // Adds documents [N, D], which are numbered in their order from 0. Throws Interrupted.
  void add(const Tensor& documents);
  // Calls `visit` for each query in order with its `most` nearest, the nearest first.
  void visit(const Visit& visit);

 private:
  class Best;
  void search(const Tensor& documents);

  Tensor queries_;
  std::vector<Best> best_;
  int64_t documents_ = 0;  // searched
  std::vector<Tensor> waiting_;
  int64_t waiting_rows_ = 0;
};

// The same with all documents [N, D] at hand, and for some queries at a time, which bounds the
// memory.
void visit_nearest(const Tensor& queries, const Tensor& documents, int64_t most,
                   const NearestDocuments::Visit& visit);

// Returns rows of length 1 [N, D], float32 on the CPU.
[[nodiscard]] Tensor unit_rows(const Tensor& vectors);

}  // namespace finetune
