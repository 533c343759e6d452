// Records of TensorBoard's event files: numbers with tags, for each step.
//
// A record is: length (u64), masked CRC-32C of the length (u32), bytes, masked CRC-32C of the bytes
// (u32), all little-endian; mask(c) = (c >> 15 | c << 17) + 0xa282ead8. The bytes are an Event of
// protocol buffers (tensorboard/compat/proto/event.proto, summary.proto):
//
//   Event   { 1: double wall_time, 2: int64 step, 3: string file_version, 5: Summary,
//             7: SessionLog }
//   Summary { repeated 1: Value { 1: string tag, 2: float simple_value } }
//
// They are encoded here without a library for protocol buffers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace piton {

struct EventScalar {
  std::string_view tag;
  double value = 0;  // stored as float
};

// The first record of a file. `wall_time`: seconds since 1970.
std::string event_file_head(double wall_time);

// All scalars of one step.
std::string event_record(double wall_time, std::int64_t step,
                         const std::vector<EventScalar>& scalars);

// The record of a resumed run: records of earlier files for `step` and later steps become invalid.
std::string event_restart(double wall_time, std::int64_t step);

// CRC-32C (Castagnoli; RFC 3720, B.4).
std::uint32_t crc32c(std::string_view bytes);

}  // namespace piton
