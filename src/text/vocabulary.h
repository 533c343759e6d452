// Pieces and their ids, both ways. Ids may have holes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace piton {

class Vocabulary {
 public:
  // The largest id that a file may name: a vocabulary of 16 M pieces is a broken file.
  static constexpr std::int64_t kMaxId = (1 << 24) - 1;

  // Gives `piece` the id; the first of two equal pieces keeps its name. Asserts 0 <= id <= kMaxId.
  void add(std::string_view piece, std::int32_t id);

  std::optional<std::int32_t> id_of(std::string_view piece) const {
    const auto found = ids_.find(piece);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
  }
  // "" for a hole.
  const std::string& piece(std::int32_t id) const;
  bool has(std::int32_t id) const;

  // One more than the largest id.
  std::int64_t size() const { return static_cast<std::int64_t>(pieces_.size()); }
  // Pieces, holes apart.
  std::int64_t count() const { return static_cast<std::int64_t>(ids_.size()); }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };
  std::vector<std::string> pieces_;
  std::vector<bool> present_;
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;
  std::string hole_;
};

}  // namespace piton
