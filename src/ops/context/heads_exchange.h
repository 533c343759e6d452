// All-to-all around attention: before it, a rank gives away parts of its heads and gets the rows of
// the other ranks; after it, the reverse (Jacobs et al. 2023, arXiv:2309.14509).
//
// For u ranks with r rows of each of b samples and H heads of size d, a rank sends
// b r H d (u - 1) / u elements of each tensor.
//
// Heads can travel in parts, so that some travel while attention to others is computed. In backward
// the last part comes first: its gradients travel while those of the part before it are computed.
// Heads do not depend on one another, so parts change no bit.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "ops/context/member_blocks.h"
#include "ops/under_way.h"

namespace piton {

class Communicator;

// The heads of each rank, cut into `of` equal parts: `size` of these, from `begin` on.
struct HeadPart {
  std::int64_t begin = 0;
  std::int64_t size = 1;
  std::int64_t of = 1;

  std::int64_t first(std::int64_t heads) const { return heads / of * begin; }
  std::int64_t count(std::int64_t heads) const { return heads / of * size; }
};

// A part that is under way, and its gradient, when backward has put it here on its way.
struct TravelingPart {
  HeadPart heads;
  TravelingBlocks there;
  std::shared_ptr<std::optional<TravelingBlocks>> back;
};

// This rank's rows of each sample [b, r, H, d], any H that u divides and any strides but the
// last -> the rows of all ranks, of this rank's heads [b, u r, H/u, d], in the order of the
// sequence. One collective of each part for all tensors, which have one b, r, d and dtype.
class ToSequences {
 public:
  ToSequences(std::vector<Value> rows, Communicator& ranks);
  // Parts one after another, each once.
  void start(Context& context, const HeadPart& part);
  // Waits for the first part that is under way, of h heads of a tensor: [b, u r, h, d].
  std::vector<Value> next(Context& context);

 private:
  std::vector<Value> rows_;
  Communicator& ranks_;
  std::shared_ptr<GradientsInParts> gradients_;  // of the rows; null before the first part
  std::deque<TravelingPart> parts_;
};

// The reverse for one tensor: parts [b, u r, h, d], contiguous -> [b, r, H, d], contiguous.
class ToRows {
 public:
  explicit ToRows(Communicator& ranks) : ranks_(ranks) {}
  // Parts as above.
  void start(Context& context, const Value& sequences, const HeadPart& part);
  Value all(Context& context);  // waits for all parts

 private:
  Communicator& ranks_;
  std::vector<TravelingPart> parts_;
  Shape shape_;  // of the rows of the parts so far
};

// Both for all heads at once.
std::vector<Value> whole_sequences(Context& context, const std::vector<Value>& rows,
                                   Communicator& ranks);
Value own_rows(Context& context, const Value& sequences, Communicator& ranks);

}  // namespace piton
