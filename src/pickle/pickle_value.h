// The contents of a pickle as plain data. Nothing of it was executed.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace piton {

// A tensor of a pickle: the view of a storage that it describes.
struct PickleTensor {
  std::string storage;  // key: the member data/KEY of the archive
  std::string dtype;    // of the storage, as safetensors spells it: "F32", "BF16", ...
  std::int64_t storage_elements = 0;  // elements that the storage must have
  std::int64_t offset = 0;            // elements
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
};

struct PickleValue {
  enum class Kind : std::uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,  // or bytes
    kList,  // list, tuple, set
    kDict,  // dict, OrderedDict
    kTensor,
    kObject,  // of an allowed class without effect: its name, arguments and state
    kGlobal,  // an allowed class or value itself: "torch.bfloat16"
    kMark,    // used while reading
  };

  Kind kind = Kind::kNone;
  bool truth = false;
  std::int64_t integer = 0;
  double number = 0;
  std::string text;                       // kText; the name of kObject and kGlobal
  std::vector<const PickleValue*> items;  // kList; arguments of kObject
  std::vector<std::pair<const PickleValue*, const PickleValue*>> pairs;  // kDict; in order
  const PickleValue* state = nullptr;                                    // kObject: usually a dict
  PickleTensor tensor;

  // Looks up a key of a dict, or of an object's state; null if absent. Of equal keys, the last
  // counts.
  const PickleValue* find(std::string_view key) const;
};

// Owns the values, which may refer to each other in cycles.
class PickleDocument {
 public:
  PickleValue& make(PickleValue::Kind kind) {
    values_.emplace_back().kind = kind;
    return values_.back();
  }
  const PickleValue& root() const { return *root_; }
  void set_root(const PickleValue& root) { root_ = &root; }

  // Every tensor and storage that was made, even if the root does not refer to it.
  template <typename F>
  void for_each_tensor(F&& each) const {
    for (const PickleValue& value : values_) {
      if (value.kind == PickleValue::Kind::kTensor) each(value.tensor);
    }
  }

 private:
  std::deque<PickleValue> values_;
  const PickleValue* root_ = nullptr;
};

}  // namespace piton
