// Adapters on disk (nn/adapters.h), and the model that they belong to, their base: a run that
// trained adapters, one of its checkpoints, a folder of PEFT, or a GGUF file.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "checkpoint/tensor_source.h"
#include "comm/communicator.h"
#include "model_files/opened_model.h"
#include "nn/adapters.h"

namespace piton {

// Fact of TrainState: weights_hash() (adapters/base_hash.h) of the base of a run's adapters.
inline constexpr const char* kBaseFact = "lora.base";

struct OpenedAdapter {
  std::string kind;  // for messages: "adapters of a run", "adapter of PEFT", "adapter of llama.cpp"
  Adapters adapters;
  std::unique_ptr<TensorSource> source;  // of all that `adapters` train
  std::string base_hash;                 // "": not known
  // Of a run: its tokenizer, and the facts of its checkpoint.
  ModelTokenizer tokenizer;
  std::map<std::string, std::string> facts;
  ModelChatTemplates chat_templates;  // that are in a folder of PEFT; mostly none
};

// Whether `path` is an adapter alone, without the state of a run: a folder of PEFT or a GGUF file.
bool is_adapter_alone(const std::filesystem::path& path);

// Throws Error(kData) if `path` is neither an adapter alone nor a run or a checkpoint of Piton.
void check_holds_adapter(const std::filesystem::path& path);

// Opens the adapters in `path` for the model `base`. Collective: all ranks get the same checkpoint.
// If the adapters say which base they were trained on, reads all weights of `base` and compares
// them. Throws Error(kData) for a folder without adapters, for damaged ones, and for those of
// another model or of other weights.
OpenedAdapter open_adapter(const std::filesystem::path& path, OpenedModel& base,
                           Communicator& ranks);

// `--load` and `--lora-load` of a command, after a run that trained adapters was replaced by its
// base: "" for no adapters.
struct ModelPaths {
  std::filesystem::path base;
  std::filesystem::path adapters;
};

// Throws Error(kData) for a damaged checkpoint and for a run whose base is not there any more, and
// Error(kUsage) if `load` is a run of adapters and `lora_load` is given too.
ModelPaths model_paths(const std::filesystem::path& load, const std::filesystem::path& lora_load);

// The model in `path`, of which no weights are read: of a run of adapters its base, with the head
// that is trained with them. Throws as model_paths() and open_model().
ModelConfig described_model(const std::filesystem::path& path);

// A model with adapters has the chat templates that it was trained with, if the adapters have some.
void take_chat_templates(const OpenedAdapter& adapter, OpenedModel& base);

// Replaces `templates`, those of the base, for a run that continues the adapters in `path`: by
// those of a folder of PEFT, or those that a run of adapters keeps. Returns a line about it; ""
// where there are none, or the same.
std::string take_chat_templates(const std::filesystem::path& path, ModelChatTemplates& templates);

// Writes the default template of `own` into `folder`, a folder of PEFT, where take_chat_templates()
// finds it. Nothing if there is none, or if it is `base`, the text of the base's.
void write_adapter_template(const ChatTemplateFiles& own, const std::string& base,
                            const std::filesystem::path& folder);

// The chat templates that a run keeps. `path`: its folder, or one of its checkpoints.
ModelChatTemplates chat_templates_of_run_in(const std::filesystem::path& path);

// Makes `base` the model with the adapters in its weights (adapters/merged_source.h). Its tokenizer
// is that of the adapters' run, if there is one; of a folder of PEFT with a chat template it has
// that.
void merge_adapters(OpenedModel& base, OpenedAdapter adapter);

}  // namespace piton
