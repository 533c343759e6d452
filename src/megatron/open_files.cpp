#include "megatron/open_files.h"

#include "megatron/deepspeed/deepspeed_files.h"
#include "megatron/deepspeed/zero3_files.h"
#include "megatron/distributed/torch_dist.h"
#include "megatron/ranks/rank_files.h"

namespace piton {

std::unique_ptr<MegatronFiles> open_megatron_files(const std::filesystem::path& folder) {
  if (has_rank_files(folder)) return std::make_unique<RankFiles>(folder);
  if (has_torch_dist(folder)) return std::make_unique<TorchDist>(folder);
  if (has_zero3_files(folder)) return std::make_unique<Zero3Files>(folder);
  if (has_deepspeed_files(folder)) return std::make_unique<DeepSpeedFiles>(folder);
  return nullptr;
}

bool has_megatron_files(const std::filesystem::path& folder) {
  return has_rank_files(folder) || has_torch_dist(folder) || has_zero3_files(folder) ||
         has_deepspeed_files(folder);
}

}  // namespace piton
