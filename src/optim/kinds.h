// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <vector>

#include "finetune/optim/optimizer.h"

// The kinds that make_optimizer() chooses from; each has a source of its own.
namespace finetune {

std::unique_ptr<Optimizer> make_adamw(ParameterStore& parameters, const std::vector<bool>& decays,
                                      const OptimizerOptions& options);
std::unique_ptr<Optimizer> make_adamw_8bit(ParameterStore& parameters,
                                           const std::vector<bool>& decays,
                                           const OptimizerOptions& options);
std::unique_ptr<Optimizer> make_adamw_companded(ParameterStore& parameters,
                                                const std::vector<bool>& decays,
                                                const OptimizerOptions& options);
std::unique_ptr<Optimizer> make_adafactor(ParameterStore& parameters,
                                          const std::vector<bool>& decays,
                                          const OptimizerOptions& options);
std::unique_ptr<Optimizer> make_sgd(ParameterStore& parameters, const std::vector<bool>& decays,
                                    const OptimizerOptions& options);

}  // namespace finetune
