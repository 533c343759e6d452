#include "pickle/globals.h"

#include <algorithm>
#include <array>
#include <utility>

namespace piton {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kStorages = {{
    {"torch.FloatStorage", "F32"},
    {"torch.BFloat16Storage", "BF16"},
    {"torch.HalfStorage", "F16"},
    {"torch.DoubleStorage", "F64"},
    {"torch.LongStorage", "I64"},
    {"torch.IntStorage", "I32"},
    {"torch.ShortStorage", "I16"},
    {"torch.CharStorage", "I8"},
    {"torch.ByteStorage", "U8"},
    {"torch.BoolStorage", "BOOL"},
    {"torch.storage.UntypedStorage", "U8"},
}};

constexpr std::pair<std::string_view, PickleGlobal> kGlobals[] = {
    {"collections.OrderedDict", PickleGlobal::kDict},
    {"collections.defaultdict", PickleGlobal::kDict},
    {"builtins.dict", PickleGlobal::kDict},
    {"__builtin__.dict", PickleGlobal::kDict},
    {"builtins.list", PickleGlobal::kList},
    {"__builtin__.list", PickleGlobal::kList},
    {"builtins.tuple", PickleGlobal::kList},
    {"__builtin__.tuple", PickleGlobal::kList},
    {"builtins.set", PickleGlobal::kList},
    {"__builtin__.set", PickleGlobal::kList},
    {"builtins.frozenset", PickleGlobal::kList},
    {"__builtin__.frozenset", PickleGlobal::kList},
    {"torch.Size", PickleGlobal::kList},
    {"torch._utils._rebuild_tensor", PickleGlobal::kTensor},
    {"torch._utils._rebuild_tensor_v2", PickleGlobal::kTensor},
    {"torch._utils._rebuild_parameter", PickleGlobal::kParameter},
    {"torch._utils._rebuild_parameter_with_state", PickleGlobal::kParameter},
    {"torch._tensor._rebuild_from_type", PickleGlobal::kTyped},
    {"torch._tensor._rebuild_from_type_v2", PickleGlobal::kTyped},
    {"_codecs.encode", PickleGlobal::kBytes},
    {"copy_reg._reconstructor", PickleGlobal::kReconstruct},
    {"copyreg._reconstructor", PickleGlobal::kReconstruct},
};

// Inert: classes of run arguments and random states, and values that name types.
constexpr std::string_view kObjects[] = {
    "argparse.Namespace",
    "types.SimpleNamespace",
    "builtins.object",
    "__builtin__.object",
    "builtins.bytearray",
    "__builtin__.bytearray",
    "builtins.complex",
    "__builtin__.complex",
    "pathlib.PosixPath",
    "pathlib.PurePosixPath",
    "pathlib._local.PosixPath",
    "datetime.timedelta",
    "signal.Signals",
    "torch.device",
    "torch.Tensor",
    "torch.nn.parameter.Parameter",
    "torch.float32",
    "torch.float",
    "torch.float64",
    "torch.float16",
    "torch.half",
    "torch.bfloat16",
    "torch.int64",
    "torch.int32",
    "torch.int16",
    "torch.int8",
    "torch.uint8",
    "torch.bool",
    "torch.float8_e4m3fn",
    "torch.float8_e5m2",
    "torch.serialization._get_layout",
    "numpy.ndarray",
    "numpy.dtype",
    "numpy.core.multiarray._reconstruct",
    "numpy.core.multiarray.scalar",
    "numpy._core.multiarray._reconstruct",
    "numpy._core.multiarray.scalar",
    // The metadata of torch.distributed.checkpoint, of all versions, and Megatron-core's.
    "torch.distributed.checkpoint.metadata.Metadata",
    "torch.distributed.checkpoint.metadata.MetadataIndex",
    "torch.distributed.checkpoint.metadata.StorageMeta",
    "torch.distributed.checkpoint.metadata.TensorStorageMetadata",
    "torch.distributed.checkpoint.metadata.BytesStorageMetadata",
    "torch.distributed.checkpoint.metadata.ChunkStorageMetadata",
    "torch.distributed.checkpoint.metadata.TensorProperties",
    "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING",
    "torch.distributed._shard.sharded_tensor.metadata.TensorProperties",
    "torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING",
    "torch.distributed.checkpoint.filesystem._StorageInfo",
    "torch.distributed.checkpoint.filesystem._StoragePrefix",
    "torch.distributed.checkpoint.planner.SavePlan",
    "torch.distributed.checkpoint.planner.WriteItem",
    "torch.distributed.checkpoint.planner.WriteItemType",
    "torch.distributed.checkpoint.planner.TensorWriteData",
    "torch.distributed.checkpoint.planner.BytesIOWriteData",
    // The optimizers of DeepSpeed's ZeRO.
    "deepspeed.runtime.fp16.loss_scaler.LossScaler",
    "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler",
    "deepspeed.runtime.zero.config.ZeroStageEnum",
    "deepspeed.utils.tensor_fragment.fragment_address",
    "megatron.core.dist_checkpointing.strategies.torch.MCoreMetadata",
    "megatron.core.dist_checkpointing.strategies.torch.MCoreSavePlan",
};

// Enumerations of Megatron-LM and its derivatives, in the modules of all versions.
constexpr std::string_view kEnumerationModules[] = {
    "megatron.model.enums.",        "megatron.legacy.model.enums.",
    "megatron.core.enums.",         "megatron.core.transformer.enums.",
    "megatron.core.models.common.", "megatron.core.rerun_state_machine.",
    "ascendspeed.enums.",           "ascendspeed.model.enums.",
    "modellink.model.enums.",       "mindspeed_llm.legacy.model.enums.",
};
constexpr std::string_view kEnumerations[] = {
    "ModelType",
    "LayerType",
    "AttnType",
    "AttnMaskType",
    "AttnBackend",
    "CudaGraphScope",
    "PositionEmbeddingType",
    "Fp8Recipe",
    "Fp4Recipe",
    "RerunMode",
    "RerunDiagnostic",
};

bool is_enumeration(std::string_view name) {
  return std::ranges::any_of(kEnumerationModules, [&](std::string_view module) {
    return name.starts_with(module) &&
           std::ranges::find(kEnumerations, name.substr(module.size())) != std::end(kEnumerations);
  });
}

}  // namespace

std::string_view storage_dtype(std::string_view name) {
  const auto found =
      std::ranges::find(kStorages, name, &std::pair<std::string_view, std::string_view>::first);
  return found == kStorages.end() ? "" : found->second;
}

std::optional<PickleGlobal> pickle_global(std::string_view name) {
  for (const auto& [known, kind] : kGlobals) {
    if (known == name) return kind;
  }
  if (!storage_dtype(name).empty()) return PickleGlobal::kStorage;
  if (std::ranges::find(kObjects, name) != std::end(kObjects) || is_enumeration(name))
    return PickleGlobal::kObject;
  return std::nullopt;
}

}  // namespace piton
