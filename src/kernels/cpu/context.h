// The context of all calls of the cpu back end, and the calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/threads.h"
#include "kernels/cpu/isa.h"
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

struct Context {
  ThreadPool& threads;
  Isa isa;
  const VectorTable& vector;
  const PanelTable& panels;
  const DotTable* dot;     // null: no bf16 dot products
  const TileTable* tiles;  // null: no tiles
  Scratch scratch;

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
  bool given() const { return given_; }
  MaskRow hidden(std::int64_t row) const;
  MaskRow query(std::int64_t batch, std::int64_t head, std::int64_t position) const;

 private:
  MaskRow make(std::int64_t sample, std::int64_t head, std::int64_t position) const;
  const Dropout& dropout_;
  bool given_;
  std::int64_t first_sample_ = 0;
};

// Weights in packed form (linear.cpp).
std::int64_t packed_bytes(const Context& context, WeightForm form, std::int64_t out,
                          std::int64_t in, DType dtype);
WeightForm forward_form(const Context& context, std::int64_t rows, std::int64_t in, DType dtype);
std::int64_t row_tile();

void execute(Context& context, const LinearForward& call);
void execute(Context& context, const LinearBackwardInput& call);
void execute(Context& context, const LinearBackwardWeight& call);
void execute(Context& context, const PackWeight& call);
void execute(Context& context, const ExpandWeight& call);
void execute(Context& context, const NormForward& call);
void execute(Context& context, const NormBackward& call);
void execute(Context& context, const Rotary& call);
void execute(Context& context, const AttentionForward& call);
void execute(Context& context, const AttentionBackward& call);
void execute(Context& context, const CacheAppend& call);
void execute(Context& context, const ActivationForward& call);
void execute(Context& context, const ActivationBackward& call);
void execute(Context& context, const DropoutAddForward& call);
void execute(Context& context, const DropoutAddBackward& call);
void execute(Context& context, const EmbeddingForward& call);
void execute(Context& context, const EmbeddingBackward& call);
void execute(Context& context, const LossStatistics& call);
void execute(Context& context, const LossCombine& call);
void execute(Context& context, const LossBackward& call);
void execute(Context& context, const Copy& call);
void execute(Context& context, const Add& call);
void execute(Context& context, const Scale& call);
void execute(Context& context, const SoftCapForward& call);
void execute(Context& context, const SoftCapBackward& call);
void execute(Context& context, const AdamwUpdate& call);
void execute(Context& context, const SgdUpdate& call);
void execute(Context& context, const MovingAverage& call);
void execute(Context& context, const SquareSums& call);
void execute(Context& context, const BeginUpdate& call);
void execute(Context& context, const MuonMomentum& call);
void execute(Context& context, const MuonNormalize& call);
void execute(Context& context, const SymmetricProduct& call);
void execute(Context& context, const MuonUpdate& call);
void execute(Context& context, const CadamMaxima& call);
void execute(Context& context, const CadamUpdate& call);

}  // namespace piton::cpu
