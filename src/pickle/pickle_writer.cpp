#include "pickle/pickle_writer.h"

#include <bit>

namespace piton {
namespace {

void put_number(std::string& text, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
}

}  // namespace

void PickleWriter::integer(std::int64_t value) {
  if (value >= INT32_MIN && value <= INT32_MAX) {
    pickle_ += 'J';
    put_number(pickle_, static_cast<std::uint64_t>(value), 4);
  } else {
    pickle_ += "\x8a\x08";
    put_number(pickle_, static_cast<std::uint64_t>(value), 8);
  }
}

void PickleWriter::number(double value) {
  pickle_ += 'G';
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (int i = 7; i >= 0; --i) pickle_ += static_cast<char>(bits >> (8 * i));
}

void PickleWriter::text(std::string_view value) {
  pickle_ += 'X';
  put_number(pickle_, value.size(), 4);
  pickle_ += value;
}

void PickleWriter::integers(std::span<const std::int64_t> values) {
  begin_tuple();
  for (const std::int64_t value : values) integer(value);
  end_tuple();
}

void PickleWriter::global(std::string_view module, std::string_view name) {
  pickle_ += 'c';
  pickle_ += module;
  pickle_ += '\n';
  pickle_ += name;
  pickle_ += '\n';
}

void PickleWriter::begin_object_of_state(std::string_view module, std::string_view name) {
  global(module, name);
  pickle_ += ")\x81";
}

void PickleWriter::begin_object(std::string_view module, std::string_view name) {
  begin_object_of_state(module, name);
  begin_dict();
}

const std::string& PickleWriter::finished() {
  pickle_ += '.';
  return pickle_;
}

}  // namespace piton
