// Rotation of channel pairs by angles that grow with the position.
#include "kernels/rotary.h"

#include "kernels/reference/calls.h"
#include "kernels/reference/values.h"

namespace piton::reference {

void execute(const Rotary& call) {
  Values x = Values::read(call.x);
  const Values positions = Values::read(call.positions);
  const Values cosine = Values::read(call.cosine);
  const Values sine = Values::read(call.sine);
  const std::int64_t half = call.x.dim(2) / 2;
  const bool halves = call.convention == Rotary::Convention::kHalves;
  for (std::int64_t row = 0; row < call.x.dim(0); ++row) {
    const auto position = static_cast<std::int64_t>(positions(row));
    PITON_ASSERT(position >= 0 && position < call.cosine.dim(0), "rotary: position {} of {}",
                 position, call.cosine.dim(0));
    for (std::int64_t head = 0; head < call.x.dim(1); ++head) {
      for (std::int64_t pair = 0; pair < half; ++pair) {
        const std::int64_t i = halves ? pair : 2 * pair;
        const std::int64_t j = halves ? pair + half : 2 * pair + 1;
        const double c = cosine(position, pair);
        const double s = call.inverse ? -sine(position, pair) : sine(position, pair);
        const double xi = x(row, head, i);
        const double xj = x(row, head, j);
        x(row, head, i) = xi * c - xj * s;
        x(row, head, j) = xj * c + xi * s;
      }
    }
  }
  x.write(call.x);
}

}  // namespace piton::reference
