// The "param_groups" of an optimizer that a test makes: {"params": [NUMBER, ...]} of each group,
// all counted through.
#pragma once

#include <cstdint>
#include <vector>

#include "pickle/torch_writer.h"

namespace piton::test {

template <typename State>
void write_param_groups(TorchWriter& out, const std::vector<std::vector<State>>& groups) {
  out.text("param_groups");
  out.begin_list();
  std::int64_t number = 0;
  for (const auto& group : groups) {
    out.begin_dict();
    out.text("params");
    out.begin_list();
    for (std::size_t i = 0; i < group.size(); ++i) out.integer(number++);
    out.end_list();
    out.end_dict();
  }
  out.end_list();
}

}  // namespace piton::test
