// The names that a pickle may use (pickle/globals.h), and their calls, which make plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pickle/pickle_stack.h"

namespace piton {

class PickleCalls : public PickleStack {
 protected:
  using PickleStack::PickleStack;

  // Throws Error(kData) for a name that is not allowed.
  void push_global(std::string_view module, std::string_view name);
  // Pushes the result.
  void call(const PickleValue& callee, const PickleValue& arguments);
  // An object of the class `name`.
  void push_object(const std::string& name, const std::vector<const PickleValue*>& items);
  // `id`: ("storage", type, key, place, elements)
  void push_storage(const PickleValue& id);
  // Pops a state and gives it to the object below.
  void build();

 private:
  void call_dict(const std::vector<const PickleValue*>& items);
  // (storage, offset, size, stride, ...)
  void call_tensor(const std::vector<const PickleValue*>& items);
  // (call, class, arguments, attributes): a tensor to which a program has added attributes.
  void call_typed(const std::vector<const PickleValue*>& items);
  std::vector<std::int64_t> numbers(const PickleValue& list);
};

}  // namespace piton
