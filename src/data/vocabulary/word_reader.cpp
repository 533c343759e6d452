#include "data/vocabulary/word_reader.h"

#include <utility>

namespace piton {

BlockSummary WordReader::read(RecordBlock& block) {
  BlockSummary summary{.consumed_bytes = block.consumed_bytes};
  if (file_ != block.file) {
    file_ = block.file;
    parser_ = make_record_parser(*file_, keys_, sample_by_);
  }
  for (std::size_t i = 0; i < records_of(block, keys_.size()); ++i) {
    std::string reason;
    const Parsed parsed = parser_->parse(block, i, record_, reason);
    if (parsed == Parsed::kBad) {
      BadRecord& bad = summary.bad.emplace_back(place_of(block, i, keys_.size()));
      bad.reason = std::move(reason);
    }
    if (parsed != Parsed::kRecord) continue;
    ++summary.documents;
    for (const auto& texts : record_.texts) {
      for (const std::string_view text : texts) {
        summary.text_bytes += static_cast<std::int64_t>(text.size());
        cutter_->cut(text, scratch_, [&](std::string_view word) { counts_.add(word); });
      }
    }
  }
  for (BadRecord& bad : block.unusable) summary.bad.push_back(std::move(bad));
  return summary;
}

}  // namespace piton
