// The checks of a whole token index (IndexedDataset::Check::kWhole).
#include <algorithm>
#include <vector>

#include "base/error.h"
#include "data/corpus/indexed_dataset.h"

namespace piton {

void IndexedDataset::check_arrays() const {
  check_sequences();
  check_documents();
}

// Files are seldom wrong: a pass without branches, and another one for the message.
void IndexedDataset::check_sequences() const {
  const auto width = static_cast<std::uint64_t>(bytes_of(type_));
  const auto most = static_cast<std::size_t>(std::min(kBlock, sequences_));
  std::vector<std::int32_t> lengths(most);
  std::vector<std::int64_t> pointers(most);
  std::uint64_t pointer = 0;
  for (std::int64_t first = 0; first < sequences_; first += kBlock) {
    const auto count = static_cast<std::size_t>(std::min(kBlock, sequences_ - first));
    const SequenceBlock block{.first = first,
                              .pointer = static_cast<std::int64_t>(pointer),
                              .lengths = std::span(lengths).first(count),
                              .pointers = std::span(pointers).first(count)};
    read_lengths(first, std::span(lengths).first(count));
    read_index(pointers_ + 8 * first, std::as_writable_bytes(std::span(pointers).first(count)));
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto length = static_cast<std::uint64_t>(std::int64_t{lengths[i]});
      wrong |= (static_cast<std::uint64_t>(pointers[i]) ^ pointer) | (length >> 63);
      pointer += length * width;
    }
    if (wrong != 0 || pointer > static_cast<std::uint64_t>(ids_.size_bytes())) refuse(block);
  }
}

void IndexedDataset::refuse(const SequenceBlock& block) const {
  const std::string file = index_.path().string();
  const std::int64_t ids_bytes = ids_.size_bytes();
  std::int64_t pointer = block.pointer;
  for (std::size_t at = 0; at < block.lengths.size(); ++at) {
    const std::int64_t i = block.first + static_cast<std::int64_t>(at);
    const std::int64_t length = block.lengths[at];
    const std::int64_t start = block.pointers[at];
    if (length < 0) {
      throw Error(Fault::kData,
                  "{}: byte {}: sequence {} has a negative length: got {}; the file is damaged, "
                  "copy it again",
                  file, lengths_ + 4 * i, i, length);
    }
    if (start != pointer) {
      throw Error(Fault::kData,
                  "{}: byte {}: sequence {} starts at byte {} of the ids, wanted {}, the end of "
                  "the one before; the file is damaged, copy it again",
                  file, pointers_ + 8 * i, i, start, pointer);
    }
    // Stays below ids_bytes + 2^34, so the sum cannot wrap.
    pointer += length * bytes_of(type_);
    if (pointer > ids_bytes) {
      throw Error(Fault::kData,
                  "{}: byte {}: sequence {} ends at byte {} of the ids, which have {}; copy both "
                  "files again",
                  file, lengths_ + 4 * i, i, pointer, ids_bytes);
    }
  }
  assertion_failed("wrong sequence", fmt::format("{}: none from {} on", file, block.first));
}

void IndexedDataset::check_documents() const {
  std::int64_t before = 0;
  for (std::int64_t first = 0; first < boundaries_; first += kBlock) {
    const std::int64_t count = std::min(kBlock, boundaries_ - first);
    const std::vector<std::int64_t> starts = document_starts(first, count);
    for (std::int64_t i = first; i < first + count; ++i) {
      const std::int64_t start = starts[static_cast<std::size_t>(i - first)];
      const bool last = i == boundaries_ - 1;
      if ((i == 0 && start != 0) || start < before || start > sequences_ ||
          (last && start != sequences_)) {
        throw Error(Fault::kData,
                    "{}: byte {}: document boundary {} of {} is {}; wanted 0 first, {} last and "
                    "none below the one before ({}); the file is damaged, copy it again",
                    index_.path().string(), documents_ + 8 * i, i, boundaries_, start, sequences_,
                    before);
      }
      before = start;
    }
  }
}

}  // namespace piton
