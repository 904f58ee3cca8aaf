// SPDX-License-Identifier: MIT
#include "tensor/pickle_reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/utf8.h"

namespace finetune::pickle {
namespace {

constexpr size_t kMaxNodes = 1'000'000;
constexpr uint64_t kMaxTreeWeight = 4'000'000;
constexpr int kMaxDepth = 64;
constexpr size_t kMaxDimensions = 8;
constexpr uint64_t kMaxRepeatedElements = uint64_t{1} << 24;

constexpr char kOrderedDict[] = "collections.OrderedDict";
constexpr char kRebuildTensor[] = "torch._utils._rebuild_tensor_v2";
constexpr char kRebuildParameter[] = "torch._utils._rebuild_parameter";
constexpr char kRebuildAttributes[] = "torch._utils._rebuild_parameter_with_state";
constexpr char kSize[] = "torch.Size";

struct StorageType {
  const char* global;
  DType dtype;
};
constexpr std::array<StorageType, 10> kStorageTypes = {{{"torch.FloatStorage", DType::kF32},
                                                        {"torch.DoubleStorage", DType::kF64},
                                                        {"torch.HalfStorage", DType::kF16},
                                                        {"torch.BFloat16Storage", DType::kBF16},
                                                        {"torch.LongStorage", DType::kI64},
                                                        {"torch.IntStorage", DType::kI32},
                                                        {"torch.ShortStorage", DType::kI16},
                                                        {"torch.CharStorage", DType::kI8},
                                                        {"torch.ByteStorage", DType::kU8},
                                                        {"torch.BoolStorage", DType::kBool}}};

std::optional<DType> storage_dtype(const std::string& global) {
  for (const StorageType& type : kStorageTypes) {
    if (global == type.global) return type.dtype;
  }
  return std::nullopt;
}

// The stack machine of Python's pickle, protocol 2, with the opcodes that torch.save emits.
class Machine {
 public:
  enum class Dialect { kZip, kLegacy };

  Machine(std::string_view bytes, const std::string& path, Dialect dialect)
      : bytes_(bytes), path_(path), dialect_(dialect) {}

  // Returns the pickle and its size in bytes.
  std::pair<Pickle, size_t> run() {
    while (!stopped_) step();
    if (stack_.size() != 1 || !marks_.empty()) fail("its pickle leaves something on the stack");
    pickle_.root = stack_.back();
    return {std::move(pickle_), position_};
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw Error(ErrorKind::kData, "'" + path_ + "' is not a usable file of torch.save: " + reason +
                                      "; only tensors and plain containers are read, nothing is "
                                      "executed");
  }

  // --- Input ---
  std::string_view take(size_t count) {
    if (count > bytes_.size() - position_) fail("its pickle is truncated");
    const std::string_view field = bytes_.substr(position_, count);
    position_ += count;
    return field;
  }
  uint64_t little_endian(size_t count) {
    const std::string_view field = take(count);
    uint64_t value = 0;
    for (size_t i = count; i-- > 0;) value = value << 8 | static_cast<unsigned char>(field[i]);
    return value;
  }
  std::string line() {
    const size_t end = bytes_.find('\n', position_);
    if (end == std::string_view::npos || end - position_ > 256) fail("its pickle is truncated");
    const std::string text(take(end - position_));
    ++position_;
    return text;
  }

  // --- Stack ---
  Node& node(uint32_t index) { return pickle_.nodes[index]; }
  uint32_t make(Kind kind) {
    if (pickle_.nodes.size() == kMaxNodes) fail("its pickle has more than a million values");
    pickle_.nodes.emplace_back();
    pickle_.nodes.back().kind = kind;
    return static_cast<uint32_t>(pickle_.nodes.size() - 1);
  }
  Node& push(Kind kind) {
    stack_.push_back(make(kind));
    return pickle_.nodes.back();
  }
  void push_int(int64_t value) { push(Kind::kInt).integer = value; }
  [[nodiscard]] size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  uint32_t pop() {
    if (stack_.size() <= floor()) fail("its pickle takes from an empty stack");
    const uint32_t index = stack_.back();
    stack_.pop_back();
    return index;
  }
  uint32_t top() {
    if (stack_.size() <= floor()) fail("its pickle takes from an empty stack");
    return stack_.back();
  }
  std::vector<uint32_t> pop_to_mark() {
    if (marks_.empty()) fail("its pickle lacks a mark");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<uint32_t> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }
  void push_tuple(std::vector<uint32_t> items) { push(Kind::kTuple).children = std::move(items); }
  void extend(Kind kind, const std::vector<uint32_t>& items) {
    Node& container = node(top());
    if (container.kind != kind) fail("its pickle fills something that is no such container");
    if (kind == Kind::kDict && items.size() % 2 != 0) fail("its pickle has a key without a value");
    container.children.insert(container.children.end(), items.begin(), items.end());
  }

  void step() {
    const char opcode = take(1)[0];
    switch (opcode) {
      case '\x80':  // PROTO
        if (little_endian(1) != 2) fail("its pickle has another protocol than 2");
        break;
      case '.':  // STOP
        stopped_ = true;
        break;
      case '(':  // MARK
        marks_.push_back(stack_.size());
        break;
      case 'N':
        push(Kind::kNone);
        break;
      case '\x88':  // NEWTRUE
      case '\x89':  // NEWFALSE
        push(Kind::kBool).integer = opcode == '\x88' ? 1 : 0;
        break;
      case 'K':  // BININT1
        push_int(static_cast<int64_t>(little_endian(1)));
        break;
      case 'M':  // BININT2
        push_int(static_cast<int64_t>(little_endian(2)));
        break;
      case 'J':  // BININT
        push_int(static_cast<int32_t>(static_cast<uint32_t>(little_endian(4))));
        break;
      case '\x8a':  // LONG1
        push_int(long_integer());
        break;
      case 'G':  // BINFLOAT, big-endian
        push(Kind::kDouble).real = std::bit_cast<double>(__builtin_bswap64(little_endian(8)));
        break;
      case 'X':  // BINUNICODE
      case 'T':  // BINSTRING and SHORT_BINSTRING: text of Python 2
        string(little_endian(4));
        break;
      case 'U':
        string(little_endian(1));
        break;
      case 'c':  // GLOBAL
        global();
        break;
      default:
        container_step(opcode);
    }
  }

  void container_step(char opcode) {
    switch (opcode) {
      case '}':  // EMPTY_DICT
        push(Kind::kDict);
        break;
      case ']':  // EMPTY_LIST
        push(Kind::kList);
        break;
      case ')':  // EMPTY_TUPLE
        push(Kind::kTuple);
        break;
      case '\x85':  // TUPLE1, TUPLE2, TUPLE3
      case '\x86':
      case '\x87':
        small_tuple(static_cast<size_t>(opcode - '\x85') + 1);
        break;
      case 't':  // TUPLE
        push_tuple(pop_to_mark());
        break;
      case 'a':  // APPEND
        extend(Kind::kList, {pop()});
        break;
      case 'e':  // APPENDS
        extend(Kind::kList, pop_to_mark());
        break;
      case 's': {  // SETITEM
        const uint32_t value = pop();
        const uint32_t key = pop();
        extend(Kind::kDict, {key, value});
        break;
      }
      case 'u':  // SETITEMS
        extend(Kind::kDict, pop_to_mark());
        break;
      default:
        object_step(opcode);
    }
  }

  void object_step(char opcode) {
    switch (opcode) {
      case 'q':  // BINPUT
        put(static_cast<uint32_t>(little_endian(1)));
        break;
      case 'r':  // LONG_BINPUT
        put(static_cast<uint32_t>(little_endian(4)));
        break;
      case 'h':  // BINGET
        get(static_cast<uint32_t>(little_endian(1)));
        break;
      case 'j':  // LONG_BINGET
        get(static_cast<uint32_t>(little_endian(4)));
        break;
      case 'Q':  // BINPERSID
        persistent();
        break;
      case 'R':  // REDUCE
        reduce();
        break;
      case 'b':  // BUILD: attributes of an OrderedDict, such as a module's _metadata
        pop();
        if (node(top()).kind != Kind::kDict) fail("its pickle holds an object of some class");
        break;
      default:
        fail("its pickle holds what is neither a tensor nor a plain container (opcode " +
             std::to_string(static_cast<unsigned char>(opcode)) + ")");
    }
  }

  int64_t long_integer() {
    const size_t count = little_endian(1);
    if (count > 8) fail("an integer does not fit into 64 bits");
    if (count == 0) return 0;
    const unsigned unused = static_cast<unsigned>(64 - 8 * count);
    return static_cast<int64_t>(little_endian(count) << unused) >> unused;
  }

  void string(size_t size) {
    const std::string_view text = take(size);
    if (utf8::find_invalid(text) != std::string_view::npos) fail("a string is not UTF-8");
    push(Kind::kString).text = std::string(text);
  }

  void global() {
    const std::string module = line();
    const std::string name = module + "." + line();
    if (name != kOrderedDict && name != kRebuildTensor && name != kRebuildParameter &&
        name != kRebuildAttributes && name != kSize && !storage_dtype(name)) {
      std::string shown = name;
      std::replace_if(
          shown.begin(), shown.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
      fail("its pickle refers to '" + shown + "'");
    }
    push(Kind::kGlobal).text = name;
  }

  void small_tuple(size_t count) {
    std::vector<uint32_t> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    push_tuple(std::move(items));
  }

  void put(uint32_t key) {
    if (memo_.size() == kMaxNodes) fail("its pickle has more than a million values");
    memo_[key] = top();
  }

  void get(uint32_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) fail("its pickle refers to a value that is not there");
    stack_.push_back(found->second);
  }

  // Reads ('storage', torch.FloatStorage, '0', 'cpu', 6). In the old format this is followed by a
  // view of another storage, which torch has not written since 0.4.
  void persistent() {
    const Node& id = node(pop());
    const bool legacy = dialect_ == Dialect::kLegacy;
    if (id.kind != Kind::kTuple || id.children.size() != (legacy ? 6 : 5) ||
        (legacy && node(id.children[5]).kind != Kind::kNone)) {
      fail("a storage is not described as torch does");
    }
    const Node& tag = node(id.children[0]);
    const Node& type = node(id.children[1]);
    const Node& key = node(id.children[2]);
    const Node& location = node(id.children[3]);
    const Node& elements = node(id.children[4]);
    const std::optional<DType> dtype =
        type.kind == Kind::kGlobal ? storage_dtype(type.text) : std::nullopt;
    const bool digits = !key.text.empty() && key.text.size() <= (legacy ? 20 : 9) &&
                        key.text.find_first_not_of("0123456789") == std::string::npos;
    if (tag.text != "storage" || !dtype || key.kind != Kind::kString || !digits ||
        location.kind != Kind::kString || elements.kind != Kind::kInt || elements.integer < 0) {
      fail("a storage is not described as torch does");
    }
    const Storage storage{
        .key = key.text, .dtype = *dtype, .elements = static_cast<uint64_t>(elements.integer)};
    const auto [found, is_new] = storage_of_key_.emplace(storage.key, pickle_.storages.size());
    if (is_new) {
      pickle_.storages.push_back(storage);
    } else if (const Storage& first = pickle_.storages[found->second];
               first.dtype != storage.dtype || first.elements != storage.elements) {
      fail("a storage is described in two ways");
    }
    push(Kind::kStorage).integer = static_cast<int64_t>(found->second);
  }

  void reduce() {
    const Node& arguments = node(pop());
    const Node& callable = node(pop());
    if (arguments.kind != Kind::kTuple || callable.kind != Kind::kGlobal) {
      fail("its pickle calls something");
    }
    if (callable.text == kOrderedDict && arguments.children.empty()) {
      push(Kind::kDict);
    } else if (callable.text == kSize && arguments.children.size() == 1 &&
               node(arguments.children[0]).kind == Kind::kTuple) {
      stack_.push_back(arguments.children[0]);
    } else if ((callable.text == kRebuildParameter || callable.text == kRebuildAttributes) &&
               !arguments.children.empty() && node(arguments.children[0]).kind == Kind::kTensor) {
      stack_.push_back(arguments.children[0]);
    } else if (callable.text == kRebuildTensor) {
      rebuild_tensor(arguments.children);
    } else {
      fail("its pickle calls '" + callable.text + "' in another way than torch does");
    }
  }

  // Reads (storage, offset, size, stride, requires_grad, backward_hooks[, metadata]).
  void rebuild_tensor(const std::vector<uint32_t>& arguments) {
    if (arguments.size() < 6 || arguments.size() > 7 || node(arguments[0]).kind != Kind::kStorage ||
        node(arguments[1]).kind != Kind::kInt) {
      fail("a tensor is not described as torch does");
    }
    TensorView view;
    view.storage = static_cast<size_t>(node(arguments[0]).integer);
    view.offset = node(arguments[1]).integer;
    view.sizes = integers(node(arguments[2]));
    view.strides = integers(node(arguments[3]));
    check_bounds(view);
    pickle_.tensors.push_back(std::move(view));
    push(Kind::kTensor).integer = static_cast<int64_t>(pickle_.tensors.size() - 1);
  }

  std::vector<int64_t> integers(const Node& tuple) {
    if (tuple.kind != Kind::kTuple || tuple.children.size() > kMaxDimensions) {
      fail("a tensor's shape is not a tuple of at most 8 numbers");
    }
    std::vector<int64_t> values;
    for (const uint32_t child : tuple.children) {
      if (node(child).kind != Kind::kInt || node(child).integer < 0) {
        fail("a tensor's shape holds something else than sizes");
      }
      values.push_back(node(child).integer);
    }
    return values;
  }

  void check_bounds(const TensorView& view) const {
    if (view.sizes.size() != view.strides.size()) fail("a tensor has more sizes than strides");
    const uint64_t elements = pickle_.storages[view.storage].elements;
    uint64_t count = 1;
    uint64_t last = static_cast<uint64_t>(view.offset);
    bool overflow = view.offset < 0;
    const bool empty = std::count(view.sizes.begin(), view.sizes.end(), 0) > 0;
    for (size_t i = 0; i < view.sizes.size(); ++i) {
      const auto size = static_cast<uint64_t>(view.sizes[i]);
      uint64_t reach = 0;
      // For an empty tensor, the product of the other sizes must not overflow either.
      overflow |= size > 0 && __builtin_mul_overflow(count, size, &count);
      overflow |= count > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
      if (empty) continue;
      overflow |= __builtin_mul_overflow(size - 1, static_cast<uint64_t>(view.strides[i]), &reach);
      overflow |= __builtin_add_overflow(last, reach, &last);
    }
    if (empty) count = 0;
    const bool repeats = std::count(view.strides.begin(), view.strides.end(), 0) > 0;
    if (repeats && count <= kMaxRepeatedElements) count = std::min(count, elements);
    if (overflow || count > elements || (empty ? last > elements : last >= elements)) {
      fail("a tensor reaches beyond its storage");
    }
  }

  std::string_view bytes_;
  const std::string& path_;
  Dialect dialect_;
  size_t position_ = 0;
  bool stopped_ = false;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint32_t, uint32_t> memo_;
  std::map<std::string, size_t> storage_of_key_;
  Pickle pickle_;
};

// Checks that the value is a small tree, because references make a pickle a graph. The size of each
// subtree is computed once, so that a graph that unfolds to billions of values is rejected cheaply.
class TreeCheck {
 public:
  TreeCheck(const Pickle& pickle, const std::string& path)
      : pickle_(pickle), path_(path), weight_(pickle.nodes.size()), height_(pickle.nodes.size()) {}

  void run() { visit(pickle_.root, 1); }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw Error(ErrorKind::kData, "'" + path_ + "' is not a usable file of torch.save: " + reason);
  }

  void visit(uint32_t index, int depth) {
    if (depth + height_[index] > kMaxDepth) fail("its values are nested more than 64 deep");
    if (weight_[index] > 0) return;
    const Node& node = pickle_.nodes[index];
    if (node.kind == Kind::kGlobal || node.kind == Kind::kStorage) fail("it holds a bare class");
    if (node.kind == Kind::kDict) check_keys(node);
    uint64_t weight = 1 + node.text.size() / 32;
    int height = 0;
    for (const uint32_t child : node.children) {
      visit(child, depth + 1);  // a cycle ends at the depth limit
      weight += weight_[child];
      height = std::max(height, height_[child] + 1);
      if (weight > kMaxTreeWeight) fail("its values unfold to more than four million");
    }
    weight_[index] = weight;
    height_[index] = height;
  }

  void check_keys(const Node& dict) const {
    std::unordered_set<std::string> keys;
    for (size_t i = 0; i < dict.children.size(); i += 2) {
      const Node& key = pickle_.nodes[dict.children[i]];
      if (key.kind != Kind::kInt && key.kind != Kind::kString) {
        fail("a dictionary has a key that is neither an integer nor a string");
      }
      std::string text(1, key.kind == Kind::kInt ? 'i' : 's');
      text += key.kind == Kind::kInt ? std::to_string(key.integer) : key.text;
      if (!keys.insert(std::move(text)).second) fail("a dictionary has a key twice");
    }
  }

  const Pickle& pickle_;
  const std::string& path_;
  std::vector<uint64_t> weight_;  // 0: not yet visited
  std::vector<int> height_;
};

}  // namespace

Pickle parse(std::string_view bytes, const std::string& path) {
  auto [pickle, size] = Machine(bytes, path, Machine::Dialect::kZip).run();
  if (size != bytes.size()) {
    throw Error(ErrorKind::kData, "'" + path +
                                      "' is not a usable file of torch.save: something follows its "
                                      "pickle");
  }
  TreeCheck(pickle, path).run();
  return std::move(pickle);
}

Pickle parse_legacy(std::string_view& bytes, const std::string& path) {
  auto [pickle, size] = Machine(bytes, path, Machine::Dialect::kLegacy).run();
  bytes.remove_prefix(size);
  TreeCheck(pickle, path).run();
  return std::move(pickle);
}

}  // namespace finetune::pickle
