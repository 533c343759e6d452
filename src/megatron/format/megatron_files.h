// The files of a Megatron checkpoint in one of its layouts: who holds which tensor, and where its
// bytes are. What they mean is up to MegatronSource.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/files/regular_file.h"
#include "pickle/pickle_value.h"
#include "tensor/dtype.h"

namespace piton {

// Rows and columns of a stored tensor that are together in a file, rows `stride` elements apart; or
// columns, if it is transposed.
struct TensorBox {
  const RegularFile* file = nullptr;
  std::int64_t offset = 0;  // of its first element, in bytes
  std::int64_t row = 0, rows = 0;
  std::int64_t column = 0, columns = 0;
  std::int64_t stride = 0;
  bool transposed = false;
};

struct BoxedTensor {
  DType dtype = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;  // of a tensor of one dim: 1
  std::vector<TensorBox> boxes;
};

using BoxedTensors = std::map<std::string, BoxedTensor>;  // by key (megatron/format/names.h)

// A vector whose elements are in parts of files.
struct FlatPart {
  const RegularFile* file = nullptr;
  std::int64_t offset = 0;  // bytes
  std::int64_t begin = 0;   // elements of the vector
  std::int64_t end = 0;
};

struct FlatVector {
  std::vector<FlatPart> parts;  // ascending, without gaps
  std::int64_t elements() const { return parts.empty() ? 0 : parts.back().end; }
};

// Adam's moments of weights, by their keys.
struct BoxedMoments {
  BoxedTensors first;   // exp_avg
  BoxedTensors second;  // exp_avg_sq
};

// The state of fp16's loss scale.
struct StoredLossScale {
  double scale = 1;
  std::int64_t good_updates = 0;  // growth_tracker
  std::int64_t hysteresis_left = 0;
};

// Whose vectors a distributed optimizer has: of a rank, p T + t, and a chunk. Where there are
// several expert ranks, there are two optimizers: number 0 of all weights but those of experts,
// number 1 of experts, whose ranks are (p E + e) X + t where an expert is split over X ranks.
struct BucketPlace {
  int rank = 0;
  int chunk = 0;
  std::optional<int> optimizer;
};

// What an optimizer counts.
struct OptimizerCounts {
  std::set<std::int64_t> steps;  // all values that are named: one, if they agree
  std::optional<StoredLossScale> loss_scale;
};

// How the files are divided.
struct MegatronDivision {
  int tensor = 1;
  int pipeline = 1;
  int chunks = 1;         // of each pipeline rank: virtual stages
  int expert = 1;         // ranks that the experts of a layer are divided over
  int expert_tensor = 0;  // ranks that each expert is split over; 0: all of `tensor`
  // Each tensor rank of an expert rank has other experts: MindSpeed's --moe-tp-extend-ep.
  bool experts_by_tensor = false;
  bool whole = false;       // tensors are whole, and belong to no rank
  bool all_layers = false;  // layers have their numbers in the whole model, in no stage
  double version = 3;       // checkpoint_version where the files do not say it
};

class MegatronFiles {
 public:
  virtual ~MegatronFiles() = default;

  // "mp_rank", "torch_dist", ...: for messages.
  virtual std::string form() const = 0;
  virtual std::filesystem::path folder() const = 0;
  virtual const MegatronDivision& division() const = 0;
  // The dict with args, iteration and checkpoint_version, and the file that holds it. An empty dict
  // where there is none.
  virtual const PickleValue& facts() const = 0;
  virtual std::string facts_file() const = 0;
  // The weights of chunk `chunk` on rank (t, p) by key, and their file for messages. Throws
  // Error(kData) for those that are of no model that Piton has.
  virtual BoxedTensors tensors(int t, int p, int chunk) const = 0;
  virtual std::string file_of(int t, int p) const = 0;
  // The state of an optimizer is there.
  virtual bool has_optimizer() const = 0;
  // Its fp32 copies of these weights, as far as they are found.
  virtual BoxedTensors masters(int t, int p, int chunk) = 0;
  // The moments of these weights. Throws Error(kData) where they are not found, or are of another
  // model.
  virtual BoxedMoments moments(int t, int p, int chunk) = 0;
  virtual OptimizerCounts optimizer_counts() = 0;
  // The dict with opt_param_scheduler, where files of the optimizer have it. Null: facts() has it.
  virtual const PickleValue* optimizer_facts() { return nullptr; }
  // Where the weights are kept as an optimizer's fp32 copies alone: the type that they are copies
  // of, in which the run computed.
  virtual std::optional<DType> copies_of() const { return std::nullopt; }
  // The optimizer is divided as the ranks that wrote it were, though the weights are not: masters()
  // and moments() are not there, but for each rank and chunk the vectors of a distributed optimizer
  // (megatron/ranks/optimizer_buffer.h).
  virtual bool has_buckets() const { return false; }
  virtual std::vector<FlatVector> buckets(const BucketPlace& /*place*/, const char* /*kind*/) {
    return {};
  }
};

}  // namespace piton
