#include "convert/opened_model.h"

#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/load_values.h"
#include "checkpoint/native_source.h"
#include "checkpoint/read_newest.h"
#include "gguf/gguf_source.h"
#include "gguf/vocabulary.h"
#include "huggingface/hf_source.h"
#include "huggingface/origin.h"
#include "model/canonical_tensors.h"
#include "train/run/run_tokenizer.h"
#include "train/run/stored_options.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

const std::string kAveragePrefix = std::string(kAverageMoment) + ".";

// A checkpoint's weights, or the moving average of them; each tensor's hash is checked when it is
// first read.
class CheckedSource final : public TensorSource {
 public:
  CheckedSource(const fs::path& folder, const Manifest& manifest, bool average)
      : source_(folder, manifest, /*optimizer=*/average), average_(average) {
    for (std::size_t i = 0; i < manifest.tensors.size(); ++i)
      unchecked_[manifest.tensors[i].tensor.name] = i;
    source_.check_headers();
  }

  std::string where() const override { return source_.where(); }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override {
    if (!average_ || kind != TensorKind::kWeight) return source_.tensors(kind);
    std::vector<CanonicalTensor> averages;
    for (CanonicalTensor one : source_.tensors(TensorKind::kOptimizer)) {
      if (!one.name.starts_with(kAveragePrefix)) continue;
      one.name.erase(0, kAveragePrefix.size());
      one.kind = TensorKind::kWeight;
      averages.push_back(std::move(one));
    }
    return averages;
  }
  void read(const std::string& weight, const TensorRun& run, DType dtype, std::byte* dst) override {
    const std::string name = average_ ? kAveragePrefix + weight : weight;
    const auto found = unchecked_.find(name);
    if (found != unchecked_.end()) {
      source_.check_hash(found->second);
      unchecked_.erase(found);
    }
    source_.read(name, run, dtype, dst);
  }

 private:
  NativeSource source_;
  bool average_;
  std::map<std::string, std::size_t> unchecked_;  // place in the manifest
};

OpenedModel open_checkpoint(const fs::path& folder, bool average) {
  OpenedModel opened{.format = ModelFormat::kPiton};
  const Manifest manifest = read_manifest(folder);
  const PretrainOptions options = stored_options(folder);
  const TrainState state = read_state(folder, manifest);
  opened.iteration = state.iteration;
  opened.origin = read_origin(state.facts, (folder / kStateName).string());
  opened.has_other_tokenizer = state.facts.contains(kOtherTokenizerFact);
  opened.model = options.resolve_model(std::nullopt);
  if (!options.tokenizer.is_null()) opened.tokenizer = options.tokenizer;
  for (const std::string& file : {options.tokenizer.name_or_path, options.tokenizer.vocab_file}) {
    if (file.empty()) continue;
    std::error_code ignored;
    opened.tokenizer_folder =
        fs::is_directory(file, ignored) ? fs::path(file) : fs::path(file).parent_path();
  }
  if (average && !options.optimizer.average_decay) {
    throw Error(Fault::kUsage,
                "--average: {} has no moving average: it was trained without "
                "--ema-decay",
                folder.string());
  }
  opened.source = std::make_unique<CheckedSource>(folder, manifest, average);
  if (manifest.has_optimizer())
    opened.notes.push_back(fmt::format("{}: the optimizer's state stays behind", folder.string()));
  return opened;
}

OpenedModel open_huggingface(const fs::path& path) {
  OpenedModel opened{.format = ModelFormat::kHuggingFace};
  auto source = std::make_unique<HfSource>(path);
  opened.model = source->model();
  opened.origin = read_json<nlohmann::ordered_json>(source->config().text());
  opened.notes = source->notes();
  opened.tokenizer = tokenizer_of_folder(path);
  opened.tokenizer_folder = path;
  opened.source = std::move(source);
  return opened;
}

OpenedModel open_megatron(const fs::path& path, const MegatronGiven& given) {
  OpenedModel opened{.format = ModelFormat::kMegatron};
  auto source = std::make_unique<MegatronSource>(path, given);
  opened.model = source->model();
  opened.origin = origin_of_family(source->model_type());
  opened.iteration = source->iteration();
  opened.describes_model = source->describes_model();
  opened.notes = source->notes();
  opened.tokenizer = tokenizer_of_folder(path);
  if (!opened.tokenizer.empty()) opened.tokenizer_folder = path;
  opened.source = std::move(source);
  return opened;
}

OpenedModel open_gguf(const fs::path& path) {
  OpenedModel opened{.format = ModelFormat::kGguf};
  auto source = std::make_unique<GgufSource>(path);
  opened.model = source->model();
  opened.origin = origin_of_family(source->architecture().families.front());
  try {
    opened.tokenizer_files = files_of_vocabulary(
        read_gguf_vocabulary(source->file().header(), path.string()), path.string());
  } catch (const Error& error) {
    opened.notes.push_back(fmt::format("its tokenizer stays behind: {}", error.what()));
  }
  opened.source = std::move(source);
  return opened;
}

// The type of most of the weights, as far as a model computes in it.
DType most_common_dtype(const TensorSource& source) {
  std::int64_t all = 0;
  std::int64_t bf16 = 0;
  for (const CanonicalTensor& one : source.tensors(TensorKind::kWeight)) {
    all += one.shape.elements();
    if (one.dtype == DType::kBF16) bf16 += one.shape.elements();
  }
  return 2 * bf16 > all ? DType::kBF16 : DType::kF32;
}

}  // namespace

OpenedModel open_model(const fs::path& path, const MegatronGiven& given, bool average) {
  std::error_code error;
  const ModelFormat format = model_format_of(path);
  if (format != ModelFormat::kGguf && !fs::is_directory(path, error)) {
    throw Error(Fault::kData, "{}: wanted the folder of a model, or a GGUF file: {}", path.string(),
                error ? error.message() : "it is none");
  }
  if (average && format != ModelFormat::kPiton) {
    throw Error(Fault::kUsage,
                "--average: got {}, which has no moving average; wanted a checkpoint of Piton",
                path.string());
  }
  const auto open = [&] {
    switch (format) {
      case ModelFormat::kGguf:
        return open_gguf(path);
      case ModelFormat::kHuggingFace:
        return open_huggingface(path);
      case ModelFormat::kMegatron:
        return open_megatron(path, given);
      case ModelFormat::kPiton:
        break;
    }
    OpenedModel newest;
    read_newest(path, [&](const fs::path& folder) { newest = open_checkpoint(folder, average); });
    return newest;
  };
  OpenedModel opened = open();
  opened.name = fs::absolute(path).lexically_normal().stem().string();
  opened.model.dtype = most_common_dtype(*opened.source);
  check_layers(opened.model, std::ssize(opened.source->tensors(TensorKind::kWeight)),
               opened.source->where());
  std::vector<CanonicalTensor> wanted;
  for (const CanonicalShape& one : canonical_tensors(opened.model))
    wanted.push_back({.name = one.name, .shape = one.shape});
  check_tensors(*opened.source, wanted, TensorKind::kWeight);
  return opened;
}

std::string family_of(const OpenedModel& model) {
  return model.origin.is_null() ? "" : model.origin.at("model_type").get<std::string>();
}

std::unique_ptr<Tokenizer> open_tokenizer_of(const OpenedModel& model) {
  if (const auto* gguf = dynamic_cast<const GgufSource*>(model.source.get())) {
    const std::string where = model.source->where();
    return open_gguf_tokenizer(read_gguf_vocabulary(gguf->file().header(), where), where);
  }
  return model.tokenizer.empty() ? nullptr : open_tokenizer(model.tokenizer);
}

}  // namespace piton
