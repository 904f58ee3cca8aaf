// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace finetune::tokenizer {

// One step of a decoder: changes tokens on their way to a text.
class Decoding {
 public:
  virtual ~Decoding() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

// The `decoder` of tokenizer.json: BPEDecoder, ByteFallback, ByteLevel, Fuse, Metaspace, Replace,
// Strip, WordPiece and Sequences of them.
class Decoder {
 public:
  Decoder() = default;  // puts a space between tokens
  // Throws Error(kData) that names what is not supported; `where` starts its message.
  Decoder(const nlohmann::ordered_json& json, const std::string& where);

  // Well-formed UTF-8 where the tokens are.
  [[nodiscard]] std::string operator()(std::vector<std::string> tokens) const;

 private:
  void add(const nlohmann::ordered_json& json, const std::string& where);

  std::vector<std::shared_ptr<const Decoding>> steps_;
  bool given_ = false;
};

}  // namespace finetune::tokenizer
