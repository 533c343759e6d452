#include "gguf/gguf_keys.h"

#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

const GgufValue* find_key(const std::vector<GgufEntry>& entries, const std::string& key) {
  for (const GgufEntry& entry : entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

std::string shown(const GgufValue* value) {
  if (value == nullptr) return "nothing";
  if (value->is_integer()) return fmt::format("{}", value->integer());
  if (value->is_number()) return fmt::format("{}", value->number());
  if (value->kind == GgufKind::kBool) return value->truth() ? "true" : "false";
  if (value->kind == GgufKind::kString) return fmt::format("\"{}\"", value->text.substr(0, 60));
  return "a list";
}

}  // namespace

void GgufDescription::add(const std::string& key, GgufValue value) {
  entries.push_back({architecture + "." + key, std::move(value)});
}

GgufKeys::GgufKeys(const GgufDescription& description, std::string where)
    : description_(description), where_(std::move(where)) {}

const GgufValue* GgufKeys::find(const std::string& key) const {
  return find_key(description_.entries, description_.architecture + "." + key);
}

const GgufValue* GgufKeys::find_own(const std::string& key) const {
  return find_key(description_.entries, key);
}

void GgufKeys::refuse(const std::string& key, const std::string& wanted) const {
  throw Error(Fault::kData, "{}: {}.{}: got {}, wanted {}", where_, description_.architecture, key,
              shown(find(key)), wanted);
}

std::int64_t GgufKeys::integer(const std::string& key, std::int64_t least,
                               const std::string& wanted,
                               std::optional<std::int64_t> otherwise) const {
  const GgufValue* value = find(key);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr || !value->is_integer() || value->integer() < least ||
      value->integer() > std::numeric_limits<std::int32_t>::max())
    refuse(key, wanted);
  return value->integer();
}

std::int64_t GgufKeys::size(const std::string& key, std::optional<std::int64_t> otherwise) const {
  return integer(key, 1, "a positive integer below 2^31", otherwise);
}

std::int64_t GgufKeys::count(const std::string& key, std::optional<std::int64_t> otherwise) const {
  return integer(key, 0, "an integer from 0 on, below 2^31", otherwise);
}

double GgufKeys::number(const std::string& key, std::optional<double> otherwise) const {
  const GgufValue* value = find(key);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr || !value->is_number() || !std::isfinite(value->number()))
    refuse(key, "a number");
  return value->number();
}

bool GgufKeys::flag(const std::string& key, bool otherwise) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return otherwise;
  if (value->kind != GgufKind::kBool) refuse(key, "true or false");
  return value->truth();
}

std::string GgufKeys::word(const std::string& key, const std::string& otherwise) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return otherwise;
  if (value->kind != GgufKind::kString) refuse(key, "a word");
  return value->text;
}

}  // namespace piton
