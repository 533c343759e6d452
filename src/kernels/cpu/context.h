// The context of all calls of the cpu back end, and the calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/threads.h"
#include "kernels/cpu/processor/isa.h"
#include "kernels/kernels.h"

namespace piton::cpu {

// Memory for intermediate values: one buffer per thread, and one that all threads share. A buffer
// grows to its largest use and stays; its contents are valid until the next request for it.
class Scratch {
 public:
  explicit Scratch(int threads) : own_(static_cast<std::size_t>(threads)) {}

  // The buffer of the calling thread: 64-byte aligned, uninitialized.
  std::byte* own(std::int64_t bytes) {
    return grown(own_[static_cast<std::size_t>(ThreadPool::thread_index())], bytes);
  }
  // Only for the caller of run(), before the parts start.
  std::byte* shared(std::int64_t bytes) { return grown(shared_, bytes); }

 private:
  struct Release {
    void operator()(std::byte* data) const;
  };
  struct Buffer {
    std::unique_ptr<std::byte, Release> data;
    std::int64_t bytes = 0;
  };
  static std::byte* grown(Buffer& buffer, std::int64_t bytes);

  std::vector<Buffer> own_;
  Buffer shared_;
};

struct CpuContext {
  ThreadPool& threads;
  Isa isa;
  const VectorTable& vector;
  const PanelTable& panels;
  const CodesTable& codes;
  const DotTable* dot;     // null: no bf16 dot products
  const TileTable* tiles;  // null: no tiles
  Scratch scratch;
  Tensor gate_up = {};      // memory for the product of a gated linear, before its activation
  Tensor latent_rows = {};  // memory for what queries of a cache of latents have by row
  Tensor expanded = {};     // memory for rows of a weight held as codes (linear_codes.cpp)
  Tensor packed = {};       // memory for packed parts of a weight in rows (linear_rows.cpp)
  // Memory for two factors in FP8, and for the sums of their product (linear_float8.cpp).
  std::array<Tensor, 3> float8 = {};

  // Whether bf16 products need no conversion to fp32.
  bool has_bf16_products() const { return dot != nullptr; }

  // Calls body(begin, end) for the ranges of `grain` items that cover [0, n).
  template <typename Body>
  void ranges(std::int64_t n, std::int64_t grain, const Body& body) {
    const auto part = [&](std::int64_t index) {
      const std::int64_t begin = index * grain;
      body(begin, begin + grain < n ? begin + grain : n);
    };
    threads.run((n + grain - 1) / grain, part);
  }
};

// A tensor in `kept`, memory that grows where it is too small. What it held before is lost.
Tensor memory_in(Tensor& kept, DType dtype, const Shape& shape);

// The next multiple of `unit`, or n.
inline std::int64_t padded(std::int64_t n, std::int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

// Number of items of `bytes` each that make a part worth handing to a thread.
inline std::int64_t grain_of(std::int64_t bytes, std::int64_t part_bytes = 16 << 10) {
  return bytes >= part_bytes ? 1 : part_bytes / (bytes > 0 ? bytes : 1);
}

Type type_of(DType dtype);               // asserts a floating-point type of at most 32 bits
Matrix matrix_of(const Tensor& tensor);  // [rows, columns] or not given
Activation kind_of(ActivationKind kind);

// Mask rows: for row `row` of a matrix at a hidden site, or for a query of a head.
class Masks {
 public:
  explicit Masks(const Dropout& dropout);
  Masks(PhiloxKey key, const MaskRows& rows);  // of random words alone
  bool given() const { return given_; }
  MaskRow hidden(std::int64_t row) const;
  MaskRow query(std::int64_t batch, std::int64_t head, std::int64_t position) const;

 private:
  MaskRow make(std::int64_t sample, std::int64_t head, std::int64_t position) const;
  PhiloxKey key_;
  MaskRows rows_;
  double probability_ = 0;
  bool given_ = true;
  std::int64_t first_sample_ = 0;
};

// Weights in packed form (linear.cpp).
std::int64_t packed_bytes(const CpuContext& context, WeightForm form, std::int64_t out,
                          std::int64_t in, DType dtype);
WeightForm forward_form(const CpuContext& context, std::int64_t rows, std::int64_t in, DType dtype);
WeightForm frozen_form(const CpuContext& context, WeightForm form, DType dtype);
std::int64_t row_tile();

void execute(CpuContext& context, const LinearForward& call);
void execute(CpuContext& context, const GatedLinear& call);
void execute(CpuContext& context, const LinearBackwardInput& call);
void execute(CpuContext& context, const LinearBackwardWeight& call);
void execute(CpuContext& context, const PackWeight& call);
void execute(CpuContext& context, const ExpandWeight& call);
void execute(CpuContext& context, const NormForward& call);
void execute(CpuContext& context, const NormBackward& call);
void execute(CpuContext& context, const NormProducts& call);
void execute(CpuContext& context, const Rotary& call);
void execute(CpuContext& context, const AttentionForward& call);
void execute(CpuContext& context, const AttentionBackward& call);
void execute(CpuContext& context, const AttentionMerge& call);
void execute(CpuContext& context, const AttentionSink& call);
void execute(CpuContext& context, const AttentionSinkBackward& call);
void execute(CpuContext& context, const CacheAppend& call);
void execute(CpuContext& context, const CachedAttention& call);
void execute(CpuContext& context, const ConvolutionForward& call);
void execute(CpuContext& context, const ConvolutionBackward& call);
void execute(CpuContext& context, const DeltaRuleForward& call);
void execute(CpuContext& context, const DeltaRuleBackward& call);
void execute(CpuContext& context, const ActivationForward& call);
void execute(CpuContext& context, const ActivationBackward& call);
void execute(CpuContext& context, const DropoutAddForward& call);
void execute(CpuContext& context, const DropoutAddBackward& call);
void execute(CpuContext& context, const EmbeddingForward& call);
void execute(CpuContext& context, const EmbeddingBackward& call);
void execute(CpuContext& context, const AddNoise& call);
void execute(CpuContext& context, const RouteTokens& call);
void execute(CpuContext& context, const RouteBackward& call);
void execute(CpuContext& context, const RouterZLoss& call);
void execute(CpuContext& context, const RouterZLossBackward& call);
void execute(CpuContext& context, const LimitChoices& call);
void execute(CpuContext& context, const ExcessChoices& call);
void execute(CpuContext& context, const SortByExpert& call);
void execute(CpuContext& context, const SortByRank& call);
void execute(CpuContext& context, const CombineExperts& call);
void execute(CpuContext& context, const CombineExpertsBackward& call);
void execute(CpuContext& context, const LossStatistics& call);
void execute(CpuContext& context, const LargestLogits& call);
void execute(CpuContext& context, const LossCombine& call);
void execute(CpuContext& context, const SquaredLoss& call);
void execute(CpuContext& context, const LossBackward& call);
void execute(CpuContext& context, const BinaryLossStatistics& call);
void execute(CpuContext& context, const BinaryLossBackward& call);
void execute(CpuContext& context, const TeacherStatistics& call);
void execute(CpuContext& context, const TeacherCombine& call);
void execute(CpuContext& context, const TeacherBackward& call);
void execute(CpuContext& context, const ChangeLogits& call);
void execute(CpuContext& context, const DrawTokens& call);
void execute(CpuContext& context, const Copy& call);
void execute(CpuContext& context, const Add& call);
void execute(CpuContext& context, const Scale& call);
void execute(CpuContext& context, const SoftCapForward& call);
void execute(CpuContext& context, const SoftCapBackward& call);
void execute(CpuContext& context, const GatedSumForward& call);
void execute(CpuContext& context, const GatedSumBackward& call);
void execute(CpuContext& context, const JoinHeads& call);
void execute(CpuContext& context, const SplitHeads& call);
void execute(CpuContext& context, const RowSquares& call);
void execute(CpuContext& context, const MagnitudeForward& call);
void execute(CpuContext& context, const MagnitudeGradient& call);
void execute(CpuContext& context, const AdamwUpdate& call);
void execute(CpuContext& context, const SgdUpdate& call);
void execute(CpuContext& context, const SignUpdate& call);
void execute(CpuContext& context, const MovingAverage& call);
void execute(CpuContext& context, const SquareSums& call);
void execute(CpuContext& context, const BeginUpdate& call);
void execute(CpuContext& context, const MuonMomentum& call);
void execute(CpuContext& context, const MuonNormalize& call);
void execute(CpuContext& context, const SymmetricProduct& call);
void execute(CpuContext& context, const MuonUpdate& call);
void execute(CpuContext& context, const CadamMaxima& call);
void execute(CpuContext& context, const CadamUpdate& call);

}  // namespace piton::cpu
