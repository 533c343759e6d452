// The arguments of a Megatron run, as stored in its checkpoints, and the model that they describe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatron/format/layout.h"
#include "model/config.h"
#include "pickle/pickle_value.h"
#include "pickle/torch_writer.h"

namespace piton {

// Keys of the arguments in a checkpoint: a namespace in Megatron's checkpoints; in Piton's a plain
// dict under the second name, which torch.load(weights_only=True) can read.
inline constexpr const char* kMegatronArguments = "args";
inline constexpr const char* kPitonArguments = "model_args";

struct MegatronArguments {
  ModelConfig model;                       // its vocabulary is without padding if that is known
  std::optional<std::int64_t> vocabulary;  // --vocab-size of the run
  MegatronLayout layout;                   // padded_vocabulary is 0 if not given
  // model_type of the Hugging Face folder that the weights come from; "": not said. Only Piton
  // writes it, so that they go back into a folder of the same family.
  std::string model_type;
  // Of an encoder: its head has the activation of the layers. Only Piton writes it; Megatron's head
  // has the exact GELU.
  bool head_like_layers = false;
};

// `arguments`: a namespace or a dict. Throws Error(kData) with `where` and the argument if one is
// missing, has the wrong kind, or asks for a feature that Piton does not have.
MegatronArguments read_megatron_arguments(const PickleValue& arguments, const std::string& where);

// The inverse; writes a dict.
void write_megatron_arguments(const MegatronArguments& arguments, TorchWriter& out);
// The same as an argparse.Namespace, as Megatron-LM keeps them and reads them with
// --use-checkpoint-args.
void write_megatron_namespace(const MegatronArguments& arguments, TorchWriter& out);

// The model that is read where the arguments of `model` are written: another one where they lack
// words. Throws Error(kData) where they contradict each other.
ModelConfig model_in_megatron(const ModelConfig& model);

// What of the model only Piton's readers find in the arguments, as Megatron-LM and MindSpeed have
// no argument for it: "a normalized head"; "" if nothing.
std::string beyond_megatron(const ModelConfig& model);

}  // namespace piton
