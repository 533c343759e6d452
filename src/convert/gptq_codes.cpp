// Quantizes a model by GPTQ, a layer at a time.
#include <algorithm>
#include <cstring>
#include <functional>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "codes/gptq.h"
#include "convert/coded_weights.h"
#include "convert/layer_walk.h"
#include "data/records/byte_stream.h"
#include "data/records/whole_text.h"
#include "device/host_device.h"
#include "tensor/arena.h"

namespace piton {
namespace {

constexpr std::string_view kCodesEnd = ".codes";
constexpr std::string_view kScalesEnd = ".scales";
constexpr std::string_view kZerosEnd = ".zeros";

// One document after the other.
std::vector<std::string> calibration_texts(const std::string& path) {
  const std::string text = read_whole_text(path);
  if (!unpacked_name(path).ends_with(".jsonl")) return {text};
  std::vector<std::string> texts;
  std::istringstream lines(text);
  std::int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto record = read_json_or_discarded<nlohmann::json>(line);
    if (!record.is_object() || !record.contains("text") || !record["text"].is_string()) {
      throw Error(Fault::kData, "{}: line {}: wanted a JSON object with a text under \"text\"",
                  path, number);
    }
    texts.push_back(record["text"].get<std::string>());
  }
  return texts;
}

}  // namespace

std::vector<std::vector<std::int32_t>> calibration_samples(const CodedWeights& wanted,
                                                           const Tokenizer& tokenizer,
                                                           const ModelConfig& model) {
  const std::int64_t length = std::min(wanted.length, model.longest_sequence());
  std::vector<std::vector<std::int32_t>> samples;
  const auto most = static_cast<std::size_t>(wanted.samples);
  for (const std::string& text : calibration_texts(wanted.calibration)) {
    const std::vector<std::int32_t> ids = tokenizer.encode(text, {.add_special_tokens = true});
    for (std::size_t begin = 0; begin < ids.size() && samples.size() < most;
         begin += static_cast<std::size_t>(length)) {
      const std::size_t end = std::min(ids.size(), begin + static_cast<std::size_t>(length));
      samples.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                           ids.begin() + static_cast<std::ptrdiff_t>(end));
    }
  }
  if (samples.empty()) {
    throw Error(Fault::kData, "--calibration: {} has no token; wanted a text", wanted.calibration);
  }
  return samples;
}

// Sums of x^T x of a layer, for the matrices that read the same inputs x.
struct GptqCodes::Squares {
  struct Of {
    std::vector<std::string> matrices;  // canonical names of the pieces
    Tensor sums;                        // fp32 [in, in]
  };
  std::map<std::string, Of> by_parameter;
};

GptqCodes::GptqCodes(TensorSource& model, const CodedWeights& wanted, const Work& work)
    : CodedSource(model, wanted.format) {
  PITON_ASSERT(!wanted.format.whole_tensor);
  Mesh mesh(work.machine.world, MeshSizes{});
  LayerWalk walk(work.machine, mesh, work.model, work.samples);
  ThrottledProgress shown(work.progress, walk.chunks());
  const auto what = [] { return std::string("quantizing layers"); };
  shown.at(0, what);
  for (int layer = 0; layer < walk.chunks(); ++layer) {
    {
      Squares squares;
      walk.run(layer, *this,
               [&](const Parameter& matrix, const Tensor& x, Kernels& kernels, Stream& stream) {
                 const bool is_coded = std::ranges::all_of(matrix.pieces, [&](const Piece& piece) {
                   return matrices_.contains(piece.name);
                 });
                 if (!is_coded) return;
                 auto [found, is_new] = squares.by_parameter.try_emplace(matrix.name);
                 if (is_new) {
                   for (const Piece& piece : matrix.pieces)
                     found->second.matrices.push_back(piece.name);
                   found->second.sums = host_tensor(DType::kF32, {x.dim(1), x.dim(1)});
                   std::memset(found->second.sums.raw(), 0,
                               static_cast<std::size_t>(found->second.sums.bytes()));
                 }
                 kernels.run(LinearBackwardWeight{.dweight = found->second.sums, .dy = x, .x = x},
                             stream);
               });
      quantize_layer(squares, wanted, work);
    }
    if (layer + 1 < walk.chunks()) walk.run(layer, *this);
    shown.at(layer + 1, what);
  }
  work.progress.finish();
  PITON_ASSERT(file_of_.size() == matrices_.size(), "{} of {} matrices were seen", file_of_.size(),
               matrices_.size());
}

void GptqCodes::quantize_layer(const Squares& squares, const CodedWeights& wanted,
                               const Work& work) {
  ThreadPool& threads = work.machine.threads;
  Arena arena(work.machine.device);
  std::map<std::string, Tensor> written;
  std::vector<std::string> names;
  for (const auto& [parameter, of] : squares.by_parameter) {
    const std::int64_t in = of.sums.dim(0);
    const GptqFactor factor(std::span(of.sums.data<float>(), static_cast<std::size_t>(in * in)), in,
                            wanted.damping, parameter, threads);
    for (const std::string& name : of.matrices) {
      const Shape& shape = matrices_.at(name);
      std::vector<float> values(static_cast<std::size_t>(shape.elements()));
      model_.read(name, whole_run(shape), DType::kF32, reinterpret_cast<std::byte*>(values.data()));
      const WeightCodes codes = allocate_codes(held_format(format_), shape[0], shape[1], arena);
      gptq(format_, factor, {name, values, codes}, threads);
      written[name + std::string(kCodesEnd)] = codes.codes;
      written[name + std::string(kScalesEnd)] = codes.scales;
      if (codes.zeros.defined()) written[name + std::string(kZerosEnd)] = codes.zeros;
      names.push_back(name);
    }
  }
  const std::filesystem::path path = work.folder / fmt::format("{:05}.safetensors", files_.size());
  write_safetensors(path, written);
  files_.push_back(std::make_unique<SafetensorsFile>(path));
  for (const std::string& name : names) file_of_[name] = files_.back().get();
}

std::optional<CodeFormat> GptqCodes::stored_format(const std::string& name) const {
  if (!file_of_.contains(name)) return std::nullopt;
  return held_format(format_);
}

void GptqCodes::read_codes(const std::string& name, const StoredRow& row, const CodedRow& to) {
  const Shape& shape = matrices_.at(name);
  PITON_ASSERT(row.columns == shape[1], "{}: a part of a row", name);
  const SafetensorsFile& file = *file_of_.at(name);
  const auto read = [&](std::string_view end, std::byte* bytes, std::int64_t count) {
    const SafetensorsEntry& entry = *file.find(name + std::string(end));
    file.file().read_at(file.offset(entry) + row.row * count,
                        {bytes, static_cast<std::size_t>(count)});
  };
  const std::int64_t groups = format_.group == 0 ? 1 : shape[1] / format_.group;
  read(kCodesEnd, to.codes, code_bytes(code_kind(held_format(format_)), shape[1]));
  read(kScalesEnd, to.scales, groups * 4);
  if (to.zeros != nullptr) read(kZerosEnd, reinterpret_cast<std::byte*>(to.zeros), groups * 4);
}

}  // namespace piton
