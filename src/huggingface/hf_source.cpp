#include "huggingface/hf_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/listed.h"
#include "checkpoint/file_tensor.h"
#include "checkpoint/manifest.h"
#include "checkpoint/values.h"
#include "huggingface/family.h"
#include "huggingface/files/quantized_tensors.h"
#include "huggingface/label_head.h"
#include "huggingface/places.h"
#include "huggingface/read_place.h"
#include "model/canonical_tensors.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHead = "head.weight";
constexpr const char* kTable = "embedding.token.weight";

std::string text_of(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

bool is_of_language_model(const std::string& name) {
  return name.starts_with("model.layers.") || name.starts_with("model.embed_tokens.") ||
         name.starts_with("model.norm.") || name.starts_with("lm_head.") ||
         name.starts_with("mtp.");
}

HfConfig read_config(const fs::path& folder) {
  check_huggingface_link(folder / "config.json", folder);
  return HfConfig::read(folder);
}

}  // namespace

std::string name_in_language_model(const std::string& name) {
  constexpr std::pair<std::string_view, std::string_view> kBeginnings[] = {
      {"model.language_model.", "model."},
      {"language_model.model.", "model."},
      {"language_model.lm_head.", "lm_head."}};
  for (const auto& [theirs, ours] : kBeginnings) {
    if (name.starts_with(theirs)) return std::string(ours) + name.substr(theirs.size());
  }
  return name;
}

bool is_huggingface_folder(const fs::path& folder) {
  std::error_code ignored;
  return (fs::exists(folder / "config.json", ignored) || has_huggingface_weights(folder)) &&
         !fs::exists(folder / kManifestName, ignored) &&
         !fs::exists(folder / kTrackerName, ignored);
}

HfSource::HfSource(const fs::path& folder)
    : config_(read_config(folder)),
      family_(hf_family(config_)),
      files_(folder),
      model_(hf_model(config_)) {
  if (model_.encoder && !model_.encoder->word_head &&
      model_.labels == 0)  // config.json does not say it
    model_.encoder->pooler = files_.tensors().contains("pooler.dense.weight");
  check_layers(model_, std::ssize(files_.tensors()), config_.where());
  if (!config_.has(family_.later_layers) && !model_.has_states(model_.layers - 1))
    model_.mtp_layers = family_.uncounted_later_layers;
  model_.mtp_layers = stored_later_layers();
  check_tensors(places_in_files());
  decide_head();
  if (config_.is_language_part())
    notes_.push_back(
        fmt::format("{}: the language model is read, without its vision part", where()));
}

// How many of the layers that predict later tokens, which config.json counts, the files have.
std::int64_t HfSource::stored_later_layers() const {
  if (model_.mtp_layers == 0) return 0;
  std::map<std::string, std::string> names;  // of norms of tokens
  for (const HfPlace& place : hf_places(family_, model_)) {
    if (place.canonical.ends_with(".token_norm.weight")) names[place.canonical] = place.name;
  }
  std::int64_t found = 0;
  while (found < model_.mtp_layers &&
         files_.tensors().contains(names.at(fmt::format("mtp.layers.{}.token_norm.weight", found))))
    ++found;
  return found;
}

// Adds the prefix that some versions of a family leave out of names.
std::map<std::string, HfTensor> HfSource::family_tensors() const {
  const std::string& prefix = family_.optional_prefix;
  std::map<std::string, HfTensor> named;
  for (const auto& [stored, tensor] : files_.tensors()) {
    const std::string name = config_.is_language_part() ? name_in_language_model(stored) : stored;
    const bool whole = prefix.empty() || name.starts_with(prefix) || name.starts_with("lm_head.") ||
                       name.starts_with("score.");
    std::string full = whole ? name : prefix + name;
    for (const auto& [older, newer] : family_.older_ends) {
      if (full.ends_with(older)) full.replace(full.size() - older.size(), older.size(), newer);
    }
    if (!named.try_emplace(full, tensor).second) {
      throw Error(Fault::kData, "{}: {} is there twice, with and without \"{}\"", where(), full,
                  prefix);
    }
  }
  return named;
}

std::vector<HfPlace> HfSource::places_in_files() const {
  if (family_.stacked_places != nullptr && model_.experts) {
    HfFamily stacked = family_;
    stacked.places = family_.stacked_places;
    std::vector<HfPlace> places = hf_places(stacked, model_);
    const std::map<std::string, HfTensor> tensors = family_tensors();
    const bool found = std::ranges::any_of(places, [&](const HfPlace& place) {
      return place.canonical.find(".mlp.experts.") != std::string::npos &&
             tensors.contains(place.name);
    });
    if (found) return places;
  }
  return hf_places(family_, model_);
}

void HfSource::place_quantized(const HfPlace& place, const QuantizedMatrix& matrix,
                               const std::vector<std::int64_t>& wanted, const Shape& shape) {
  std::vector<std::int64_t> sizes = {matrix.rows, matrix.columns};
  if (matrix.turned && matrix.stacks > 0)
    sizes = {matrix.stacks, matrix.columns, matrix.rows / matrix.stacks};
  if (place.transposed != matrix.turned || sizes != wanted) {
    throw Error(Fault::kData, "{}: {} is {}, {} says {}; is it from another size of this model?",
                matrix.codes.file->path().string(), matrix.codes.name, text_of(sizes),
                config_.where(), text_of(wanted));
  }
  places_[place.canonical] = {
      .place = place, .tensor = {place.canonical, matrix.dtype(), shape}, .quantized = &matrix};
}

// Whether a tensor of the files is none of the model, but known to belong to it.
bool HfSource::is_left_out(const std::string& name) const {
  if (config_.is_language_part() && !is_of_language_model(name)) return true;
  if (std::ranges::any_of(family_.ignored,
                          [&](const std::string& end) { return name.ends_with(end); }))
    return true;
  if (std::ranges::any_of(family_.ignored_beginnings,
                          [&](const std::string& begin) { return name.starts_with(begin); }))
    return true;
  constexpr std::string_view kLayers = "model.layers.";
  if (family_.later_layers.empty() || !name.starts_with(kLayers)) return false;
  std::int64_t layer = 0;
  const auto read = std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
  const double later = config_.number(family_.later_layers, 1.0);
  return read.ec == std::errc() && layer >= model_.layers &&
         static_cast<double>(layer - model_.layers) < later;
}

void HfSource::check_tensors(const std::vector<HfPlace>& places) {
  std::map<std::string, HfTensor> stored = family_tensors();
  quantized_ = take_quantized(config_, stored);
  const std::map<std::string, Shape> shapes = shapes_with_head(model_);
  const std::map<std::string, std::vector<std::int64_t>> wanted = hf_shapes(places, model_);

  std::vector<std::string> missing, surplus;
  for (const HfPlace& place : places) {
    if (const auto codes = quantized_.find(place.name); codes != quantized_.end()) {
      place_quantized(place, *codes->second, wanted.at(place.name), shapes.at(place.canonical));
      continue;
    }
    const auto found = stored.find(place.name);
    if (found == stored.end()) {
      const bool may_be_tied =
          place.canonical == kHead && config_.flag("tie_word_embeddings", true);
      if (!may_be_tied && (missing.empty() || missing.back() != place.name))
        missing.push_back(place.name);
      continue;
    }
    const HfTensor& entry = found->second;
    std::vector<std::int64_t> sizes = wanted.at(place.name);
    const bool table = place.canonical == kTable || place.canonical == kHead;
    if (table && entry.shape.size() == 2 && entry.shape[0] > sizes[0]) sizes[0] = entry.shape[0];
    if (entry.shape != sizes) {
      throw Error(Fault::kData, "{}: {} is {}, {} says {}; is it from another size of this model?",
                  entry.file->path().string(), entry.name, text_of(entry.shape), config_.where(),
                  text_of(sizes));
    }
    const std::optional<DType> dtype = dtype_of_safetensors(entry.dtype);
    if (!dtype || *dtype == DType::kI64 || *dtype == DType::kI32 || *dtype == DType::kU8) {
      throw Error(Fault::kData, "{}: {} is of type {}, wanted F32, BF16, F16 or F64",
                  entry.file->path().string(), entry.name, entry.dtype);
    }
    places_[place.canonical] = {
        place, {place.canonical, *dtype, shapes.at(place.canonical)}, found->second};
  }
  bool later = false;  // layers that predict later tokens
  const auto unknown = [&](const std::string& name) {
    if (wanted.contains(name)) return;
    if (!is_left_out(name)) surplus.push_back(name);
    later |= name.starts_with(fmt::format("model.layers.{}.", model_.layers)) ||
             (name.starts_with("mtp.") && !family_.later_layers.empty());
  };
  for (const auto& [name, matrix] : quantized_) unknown(name);
  for (const auto& [name, tensor] : stored) unknown(name);
  if (later && surplus.empty() && model_.mtp_layers == 0) {
    notes_.push_back(fmt::format(
        "{}: {}: the layers after the {} of the model predict later tokens and are left "
        "out, as by Transformers",
        config_.where(), family_.later_layers, model_.layers));
  }
  if (!missing.empty()) {
    throw Error(Fault::kData, "{}: missing tensors ({}): {}; is the download complete?", where(),
                missing.size(), listed(missing));
  }
  if (!surplus.empty()) {
    throw Error(
        Fault::kData,
        "{}: tensors that are not of a model of type {} ({}): {}; is config.json of another "
        "model?",
        where(), config_.word("model_type"), surplus.size(), listed(surplus));
  }
}

void HfSource::decide_head() {
  if (model_.labels > 0) return;
  const auto head = places_.find(kHead);
  const bool said = model_.tied;
  if (head == places_.end()) {
    model_.tied = true;
    return;
  }
  const Place& table = places_.at(kTable);
  model_.tied = false;
  const bool coded = table.quantized != nullptr || head->second.quantized != nullptr;
  if (!coded && table.tensor.dtype == head->second.tensor.dtype) {
    // Tables that differ nearly always differ in the first rows; equal ones are read to the end.
    const Shape& shape = table.tensor.shape;
    const std::int64_t rows = std::min<std::int64_t>(shape[0], 16);
    const TensorRun begin{{0, 0}, {rows, shape[1]}, 0, rows * shape[1]};
    const TensorRun all = whole_run(shape);
    const FileTensor a = file_tensor(table);
    const FileTensor b = file_tensor(head->second);
    model_.tied = hash_of_run(a, begin) == hash_of_run(b, begin) &&
                  hash_of_run(a, all) == hash_of_run(b, all);
  }
  if (model_.tied) {
    places_.erase(head);
  } else if (said && config_.has("tie_word_embeddings")) {
    notes_.push_back(fmt::format(
        "{}: tie_word_embeddings is true, but {} is not the embedding: the head is kept",
        config_.where(), head->second.place.name));
  }
}

std::vector<CanonicalTensor> HfSource::tensors(TensorKind kind) const {
  std::vector<CanonicalTensor> result;
  if (kind != TensorKind::kWeight) return result;
  for (const auto& [name, place] : places_) result.push_back(place.tensor);
  return result;
}

FileTensor HfSource::file_tensor(const Place& place) const {
  const HfTensor& stored = place.stored;
  Shape shape(stored.shape);
  if (place.place.stacks > 0 && !(is_turned_stack(place.place) && place.tensor.shape.ndim() == 1)) {
    // Their rows are counted through.
    std::vector<std::int64_t> sizes = {stored.shape[0] * stored.shape[1]};
    sizes.insert(sizes.end(), stored.shape.begin() + 2, stored.shape.end());
    shape = Shape(sizes);
  }
  return {.file = *stored.file,
          .offset = stored.offset,
          .dtype = place.tensor.dtype,
          .shape = std::move(shape)};
}

std::int64_t HfSource::quantized_row(const Place& place, std::int64_t row) {
  const QuantizedMatrix& matrix = *place.quantized;
  const std::int64_t before =
      matrix.turned && matrix.stacks > 0 ? matrix.rows / matrix.stacks * place.place.matrix : 0;
  return before + stored_row(place.place, row);
}

void HfSource::read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) {
  const Place& place = places_.at(name);
  if (run.begin >= run.end) return;
  if (place.quantized != nullptr) {
    return read_by_rows(place.tensor.shape, run, dtype, dst,
                        [&](std::int64_t row, std::span<float> values) {
                          place.quantized->read_values(quantized_row(place, row), values);
                        });
  }
  const FileTensor stored = file_tensor(place);
  read_place(stored, place.place, run, dtype, dst);
}

std::optional<CodeFormat> HfSource::stored_format(const std::string& name) const {
  const auto found = places_.find(name);
  if (found == places_.end() || found->second.quantized == nullptr) return std::nullopt;
  return found->second.quantized->format();
}

void HfSource::read_codes(const std::string& name, const StoredRow& row, const CodedRow& to) {
  const Place& place = places_.at(name);
  place.quantized->read_codes({quantized_row(place, row.row), row.column, row.columns}, to);
}

}  // namespace piton
