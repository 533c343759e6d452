// Reads bytes as a file of records, for fuzzers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "data/records/block_reader.h"
#include "data/records/record_parser.h"
#include "fuzz/scratch_files.h"

namespace piton {

// Texts and places of bad records, one after another; "error" for a file that cannot be read.
inline std::string read_records(std::string_view bytes, InputFormat format,
                                std::vector<std::string> keys, std::int64_t block_bytes) {
  const std::string file = scratch_file("records", bytes);
  std::string seen;
  try {
    BlockReader reader({{file, static_cast<std::int64_t>(bytes.size()), format}},
                       {.columns = keys, .block_bytes = block_bytes, .max_record_bytes = 4096}, {});
    ParsedRecord record;
    std::string reason;
    while (auto block = reader.next()) {
      const auto parser = make_record_parser(*block->file, keys, SampleBy::kLine);
      for (std::size_t i = 0; i < records_of(*block, keys.size()); ++i) {
        switch (parser->parse(*block, i, record, reason)) {
          case Parsed::kRecord:
            for (const auto& texts : record.texts) {
              for (const auto text : texts) (seen += text) += '\0';
            }
            break;
          case Parsed::kBad: {
            const BadRecord bad = place_of(*block, i, keys.size());
            seen += "bad " + std::to_string(bad.line) + " " + std::to_string(bad.byte) + '\0';
            break;
          }
          case Parsed::kNothing:
            break;
        }
      }
      for (const BadRecord& bad : block->unusable)
        seen += "unusable " + std::to_string(bad.byte) + '\0';
    }
  } catch (const Error&) {
    // How far an unpacker comes before it sees the damage depends on how much it is asked for.
    seen = "error";
  }
  return seen;
}

}  // namespace piton
