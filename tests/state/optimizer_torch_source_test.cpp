// SPDX-License-Identifier: MIT
// Reads optimizer.pt as other programs write it, and malformed ones.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/state/optimizer_files.h"
#include "state/small_optimizer.h"
#include "support/golden.h"
#include "support/memory_file.h"

namespace finetune {
namespace {

using testing::expect_same_states;
using ::testing::HasSubstr;
using testing::MemoryWriter;
using testing::message_of;
using testing::options_of;
using testing::SmallOptimizer;
using testing::TemporaryFolder;

constexpr int64_t kLarge = 0;  // the key of layer.w

std::string bytes_of(const TorchValue& value) {
  MemoryWriter writer;
  write_torch_file(writer, value, Numbers::kAny);
  return writer.content();
}

TorchDict written(const SmallOptimizer& optimizer) {
  return optimizer_to_torch(*optimizer.optimizer, {}).as_dict();
}

TorchDict written(const std::string& kind) {
  return written(SmallOptimizer(options_of(kind)).update(0, 2));
}

// Returns a copy with one item of a dictionary replaced, or removed if there is no value.
TorchDict with(const TorchDict& dict, const TorchKey& key, const std::optional<TorchValue>& value) {
  TorchDict copy;
  for (const auto& [name, item] : dict.items) {
    if (name != key) copy.set(name, item);
  }
  if (value) copy.set(key, *value);
  return copy;
}

TorchDict with_state(const TorchDict& root, int64_t slot, const std::string& name,
                     const std::optional<TorchValue>& value) {
  const TorchDict state = TorchValue(root).at("state").as_dict();
  const TorchDict entry = TorchValue(state).at(slot).as_dict();
  return with(root, "state", TorchValue(with(state, slot, TorchValue(with(entry, name, value)))));
}

Tensor state_of(const TorchDict& root, int64_t slot, const std::string& name) {
  return TorchValue(root).at("state").at(slot).at(name).as_tensor();
}

void load(SmallOptimizer& optimizer, const std::string& bytes) {
  const TemporaryFolder folder;
  folder.write("optimizer.pt", bytes);
  (void)restore_optimizer(*optimizer.optimizer, FileSystem::local(), folder.path());
}

std::string refusal(const std::string& kind, const TorchDict& root) {
  SmallOptimizer optimizer(options_of(kind));
  const std::string message = message_of<Error>([&] { load(optimizer, bytes_of(root)); });
  EXPECT_GOLDEN(message);
  return message;
}

// Converts to the forms of torch and bitsandbytes: other keys, another type of step, nested
// tensors.
TorchDict foreign(const TorchValue& root, const std::function<TorchValue(const TorchValue&)>& step,
                  bool nested) {
  TorchDict state;
  for (const auto& [key, entry] : root.at("state").as_dict().items) {
    TorchDict slot;
    TorchDict inner;
    for (const auto& [name, value] : entry.as_dict().items) {
      if (std::get<std::string>(name) == "step") {
        slot.set("step", step(value));
      } else {
        (nested ? inner : slot).set(name, value);
      }
    }
    if (nested) slot.set("__bnb_optimizer_quant_state__", std::move(inner));
    state.set(std::get<int64_t>(key) + 40, std::move(slot));
  }
  TorchList groups;
  for (const TorchValue& group : root.at("param_groups").as_sequence()) {
    TorchList keys;
    for (const TorchValue& key : group.at("params").as_sequence())
      keys.emplace_back(key.as_int() + 40);
    groups.emplace_back(with(group.as_dict(), "params", TorchValue(std::move(keys))));
  }
  TorchDict result;
  result.set("state", std::move(state));
  result.set("param_groups", std::move(groups));
  return result;
}

TEST(OptimizerTorchSource, ReadsStepsAndKeysOfOtherVersions) {
  SmallOptimizer used(options_of("adamw"));
  used.update(0, 2);
  for (const auto& step : std::vector<std::function<TorchValue(const TorchValue&)>>{
           [](const TorchValue&) { return int64_t{2}; },
           [](const TorchValue&) { return at::full({1}, 2.0, at::kDouble); }}) {
    SmallOptimizer restored(options_of("adamw"));
    load(restored, bytes_of(foreign(written(used), step, false)));
    expect_same_states(*restored.optimizer, *used.optimizer);
  }
}

TEST(OptimizerTorchSource, ReadsTensorsWhereBitsandbytesHidesThem) {
  SmallOptimizer used(options_of("adamw_8bit"));
  used.update(0, 2);
  SmallOptimizer restored(options_of("adamw_8bit"));
  load(restored, bytes_of(foreign(
                     written(used), [](const TorchValue& step) { return step; }, true)));
  expect_same_states(*restored.optimizer, *used.optimizer);
}

TEST(OptimizerTorchSource, ReadsTorchsSgdWithoutSteps) {
  SmallOptimizer used(options_of("sgd"));
  used.update(0, 1);
  TorchDict root = written(used);
  for (const int64_t slot : {0, 1, 3}) root = with_state(root, slot, "step", std::nullopt);
  SmallOptimizer restored(options_of("sgd"));
  load(restored, bytes_of(root));
  expect_same_states(*restored.optimizer, *used.optimizer);
}

TEST(OptimizerTorchSource, ConvertsFloatingTypes) {
  SmallOptimizer restored(options_of("adamw"));
  const TorchDict root = written("adamw");
  load(restored, bytes_of(with_state(root, kLarge, "exp_avg",
                                     state_of(root, kLarge, "exp_avg").to(at::kBFloat16))));
  Tensor& moment = *restored.optimizer->slots()[0].find("exp_avg");
  EXPECT_EQ(moment.scalar_type(), at::kFloat);
  EXPECT_GT(moment.abs().max().item<float>(), 0.0F);
}

TEST(OptimizerTorchSource, RefusesOtherShapesAndTypes) {
  const TorchDict adamw = written("adamw");
  EXPECT_GOLDEN(refusal("adamw", with_state(adamw, kLarge, "exp_avg", at::zeros({70, 64}))));
  EXPECT_GOLDEN(
      refusal("adamw", with_state(adamw, kLarge, "exp_avg", at::zeros({64, 70}, at::kLong))));
  EXPECT_GOLDEN(refusal("adamw", with_state(adamw, kLarge, "exp_avg", 1.0)));
  EXPECT_GOLDEN(refusal("adamw", with_state(adamw, kLarge, "exp_avg_sq", std::nullopt)));
  const TorchDict bits = written("adamw_8bit");
  EXPECT_GOLDEN(refusal("adamw_8bit", with_state(bits, kLarge, "state2", at::zeros({64, 70}))));
  EXPECT_GOLDEN(refusal("adamw_8bit", with_state(bits, kLarge, "absmax1", at::zeros({17}))));
  EXPECT_GOLDEN(refusal("adamw_8bit",
                        with_state(bits, kLarge, "qmap2", state_of(bits, kLarge, "qmap2").mul(2))));
}

TEST(OptimizerTorchSource, RefusesValuesThatNoOptimizerWrites) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const TorchDict bits = written("adamw_8bit");
  for (const float bad : {kNan, kInfinity, -1.0F}) {
    Tensor absmax = state_of(bits, kLarge, "absmax2").clone();
    absmax[3] = bad;
    EXPECT_GOLDEN(refusal("adamw_8bit", with_state(bits, kLarge, "absmax2", absmax)));
  }
  const TorchDict adamw = written("adamw");
  for (const float bad : {kNan, kInfinity, -1.0F}) {
    Tensor moment = state_of(adamw, kLarge, "exp_avg_sq").clone();
    moment[3][5] = bad;
    EXPECT_GOLDEN(refusal("adamw", with_state(adamw, kLarge, "exp_avg_sq", moment)));
  }
  for (const float bad : {kNan, -kInfinity}) {
    Tensor moment = state_of(adamw, kLarge, "exp_avg").clone();
    moment[3][5] = bad;
    EXPECT_GOLDEN(refusal("adamw", with_state(adamw, kLarge, "exp_avg", moment)));
  }
  for (const double bad : {-1.0, 0.5, 1e300, static_cast<double>(kNan)}) {
    EXPECT_GOLDEN(refusal("adamw", with_state(adamw, kLarge, "step", bad)));
  }
  EXPECT_GOLDEN(refusal("adamw", with_state(adamw, kLarge, "step", at::zeros({3}))));
  EXPECT_THAT(refusal("adamw", with_state(adamw, kLarge, "step", "two")), HasSubstr("'step'"));
}

TEST(OptimizerTorchSource, RefusesTheStateOfAnotherModel) {
  const TorchDict root = written("adamw");
  const TorchList groups = TorchValue(root).at("param_groups").as_sequence();
  const auto with_params = [&](const TorchList& first, const TorchList& second) {
    return with(root, "param_groups",
                TorchValue(TorchList{TorchValue(with(groups[0].as_dict(), "params", first)),
                                     TorchValue(with(groups[1].as_dict(), "params", second))}));
  };
  EXPECT_GOLDEN(refusal("adamw", with_params({0, 1}, {3})));
  EXPECT_GOLDEN(refusal("adamw", with_params({0, 1}, {2, 3})));
  EXPECT_THAT(refusal("adamw", with_params({0, 1, 1}, {3})), HasSubstr("twice"));
  EXPECT_GOLDEN(refusal("adamw", with_params({0, 1, 9}, {8})));
  EXPECT_GOLDEN(refusal("adamw", with(root, "state", std::nullopt)));
  EXPECT_GOLDEN(refusal("adamw", with(root, "state", TorchValue(1))));
  EXPECT_GOLDEN(refusal("adamw", with(root, "param_groups", TorchValue("x"))));
}

TEST(OptimizerTorchSource, RefusesAFileThatIsCutAnywhere) {
  const std::string good = bytes_of(written("adamw_8bit"));
  for (size_t size = 0; size < good.size(); size += 97) {
    SmallOptimizer optimizer(options_of("adamw_8bit"));
    EXPECT_THROW(load(optimizer, good.substr(0, size)), Error) << size;
  }
}

TEST(OptimizerTorchSource, NeverDoesMoreThanRefuseADamagedFile) {
  const std::string good = bytes_of(written("adamw_8bit"));
  for (size_t i = 0; i < good.size(); i += 131) {
    std::string damaged = good;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x41);
    SmallOptimizer optimizer(options_of("adamw_8bit"));
    try {
      load(optimizer, damaged);
    } catch (const Error& error) {
      EXPECT_GOLDEN(error.what()) << i;
    }
  }
}

}  // namespace
}  // namespace finetune
