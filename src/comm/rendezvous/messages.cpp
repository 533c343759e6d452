#include "comm/rendezvous/messages.h"

#include "base/error.h"
#include "comm/rendezvous/connection.h"

namespace piton {

namespace {

constexpr int kNumberBytes = 8;

}  // namespace

MessageWriter& MessageWriter::number(std::uint64_t value) {
  bytes_ += little_endian(value, kNumberBytes);
  return *this;
}

MessageWriter& MessageWriter::text(std::string_view value) {
  number(value.size());
  bytes_ += value;
  return *this;
}

std::string_view MessageReader::take(std::uint64_t bytes) {
  if (rest_.size() < bytes) {
    throw Error(Fault::kPeer, "rendezvous: a message ends {} bytes too early",
                bytes - rest_.size());
  }
  const std::string_view taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

MessageKind MessageReader::kind() { return static_cast<MessageKind>(take(1)[0]); }

std::uint64_t MessageReader::number() { return from_little_endian(take(kNumberBytes)); }

std::string MessageReader::text() { return std::string(take(number())); }

}  // namespace piton
