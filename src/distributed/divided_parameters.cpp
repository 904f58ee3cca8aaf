// SPDX-License-Identifier: MIT
#include "finetune/distributed/divided_parameters.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <numeric>
#include <span>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/random.h"
#include "finetune/kernels/formats.h"
#include "finetune/kernels/kernels_in_use.h"
#include "finetune/kernels/sum_of_squares.h"
#include "finetune/tensor/meta_memory.h"
#include "finetune/tensor/out_of_memory.h"

namespace finetune {
namespace {

using Kind = ExchangeStep::Kind;

// Adds the time of its life.
class Clock {
 public:
  explicit Clock(double& seconds) : seconds_(seconds) {}
  ~Clock() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Memory as bytes.
Tensor bytes_of(const Tensor& tensor) { return tensor.detach().view(-1).view(at::kByte); }

// Merges complete subtrees, as ShardSum::add() does.
template <class Nodes>
void add_leaf(Nodes& nodes, int64_t shard, Tensor values) {
  int64_t first = shard;
  int64_t count = 1;
  nodes[first] = {count, std::move(values)};
  while (true) {
    const bool is_left = first % (2 * count) == 0;
    const auto other = nodes.find(is_left ? first + count : first - count);
    if (other == nodes.end() || other->second.first != count) return;
    const int64_t left = is_left ? first : first - count;
    nodes[left].second.add_(nodes[left + count].second);
    nodes.erase(left + count);
    first = left;
    count *= 2;
    nodes[left].first = count;
  }
}

}  // namespace

DividedParameters::DividedParameters(World& world, ParameterStore& store, Options options)
    : world_(world),
      store_(store),
      options_(std::move(options)),
      values_(options_.keeps_whole),
      sums_(store.parameters().size()) {
  store_.set_exchange(this);
  store_.gradients().on_complete([this](Parameter& parameter) { complete(parameter); });
}

DividedParameters::~DividedParameters() {
  store_.gradients().on_complete(nullptr);
  store_.set_exchange(nullptr);
}

ParameterTensors DividedParameters::whole(const Parameter& parameter) {
  const ParameterTensors* found = values_.find(parameter);
  if (found != nullptr) return *found;
  if (script_ != nullptr) {
    advance_to({.kind = Kind::kGather, .parameter = parameter.handle.id()});
  } else {
    if (leads_) {
      auto asked = static_cast<int64_t>(parameter.handle.id()) + 1;
      world_.sum(std::span(&asked, 1));
    }
    gather(parameter);
  }
  found = values_.find(parameter);
  FT_CHECK(found != nullptr, "gathered");
  return *found;
}

void DividedParameters::lead(const std::function<void()>& action) {
  FT_CHECK(script_ == nullptr, "between passes");
  int64_t asked = 0;
  if (world_.is_first()) {
    std::exception_ptr failure;
    leads_ = true;
    try {
      action();
    } catch (...) {
      failure = std::current_exception();
    }
    leads_ = false;
    world_.sum(std::span(&asked, 1));
    if (failure) std::rethrow_exception(failure);
    return;
  }
  while (true) {
    asked = 0;
    world_.sum(std::span(&asked, 1));
    if (asked == 0) return;
    const Parameter& parameter = store_.parameters().at(static_cast<size_t>(asked - 1));
    if (values_.find(parameter) == nullptr) gather(parameter);
  }
}

void DividedParameters::begin_pass(Pass pass) {
  FT_CHECK(script_ == nullptr, "one pass at a time");
  script_ = pass == Pass::kTraining ? &options_.scripts.training : &options_.scripts.forward;
  next_ = 0;
}

void DividedParameters::end_pass() {
  if (script_ == nullptr) return;
  try {
    while (next_ < script_->size()) play_next();
  } catch (...) {
    if (!is_lack_of_memory(std::current_exception())) throw;
    // The others wait for this rank, and nothing more can be freed.
    throw Error(ErrorKind::kDevice,
                "out of memory for the largest layer of the model, which zero_stage brings "
                "together; use a machine with more memory, or a smaller model");
  }
  const bool was_training = script_ == &options_.scripts.training;
  script_ = nullptr;
  ++(was_training ? micro_batch_ : forward_passes_);
  if (!was_training) return;
  for (const Parameter& parameter : store_.parameters()) {
    FT_CHECK(!parameter.is_divided() || !parameter.gradient.defined(),
             "a gradient after its exchange: " + parameter.name());
  }
}

void DividedParameters::take_part(int64_t passes) {
  end_pass();
  while (forward_passes_ < passes) {
    begin_pass(Pass::kForward);
    end_pass();
  }
  forward_passes_ = 0;
}

void DividedParameters::advance_to(const ExchangeStep& step) {
  while (next_ < script_->size()) {
    const bool is_found = (*script_)[next_] == step;
    play_next();
    if (is_found) return;
  }
  const std::string& name = store_.parameters().at(step.parameter).name();
  FT_CHECK(false, "a pass exchanges only what its dry run did: " + name);
}

void DividedParameters::complete(Parameter& parameter) {
  if (!parameter.is_divided()) return;
  FT_CHECK(script_ != nullptr, "a backward pass within a pass");
  sums_[parameter.handle.id()].is_complete = true;
  // What comes before others of its layer waits for them; at the latest the next layer's gathers
  // play it.
  while (next_ < script_->size()) {
    const ExchangeStep& step = (*script_)[next_];
    if (step.kind != Kind::kScatter || !sums_[step.parameter].is_complete) return;
    play_next();
  }
}

// A step that was out of memory is played again by end_pass(), without its activations.
void DividedParameters::play_next() {
  const ExchangeStep& step = (*script_)[next_];
  Parameter& parameter = store_.parameters().at(step.parameter);
  if (step.kind == Kind::kScatter) {
    scatter(parameter);
  } else if (values_.find(parameter) == nullptr) {
    gather(parameter);
  }
  ++next_;
}

c10::Device DividedParameters::exchange_device(const Tensor& like) const {
  return world_.reaches(like.device()) ? like.device() : c10::Device(c10::kCPU);
}

// `part`, `whole`: numbers of elements of the first rank, and of all.
Tensor DividedParameters::gathered(const Tensor& own, int64_t part, int64_t whole) {
  const c10::Device device = exchange_device(own);
  // The store has memory for the largest part; what follows a smaller one is never read.
  const Tensor mine = own.detach().as_strided({part}, {1}).to(device);
  const Tensor all = at::empty({part * world_.size()}, mine.options());
  world_.all_gather(bytes_of(all), bytes_of(mine));
  traffic_.gathered += static_cast<int64_t>(all.nbytes());
  return all.narrow(0, 0, whole).to(own.device());
}

void DividedParameters::gather(const Parameter& parameter) {
  const c10::NoGradGuard no_grad;
  const Clock clock(traffic_.gather_seconds);
  values_.make_room(parameter);
  const auto& allocate = traits_of(parameter.format.weight).allocate;
  const c10::Device meta(c10::kMeta);
  const ParameterTensors whole = allocate(parameter.handle.sizes(), meta);
  const int64_t most = parameter.part_of(0).count;
  const ParameterTensors part = allocate(at::IntArrayRef(&most, 1), meta);
  const auto bring = [&](const Tensor& own, const Tensor& like_part, const Tensor& like_whole) {
    if (!own.defined()) return Tensor();
    return gathered(own, like_part.numel(), like_whole.numel()).view(like_whole.sizes());
  };
  values_.add(parameter,
              {.weight = bring(parameter.weight, part.weight, whole.weight),
               .correction = bring(parameter.correction, part.correction, whole.correction),
               .scales = bring(parameter.scales, part.scales, whole.scales)});
}

int64_t DividedParameters::piece_values() const {
  const int64_t values = options_.bucket_bytes / 4 / world_.size();
  return std::max<int64_t>(1, values / kDivisionUnit) * kDivisionUnit;
}

void DividedParameters::scatter(Parameter& parameter) {
  const c10::NoGradGuard no_grad;
  const MemoryUseScope use(MemoryUse::kGradient);
  const Clock clock(traffic_.scatter_seconds);
  Sum& sum = sums_[parameter.handle.id()];
  const Tensor gradient = std::exchange(parameter.gradient, {});
  const bool is_there = gradient.defined();
  sum.is_there = sum.is_there || is_there;
  sum.is_complete = false;
  const auto sent =
      at::TensorOptions(exchange_device(parameter.weight)).dtype(type_of(options_.sent));
  const auto size = static_cast<int64_t>(c10::elementSize(type_of(options_.sent)));
  const int64_t step = piece_values();
  for (int64_t& first = sum.sent; first < parameter.part_of(0).count;) {
    std::vector<Tensor> pieces;
    std::vector<int64_t> input_sizes;  // bytes
    for (int64_t rank = 0; rank < world_.size(); ++rank) {
      const ValueRange part = parameter.part_of(rank);
      const int64_t count = std::clamp<int64_t>(part.count - first, 0, step);
      const int64_t at = std::min(part.first + first, parameter.handle.numel());
      pieces.push_back(is_there ? gradient.view(-1).narrow(0, at, count).to(sent)
                                : at::zeros({count}, sent));
      input_sizes.push_back(count * size);
    }
    const int64_t own = input_sizes[static_cast<size_t>(world_.rank())];
    const Tensor output = at::empty({world_.size(), own / size}, sent);
    world_.all_to_all(bytes_of(output), bytes_of(at::cat(pieces)),
                      std::vector<int64_t>(pieces.size(), own), input_sizes);
    traffic_.scattered += std::accumulate(input_sizes.begin(), input_sizes.end(), int64_t{0});
    const auto piece = static_cast<size_t>(first / step);
    first += step;
    if (own > 0) receive(parameter, piece, output.to(parameter.weight.device(), at::kFloat));
  }
  sum.sent = 0;
}

void DividedParameters::receive(const Parameter& parameter, size_t piece, const Tensor& of_ranks) {
  std::vector<Sum::Nodes>& pieces = sums_[parameter.handle.id()].pieces;
  if (pieces.size() <= piece) pieces.resize(piece + 1);
  Sum::Nodes& nodes = pieces[piece];
  if (!shares_.empty()) {
    for (int64_t rank = 0; rank < world_.size(); ++rank) {
      const ShardRange& share = shares_[static_cast<size_t>(rank)];
      if (micro_batch_ >= share.count) continue;
      add_leaf(nodes, share.first + micro_batch_, of_ranks[rank].clone());
    }
    return;
  }
  const Tensor total = of_ranks[0];
  for (int64_t rank = 1; rank < world_.size(); ++rank) total.add_(of_ranks[rank]);
  const auto [at, is_first] = nodes.try_emplace(0, 1, Tensor());
  Tensor& sum = at->second.second;
  if (parameter.format.gradient == GradientFormat::kBFloat16) {
    add_rounded(parameter, piece, sum, total);
  } else {
    sum = is_first ? total.clone() : sum.add_(total);
  }
}

// Rounds stochastically, as Gradients does for each addition of a micro-batch.
void DividedParameters::add_rounded(const Parameter& parameter, size_t piece, Tensor& sum,
                                    const Tensor& values) const {
  constexpr uint64_t kOfRanks = uint64_t{1} << 63;  // no addition of one rank
  const int64_t first = parameter.part().first + static_cast<int64_t>(piece) * piece_values();
  if (!sum.defined()) sum = at::zeros(values.sizes(), values.options().dtype(at::kBFloat16));
  add_stochastically(
      sum, values,
      {.key = random::make_key(
           random::mix(stream_.seed ^ random::mix(static_cast<uint64_t>(stream_.update))),
           random::Purpose::kGradientRounding, kOfRanks | static_cast<uint64_t>(micro_batch_),
           parameter.handle.id()),
       .first_element = static_cast<uint64_t>(first)});
}

void DividedParameters::begin_sums(const RoundingStream& stream, int64_t shards,
                                   std::vector<ShardRange> shares) {
  clear_sums();
  stream_ = stream;
  shards_ = shards;
  shares_ = std::move(shares);
}

void DividedParameters::finish_sums() {
  const c10::NoGradGuard no_grad;
  for (const size_t index : store_.trained()) {
    Parameter& parameter = store_.parameters()[index];
    if (!parameter.is_divided()) continue;
    const int64_t own = parameter.part().count;
    const MemoryUseScope use(MemoryUse::kGradient);
    parameter.gradient = at::zeros(
        {own},
        at::TensorOptions(parameter.weight.device()).dtype(type_of(parameter.format.gradient)));
    const int64_t step = piece_values();
    std::vector<Sum::Nodes>& pieces = sums_[index].pieces;
    for (size_t piece = 0; piece < pieces.size(); ++piece) {
      const int64_t first = static_cast<int64_t>(piece) * step;
      const Tensor target = parameter.gradient.narrow(0, first, std::min(step, own - first));
      if (!pieces[piece].empty()) target.copy_(total_of(std::exchange(pieces[piece], {})));
    }
  }
}

Tensor DividedParameters::total_of(Sum::Nodes nodes) const {
  if (shares_.empty()) return nodes.begin()->second.second;
  std::vector<ShardRange> ranges;
  std::vector<std::vector<Tensor>> values;
  for (const auto& [first, node] : nodes) {
    ranges.push_back({.first = first, .count = node.first});
    values.push_back({node.second});
  }
  return sum_of_tree(ranges, std::move(values), shards_).front();
}

void DividedParameters::clear_sums() {
  micro_batch_ = 0;
  for (Sum& sum : sums_) sum = {};
}

bool has_divided(const ParameterStore& store) {
  return std::ranges::any_of(store.parameters(),
                             [](const Parameter& one) { return one.is_divided(); });
}

double gradient_norm(const ParameterStore& store, World& world) {
  // Of each parameter with a gradient; a rank's blocks of a divided one, zeros for those of others.
  std::vector<double> blocks;
  struct Squares {
    size_t first = 0;  // of its blocks
    size_t count = 0;  // 0: not divided
    double whole = 0.0;
  };
  std::vector<Squares> squares;
  std::vector<Tensor> small;
  for (const Parameter& parameter : store.parameters()) {
    if (!parameter.gradient.defined()) continue;
    Squares& own = squares.emplace_back();
    if (!parameter.is_divided() && is_asynchronous(parameter.gradient.device())) {
      small.push_back(parameter.gradient);  // the host waits once for all of them
      continue;
    }
    if (!parameter.is_divided()) {
      for (const double block : block_sums_of_squares(parameter.gradient)) own.whole += block;
      continue;
    }
    own.first = blocks.size();
    own.count = static_cast<size_t>((parameter.handle.numel() + kDivisionUnit - 1) / kDivisionUnit);
    blocks.resize(own.first + own.count, 0.0);
    const std::vector<double> mine = block_sums_of_squares(parameter.gradient);
    const auto at = own.first + static_cast<size_t>(parameter.part().first / kDivisionUnit);
    std::ranges::copy(mine, blocks.begin() + static_cast<std::ptrdiff_t>(at));
  }
  if (!blocks.empty()) world.sum(std::span(blocks));
  double sum = sum_of_all_squares(small);
  for (const Squares& of : squares) {
    double whole = of.whole;
    for (size_t block = 0; block < of.count; ++block) whole += blocks[of.first + block];
    sum += whole;
  }
  return std::sqrt(sum);
}

}  // namespace finetune
