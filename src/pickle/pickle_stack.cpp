#include "pickle/pickle_stack.h"

#include <utility>

#include "base/error.h"

namespace piton {
namespace {

// Limit for all values together: 10,000 tensors take 100 MB.
constexpr std::size_t kMostMemory = std::size_t{1} << 30;

// Of one remembered value: a node of the map, and its share of the buckets.
constexpr std::size_t kMemoBytes = 48;

}  // namespace

void PickleStack::refuse(const std::string& what) const {
  throw Error(Fault::kData, "{}: not a pickle of weights: {} (at byte {})", where_, what,
              at_instruction_);
}

void PickleStack::charge(std::size_t bytes) {
  used_ += bytes;
  if (used_ > kMostMemory) refuse(fmt::format("it makes more than {} MiB", kMostMemory >> 20));
}

PickleValue& PickleStack::make(Kind kind) {
  charge(sizeof(PickleValue));
  return document_.make(kind);
}

void PickleStack::push(PickleValue& value) {
  charge(sizeof(&value));
  stack_.push_back(&value);
}

void PickleStack::push_int(std::int64_t value) {
  PickleValue& made = make(Kind::kInt);
  made.integer = value;
  push(made);
}

void PickleStack::push_text(std::string_view text) {
  charge(text.size());
  PickleValue& made = make(Kind::kText);
  made.text = text;
  push(made);
}

void PickleStack::push_bool(bool value) {
  PickleValue& made = make(Kind::kBool);
  made.truth = value;
  push(made);
}

void PickleStack::push_number(double value) {
  PickleValue& made = make(Kind::kFloat);
  made.number = value;
  push(made);
}

PickleValue& PickleStack::pop() {
  if (stack_.empty() || stack_.back()->kind == Kind::kMark) refuse("it takes from an empty stack");
  PickleValue& value = *stack_.back();
  stack_.pop_back();
  return value;
}

PickleValue& PickleStack::top() {
  PickleValue& value = pop();
  stack_.push_back(&value);
  return value;
}

std::vector<const PickleValue*> PickleStack::pop_to_mark() {
  std::size_t at = stack_.size();
  while (at > 0 && stack_[at - 1]->kind != Kind::kMark) --at;
  if (at == 0) refuse("it lacks a mark");
  std::vector<const PickleValue*> items(stack_.begin() + static_cast<std::ptrdiff_t>(at),
                                        stack_.end());
  stack_.resize(at - 1);
  return items;
}

void PickleStack::push_list(std::vector<const PickleValue*> items) {
  charge(items.size() * sizeof(items[0]));
  PickleValue& list = make(Kind::kList);
  list.items = std::move(items);
  push(list);
}

void PickleStack::push_last(std::size_t count) {
  std::vector<const PickleValue*> items(count);
  for (std::size_t i = count; i-- > 0;) items[i] = &pop();
  push_list(std::move(items));
}

void PickleStack::add_pairs(PickleValue& dict, const std::vector<const PickleValue*>& items) {
  if (dict.kind != Kind::kDict || items.size() % 2 != 0) refuse("it sets an item of no dict");
  charge(items.size() * sizeof(items[0]));
  for (std::size_t i = 0; i < items.size(); i += 2) dict.pairs.push_back({items[i], items[i + 1]});
}

void PickleStack::add_items(PickleValue& list, const std::vector<const PickleValue*>& items) {
  if (list.kind != Kind::kList) refuse("it appends to no list");
  charge(items.size() * sizeof(items[0]));
  list.items.insert(list.items.end(), items.begin(), items.end());
}

void PickleStack::put(std::uint64_t place) {
  PickleValue& value = top();
  if (memo_.insert_or_assign(place, &value).second) charge(kMemoBytes);
}

void PickleStack::get(std::uint64_t place) {
  const auto found = memo_.find(place);
  if (found == memo_.end()) refuse("it gets what it has not put");
  push(*found->second);
}

}  // namespace piton
