// SPDX-License-Identifier: MIT
#include "tokenizer/models/char_trie.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <tuple>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/base/utf8.h"

namespace finetune::tokenizer {
namespace {

constexpr uint32_t kRoot = 0;
constexpr char32_t kNoCharacter = std::numeric_limits<char32_t>::max();

}  // namespace

struct CharTrie::Edge {
  uint32_t parent = kRoot;
  char32_t character = kNoCharacter;
  uint32_t node = kRoot;  // the next node; kRoot if no longer string continues here
  int32_t value = -1;
};

// All edges while strings are added: a hash table.
class CharTrie::Edges {
 public:
  // Returns false if there is no room.
  [[nodiscard]] bool add(std::string_view string, int32_t value, size_t most) {
    uint32_t node = kRoot;
    for (size_t at = 0; at < string.size();) {
      const char32_t character = utf8::decode(string, at);
      size_t position = position_of(node, character);
      if (table_[position].character == kNoCharacter) {
        if (count_ == most) return false;
        position = insert(node, character);
      }
      Edge& edge = table_[position];
      if (at == string.size()) {
        edge.value = value;
      } else {
        if (edge.node == kRoot) edge.node = ++nodes_;
        node = edge.node;
      }
    }
    return true;
  }

  // Returns the edges sorted by parent, and sets `begins` to where those of each node begin.
  [[nodiscard]] std::vector<Edge> sorted(std::vector<uint32_t>& begins) const {
    begins.assign(nodes_ + 2, 0);
    for (const Edge& edge : table_) {
      if (edge.character != kNoCharacter) ++begins[edge.parent + 1];
    }
    for (size_t i = 1; i < begins.size(); ++i) begins[i] += begins[i - 1];
    std::vector<uint32_t> next = begins;
    std::vector<Edge> edges(count_);
    for (const Edge& edge : table_) {
      if (edge.character != kNoCharacter) edges[next[edge.parent]++] = edge;
    }
    return edges;
  }

 private:
  // Returns where the edge is, or else would be.
  [[nodiscard]] size_t position_of(uint32_t node, char32_t character) const {
    const uint64_t key = uint64_t{node} << 21 ^ character;
    auto i = static_cast<size_t>(key * 0x9E3779B97F4A7C15u >> shift_);
    while (table_[i].character != kNoCharacter &&
           (table_[i].character != character || table_[i].parent != node)) {
      i = (i + 1) & (table_.size() - 1);
    }
    return i;
  }
  size_t insert(uint32_t node, char32_t character) {
    if (4 * (count_ + 1) > 3 * table_.size()) grow();
    const size_t position = position_of(node, character);
    ++count_;
    table_[position] = {.parent = node, .character = character};
    return position;
  }
  void grow() {
    std::vector<Edge> old = std::move(table_);
    table_.assign(old.size() * 2, {});
    --shift_;
    for (const Edge& edge : old) {
      if (edge.character != kNoCharacter) table_[position_of(edge.parent, edge.character)] = edge;
    }
  }

  std::vector<Edge> table_ = std::vector<Edge>(16);  // open addressing, at least a quarter empty
  int shift_ = 64 - std::countr_zero(size_t{16});
  size_t count_ = 0;
  uint32_t nodes_ = 0;  // without the root
};

CharTrie::CharTrie(std::span<const std::pair<std::string_view, int32_t>> strings,
                   const std::string& where, size_t most) {
  Edges table;
  for (const auto& [string, value] : strings) {
    if (utf8::find_invalid(string) != std::string_view::npos || table.add(string, value, most)) {
      continue;
    }
    throw Error(ErrorKind::kData,
                format_text("{}: the tokens have more than {} characters, prefixes that they share "
                            "counted once, which no vocabulary of words needs; choose another "
                            "tokenizer, or train one with a smaller vocab_size",
                            where, most));
  }
  std::vector<uint32_t> begins;
  std::vector<Edge> edges = table.sorted(begins);
  table = {};
  // A node has a higher number than its parent, so its own step is there when its children are
  // appended. Nothing moves it then, because there is room for all.
  std::vector<uint32_t> positions(begins.size() - 1);  // of each node's own step
  steps_.reserve(edges.size() + 1);
  for (uint32_t node = 0; node < positions.size(); ++node) {
    const std::span<Edge> children(edges.data() + begins[node], edges.data() + begins[node + 1]);
    append_children(children, node == kRoot ? root_ : steps_[positions[node]]);
    for (size_t i = 0; i < children.size(); ++i) {
      const auto position = static_cast<uint32_t>(steps_.size() - children.size() + i);
      const Edge& edge = children[i];
      if (edge.node != kRoot) positions[edge.node] = position;
      if (node != kRoot || edge.character >= kFirstEnd) continue;
      if (edge.character >= first_.size()) first_.resize(edge.character + 1);
      first_[edge.character] = position;
    }
  }
}

// First one child for each bit in the order of the bits, then the others.
void CharTrie::append_children(std::span<Edge> edges, Step& parent) {
  const auto bits_of = [](const Edge& edge) { return edge.character & 63; };
  std::ranges::sort(edges, {},
                    [&](const Edge& edge) { return std::tuple(bits_of(edge), edge.character); });
  // Then each repeated bit in the same order.
  const auto repeats = [&](size_t i) {
    return i > 0 && bits_of(edges[i]) == bits_of(edges[i - 1]);
  };
  std::vector<Edge> ordered;
  ordered.reserve(edges.size());
  for (const bool wanted : {false, true}) {
    for (size_t i = 0; i < edges.size(); ++i) {
      if (repeats(i) == wanted) ordered.push_back(edges[i]);
    }
  }
  std::ranges::copy(ordered, edges.begin());
  parent.children = static_cast<uint32_t>(steps_.size());
  std::array<uint32_t, 64> last{};  // the last step with these bits
  for (const Edge& edge : edges) {
    const auto position = static_cast<uint32_t>(steps_.size());
    uint32_t& before = last[bits_of(edge)];
    if (before != 0) steps_[before].same_bits = position;
    before = position;
    parent.continuing |= uint64_t{1} << bits_of(edge);
    steps_.push_back({.character = edge.character, .value = edge.value});
  }
}

}  // namespace finetune::tokenizer
