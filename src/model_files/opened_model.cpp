#include "model_files/opened_model.h"

#include <system_error>
#include <utility>

#include "base/error.h"
#include "checkpoint/collective.h"
#include "checkpoint/load_values.h"
#include "checkpoint/read_newest.h"
#include "gguf/gguf_source.h"
#include "gguf/vocabulary/vocabulary.h"
#include "huggingface/files/origin.h"
#include "huggingface/hf_source.h"
#include "model/canonical_tensors.h"
#include "model_files/checked_source.h"
#include "model_files/native_config.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

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

OpenedModel open_checkpoint(const fs::path& folder, bool average) {
  OpenedModel opened{.format = ModelFormat::kPiton, .kind = "checkpoint of Piton"};
  const Manifest manifest = read_manifest(folder);
  const NativeConfig config = read_native_config(folder);
  TrainState state = read_state(folder, manifest);
  opened.iteration = state.iteration;
  opened.origin = read_origin(state.facts, (folder / kStateName).string());
  opened.facts = std::move(state.facts);
  opened.model = resolve_model(config.model, config.tokenizer, std::nullopt);
  opened.tokenizer = tokenizer_of_checkpoint(config.tokenizer, folder);
  opened.chat_templates = chat_templates_in(opened.tokenizer.folder);
  if (average && !CheckedSource::has_average(manifest)) {
    throw Error(Fault::kUsage,
                "--average: {} has no moving average: it was trained without --ema-decay{}",
                folder.string(), manifest.has_optimizer() ? "" : ", or saved by --no-save-optim");
  }
  opened.source = std::make_unique<CheckedSource>(
      folder, manifest, average ? WeightsKind::kAverage : WeightsKind::kTrained);
  opened.has_optimizer = manifest.has_optimizer();
  return opened;
}

OpenedModel open_huggingface(const fs::path& path) {
  OpenedModel opened{.format = ModelFormat::kHuggingFace};
  auto source = std::make_unique<HfSource>(path);
  opened.kind = source->config().word("model_type");
  opened.model = source->model();
  opened.origin = read_json<nlohmann::ordered_json>(source->config().text());
  opened.origin.erase(kQuantizationKey);  // of these files, not of the model
  opened.notes = source->notes();
  opened.tokenizer = tokenizer_of_folder(path);
  opened.tokenizer.folder = path;  // it may have generation settings alone
  opened.chat_templates = chat_templates_in(path);
  opened.huggingface = source.get();
  opened.source = std::move(source);
  return opened;
}

OpenedModel open_megatron(const fs::path& path, const MegatronGiven& given) {
  OpenedModel opened{.format = ModelFormat::kMegatron, .kind = "checkpoint of Megatron"};
  auto source = std::make_unique<MegatronSource>(path, given);
  opened.model = source->model();
  opened.origin = origin_of_family(source->model_type());
  opened.iteration = source->iteration();
  if (!source->is_release()) opened.run = source->run();
  opened.describes_model = source->describes_model();
  opened.notes = source->notes();
  opened.tokenizer = tokenizer_of_folder(path);
  opened.chat_templates = chat_templates_in(opened.tokenizer.folder);
  opened.megatron = source.get();
  opened.source = std::move(source);
  return opened;
}

OpenedModel open_gguf(const fs::path& path) {
  OpenedModel opened{.format = ModelFormat::kGguf, .kind = "GGUF file"};
  auto source = std::make_unique<GgufSource>(path);
  const GgufHeader& header = source->file().header();
  opened.model = source->model();
  opened.origin = origin_of_family(source->family());
  try {
    opened.tokenizer.texts =
        files_of_vocabulary(read_gguf_vocabulary(header, path.string()), path.string());
  } catch (const Error& error) {
    opened.notes.push_back(fmt::format("its tokenizer stays behind: {}", error.what()));
  }
  opened.chat_templates = chat_templates_of(header, opened.tokenizer.texts, path.string());
  opened.gguf = source.get();
  opened.source = std::move(source);
  return opened;
}

OpenedModel open_newest(const OpenRequest& request) {
  OpenedModel newest;
  const auto read = [&](const fs::path& folder) {
    newest = open_checkpoint(folder, request.average);
  };
  if (request.ranks == nullptr) {
    read_newest(request.path, read);
  } else {
    read_newest(request.path, *request.ranks,
                [&](const fs::path& folder) { phase(*request.ranks, {}, [&] { read(folder); }); });
  }
  return newest;
}

OpenedModel open(const OpenRequest& request, ModelFormat format) {
  switch (format) {
    case ModelFormat::kHuggingFace:
      return open_huggingface(request.path);
    case ModelFormat::kMegatron:
      return open_megatron(request.path, request.given);
    case ModelFormat::kGguf:
      return open_gguf(request.path);
    case ModelFormat::kPiton:
      break;
  }
  return open_newest(request);
}

void check_weights(const OpenedModel& model) {
  check_layers(model.model, std::ssize(model.source->tensors(TensorKind::kWeight)),
               model.source->where());
  std::vector<CanonicalTensor> wanted;
  for (const CanonicalShape& one : canonical_tensors(model.model))
    wanted.push_back({.name = one.name, .shape = one.shape});
  check_tensors(*model.source, wanted, TensorKind::kWeight);
}

// Throws Error(kData) if there is nothing that could be a model.
void check_is_there(const fs::path& path, ModelFormat format) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::not_found) {
    throw Error(Fault::kData,
                "{}: there is no such folder, wanted the folder of a run or of a model, or a GGUF "
                "file",
                path.string());
  }
  if (format != ModelFormat::kGguf && type != fs::file_type::directory) {
    throw Error(Fault::kData, "{}: wanted the folder of a model, or a GGUF file: {}", path.string(),
                error ? error.message() : "it is none");
  }
}

}  // namespace

OpenedModel open_model(const OpenRequest& request) {
  const fs::path& path = request.path;
  const ModelFormat format = model_format_of(path);
  const auto check = [&] { check_is_there(path, format); };
  if (request.ranks != nullptr) {
    phase(*request.ranks, std::nullopt, check);
  } else {
    check();
  }
  if (request.average && format != ModelFormat::kPiton) {
    throw Error(Fault::kUsage,
                "--average: got {}, which has no moving average; wanted a checkpoint of Piton",
                path.string());
  }
  OpenedModel opened = open(request, format);
  opened.name = fs::absolute(path).lexically_normal().stem().string();
  opened.weights_dtype = most_common_dtype(*opened.source);
  const bool says_dtype = format == ModelFormat::kPiton || format == ModelFormat::kHuggingFace;
  if (!says_dtype) opened.model.dtype = opened.weights_dtype;
  if (format != ModelFormat::kPiton) keep_origin(opened.origin, opened.facts);
  check_weights(opened);
  return opened;
}

void open_optimizer(OpenedModel& model) {
  model.megatron->open_optimizer();
  model.run = model.megatron->run();
  model.notes = model.megatron->notes();
}

std::string family_of(const OpenedModel& model) {
  return model.origin.is_null() ? "" : model.origin.at("model_type").get<std::string>();
}

std::unique_ptr<Tokenizer> open_tokenizer_of(const OpenedModel& model) {
  return open_tokenizer(model.tokenizer, model.source->where());
}

}  // namespace piton
