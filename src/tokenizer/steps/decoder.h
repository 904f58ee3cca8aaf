// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace finetune::tokenizer {

// One step of a decoder: modifies tokens before they are joined to text.
class Decoding {
 public:
  virtual ~Decoding() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

// The `decoder` of tokenizer.json: BPEDecoder, ByteFallback, ByteLevel, Fuse, Metaspace, Replace,
// Strip, WordPiece and Sequences of them.
class Decoder {
 public:
  Decoder() = default;  // joins tokens with spaces
  // Throws Error(kData) naming unsupported parts; `where` is the prefix of its message.
  Decoder(const nlohmann::ordered_json& json, const std::string& where);

  // The result is well-formed UTF-8 if the tokens are.
  [[nodiscard]] std::string operator()(std::vector<std::string> tokens) const;

 private:
  void add(const nlohmann::ordered_json& json, const std::string& where);

  std::vector<std::shared_ptr<const Decoding>> steps_;
  bool given_ = false;
};

}  // namespace finetune::tokenizer
