// libraries: piton_checkpoint
// Any bytes as a safetensors file: read, or refused with an Error. Tensors that were read cover the
// data without gaps, and can be written and read again unchanged.

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  piton::SafetensorsHeader header;
  try {
    header = piton::parse_safetensors(bytes, std::ssize(bytes), "fuzz.safetensors");
  } catch (const piton::Error& error) {
    PITON_ASSERT(error.fault() == piton::Fault::kData);
    return 0;
  }
  std::int64_t at = 0;
  for (const piton::SafetensorsEntry& entry : header.entries) {
    PITON_ASSERT(entry.begin == at && entry.end >= at);
    at = entry.end;
  }
  PITON_ASSERT(header.data_begin + at == static_cast<std::int64_t>(size));

  std::vector<piton::SafetensorsEntry> entries = header.entries;
  std::string again = piton::make_safetensors_header(entries, header.metadata);
  const std::size_t data_begin = again.size();
  again.resize(data_begin + static_cast<std::size_t>(at));
  const auto read = piton::parse_safetensors(std::as_bytes(std::span(again.data(), again.size())),
                                             std::ssize(again), "again");
  PITON_ASSERT(read.data_begin == static_cast<std::int64_t>(data_begin));
  PITON_ASSERT(read.entries.size() == header.entries.size() && read.metadata == header.metadata);
  for (const piton::SafetensorsEntry& entry : header.entries) {
    bool found = false;
    for (const piton::SafetensorsEntry& other : read.entries) {
      found = found ||
              (other.name == entry.name && other.dtype == entry.dtype &&
               other.shape == entry.shape && other.begin == entry.begin && other.end == entry.end);
    }
    PITON_ASSERT(found, "{}", entry.name);
  }
  return 0;
}
