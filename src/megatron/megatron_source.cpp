#include "megatron/megatron_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <system_error>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/listed.h"
#include "checkpoint/manifest.h"
#include "megatron/deepspeed/deepspeed_files.h"
#include "megatron/deepspeed/zero3_files.h"
#include "megatron/format/grouped_experts.h"
#include "megatron/format/named_tensors.h"
#include "megatron/format/norm_gains.h"
#include "megatron/open_files.h"
#include "megatron/ranks/master_weights.h"
#include "model/canonical_tensors.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRelease = "release";  // weights without a run
constexpr const char* kFirstMomentPrefix = "exp_avg.";
constexpr const char* kSecondMomentPrefix = "exp_avg_sq.";

std::string tracked(const fs::path& tracker) {
  std::string text = read_regular_file(tracker, 1024);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0)
    text.pop_back();
  return text;
}

// The folder of files: `folder` itself, or the one that its tracker names. Empty: none.
fs::path files_folder(const fs::path& folder) {
  std::error_code ignored;
  if (has_megatron_files(folder)) return folder;
  if (fs::is_regular_file(folder / kDeepSpeedTracker, ignored)) {
    const fs::path name = tracked(folder / kDeepSpeedTracker);
    const bool inside = name == name.filename() && name != "." && name != "..";
    const auto has_files = [](const fs::path& files) {
      return has_zero3_files(files) || has_deepspeed_files(files);
    };
    return inside && has_files(folder / name) ? folder / name : fs::path();
  }
  if (!fs::is_regular_file(folder / kTrackerName, ignored)) return {};
  const std::string text = tracked(folder / kTrackerName);
  if (text == kRelease) return has_megatron_files(folder / text) ? folder / text : fs::path();
  std::int64_t iteration = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), iteration);
  if (error != std::errc() || stop != text.data() + text.size() || iteration < 0) return {};
  const fs::path named = folder / iteration_folder(iteration);
  return has_megatron_files(named) ? named : fs::path();
}

// The orders of query, key and value go by it, and another order is no fault that shows.
double version_of(const PickleValue* value, double otherwise, const std::string& where) {
  if (value == nullptr) return otherwise;
  const bool integer = value->kind == PickleValue::Kind::kInt;
  const double version = integer ? static_cast<double>(value->integer) : value->number;
  const bool known = version == 0 || version == 1 || version == 2 || version == 3;
  if (known && (integer || value->kind == PickleValue::Kind::kFloat)) return version;
  throw Error(Fault::kData, "{}: checkpoint_version: got {}, wanted 0, 1, 2 or 3", where,
              integer || value->kind == PickleValue::Kind::kFloat ? fmt::format("{}", version)
                                                                  : "no number");
}

}  // namespace

bool is_megatron_folder(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / kManifestName, ignored)) return false;
  return !files_folder(folder).empty();
}

MegatronSource::MegatronSource(const fs::path& folder, const MegatronGiven& given) {
  const fs::path files = files_folder(folder);
  if (files.empty()) {
    throw Error(Fault::kData,
                "{}: no checkpoint of Megatron: wanted folders mp_rank_00 ..., files of "
                "torch_dist or DeepSpeed, {} or {}",
                folder.string(), kTrackerName, kDeepSpeedTracker);
  }
  files_ = open_megatron_files(files);
  const MegatronDivision& division = files_->division();
  stored_.tensor = division.tensor;
  stored_.pipeline = division.pipeline;
  stored_.chunks = division.chunks;
  stored_.expert = division.expert;
  stored_.expert_tensor = division.expert_tensor;
  read_arguments(given);
  choose_masters();
  for (int p = 0; p < stored_.pipeline; ++p) {
    for (int chunk = 0; chunk < stored_.chunks; ++chunk) {
      for (int t = 0; t < stored_.tensor; ++t) add_rank(t, p, chunk);
    }
  }
  if (from_masters_) add_bucket_masters();
  pieces_.check_cover(model_);
}

void MegatronSource::read_arguments(const MegatronGiven& given) {
  const std::string where = files_->facts_file();
  const PickleValue& facts = files_->facts();
  run_ = read_megatron_run(facts, where);
  const std::optional<std::int64_t> named = iteration_of(files_->folder().filename().string());
  if (named && facts.find("iteration") != nullptr && *named != run_.iteration) {
    notes_.push_back(fmt::format("{}: is of iteration {}, whatever its folder is called", where,
                                 run_.iteration));
  }
  stored_.version = version_of(facts.find("checkpoint_version"), files_->division().version, where);
  const PickleValue* values = facts.find(kMegatronArguments);
  if (values == nullptr) values = facts.find(kPitonArguments);

  // The rows of the whole table, from the stored tensors.
  const BoxedTensors first = files_->tensors(0, 0, 0);
  const auto table = first.find("word_embeddings.weight");
  if (table == first.end()) {
    throw Error(Fault::kData, "{}: has no word_embeddings.weight", files_->file_of(0, 0));
  }
  weight_dtype_ = files_->copies_of().value_or(table->second.dtype);
  stored_.padded_vocabulary = table->second.rows * stored_.tensor;
  read_first_ranks();
  layout_ = stored_;

  std::optional<std::int64_t> vocabulary = given.vocabulary;
  if (values == nullptr) {
    if (!given.model) {
      throw Error(Fault::kData,
                  "{}: stores no arguments, so its model is unknown: describe it (--model, or "
                  "--num-layers, --hidden-size, --num-attention-heads and others)",
                  where);
    }
    describes_model_ = false;
    model_ = given.model(stored_.padded_vocabulary);
    parts_.check_kind(model_, where);
    if (!vocabulary && model_.vocabulary > 0) vocabulary = model_.vocabulary;
  } else {
    const MegatronArguments read = read_megatron_arguments(*values, where);
    model_ = read.model;
    model_type_ = read.model_type;
    parts_.head_like_layers = read.head_like_layers;
    parts_.apply(model_);
    compare(read, where);
    if (!vocabulary) vocabulary = read.vocabulary;
  }
  model_.vocabulary = vocabulary.value_or(stored_.padded_vocabulary);
  if (model_.vocabulary > stored_.padded_vocabulary) {
    throw Error(Fault::kData, "{}: a vocabulary of {}, and the table has {} rows", where,
                model_.vocabulary, stored_.padded_vocabulary);
  }
  if (!vocabulary) {
    notes_.push_back(fmt::format(
        "{}: does not say how many of the {} rows of its table are padding: all are kept; "
        "--vocab-size says it",
        where, stored_.padded_vocabulary));
  }
  check_layers(model_, stored_tensors_, where);
  if (model_.latent && !stored_.joined_latents)
    stored_.split_latents = first_latent_rows_ < model_.latent->rank + model_.latent->turned;
  try {
    stored_.check(model_);
    model_.check();
  } catch (const Error& error) {
    throw Error(Fault::kData, "{}: describes an impossible model: {}", where, error.what());
  }
  if (stored_.version < 2 && model_.encoder_decoder) {
    throw Error(Fault::kData,
                "{}: a model of an encoder and a decoder in checkpoint_version {}, "
                "wanted 2 or more",
                where, stored_.version);
  }
  if (stored_.version < 2 && model_.groups != model_.heads)
    throw Error(Fault::kData, "{}: grouped queries in checkpoint_version {}, wanted 2 or more",
                where, stored_.version);
}

// Takes the division from the arguments where the files do not show it, and compares it where they
// do.
void MegatronSource::compare(const MegatronArguments& read, const std::string& where) {
  const auto same = [&](const char* name, std::int64_t said, std::int64_t is) {
    if (said == is) return;
    throw Error(Fault::kData, "{}: argument {}: got {}, but the files are of {}", where, name, said,
                is);
  };
  // A folder "release" may have been split again without updating its arguments.
  if (read.layout.padded_vocabulary > 0 &&
      (files_->division().whole || read.layout.tensor == stored_.tensor)) {
    same("padded_vocab_size", read.layout.padded_vocabulary, stored_.padded_vocabulary);
  }
  stored_.empty_layers = read.layout.empty_layers;
  layout_.empty_layers = read.layout.empty_layers;
  layout_.stage_layers = read.layout.stage_layers;
  if (files_->division().whole) {
    layout_.tensor = read.layout.tensor;
    layout_.split_latents = read.layout.split_latents;
    layout_.expert = read.layout.expert;
    layout_.expert_tensor =
        read.layout.expert_tensor == layout_.tensor ? 0 : read.layout.expert_tensor;
  } else {
    same("expert_model_parallel_size", read.layout.expert, stored_.expert);
    same("tensor_model_parallel_size", read.layout.tensor, stored_.tensor);
  }
  if (files_->division().all_layers) {
    layout_.pipeline = read.layout.pipeline;
    layout_.chunks = read.layout.chunks;
  } else {
    same("pipeline_model_parallel_size", read.layout.pipeline, stored_.pipeline);
    same("virtual_pipeline_model_parallel_size", read.layout.chunks, stored_.chunks);
    stored_.stage_layers = read.layout.stage_layers;
  }
}

// Of tensor rank 0 of every stage. Gate and up are one tensor unless there is a gate.
void MegatronSource::read_first_ranks() {
  stored_.fused_mlp = true;
  for (int p = 0; p < stored_.pipeline; ++p) {
    for (int chunk = 0; chunk < stored_.chunks; ++chunk) {
      const BoxedTensors tensors = files_->tensors(0, p, chunk);
      stored_tensors_ += std::ssize(tensors);
      for (const auto& [key, tensor] : tensors) {
        has_groups_ |= is_group_of_experts(key);
        if (is_group_of_experts(key)) stored_tensors_ += tensor.rows;  // as many experts at most
        stored_.joined_latents |= key.ends_with(".qkv.weight");
        stored_.apart_states |=
            key.ends_with(".delta_in.weight.query") || key.ends_with(".mamba_in.weight.z");
        stored_.apart_heads |= key.ends_with(".k_own.weight");
      }
      const bool apart = std::ranges::any_of(
          tensors, [](const auto& one) { return one.first.ends_with(".gate.weight"); });
      const auto down = std::ranges::find_if(
          tensors, [](const auto& one) { return one.first.ends_with(".kv_down.weight"); });
      if (down != tensors.end()) first_latent_rows_ = down->second.rows;
      stored_.fused_mlp = stored_.fused_mlp && !apart;
      parts_.add(tensors);
    }
  }
}

bool MegatronSource::has_masters() {
  if (files_->has_buckets()) {
    find_buckets();
    return std::ranges::all_of(bucket_ranks_, [](const auto& one) { return one->buffer.found(); });
  }
  for (int p = 0; p < stored_.pipeline; ++p) {
    for (int chunk = 0; chunk < stored_.chunks; ++chunk) {
      for (int t = 0; t < stored_.tensor; ++t) {
        const BoxedTensors weights = files_->tensors(t, p, chunk);
        OrderedWeights wanted;
        for (const auto& [key, weight] : weights) {
          // A tied head is a copy of a table that has one.
          const bool copy = key == "head_copy.weight" || (model_.tied && key == "output.weight");
          if (!copy) wanted.emplace_back(key, &weight);
        }
        if (!are_masters(files_->masters(t, p, chunk), wanted)) return false;
      }
    }
  }
  return true;
}

void MegatronSource::choose_masters() {
  if (!files_->has_optimizer()) return;
  const BoxedTensors first = files_->tensors(0, 0, 0);
  const bool copies = files_->copies_of().has_value();
  const bool narrow =
      (copies && size_bytes(weight_dtype_) == 2) ||
      std::ranges::any_of(first, [](const auto& one) { return size_bytes(one.second.dtype) == 2; });
  try {
    from_masters_ = narrow && !has_groups_ && (copies || has_masters());
  } catch (const Error& error) {
    // The weights are good without them.
    if (error.fault() != Fault::kData) throw;
    why_no_masters_ = fmt::format(" ({})", error.what());
    bucket_ranks_.clear();
  }
  const std::string where = files_->folder().string();
  optimizer_note_ = notes_.size();
  if (from_masters_) {
    notes_.push_back(fmt::format(
        "{}: the weights are the optimizer's fp32 copies (--params-dtype rounds them to the run's "
        "type); its moments stay behind",
        where));
  } else if (narrow) {
    notes_.push_back(fmt::format(
        "{}: the optimizer's state stays behind: no fp32 copies of the weights are found in it{}",
        where, why_no_masters_));
  } else {
    notes_.push_back(fmt::format("{}: the optimizer's state stays behind", where));
  }
}

// A tied head, or the table on another stage, is a copy of the table. Another one must not be lost.
void MegatronSource::check_copy(const BoxedTensor& head, int t, const std::string& where) const {
  const BoxedTensors first = files_->tensors(t, 0, 0);
  const auto table = first.find("word_embeddings.weight");
  if (table == first.end() || have_same_values(head, table->second)) return;
  if (!model_.tied) {
    throw Error(Fault::kData,
                "{}: its table of the embedding differs from that of the first stage; are the "
                "files of one checkpoint?",
                where);
  }
  throw Error(Fault::kData,
              "{}: its head differs from the table of the embedding, but the model ties them; "
              "wanted untie_embeddings_and_output_weights (without arguments: "
              "--untie-embeddings-and-output-weights)",
              where);
}

void MegatronSource::add_rank(int t, int p, int chunk) {
  const std::string where = files_->file_of(t, p);
  BoxedTensors tensors = with_experts_apart(files_->tensors(t, p, chunk), model_, where);
  const BoxedTensors masters = from_masters_ ? files_->masters(t, p, chunk) : BoxedTensors{};
  std::vector<std::string> missing;
  for (const MegatronTensor& wanted : megatron_tensors(model_, stored_, t, p, chunk)) {
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
    // The embedding is also where later tokens are predicted.
    const bool again = wanted.key == "word_embeddings.weight" && p + chunk > 0;
    const bool copy = again || wanted.key == "head_copy.weight";
    if (copy) check_copy(found->second, t, where);
    // Those of buckets are added by rank.
    const bool by_rank = from_masters_ && files_->has_buckets();
    if (!copy && !by_rank) {
      const auto master = masters.find(found->first);
      pieces_.add(wanted.assembly, master == masters.end() ? found->second : master->second, where);
    }
    tensors.erase(found);
  }
  // A tied head that is stored next to the embedding is a copy of it.
  for (const char* key : {"output.weight", "head_copy.weight"}) {
    const auto copy = model_.tied ? tensors.find(key) : tensors.end();
    if (copy == tensors.end()) continue;
    check_copy(copy->second, t, where);
    tensors.erase(copy);
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

bool MegatronSource::is_release() const {
  return run_.iteration == 0 || files_->folder().filename() == kRelease;
}

std::vector<CanonicalTensor> MegatronSource::tensors(TensorKind kind) const {
  if (kind == TensorKind::kWeight) {
    std::vector<CanonicalTensor> weights = pieces_.tensors();
    // 16 bits hold gain - 1 in more digits than the gain.
    for (CanonicalTensor& one : weights) {
      if (is_shifted_gain(model_, one.name) && size_bytes(one.dtype) == 2) one.dtype = DType::kF32;
    }
    return weights;
  }
  std::vector<CanonicalTensor> all;
  const auto add = [&](const std::string& prefix, const std::vector<CanonicalTensor>& tensors) {
    for (const CanonicalTensor& one : tensors)
      all.push_back({prefix + one.name, DType::kF32, one.shape, TensorKind::kOptimizer});
  };
  const std::vector<CanonicalTensor> moments = first_moments_.tensors();
  add(kFirstMomentPrefix, moments);
  add(kSecondMomentPrefix, moments);
  if (from_masters_) add(kMainPrefix, moments);
  return all;
}

void MegatronSource::read(const std::string& name, const TensorRun& run, DType dtype,
                          std::byte* dst) {
  const auto read_weight = [&](const std::string& weight) {
    if (!is_shifted_gain(model_, weight)) return pieces_.read(weight, run, dtype, dst);
    read_shifted({.read = [&](DType type, std::byte* to) { pieces_.read(weight, run, type, to); },
                  .size = run.size(),
                  .shift = 1},
                 dtype, dst);
  };
  const auto without = [&](const char* prefix) {
    return name.substr(std::string_view(prefix).size());
  };
  if (name.starts_with(kFirstMomentPrefix))
    return first_moments_.read(without(kFirstMomentPrefix), run, dtype, dst);
  if (name.starts_with(kSecondMomentPrefix))
    return second_moments_.read(without(kSecondMomentPrefix), run, dtype, dst);
  read_weight(name.starts_with(kMainPrefix) ? without(kMainPrefix) : name);
}

}  // namespace piton
