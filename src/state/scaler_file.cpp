// SPDX-License-Identifier: MIT
#include "finetune/state/scaler_file.h"

#include <cmath>

#include "finetune/base/error.h"
#include "finetune/base/json.h"

namespace finetune {
namespace {

void expect_default(const TorchValue& value, const char* key, double expected) {
  if (value.at(key).as_double() != expected) {
    throw Error(ErrorKind::kData,
                std::string("its ") + key + " is " + format_double(value.at(key).as_double()) +
                    ", where only torch's default " + format_double(expected) + " is supported");
  }
}

void restore(LossScaler& scaler, const TorchValue& value) {
  if (value.as_dict().items.empty()) return;
  const double scale = value.at("scale").as_double();
  if (!(scale > 0.0 && std::isfinite(static_cast<float>(scale)))) {
    throw Error(ErrorKind::kData, "its scale must be finite and above 0");
  }
  expect_default(value, "growth_factor", LossScaler::kGrowthFactor);
  expect_default(value, "backoff_factor", LossScaler::kBackoffFactor);
  expect_default(value, "growth_interval", LossScaler::kGrowthInterval);
  const int64_t growth_tracker = value.at("_growth_tracker").as_int();
  if (growth_tracker < 0 || growth_tracker >= LossScaler::kGrowthInterval) {
    throw Error(ErrorKind::kData, "its _growth_tracker must be from 0 to " +
                                      std::to_string(LossScaler::kGrowthInterval - 1));
  }
  scaler.restore(scale, growth_tracker);
}

}  // namespace

TorchValue scaler_to_torch(const LossScaler& scaler) {
  TorchDict root;
  root.set("scale", scaler.scale());
  root.set("growth_factor", LossScaler::kGrowthFactor);
  root.set("backoff_factor", LossScaler::kBackoffFactor);
  root.set("growth_interval", LossScaler::kGrowthInterval);
  root.set("_growth_tracker", scaler.growth_tracker());
  return root;
}

void scaler_from_torch(LossScaler& scaler, const TorchValue& value, const std::string& where) {
  try {
    restore(scaler, value);
  } catch (const Error& error) {
    throw Error(ErrorKind::kData, where + ": is no loss scaler's state: " + error.what());
  }
}

}  // namespace finetune
