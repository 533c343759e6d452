#include "megatron/megatron_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <regex>
#include <set>
#include <system_error>

#include "base/error.h"
#include "base/listed.h"
#include "base/regular_file.h"
#include "checkpoint/file_tensor.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "megatron/names.h"
#include "model/canonical_tensors.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostRanks = 4096;
constexpr std::size_t kMostDicts = 1000;  // of a module tree, which has five

// The folder of ranks: `folder` itself, or the one that its tracker names. Empty: none.
fs::path rank_folder(const fs::path& folder) {
  std::error_code ignored;
  const auto has_ranks = [&](const fs::path& path) {
    for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored)) {
      if (entry.path().filename().string().starts_with("mp_rank_")) return true;
    }
    return false;
  };
  if (has_ranks(folder)) return folder;
  if (!fs::is_regular_file(folder / kTrackerName, ignored)) return {};
  std::string text = read_regular_file(folder / kTrackerName, 1024);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0)
    text.pop_back();
  if (text == "release") return has_ranks(folder / text) ? folder / text : fs::path();
  std::int64_t iteration = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), iteration);
  if (error != std::errc() || stop != text.data() + text.size() || iteration < 0) return {};
  const fs::path named = folder / iteration_folder(iteration);
  return has_ranks(named) ? named : fs::path();
}

// The numbers in a rank's folder name: mp_rank_TT or mp_rank_TT_PPP.
struct RankName {
  int t = 0;
  int p = 0;
  bool has_pipeline = false;
};

std::optional<RankName> rank_name(const std::string& name) {
  const std::regex form("mp_rank_([0-9]{2,6})(?:_([0-9]{3,6}))?");
  std::smatch match;
  if (!std::regex_match(name, match, form)) return std::nullopt;
  RankName rank{.t = std::stoi(match[1]), .has_pipeline = match[2].matched};
  if (rank.has_pipeline) rank.p = std::stoi(match[2]);
  return rank;
}

// Calls each(name, tensor) for the tensors of a tree of dicts; names are joined by dots. Dicts may
// contain each other in cycles: each is visited once.
template <typename F>
void for_each_tensor(const PickleValue& tree, const std::string& prefix,
                     std::set<const PickleValue*>& seen, F&& each) {
  if (seen.size() > kMostDicts || !seen.insert(&tree).second) return;
  for (const auto& [key, value] : tree.pairs) {
    if (key->kind != PickleValue::Kind::kText) continue;
    const std::string name = prefix.empty() ? key->text : prefix + "." + key->text;
    if (value->kind == PickleValue::Kind::kTensor) each(name, *value);
    if (value->kind == PickleValue::Kind::kDict) for_each_tensor(*value, name, seen, each);
  }
}

std::int64_t integer_of(const PickleValue* value, std::int64_t otherwise) {
  return value != nullptr && value->kind == PickleValue::Kind::kInt ? value->integer : otherwise;
}

}  // namespace

bool is_megatron_folder(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / kManifestName, ignored)) return false;
  return !rank_folder(folder).empty();
}

MegatronSource::MegatronSource(const fs::path& folder, const MegatronGiven& given)
    : folder_(rank_folder(folder)) {
  if (folder_.empty()) {
    throw Error(Fault::kData, "{}: no checkpoint of Megatron: wanted folders mp_rank_00 ..., or {}",
                folder.string(), kTrackerName);
  }
  find_ranks(folder_);
  read_arguments(given);
  for (int p = 0; p < layout_.pipeline; ++p) {
    for (int chunk = 0; chunk < layout_.chunks; ++chunk) {
      for (int t = 0; t < layout_.tensor; ++t) add_rank(t, p, chunk);
    }
  }
  check_cover();
}

void MegatronSource::find_ranks(const fs::path& folder) {
  std::map<std::pair<int, int>, fs::path> found;
  int tensor = 0;
  int pipeline = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::optional<RankName> rank = rank_name(entry.path().filename().string());
    if (!rank) continue;
    if (!found.try_emplace({rank->t, rank->p}, entry.path()).second) {
      throw Error(Fault::kData, "{}: rank {} of stage {} is there twice", folder.string(), rank->t,
                  rank->p);
    }
    tensor = std::max(tensor, rank->t + 1);
    pipeline = std::max(pipeline, rank->p + 1);
  }
  if (std::int64_t{tensor} * pipeline > kMostRanks) {
    throw Error(Fault::kData, "{}: names ranks up to {} x {}, wanted at most {}", folder.string(),
                tensor, pipeline, kMostRanks);
  }
  std::vector<std::string> missing;
  for (int t = 0; t < tensor; ++t) {
    auto& stages = ranks_.emplace_back();
    for (int p = 0; p < pipeline; ++p) {
      const auto rank = found.find({t, p});
      if (rank == found.end()) {
        missing.push_back(pipeline > 1 ? fmt::format("mp_rank_{:02}_{:03}", t, p)
                                       : fmt::format("mp_rank_{:02}", t));
        continue;
      }
      std::error_code ignored;
      fs::path file = rank->second / "model_optim_rng.pt";
      if (!fs::exists(file, ignored) && fs::exists(rank->second / "model_rng.pt", ignored))
        file = rank->second / "model_rng.pt";
      stages.push_back(std::make_unique<TorchFile>(file));
    }
  }
  if (!missing.empty()) {
    throw Error(Fault::kData, "{}: {} of {} ranks are missing: {}; copy them too", folder.string(),
                missing.size(), tensor * pipeline, listed(missing));
  }
  layout_.tensor = tensor;
  layout_.pipeline = pipeline;
}

void MegatronSource::read_arguments(const MegatronGiven& given) {
  const TorchFile& file = *ranks_[0][0];
  const std::string where = file.file().path().string();
  const PickleValue& root = file.root();
  iteration_ = std::max<std::int64_t>(integer_of(root.find("iteration"), 0), 0);
  const PickleValue* version = root.find("checkpoint_version");
  layout_.version = version == nullptr ? 0
                    : version->kind == PickleValue::Kind::kInt
                        ? static_cast<double>(version->integer)
                        : version->number;
  const PickleValue* values = root.find(kMegatronArguments);
  if (values == nullptr) values = root.find(kPitonArguments);
  while (root.find(fmt::format("model{}", layout_.chunks - 1)) != nullptr &&
         root.find(fmt::format("model{}", layout_.chunks)) != nullptr) {
    ++layout_.chunks;
  }

  // The rows of the whole table, from the stored tensors.
  const RankTensors first = rank_tensors(file, 0);
  const auto table = first.find("word_embeddings.weight");
  if (table == first.end()) throw Error(Fault::kData, "{}: has no word_embeddings.weight", where);
  layout_.padded_vocabulary = table->second.rows * layout_.tensor;
  layout_.fused_mlp = has_fused_mlp();

  std::optional<std::int64_t> vocabulary = given.vocabulary;
  if (values == nullptr) {
    if (!given.model) {
      throw Error(
          Fault::kData,
          "{}: keeps no arguments, so that its model is not known: name it (--model, or "
          "--num-layers, --hidden-size, --num-attention-heads and what else its script had)",
          where);
    }
    says_its_model_ = false;
    model_ = given.model(layout_.padded_vocabulary);
    if (!vocabulary && model_.vocabulary > 0) vocabulary = model_.vocabulary;
  } else {
    const MegatronArguments read = read_megatron_arguments(*values, where);
    model_ = read.model;
    const auto same = [&](const char* name, std::int64_t said, std::int64_t is) {
      if (said == is) return;
      throw Error(Fault::kData, "{}: argument {}: got {}, but the files are of {}", where, name,
                  said, is);
    };
    // A folder "release" may have been split again without updating its arguments.
    if (read.layout.padded_vocabulary > 0 && read.layout.tensor == layout_.tensor)
      same("padded_vocab_size", read.layout.padded_vocabulary, layout_.padded_vocabulary);
    same("tensor_model_parallel_size", read.layout.tensor, layout_.tensor);
    same("pipeline_model_parallel_size", read.layout.pipeline, layout_.pipeline);
    same("virtual_pipeline_model_parallel_size", read.layout.chunks, layout_.chunks);
    layout_.stage_layers = read.layout.stage_layers;
    layout_.empty_layers = read.layout.empty_layers;
    if (!vocabulary) vocabulary = read.vocabulary;
  }
  model_.vocabulary = vocabulary.value_or(layout_.padded_vocabulary);
  if (model_.vocabulary > layout_.padded_vocabulary) {
    throw Error(Fault::kData, "{}: a vocabulary of {}, and the table has {} rows", where,
                model_.vocabulary, layout_.padded_vocabulary);
  }
  if (!vocabulary) {
    notes_.push_back(fmt::format(
        "{}: does not say how many of the {} rows of its table are padding: all are kept; "
        "--vocab-size says it",
        where, layout_.padded_vocabulary));
  }
  try {
    layout_.check(model_);
    model_.check();
  } catch (const Error& error) {
    throw Error(Fault::kData, "{}: describes an impossible model: {}", where, error.what());
  }
  if (layout_.version < 2 && model_.groups != model_.heads)
    throw Error(Fault::kData, "{}: grouped queries in checkpoint_version {}, wanted 2 or more",
                where, layout_.version);
}

MegatronSource::Stored MegatronSource::stored(const TorchFile& file, const PickleValue& value,
                                              const std::string& name) const {
  const TorchTensor tensor = file.tensor(value, name);
  const std::string where = file.file().path().string();
  const std::optional<DType> dtype = dtype_of_safetensors(tensor.dtype);
  if (!dtype || *dtype == DType::kI64 || *dtype == DType::kI32 || *dtype == DType::kU8) {
    throw Error(Fault::kData, "{}: {} is of type {}, wanted F32, BF16, F16 or F64", where, name,
                tensor.dtype);
  }
  const std::size_t dims = tensor.shape.size();
  if (dims == 1 && tensor.strides[0] == 1)
    return {&file.file(), *dtype, tensor.offset, tensor.shape[0], 1, 1};
  // Columns of a larger matrix are supported: torch.chunk produces them.
  if (dims == 2 && tensor.strides[1] == 1 && tensor.strides[0] >= tensor.shape[1]) {
    return {&file.file(),    *dtype,          tensor.offset,
            tensor.shape[0], tensor.shape[1], tensor.strides[0]};
  }
  throw Error(Fault::kData,
              "{}: {} is of shape [{}] with strides [{}], wanted a matrix or a vector", where, name,
              fmt::join(tensor.shape, ", "), fmt::join(tensor.strides, ", "));
}

MegatronSource::RankTensors MegatronSource::rank_tensors(const TorchFile& file, int chunk) const {
  const std::string tree_name =
      layout_.chunks > 1 ? fmt::format("model{}", chunk) : std::string("model");
  const PickleValue* tree = file.root().find(tree_name);
  const std::string where = file.file().path().string();
  if (tree == nullptr)
    throw Error(Fault::kData, "{}: has no \"{}\", wanted the weights there", where, tree_name);
  RankTensors tensors;
  std::vector<std::string> unknown;
  std::set<const PickleValue*> seen;
  for_each_tensor(*tree, "", seen, [&](const std::string& name, const PickleValue& value) {
    if (is_ignored_by_megatron(name)) return;
    const std::optional<std::string> key = megatron_key(name);
    if (!key) {
      unknown.push_back(name);
      return;
    }
    if (!tensors.emplace(*key, stored(file, value, name)).second)
      throw Error(Fault::kData, "{}: {} is there twice, under two names", where, name);
  });
  if (!unknown.empty()) {
    throw Error(Fault::kData, "{}: tensors that are not of a model that Piton has ({}): {}", where,
                unknown.size(), listed(unknown));
  }
  return tensors;
}

// By the first chunk that has a layer; some may have empty places alone.
bool MegatronSource::has_fused_mlp() const {
  for (const std::unique_ptr<TorchFile>& file : ranks_[0]) {
    for (int chunk = 0; chunk < layout_.chunks; ++chunk) {
      for (const auto& [key, tensor] : rank_tensors(*file, chunk)) {
        if (key.ends_with(".gate.weight")) return false;
        if (key.ends_with(".fc1.weight")) return true;
      }
    }
  }
  return true;
}

void MegatronSource::add_rank(int t, int p, int chunk) {
  const TorchFile& file = *ranks_[static_cast<std::size_t>(t)][static_cast<std::size_t>(p)];
  const std::string where = file.file().path().string();
  RankTensors tensors = rank_tensors(file, chunk);
  std::vector<std::string> missing;
  for (const MegatronTensor& wanted : megatron_tensors(model_, layout_, t, p, chunk)) {
    auto found = tensors.find(wanted.key);
    // Megatron-core stores a tied head under the head's name; some versions do not write it.
    if (found == tensors.end() && wanted.key == "head_copy.weight")
      found = tensors.find("output.weight");
    if (found == tensors.end()) {
      if (wanted.key != "head_copy.weight") missing.push_back(wanted.key);
      continue;
    }
    const Shape& shape = wanted.assembly.shape;
    const std::int64_t columns = shape.ndim() > 1 ? shape[1] : 1;
    if (found->second.rows != shape[0] || found->second.columns != columns) {
      throw Error(Fault::kData, "{}: {} is [{}, {}], the arguments say {}", where, wanted.key,
                  found->second.rows, found->second.columns, to_string(shape));
    }
    if (wanted.key != "head_copy.weight") add_pieces(wanted.assembly, found->second, where);
    tensors.erase(found);
  }
  // A tied head that is stored next to the embedding is a copy of it.
  if (model_.tied) {
    tensors.erase("output.weight");
    tensors.erase("head_copy.weight");
  }
  if (!missing.empty()) {
    throw Error(Fault::kData, "{}: missing tensors ({}): {}; is the copy complete?", where,
                missing.size(), listed(missing));
  }
  if (!tensors.empty()) {
    throw Error(Fault::kData, "{}: has {}, which its arguments do not mention", where,
                tensors.begin()->first);
  }
}

void MegatronSource::add_pieces(const Assembly& assembly, const Stored& stored,
                                const std::string& what) {
  for (const AssemblyPart& part : assembly.parts) {
    Canonical& canonical = tensors_[part.name];
    const bool matrix = part.extent.ndim() > 1;
    Piece piece{.row = part.start[0],
                .rows = part.extent[0],
                .column = matrix ? part.start[1] : 0,
                .columns = matrix ? part.extent[1] : 1,
                .stored_row = part.row,
                .stored = stored};
    // Skip padding, and repeated parts of what every rank has.
    const bool known = std::ranges::any_of(canonical.pieces, [&](const Piece& other) {
      return other.row <= piece.row && piece.row + piece.rows <= other.row + other.rows &&
             other.column <= piece.column &&
             piece.column + piece.columns <= other.column + other.columns;
    });
    if (known) continue;
    if (!canonical.pieces.empty() && canonical.tensor.dtype != stored.dtype) {
      throw Error(Fault::kData, "{}: {} is {} here and {} on another rank", what, part.name,
                  name(stored.dtype), name(canonical.tensor.dtype));
    }
    canonical.tensor.dtype = stored.dtype;
    canonical.pieces.push_back(piece);
  }
}

// Checks that the pieces cover every element of every tensor.
void MegatronSource::check_cover() {
  for (const CanonicalShape& wanted : canonical_tensors(model_)) {
    Canonical& canonical = tensors_[wanted.name];
    std::int64_t elements = 0;
    for (const Piece& piece : canonical.pieces) elements += piece.rows * piece.columns;
    PITON_ASSERT(elements == wanted.shape.elements(), "{}: {} elements of {}", wanted.name,
                 elements, to_string(wanted.shape));
    canonical.tensor.name = wanted.name;
    canonical.tensor.shape = wanted.shape;
    std::ranges::sort(canonical.pieces, {}, &Piece::row);
  }
  PITON_ASSERT(tensors_.size() == canonical_tensors(model_).size(), "{} tensors", tensors_.size());
}

std::vector<CanonicalTensor> MegatronSource::tensors(TensorKind kind) const {
  std::vector<CanonicalTensor> result;
  if (kind != TensorKind::kWeight) return result;
  for (const auto& [name, canonical] : tensors_) result.push_back(canonical.tensor);
  return result;
}

// Reads the part of the run that is in the piece. Region: `columns` columns from `first_column` on.
void MegatronSource::read_piece(const Piece& piece, const TensorRun& run, std::int64_t columns,
                                std::int64_t first_column, DType dtype, std::byte* dst) const {
  const std::int64_t width = size_bytes(dtype);
  const std::int64_t first_row = run.start[0] + run.begin / columns;
  const std::int64_t last_row = run.start[0] + (run.end + columns - 1) / columns;
  const std::int64_t top = std::max(piece.row, first_row);
  const std::int64_t bottom = std::min(piece.row + piece.rows, last_row);
  const std::int64_t left = std::max(piece.column, first_column);
  const std::int64_t right = std::min(piece.column + piece.columns, first_column + columns);
  if (top >= bottom || left >= right) return;
  const Stored& from = piece.stored;
  const FileTensor stored{.file = *from.file,
                          .offset = from.offset,
                          .dtype = from.dtype,
                          .shape = {from.rows, from.stride}};
  const std::int64_t rows = bottom - top;
  const std::int64_t count = right - left;
  TensorRun part{.start = {piece.stored_row + top - piece.row, left - piece.column},
                 .extent = {rows, count},
                 .begin = 0,
                 .end = rows * count};
  const std::int64_t at = (top - run.start[0]) * columns;  // of its first row in the region
  if (count == columns) {
    part.begin = std::max(run.begin - at, std::int64_t{0});
    part.end = std::min(run.end - at, rows * count);
    return read_run(stored, part, dtype, dst + (at + part.begin - run.begin) * width);
  }
  std::vector<std::byte> block(static_cast<std::size_t>(rows * count * width));
  read_run(stored, part, dtype, block.data());
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t begin = at + row * columns + left - first_column;
    const std::int64_t from_element = std::max(begin, run.begin);
    const std::int64_t to_element = std::min(begin + count, run.end);
    if (from_element >= to_element) continue;
    std::memcpy(dst + (from_element - run.begin) * width,
                block.data() + (row * count + from_element - begin) * width,
                static_cast<std::size_t>((to_element - from_element) * width));
  }
}

void MegatronSource::read(const std::string& name, const TensorRun& run, DType dtype,
                          std::byte* dst) {
  if (run.begin >= run.end) return;
  const Canonical& canonical = tensors_.at(name);
  const bool matrix = run.extent.ndim() > 1;
  const std::int64_t columns = matrix ? run.extent[1] : 1;
  for (const Piece& piece : canonical.pieces)
    read_piece(piece, run, columns, matrix ? run.start[1] : 0, dtype, dst);
}

}  // namespace piton
