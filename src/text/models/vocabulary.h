// Maps pieces to ids and back. Ids may have holes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace piton {

class PieceVocabulary {
 public:
  // The largest id that any file may name: a vocabulary above 16 M pieces is a broken file.
  static constexpr std::int64_t kMaxId = (1 << 24) - 1;
  // Largest piece in bytes. Real pieces have up to 256 (runs of spaces). The search for the parts
  // of a piece takes quadratic time, which would be hours for much longer pieces.
  static constexpr std::size_t kMaxPieceBytes = 1024;

  // The largest id that a file of `pieces` pieces may name. Holes take memory: a file of one line
  // must not allocate a gigabyte.
  static std::int64_t largest_id(std::size_t pieces) {
    return std::min(kMaxId, std::max<std::int64_t>(1 << 20, 4 * static_cast<std::int64_t>(pieces)));
  }

  // Gives `piece` the id; the first of two equal pieces keeps its name. Asserts 0 <= id <= kMaxId.
  void add(std::string_view piece, std::int32_t id);

  // Adds the entries of a file. Throws Error(kData), beginning with `where`, if an id is out of
  // range.
  void add_all(const std::vector<std::pair<std::string, std::int32_t>>& entries,
               const std::string& where);

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
  // Number of pieces, without holes.
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
