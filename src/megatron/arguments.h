// The arguments of a Megatron run, as its checkpoints keep them, and the model that they describe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatron/layout.h"
#include "model/config.h"
#include "pickle/pickle_value.h"
#include "pickle/torch_writer.h"

namespace piton {

// Under which a checkpoint keeps its arguments: a namespace in those of Megatron, a plain dict
// under the second name in those of Piton, which torch.load(weights_only=True) reads.
inline constexpr const char* kMegatronArguments = "args";
inline constexpr const char* kPitonArguments = "model_args";

struct MegatronArguments {
  ModelConfig model;                       // its vocabulary is without padding where that is known
  std::optional<std::int64_t> vocabulary;  // --vocab-size of the run
  MegatronLayout layout;                   // padded_vocabulary 0 where it is not said
};

// `arguments`: a namespace or a dict. Throws Error(kData) naming `where` and the argument: one that
// is absent, of another kind, or that asks for what Piton does not have.
MegatronArguments read_megatron_arguments(const PickleValue& arguments, const std::string& where);

// The other way: a dict.
void write_megatron_arguments(const ModelConfig& model, const MegatronLayout& layout,
                              TorchWriter& out);
// The same as an argparse.Namespace, as Megatron-LM keeps them and reads them with
// --use-checkpoint-args.
void write_megatron_namespace(const ModelConfig& model, const MegatronLayout& layout,
                              TorchWriter& out);

}  // namespace piton
