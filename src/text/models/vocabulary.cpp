#include "text/models/vocabulary.h"

#include "base/error.h"

namespace piton {

void PieceVocabulary::add(std::string_view piece, std::int32_t id) {
  PITON_ASSERT(id >= 0 && id <= kMaxId);
  const auto place = static_cast<std::size_t>(id);
  if (place >= pieces_.size()) {
    pieces_.resize(place + 1);
    present_.resize(place + 1, false);
  }
  pieces_[place] = piece;
  present_[place] = true;
  ids_.emplace(piece, id);
}

void PieceVocabulary::add_all(const std::vector<std::pair<std::string, std::int32_t>>& entries,
                              const std::string& where) {
  const std::int64_t largest = largest_id(entries.size());
  for (const auto& [piece, id] : entries) {
    if (id < 0 || id > largest) {
      throw Error(
          Fault::kData,
          "{}: vocabulary: the id of \"{}\" is out of range: got {}, wanted 0 .. {}; is the "
          "file damaged?",
          where, piece, id, largest);
    }
    add(piece, id);
  }
}

const std::string& PieceVocabulary::piece(std::int32_t id) const {
  return has(id) ? pieces_[static_cast<std::size_t>(id)] : hole_;
}

bool PieceVocabulary::has(std::int32_t id) const {
  return id >= 0 && static_cast<std::size_t>(id) < pieces_.size() &&
         present_[static_cast<std::size_t>(id)];
}

}  // namespace piton
