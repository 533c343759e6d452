// libraries: piton_data_samples
// Instruction data of any masks and labels: refused with an Error, or samples of the asked length
// whose padding and texts are apart. First byte: options; then the lengths of the samples up to a
// zero byte; then their masks and labels.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "data/samples/instruction_dataset.h"
#include "data/samples/packed_samples.h"
#include "fuzz/scratch_files.h"

namespace {

// Negative too: -100 is a label.
std::int32_t take_value(std::string_view& bytes) {
  if (bytes.empty()) return 1;
  const auto value = static_cast<signed char>(bytes.front());
  bytes.remove_prefix(1);
  return value;
}

void write(const std::string& prefix, std::string_view lengths, std::string_view& values) {
  std::filesystem::remove(prefix + ".bin");
  std::filesystem::remove(prefix + ".idx");
  piton::IndexedWriter writer(prefix, piton::IdType::kInt32);
  for (const char length : lengths) {
    std::vector<std::int32_t> ids(static_cast<unsigned char>(length) % 24);
    for (std::int32_t& id : ids) id = take_value(values);
    writer.add_sequence(ids);
    writer.end_document();
  }
  writer.finish();
}

void check(const piton::SampleSource& source) {
  piton::Sample sample;
  for (std::int64_t i = 0; i < source.size(); ++i) {
    source.sample(i, sample);
    const auto length = static_cast<std::size_t>(source.sequence());
    if (sample.tokens.size() != length || sample.labels.size() != length ||
        sample.positions.size() != length || sample.length > source.longest(i)) {
      std::abort();
    }
    for (std::size_t k = 0; k < sample.segments.size(); ++k) {
      const bool padding = sample.segments[k] == piton::kPaddingSegment;
      if (padding && sample.labels[k] != piton::kNoLabel) std::abort();
      if (k > 0 && sample.segments[k] != sample.segments[k - 1] && sample.positions[k] != 0) {
        std::abort();
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view lengths = piton::take_part(rest).substr(0, 16);
  const std::string prefix = (piton::scratch_folder() / "talk").string();
  std::string_view ids = "some ids";
  const auto names = piton::InstructionFiles::prefixes(prefix);
  write(names[0], lengths, ids);
  write(names[1], (data[0] & 4U) != 0 ? lengths.substr(0, 3) : lengths, rest);
  write(names[2], lengths, rest);
  try {
    std::array<std::shared_ptr<const piton::IndexedDataset>, 3> three;
    for (std::size_t i = 0; i < 3; ++i) {
      three[i] = std::make_shared<piton::IndexedDataset>(piton::IndexedDataset::open(names[i]));
    }
    const auto files = std::make_shared<piton::InstructionFiles>(prefix, three);
    if (files->lengths.empty()) return 0;
    const auto samples = std::make_shared<piton::InstructionDataset>(
        files, piton::InstructionRules{.sequence = 12, .pad = 7, .neat_pack = (data[0] & 1U) != 0},
        piton::InstructionOrder{.end = files->ids->sequences()});
    check(*samples);
    check(piton::PackedSamples(samples, {}));
  } catch (const piton::Error&) {
  }
  return 0;
}
