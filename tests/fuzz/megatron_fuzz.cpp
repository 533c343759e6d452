// libraries: piton_megatron
// Any bytes as the file of a rank of Megatron-LM, and of DeepSpeed without and with ZeRO-3, and as
// those of their optimizers: a model whose every tensor is read, or an Error.
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "fuzz/scratch_files.h"
#include "megatron/megatron_source.h"

namespace {

void read_kind(piton::MegatronSource& source, piton::TensorKind kind) {
  for (const piton::CanonicalTensor& tensor : source.tensors(kind)) {
    std::vector<std::byte> bytes(
        static_cast<std::size_t>(tensor.shape.elements() * size_bytes(tensor.dtype)));
    source.read(tensor.name, piton::whole_run(tensor.shape), tensor.dtype, bytes.data());
  }
}

void read_all(const std::filesystem::path& folder) {
  try {
    piton::MegatronSource source(folder);
    read_kind(source, piton::TensorKind::kWeight);
    source.open_optimizer();
    read_kind(source, piton::TensorKind::kOptimizer);
  } catch (const piton::Error& error) {
    PITON_ASSERT(error.fault() == piton::Fault::kData, "{}", error.what());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::filesystem::create_directories(piton::scratch_folder() / "megatron/mp_rank_00");
  std::filesystem::create_directories(piton::scratch_folder() / "deepspeed");
  piton::scratch_file("megatron/mp_rank_00/model_optim_rng.pt", bytes);
  read_all(piton::scratch_folder() / "megatron");
  piton::scratch_file("deepspeed/mp_rank_00_model_states.pt", bytes);
  piton::scratch_file("deepspeed/zero_pp_rank_0_mp_rank_00_optim_states.pt", bytes);
  read_all(piton::scratch_folder() / "deepspeed");
  std::filesystem::create_directories(piton::scratch_folder() / "shares/mp_rank_00");
  std::filesystem::create_directories(piton::scratch_folder() / "shares/mp_rank_00_000");
  piton::scratch_file("shares/mp_rank_00/model_rng.pt", bytes);
  piton::scratch_file("shares/mp_rank_00_000/optim.pt", bytes);
  read_all(piton::scratch_folder() / "shares");
  std::filesystem::create_directories(piton::scratch_folder() / "zero3");
  piton::scratch_file("zero3/zero_pp_rank_0_mp_rank_00_model_states.pt", bytes);
  piton::scratch_file("zero3/zero_pp_rank_0_mp_rank_00_optim_states.pt", bytes);
  read_all(piton::scratch_folder() / "zero3");
  return 0;
}
