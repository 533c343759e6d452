#include "convert/coded_weights.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/files/files.h"
#include "huggingface/config_keys.h"
#include "huggingface/files/quantized_matrix.h"
#include "huggingface/label_head.h"
#include "nn/expert_mlp.h"

namespace piton {

bool is_coded_matrix(const CanonicalTensor& tensor) {
  return tensor.shape.ndim() == 2 && tensor.name.starts_with("layers.") &&
         !is_router_tensor(tensor.name);
}

CodedSource::CodedSource(TensorSource& model, const IntegerFormat& format)
    : model_(model), format_(format) {
  for (const CanonicalTensor& one : model.tensors(TensorKind::kWeight)) {
    if (!is_coded_matrix(one)) continue;
    if (format.group > 0 && one.shape[1] % format.group != 0) {
      throw Error(Fault::kUsage,
                  "--group-size: {} does not divide the {} columns of {}; wanted a divisor, or "
                  "--granularity channel",
                  format.group, one.shape[1], one.name);
    }
    matrices_[one.name] = one.shape;
  }
}

// Values of codes are those of the scales, in fp32.
std::vector<CanonicalTensor> CodedSource::tensors(TensorKind kind) const {
  std::vector<CanonicalTensor> list = model_.tensors(kind);
  for (CanonicalTensor& one : list) {
    if (matrices_.contains(one.name)) one.dtype = DType::kF32;
  }
  return list;
}

void CodedSource::read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) {
  if (!stored_format(name)) return model_.read(name, run, dtype, dst);
  read_coded(*this, {name, matrices_.at(name)}, run, dtype, dst);
}

std::optional<CodeFormat> CodedSource::stored_format(const std::string& name) const {
  if (!matrices_.contains(name)) return std::nullopt;
  return held_format(format_);
}

NearestCodes::NearestCodes(TensorSource& model, const IntegerFormat& format,
                           std::vector<HfPlace> places)
    : CodedSource(model, format), places_(std::move(places)) {}

void NearestCodes::read_row(const std::string& name, const StoredRow& row,
                            std::vector<float>& values) {
  values.resize(static_cast<std::size_t>(row.columns));
  model_.read(name, {{row.row, row.column}, {1, row.columns}, 0, row.columns}, DType::kF32,
              reinterpret_cast<std::byte*>(values.data()));
}

const IntegerScale& NearestCodes::scale_of_tensor(const std::string& name) {
  const auto place = std::ranges::find(places_, name, &HfPlace::canonical);
  PITON_ASSERT(place != places_.end(), "{} has no place", name);
  const auto [found, is_new] = scales_.try_emplace(place->name);
  if (!is_new) return found->second;
  ValueRange range;
  for (const HfPlace& part : places_) {
    if (part.name != place->name) continue;
    const Shape& shape = matrices_.at(part.canonical);
    for (std::int64_t row = 0; row < shape[0]; ++row) {
      read_row(part.canonical, {row, 0, shape[1]}, values_);
      range.add(ValueRange::of(values_));
    }
  }
  found->second = integer_scale(format_, range);
  if (!std::isfinite(found->second.scale)) refuse_scale(name);
  return found->second;
}

void NearestCodes::read_codes(const std::string& name, const StoredRow& row, const CodedRow& to) {
  PITON_ASSERT(row.columns == matrices_.at(name)[1], "{}: a part of a row", name);
  if (format_.whole_tensor) {
    const IntegerScale scale = scale_of_tensor(name);
    read_row(name, row, values_);
    return encode_integers(format_, scale, values_, to);
  }
  read_row(name, row, values_);
  encode_integers(format_, values_, to, name);
}

namespace {

// Other programs expect scales in the type of the model.
DType scale_dtype_of(const TensorSource& source) {
  for (const CanonicalTensor& one : source.tensors(TensorKind::kWeight)) {
    if (!is_coded_matrix(one)) continue;
    return one.dtype == DType::kBF16 || one.dtype == DType::kF16 ? one.dtype : DType::kF32;
  }
  return DType::kF32;
}

// Throws Error(kUsage) for a model that cannot be coded.
std::vector<HfPlace> coded_places(const OpenedModel& from, const CodedWeights& wanted) {
  if (wanted.gptq && from.model.experts) {
    throw Error(Fault::kUsage,
                "--method gptq: {} is a mixture of experts, which only --method rtn quantizes yet",
                from.source->where());
  }
  const HfFamily family = hf_config_of(from.model, from.origin).family;
  std::vector<HfPlace> places = hf_places(family, from.model);
  for (const HfPlace& place : places) {
    if (!place.transposed) continue;
    throw Error(Fault::kUsage,
                "quantize: {}: {} is stored transposed in Hugging Face folders, which have no "
                "layout of codes for that; wanted --save NAME.gguf with --weights q8_0 or q4_k",
                from.source->where(), place.name);
  }
  return places;
}

std::vector<std::vector<std::int32_t>> samples_of(const OpenedModel& from,
                                                  const CodedWeights& wanted) {
  const std::unique_ptr<Tokenizer> tokenizer =
      wanted.tokenizer.empty() ? open_tokenizer_of(from) : open_tokenizer(wanted.tokenizer);
  if (!tokenizer) {
    throw Error(Fault::kUsage, "--calibration: {} has no tokenizer; name one by --tokenizer-type",
                from.source->where());
  }
  check_rows_for(*tokenizer, from.model, from.source->where());
  return calibration_samples(wanted, *tokenizer, from.model);
}

}  // namespace

std::unique_ptr<CodedSource> make_coded(const CodedModel& model, CodedWeights& wanted) {
  const OpenedModel& from = model.from;
  std::vector<HfPlace> places = coded_places(from, wanted);
  wanted.format.scale = scale_dtype_of(*from.source);
  if (!wanted.gptq)
    return std::make_unique<NearestCodes>(*from.source, wanted.format, std::move(places));
  const auto samples = samples_of(from, wanted);
  create_folders(model.folder);
  return std::make_unique<GptqCodes>(
      *from.source, wanted,
      GptqCodes::Work{model.machine, from.model, samples, model.folder, model.progress});
}

void check_coded(const OpenedModel& from, const CodedWeights& wanted) {
  static_cast<void>(NearestCodes(*from.source, wanted.format, coded_places(from, wanted)));
  if (wanted.gptq) static_cast<void>(samples_of(from, wanted));
}

}  // namespace piton
