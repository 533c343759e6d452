// Values of adapters for tests: by the coordinates of each element, so that they do not depend on
// the layout, nor on whether an adapter is alone or one of several to choose from.
#pragma once

#include <cstdint>
#include <string>

#include "session/session.h"
#include "support/tensors.h"

namespace piton::test {

// Within +-0.3; of magnitudes around 1.
inline double drawn_value(const std::string& name, std::int64_t row, std::int64_t column,
                          std::uint64_t label) {
  std::uint64_t bits = 0xcbf29ce484222325U + label;
  const auto mix = [&](std::uint64_t value) {
    bits = (bits ^ value) * 0x9e3779b97f4a7c15U;
    bits ^= bits >> 29;
  };
  for (const char letter : name) mix(static_cast<std::uint8_t>(letter));
  mix(static_cast<std::uint64_t>(row) + 1000);
  mix(static_cast<std::uint64_t>(column) + 2000);
  mix(7);
  const double unit = static_cast<double>(bits >> 40) / (1 << 24);
  return 0.6 * (unit - 0.5) + (name.ends_with(kAdapterMagnitude) ? 1 : 0);
}

// Sets A, B and magnitudes. Adapter i to choose from has the values of label i, an adapter of all
// texts those of `label`.
inline void draw_adapters(Session& session, Stream& stream, std::uint64_t label = 0) {
  for (Parameter* parameter : adapter_parameters(session.parameters())) {
    const Tensor rows = host_tensor(parameter->dtype, parameter->shape);
    for (const Piece& piece : parameter->pieces) {
      std::string name = piece.name;
      std::uint64_t of = label;
      for (std::size_t i = 0; i < session.settings().adapters.choices.size(); ++i) {
        if (!piece.name.starts_with(choice_prefix(i))) continue;
        name = piece.name.substr(choice_prefix(i).size());
        of = i;
      }
      const Tensor part = rows.slice(0, piece.local_row, piece.extent[0]);
      const std::int64_t width = piece.extent.ndim() > 1 ? piece.extent[1] : 1;
      for (std::int64_t i = 0; i < part.elements(); ++i) {
        const std::int64_t column = (piece.start.ndim() > 1 ? piece.start[1] : 0) + i % width;
        part.data<float>()[i] =
            static_cast<float>(drawn_value(name, piece.start[0] + i / width, column, of));
      }
    }
    session.sharded().set_value(*parameter, rows, stream);
  }
  session.publish_values();
}

}  // namespace piton::test
