// The names of tensors in Megatron-core's dist_checkpointing (megatron/distributed/torch_dist.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace piton {

// States of the optimizer and of the run, not weights.
bool is_state(std::string_view name);
// The name of the weight that this is the optimizer's `kind` of; "": none.
std::string weight_of_state(const std::string& name, std::string_view kind);
// The name of the weight that this is the fp32 copy of; "": none.
std::string weight_of_master(const std::string& name);

// The name of a tensor that may have the weights of several layers, or of several experts: dims
// more before those of a weight, of layers first.
class StackedName {
 public:
  explicit StackedName(std::string name);

  std::size_t dims() const { return (layers_ ? 1U : 0U) + (experts_ ? 1U : 0U); }
  // The usual name of the weight at a place of these dims. Megatron-core stores experts, and halves
  // of the first MLP matrix, under others.
  std::string at(std::span<const std::int64_t> place) const;

 private:
  std::string name_;
  bool layers_ = false;
  bool experts_ = false;
};

}  // namespace piton
