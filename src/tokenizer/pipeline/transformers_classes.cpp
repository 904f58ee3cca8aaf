// SPDX-License-Identifier: MIT
#include "tokenizer/pipeline/transformers_classes.h"

#include <algorithm>
#include <utility>

#include "finetune/base/model_families.h"

namespace finetune::tokenizer {
namespace {

// The class for which tokenizer.json is used as it is.
constexpr std::string_view kBackend = "TokenizersBackend";

struct ClassRow {
  std::string_view name;
  TokenizerClass which;
  bool token_types = false;
};
// Several names are aliases or subclasses that build the same pipeline.
constexpr ClassRow kClasses[] = {{"BertTokenizer", TokenizerClass::kBert, true},
                                 {"DPRContextEncoderTokenizer", TokenizerClass::kBert, true},
                                 {"DPRQuestionEncoderTokenizer", TokenizerClass::kBert, true},
                                 {"DistilBertTokenizer", TokenizerClass::kBert},
                                 {"ElectraTokenizer", TokenizerClass::kBert, true},
                                 {"LayoutLMTokenizer", TokenizerClass::kBert, true},
                                 {"LxmertTokenizer", TokenizerClass::kBert, true},
                                 {"MobileBertTokenizer", TokenizerClass::kBert, true},
                                 {"SqueezeBertTokenizer", TokenizerClass::kBert, true},
                                 {"MPNetTokenizer", TokenizerClass::kMpnet},
                                 {"RobertaTokenizer", TokenizerClass::kRoberta},
                                 {"BartTokenizer", TokenizerClass::kRoberta},
                                 {"LEDTokenizer", TokenizerClass::kRoberta},
                                 {"LongformerTokenizer", TokenizerClass::kRoberta},
                                 {"MvpTokenizer", TokenizerClass::kRoberta},
                                 {"XLMRobertaTokenizer", TokenizerClass::kXlmRoberta},
                                 {"BigBirdTokenizer", TokenizerClass::kBigBird},
                                 {"GPT2Tokenizer", TokenizerClass::kGpt2},
                                 {"CodeGenTokenizer", TokenizerClass::kGpt2},
                                 {"GPTNeoXTokenizer", TokenizerClass::kGptNeoX},
                                 {"CohereTokenizer", TokenizerClass::kCohere},
                                 {"Qwen2Tokenizer", TokenizerClass::kQwen2},
                                 {"Qwen3_5Tokenizer", TokenizerClass::kQwen35},
                                 {"LlamaTokenizer", TokenizerClass::kLlama},
                                 {"Phi3Tokenizer", TokenizerClass::kLlama},
                                 {"GemmaTokenizer", TokenizerClass::kGemma},
                                 {"DebertaTokenizer", TokenizerClass::kDeberta, true},
                                 {"DebertaV2Tokenizer", TokenizerClass::kDebertaV2, true},
                                 {"BloomTokenizer", TokenizerClass::kOther},
                                 {"ParakeetTokenizer", TokenizerClass::kOther},
                                 {"PreTrainedTokenizer", TokenizerClass::kOther},
                                 {kBackend, TokenizerClass::kOther}};

// Classes that build pipelines which are not among those of TokenizerClass, or that read other
// files than tokenizer.json.
constexpr std::string_view kUnsupported =
    "AlbertTokenizer BarthezTokenizer BartphoTokenizer BertGenerationTokenizer "
    "BertJapaneseTokenizer BertTokenizerLegacy BertweetTokenizer BioGptTokenizer "
    "BlenderbotSmallTokenizer BlenderbotTokenizer ByT5Tokenizer CLIPTokenizer CTRLTokenizer "
    "CamembertTokenizer CanineTokenizer ClvpTokenizer CodeLlamaTokenizer ConvBertTokenizer "
    "CpmAntTokenizer CpmTokenizer DPRReaderTokenizer DiaTokenizer EsmTokenizer EsmcTokenizer "
    "FNetTokenizer FSMTTokenizer FastSpeech2ConformerTokenizer FlaubertTokenizer FunnelTokenizer "
    "GPTNeoXJapaneseTokenizer GPTSw3Tokenizer HerbertTokenizer LasrTokenizer LayoutLMv2Tokenizer "
    "LayoutLMv3Tokenizer LayoutXLMTokenizer LukeTokenizer M2M100Tokenizer MBart50Tokenizer "
    "MBartTokenizer MLukeTokenizer MarianTokenizer MarkupLMTokenizer MgpstrTokenizer "
    "MistralCommonBackend MyT5Tokenizer NllbTokenizer NougatTokenizer OpenAIGPTTokenizer "
    "PLBartTokenizer PegasusTokenizer PerceiverTokenizer PhobertTokenizer Pop2PianoTokenizer "
    "ProphetNetTokenizer RagTokenizer ReformerTokenizer RemBertTokenizer RoCBertTokenizer "
    "RoFormerTokenizer SeamlessM4TTokenizer SentencePieceBackend Siglip2Tokenizer SiglipTokenizer "
    "Speech2TextTokenizer SpeechT5Tokenizer SplinterTokenizer T5Tokenizer TapasTokenizer "
    "Tipsv2Tokenizer UdopTokenizer VideoPrismTokenizer VitsTokenizer Wav2Vec2CTCTokenizer "
    "Wav2Vec2PhonemeCTCTokenizer WhisperTokenizer XGLMTokenizer XLMTokenizer XLNetTokenizer";

// transformers' TOKENIZER_MAPPING_NAMES: a class and its model types, without the supported
// families (base/model_families.def) and without types for which transformers has neither a
// configuration nor an entry in MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS: it ignores their class.
constexpr std::pair<std::string_view, std::string_view> kRegistered[] = {
    {"AlbertTokenizer", "albert yoso"},
    {"BartTokenizer", "florence2"},
    {"BertGenerationTokenizer", "bert-generation"},
    {"BertTokenizer",
     "align bark blip bros chinese_clip convbert distilbert electra ernie flava git "
     "grounding-dino layoutlm megatron-bert mm-grounding-dino nomic_bert squeezebert tvp vilt "
     "visual_bert"},
    {"BioGptTokenizer", "biogpt"},
    {"BlenderbotSmallTokenizer", "blenderbot-small"},
    {"BlenderbotTokenizer", "blenderbot"},
    {"CLIPTokenizer",
     "aimv2 clip clipseg groupvit omdet-turbo oneformer owlv2 owlvit sam3 sam3_video xclip"},
    {"CTRLTokenizer", "ctrl"},
    {"CamembertTokenizer", "camembert"},
    {"CanineTokenizer", "canine"},
    {"ClvpTokenizer", "clvp"},
    {"CohereTokenizer", "aya_vision cohere cohere2"},
    {"CpmAntTokenizer", "cpmant"},
    {"DPRQuestionEncoderTokenizer", "dpr"},
    {"DebertaTokenizer", "deberta"},
    {"DiaTokenizer", "dia"},
    {"EsmTokenizer", "esm"},
    {"EsmcTokenizer", "esmc esmfold2"},
    {"FNetTokenizer", "fnet"},
    {"FSMTTokenizer", "fsmt"},
    {"FastSpeech2ConformerTokenizer", "fastspeech2_conformer"},
    {"FlaubertTokenizer", "flaubert"},
    {"FunnelTokenizer", "funnel"},
    {"GPT2Tokenizer",
     "blip-2 codegen dbrx emu3 gpt_neo gptj hyperclovax_vision_v2 instructblip "
     "instructblipvideo jais2 opt phi starcoder2"},
    {"GPTNeoXJapaneseTokenizer", "gpt_neox_japanese"},
    {"GPTNeoXTokenizer", "falcon_mamba gpt_neox mamba mamba2 mpt olmo olmoe rwkv xlstm"},
    {"GPTSw3Tokenizer", "gpt-sw3"},
    {"GemmaTokenizer",
     "diffusion_gemma gemma3 gemma3n gemma3n_text recurrent_gemma shieldgemma2 t5gemma zaya"},
    {"LEDTokenizer", "led"},
    {"LasrTokenizer", "lasr_ctc lasr_encoder"},
    {"LayoutLMv2Tokenizer", "layoutlmv2"},
    {"LayoutLMv3Tokenizer", "layoutlmv3"},
    {"LayoutXLMTokenizer", "layoutxlm"},
    {"LlamaTokenizer", "idefics idefics2"},
    {"LukeTokenizer", "luke"},
    {"LxmertTokenizer", "lxmert"},
    {"M2M100Tokenizer", "m2m_100"},
    {"MBartTokenizer", "mbart"},
    {"MPNetTokenizer", "mpnet"},
    {"MarianTokenizer", "marian"},
    {"MarkupLMTokenizer", "markuplm"},
    {"MgpstrTokenizer", "mgp-str"},
    {"MobileBertTokenizer", "mobilebert"},
    {"MvpTokenizer", "mvp"},
    {"NllbTokenizer", "nllb-moe"},
    {"NougatTokenizer", "nougat pp_formulanet"},
    {"OpenAIGPTTokenizer", "openai-gpt"},
    {"PLBartTokenizer", "plbart"},
    {"ParakeetTokenizer",
     "granite_speech5_ctc nemotron3_5_asr nemotron_asr_streaming parakeet_ctc parakeet_rnnt "
     "parakeet_tdt"},
    {"PegasusTokenizer", "pegasus"},
    {"PerceiverTokenizer", "perceiver"},
    {"ProphetNetTokenizer", "prophetnet"},
    {"Qwen2Tokenizer",
     "audioflamingo3 colqwen2 cosmos3_omni dots3_note fun_asr_nano hunyuan_vl internvl "
     "lighton_ocr moss_transcribe_diarize ovis2 qianfan_ocr qwen2_5_omni qwen2_5_vl "
     "qwen2_audio qwen2_moe qwen2_vl qwen3_asr qwen3_moe qwen3_next qwen3_omni_moe qwen3_vl "
     "qwen3_vl_moe vibevoice"},
    {"Qwen3_5Tokenizer", "qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen4_exp"},
    {"RagTokenizer", "rag"},
    {"ReformerTokenizer", "reformer"},
    {"RemBertTokenizer", "rembert"},
    {"RoCBertTokenizer", "roc_bert"},
    {"RoFormerTokenizer", "roformer"},
    {"RobertaTokenizer",
     "bart bridgetower clap data2vec-text ibert lilt longformer mra roberta-prelayernorm"},
    {"SeamlessM4TTokenizer", "seamless_m4t seamless_m4t_v2"},
    {"Siglip2Tokenizer", "siglip2"},
    {"SiglipTokenizer", "siglip"},
    {"Speech2TextTokenizer", "speech_to_text"},
    {"SpeechT5Tokenizer", "speecht5"},
    {"SplinterTokenizer", "splinter"},
    {"T5Tokenizer", "mt5 musicgen musicgen_melody switch_transformers t5"},
    {"TapasTokenizer", "tapas"},
    {"Tipsv2Tokenizer", "tipsv2"},
    {"TokenizersBackend",
     "EvollaModel arctic aria beam bigbird_pegasus camembertv2-base canary chatlm cohere_asr "
     "ernie4_5 ernie4_5_moe flex_olmo fuyu glm glm4 glm4_moe glm4_moe_lite glm4v glm4v_moe "
     "glm_image glmasr got_ocr2 gpt_bigcode gradium_phonon_tts granite granitemoe "
     "granitemoehybrid granitemoeshared h2ovl_chat hyperclovax hyperclovax_vlm internlm2 "
     "internlm3 iquestcoder jamba kimi_k25 kimi_linear kosmos-2 llava llava_next mimo_v2_flash "
     "minicpm3 minicpm_ocr minicpmv minicpmv4_6 minicpmv4_7 minimax_m2 ministral ministral3 "
     "mistral3 mistral_large4 mixtral modernbert-decoder molmo molmo2 nemo_speechlm nemotron "
     "nvfp4 nystromformer olmo3 olmo_hybrid opencua openvla paddleocr_vl pegasus_x persimmon "
     "phi3_v phimoe pix2struct pixtral pocket_tts smolvlm stablelm step3_vl umt5 vipllava "
     "voxtral voxtral_realtime xlm-roberta-xl"},
    {"UdopTokenizer", "udop"},
    {"VideoPrismTokenizer", "videoprism"},
    {"VitsTokenizer", "vits"},
    {"Wav2Vec2CTCTokenizer",
     "data2vec-audio hubert unispeech unispeech-sat wav2vec2 wav2vec2-bert wav2vec2-conformer"},
    {"WhisperTokenizer", "whisper"},
    {"XGLMTokenizer", "xglm"},
    {"XLMRobertaTokenizer", "gte jina_embeddings_v3 metaclip_2 trocr xmod"},
    {"XLMTokenizer", "xlm"},
    {"XLNetTokenizer", "xlnet"}};

// The types of MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS with another class than kBackend: the
// registered class overrides a folder's.
constexpr std::string_view kOverriding =
    "hyperclovax_vision_v2 qwen2 qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen4_exp siglip2";

bool has_word(std::string_view words, std::string_view word) {
  for (size_t at = words.find(word); at != std::string_view::npos; at = words.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' ')) {
      return !word.empty();
    }
  }
  return false;
}

const ClassRow* find_row(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kClasses), std::end(kClasses),
                                         [&](const ClassRow& row) { return row.name == name; });
  return found == std::end(kClasses) ? nullptr : found;
}

}  // namespace

TokenizerClass class_named(std::string_view name) {
  const ClassRow* row = find_row(name);
  return row == nullptr ? TokenizerClass::kOther : row->which;
}

std::string class_model(TokenizerClass which) {
  switch (which) {
    case TokenizerClass::kOther:
      break;
    case TokenizerClass::kBert:
    case TokenizerClass::kMpnet:
      return "WordPiece";
    case TokenizerClass::kXlmRoberta:
    case TokenizerClass::kBigBird:
    case TokenizerClass::kDebertaV2:
      return "Unigram";
    case TokenizerClass::kRoberta:
    case TokenizerClass::kGpt2:
    case TokenizerClass::kGptNeoX:
    case TokenizerClass::kCohere:
    case TokenizerClass::kQwen2:
    case TokenizerClass::kQwen35:
    case TokenizerClass::kLlama:
    case TokenizerClass::kGemma:
    case TokenizerClass::kDeberta:
      return "BPE";
  }
  return "";
}

bool is_unsupported_class(std::string_view name) { return has_word(kUnsupported, name); }

bool has_token_types(std::string_view name) {
  const ClassRow* row = find_row(name);
  // Without a class the tokenizers package is used directly, and it returns token types.
  return name.empty() || (row != nullptr && row->token_types);
}

std::string registered_class(std::string_view model_type) {
  for (const auto& [name, types] : kRegistered) {
    if (has_word(types, model_type)) return std::string(name);
  }
  return tokenizer_class_of(model_type);
}

std::string resolve_class(const ClassSources& sources) {
  const std::string& named = sources.named;
  const std::string registered = registered_class(sources.model_type);
  if (named.empty()) return registered;
  if (sources.custom_code) return named;
  const bool overriding = has_word(kOverriding, sources.model_type);
  if (named == "LlamaTokenizer" && sources.byte_level && !overriding) return std::string(kBackend);
  if (registered == kBackend) return registered;
  return overriding ? registered : named;
}

bool needs_custom_code(const ClassSources& sources) {
  return sources.custom_code && registered_class(sources.model_type).empty() &&
         find_row(sources.named) == nullptr && !is_unsupported_class(sources.named);
}

}  // namespace finetune::tokenizer
