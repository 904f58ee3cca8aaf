// SPDX-License-Identifier: MIT
#include "export/gguf_family.h"

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

using Biases = GgufFamily::Biases;

const GgufNames& layer_names() {
  static const GgufNames names = {{"self_attn.q_proj", "attn_q"},
                                  {"self_attn.k_proj", "attn_k"},
                                  {"self_attn.v_proj", "attn_v"},
                                  {"self_attn.o_proj", "attn_output"},
                                  {"self_attn.out_proj", "attn_output"},
                                  {"self_attn.dense", "attn_output"},
                                  {"self_attn.qkv_proj", "attn_qkv"},
                                  {"self_attn.q_norm", "attn_q_norm"},
                                  {"self_attn.k_norm", "attn_k_norm"},
                                  {"self_attn.q_layernorm", "attn_q_norm"},
                                  {"self_attn.k_layernorm", "attn_k_norm"},
                                  {"self_attn.query_layernorm", "attn_q_norm"},
                                  {"self_attn.key_layernorm", "attn_k_norm"},
                                  {"mlp.gate_proj", "ffn_gate"},
                                  {"mlp.up_proj", "ffn_up"},
                                  {"mlp.gate_up_proj", "ffn_up"},
                                  {"mlp.down_proj", "ffn_down"},
                                  {"mlp.fc1", "ffn_up"},
                                  {"mlp.fc2", "ffn_down"},
                                  {"mlp.c_fc", "ffn_up"},
                                  {"mlp.c_proj", "ffn_down"},
                                  {"mlp.dense_h_to_4h", "ffn_up"},
                                  {"mlp.dense_4h_to_h", "ffn_down"},
                                  {"feed_forward.w1", "ffn_gate"},
                                  {"feed_forward.w3", "ffn_up"},
                                  {"feed_forward.w2", "ffn_down"},
                                  {"input_layernorm", "attn_norm"},
                                  {"attention_layernorm", "attn_norm"},
                                  {"feedforward_layernorm", "ffn_norm"},
                                  {"post_attention_layernorm", "ffn_norm"},
                                  {"pre_feedforward_layernorm", "ffn_norm"},
                                  {"post_feedforward_layernorm", "post_ffw_norm"},
                                  {"post_self_attn_layernorm", "post_attention_norm"},
                                  {"post_mlp_layernorm", "post_ffw_norm"},
                                  {"operator_norm", "attn_norm"},
                                  {"ffn_norm", "ffn_norm"},
                                  {"conv.in_proj", "shortconv.in_proj"},
                                  {"conv.conv", "shortconv.conv"},
                                  {"conv.out_proj", "shortconv.out_proj"},
                                  {"linear_attn.in_proj_qkv", "attn_qkv"},
                                  {"linear_attn.in_proj_z", "attn_gate"},
                                  {"linear_attn.in_proj_a", "ssm_alpha"},
                                  {"linear_attn.in_proj_b", "ssm_beta"},
                                  {"linear_attn.conv1d", "ssm_conv1d"},
                                  {"linear_attn.norm", "ssm_norm"},
                                  {"linear_attn.out_proj", "ssm_out"},
                                  {"mlp.gate", "ffn_gate_inp"},
                                  {"mlp.router", "ffn_gate_inp"},
                                  {"block_sparse_moe.router.layer", "ffn_gate_inp"},
                                  {"per_layer_input_gate", "inp_gate"},
                                  {"per_layer_projection", "proj"},
                                  {"post_per_layer_input_norm", "post_norm"},
                                  {"altup.correction_coefs", "altup_correct_coef"},
                                  {"altup.prediction_coefs", "altup_predict_coef"},
                                  {"altup.modality_router", "altup_router"},
                                  {"altup.router_norm", "altup_router_norm"},
                                  {"laurel.linear_left", "laurel_l"},
                                  {"laurel.linear_right", "laurel_r"},
                                  {"laurel.post_laurel_norm", "laurel_post_norm"},
                                  {"ln_1", "attn_norm"},
                                  {"ln_2", "ffn_norm"},
                                  {"attn.c_attn", "attn_qkv"},
                                  {"attn.c_proj", "attn_output"},
                                  {"attention.query_key_value", "attn_qkv"},
                                  {"attention.dense", "attn_output"},
                                  {"attention.self.query", "attn_q"},
                                  {"attention.self.key", "attn_k"},
                                  {"attention.self.value", "attn_v"},
                                  {"attention.output.dense", "attn_output"},
                                  {"attention.output.LayerNorm", "attn_output_norm"},
                                  {"attention.q_lin", "attn_q"},
                                  {"attention.k_lin", "attn_k"},
                                  {"attention.v_lin", "attn_v"},
                                  {"attention.out_lin", "attn_output"},
                                  {"sa_layer_norm", "attn_output_norm"},
                                  {"ffn.lin1", "ffn_up"},
                                  {"ffn.lin2", "ffn_down"},
                                  {"output_layer_norm", "layer_output_norm"},
                                  {"intermediate.dense", "ffn_up"},
                                  {"output.dense", "ffn_down"},
                                  {"output.LayerNorm", "layer_output_norm"}};
  return names;
}

// Parameters that are not called weight or bias.
const GgufNames& whole_names() {
  static const GgufNames names = {{"linear_attn.A_log", "ssm_a"},
                                  {"linear_attn.dt_bias", "ssm_dt.bias"},
                                  {"self_attn.sinks", "attn_sinks.weight"},
                                  {"layer_scalar", "layer_output_scale.weight"},
                                  {"altup.correct_output_scale", "altup_correct_scale.weight"}};
  return names;
}

const GgufNames& global_names() {
  static const GgufNames names = {{"model.embed_tokens", "token_embd"},
                                  {"model.norm", "output_norm"},
                                  {"model.final_layernorm", "output_norm"},
                                  {"model.embedding_norm", "token_embd_norm"},
                                  {"model.embed_tokens_per_layer", "per_layer_token_embd"},
                                  {"model.per_layer_model_projection", "per_layer_model_proj"},
                                  {"model.per_layer_projection_norm", "per_layer_proj_norm"},
                                  {"lm_head", "output"},
                                  {"gpt_neox.embed_in", "token_embd"},
                                  {"gpt_neox.final_layer_norm", "output_norm"},
                                  {"transformer.wte", "token_embd"},
                                  {"transformer.wpe", "position_embd"},
                                  {"transformer.ln_f", "output_norm"},
                                  {"embeddings.word_embeddings", "token_embd"},
                                  {"embeddings.token_type_embeddings", "token_types"},
                                  {"embeddings.position_embeddings", "position_embd"},
                                  {"embeddings.LayerNorm", "token_embd_norm"}};
  return names;
}

// Norms of what attention gives.
const GgufNames& after_attention() {
  static const GgufNames names = {{"post_attention_layernorm", "post_attention_norm"}};
  return names;
}

std::vector<GgufFamily> make_families() {
  const GgufFamily llama = {.model_type = "llama",
                            .architecture = "llama",
                            .biases = Biases::kAll,
                            .permutes = true,
                            .has_rope_dimensions = true,
                            .has_llama3_rope = true};
  const auto like_llama = [&](const char* model_type, const char* architecture) {
    GgufFamily family = llama;
    family.model_type = model_type;
    family.architecture = architecture;
    return family;
  };
  GgufFamily smollm3 = like_llama("smollm3", "smollm3");
  smollm3.biases = Biases::kNone;
  smollm3.has_llama3_rope = false;
  GgufFamily apertus = like_llama("apertus", "apertus");
  apertus.activation = "xielu";
  apertus.permutes = false;
  GgufFamily arcee = like_llama("arcee", "arcee");
  arcee.activation = "relu2";
  arcee.biases = Biases::kNone;
  const GgufFamily bert = {.model_type = "bert",
                           .architecture = "bert",
                           .activation = "gelu",
                           .biases = Biases::kAll,
                           .is_encoder = true,
                           .has_layer_norms = true};
  GgufFamily distilbert = bert;
  distilbert.model_type = "distilbert";
  return {bert,
          distilbert,
          {.model_type = "nomic_bert",
           .architecture = "nomic-bert",
           .is_encoder = true,
           .has_layer_norms = true,
           .others = {{"post_attention_layernorm", "attn_output_norm"},
                      {"post_mlp_layernorm", "layer_output_norm"}}},
          {.model_type = "eurobert", .architecture = "eurobert", .is_encoder = true},
          {.model_type = "gemma",
           .architecture = "gemma",
           .activation = "gelu",
           .adds_one_to_norms = true},
          {.model_type = "gemma2",
           .architecture = "gemma2",
           .activation = "gelu",
           .adds_one_to_norms = true,
           .others = after_attention()},
          {.model_type = "gemma3_text",
           .architecture = "gemma3",
           .activation = "gelu",
           .adds_one_to_norms = true,
           .others = after_attention()},
          {.model_type = "gemma3n_text",
           .architecture = "gemma3n",
           .activation = "gelu",
           .others = after_attention()},
          {.model_type = "gemma4_text",
           .architecture = "gemma4",
           .activation = "gelu",
           .others = after_attention()},
          {.model_type = "gpt2",
           .architecture = "gpt2",
           .activation = "gelu",
           .biases = Biases::kAll,
           .has_layer_norms = true},
          {.model_type = "gpt_neox",
           .architecture = "gptneox",
           .activation = "gelu",
           .biases = Biases::kAll,
           .has_layer_norms = true,
           .rotates_share = true,
           .needs_biases = true,
           .needs_output = true},
          llama,
          like_llama("mistral", "llama"),
          like_llama("ministral3", "mistral3"),
          like_llama("granite", "granite"),
          like_llama("granitemoe", "granitemoe"),
          {.model_type = "gpt_oss",
           .architecture = "gpt-oss",
           .biases = Biases::kAll,
           .others = after_attention()},
          apertus,
          arcee,
          smollm3,
          {.model_type = "ernie4_5", .architecture = "ernie4_5"},
          {.model_type = "exaone4",
           .architecture = "exaone4",
           .has_llama3_rope = true,
           .has_windows = true,
           .others = after_attention()},
          {.model_type = "glm4",
           .architecture = "glm4",
           .biases = Biases::kAttention,
           .rotates_share = true},
          {.model_type = "hunyuan_v1_dense", .architecture = "hunyuan-dense"},
          {.model_type = "lfm2", .architecture = "lfm2"},
          {.model_type = "olmo2",
           .architecture = "olmo2",
           .needs_output = true,
           .others = after_attention()},
          {.model_type = "olmo3",
           .architecture = "olmo2",
           .needs_output = true,
           .has_windows = true,
           .others = after_attention()},
          {.model_type = "olmoe", .architecture = "olmoe"},
          {.model_type = "phi",
           .architecture = "phi2",
           .activation = "gelu",
           .biases = Biases::kAll,
           .has_layer_norms = true,
           .rotates_share = true,
           .needs_output = true},
          {.model_type = "phi3", .architecture = "phi3"},
          {.model_type = "qwen2", .architecture = "qwen2", .biases = Biases::kAttention},
          {.model_type = "qwen3", .architecture = "qwen3"},
          {.model_type = "qwen3_moe", .architecture = "qwen3moe"},
          {.model_type = "qwen3_5_text",
           .architecture = "qwen35",
           .adds_one_to_norms = true,
           .rotates_share = true,
           .others = after_attention()},
          {.model_type = "seed_oss",
           .architecture = "seed_oss",
           .biases = Biases::kAttention,
           .others = after_attention()},
          {.model_type = "stablelm",
           .architecture = "stablelm",
           .biases = Biases::kAttention,
           .has_layer_norms = true,
           .rotates_share = true,
           .needs_output = true},
          {.model_type = "starcoder2",
           .architecture = "starcoder2",
           .activation = "gelu",
           .biases = Biases::kAll,
           .has_layer_norms = true,
           .needs_biases = true}};
}

const std::vector<GgufFamily>& families() {
  static const std::vector<GgufFamily> all = make_families();
  return all;
}

const std::string* find(const GgufNames& names, std::string_view name) {
  const auto found = names.find(name);
  return found == names.end() ? nullptr : &found->second;
}

}  // namespace

const GgufFamily* find_gguf_family(const ModelConfig& config) {
  const auto found = std::ranges::find(families(), config.model_type, [](const GgufFamily& family) {
    return std::string_view(family.model_type);
  });
  return found == families().end() ? nullptr : &*found;
}

const GgufFamily& gguf_family(const ModelConfig& config) {
  if (const GgufFamily* family = find_gguf_family(config)) return *family;
  std::vector<std::string> known;
  for (const GgufFamily& family : families()) known.emplace_back(family.model_type);
  throw Error(ErrorKind::kData, "a " + config.model_type +
                                    " cannot be written as GGUF, which has " + join(known) +
                                    "; export a folder instead");
}

std::string gguf_name(const GgufFamily& family, const std::string& name) {
  const size_t last = std::min(name.rfind('.'), name.size());
  const std::string module = name.substr(0, last), end = name.substr(last);
  if (const std::string* found = find(global_names(), module)) return *found + end;
  for (const std::string_view start : {"model.layers.", "transformer.h.", "gpt_neox.layers.",
                                       "encoder.layer.", "transformer.layer.", "layers."}) {
    if (!name.starts_with(start)) continue;
    const size_t dot = name.find('.', start.size());
    if (dot == std::string::npos) break;
    const std::string layer = "blk." + name.substr(start.size(), dot - start.size()) + ".";
    if (const std::string* found = find(whole_names(), name.substr(dot + 1))) return layer + *found;
    if (dot >= last) break;
    const std::string part = module.substr(dot + 1);
    const std::string* found = find(family.others, part);
    if (found == nullptr) found = find(layer_names(), part);
    if (found != nullptr) return layer + *found + end;
  }
  return {};
}

}  // namespace finetune
