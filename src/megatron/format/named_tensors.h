// Collects the stored tensors of a rank under their keys, and refuses what no model has.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "megatron/format/megatron_files.h"
#include "pickle/torch_file.h"

namespace piton {

// A tensor of one or two dims, or of [rows, 1, columns]; columns of a larger matrix are supported:
// torch.chunk produces them. `where` and `name` are for messages. Throws Error(kData).
BoxedTensor boxed_tensor(const RegularFile& file, const TorchTensor& tensor,
                         const std::string& where, const std::string& name);

// True if both have the same type, shape and bytes.
bool have_same_values(const BoxedTensor& a, const BoxedTensor& b);

// The tensors of a tree of dicts in the order of the file; their names are joined by dots. Dicts
// may contain each other in cycles: each is visited once.
void visit_tensors(
    const PickleValue& tree,
    const std::function<void(const std::string& name, const PickleValue& value)>& each);

class NamedTensors {
 public:
  explicit NamedTensors(std::string where) : where_(std::move(where)) {}

  // `make` is called for weights alone.
  void add(const std::string& name, const std::function<BoxedTensor()>& make);
  // The tensors of `file` in a tree of dicts.
  void add_tree(const TorchFile& file, const PickleValue& tree);

  // Throws Error(kData) where there were tensors of no model.
  BoxedTensors take();
  // The keys in the order of add().
  const std::vector<std::string>& order() const { return order_; }

 private:
  std::string where_;
  BoxedTensors tensors_;
  std::vector<std::string> order_;
  std::vector<std::string> unknown_;
};

}  // namespace piton
