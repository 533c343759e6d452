#include "pickle/pickle.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "pickle/globals.h"

namespace piton {
namespace {

using Kind = PickleValue::Kind;

// Limit for all values together: 10,000 tensors take 100 MB.
constexpr std::size_t kMostMemory = std::size_t{1} << 30;

// Of one remembered value: a node of the map, and its share of the buckets.
constexpr std::size_t kMemoBytes = 48;

constexpr std::size_t kMostDims = 64;

// The stack machine (CPython's Lib/pickle.py names the instructions).
class Machine {
 public:
  Machine(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  PickleDocument run(std::size_t* end) {
    while (!done_) {
      at_instruction_ = at_;
      step(static_cast<unsigned char>(take(1)[0]));
    }
    if (stack_.size() != 1 || stack_[0]->kind == Kind::kMark) refuse("it ends without one value");
    document_.set_root(*stack_.back());
    if (end != nullptr) {
      *end = at_;
    } else if (at_ != bytes_.size()) {
      refuse(fmt::format("{} bytes follow its end", bytes_.size() - at_));
    }
    return std::move(document_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(Fault::kData, "{}: not a pickle of weights: {} (at byte {})", where_, what,
                at_instruction_);
  }

  // The stream.

  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) refuse("it ends early");
    const std::string_view part = bytes_.substr(at_, static_cast<std::size_t>(count));
    at_ += static_cast<std::size_t>(count);
    return part;
  }
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view line() {
    const std::size_t stop = bytes_.find('\n', at_);
    if (stop == bytes_.npos) refuse("it ends early");
    const std::string_view text = take(stop - at_);
    take(1);
    return text;
  }

  // Memory. A few bytes of pickle may request a large copy again and again.

  void charge(std::size_t bytes) {
    used_ += bytes;
    if (used_ > kMostMemory) refuse(fmt::format("it makes more than {} MiB", kMostMemory >> 20));
  }
  PickleValue& make(Kind kind) {
    charge(sizeof(PickleValue));
    return document_.make(kind);
  }

  // The stack.

  void push(PickleValue& value) {
    charge(sizeof(&value));
    stack_.push_back(&value);
  }
  void push_int(std::int64_t value) {
    PickleValue& made = make(Kind::kInt);
    made.integer = value;
    push(made);
  }
  void push_text(std::string_view text) {
    charge(text.size());
    PickleValue& made = make(Kind::kText);
    made.text = text;
    push(made);
  }
  void push_bool(bool value) {
    PickleValue& made = make(Kind::kBool);
    made.truth = value;
    push(made);
  }
  void push_number(double value) {
    PickleValue& made = make(Kind::kFloat);
    made.number = value;
    push(made);
  }
  PickleValue& pop() {
    if (stack_.empty() || stack_.back()->kind == Kind::kMark)
      refuse("it takes from an empty stack");
    PickleValue& value = *stack_.back();
    stack_.pop_back();
    return value;
  }
  PickleValue& top() {
    PickleValue& value = pop();
    stack_.push_back(&value);
    return value;
  }
  // Pops the items above the last mark, and the mark.
  std::vector<const PickleValue*> pop_to_mark() {
    std::size_t at = stack_.size();
    while (at > 0 && stack_[at - 1]->kind != Kind::kMark) --at;
    if (at == 0) refuse("it lacks a mark");
    std::vector<const PickleValue*> items(stack_.begin() + static_cast<std::ptrdiff_t>(at),
                                          stack_.end());
    stack_.resize(at - 1);
    return items;
  }
  void push_list(std::vector<const PickleValue*> items) {
    charge(items.size() * sizeof(items[0]));
    PickleValue& list = make(Kind::kList);
    list.items = std::move(items);
    push(list);
  }
  void push_last(std::size_t count) {
    std::vector<const PickleValue*> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = &pop();
    push_list(std::move(items));
  }

  void add_pairs(PickleValue& dict, const std::vector<const PickleValue*>& items) {
    if (dict.kind != Kind::kDict || items.size() % 2 != 0) refuse("it sets an item of no dict");
    charge(items.size() * sizeof(items[0]));
    for (std::size_t i = 0; i < items.size(); i += 2)
      dict.pairs.push_back({items[i], items[i + 1]});
  }
  void add_items(PickleValue& list, const std::vector<const PickleValue*>& items) {
    if (list.kind != Kind::kList) refuse("it appends to no list");
    charge(items.size() * sizeof(items[0]));
    list.items.insert(list.items.end(), items.begin(), items.end());
  }

  void put(std::uint64_t place) {
    PickleValue& value = top();
    if (memo_.insert_or_assign(place, &value).second) charge(kMemoBytes);
  }
  void get(std::uint64_t place) {
    const auto found = memo_.find(place);
    if (found == memo_.end()) refuse("it gets what it has not put");
    push(*found->second);
  }
  std::uint64_t place_of(std::string_view text) const {
    std::uint64_t place = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), place);
    if (error != std::errc() || stop != text.data() + text.size())
      refuse("a place that is no number");
    return place;
  }

  // Names and calls.

  void push_global(std::string_view module, std::string_view name) {
    const std::string full = fmt::format("{}.{}", module, name);
    if (!pickle_global(full)) {
      throw Error(
          Fault::kData,
          "{}: names {}, which is not a class of tensors or containers: the file may contain "
          "code and is not read; save the weights alone, as safetensors",
          where_, full);
    }
    charge(full.size());
    PickleValue& global = make(Kind::kGlobal);
    global.text = full;
    push(global);
  }

  void call(const PickleValue& callee, const PickleValue& arguments) {
    if (arguments.kind != Kind::kList) refuse("it calls with what is no tuple");
    if (callee.kind == Kind::kObject || callee.kind == Kind::kNone) {
      push(make(Kind::kNone));  // the call of a result of an inert call
      return;
    }
    if (callee.kind != Kind::kGlobal) refuse("it calls what is no name");
    const std::vector<const PickleValue*>& items = arguments.items;
    switch (*pickle_global(callee.text)) {
      case PickleGlobal::kDict:
        return call_dict(items);
      case PickleGlobal::kList:
        return push_list(items.empty() || items[0]->kind != Kind::kList
                             ? std::vector<const PickleValue*>{}
                             : items[0]->items);
      case PickleGlobal::kTensor:
        return call_tensor(items);
      case PickleGlobal::kParameter:
        if (items.empty() || items[0]->kind != Kind::kTensor) refuse("a parameter of no tensor");
        // The parameter is its tensor: values do not change after they are made.
        return push(const_cast<PickleValue&>(*items[0]));
      case PickleGlobal::kTyped:
        return call_typed(items);
      case PickleGlobal::kBytes:
        if (items.empty() || items[0]->kind != Kind::kText) refuse("bytes of no text");
        return push_text(items[0]->text);
      case PickleGlobal::kReconstruct:
        if (items.empty() || items[0]->kind != Kind::kGlobal) refuse("an object of no class");
        return push_object(items[0]->text, {});
      case PickleGlobal::kStorage:
      case PickleGlobal::kObject:
        return push_object(callee.text, items);
    }
  }

  void push_object(const std::string& name, const std::vector<const PickleValue*>& items) {
    const std::optional<PickleGlobal> kind = pickle_global(name);
    if (kind == PickleGlobal::kDict) return call_dict({});
    if (kind == PickleGlobal::kList) return push_list({});
    PickleValue& object = make(Kind::kObject);
    charge(name.size() + items.size() * sizeof(items[0]));
    object.text = name;
    object.items = items;
    push(object);
  }

  void call_dict(const std::vector<const PickleValue*>& items) {
    PickleValue& dict = make(Kind::kDict);
    if (!items.empty() && items[0]->kind == Kind::kList) {
      charge(items[0]->items.size() * sizeof(dict.pairs[0]));
      for (const PickleValue* pair : items[0]->items) {
        if (pair->kind != Kind::kList || pair->items.size() != 2) refuse("a dict of no pairs");
        dict.pairs.push_back({pair->items[0], pair->items[1]});
      }
    }
    push(dict);
  }

  std::vector<std::int64_t> numbers(const PickleValue& list) {
    std::vector<std::int64_t> result;
    if (list.kind != Kind::kList || list.items.size() > kMostDims)
      refuse("a tensor whose sizes are no short tuple");
    for (const PickleValue* item : list.items) {
      if (item->kind != Kind::kInt || item->integer < 0) refuse("a tensor of no size");
      result.push_back(item->integer);
    }
    return result;
  }

  // (storage, offset, size, stride, ...)
  void call_tensor(const std::vector<const PickleValue*>& items) {
    if (items.size() < 4 || items[0]->kind != Kind::kTensor || items[1]->kind != Kind::kInt ||
        items[1]->integer < 0) {
      refuse("a tensor without a storage");
    }
    PickleValue& made = make(Kind::kTensor);
    made.tensor = items[0]->tensor;
    made.tensor.offset = items[1]->integer;
    charge(made.tensor.storage.size());
    made.tensor.shape = numbers(*items[2]);
    made.tensor.strides = numbers(*items[3]);
    charge((made.tensor.shape.size() + made.tensor.strides.size()) * sizeof(std::int64_t));
    if (made.tensor.shape.size() != made.tensor.strides.size())
      refuse("a tensor of other sizes than strides");
    push(made);
  }

  // (call, class, arguments, attributes): a tensor to which a program has added attributes.
  void call_typed(const std::vector<const PickleValue*>& items) {
    const auto makes_a_tensor = [](const PickleValue& name) {
      const PickleGlobal kind = *pickle_global(name.text);
      return kind == PickleGlobal::kTensor || kind == PickleGlobal::kParameter;
    };
    if (items.size() < 3 || items[0]->kind != Kind::kGlobal || !makes_a_tensor(*items[0]))
      refuse("a tensor that no known call makes");
    call(*items[0], *items[2]);
  }

  // ("storage", type, key, place, elements)
  void push_storage(const PickleValue& id) {
    if (id.kind != Kind::kList || id.items.size() < 5 || id.items[1]->kind != Kind::kGlobal ||
        id.items[2]->kind != Kind::kText || id.items[4]->kind != Kind::kInt ||
        id.items[4]->integer < 0 || storage_dtype(id.items[1]->text).empty() ||
        (id.items.size() > 5 && id.items[5]->kind != Kind::kNone)) {
      refuse("a persistent id that is not of a storage");
    }
    PickleValue& made = make(Kind::kTensor);
    charge(id.items[2]->text.size());
    made.tensor.storage = id.items[2]->text;
    made.tensor.dtype = storage_dtype(id.items[1]->text);
    made.tensor.storage_elements = id.items[4]->integer;
    push(made);
  }

  void build() {
    const PickleValue& state = pop();
    PickleValue& object = top();
    if (object.kind == Kind::kObject) object.state = &state;
    // Attributes of a dict (OrderedDict's _metadata) and of a tensor are ignored.
  }

  // Numbers as text and as bytes.

  void push_decimal(std::string_view text) {
    if (text == "00") return push_bool(false);
    if (text == "01") return push_bool(true);
    if (text.ends_with('L')) text.remove_suffix(1);
    std::int64_t value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::result_out_of_range) return push_number(std::nan(""));
    if (error != std::errc() || stop != text.data() + text.size()) refuse("an invalid number");
    push_int(value);
  }
  // Little-endian two's complement. A number that does not fit 64 bits is a random seed, which is
  // ignored.
  void push_long(std::string_view bytes) {
    if (bytes.size() > 8) return push_number(std::nan(""));
    std::uint64_t value = 0;
    for (std::size_t i = bytes.size(); i-- > 0;)
      value = (value << 8) | static_cast<unsigned char>(bytes[i]);
    if (!bytes.empty() && bytes.size() < 8 && (bytes.back() & 0x80) != 0)
      value |= ~std::uint64_t{0} << (8 * bytes.size());
    push_int(static_cast<std::int64_t>(value));
  }
  void push_big_endian_double() {
    std::uint64_t bits = 0;
    for (const char byte : take(8)) bits = (bits << 8) | static_cast<unsigned char>(byte);
    push_number(std::bit_cast<double>(bits));
  }
  void push_decimal_double(std::string_view text) {
    double value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || stop != text.data() + text.size()) refuse("an invalid number");
    push_number(value);
  }

  void step(unsigned char instruction);
  bool step_of_stack(unsigned char instruction);
  bool step_of_memo(unsigned char instruction);
  bool step_of_scalars(unsigned char instruction);
  bool step_of_calls(unsigned char instruction);

  std::string_view bytes_;
  const std::string& where_;
  std::size_t at_ = 0;
  std::size_t at_instruction_ = 0;
  bool done_ = false;
  std::size_t used_ = 0;  // bytes
  PickleDocument document_;
  std::vector<PickleValue*> stack_;
  std::unordered_map<std::uint64_t, PickleValue*> memo_;
};

bool Machine::step_of_stack(unsigned char instruction) {
  switch (instruction) {
    case '(':
      push(make(Kind::kMark));
      return true;
    case '0':  // POP
      if (!stack_.empty() && stack_.back()->kind == Kind::kMark) {
        stack_.pop_back();
      } else {
        pop();
      }
      return true;
    case '1':  // POP_MARK
      pop_to_mark();
      return true;
    case '2':  // DUP
      push(top());
      return true;
    case '}':  // EMPTY_DICT
      push(make(Kind::kDict));
      return true;
    case ']':   // EMPTY_LIST
    case ')':   // EMPTY_TUPLE
    case 0x8f:  // EMPTY_SET
      push_list({});
      return true;
    case 'l':   // LIST
    case 't':   // TUPLE
    case 0x91:  // FROZENSET
      push_list(pop_to_mark());
      return true;
    case 'd': {  // DICT
      const std::vector<const PickleValue*> items = pop_to_mark();
      PickleValue& dict = make(Kind::kDict);
      add_pairs(dict, items);
      push(dict);
      return true;
    }
    case 0x85:
    case 0x86:
    case 0x87:  // TUPLE1 to TUPLE3
      push_last(instruction - 0x84U);
      return true;
    case 'a': {  // APPEND
      const PickleValue& item = pop();
      add_items(top(), {&item});
      return true;
    }
    case 'e':     // APPENDS
    case 0x90: {  // ADDITEMS
      const std::vector<const PickleValue*> items = pop_to_mark();
      add_items(top(), items);
      return true;
    }
    case 's': {  // SETITEM
      const PickleValue& value = pop();
      const PickleValue& key = pop();
      add_pairs(top(), {&key, &value});
      return true;
    }
    case 'u': {  // SETITEMS
      const std::vector<const PickleValue*> items = pop_to_mark();
      add_pairs(top(), items);
      return true;
    }
    default:
      return false;
  }
}

bool Machine::step_of_memo(unsigned char instruction) {
  switch (instruction) {
    case 'p':
      put(place_of(line()));
      return true;
    case 'q':
      put(number<std::uint8_t>());
      return true;
    case 'r':
      put(number<std::uint32_t>());
      return true;
    case 0x94:  // MEMOIZE
      put(memo_.size());
      return true;
    case 'g':
      get(place_of(line()));
      return true;
    case 'h':
      get(number<std::uint8_t>());
      return true;
    case 'j':
      get(number<std::uint32_t>());
      return true;
    default:
      return false;
  }
}

bool Machine::step_of_scalars(unsigned char instruction) {
  switch (instruction) {
    case 'N':
      push(make(Kind::kNone));
      return true;
    case 0x88:
      push_bool(true);
      return true;
    case 0x89:
      push_bool(false);
      return true;
    case 'I':
    case 'L':
      push_decimal(line());
      return true;
    case 'J':
      push_int(number<std::int32_t>());
      return true;
    case 'K':
      push_int(number<std::uint8_t>());
      return true;
    case 'M':
      push_int(number<std::uint16_t>());
      return true;
    case 0x8a:  // LONG1
      push_long(take(number<std::uint8_t>()));
      return true;
    case 0x8b:  // LONG4
      push_long(take(number<std::uint32_t>()));
      return true;
    case 'F':
      push_decimal_double(line());
      return true;
    case 'G':
      push_big_endian_double();
      return true;
    case 'S':
    case 'V':
      push_text(line());
      return true;
    case 'U':   // SHORT_BINSTRING
    case 'C':   // SHORT_BINBYTES
    case 0x8c:  // SHORT_BINUNICODE
      push_text(take(number<std::uint8_t>()));
      return true;
    case 'T':  // BINSTRING
    case 'B':  // BINBYTES
    case 'X':  // BINUNICODE
      push_text(take(number<std::uint32_t>()));
      return true;
    case 0x8d:  // BINUNICODE8
    case 0x8e:  // BINBYTES8
    case 0x96:  // BYTEARRAY8
      push_text(take(number<std::uint64_t>()));
      return true;
    default:
      return false;
  }
}

bool Machine::step_of_calls(unsigned char instruction) {
  switch (instruction) {
    case 'c': {  // GLOBAL
      const std::string_view module = line();
      push_global(module, line());
      return true;
    }
    case 0x93: {  // STACK_GLOBAL
      const PickleValue& name = pop();
      const PickleValue& module = pop();
      if (name.kind != Kind::kText || module.kind != Kind::kText) refuse("a name that is no text");
      push_global(module.text, name.text);
      return true;
    }
    case 'R':     // REDUCE
    case 0x81: {  // NEWOBJ
      const PickleValue& arguments = pop();
      const PickleValue& callee = pop();
      if (instruction == 'R') {
        call(callee, arguments);
      } else if (callee.kind == Kind::kGlobal && arguments.kind == Kind::kList) {
        push_object(callee.text, arguments.items);
      } else {
        refuse("an object of no class");
      }
      return true;
    }
    case 'b':
      build();
      return true;
    case 'Q':
      push_storage(pop());
      return true;
    default:
      return false;
  }
}

void Machine::step(unsigned char instruction) {
  switch (instruction) {
    case 0x80: {  // PROTO
      const auto protocol = number<std::uint8_t>();
      if (protocol > 5) refuse(fmt::format("protocol {}", protocol));
      return;
    }
    case 0x95:  // FRAME
      take(8);
      return;
    case '.':
      done_ = true;
      return;
    default:
      break;
  }
  if (step_of_stack(instruction) || step_of_memo(instruction) || step_of_scalars(instruction) ||
      step_of_calls(instruction)) {
    return;
  }
  refuse(fmt::format("the instruction 0x{:02x}, which weights do not need", instruction));
}

}  // namespace

const PickleValue* PickleValue::find(std::string_view key) const {
  if (kind == Kind::kObject)
    return state == nullptr || state->kind != Kind::kDict ? nullptr : state->find(key);
  if (kind != Kind::kDict) return nullptr;
  for (std::size_t i = pairs.size(); i-- > 0;) {
    if (pairs[i].first->kind == Kind::kText && pairs[i].first->text == key) return pairs[i].second;
  }
  return nullptr;
}

PickleDocument read_pickle(std::string_view bytes, const std::string& where, std::size_t* end) {
  return Machine(bytes, where).run(end);
}

}  // namespace piton
