// Arguments of a checkpoint that only Piton writes: Megatron-LM has no word for them.
#pragma once

namespace piton {

inline constexpr const char* kNormalizedHead = "normalized_head";
inline constexpr const char* kModelType = "hf_model_type";
inline constexpr const char* kHeadLikeLayers = "head_activation_of_layers";
inline constexpr const char* kDynamicScaling = "dynamic";  // next to MindSpeed's rope_scaling_type

}  // namespace piton
