// SPDX-License-Identifier: MIT
#pragma once

// The headers of torch::nn that the modules use: the content of the precompiled header.
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

namespace finetune {
namespace nn = torch::nn;
}
