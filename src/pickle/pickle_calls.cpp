#include "pickle/pickle_calls.h"

#include <optional>

#include "base/error.h"
#include "pickle/globals.h"

namespace piton {
namespace {

constexpr std::size_t kMostDims = 64;

}  // namespace

void PickleCalls::push_global(std::string_view module, std::string_view name) {
  const std::string full = fmt::format("{}.{}", module, name);
  if (!pickle_global(full)) {
    throw Error(Fault::kData,
                "{}: names {}, which is not a class of tensors or containers: the file may contain "
                "code and is not read; save the weights alone, as safetensors",
                where_, full);
  }
  charge(full.size());
  PickleValue& global = make(Kind::kGlobal);
  global.text = full;
  push(global);
}

void PickleCalls::call(const PickleValue& callee, const PickleValue& arguments) {
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

void PickleCalls::push_object(const std::string& name,
                              const std::vector<const PickleValue*>& items) {
  const std::optional<PickleGlobal> kind = pickle_global(name);
  if (kind == PickleGlobal::kDict) return call_dict({});
  if (kind == PickleGlobal::kList) return push_list({});
  PickleValue& object = make(Kind::kObject);
  charge(name.size() + items.size() * sizeof(items[0]));
  object.text = name;
  object.items = items;
  push(object);
}

void PickleCalls::call_dict(const std::vector<const PickleValue*>& items) {
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

std::vector<std::int64_t> PickleCalls::numbers(const PickleValue& list) {
  std::vector<std::int64_t> result;
  if (list.kind != Kind::kList || list.items.size() > kMostDims)
    refuse("a tensor whose sizes are no short tuple");
  for (const PickleValue* item : list.items) {
    if (item->kind != Kind::kInt || item->integer < 0) refuse("a tensor of no size");
    result.push_back(item->integer);
  }
  return result;
}

void PickleCalls::call_tensor(const std::vector<const PickleValue*>& items) {
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

void PickleCalls::call_typed(const std::vector<const PickleValue*>& items) {
  const auto rebuilds_tensor = [](const PickleValue& name) {
    const PickleGlobal kind = *pickle_global(name.text);
    return kind == PickleGlobal::kTensor || kind == PickleGlobal::kParameter;
  };
  if (items.size() < 3 || items[0]->kind != Kind::kGlobal || !rebuilds_tensor(*items[0]))
    refuse("a tensor that no known call makes");
  call(*items[0], *items[2]);
}

void PickleCalls::push_storage(const PickleValue& id) {
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

void PickleCalls::build() {
  const PickleValue& state = pop();
  PickleValue& object = top();
  if (object.kind == Kind::kObject) object.state = &state;
  // Attributes of a dict (OrderedDict's _metadata) and of a tensor are ignored.
}

}  // namespace piton
