// SPDX-License-Identifier: MIT
#include "task/embedding/losses.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/logcumsumexp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "task/loss/loss_kwargs.h"

namespace finetune {
namespace {

using Args = EmbeddingLossArgs;
using Label = EmbeddingLoss::Label;

Tensor text(const Tensor& vectors, int64_t column) { return vectors.select(1, column); }

Tensor cosine(const Tensor& x, const Tensor& y) { return (unit(x) * unit(y)).sum(-1); }

// All positives, then all negatives of the first column of negatives, and so on: [(K - 1) S, D].
Tensor documents(const Tensor& vectors) {
  return vectors.slice(1, 1).transpose(0, 1).flatten(0, 1);
}

bool has_direction(const Args& args, const char* name) {
  return std::ranges::find(args.directions, name) != args.directions.end();
}

// What is added to the scores of hard documents, of which a cosine is a measure (Lan et al. 2025,
// "LLaVE", eq. 5). `is_own` [n, N]: documents of the row's sample.
Tensor hardness(const Tensor& cosines, const Tensor& is_own, int64_t samples, const Args& args) {
  const bool keeps_own = args.hardness_mode != "in_batch_negatives";
  const bool keeps_others = args.hardness_mode != "hard_negatives";
  Tensor left_out = keeps_own ? is_own.clone() : is_own;
  if (keeps_own) left_out.slice(1, samples).fill_(false);  // negatives of a column
  if (!keeps_others) left_out = left_out.logical_or(is_own.logical_not());
  return (cosines.detach() * args.hardness_strength).masked_fill(left_out, 0);
}

// The loss below with further directions, or with a weight on hard negatives.
Tensor ranking_in_directions(const Tensor& vectors, int64_t first, int64_t count,
                             const Args& args) {
  const double out = -std::numeric_limits<double>::infinity();
  const int64_t samples = vectors.size(0);
  const Tensor queries = unit(text(vectors, 0));
  const Tensor all = unit(documents(vectors));
  const Tensor own = queries.narrow(0, first, count);
  const Tensor positives = all.narrow(0, first, count);
  const Tensor is_self = at::eye(samples, vectors.options()).narrow(0, first, count).gt(0);
  const Tensor is_own = is_self.repeat({1, vectors.size(1) - 1});
  const Tensor cosines = own.mm(all.t());
  std::vector<Tensor> scores = {cosines * args.scale};
  if (!args.hardness_mode.empty() && args.hardness_strength > 0) {
    scores[0] = scores[0] + hardness(cosines, is_own, samples, args);
  }
  const Tensor truth = scores[0].narrow(1, first, count).diagonal();
  const auto add = [&](const Tensor& rows, const Tensor& others, const Tensor& left_out) {
    Tensor products = rows.mm(others.t());
    if (left_out.defined()) products = products.masked_fill(left_out, out);
    scores.push_back(products * args.scale);
  };
  if (has_direction(args, "query_to_query")) add(own, queries, is_self);
  if (has_direction(args, "doc_to_query")) add(positives, queries, {});
  if (has_direction(args, "doc_to_doc")) add(positives, all, is_own);
  if (!args.per_direction) return at::logsumexp(at::cat(scores, 1), {1}) - truth;
  Tensor sum = at::zeros({count}, vectors.options());
  for (const Tensor& direction : scores) sum = sum + at::logsumexp(direction, {1});
  return sum / static_cast<double>(scores.size()) - truth;
}

// -log softmax of a sample's positive among all documents of the update (van den Oord et al. 2018,
// "Representation Learning with Contrastive Predictive Coding", eq. 4).
Tensor ranking(const Tensor& vectors, const Tensor& /*labels*/, int64_t first, int64_t count,
               const Args& args) {
  if (!args.directions.empty() || !args.hardness_mode.empty()) {
    return ranking_in_directions(vectors, first, count, args);
  }
  const Tensor queries = unit(text(vectors, 0).narrow(0, first, count));
  const Tensor scores = queries.mm(unit(documents(vectors)).t()) * args.scale;
  const Tensor own = scores.narrow(1, first, count).diagonal();
  return at::logsumexp(scores, {1}) - own;
}

// The mean of the loss above and that of a sample's query among all queries.
Tensor symmetric_ranking(const Tensor& vectors, const Tensor& labels, int64_t first, int64_t count,
                         const Args& args) {
  const Tensor positives = unit(text(vectors, 1).narrow(0, first, count));
  const Tensor scores = positives.mm(unit(text(vectors, 0)).t()) * args.scale;
  const Tensor own = scores.narrow(1, first, count).diagonal();
  return (ranking(vectors, labels, first, count, args) + at::logsumexp(scores, {1}) - own) / 2;
}

// log(1 + sum exp(s_i - s_j)) over all i, j where the label of j is higher (Huang et al. 2024,
// "CoSENT"), as the loss of each sample.
Tensor ordered(const Tensor& scores, const Tensor& labels) {
  const auto [values, order] = labels.sort();
  const Tensor sorted = scores.index_select(0, order);
  const Tensor higher = at::searchsorted(values, values, /*out_int32=*/false, /*right=*/true);
  const Tensor none = at::full({1}, -std::numeric_limits<double>::infinity(), scores.options());
  const Tensor suffix = at::cat({at::logcumsumexp(-sorted.flip({0}), 0).flip({0}), none});
  const Tensor sums = sorted + suffix.index_select(0, higher);
  return at::logsumexp(at::cat({at::zeros({1}, scores.options()), sums}), {0}).expand_as(scores);
}

Tensor cosent(const Tensor& vectors, const Tensor& labels, int64_t /*first*/, int64_t /*count*/,
              const Args& args) {
  return ordered(cosine(text(vectors, 0), text(vectors, 1)) * args.scale, labels);
}

// The angle in complex space, whose parts are the halves of a vector (Li and Li 2024, "AnglE").
Tensor angle(const Tensor& vectors, const Tensor& labels, int64_t /*first*/, int64_t /*count*/,
             const Args& args) {
  Tensor both = vectors;
  if (both.size(-1) % 2 != 0) both = at::constant_pad_nd(both, {0, 1}, 0);
  const int64_t half = both.size(-1) / 2;
  const Tensor x = unit(text(both, 0));
  const Tensor y = unit(text(both, 1));
  const auto real = [half](const Tensor& z) { return z.narrow(-1, 0, half); };
  const auto imaginary = [half](const Tensor& z) { return z.narrow(-1, half, half); };
  const Tensor sines = (imaginary(x) * real(y) - real(x) * imaginary(y)).sum(-1);
  return ordered(((x * y).sum(-1) + sines).abs() * args.scale, labels);
}

Tensor squared_cosine(const Tensor& vectors, const Tensor& labels, int64_t first, int64_t count,
                      const Args& /*args*/) {
  const Tensor own = vectors.narrow(0, first, count);
  return (cosine(text(own, 0), text(own, 1)) - labels.narrow(0, first, count)).square();
}

// Hadsell et al. 2006, "Dimensionality Reduction by Learning an Invariant Mapping", eq. 4
Tensor contrastive(const Tensor& vectors, const Tensor& labels, int64_t first, int64_t count,
                   const Args& args) {
  const Tensor own = vectors.narrow(0, first, count);
  const Tensor positive = labels.narrow(0, first, count);
  const Tensor distance = 1 - cosine(text(own, 0), text(own, 1));
  return 0.5 * (positive * distance.square() +
                (1 - positive) * at::relu(args.margin - distance).square());
}

// The same of the hard pairs alone: positives farther than the nearest negative, and negatives
// nearer than the farthest positive. A sum, as the loss of each sample.
Tensor online_contrastive(const Tensor& vectors, const Tensor& labels, int64_t /*first*/,
                          int64_t /*count*/, const Args& args) {
  const Tensor distance = 1 - cosine(text(vectors, 0), text(vectors, 1));
  const auto where = [&](double label) {
    return distance.index_select(0, labels.eq(label).nonzero().squeeze(1));
  };
  const Tensor positives = where(1);
  const Tensor negatives = where(0);
  const auto some = [](const Tensor& x) { return x.numel() > 0; };
  Tensor loss = at::zeros({}, distance.options());
  if (some(positives)) {
    const Tensor limit = (some(negatives) ? negatives.min() : positives.mean()).detach();
    loss = loss + (positives.square() * positives.gt(limit)).sum();
  }
  if (some(negatives)) {
    const Tensor limit = (some(positives) ? positives.max() : negatives.mean()).detach();
    loss = loss + (at::relu(args.margin - negatives).square() * negatives.lt(limit)).sum();
  }
  return loss.expand_as(distance);
}

// torch.nn.functional.pairwise_distance adds 1e-6 to each difference.
Tensor distance_of(const Tensor& x, const Tensor& y, const std::string& metric) {
  if (metric == "cosine") return 1 - cosine(x, y);
  return at::linalg_vector_norm(x - y + 1e-6, metric == "manhattan" ? 1 : 2, {-1});
}

// Schroff et al. 2015, "FaceNet", eq. 2, without squares
Tensor triplet(const Tensor& vectors, const Tensor& /*labels*/, int64_t first, int64_t count,
               const Args& args) {
  const Tensor own = vectors.narrow(0, first, count);
  const auto to = [&](int64_t column) {
    return distance_of(text(own, 0), text(own, column), args.distance_metric);
  };
  return at::relu(to(1) - to(2) + args.triplet_margin);
}

// Hofstätter et al. 2020, "Improving Efficient Neural Ranking Models with Cross-Architecture
// Knowledge Distillation", eq. 3
Tensor margin_mse(const Tensor& vectors, const Tensor& labels, int64_t first, int64_t count,
                  const Args& /*args*/) {
  const Tensor own = vectors.narrow(0, first, count);
  const auto score = [&](int64_t column) { return (text(own, 0) * text(own, column)).sum(-1); };
  return (score(1) - score(2) - labels.narrow(0, first, count)).square();
}

// Of the documents that the guide finds less similar to the anchor than its positive: -log softmax
// of the latter (Solatorio 2024, "GISTEmbed", eq. 1 to 4).
Tensor guided(const Tensor& vectors, const Tensor& guide, int64_t first, int64_t count,
              const Args& args) {
  const Tensor own = vectors.narrow(0, first, count);
  const Tensor of_guide = guide.narrow(0, first, count);
  // Cosines of the own samples' texts in a column with all samples' in another.
  const auto similar = [](const Tensor& rows, const Tensor& all, int64_t from, int64_t to) {
    return unit(text(rows, from)).mm(unit(text(all, to)).t());
  };
  const Tensor judged = similar(of_guide, guide, 0, 1);
  const Tensor positive = judged.narrow(1, first, count).diagonal().unsqueeze(1);
  const Tensor limit = args.margin_strategy == "absolute"
                           ? positive - args.guide_margin
                           : positive - positive.abs() * args.guide_margin;
  const double out = -std::numeric_limits<double>::infinity();
  const Tensor pairs = similar(own, vectors, 0, 1);
  const Tensor truth = pairs.narrow(1, first, count).diagonal();
  Tensor too_similar = judged.gt(limit);
  too_similar.narrow(1, first, count).diagonal().fill_(false);
  std::vector<Tensor> scores = {pairs.masked_fill(too_similar, out)};
  const auto add = [&](int64_t from, int64_t to) {
    const Tensor mask = similar(of_guide, guide, from, to).gt(limit);
    scores.push_back(similar(own, vectors, from, to).masked_fill(mask, out));
  };
  if (args.contrast_anchors) add(0, 0);
  if (args.contrast_positives) add(1, 1);
  if (vectors.size(1) > 2) add(0, 2);
  return at::logsumexp(at::cat(scores, 1) / args.temperature, {1}) - truth / args.temperature;
}

std::vector<std::string> directions_in(const nlohmann::ordered_json& value) {
  std::vector<std::string> names;
  for (const auto& one : value.is_array() ? value : nlohmann::ordered_json::array({value})) {
    names.push_back(one_of("a direction", one,
                           {"query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc"}));
  }
  if (std::ranges::find(names, "query_to_doc") == names.end()) {
    throw Error(ErrorKind::kConfig, "directions have query_to_doc, the one that is learned");
  }
  return names;
}

constexpr int64_t kTwo = 2;
constexpr int64_t kThree = 3;

const std::vector<EmbeddingLoss>& all_losses() {
  static const std::vector<EmbeddingLoss> kAll = {
      {"MultipleNegativesRankingLoss",
       true,
       true,
       Label::kNone,
       kTwo,
       {},
       {"scale", "directions", "partition_mode", "hardness_mode", "hardness_strength"},
       ranking},
      {"MultipleNegativesSymmetricRankingLoss",
       true,
       true,
       Label::kNone,
       kTwo,
       {},
       {"scale"},
       symmetric_ranking},
      {"CoSENTLoss", true, false, Label::kScore, kTwo, kTwo, {"scale"}, cosent},
      {"AnglELoss", true, false, Label::kScore, kTwo, kTwo, {"scale"}, angle},
      {"CosineSimilarityLoss", false, true, Label::kScore, kTwo, kTwo, {}, squared_cosine},
      {"ContrastiveLoss", false, true, Label::kBinary, kTwo, kTwo, {"margin"}, contrastive},
      {"OnlineContrastiveLoss",
       true,
       false,
       Label::kBinary,
       kTwo,
       kTwo,
       {"margin"},
       online_contrastive},
      {"TripletLoss",
       false,
       true,
       Label::kNone,
       kThree,
       kThree,
       {"triplet_margin", "distance_metric"},
       triplet},
      {"MarginMSELoss", false, true, Label::kMargin, kThree, kThree, {}, margin_mse},
      {"GISTEmbedLoss",
       true,
       true,
       Label::kGuide,
       kTwo,
       kThree,
       {"guide", "temperature", "margin_strategy", "margin", "contrast_anchors",
        "contrast_positives"},
       guided}};
  return kAll;
}

}  // namespace

Tensor unit(const Tensor& x) {
  return x / at::linalg_vector_norm(x, 2, {-1}, /*keepdim=*/true).clamp_min(1e-12);
}

const EmbeddingLoss* find_embedding_loss(std::string_view loss_type) {
  constexpr std::string_view kCached = "Cached";  // each loss is of the whole update here
  if (loss_type.starts_with(kCached)) loss_type.remove_prefix(kCached.size());
  const auto found = std::ranges::find(all_losses(), loss_type, &EmbeddingLoss::name);
  return found == all_losses().end() ? nullptr : &*found;
}

const EmbeddingLoss& embedding_loss(std::string_view loss_type) {
  const EmbeddingLoss* loss = find_embedding_loss(loss_type);
  FT_CHECK(loss != nullptr, "a loss of no table: " + std::string(loss_type));
  return *loss;
}

std::vector<std::string> embedding_loss_names() {
  std::vector<std::string> names;
  for (const EmbeddingLoss& loss : all_losses()) names.emplace_back(loss.name);
  return names;
}

EmbeddingLossArgs parse_loss_args(const EmbeddingLoss& loss, const std::string& text) {
  EmbeddingLossArgs args;
  const bool is_guided = loss.label == Label::kGuide;
  const std::map<std::string, double*> numbers = {{"scale", &args.scale},
                                                  {"margin", &args.margin},
                                                  {"triplet_margin", &args.triplet_margin},
                                                  {"temperature", &args.temperature},
                                                  {"hardness_strength", &args.hardness_strength}};
  read_loss_kwargs(
      text, loss.name, loss.arguments, [&](const std::string& name, const auto& value) {
        if (name == "distance_metric") {
          args.distance_metric = one_of(name, value, {"euclidean", "cosine", "manhattan"});
        } else if (name == "margin_strategy") {
          args.margin_strategy = one_of(name, value, {"absolute", "relative"});
        } else if (name == "directions") {
          args.directions = directions_in(value);
        } else if (name == "partition_mode") {
          args.per_direction = one_of(name, value, {"joint", "per_direction"}) == "per_direction";
        } else if (name == "hardness_mode") {
          args.hardness_mode =
              one_of(name, value, {"in_batch_negatives", "hard_negatives", "all_negatives"});
        } else if (name == "guide") {
          args.guide = text_value(name, value);
        } else if (name == "contrast_anchors") {
          args.contrast_anchors = truth_value(name, value);
        } else if (name == "contrast_positives") {
          args.contrast_positives = truth_value(name, value);
        } else if (name == "margin" && is_guided) {
          args.guide_margin = number_value(name, value);
        } else {
          *numbers.at(name) = positive_number(name, value);
        }
      });
  if (args.per_direction &&
      (has_direction(args, "query_to_query") || has_direction(args, "doc_to_doc"))) {
    throw Error(ErrorKind::kConfig,
                "partition_mode: per_direction is for query_to_doc and doc_to_query, whose texts "
                "include the positive; take joint");
  }
  if (is_guided && args.guide.empty()) {
    throw Error(ErrorKind::kConfig,
                std::string(loss.name) + " needs {guide: FOLDER}, a model that embeds");
  }
  return args;
}

Tensor matryoshka(const EmbeddingLoss& loss, const std::vector<int64_t>& dims,
                  const Tensor& vectors, const Tensor& labels, int64_t first, int64_t count,
                  const EmbeddingLossArgs& args) {
  if (dims.empty()) return loss.losses(vectors, labels, first, count, args);
  Tensor sum;
  for (const int64_t size : dims) {
    const Tensor part = loss.losses(unit(vectors.narrow(-1, 0, size)), labels, first, count, args);
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

}  // namespace finetune
