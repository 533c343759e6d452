// A model on disk, in any format: its description, its weights, its tokenizer, and what else its
// files say. Every command opens models here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/tensor_source.h"
#include "comm/communicator.h"
#include "megatron/megatron_source.h"
#include "model/config.h"
#include "model_files/chat_templates.h"
#include "model_files/model_format.h"
#include "model_files/model_tokenizer.h"

namespace piton {

class GgufSource;
class HfSource;

struct OpenedModel {
  ModelFormat format = ModelFormat::kPiton;
  std::string kind;  // for messages: "llama", "checkpoint of Megatron", "GGUF file"
  std::string name;  // of its folder or file
  // `dtype` is that in which it computes: as the format says, or else that of most of the weights.
  ModelConfig model;
  DType weights_dtype = DType::kF32;  // of most of the weights: fp32 or bf16

  std::unique_ptr<TensorSource> source;
  // `source` as the class of its format; null in the other formats.
  const HfSource* huggingface = nullptr;
  MegatronSource* megatron = nullptr;
  const GgufSource* gguf = nullptr;

  ModelTokenizer tokenizer;
  ModelChatTemplates chat_templates;
  // The default one of merged adapters, which the files of `tokenizer` do not have; "": they have
  // it.
  std::string adapter_template;
  // Of the Hugging Face folder that it is or comes from (huggingface/files/origin.h); null: not
  // known.
  nlohmann::ordered_json origin;
  // Facts of its checkpoint, and of those of a run that starts from it (TrainState::facts).
  std::map<std::string, std::string> facts;
  std::int64_t iteration = 0;  // iterations that it was trained, if known
  // A checkpoint of Megatron that is no release: how far its run is.
  std::optional<MegatronRun> run;
  bool new_head = false;           // a head for labels that is not in its files (label_base.h)
  std::vector<std::string> drawn;  // tensors of it that a run draws; `source` has zeros
  bool describes_model = true;     // false: the user had to describe it
  bool has_optimizer = false;      // a checkpoint of Piton with a state that is not in `source`
  std::vector<std::string> notes;  // notes for the user, one line each

  // Whether it is of a run with another tokenizer than that of the origin.
  bool has_other_tokenizer() const { return facts.contains(kOtherTokenizerFact); }
};

struct OpenRequest {
  std::filesystem::path path;
  MegatronGiven given = {};  // for a checkpoint of Megatron
  // Of a checkpoint of Piton the moving average of the weights in their place.
  bool average = false;
  // All of them open the model, and get the same checkpoint of a run that may still be training.
  // The call is then collective. Null: one rank opens it alone.
  Communicator* ranks = nullptr;
};

// Opens the newest checkpoint of a run, one checkpoint, or another program's model. Throws
// Error(kData) naming what is wrong with it, or that it is not a model, and Error(kUsage) if there
// is no moving average. Bytes of a checkpoint of Piton are compared with their hashes when they are
// first read.
OpenedModel open_model(const OpenRequest& request);

// Opens the state of the optimizer of `model.megatron`, which `source` then has, and completes
// `model.run` by it. Throws Error(kData) as MegatronSource::open_optimizer().
void open_optimizer(OpenedModel& model);

// model_type of config.json that the model has, or had before; "": not known.
std::string family_of(const OpenedModel& model);

// Null where there is none. Throws Error(kData) as open_tokenizer() does.
std::unique_ptr<Tokenizer> open_tokenizer_of(const OpenedModel& model);

}  // namespace piton
