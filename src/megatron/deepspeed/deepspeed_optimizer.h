// The optimizers of DeepSpeed's ZeRO 1 and 2. ZeRO-3: megatron/deepspeed/zero3_files.h.
//
//   DIR/NAME/[bf16_]zero_pp_rank_D_mp_rank_NN_optim_states.pt    part D of model rank NN's state:
//     {"optimizer_state_dict": {
//        "single_partition_of_fp32_groups": [VECTOR of each group of parameters],
//        "base_optimizer_state": {"state": {GROUP: {"exp_avg": VECTOR, "exp_avg_sq": VECTOR,
//                                                   "step"}}, "param_groups"}}}
//   DIR/NAME/mp_rank_NN_model_states.pt: {"param_shapes": [{NAME: SIZE, ...} of each group]}
//
// The vectors of all parts, one behind another, are the group's parameters in the order of
// param_shapes, and padding. Files are opened when they are first asked for.
//
// Source: deepspeed/runtime/zero/stage_1_and_2.py (state_dict) and deepspeed/utils/zero_to_fp32.py
// of DeepSpeed 0.5 to 0.17.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "megatron/deepspeed/zero_vectors.h"
#include "megatron/format/megatron_files.h"
#include "pickle/torch_file.h"

namespace piton {

class DeepSpeedOptimizer {
 public:
  explicit DeepSpeedOptimizer(const std::filesystem::path& folder);

  bool found() const { return !paths_.empty(); }
  // What the parts of model rank `number` have, by the names of `shapes`, which is the param_shapes
  // of its file `where`. Throws Error(kData) where a part is missing, or a vector is too short.
  BoxedTensors tensors(int number, const PickleValue* shapes, ZeroState state,
                       const std::string& where);
  OptimizerCounts counts();

 private:
  using Parts = std::vector<std::unique_ptr<TorchFile>>;
  const Parts& parts(int number);

  std::filesystem::path folder_;
  std::map<int, std::map<int, std::filesystem::path>> paths_;  // [model rank][part]
  std::map<int, Parts> parts_;
};

}  // namespace piton
