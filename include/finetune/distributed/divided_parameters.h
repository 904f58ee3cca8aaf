// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "finetune/distributed/bucket_sum.h"
#include "finetune/distributed/exchange_script.h"
#include "finetune/distributed/shard_sum.h"
#include "finetune/distributed/world.h"
#include "finetune/params/store.h"

namespace finetune {

// The values and gradients of a store's divided parameters among ranks (ZeRO 2 and 3, Rajbhandari
// et al. 2020; here each parameter along its flattened values, as FSDP2 along rows). Values are
// gathered where a model reads them; a gradient is sent, part by part, to the ranks that keep the
// values as soon as it is complete, and each adds up what it receives in the order of ranks, or,
// with logical shards, of ShardSum's tree.
class DividedParameters final : public ParameterExchange {
 public:
  struct Options {
    ExchangeScripts scripts = {};
    bool keeps_whole = false;  // values stay gathered until changed(), as with zero_stage: 2
    SentFormat sent = SentFormat::kFloat32;  // of gradients
    int64_t bucket_bytes = 25'000'000;       // of gradients sent at a time
  };

  // Both must outlive it; sets itself as the store's exchange and as its gradients' listener.
  DividedParameters(World& world, ParameterStore& store, Options options);
  ~DividedParameters() override;
  DividedParameters(const DividedParameters&) = delete;
  DividedParameters& operator=(const DividedParameters&) = delete;

  // Outside of passes all ranks must ask for the same parameters in the same order, or rank 0 alone
  // within lead().
  [[nodiscard]] ParameterTensors whole(const Parameter& parameter) override;
  void begin_pass(Pass pass) override;
  void end_pass() override;
  void take_part(int64_t passes) override;
  // Runs `action` on rank 0, which may ask for parameters; the others take part until it ends. A
  // collective. Throws what `action` throws.
  void lead(const std::function<void()>& action);
  void changed() override { values_.clear(); }

  // Begins the sums of an update. `shares`: of ShardSum; empty: a rank's sums are added up in the
  // order of ranks. `stream`: which random numbers round sums in bfloat16.
  void begin_sums(const RoundingStream& stream = {}, int64_t shards = 0,
                  std::vector<ShardRange> shares = {});
  // Call after each training pass: its gradients were those of the rank's next shard, if there is
  // one.
  [[nodiscard]] bool has_gradient(size_t parameter) const { return sums_[parameter].is_there; }
  // Sets each divided parameter's gradient to the sum of its part, zeros where there was none.
  void finish_sums();
  // Drops the sums.
  void clear_sums();

  // What was exchanged since the last call, with the bytes of all ranks.
  struct Traffic {
    int64_t gathered = 0;
    int64_t scattered = 0;
    double gather_seconds = 0.0;
    double scatter_seconds = 0.0;
  };
  [[nodiscard]] Traffic take_traffic() { return std::exchange(traffic_, {}); }

 private:
  // The sum of one parameter's gradients over ranks and micro-batches, of the part of this rank.
  struct Sum {
    // Complete subtrees by their first shard: shards, values.
    using Nodes = std::map<int64_t, std::pair<int64_t, Tensor>>;

    bool is_there = false;      // this rank had a gradient
    bool is_complete = false;   // and it is complete in this pass, and not sent yet
    std::vector<Nodes> pieces;  // of piece_values(), the last one shorter
    int64_t sent = 0;           // values of this micro-batch's gradient, of the first rank's part
  };

  void play_next();
  void gather(const Parameter& parameter);
  [[nodiscard]] Tensor gathered(const Tensor& own, int64_t part, int64_t whole);
  void scatter(Parameter& parameter);
  // `of_ranks`: what each rank has of a piece.
  void receive(const Parameter& parameter, size_t piece, const Tensor& of_ranks);
  void add_rounded(const Parameter& parameter, size_t piece, Tensor& sum,
                   const Tensor& values) const;
  [[nodiscard]] Tensor total_of(Sum::Nodes nodes) const;
  [[nodiscard]] int64_t piece_values() const;
  void complete(Parameter& parameter);
  // Plays steps up to the next one of this kind and parameter.
  void advance_to(const ExchangeStep& step);
  [[nodiscard]] c10::Device exchange_device(const Tensor& like) const;

  World& world_;
  ParameterStore& store_;
  Options options_;
  WholeValues values_;
  const std::vector<ExchangeStep>* script_ = nullptr;  // of the pass; null: between passes
  size_t next_ = 0;                                    // its step
  bool leads_ = false;
  RoundingStream stream_;
  int64_t shards_ = 0;
  std::vector<ShardRange> shares_;
  int64_t micro_batch_ = 0;  // training passes of this update
  int64_t forward_passes_ = 0;
  std::vector<Sum> sums_;  // by parameter
  Traffic traffic_;
};

// Whether any parameter is divided.
[[nodiscard]] bool has_divided(const ParameterStore& store);

// The 2-norm over all gradients, of which divided parameters have their part: the same bits for any
// division. A collective if any is divided.
[[nodiscard]] double gradient_norm(const ParameterStore& store, World& world);

}  // namespace finetune
