#include "train/sinks/event_file.h"

#include <array>
#include <bit>
#include <cstring>

namespace piton {
namespace {

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? 0x82f63b78U : 0U);
    table[byte] = rest;
  }
  return table;
}

// Piton's processors and the format are both little-endian.
template <typename T>
void put(std::string& out, T value) {
  std::array<char, sizeof(T)> bytes{};
  std::memcpy(bytes.data(), &value, sizeof(T));
  out.append(bytes.data(), bytes.size());
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

// A field's number and its kind on the wire.
enum class Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_key(std::string& out, int field, Wire wire) {
  put_varint(out, static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire));
}

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, Wire::kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event_at(double wall_time, std::int64_t step) {
  std::string event;
  put_key(event, 1, Wire::kFixed64);
  put(event, wall_time);
  if (step == 0) return event;  // the default, which protocol buffers leave out
  put_key(event, 2, Wire::kVarint);
  put_varint(event, static_cast<std::uint64_t>(step));
  return event;
}

std::uint32_t masked(std::uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8U; }

std::string record_of(const std::string& event) {
  std::string record;
  put(record, static_cast<std::uint64_t>(event.size()));
  put(record, masked(crc32c(record)));
  record += event;
  put(record, masked(crc32c(event)));
  return record;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = crc_table();
  std::uint32_t crc = 0xffffffffU;
  for (const char byte : bytes) {
    crc = kTable[(crc ^ static_cast<std::uint8_t>(byte)) & 0xff] ^ (crc >> 8);
  }
  return ~crc;
}

std::string event_file_head(double wall_time) {
  std::string event = event_at(wall_time, 0);
  put_bytes(event, 3, "brain.Event:2");
  return record_of(event);
}

std::string event_record(double wall_time, std::int64_t step,
                         const std::vector<EventScalar>& scalars) {
  std::string summary;
  for (const EventScalar& scalar : scalars) {
    std::string value;
    put_bytes(value, 1, scalar.tag);
    put_key(value, 2, Wire::kFixed32);
    put(value, static_cast<float>(scalar.value));
    put_bytes(summary, 1, value);
  }
  std::string event = event_at(wall_time, step);
  put_bytes(event, 5, summary);
  return record_of(event);
}

std::string event_restart(double wall_time, std::int64_t step) {
  std::string session_log;
  put_key(session_log, 1, Wire::kVarint);
  put_varint(session_log, 1);  // SessionLog.START
  std::string event = event_at(wall_time, step);
  put_bytes(event, 7, session_log);
  return record_of(event);
}

}  // namespace piton
