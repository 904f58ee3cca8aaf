// SPDX-License-Identifier: MIT
#include "export/gguf_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "export/gguf_family.h"
#include "export/gguf_layout.h"
#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"
#include "finetune/export/export.h"
#include "finetune/model/embedding_files.h"
#include "finetune/nn/feed_forward.h"

namespace finetune {
namespace {

const GgufFamily& family_of(const MergedModel& model) {
  if (model.head != Head::kDecision) return gguf_family(model.config);
  throw Error(ErrorKind::kUsage,
              "GGUF has no head for decisions, which this model has; let OUT end in .onnx");
}

class GgufBuilder {
 public:
  GgufBuilder(const MergedModel& model, GgmlType type)
      : model_(model), config_(model.config), family_(family_of(model)), type_(type) {}

  GgufModel build() {
    check_family();
    add_general();
    if (is_like_bert()) {
      add_bert();
    } else if (config_.model_type == "gpt2") {
      add_gpt2();
    } else {
      add_decoder();
      add_own();
    }
    if (model_.head == Head::kEmbedding) add_pooling();
    for (const MergedTensor& tensor : model_.tensors) add(tensor);
    if (family_.needs_output) add_output();
    return std::move(result_);
  }

 private:
  using Value = GgufMetadata::Value;

  void set(const std::string& name, Value value) {
    result_.metadata.set(std::string(family_.architecture) + "." + name, std::move(value));
  }
  void set_number(const std::string& name, int64_t value) {
    set(name, static_cast<uint32_t>(value));
  }

  // What llama.cpp's graph of the family has not.
  void check_family() const {
    const std::string& type = config_.model_type;
    if (family_.is_encoder && model_.head != Head::kEmbedding) {
      refuse("another task than embedding");
    }
    if (activation() != family_.activation) refuse("the activation " + config_.hidden_act);
    check_biases();
    const DecoderConfig& decoder = config_.decoder;
    if ((type == "gemma" || type == "gemma2") && model_.find("lm_head.weight") != nullptr) {
      refuse("an output layer that is not shared");
    }
    if (type == "gemma2" && (!decoder.attn_logit_softcapping || !decoder.final_logit_softcapping)) {
      refuse("no soft caps of logits");
    }
    if (type != "gemma2" && decoder.attn_logit_softcapping) refuse("attn_logit_softcapping");
  }

  [[nodiscard]] std::string activation() const {
    const std::string& name = config_.hidden_act;
    if (name == "gelu_pytorch_tanh" || name == "gelu_new") return "gelu";
    return name == "swish" ? "silu" : name;
  }

  void check_biases() const {
    using Kind = GgufFamily::Biases;
    if (family_.needs_biases && !config_.decoder.attention_bias) refuse("no biases");
    if (family_.biases == Kind::kAll) return;
    for (const MergedTensor& tensor : model_.tensors) {
      if (!tensor.name.ends_with(".bias") || is_left_out(tensor)) continue;
      const std::string name = name_of(tensor.name);
      if (name.ends_with("norm.bias")) continue;
      const bool is_input = name.ends_with("attn_q.bias") || name.ends_with("attn_k.bias") ||
                            name.ends_with("attn_v.bias");
      if (!is_input || family_.biases == Kind::kNone) refuse("biases ('" + tensor.name + "')");
    }
  }

  void add_general() {
    result_.metadata.set("general.architecture", std::string(family_.architecture));
    result_.metadata.set("general.type", std::string("model"));
    result_.metadata.set("general.file_type", traits_of(type_).file_type);
    result_.metadata.set("general.quantization_version", uint32_t{2});
  }

  void add_sizes(int64_t feed_forward) {
    set_number("block_count", config_.num_hidden_layers);
    set_number("context_length", config_.max_position_embeddings);
    set_number("embedding_length", config_.hidden_size);
    set_number("feed_forward_length", feed_forward);
    set_number("attention.head_count", config_.num_attention_heads);
  }

  [[nodiscard]] bool is_like_bert() const {
    return family_.is_encoder && config_.model_type != "eurobert";
  }

  void add_bert() {
    add_sizes(config_.intermediate_size);
    if (config_.model_type == "nomic_bert") add_rope();
    set("attention.layer_norm_epsilon", static_cast<float>(config_.layer_norm_eps));
    set("attention.causal", false);
    const MergedTensor* types = find_named("token_types.weight");
    // Its readers ask for one also where there is no table.
    result_.metadata.set("tokenizer.ggml.token_type_count",
                         static_cast<uint32_t>(types == nullptr ? 1 : types->shape[0]));
  }

  // llama_pooling_type. Whether the vectors have length 1 is an option of its readers.
  void add_pooling() {
    require_embedding(config_, model_.folder);
    if (!config_.embedding.dense.empty()) refuse("a dense layer after the pooling");
    const std::string mode = pooling_mode_of(config_);
    const std::array<const char*, 4> modes = {"none", "mean", "cls", "lasttoken"};
    const auto found = std::ranges::find(modes, mode);
    if (found == modes.end()) refuse("pooling_mode " + mode);
    set_number("pooling_type", found - modes.begin());
    if (!config_.embedding.prompts.empty()) {
      log::warning("GGUF has no prompts: its readers get them before each text");
    }
  }

  void add_gpt2() {
    add_sizes(config_.decoder.n_inner.value_or(4 * config_.hidden_size));
    set("attention.layer_norm_epsilon", static_cast<float>(config_.layer_norm_eps));
    if (!config_.decoder.scale_attn_weights || config_.decoder.scale_attn_by_inverse_layer_idx) {
      refuse("another scale of attention than 1 / sqrt(head_dim)");
    }
  }

  void add_decoder() {
    const DecoderConfig& decoder = config_.decoder;
    add_sizes(config_.intermediate_size);
    set_number("attention.head_count_kv", kv_heads());
    set(family_.has_layer_norms ? "attention.layer_norm_epsilon"
                                : "attention.layer_norm_rms_epsilon",
        static_cast<float>(decoder.rms_norm_eps));
    if (config_.model_type != "phi3") {
      set_number("attention.key_length", head_dim());
      set_number("attention.value_length", head_dim());
    }
    if (family_.has_rope_dimensions) {
      set_number("vocab_size", config_.vocab_size);
      set_number("rope.dimension_count", head_dim());
    }
    add_rope();
    add_windows();
    if (decoder.attn_logit_softcapping) {
      set("attn_logit_softcapping", static_cast<float>(*decoder.attn_logit_softcapping));
    }
    if (decoder.final_logit_softcapping) {
      set("final_logit_softcapping", static_cast<float>(*decoder.final_logit_softcapping));
    }
    if (decoder.use_bidirectional_attention.value_or(false)) refuse("bidirectional attention");
    const bool has_own_scale =
        config_.model_type == "gemma2" || config_.model_type == "gemma3_text";
    if (has_own_scale && decoder.query_pre_attn_scalar != expected_query_scalar()) {
      refuse(format_text("query_pre_attn_scalar {}, since its readers take {}",
                         decoder.query_pre_attn_scalar, expected_query_scalar()));
    }
  }

  // llama.cpp derives the scale of gemma's queries from the sizes of the models that exist.
  [[nodiscard]] int64_t expected_query_scalar() const {
    const bool is_27b = config_.num_hidden_layers == (config_.model_type == "gemma2" ? 46 : 62);
    return is_27b ? config_.hidden_size / config_.num_attention_heads : head_dim();
  }

  // What one family alone has.
  void add_own() {
    const std::string& type = config_.model_type;
    const DecoderConfig& decoder = config_.decoder;
    if (type == "granite" || type == "granitemoe") {
      set("attention.scale", static_cast<float>(decoder.attention_multiplier));
      set("embedding_scale", static_cast<float>(decoder.embedding_multiplier));
      set("residual_scale", static_cast<float>(decoder.residual_multiplier));
      set("logit_scale", static_cast<float>(decoder.logits_scaling));
    } else if (type == "apertus") {
      add_xielu();
    } else if (type == "gpt_neox" || type == "stablelm") {
      set("use_parallel_residual", decoder.use_parallel_residual);
    } else if (type == "exaone4") {
      set_number("vocab_size", config_.vocab_size);
    } else if (type == "eurobert") {
      if (decoder.rope_parameters.begin()->second.rope_type != "default")
        refuse("scaled positions");
      set("attention.causal", false);
      set("rope.scaling.type", std::string("none"));
    } else if (type == "lfm2") {
      add_lfm2();
    } else if (type == "qwen3_5_text") {
      add_qwen3_5();
    } else if (is_gemma_n()) {
      add_gemma_n();
    } else if (type == "olmoe" || type == "qwen3_moe") {
      add_experts();
    } else if (type == "gpt_oss") {
      add_gpt_oss();
    }
    if (type == "granitemoe" || type == "gpt_oss") count_experts();
  }

  void count_experts() {
    set_number("expert_count", *config_.decoder.num_experts);
    set_number("expert_used_count", config_.decoder.num_experts_per_tok);
  }

  // llama.cpp has these numbers in its code.
  void add_gpt_oss() {
    constexpr double kLimit = 7.0;
    if (config_.decoder.swiglu_limit != kLimit) refuse("a swiglu_limit other than 7");
    check_pattern(2);
    set_number("attention.sliding_window", *config_.decoder.sliding_window);
    set_number("expert_feed_forward_length", config_.intermediate_size);
  }

  // Which parts of a stack of experts are tensors there, by the ends of their names.
  using View = std::function<Tensor(const Tensor&)>;
  [[nodiscard]] std::vector<std::pair<std::string, View>> views_of(const std::string& name) const {
    const auto turned = [](const Tensor& x) { return x.transpose(1, 2); };
    const auto every_second = [](int64_t first, bool turns) -> View {
      return [first, turns](const Tensor& x) {
        return (turns ? x.transpose(1, 2) : x).slice(1, first, std::nullopt, 2);
      };
    };
    const auto half = [size = config_.intermediate_size](int64_t number) -> View {
      return [size, number](const Tensor& x) { return x.narrow(1, number * size, size); };
    };
    const auto ends = [&](const char* end) { return name.ends_with(end); };
    if (ends(".experts.gate_up_proj") || ends(".experts.gate_up_proj_bias")) {
      const bool is_weight = !ends("_bias");
      const std::string end = is_weight ? "weight" : "bias";
      return {{"ffn_gate_exps." + end, every_second(0, is_weight)},
              {"ffn_up_exps." + end, every_second(1, is_weight)}};
    }
    if (ends(".experts.down_proj")) return {{"ffn_down_exps.weight", turned}};
    if (ends(".experts.down_proj_bias")) {
      return {{"ffn_down_exps.bias", [](const Tensor& x) { return x; }}};
    }
    if (ends(".input_linear.weight")) {
      return {{"ffn_gate_exps.weight", half(0)}, {"ffn_up_exps.weight", half(1)}};
    }
    if (!ends(".output_linear.weight")) return {};
    return {{"ffn_down_exps.weight", [](const Tensor& x) { return x; }}};
  }

  // Returns whether the tensor is such a stack.
  bool add_views(const MergedTensor& source) {
    constexpr std::string_view kLayers = "model.layers.";
    const auto views = views_of(source.name);
    if (views.empty()) return false;
    const size_t end = source.name.find('.', kLayers.size());
    const std::string layer = "blk." + source.name.substr(kLayers.size(), end - kLayers.size());
    for (const auto& [name, view] : views) {
      GgufTensor tensor;
      tensor.name = layer + "." + name;
      tensor.source = source.name;
      tensor.whole = source.shape;
      tensor.view = view;
      tensor.shape = view(at::empty(source.shape, at::kMeta)).sizes().vec();
      tensor.rows = [rows = source.rows, view](int64_t first, int64_t count) {
        return view(rows(first, count)).contiguous();
      };
      if (name.ends_with(".weight")) tensor.type = blocks_fit(tensor, type_);
      result_.tensors.push_back(std::move(tensor));
    }
    return true;
  }

  void add_experts() {
    const DecoderConfig& decoder = config_.decoder;
    const bool is_qwen = config_.model_type == "qwen3_moe";
    if (decoder.norm_topk_prob != is_qwen) {
      refuse(is_qwen ? "norm_topk_prob: false" : "norm_topk_prob: true");
    }
    if (!decoder.mlp_only_layers.empty() || decoder.decoder_sparse_step != 1) {
      refuse("layers without experts");
    }
    if (!is_qwen && kv_heads() != config_.num_attention_heads) {
      refuse("fewer heads of keys than of queries");
    }
    count_experts();
    if (is_qwen) set_number("expert_feed_forward_length", *decoder.moe_intermediate_size);
    for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
      const std::string number = std::to_string(layer);
      for (const std::string part : {"gate", "up", "down"}) {
        add_stack("blk." + number + ".ffn_" + part + "_exps.weight",
                  "model.layers." + number + ".mlp.experts.", "." + part + "_proj.weight");
      }
    }
  }

  [[nodiscard]] bool is_gemma_n() const {
    return config_.model_type == "gemma3n_text" || config_.model_type == "gemma4_text";
  }

  void add_gemma_n() {
    const DecoderConfig& decoder = config_.decoder;
    set_number("embedding_length_per_layer_input", decoder.hidden_size_per_layer_input);
    set_number("attention.shared_kv_layers", decoder.num_kv_shared_layers);
    set_pattern();
    const int64_t shared = decoder.num_kv_shared_layers;
    const int64_t before = config_.num_hidden_layers - shared;
    const auto is_full = [&](int64_t layer) {
      return layer >= 0 && decoder.layer_types[static_cast<size_t>(layer)] == "full_attention";
    };
    // Where llama.cpp looks for the keys that others read.
    if (shared > 0 && (before < 2 || !is_full(before - 1) || is_full(before - 2))) {
      refuse("shared keys that are not of the last two layers before");
    }
    if (!decoder.final_logit_softcapping) refuse("no final_logit_softcapping");  // its readers cap
    if (config_.model_type == "gemma3n_text") return add_gemma3n();
    const int64_t full = head_dim_of(config_, "full_attention");
    for (const char* part : {"key", "value"}) {
      set_number(std::string("attention.") + part + "_length", full);
      set_number(std::string("attention.") + part + "_length_swa", head_dim());
    }
    set_number("rope.dimension_count", full);
    set_number("rope.dimension_count_swa", head_dim());
    std::vector<int32_t> heads, sizes;
    for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
      const auto own = decoder.per_layer_config->find(layer);
      const bool differs = own != decoder.per_layer_config->end();
      heads.push_back(static_cast<int32_t>(
          differs ? own->second.num_key_value_heads.value_or(kv_heads()) : kv_heads()));
      const bool is_shared = layer >= config_.num_hidden_layers - decoder.num_kv_shared_layers;
      sizes.push_back(static_cast<int32_t>((is_shared ? 2 : 1) * config_.intermediate_size));
    }
    if (decoder.attention_k_eq_v) set("attention.head_count_kv", heads);
    if (decoder.use_double_wide_mlp) set("feed_forward_length", sizes);
    // Which pairs of a head rotate in layers of full attention: the others wait for ever.
    const RopeParameters& rope = decoder.rope_parameters.at("full_attention");
    const auto turning = static_cast<int64_t>(static_cast<double>(full) *
                                              rope.partial_rotary_factor.value_or(1.0) / 2.0);
    std::vector<float> factors(static_cast<size_t>(full / 2), 1e30F);
    std::fill_n(factors.begin(), turning, 1.0F);
    add_vector("rope_freqs.weight", factors);
  }

  void add_gemma3n() {
    const DecoderConfig& decoder = config_.decoder;
    check_pattern(5);
    if (decoder.altup_num_inputs != 4) refuse("altup_num_inputs other than 4");
    if (!decoder.altup_correct_scale) refuse("altup_correct_scale: false");
    // Sizes that llama.cpp knows.
    if (decoder.hidden_size_per_layer_input != 256) {
      refuse("hidden_size_per_layer_input other than 256");
    }
    if (decoder.laurel_rank != 64) refuse("laurel_rank other than 64");
    for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
      const double share = decoder.activation_sparsity_pattern[static_cast<size_t>(layer)];
      if (share != (layer < 10 ? 0.95 : 0.0)) refuse("another activation_sparsity_pattern");
    }
    if (config_.num_hidden_layers - decoder.num_kv_shared_layers != 20) {
      refuse("another number of layers with their own keys than 20");
    }
    set_number("altup.active_idx", decoder.altup_active_idx);
    set_number("altup.num_inputs", decoder.altup_num_inputs);
    std::vector<int32_t> sizes;
    for (const int64_t size : decoder.intermediate_sizes) {
      if (size != config_.intermediate_size) refuse("an intermediate_size for each layer");
      sizes.push_back(static_cast<int32_t>(size));
    }
    set("feed_forward_length", sizes);
    std::vector<float> scales;
    for (const double share : decoder.activation_sparsity_pattern) {
      scales.push_back(share > 0.0 ? static_cast<float>(nn::deviations_below(share))
                                   : -std::numeric_limits<float>::infinity());
    }
    set("activation_sparsity_scale", scales);
    add_unread_keys();
    add_stack("altup_proj.weight", "altup_projections.", ".weight");
    add_stack("altup_unembd_proj.weight", "altup_unembed_projections.", ".weight");
  }

  // llama.cpp asks for keys and values of layers that read those of others, as Google's files have
  // them.
  void add_unread_keys() {
    const int64_t rows = kv_heads() * head_dim();
    const auto add = [&](const std::string& name, const Tensor& values) {
      GgufTensor tensor;
      tensor.name = name;
      tensor.shape = values.sizes().vec();
      tensor.rows = [values](int64_t first, int64_t count) {
        return values.narrow(0, first, count);
      };
      if (values.dim() == 2) tensor.type = blocks_fit(tensor, type_);
      result_.tensors.push_back(std::move(tensor));
    };
    const int64_t shared = config_.decoder.num_kv_shared_layers;
    for (int64_t i = config_.num_hidden_layers - shared; i < config_.num_hidden_layers; ++i) {
      const std::string layer = "blk." + std::to_string(i) + ".";
      add(layer + "attn_k.weight", at::zeros({rows, config_.hidden_size}));
      add(layer + "attn_v.weight", at::zeros({rows, config_.hidden_size}));
      add(layer + "attn_k_norm.weight", at::ones({head_dim()}));
    }
  }

  // Matrices of one shape as one tensor, in the order of their numbers, which follow `modules`.
  void add_stack(const std::string& name, const std::string& modules, const std::string& end) {
    std::vector<const MergedTensor*> matrices;
    GgufTensor stack;
    stack.name = name;
    stack.restored = [](const Tensor& values) { return values; };
    for (const MergedTensor& tensor : model_.tensors) {
      if (tensor.name.find(modules) == std::string::npos || !tensor.name.ends_with(end)) continue;
      matrices.push_back(&tensor);
      stack.parts.push_back(tensor.name);
    }
    if (matrices.empty()) refuse("no " + modules);
    const int64_t rows = matrices.front()->shape[0];
    stack.shape = {static_cast<int64_t>(matrices.size()), rows, matrices.front()->shape[1]};
    stack.rows = [matrices, rows](int64_t first, int64_t count) {
      std::vector<Tensor> values;
      for (int64_t i = first; i < first + count; ++i) {
        values.push_back(matrices[static_cast<size_t>(i)]->rows(0, rows));
      }
      return at::stack(values);
    };
    stack.type = blocks_fit(stack, type_);
    result_.tensors.push_back(std::move(stack));
  }

  // One value for each layer, in their order.
  void add_xielu() {
    for (const char* name : {"alpha_n", "alpha_p", "beta", "eps"}) {
      std::vector<float> values;
      const std::string end = std::string(".act_fn.") + name;
      for (const MergedTensor& tensor : model_.tensors) {
        if (!tensor.name.ends_with(end)) continue;
        const Tensor value = tensor.rows(0, 1).contiguous();
        values.push_back(value.item<float>());
        result_.in_metadata[tensor.name] = value.reshape(tensor.shape);
      }
      result_.metadata.set(std::string("xielu.") + name, values);
    }
  }

  void add_lfm2() {
    const DecoderConfig& decoder = config_.decoder;
    if (decoder.conv_bias) refuse("biases (conv_bias)");
    set_number("vocab_size", config_.vocab_size);
    set_number("shortconv.l_cache", decoder.conv_L_cache);
    std::vector<int32_t> heads;  // none where a layer is a convolution
    for (const std::string& layer : decoder.layer_types) {
      heads.push_back(layer == "conv" ? 0 : static_cast<int32_t>(kv_heads()));
    }
    set("attention.head_count_kv", heads);
    for (const MergedTensor& tensor : model_.tensors) {
      if (tensor.name.ends_with("feed_forward.w1.weight")) {
        set_number("feed_forward_length", tensor.shape[0]);
      }
    }
  }

  void add_qwen3_5() {
    const DecoderConfig& decoder = config_.decoder;
    set_number("ssm.conv_kernel", decoder.linear_conv_kernel_dim);
    set_number("ssm.state_size", decoder.linear_key_head_dim);
    set_number("ssm.group_count", decoder.linear_num_key_heads);
    set_number("ssm.time_step_rank", decoder.linear_num_value_heads);
    set_number("ssm.inner_size", decoder.linear_value_head_dim * decoder.linear_num_value_heads);
    if (decoder.linear_key_head_dim != decoder.linear_value_head_dim) {
      refuse("linear_key_head_dim other than linear_value_head_dim");
    }
    const auto full = std::ranges::find(decoder.layer_types, "full_attention");
    const int64_t every = full - decoder.layer_types.begin() + 1;
    check_pattern(every);
    set_number("full_attention_interval", every);
    // Text has the same position in each section.
    std::vector<int32_t> sections = {11, 11, 10, 0};
    const std::vector<int64_t>& own = decoder.rope_parameters.begin()->second.mrope_section;
    if (!own.empty()) sections.assign(own.begin(), own.end());
    sections.resize(4);
    set("rope.dimension_sections", sections);
  }

  // Of families whose readers ask for an output layer also where it is shared.
  void add_output() {
    const MergedTensor* words = find_named("token_embd.weight");
    if (words == nullptr || find_named("output.weight") != nullptr) return;
    MergedTensor output = *words;
    output.name = "lm_head.weight";
    add(output);
    result_.tensors.back().restored = {};  // the model has it once
  }
  // By llama.cpp's name.
  [[nodiscard]] const MergedTensor* find_named(std::string_view name) const {
    const auto found = std::ranges::find_if(model_.tensors, [&](const MergedTensor& tensor) {
      return !is_left_out(tensor) && name_of(tensor.name) == name;
    });
    return found == model_.tensors.end() ? nullptr : &*found;
  }

  void add_rope() {
    const RopeByLayerType& all = config_.decoder.rope_parameters;
    const auto full = all.contains("full_attention") ? all.find("full_attention") : all.begin();
    FT_CHECK(full != all.end(), "a decoder has rotary positions");
    const RopeParameters& rope = full->second;
    if (config_.model_type == "gemma" || config_.model_type == "gemma2") {
      if (rope.rope_theta != 10000.0) refuse("another rope_theta than 10,000");
    } else {
      set("rope.freq_base", static_cast<float>(rope.rope_theta));
    }
    if (const auto sliding = all.find("sliding_attention"); sliding != all.end()) {
      set("rope.freq_base_swa", static_cast<float>(sliding->second.rope_theta));
      if (sliding->second.rope_type != "default") refuse("scaled positions of sliding layers");
      if (config_.model_type == "olmo3" && sliding->second.rope_theta != rope.rope_theta) {
        refuse("another rope_theta of sliding layers");
      }
    }
    const double share = rope.partial_rotary_factor.value_or(1.0);
    if (family_.rotates_share) {
      set_number("rope.dimension_count",
                 static_cast<int64_t>(share * static_cast<double>(head_dim())));
    } else if (share != 1.0 && config_.model_type != "phi3" && !is_gemma_n()) {
      refuse("a partial_rotary_factor");
    }
    if (config_.model_type == "phi3") {
      set_number("rope.dimension_count",
                 static_cast<int64_t>(share * static_cast<double>(config_.hidden_size)) /
                     config_.num_attention_heads);
      set_number("rope.scaling.original_context_length", original_length(rope));
    }
    const bool is_proportional = rope.rope_type == "proportional" && !rope.factor;
    if (config_.model_type == "gemma4_text" && !is_proportional) {
      refuse("another rope_type of full attention than proportional");
    }
    if (rope.rope_type == "default" || config_.model_type == "gemma4_text") return;
    if (rope.rope_type == "linear" && rope.factor) {
      set("rope.scaling.type", std::string("linear"));
      set("rope.scaling.factor", static_cast<float>(*rope.factor));
    } else if (rope.rope_type == "yarn" && rope.factor) {
      add_yarn(rope);
    } else if (rope.rope_type == "llama3" && family_.has_llama3_rope) {
      add_llama3_factors(rope);
    } else if (rope.rope_type == "longrope" && config_.model_type == "phi3") {
      add_long_factors(rope);
    } else if (rope.rope_type == "dynamic" && rope.alpha) {
      const auto size = static_cast<double>(head_dim());
      set("rope.freq_base",
          static_cast<float>(rope.rope_theta * std::pow(*rope.alpha, size / (size - 2.0))));
    } else {
      refuse("rope_type " + rope.rope_type);
    }
  }

  void add_yarn(const RopeParameters& rope) {
    set("rope.scaling.type", std::string("yarn"));
    set("rope.scaling.factor", static_cast<float>(*rope.factor));
    set_number("rope.scaling.original_context_length", original_length(rope));
    const auto optional = [&](const char* name, const std::optional<double>& value) {
      if (value) set(name, static_cast<float>(*value));
    };
    if (rope.attention_factor) refuse("attention_factor of yarn");
    optional("rope.scaling.yarn_beta_fast", rope.beta_fast);
    optional("rope.scaling.yarn_beta_slow", rope.beta_slow);
    if (config_.model_type == "ministral3") {
      if (rope.mscale != rope.mscale_all_dim) refuse("mscale other than mscale_all_dim");
      set("rope.scaling.yarn_log_multiplier",
          static_cast<float>(rope.mscale_all_dim.value_or(0.0)));
      set("attention.temperature_scale",
          static_cast<float>(rope.llama_4_scaling_beta.value_or(0.0)));
    } else if (rope.mscale || rope.mscale_all_dim) {
      refuse("mscale of yarn");
    }
    if (rope.truncate.value_or(true)) return;
    if (config_.model_type != "gpt_oss") refuse("yarn with truncate: false");
    log::warning("llama.cpp rounds the limits of yarn, which gpt-oss does not");
  }

  // The factors by which Llama 3 lengthens each wave, transformers' _compute_llama3_parameters.
  void add_llama3_factors(const RopeParameters& rope) {
    // In float32, with divisions by a tensor as torch has them.
    const auto factor = static_cast<float>(rope.factor.value_or(8.0));
    const auto low = static_cast<float>(rope.low_freq_factor.value_or(1.0));
    const auto high = static_cast<float>(rope.high_freq_factor.value_or(4.0));
    const auto old_length = static_cast<float>(original_length(rope));
    const Tensor powers = at::arange(0, head_dim(), 2, at::kFloat) / head_dim();
    const Tensor frequencies = 1.0 / at::pow(rope.rope_theta, powers);
    std::vector<float> factors;
    for (int64_t i = 0; i < frequencies.numel(); ++i) {
      const float length = 1.0F / frequencies[i].item<float>() * (2.0F * std::numbers::pi_v<float>);
      if (length < old_length / high) {
        factors.push_back(1.0F);
      } else if (length > old_length / low) {
        factors.push_back(factor);
      } else {
        const float smooth = (1.0F / length * old_length - low) / (high - low);
        factors.push_back(1.0F / ((1.0F - smooth) / factor + smooth));
      }
    }
    add_vector("rope_freqs.weight", factors);
  }

  void add_long_factors(const RopeParameters& rope) {
    const auto length = static_cast<double>(config_.max_position_embeddings);
    const auto old_length = static_cast<double>(original_length(rope));
    const double scale = length / old_length;
    const double factor =
        scale > 1.0 ? std::sqrt(1.0 + std::log(scale) / std::log(old_length)) : 1.0;
    set("rope.scaling.attn_factor", static_cast<float>(rope.attention_factor.value_or(factor)));
    const auto narrow = [](const std::vector<double>& values) {
      return std::vector<float>(values.begin(), values.end());
    };
    add_vector("rope_factors_long.weight", narrow(rope.long_factor));
    add_vector("rope_factors_short.weight", narrow(rope.short_factor));
  }

  void add_vector(const std::string& name, const std::vector<float>& values) {
    const Tensor tensor = at::tensor(values);
    result_.tensors.push_back({.name = name,
                               .shape = {tensor.numel()},
                               .type = GgmlType::kF32,
                               .rows = [tensor](int64_t first, int64_t count) {
                                 return tensor.narrow(0, first, count);
                               }});
  }

  void add_windows() {
    const DecoderConfig& decoder = config_.decoder;
    const bool has_windows =
        std::ranges::find(decoder.layer_types, "sliding_attention") != decoder.layer_types.end();
    const bool has_pattern = config_.model_type == "gemma2" || config_.model_type == "gemma3_text";
    if (has_pattern) {
      set_number("attention.sliding_window", decoder.sliding_window.value_or(0));
      check_pattern(config_.model_type == "gemma2" ? 2 : 6);
    } else if (family_.has_windows) {
      // llama.cpp knows by its layers whether an exaone4 has windows.
      if (config_.model_type == "exaone4" && has_windows != (config_.num_hidden_layers == 64)) {
        refuse(has_windows ? "sliding_attention and not 64 layers" : "64 layers without windows");
      }
      if (has_windows) add_pattern();
    } else if (config_.model_type == "phi3") {
      set_number("attention.sliding_window", decoder.sliding_window.value_or(0));
    } else if (is_gemma_n() || config_.model_type == "gpt_oss") {  // which set it themselves
    } else if (has_windows || (decoder.layer_types.empty() && decoder.sliding_window &&
                               *decoder.sliding_window < config_.max_position_embeddings)) {
      log::warning(
          format_text("GGUF has no windows for a {}: its readers attend to all tokens, not "
                      "to the last {} alone",
                      config_.model_type, decoder.sliding_window.value_or(0)));
    }
    if (config_.model_type == "smollm3") {
      for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
        const auto at = static_cast<size_t>(layer);
        if (at < decoder.no_rope_layers.size() &&
            (decoder.no_rope_layers[at] != 0) != ((layer + 1) % 4 != 0)) {
          refuse("no_rope_layers other than each fourth");
        }
      }
    }
  }

  void add_pattern() {
    check_pattern(4);
    set_pattern();
  }

  void set_pattern() {
    set_number("attention.sliding_window", *config_.decoder.sliding_window);
    std::vector<bool> pattern;
    for (const std::string& layer : config_.decoder.layer_types) {
      pattern.push_back(layer == "sliding_attention");
    }
    set("attention.sliding_window_pattern", pattern);
  }

  // llama.cpp has one pattern for each of these families: every n-th layer attends to all tokens.
  void check_pattern(int64_t every) {
    for (size_t layer = 0; layer < config_.decoder.layer_types.size(); ++layer) {
      const bool is_full = (static_cast<int64_t>(layer) + 1) % every == 0;
      if ((config_.decoder.layer_types[layer] == "full_attention") != is_full) {
        refuse("layer_types other than its family's");
      }
    }
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorKind::kData, "GGUF cannot hold this " + config_.model_type + ": it has " +
                                      what + "; export a folder instead");
  }

  [[nodiscard]] int64_t head_dim() const {
    return config_.decoder.head_dim.value_or(config_.hidden_size / config_.num_attention_heads);
  }
  [[nodiscard]] int64_t kv_heads() const {
    return config_.decoder.num_key_value_heads.value_or(config_.num_attention_heads);
  }
  [[nodiscard]] int64_t original_length(const RopeParameters& rope) const {
    if (rope.original_max_position_embeddings) return *rope.original_max_position_embeddings;
    return config_.model_type == "phi3" ? config_.decoder.original_max_position_embeddings
                                        : config_.max_position_embeddings;
  }

  // A decoder that embeds has no "model.".
  [[nodiscard]] std::string name_of(std::string name) const {
    if (model_.head == Head::kEmbedding && !is_like_bert()) {
      name = (config_.model_type == "gpt2" ? "transformer." : "model.") + name;
    }
    if (std::string found = gguf_name(family_, name); !found.empty()) return found;
    throw Error(ErrorKind::kData, "GGUF has no name for the tensor '" + name + "' of a " +
                                      config_.model_type + "; export a folder instead");
  }

  // No embedding is made of it, or the metadata have it.
  static bool is_left_out(const MergedTensor& tensor) {
    const auto has = [&](const char* part) { return tensor.name.find(part) != std::string::npos; };
    return tensor.name.starts_with("pooler.") || has(".act_fn.") || has("altup_projections.") ||
           has("altup_unembed_projections.") || is_of_one_expert(tensor.name);
  }

  void add(const MergedTensor& source) {
    if (is_left_out(source) || add_views(source)) return;
    GgufTensor tensor{.name = name_of(source.name),
                      .shape = source.shape,
                      .rows = source.rows,
                      .source = source.name,
                      .restored = [](const Tensor& values) { return values; }};
    if (family_.adds_one_to_norms && tensor.name.ends_with("norm.weight") &&
        !tensor.name.ends_with("ssm_norm.weight")) {
      add_one(tensor);
    }
    const bool is_transposed = has_transposed_linear(config_) && tensor.shape.size() == 2 &&
                               !tensor.name.starts_with("token_embd") &&
                               !tensor.name.starts_with("position_embd") &&
                               !tensor.name.starts_with("output");
    if (is_transposed) transpose(tensor);
    if (family_.permutes) {
      const std::string& name = source.name;
      if (name.find(".q_proj.") != std::string::npos) {
        interleave_halves(tensor, config_.num_attention_heads);
      }
      if (name.find(".k_proj.") != std::string::npos) interleave_halves(tensor, kv_heads());
    }
    if (config_.model_type == "gpt_neox" &&
        source.name.find(".query_key_value.") != std::string::npos) {
      exchange_row_groups(tensor, 0, config_.num_attention_heads, 3, head_dim());
    }
    const bool is_convolution = tensor.shape.size() == 3;
    if (is_convolution) remove_middle(tensor);
    if (source.name.find(".linear_attn.") != std::string::npos) change_delta_net(tensor);
    const bool is_narrow = tensor.shape.size() >= 2 && !tensor.name.starts_with("position_embd") &&
                           !tensor.name.starts_with("token_types") && !is_convolution &&
                           !tensor.name.ends_with("_coef.weight") &&
                           !tensor.name.ends_with("ffn_gate_inp.weight") &&
                           tensor.name.ends_with(".weight");
    if (is_narrow) tensor.type = blocks_fit(tensor, type_);
    result_.tensors.push_back(std::move(tensor));
  }

  // `type`, or float16 where rows are no whole blocks of it.
  static GgmlType blocks_fit(const GgufTensor& tensor, GgmlType type) {
    const auto blocks = static_cast<int64_t>(traits_of(type).block_values);
    return tensor.shape.back() % blocks == 0 ? type : GgmlType::kF16;
  }

  // llama.cpp repeats the key heads of a delta net as a whole for its value heads, transformers
  // each of them.
  void change_delta_net(GgufTensor& tensor) const {
    const DecoderConfig& decoder = config_.decoder;
    const int64_t keys = decoder.linear_num_key_heads;
    const int64_t values = decoder.linear_num_value_heads / keys;  // of each key head
    const int64_t size = decoder.linear_value_head_dim;
    const auto is = [&](const char* name) { return tensor.source.find(name) != std::string::npos; };
    if (is(".in_proj_qkv.") || is(".conv1d.")) {
      exchange_row_groups(tensor, 2 * keys * decoder.linear_key_head_dim, keys, values, size);
    } else if (is(".in_proj_z.")) {
      exchange_row_groups(tensor, 0, keys, values, size);
    } else if (is(".in_proj_a.") || is(".in_proj_b.") || is(".dt_bias") || is(".A_log")) {
      exchange_row_groups(tensor, 0, keys, values, 1);
    } else if (is(".out_proj.")) {
      exchange_column_groups(tensor, keys, values, size);
    }
    if (is(".A_log")) negate_exponential(tensor);
  }

  const MergedModel& model_;
  const ModelConfig& config_;
  const GgufFamily& family_;
  GgmlType type_;
  GgufModel result_;
};

}  // namespace

bool is_exported_as_gguf(const ModelConfig& config) { return find_gguf_family(config) != nullptr; }

GgufModel gguf_model(const MergedModel& model, GgmlType type) {
  return GgufBuilder(model, type).build();
}

}  // namespace finetune
