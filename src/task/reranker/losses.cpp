// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/softmax.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>

#include "finetune/base/error.h"
#include "task/loss/head_task.h"
#include "task/loss/loss_kwargs.h"
#include "task/loss/model_input.h"
#include "task/reranker/reranker.h"

namespace finetune {
namespace {

using Args = RerankerLossArgs;
using Labels = std::vector<float>;

const std::vector<std::string>& schemes() {
  static const std::vector<std::string> kSchemes = {"NDCGLoss2PPScheme", "NDCGLoss2Scheme",
                                                    "LambdaRankScheme", "NoWeightingScheme"};
  return kSchemes;
}

// A query that has fewer documents than another has labels of NaN for the rest.
int64_t every_label(const Labels& labels, int64_t /*documents*/) {
  return std::ranges::count_if(labels, [](float label) { return !std::isnan(label); });
}

int64_t every_sample(const Labels& labels, int64_t documents) {
  return std::ssize(labels) / documents;
}

int64_t every_margin(const Labels& labels, int64_t documents) {
  return every_label(labels, documents) - every_sample(labels, documents);
}

Tensor of_present(const Tensor& values, const Tensor& labels, double otherwise) {
  return values.masked_fill(labels.isnan(), otherwise);
}

// Pairs of documents of a query, the first of which is more relevant.
int64_t ordered_pairs(const Labels& labels, int64_t documents) {
  int64_t count = 0;
  for (auto begin = labels.begin(); begin != labels.end(); begin += documents) {
    for (auto i = begin; i != begin + documents; ++i) {
      count += std::count_if(begin, begin + documents, [&](float other) { return *i > other; });
    }
  }
  return count;
}

Tensor binary_cross_entropy(const Tensor& logits, const Tensor& labels, const Args& args) {
  const Tensor weight = at::full({1}, args.pos_weight, logits.options());
  const Tensor present = labels.isnan().logical_not().to(logits.scalar_type());
  return at::binary_cross_entropy_with_logits(logits, of_present(labels, labels, 0), present,
                                              weight, at::Reduction::Sum);
}

Tensor squared_error(const Tensor& logits, const Tensor& labels, const Args& /*args*/) {
  return at::mse_loss(of_present(logits, labels, 0), of_present(labels, labels, 0),
                      at::Reduction::Sum);
}

// Of the differences of a sample's first document and its others (Hofstätter et al. 2020, eq. 3).
Tensor margin_error(const Tensor& logits, const Tensor& labels, const Args& /*args*/) {
  const auto margins = [&](const Tensor& x) {
    return of_present(x.narrow(1, 0, 1) - x.slice(1, 1), labels.slice(1, 1), 0);
  };
  return at::mse_loss(margins(logits), margins(labels), at::Reduction::Sum);
}

// Cao et al. 2007, "Learning to Rank: From Pairwise Approach to Listwise Approach", with the
// probability of a document to be the first
Tensor list_net(const Tensor& logits, const Tensor& labels, const Args& /*args*/) {
  const double none = -std::numeric_limits<double>::infinity();
  const Tensor shares = at::softmax(of_present(labels, labels, none), 1);
  const Tensor own = at::log_softmax(of_present(logits, labels, none), 1);
  return -(shares * of_present(own, labels, 0)).sum();
}

// Weights of pairs, from gains and discounts of the documents in the order of their scores (Wang et
// al. 2018, "The LambdaLoss Framework for Ranking Metric Optimization", eq. 12, 14 and 19).
Tensor pair_weights(const Tensor& gain, const std::string& scheme) {
  const int64_t documents = gain.size(1);
  const Tensor position = at::arange(1, documents + 1, gain.options());
  const Tensor inverse = 1 / (position + 1).log2();  // of the discounts
  const Tensor gains = (gain.unsqueeze(2) - gain.unsqueeze(1)).abs();
  const Tensor lambda_rank = (inverse.unsqueeze(1) - inverse.unsqueeze(0)).abs();
  const Tensor distance = (position.unsqueeze(1) - position.unsqueeze(0)).abs();
  const Tensor ndcg =
      (1 / (distance.clamp_min(1) + 1).log2() - 1 / (distance.clamp_min(1) + 2).log2()).abs() *
      distance.gt(0);
  constexpr double kMu = 10.0;
  if (scheme == "LambdaRankScheme") return lambda_rank * gains;
  if (scheme == "NDCGLoss2Scheme") return ndcg * gains;
  return (kMu * ndcg + lambda_rank) * gains;
}

Tensor pairs_loss(const Tensor& logits, const Tensor& labels, const Args& args,
                  const std::string& scheme) {
  constexpr double kLast = -1e4;  // below every score
  const auto [scores, order] =
      of_present(logits, labels, kLast).sort(/*dim=*/1, /*descending=*/true);
  const Tensor sorted = labels.gather(1, order);
  const Tensor is_ordered = (sorted.unsqueeze(2) - sorted.unsqueeze(1)).gt(0);  // of NaN nothing
  const Tensor relevance = of_present(sorted, sorted, 0);
  Tensor losses =
      at::log_sigmoid(args.sigma * (scores.unsqueeze(2) - scores.unsqueeze(1))) / std::numbers::ln2;
  if (scheme != "NoWeightingScheme") {
    const Tensor discount = (at::arange(1, labels.size(1) + 1, labels.options()) + 1).log2();
    const Tensor ideal = std::get<0>(of_present(labels, labels, 0).clamp_min(0).sort(1, true));
    const Tensor best = ((at::pow(2, ideal) - 1) / discount).sum(1, true).clamp_min(1e-10);
    const Tensor gain = (at::pow(2, relevance.clamp_min(0)) - 1) / best;
    losses = losses * pair_weights(gain, scheme);
  }
  return -(losses * is_ordered).sum();
}

Tensor lambda_loss(const Tensor& logits, const Tensor& labels, const Args& args) {
  return pairs_loss(logits, labels, args, args.weighting_scheme);
}

// Burges et al. 2005, "Learning to Rank using Gradient Descent"
Tensor rank_net(const Tensor& logits, const Tensor& labels, const Args& args) {
  return pairs_loss(logits, labels, args, "NoWeightingScheme");
}

// The probability of a sample's first document among all of its documents.
Tensor first_among_others(const Tensor& logits, const Tensor& labels, const Args& args) {
  const Tensor scores =
      of_present(args.scale * logits.sigmoid(), labels, -std::numeric_limits<double>::infinity());
  return -at::log_softmax(scores, 1).select(1, 0).sum();
}

const std::vector<RerankerLoss>& all_losses() {
  static const std::vector<RerankerLoss> kAll = {
      {"BinaryCrossEntropyLoss", false, true, {"pos_weight"}, every_label, binary_cross_entropy},
      {"MSELoss", false, true, {}, every_label, squared_error},
      {"MarginMSELoss", true, true, {}, every_margin, margin_error},
      {"ListNetLoss", true, true, {}, every_sample, list_net},
      {"RankNetLoss", true, true, {"sigma"}, ordered_pairs, rank_net},
      {"LambdaLoss", true, true, {"sigma", "weighting_scheme"}, ordered_pairs, lambda_loss},
      {"MultipleNegativesRankingLoss",
       false,
       false,
       {"scale", "num_negatives"},
       every_sample,
       first_among_others},
      {"CachedMultipleNegativesRankingLoss",
       false,
       false,
       {"scale", "num_negatives"},
       every_sample,
       first_among_others}};
  return kAll;
}

class RerankerTask final : public HeadTask {
 public:
  RerankerTask(Model& model, c10::Device device, const RerankerLoss& loss, Args args)
      : HeadTask(model, device), loss_(loss), args_(std::move(args)) {}

 private:
  [[nodiscard]] int64_t targets(const Batch& batch) const override {
    return loss_.targets(labels_of(batch), batch.choices);
  }
  [[nodiscard]] Tensor summed_loss(const Tensor& logits, const Batch& batch) const override {
    return loss_.sum(logits, to_device(labels_of(batch), logits.device()).view_as(logits), args_);
  }
  [[nodiscard]] Tensor logits(const Batch& batch,
                              const std::optional<DropoutStream>& dropout) override {
    return HeadTask::logits(batch, dropout).view({batch.size(), batch.choices});
  }

  static Labels labels_of(const Batch& batch) {
    if (std::ssize(batch.values) == batch.rows) return batch.values;
    FT_CHECK(batch.values.empty(), "a label for each document");
    Labels labels(static_cast<size_t>(batch.rows), 0.0F);
    for (int64_t row = 0; row < batch.rows; row += batch.choices) {
      labels[static_cast<size_t>(row)] = 1.0F;
    }
    return labels;
  }

  const RerankerLoss& loss_;
  Args args_;
};

}  // namespace

const RerankerLoss* find_reranker_loss(std::string_view loss_type) {
  const auto found = std::ranges::find(all_losses(), loss_type, &RerankerLoss::name);
  return found == all_losses().end() ? nullptr : &*found;
}

std::vector<std::string> reranker_loss_names() {
  std::vector<std::string> names;
  for (const RerankerLoss& loss : all_losses()) names.emplace_back(loss.name);
  return names;
}

RerankerLossArgs parse_reranker_args(const RerankerLoss& loss, const std::string& text) {
  RerankerLossArgs args;
  read_loss_kwargs(text, loss.name, loss.arguments,
                   [&](const std::string& name, const auto& value) {
                     if (name == "weighting_scheme") {
                       args.weighting_scheme = one_of(name, value, schemes());
                     } else if (name == "num_negatives") {
                       args.num_negatives.reset();
                       if (!value.is_null()) args.num_negatives = whole_number(name, value);
                     } else {
                       double& number = name == "sigma"   ? args.sigma
                                        : name == "scale" ? args.scale
                                                          : args.pos_weight;
                       number = positive_number(name, value);
                     }
                   });
  return args;
}

std::unique_ptr<Task> make_reranker_task(Model& model, c10::Device device, const RerankerLoss& loss,
                                         const RerankerLossArgs& args) {
  return std::make_unique<RerankerTask>(model, device, loss, args);
}

}  // namespace finetune
