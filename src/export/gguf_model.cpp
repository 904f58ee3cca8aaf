// SPDX-License-Identifier: MIT
#include "export/gguf_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/export/export.h"
#include "finetune/model/embedding_files.h"

namespace finetune {
namespace {

// Names of a layer's parts: the ends in transformers and in llama.cpp.
using Names = std::map<std::string, std::string, std::less<>>;

struct Family {
  const char* model_type;
  const char* architecture;        // general.architecture
  bool permutes = false;           // rows of q_proj and k_proj
  bool adds_one_to_norms = false;  // which are stored without it
  bool has_rope_dimensions = false;
  Names others = {};  // that differ from kLayerNames
};

const Names& layer_names() {
  static const Names names = {{"self_attn.q_proj", "attn_q"},
                              {"self_attn.k_proj", "attn_k"},
                              {"self_attn.v_proj", "attn_v"},
                              {"self_attn.o_proj", "attn_output"},
                              {"self_attn.qkv_proj", "attn_qkv"},
                              {"self_attn.q_norm", "attn_q_norm"},
                              {"self_attn.k_norm", "attn_k_norm"},
                              {"mlp.gate_proj", "ffn_gate"},
                              {"mlp.up_proj", "ffn_up"},
                              {"mlp.gate_up_proj", "ffn_up"},
                              {"mlp.down_proj", "ffn_down"},
                              {"input_layernorm", "attn_norm"},
                              {"post_attention_layernorm", "ffn_norm"},
                              {"pre_feedforward_layernorm", "ffn_norm"},
                              {"post_feedforward_layernorm", "post_ffw_norm"},
                              {"ln_1", "attn_norm"},
                              {"ln_2", "ffn_norm"},
                              {"attn.c_attn", "attn_qkv"},
                              {"attn.c_proj", "attn_output"},
                              {"mlp.c_fc", "ffn_up"},
                              {"mlp.c_proj", "ffn_down"},
                              {"attention.self.query", "attn_q"},
                              {"attention.self.key", "attn_k"},
                              {"attention.self.value", "attn_v"},
                              {"attention.output.dense", "attn_output"},
                              {"attention.output.LayerNorm", "attn_output_norm"},
                              {"intermediate.dense", "ffn_up"},
                              {"output.dense", "ffn_down"},
                              {"output.LayerNorm", "layer_output_norm"}};
  return names;
}

const Names& global_names() {
  static const Names names = {{"model.embed_tokens", "token_embd"},
                              {"model.norm", "output_norm"},
                              {"lm_head", "output"},
                              {"transformer.wte", "token_embd"},
                              {"transformer.wpe", "position_embd"},
                              {"transformer.ln_f", "output_norm"},
                              {"embeddings.word_embeddings", "token_embd"},
                              {"embeddings.token_type_embeddings", "token_types"},
                              {"embeddings.position_embeddings", "position_embd"},
                              {"embeddings.LayerNorm", "token_embd_norm"}};
  return names;
}

const std::vector<Family>& families() {
  static const Names after = {{"post_attention_layernorm", "post_attention_norm"}};
  static const std::vector<Family> all = {
      {.model_type = "bert", .architecture = "bert"},
      {.model_type = "gemma", .architecture = "gemma", .adds_one_to_norms = true},
      {.model_type = "gemma2",
       .architecture = "gemma2",
       .adds_one_to_norms = true,
       .others = after},
      {.model_type = "gemma3_text",
       .architecture = "gemma3",
       .adds_one_to_norms = true,
       .others = after},
      {.model_type = "gpt2", .architecture = "gpt2"},
      {.model_type = "llama",
       .architecture = "llama",
       .permutes = true,
       .has_rope_dimensions = true},
      {.model_type = "mistral",
       .architecture = "llama",
       .permutes = true,
       .has_rope_dimensions = true},
      {.model_type = "olmo2", .architecture = "olmo2", .others = after},
      {.model_type = "phi3", .architecture = "phi3"},
      {.model_type = "qwen2", .architecture = "qwen2"},
      {.model_type = "qwen3", .architecture = "qwen3"},
      {.model_type = "smollm3",
       .architecture = "smollm3",
       .permutes = true,
       .has_rope_dimensions = true}};
  return all;
}

const Family* find_family(const ModelConfig& config) {
  const auto found = std::ranges::find(families(), config.model_type, [](const Family& family) {
    return std::string_view(family.model_type);
  });
  return found == families().end() ? nullptr : &*found;
}

const Family& family_of(const ModelConfig& config) {
  if (const Family* family = find_family(config)) return *family;
  std::vector<std::string> known;
  for (const Family& family : families()) known.emplace_back(family.model_type);
  throw Error(ErrorKind::kData, "a " + config.model_type +
                                    " cannot be written as GGUF, which has " + join(known) +
                                    "; export a folder instead");
}

class GgufBuilder {
 public:
  GgufBuilder(const MergedModel& model, GgmlType type)
      : model_(model), config_(model.config), family_(family_of(config_)), type_(type) {}

  GgufModel build() {
    check_family();
    add_general();
    if (config_.model_type == "bert") {
      add_bert();
    } else if (config_.model_type == "gpt2") {
      add_gpt2();
    } else {
      add_decoder();
    }
    if (model_.head == Head::kEmbedding) add_pooling();
    for (const MergedTensor& tensor : model_.tensors) add(tensor);
    // Its readers ask for an output layer also where it is shared.
    const MergedTensor* words = model_.find("model.embed_tokens.weight");
    if (config_.model_type == "olmo2" && model_.find("lm_head.weight") == nullptr &&
        words != nullptr) {
      MergedTensor output = *words;
      output.name = "lm_head.weight";
      add(output);
      result_.tensors.back().restored = {};  // the model has it once
    }
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
    if (type == "bert") {
      if (model_.head != Head::kEmbedding) refuse("another task than embedding");
      if (config_.hidden_act != "gelu") refuse("the activation " + config_.hidden_act);
      return;
    }
    const bool is_gemma = type.starts_with("gemma");
    const bool has_tanh =
        config_.hidden_act == "gelu_pytorch_tanh" || config_.hidden_act == "gelu_new";
    const bool has_silu = config_.hidden_act == "silu" || config_.hidden_act == "swish";
    if (is_gemma || type == "gpt2" ? !has_tanh : !has_silu) {
      refuse("the activation " + config_.hidden_act);
    }
    const DecoderConfig& decoder = config_.decoder;
    const bool has_bias = decoder.attention_bias || decoder.mlp_bias;
    if (has_bias && !is_llama() && type != "qwen2" && type != "gpt2") {
      refuse("biases (attention_bias or mlp_bias)");
    }
    if ((type == "gemma" || type == "gemma2") && model_.find("lm_head.weight") != nullptr) {
      refuse("an output layer that is not shared");
    }
    if (type == "gemma2" && (!decoder.attn_logit_softcapping || !decoder.final_logit_softcapping)) {
      refuse("no soft caps of logits");
    }
    if (type != "gemma2" && decoder.attn_logit_softcapping) refuse("attn_logit_softcapping");
  }
  [[nodiscard]] bool is_llama() const { return std::string_view(family_.architecture) == "llama"; }

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

  void add_bert() {
    add_sizes(config_.intermediate_size);
    set("attention.layer_norm_epsilon", static_cast<float>(config_.layer_norm_eps));
    set("attention.causal", false);
    result_.metadata.set("tokenizer.ggml.token_type_count",
                         static_cast<uint32_t>(config_.type_vocab_size));
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
    set("attention.layer_norm_rms_epsilon", static_cast<float>(decoder.rms_norm_eps));
    if (config_.model_type != "phi3" && config_.model_type != "olmo2") {
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
        config_.model_type.starts_with("gemma2") || config_.model_type.starts_with("gemma3");
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
    }
    if (rope.partial_rotary_factor.value_or(1.0) != 1.0 && config_.model_type != "phi3") {
      refuse("a partial_rotary_factor");
    }
    if (config_.model_type == "phi3") {
      const double share = rope.partial_rotary_factor.value_or(1.0);
      set_number("rope.dimension_count",
                 static_cast<int64_t>(share * static_cast<double>(config_.hidden_size)) /
                     config_.num_attention_heads);
      set_number("rope.scaling.original_context_length", original_length(rope));
    }
    if (rope.rope_type == "default") return;
    if (rope.rope_type == "linear" && rope.factor) {
      set("rope.scaling.type", std::string("linear"));
      set("rope.scaling.factor", static_cast<float>(*rope.factor));
    } else if (rope.rope_type == "yarn" && rope.factor) {
      add_yarn(rope);
    } else if (rope.rope_type == "llama3" && is_llama()) {
      add_llama3_factors(rope);
    } else if (rope.rope_type == "longrope" && config_.model_type == "phi3") {
      add_long_factors(rope);
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
    if (rope.mscale || rope.mscale_all_dim) refuse("mscale of yarn");
    if (!rope.truncate.value_or(true)) refuse("yarn with truncate: false");
  }

  // The factors by which Llama 3 lengthens each wave, transformers' _compute_llama3_parameters.
  void add_llama3_factors(const RopeParameters& rope) {
    const double factor = rope.factor.value_or(8.0);
    const double low = rope.low_freq_factor.value_or(1.0);
    const double high = rope.high_freq_factor.value_or(4.0);
    const auto old_length = static_cast<double>(original_length(rope));
    std::vector<float> factors;
    for (int64_t i = 0; i < head_dim(); i += 2) {
      const auto power = static_cast<float>(i) / static_cast<float>(head_dim());
      const float frequency = 1.0F / std::pow(static_cast<float>(rope.rope_theta), power);
      const double length = 2.0 * std::numbers::pi / static_cast<double>(frequency);
      if (length < old_length / high) {
        factors.push_back(1.0F);
      } else if (length > old_length / low) {
        factors.push_back(static_cast<float>(factor));
      } else {
        const double smooth = (old_length / length - low) / (high - low);
        factors.push_back(static_cast<float>(1.0 / ((1.0 - smooth) / factor + smooth)));
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
    } else if (config_.model_type == "phi3") {
      set_number("attention.sliding_window", decoder.sliding_window.value_or(0));
    } else if (has_windows || (config_.model_type == "mistral" && decoder.sliding_window &&
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

  // "model.layers.3.mlp.up_proj.weight" is "blk.3.ffn_up.weight". A decoder that embeds has no
  // "model.".
  [[nodiscard]] std::string name_of(std::string name) const {
    if (model_.head == Head::kEmbedding && config_.model_type != "bert") {
      name = (config_.model_type == "gpt2" ? "transformer." : "model.") + name;
    }
    const size_t last = name.rfind('.');
    const std::string module = name.substr(0, last);
    const std::string end = name.substr(last);
    if (const auto found = global_names().find(module); found != global_names().end()) {
      return found->second + end;
    }
    for (const std::string_view start : {"model.layers.", "transformer.h.", "encoder.layer."}) {
      if (!module.starts_with(start)) continue;
      const size_t dot = module.find('.', start.size());
      if (dot == std::string::npos) break;
      const std::string layer = module.substr(start.size(), dot - start.size());
      const std::string part = module.substr(dot + 1);
      auto found = family_.others.find(part);
      if (found == family_.others.end()) {
        found = layer_names().find(part);
        if (found == layer_names().end()) break;
      }
      return "blk." + layer + "." + found->second + end;
    }
    throw Error(ErrorKind::kData, "GGUF has no name for the tensor '" + name + "' of a " +
                                      config_.model_type + "; export a folder instead");
  }

  void add(const MergedTensor& source) {
    if (source.name.starts_with("pooler.")) return;  // no embedding is made of it
    GgufTensor tensor{.name = name_of(source.name),
                      .shape = source.shape,
                      .rows = source.rows,
                      .source = source.name,
                      .restored = [](const Tensor& values) { return values; }};
    const bool is_norm = tensor.name.ends_with("norm.weight");
    if (family_.adds_one_to_norms && is_norm) {
      tensor.rows = [rows = source.rows](int64_t first, int64_t count) {
        return rows(first, count) + 1.0F;
      };
      tensor.restored = [](const Tensor& values) { return values - 1.0F; };
    }
    const bool is_transposed = has_transposed_linear(config_) && tensor.shape.size() == 2 &&
                               !tensor.name.starts_with("token_embd") &&
                               !tensor.name.starts_with("position_embd") &&
                               !tensor.name.starts_with("output");
    if (is_transposed) transpose(tensor);
    if (family_.permutes) {
      const std::string& name = source.name;
      if (name.find(".q_proj.") != std::string::npos) permute(tensor, config_.num_attention_heads);
      if (name.find(".k_proj.") != std::string::npos) permute(tensor, kv_heads());
    }
    const bool is_narrow = tensor.shape.size() >= 2 && !tensor.name.starts_with("position_embd") &&
                           !tensor.name.starts_with("token_types") &&
                           tensor.name.ends_with(".weight");
    if (is_narrow) tensor.type = type_;
    const auto blocks = static_cast<int64_t>(traits_of(tensor.type).block_values);
    if (tensor.shape.back() % blocks != 0) tensor.type = GgmlType::kF16;
    result_.tensors.push_back(std::move(tensor));
  }

  // GPT-2's matrices are small enough to be in memory one at a time.
  static void transpose(GgufTensor& tensor) {
    std::swap(tensor.shape[0], tensor.shape[1]);
    tensor.restored = [](const Tensor& values) { return values.t(); };
    tensor.rows = [rows = tensor.rows, all = tensor.shape[0], inputs = tensor.shape[1],
                   turned = Tensor()](int64_t first, int64_t count) mutable {
      if (!turned.defined()) turned = rows(0, inputs).t().contiguous();
      Tensor result = turned.narrow(0, first, count);
      if (first + count == all) turned.reset();
      return result;
    };
  }

  // transformers rotates the halves of a head, llama.cpp neighbours: of each head the row i of the
  // first half is followed by the row i of the second.
  static void permute(GgufTensor& tensor, int64_t heads) {
    const int64_t half = tensor.shape[0] / heads / 2;
    tensor.rows = [rows = tensor.rows, half](int64_t first, int64_t count) {
      std::vector<Tensor> parts;
      for (int64_t row = first; row < first + count;) {
        const int64_t head = row / (2 * half) * (2 * half);
        const int64_t end = std::min(first + count, head + 2 * half);
        const int64_t pair = (row - head) / 2;
        const int64_t pairs = (end - head + 1) / 2 - pair;
        const Tensor both =
            at::stack({rows(head + pair, pairs), rows(head + half + pair, pairs)}, 1).flatten(0, 1);
        parts.push_back(both.narrow(0, row - head - 2 * pair, end - row));
        row = end;
      }
      return parts.size() == 1 ? parts.front() : at::cat(parts, 0);
    };
    tensor.restored = [heads, half](const Tensor& values) {
      std::vector<int64_t> shape = values.sizes().vec();
      const Tensor pairs = values.reshape({heads, half, 2, values.numel() / values.size(0)});
      return pairs.transpose(1, 2).reshape(shape);
    };
  }

  const MergedModel& model_;
  const ModelConfig& config_;
  const Family& family_;
  GgmlType type_;
  GgufModel result_;
};

}  // namespace

bool is_exported_as_gguf(const ModelConfig& config) { return find_family(config) != nullptr; }

GgufModel gguf_model(const MergedModel& model, GgmlType type) {
  return GgufBuilder(model, type).build();
}

}  // namespace finetune
