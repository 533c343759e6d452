// The stack and the memo of the machine that a pickle is a program for, and the memory that their
// values take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "pickle/pickle_value.h"

namespace piton {

class PickleStack {
 protected:
  using Kind = PickleValue::Kind;

  // `where` names the file in messages; it must outlive this object.
  explicit PickleStack(const std::string& where) : where_(where) {}

  // Throws Error(kData) with the place of the instruction.
  [[noreturn]] void refuse(const std::string& what) const;

  // Counts memory, which is limited: a few bytes of pickle may request a large copy again and
  // again.
  void charge(std::size_t bytes);
  PickleValue& make(Kind kind);

  void push(PickleValue& value);
  void push_int(std::int64_t value);
  void push_text(std::string_view text);
  void push_bool(bool value);
  void push_number(double value);
  PickleValue& pop();
  PickleValue& top();
  // Pops the items above the last mark, and the mark.
  std::vector<const PickleValue*> pop_to_mark();
  void push_list(std::vector<const PickleValue*> items);
  // Pops `count` values and pushes them as a list.
  void push_last(std::size_t count);

  // `items`: key, value, key, ...
  void add_pairs(PickleValue& dict, const std::vector<const PickleValue*>& items);
  void add_items(PickleValue& list, const std::vector<const PickleValue*>& items);

  // The memo: the top of the stack gets the number `place`; the value of that number is pushed.
  void put(std::uint64_t place);
  void get(std::uint64_t place);

  const std::string& where_;
  std::size_t at_instruction_ = 0;  // byte of the instruction that is executed
  PickleDocument document_;
  std::vector<PickleValue*> stack_;
  std::unordered_map<std::uint64_t, PickleValue*> memo_;

 private:
  std::size_t used_ = 0;  // bytes
};

}  // namespace piton
