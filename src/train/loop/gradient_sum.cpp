// SPDX-License-Identifier: MIT
#include "train/loop/gradient_sum.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <iomanip>
#include <new>
#include <sstream>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/distributed/bucket_sum.h"
#include "finetune/distributed/shard_sum.h"
#include "finetune/kernels/one_threaded.h"
#include "finetune/params/gradients.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/out_of_memory.h"
#include "train/save/agreement.h"

namespace finetune {
namespace {

// Returns the gradients of all trained parameters; zeros for a parameter without one.
std::vector<Tensor> open_gradients(ParameterStore& store) {
  store.gradients().open(store.trained());
  std::vector<Tensor> gradients;
  for (const size_t index : store.trained()) {
    gradients.push_back(store.parameters()[index].gradient);
  }
  return gradients;
}

// The common part of the three kinds: losses by micro-batch, and the exchange between ranks.
class SumOverRanks : public GradientSum {
 public:
  explicit SumOverRanks(TrainingRun& run) : run_(run) {}

  [[nodiscard]] size_t at_once() const override { return 1; }

  void begin(const Update& update) final {
    clear();
    figures_of_one_ = 1 + run_.parts.task->measures().size();
    figures_.assign(static_cast<size_t>(run_.split.micro_batches()) * figures_of_one_, 0.0);
    next_ = static_cast<size_t>(run_.split.accumulation * run_.world().rank());
    left_ = update.batches.size();
    has_gradient_.assign(store().trained().size(), 0.0);
    out_of_memory_ = nullptr;
    summed_ = {};
    // Weights change between updates, or while they are computed.
    if (!run_.args.optimizer_in_backward) store().hold_factors();
    open();
  }

  [[nodiscard]] size_t rounds(const Update& update) const override {
    return (update.batches.size() + at_once() - 1) / at_once();
  }

  [[nodiscard]] bool continues(bool stops) override {
    if (stops) stop();
    return !stops;
  }

  bool add(std::span<const Batch> batches, const Backward& backward) override {
    left_ -= batches.size();
    const std::span<double> figures =
        std::span(figures_).subspan(next_ * figures_of_one_, batches.size() * figures_of_one_);
    try {
      compute(batches, backward, figures);
    } catch (...) {
      const std::exception_ptr failure = std::current_exception();
      if (run_.world().size() == 1 || !is_lack_of_memory(failure)) throw;
      out_of_memory_ = failure;
      return false;
    }
    next_ += batches.size();
    for (size_t i = 0; i < batches.size(); ++i) summed_.loss += figures[i * figures_of_one_];
    return std::isfinite(summed_.loss);
  }

  void stop() final { summed_.stopped = true; }

  Summed finish() final {
    left_ = 1;
    store().release_factors();
    reduce();
    share();
    if (!summed_.stopped) complete();
    sum_measures();
    return summed_;
  }

  void clear() override {
    store().release_factors();
    store().gradients().clear(keeps_gradients());
  }

 protected:
  [[nodiscard]] ParameterStore& store() const { return run_.store(); }
  // Whether the memory of gradients lives as long as the run. An update of one micro-batch on the
  // CPU needs it only after the activations of later layers are freed; gradients reuse that memory.
  [[nodiscard]] bool keeps_gradients() const {
    if (run_.args.optimizer_in_backward) return false;
    return run_.world().size() > 1 || run_.split.accumulation > 1 || !run_.parts.device.is_cpu();
  }
  // Frozen parameters take no part: the trained ones are numbered on their own.
  [[nodiscard]] Parameter& trained(size_t i) const {
    return store().parameters()[store().trained()[i]];
  }
  [[nodiscard]] bool is_last() const { return left_ == 0; }
  [[nodiscard]] bool is_finite() const { return std::isfinite(summed_.loss); }
  [[nodiscard]] bool is_out_of_memory() const { return out_of_memory_ != nullptr; }

  virtual void open() {}
  // Computes gradients and figures of these micro-batches.
  virtual void compute(std::span<const Batch> batches, const Backward& backward,
                       std::span<double> figures) {
    const OneThread guard(run_.is_one_threaded());
    backward(batches[0], figures);
  }
  // Of all figures of some micro-batches those of one.
  [[nodiscard]] std::span<double> figures_of(std::span<double> figures, size_t micro_batch) const {
    return figures.subspan(micro_batch * figures_of_one_, figures_of_one_);
  }
  // Called before the ranks exchange their stops, also if this rank stopped.
  virtual void reduce() {}
  // Called after the exchange.
  virtual void complete() {}
  // Removes the gradients of parameters that have none on any rank.
  void drop_empty_gradients() {
    for (size_t i = 0; i < has_gradient_.size(); ++i) {
      if (has_gradient_[i] == 0.0) trained(i).gradient = Tensor();
    }
  }

  TrainingRun& run_;
  std::vector<double> has_gradient_;  // for each trained parameter, the number of ranks with one

 private:
  // One collective: stops, OOM, losses and existing gradients.
  void share() {
    if (run_.world().size() == 1) return;
    std::vector<double> message = {summed_.stopped ? 1.0 : 0.0, out_of_memory_ ? 1.0 : 0.0};
    message.insert(message.end(), figures_.begin(), figures_.end());
    message.insert(message.end(), has_gradient_.begin(), has_gradient_.end());
    run_.world().sum(message);
    if (message[1] > 0.0) {
      if (out_of_memory_) std::rethrow_exception(std::exchange(out_of_memory_, nullptr));
      throw std::bad_alloc();  // as on the rank that is out of memory
    }
    const auto of_figures = message.begin() + 2;
    const auto of_gradients = of_figures + static_cast<std::ptrdiff_t>(figures_.size());
    figures_.assign(of_figures, of_gradients);
    has_gradient_.assign(of_gradients, message.end());
    // Summed in the order of one rank, so that the bits are equal.
    summed_.loss = 0.0;
    for (size_t i = 0; i < figures_.size(); i += figures_of_one_) summed_.loss += figures_[i];
    summed_.stopped = message[0] > 0.0;
    if (summed_.stopped) note_stop();
  }

  void sum_measures() {
    summed_.measures.assign(figures_of_one_ - 1, 0.0);
    for (size_t i = 0; i < figures_.size(); ++i) {
      const size_t figure = i % figures_of_one_;
      if (figure > 0) summed_.measures[figure - 1] += figures_[i];
    }
  }

  size_t figures_of_one_ = 1;
  std::vector<double> figures_;  // by micro-batch of all ranks; 0 for those of other ranks
  size_t next_ = 0;              // index of this rank's next one
  size_t left_ = 0;              // micro-batches that this rank has not added yet
  std::exception_ptr out_of_memory_;
  Summed summed_;
};

class AloneSum final : public SumOverRanks {
 public:
  explicit AloneSum(TrainingRun& run) : SumOverRanks(run) {
    if (keeps_gradients()) store().gradients().reserve();
  }
};

// The sum over ranks starts during the backward pass of the last micro-batch. The sum itself moves
// gradients that are not summed in float32.
class BucketedSum final : public SumOverRanks {
 public:
  explicit BucketedSum(TrainingRun& run)
      : SumOverRanks(run), owns_memory_(may_own_memory(run)), buckets_(make_buckets()) {
    if (!owns_memory_) store().gradients().reserve();
    store().gradients().on_complete([this](Parameter& parameter) {
      if (!is_last()) return;
      const size_t index = parameter.handle.id();
      const std::vector<size_t>& trained = store().trained();
      const auto found = std::ranges::lower_bound(trained, index);
      buckets_.ready(static_cast<size_t>(found - trained.begin()), parameter.gradient);
    });
  }
  ~BucketedSum() override { store().gradients().on_complete(nullptr); }
  BucketedSum(const BucketedSum&) = delete;
  BucketedSum& operator=(const BucketedSum&) = delete;

 protected:
  // Returns the buckets' memory to the store if a parameter had no gradient in the last update.
  void open() override {
    if (owns_memory_) {
      const std::vector<Tensor> memory = buckets_.memory();
      for (size_t i = 0; i < memory.size(); ++i) trained(i).gradient = memory[i];
      store().gradients().clear(/*keep_memory=*/true);
    }
    buckets_.begin();
  }

  void reduce() override {
    for (size_t i = 0; i < has_gradient_.size(); ++i) {
      has_gradient_[i] = trained(i).gradient.defined() ? 1.0 : 0.0;
    }
    buckets_.finish(open_gradients(store()));
    log_trace();
  }

  void complete() override { drop_empty_gradients(); }

 private:
  [[nodiscard]] static bool may_own_memory(const TrainingRun& run) {
    return run.store().gradient_format() == GradientFormat::kFloat32 &&
           run.world().reaches(run.parts.device);
  }

  [[nodiscard]] BucketSum make_buckets() const {
    const bool is_reached = run_.world().reaches(run_.parts.device);
    std::vector<Tensor> like;
    for (size_t i = 0; i < store().trained().size(); ++i) like.push_back(trained(i).weight);
    return {run_.world(), like,
            BucketSum::Options{.bucket_bytes = run_.bucket_bytes(),
                               .sent = sent_format(run_.args),
                               .owns_memory = owns_memory_,
                               .has_thread = run_.parts.device.is_cpu() || !is_reached}};
  }

  void log_trace() const {
    if (!run_.world().is_first() || !log::is_enabled(log::Level::kDebug)) return;
    const BucketSum::Trace& trace = buckets_.trace();
    std::ostringstream text;
    text << std::fixed << std::setprecision(1) << "step " << run_.state.step + 1
         << ": gradients of all processes, ms since the update began: backward pass over at "
         << trace.finish << ", all summed at " << trace.end << "; buckets (MB: ready, sent, done):";
    const char* separator = " ";
    for (const BucketSum::Moments& bucket : trace.buckets) {
      text << separator << static_cast<double>(bucket.bytes) / 1e6 << ": " << bucket.ready << ", "
           << bucket.sent << ", " << bucket.done;
      separator = "; ";
    }
    log::debug(text.str());
  }

  bool owns_memory_;
  BucketSum buckets_;
};

// The ranges of this update's logical shards that the ranks compute.
std::vector<ShardRange> shares_of(const TrainingRun& run, int64_t& shards) {
  const BatchSplit& split = run.split;
  const int64_t samples = run.samples_of_update(run.state.position).samples;
  shards = (samples + split.rows - 1) / split.rows;
  std::vector<ShardRange> shares;
  for (int64_t rank = 0; rank < split.ranks; ++rank) {
    const int64_t first = std::min(shards, rank * split.accumulation);
    shares.push_back({.first = first, .count = std::min(shards - first, split.accumulation)});
  }
  return shares;
}

// Shards have separate gradients, so memory reserved for the sum would be one more set.
class ShardedSum final : public SumOverRanks {
 public:
  using SumOverRanks::SumOverRanks;

  [[nodiscard]] size_t at_once() const override {
    return static_cast<size_t>(std::max<int64_t>(1, run_.parts.batches_at_once));
  }

  void clear() override {
    shards_.reset();
    store().release_factors();
    store().gradients().clear(/*keep_memory=*/false);
  }

 protected:
  void open() override {
    int64_t shards = 0;
    std::vector<ShardRange> shares = shares_of(run_, shards);
    shards_.emplace(run_.world(), shards, std::move(shares));
  }

  void compute(std::span<const Batch> batches, const Backward& backward,
               std::span<double> figures) override {
    std::vector<std::vector<Tensor>> gradients(batches.size());
    const auto compute_one = [&](int64_t i) {
      const auto index = static_cast<size_t>(i);
      const SeparateGradients separate(store().gradients(), gradients[index]);
      backward(batches[index], figures_of(figures, index));
    };
    const auto count = static_cast<int64_t>(batches.size());
    if (run_.is_one_threaded()) {
      compute_side_by_side(count, compute_one);
    } else {
      for (int64_t i = 0; i < count; ++i) compute_one(i);
    }
    for (std::vector<Tensor>& of_shard : gradients) take(std::move(of_shard));
  }

  void complete() override {
    if (!is_finite()) return;
    shards_->finish(open_gradients(store()), run_.bucket_bytes());
    drop_empty_gradients();
    shards_.reset();
  }

 private:
  // `of_all`: for each parameter of the store. A trained parameter without a gradient counts as
  // zeros.
  void take(std::vector<Tensor> of_all) {
    std::vector<Tensor> gradients;
    for (size_t i = 0; i < has_gradient_.size(); ++i) {
      Tensor& gradient = gradients.emplace_back(std::move(of_all[store().trained()[i]]));
      if (gradient.defined()) {
        has_gradient_[i] = 1.0;
      } else {
        gradient = at::zeros_like(trained(i).weight.detach(), at::kFloat);
      }
    }
    shards_->add(std::move(gradients));
  }

  std::optional<ShardSum> shards_;
};

// Gradients of divided parameters are sent to the ranks that keep them while each micro-batch is
// computed, so all ranks compute their micro-batches together. Those of the others, which are
// small, are summed at the end.
class DividedSum final : public SumOverRanks {
 public:
  explicit DividedSum(TrainingRun& run) : SumOverRanks(run), divided_(*run.parts.divided) {}

  [[nodiscard]] size_t rounds(const Update& /*update*/) const override {
    return static_cast<size_t>(run_.split.accumulation);
  }

  // A collective.
  [[nodiscard]] bool continues(bool stops) override {
    std::array<int64_t, 2> message = {stops ? 1 : 0, is_out_of_memory() || !is_finite() ? 1 : 0};
    run_.world().sum(std::span<int64_t>(message));
    if (message[0] > 0) stop();
    return message[0] == 0 && message[1] == 0;
  }

  // Returns true: continues() decides for all ranks.
  bool add(std::span<const Batch> batches, const Backward& backward) override {
    divided_.begin_pass(ParameterExchange::Pass::kTraining);
    if (!batches.empty()) (void)SumOverRanks::add(batches, backward);
    divided_.end_pass();
    return true;
  }

  void clear() override {
    SumOverRanks::clear();
    divided_.clear_sums();
    small_.reset();
  }

 protected:
  void open() override {
    const RoundingStream stream = {.seed = static_cast<uint64_t>(run_.args.seed),
                                   .update = run_.state.step};
    if (!run_.sums_shards()) return divided_.begin_sums(stream);
    int64_t shards = 0;
    const std::vector<ShardRange> shares = shares_of(run_, shards);
    divided_.begin_sums(stream, shards, shares);
    small_.emplace(run_.world(), shards, shares);
  }

  void compute(std::span<const Batch> batches, const Backward& backward,
               std::span<double> figures) override {
    SumOverRanks::compute(batches, backward, figures);
    if (!small_) return;
    std::vector<Tensor> gradients;
    for_each_small([&](size_t i, Parameter& parameter) {
      if (parameter.gradient.defined()) has_gradient_[i] = 1.0;
      gradients.push_back(parameter.gradient.defined() ? parameter.gradient : zeros_for(parameter));
      parameter.gradient = Tensor();
    });
    small_->add(std::move(gradients));
  }

  // Before the exchange of what there is.
  void reduce() override {
    for (size_t i = 0; i < has_gradient_.size(); ++i) {
      const size_t index = store().trained()[i];
      const Parameter& parameter = store().parameters()[index];
      const bool is_there =
          parameter.is_divided() ? divided_.has_gradient(index) : parameter.gradient.defined();
      if (is_there) has_gradient_[i] = 1.0;
    }
  }

  void complete() override {
    log_traffic();
    if (!is_finite()) return;
    divided_.finish_sums();
    std::vector<Tensor> small;
    for_each_small([&](size_t, Parameter& parameter) {
      if (!parameter.gradient.defined()) parameter.gradient = zeros_for(parameter);
      small.push_back(parameter.gradient);
    });
    if (!small.empty()) sum_over_ranks(small);
    drop_empty_gradients();
  }

 private:
  void log_traffic() {
    const DividedParameters::Traffic traffic = divided_.take_traffic();
    if (!run_.world().is_first() || !log::is_enabled(log::Level::kDebug)) return;
    std::ostringstream text;
    text << std::fixed << std::setprecision(3) << "step " << run_.state.step + 1 << ": gathered "
         << static_cast<double>(traffic.gathered) / 1e6 << " MB of weights in "
         << traffic.gather_seconds << " s, sent " << static_cast<double>(traffic.scattered) / 1e6
         << " MB of gradients in " << traffic.scatter_seconds << " s";
    log::debug(text.str());
  }

  template <class Action>
  void for_each_small(const Action& action) {
    for (size_t i = 0; i < has_gradient_.size(); ++i) {
      if (!trained(i).is_divided()) action(i, trained(i));
    }
  }

  static Tensor zeros_for(const Parameter& parameter) {
    return at::zeros(
        parameter.weight.sizes(),
        at::TensorOptions(parameter.weight.device()).dtype(type_of(parameter.format.gradient)));
  }

  void sum_over_ranks(const std::vector<Tensor>& gradients) {
    if (small_) return small_->finish(gradients, run_.bucket_bytes());
    std::vector<Tensor> flat;
    for (const Tensor& gradient : gradients) flat.push_back(gradient.view(-1).to(at::kFloat));
    const Tensor all = at::cat(flat);
    const bool is_reached = run_.world().reaches(all.device());
    const Tensor exchanged = is_reached ? all : all.cpu();
    run_.world().sum(exchanged);
    int64_t first = 0;
    for (const Tensor& gradient : gradients) {
      gradient.view(-1).copy_(exchanged.narrow(0, first, gradient.numel()));
      first += gradient.numel();
    }
  }

  DividedParameters& divided_;
  std::optional<ShardSum> small_;  // of undivided parameters, with logical shards
};

}  // namespace

SumKind sum_kind(const TrainingRun& run) {
  if (run.parts.divided) return SumKind::kDivided;
  if (run.sums_shards()) return SumKind::kShards;
  return run.world().size() > 1 ? SumKind::kBuckets : SumKind::kAlone;
}

std::unique_ptr<GradientSum> make_gradient_sum(TrainingRun& run) {
  FT_CHECK(!run.store().trained().empty(), "a model without trained parameters");
  switch (sum_kind(run)) {
    case SumKind::kShards:
      return std::make_unique<ShardedSum>(run);
    case SumKind::kBuckets:
      return std::make_unique<BucketedSum>(run);
    case SumKind::kDivided:
      return std::make_unique<DividedSum>(run);
    case SumKind::kAlone:
      break;
  }
  return std::make_unique<AloneSum>(run);
}

}  // namespace finetune
