// libraries: piton_huggingface
// Any bytes as the quantization_config of a folder, the names, types and shapes of its tensors, and
// what they hold: an Error, or matrices whose rows are read or refused, of any method; of
// compressed-tensors also a scheme that is written and read again to the same. The three parts end
// with a zero byte.
#include <cstdint>

#include "base/error.h"
#include "base/json.h"
#include "fuzz/scratch_files.h"
#include "huggingface/files/compressed_tensors.h"
#include "huggingface/files/quantized_tensors.h"

namespace {

constexpr std::int64_t kMostColumns = 4096;  // of rows that are read

// A list of [name, type, [sizes]], all of the same bytes. Empty for anything else.
std::map<std::string, piton::HfTensor> tensors_of(std::string_view text,
                                                  const piton::RegularFile& file) {
  std::map<std::string, piton::HfTensor> tensors;
  const auto json = piton::read_json_or_discarded<nlohmann::ordered_json>(text);
  if (!json.is_array()) return tensors;
  for (const auto& one : json) {
    if (!one.is_array() || one.size() != 3 || !one[0].is_string() || !one[1].is_string() ||
        !one[2].is_array())
      continue;
    piton::HfTensor tensor{
        .file = &file, .name = one[0].get<std::string>(), .dtype = one[1].get<std::string>()};
    for (const auto& size : one[2]) {
      // Those of a file are smaller than the file.
      if (size.is_number_integer() && size >= 0 && size < (std::int64_t{1} << 40))
        tensor.shape.push_back(size.get<std::int64_t>());
    }
    tensors[tensor.name] = tensor;
  }
  return tensors;
}

void read_rows(const piton::CompressedMatrix& matrix) {
  PITON_ASSERT(matrix.rows > 0 && matrix.columns > 0 &&
               matrix.zeros.has_value() == !matrix.scheme.format.symmetric);
  if (matrix.columns > kMostColumns) return;
  const piton::CodedRowBuffer row(*matrix.format(), matrix.columns);
  for (const std::int64_t index : {std::int64_t{0}, matrix.rows - 1})
    matrix.read_codes({index, 0, matrix.columns}, row.row());
}

void read_any_method(const std::string& config, std::map<std::string, piton::HfTensor> named) {
  for (const auto& [name, matrix] : piton::take_quantized({config, "config.json"}, named)) {
    PITON_ASSERT(matrix->rows > 0 && matrix->columns > 0);
    if (matrix->columns > kMostColumns) continue;
    std::vector<float> values(static_cast<std::size_t>(matrix->columns));
    for (const std::int64_t index : {std::int64_t{0}, matrix->rows - 1})
      matrix->read_values(index, values);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string config(piton::take_part(bytes));
  const std::string names(piton::take_part(bytes));
  try {
    const piton::RegularFile file(piton::scratch_file("tensors", bytes));
    std::map<std::string, piton::HfTensor> named = tensors_of(names, file);
    read_any_method(config, named);
    if (piton::HfConfig(config, "config.json")
            .object(piton::kQuantizationKey)
            .word("quant_method", "") != "compressed-tensors")
      return 0;
    const auto scheme = piton::compressed_scheme({config, "config.json"});
    if (!scheme) return 0;
    nlohmann::ordered_json written;
    written[piton::kQuantizationKey] = piton::quantization_config(scheme->format, {"lm_head"});
    const auto again = piton::compressed_scheme({written.dump(), "written"});
    PITON_ASSERT(again && again->packed && again->format == scheme->format);
    for (const auto& [name, matrix] : piton::take_compressed(*scheme, named)) read_rows(matrix);
  } catch (const piton::Error& error) {
    PITON_ASSERT(error.fault() == piton::Fault::kData);
  }
  return 0;
}
