// SPDX-License-Identifier: MIT
#include "model/laya.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

constexpr double kEpsilon = 1e-5;    // torch's of LayerNorm
constexpr int64_t kHeadSize = 64;    // of attention
constexpr int64_t kTypes = 3;        // of questions
constexpr int64_t kActFeatures = 4;  // of the scores, which act_head reads next to the first token
constexpr int64_t kActSize = 256;

}  // namespace

LayaLayer::LayaLayer(const nn::Scope& scope, const ModelConfig& config, int64_t layer)
    : attention_{.heads = std::max<int64_t>(1, config.hidden_size / kHeadSize),
                 .layer = config.num_hidden_layers + layer,
                 .dropout = config.laya->dropout},
      projections_(scope / "self_attn", config.hidden_size, config.hidden_size, config.hidden_size,
                   /*has_bias=*/true, /*groups=*/1,
                   {.weight = "in_proj_weight", .bias = "in_proj_bias"}),
      output_(scope / "self_attn" / "out_proj", config.hidden_size, config.hidden_size),
      up_(scope / "linear1", config.hidden_size, 4 * config.hidden_size, find_activation("relu")),
      down_(scope / "linear2", 4 * config.hidden_size, config.hidden_size),
      attention_norm_(scope / "norm1", config.hidden_size, kEpsilon),
      feed_forward_norm_(scope / "norm2", config.hidden_size, kEpsilon) {}

nn::Value LayaLayer::dropped(nn::Value x, DropoutSite site, nn::Pass& p) const {
  return nn::dropout(std::move(x), {attention_.dropout, attention_.layer, site}, p);
}

nn::Value LayaLayer::operator()(const nn::Value& x, nn::Pass& p) const {
  nn::Projections all = projections_(nn::to_precision(attention_norm_(x, p), p), p);
  nn::Value attended = dropped(output_(nn::attend(std::move(all), attention_, p), p),
                               DropoutSite::kAttentionOutput, p);
  const nn::Value h = nn::add({nn::read_tokens(x, attention_.layer, p), std::move(attended)}, p);
  nn::Value hidden = up_(nn::to_precision(feed_forward_norm_(h, p), p), p);
  hidden = dropped(std::move(hidden), DropoutSite::kFeedForwardHidden, p);
  return nn::add({h, dropped(down_(std::move(hidden), p), DropoutSite::kFeedForwardOutput, p)}, p);
}

LayaBackbone::LayaBackbone(std::unique_ptr<Backbone> encoder, const nn::Scope& root,
                           const ModelConfig& config)
    : encoder_(std::move(encoder)),
      first_layer_(config.num_hidden_layers),
      layers_([&] {
        std::vector<LayaLayer> layers;
        for (int64_t layer = 0; layer < config.laya->head_layers; ++layer) {
          layers.emplace_back(root / "head" / "layers" / layer, config, layer);
        }
        return layers;
      }()),
      types_(root / "type_emb", kTypes, config.hidden_size) {}

nn::Value LayaBackbone::operator()(const ModelInput& input, nn::Pass& p) {
  const Tensor& ids = input.input_ids;
  const Tensor types = input.question_types.defined() ? input.question_types.unsqueeze(1)
                                                      : at::zeros({1, 1}, ids.options());
  const nn::Value hidden = (*encoder_)(input, p);
  const nn::Value type = types_(without_padding(types.expand_as(ids), p), p);
  return nn::sequence(layers_, nn::add({hidden, type}, p), p);
}

std::optional<int64_t> LayaBackbone::last_layer() const {
  if (layers_.empty()) return std::nullopt;
  return first_layer_ + std::ssize(layers_) - 1;
}

LayaHead::LayaHead(const nn::Scope& root, const ModelConfig& config)
    : norm_(root / "scorer" / 0, config.hidden_size, kEpsilon),
      dense_(root / "scorer" / 1, config.hidden_size, config.hidden_size, nullptr),
      score_((root / "scorer" / 3).of_output(), config.hidden_size, 1),
      act_dense_(root / "act_head" / 0, config.hidden_size + kActFeatures, kActSize),
      act_(root / "act_head" / 2, kActSize, config.laya->actions),
      temperature_(root.parameter("temperature", {kTypes}, ParameterRole::kConstant)) {}

nn::Value LayaHead::operator()(const HeadInput& in, nn::Pass& p) const {
  return score_(dense_(norm_(in.hidden, p), p), p);
}

void check_laya(const ModelConfig& config) {
  const int64_t heads = std::max<int64_t>(1, config.hidden_size / kHeadSize);
  std::string why;
  if (is_causal(config)) {
    why = "reads the words before a token alone, and the head all; take an encoder";
  }
  if (config.hidden_size % heads != 0) {
    why = format_text("has a hidden_size of {}, which {} heads of attention do not divide",
                      config.hidden_size, heads);
  }
  if (why.empty()) return;
  throw Error(ErrorKind::kConfig, "decision_head: laya: a " + config.model_type + " " + why);
}

ConfigFields laya_fields(LayaConfig& laya) {
  return {{"dropout", &laya.dropout, 0.0, 0.99},
          {"head_layers", &laya.head_layers, 0, 64},
          {"head_max_len", &laya.head_max_len, 8, kLongestSequence},
          {"max_len", &laya.max_len, 16, kLongestSequence}};
}

LayaConfig parse_laya_config(const nlohmann::ordered_json& json, const std::string& where) {
  LayaConfig laya;
  std::string layout = "sequential";
  read_config_fields(with_fields(laya_fields(laya), {{.name = "option_layout", .target = &layout}}),
                     json, where, ErrorKind::kData);
  if (layout != "sequential") {
    throw Error(ErrorKind::kData, where + ": option_layout '" + layout +
                                      "' is not available; models of option_layout 'sequential', "
                                      "which all published ones have, are");
  }
  const auto costs = json.find("act_costs");
  if (costs == json.end()) return laya;
  if (!costs->is_object()) {
    throw Error(ErrorKind::kData, where +
                                      ": act_costs must be an object of numbers, one for each "
                                      "output of act_head but the first");
  }
  laya.actions = std::ssize(*costs) + 1;
  return laya;
}

}  // namespace finetune
