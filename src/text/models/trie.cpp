#include "text/models/trie.h"

#include "base/error.h"

namespace piton {

void Trie::add(std::string_view key, std::int32_t value) {
  PITON_ASSERT(value >= 0);
  std::int32_t node = kRoot;
  std::uint64_t name = 0;  // of the last step
  for (const char byte : key) {
    std::int32_t next = step(node, byte);
    name = key_of(node, byte);
    if (next == kNone) {
      if (values_.size() * 2 > slots_.size()) grow();
      next = static_cast<std::int32_t>(values_.size());
      values_.push_back(kNone);
      std::uint64_t slot = place(name);
      while (slots_[slot].key != 0) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = {name, {next, kNone}};
      if (node == kRoot) first_[static_cast<unsigned char>(byte)] = next;
    }
    node = next;
  }
  std::int32_t& stored = values_[static_cast<std::size_t>(node)];
  if (stored != kNone) return;
  stored = value;
  if (key.empty()) return;
  std::uint64_t slot = place(name);
  while (slots_[slot].key != name) slot = (slot + 1) & (slots_.size() - 1);
  slots_[slot].to.value = value;
}

void Trie::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& entry : old) {
    if (entry.key == 0) continue;
    std::uint64_t slot = place(entry.key);
    while (slots_[slot].key != 0) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = entry;
  }
}

}  // namespace piton
