#include "pickle/pickle.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "pickle/pickle_calls.h"

namespace piton {
namespace {

// The stack machine (CPython's Lib/pickle.py names the instructions).
class PickleMachine final : PickleCalls {
 public:
  PickleMachine(std::string_view bytes, const std::string& where)
      : PickleCalls(where), bytes_(bytes) {}

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

  std::uint64_t place_of(std::string_view text) const {
    std::uint64_t place = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), place);
    if (error != std::errc() || stop != text.data() + text.size())
      refuse("a place that is no number");
    return place;
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
  std::size_t at_ = 0;
  bool done_ = false;
};

bool PickleMachine::step_of_stack(unsigned char instruction) {
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

bool PickleMachine::step_of_memo(unsigned char instruction) {
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

bool PickleMachine::step_of_scalars(unsigned char instruction) {
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

bool PickleMachine::step_of_calls(unsigned char instruction) {
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

void PickleMachine::step(unsigned char instruction) {
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
  return PickleMachine(bytes, where).run(end);
}

}  // namespace piton
