#include "convert/source_checks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "convert/target.h"
#include "huggingface/config_keys.h"
#include "train/run/foreign_model.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

// Sizes of AscendSpeed's and MindSpeed's converters: LLaMA 1 and 2, and Bloom.
struct NamedSize {
  std::string_view name;
  std::int64_t layers, hidden, heads;
};
constexpr NamedSize kSizes[] = {
    {"560M", 24, 1024, 16}, {"7B", 32, 4096, 32},     {"7B", 30, 4096, 32},  {"7B1", 30, 4096, 32},
    {"13B", 40, 5120, 40},  {"30B", 60, 6656, 52},    {"33B", 60, 6656, 52}, {"65B", 80, 8192, 64},
    {"70B", 80, 8192, 64},  {"176B", 70, 14336, 112},
};

void check_size(const ConvertOptions& options, const ModelConfig& model) {
  if (options.size.empty()) return;
  const bool is_of_size = std::ranges::any_of(kSizes, [&](const NamedSize& one) {
    return one.name == options.size && one.layers == model.layers && one.hidden == model.hidden &&
           one.heads == model.heads;
  });
  if (is_of_size) return;
  throw Error(Fault::kUsage,
              "--type: got {}, but {} has {} layers of width {} with {} heads; leave the flag out",
              options.size, options.load, model.layers, model.hidden, model.heads);
}

void check_layout(const ConvertOptions& options, const OpenedModel& from) {
  const auto same = [&](const char* flag, std::optional<std::int64_t> said, std::int64_t is) {
    if (!said || *said == is) return;
    throw Error(Fault::kUsage, "{}: got {}, but {} is of {}; leave the flag out", flag, *said,
                options.load, is);
  };
  same("--src-tensor-model-parallel-size", options.source_tensor,
       from.megatron ? from.megatron->layout().tensor : 1);
  same("--src-pipeline-model-parallel-size", options.source_pipeline,
       from.megatron ? from.megatron->layout().pipeline : 1);
  same("--src-expert-model-parallel-size", options.source_expert,
       from.megatron ? from.megatron->layout().expert : 1);
}

// Flags of a model that says itself what it is are fine where they say the same.
void check_model(const ConvertOptions& options, const OpenedModel& from) {
  if (!from.describes_model) return;
  ModelConfig model = from.model;
  model.dtype = DType::kF32;
  if (options.model.vocabulary && from.format != ModelFormat::kMegatron &&
      *options.model.vocabulary != model.vocabulary) {
    throw Error(Fault::kUsage, "--vocab-size: got {}, but {} has {} ids; leave the flag out",
                *options.model.vocabulary, options.load, model.vocabulary);
  }
  if (!options.model.describes_model()) return;
  if (!options.model.model.empty()) {
    throw Error(Fault::kUsage, "--model: {} says what its model is; leave the flag out",
                options.load);
  }
  ModelOptions said = options.model;
  said.vocabulary = model.vocabulary;
  fill_open_options(said, ModelOptions::of(model));
  const ModelConfig got = said.resolve({});
  refuse_contradictions(got, model, options.load);
  const std::string other = model_difference(model, got);
  if (other.empty()) return;
  throw Error(Fault::kUsage, "{}: {} differs from the flags; leave the flags of the model out",
              options.load, other);
}

bool near(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }

// Of a file, or of what a link leads to; nothing where that is no file.
std::optional<std::string> stamp_of(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return std::nullopt;
  const auto time = fs::last_write_time(path, ignored).time_since_epoch().count();
  return fmt::format("{} {}", fs::file_size(path, ignored), time);
}

// Of the model's file, or of all files in the folder of its files.
std::map<std::string, std::string> stamps_in(const fs::path& where) {
  std::map<std::string, std::string> stamps;
  const auto add = [&](const fs::path& path) {
    if (std::optional<std::string> stamp = stamp_of(path)) stamps[path.string()] = *stamp;
  };
  add(where);
  std::error_code error;
  for (fs::recursive_directory_iterator entry(where, error), end; !error && entry != end;
       entry.increment(error)) {
    // A target may be in the source's folder.
    if (entry->path().filename().string().ends_with(kDraftEnd)) entry.disable_recursion_pending();
    add(entry->path());
  }
  return stamps;
}

}  // namespace

void check_adapters(const ConvertOptions& options, const Adapters* adapters) {
  const auto check = [&](const char* flag, std::optional<double> said, const auto& is) {
    if (!said) return;
    if (adapters == nullptr)
      throw Error(Fault::kUsage, "{}: got {}, but there are no adapters; leave it out", flag,
                  *said);
    std::set<double> found;
    for (const auto& [_, shape] : adapters->shapes) {
      for (const double value : is(shape)) found.insert(value);
      if (std::ranges::any_of(is(shape), [&](double one) { return near(one, *said); })) return;
    }
    throw Error(Fault::kUsage, "{}: got {}, but the adapters have {}; leave it out", flag, *said,
                fmt::join(found, ", "));
  };
  check("--lora-r", options.lora_rank, [](const AdapterShape& shape) {
    return std::vector<double>{static_cast<double>(shape.rank)};
  });
  // alpha / r, or with --use-rslora alpha / sqrt(r).
  const auto alphas = [&](const AdapterShape& shape) {
    const auto rank = static_cast<double>(shape.rank);
    const double usual = shape.scale * rank, stable = shape.scale * std::sqrt(rank);
    const bool is_stable = options.lora_alpha && near(stable, *options.lora_alpha);
    return std::vector<double>{is_stable ? stable : usual};
  };
  check("--lora-alpha", options.lora_alpha, alphas);
}

SourceStamps::SourceStamps(const OpenedModel& from) {
  if (from.format != ModelFormat::kPiton) stamps_ = stamps_in(from.source->where());
}

void SourceStamps::check() const {
  for (const auto& [path, stamp] : stamps_) {
    if (stamp_of(path).value_or(stamp) == stamp) continue;
    throw Error(Fault::kData, "{}: changed while it was converted; start again when it is whole",
                path);
  }
}

void check_source(const ConvertOptions& options, const OpenedModel& from) {
  if (!options.load_model_type.empty() && options.load_model_type != name(from.format)) {
    throw Error(Fault::kUsage, "--load-model-type: got {}, but {} is {}; leave the flag out",
                options.load_model_type, options.load, name(from.format));
  }
  const bool to_peft = options.save_model_type == "peft";
  const bool other = options.save_model_type == "mg" || options.save_model_type == "gguf" ||
                     options.save_model_type == "gguf-lora" || options.save.ends_with(".gguf");
  if (from.model.labels > 0 && other && !to_peft) {
    throw Error(Fault::kUsage,
                "--load: {} is a {}, which only folders of Hugging Face (--to hf), PEFT "
                "(--to peft) and Piton hold",
                options.load, from.model.gives_rewards() ? "reward model" : "classifier of texts");
  }
  check_model(options, from);
  check_size(options, from.model);
  check_layout(options, from);
}

}  // namespace piton
