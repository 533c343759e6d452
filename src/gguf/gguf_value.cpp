#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "gguf/gguf_header.h"
#include "gguf/kind_width.h"

namespace piton {
namespace {

// One number of a kind, from its bits.
std::int64_t integer_of(GgufKind kind, std::uint64_t bits) {
  switch (kind) {
    case GgufKind::kI8:
      return static_cast<std::int8_t>(bits);
    case GgufKind::kI16:
      return static_cast<std::int16_t>(bits);
    case GgufKind::kI32:
      return static_cast<std::int32_t>(bits);
    case GgufKind::kI64:
      return static_cast<std::int64_t>(bits);
    default: {
      constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
      return static_cast<std::int64_t>(std::min(bits, kMost));
    }
  }
}

// A float is shown by the shortest decimal number that rounds to it.
double number_of(GgufKind kind, std::uint64_t bits) {
  if (kind == GgufKind::kF64) return std::bit_cast<double>(bits);
  const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  return std::isfinite(value) ? std::stod(fmt::format("{}", value)) : double{value};
}

bool is_integer_kind(GgufKind kind) {
  return kind != GgufKind::kF32 && kind != GgufKind::kF64 && kind_width(kind) > 0 &&
         kind != GgufKind::kBool;
}

// The elements of a list of numbers, each through `convert`.
template <typename T, typename Convert>
std::vector<T> elements_of(const GgufValue& value, Convert convert) {
  const auto width = static_cast<std::size_t>(kind_width(value.element));
  std::vector<T> elements;
  for (std::size_t at = 0; at + width <= value.text.size(); at += width) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, value.text.data() + at, width);
    elements.push_back(convert(value.element, bits));
  }
  return elements;
}

template <typename T>
GgufValue list_of(GgufKind element, std::span<const T> values) {
  GgufValue value{.kind = GgufKind::kArray, .element = element};
  value.text.assign(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  return value;
}

}  // namespace

GgufValue GgufValue::u32(std::int64_t value) {
  PITON_ASSERT(value >= 0 && value <= std::numeric_limits<std::uint32_t>::max(), "{}", value);
  return {.kind = GgufKind::kU32, .bits = static_cast<std::uint64_t>(value)};
}

GgufValue GgufValue::f32(double value) {
  return {.kind = GgufKind::kF32, .bits = std::bit_cast<std::uint32_t>(static_cast<float>(value))};
}

GgufValue GgufValue::boolean(bool value) {
  return {.kind = GgufKind::kBool, .bits = value ? 1U : 0U};
}

GgufValue GgufValue::string(std::string value) {
  return {.kind = GgufKind::kString, .text = std::move(value)};
}

GgufValue GgufValue::strings(std::vector<std::string> values) {
  return {.kind = GgufKind::kArray, .element = GgufKind::kString, .texts = std::move(values)};
}

GgufValue GgufValue::numbers(std::span<const float> values) {
  return list_of(GgufKind::kF32, values);
}

GgufValue GgufValue::numbers(std::span<const std::int32_t> values) {
  return list_of(GgufKind::kI32, values);
}

GgufValue GgufValue::bytes(std::string values) {
  return {.kind = GgufKind::kArray, .element = GgufKind::kU8, .text = std::move(values)};
}

bool GgufValue::is_integer() const { return is_integer_kind(kind); }

bool GgufValue::is_number() const { return kind == GgufKind::kF32 || kind == GgufKind::kF64; }

std::int64_t GgufValue::integer() const { return integer_of(kind, bits); }

double GgufValue::number() const { return number_of(kind, bits); }

std::int64_t GgufValue::count() const {
  if (kind != GgufKind::kArray) return 0;
  if (element == GgufKind::kString) return std::ssize(texts);
  return std::ssize(text) / kind_width(element);
}

std::vector<std::int64_t> GgufValue::integers() const {
  if (kind != GgufKind::kArray || !is_integer_kind(element)) return {};
  return elements_of<std::int64_t>(*this, integer_of);
}

std::vector<bool> GgufValue::flags() const {
  std::vector<bool> flags;
  if (kind == GgufKind::kArray && element == GgufKind::kBool) {
    for (const char flag : text) flags.push_back(flag != 0);
  }
  for (const std::int64_t flag : integers()) flags.push_back(flag != 0);
  return flags;
}

std::vector<double> GgufValue::numbers() const {
  if (kind != GgufKind::kArray || (element != GgufKind::kF32 && element != GgufKind::kF64))
    return {};
  return elements_of<double>(*this, number_of);
}

}  // namespace piton
