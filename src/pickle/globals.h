// The global names that a pickle may use, and what a call of each creates. All others are refused.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace piton {

enum class PickleGlobal {
  kDict,       // OrderedDict, dict, defaultdict: from pairs, or empty
  kList,       // list, tuple, set, torch.Size: from one list
  kTensor,     // torch._utils._rebuild_tensor_v2 and its variants
  kParameter,  // its first argument
  kTyped,      // torch._tensor._rebuild_from_type_v2(call, class, arguments, attributes): the call
  kStorage,    // a type of storage, for persistent ids
  kBytes,      // _codecs.encode(text, "latin1")
  kReconstruct,  // copyreg._reconstructor(class, object, None): an object of the class
  kObject,       // inert: arguments and state are kept but have no effect
};

// `name`: "torch._utils._rebuild_tensor_v2". Nullopt: not allowed.
std::optional<PickleGlobal> pickle_global(std::string_view name);

// The type of a storage in the spelling of safetensors: "F32" for "torch.FloatStorage". "" for a
// name that is not a storage.
std::string_view storage_dtype(std::string_view name);

}  // namespace piton
