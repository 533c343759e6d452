#include "cli/compatibility/environment.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <sstream>

#include "base/error.h"

namespace piton::cli {
namespace {

enum class VariableKind : std::uint8_t {
  kOption,   // means an option; the note says how
  kRead,     // read here or by the launcher
  kIgnored,  // no effect here
};

// Variables with the same treatment; a name that ends in "*" means all that begin like it.
struct VariableGroup {
  VariableKind kind;
  std::string_view names;
  std::string_view note;  // no full stop
};

constexpr const char* kSlices = "COC_PARALLEL_NUM";
constexpr const char* kMode = "COC_MODE";
constexpr const char* kFused = "USE_COC_FUSED_KERNEL";

constexpr VariableGroup kTable[] = {
    {VariableKind::kOption, "COC_PARALLEL_NUM", "`--num-slices N` (1, 2, 4 or 8)"},
    {VariableKind::kOption, "COC_MODE",
     "0 and 1 are linear layers without slices, `--num-slices 1`; 2 and -1 leave it to the other "
     "two"},
    {VariableKind::kOption, "USE_COC_FUSED_KERNEL",
     "1: `--fused-linears`; COC_PARALLEL_NUM then has no effect"},
    {VariableKind::kRead, "PITON_ISA", "the newest instruction set that kernels use: v2, v3, ..."},
    {VariableKind::kRead, "OMPI_* PMIX_* SLURM_* PMI_*", "ranks, from mpirun, srun or mpiexec"},
    {VariableKind::kRead, "RANK WORLD_SIZE",
     "ranks, from torchrun, `piton launch`, or whatever sets them; where mpirun has started the "
     "ranks, its numbers count"},
    {VariableKind::kRead, "MASTER_ADDR MASTER_PORT LOCAL_RANK LOCAL_WORLD_SIZE PITON_PORT",
     "where the ranks meet (PITON_PORT wins over MASTER_PORT), unless MPI joins them, and the GPU "
     "of each with `--kernels cuda`"},
    {VariableKind::kRead, "CUDA_VISIBLE_DEVICES",
     "by CUDA: the GPUs that `--kernels cuda` sees (of no effect in a build without CUDA)"},
    {VariableKind::kIgnored, "GROUP_RANK NODE_RANK NNODES NPUS_PER_NODE GPUS_PER_NODE",
     "the launcher has counted the ranks"},
    {VariableKind::kIgnored, "CUDA_DEVICE_MAX_CONNECTIONS",
     "sequence parallelism does not depend on it; with GPUs it is 32 (docs/cuda.md)"},
    {VariableKind::kIgnored, "ASCEND_* HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES",
     "there are no such devices here; `--kernels cuda` reads CUDA_VISIBLE_DEVICES"},
    {VariableKind::kIgnored,
     "TASK_QUEUE_ENABLE COMBINED_ENABLE PTCOPY_ENABLE DYNAMIC_OP INF_NAN_MODE_ENABLE HCCL_* NCCL_* "
     "PYTORCH_NPU_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF TORCH_* MULTI_STREAM_MEMORY_REUSE "
     "CPU_AFFINITY_CONF",
     "PyTorch's, and of libraries under it"},
    {VariableKind::kIgnored, "TOKENIZERS_PARALLELISM TRANSFORMERS_OFFLINE HF_DATASETS_OFFLINE",
     "Hugging Face's; nothing is read from a network"},
};

std::vector<std::string> names_of(const VariableGroup& group) {
  std::istringstream stream{std::string(group.names)};
  std::vector<std::string> names;
  for (std::string name; stream >> name;) names.push_back(name);
  return names;
}

bool matches(std::string_view pattern, std::string_view name) {
  if (!pattern.ends_with('*')) return pattern == name;
  return name.starts_with(pattern.substr(0, pattern.size() - 1));
}

// The value of a variable that takes one of `values`; "" if it is not set.
std::string value_of(const Variables& variables, const char* name,
                     const std::vector<std::string>& values) {
  const auto found = variables.find(name);
  if (found == variables.end() || found->second.empty()) return "";
  if (std::ranges::find(values, found->second) != values.end()) return found->second;
  throw Error(Fault::kUsage,
              "environment: {}: got \"{}\", wanted {}; or unset it and give --num-slices", name,
              found->second, fmt::join(values, ", "));
}

// The value of a flag that is given, in a file or on the command line; "" if it is not.
std::string given_value(const OptionSet& set, const std::string& flag) {
  if (!set.given(flag)) return "";
  for (const auto& [name, value] : set.values()) {
    if (name == flag) return value;
  }
  return "";
}

// MindSpeed's switches of communication over computation.
void read_slices(OptionSet& set, const Variables& variables, std::vector<std::string>& notes) {
  const std::string count = value_of(variables, kSlices, {"1", "2", "4", "8"});
  const std::string mode = value_of(variables, kMode, {"-1", "0", "1", "2"});
  const bool fused = value_of(variables, kFused, {"0", "1"}) == "1";
  const bool whole = mode == "0" || mode == "1";
  const bool has_slices = !count.empty() && count != "1";
  const std::string its_mode = fmt::format("{}={}", kMode, mode);
  const std::string its_count = fmt::format("{}={}", kSlices, count);
  const std::string its_kernels = fmt::format("{}=1", kFused);
  const auto wins = [&](const char* winner, const std::string& is, const std::string& loser) {
    notes.push_back(fmt::format("environment: {}, and {}: {} wins", is, loser, winner));
  };
  if (whole && fused) wins(kMode, its_mode + " is without slices", its_kernels + " is not");
  if (whole && has_slices) wins(kMode, its_mode + " is without slices", its_count + " has some");
  if (!whole && fused && has_slices)
    wins(kFused, its_kernels + " has tiles", its_count + " slices");
  const std::string from = whole ? its_mode : fused ? its_kernels : its_count;
  const std::string slices = whole ? "1" : fused ? "" : count;  // "": fused, or nothing is meant
  if (slices.empty() && !fused) return;
  const std::string meant = slices.empty() ? "--fused-linears" : "--num-slices " + slices;
  // Flags of either kind win.
  const std::string given = given_value(set, "num-slices");
  const bool given_fused = given_value(set, "fused-linears") == "true";
  if (given.empty() && !given_fused) {
    set.parse({slices.empty() ? "--fused-linears=true" : "--num-slices=" + slices},
              "the environment");
    if (slices != "1") notes.push_back(fmt::format("environment: {}: {}", from, meant));
    return;
  }
  const std::string flag = given_fused ? "--fused-linears" : "--num-slices " + given;
  if (flag == meant) return;
  notes.push_back(
      fmt::format("environment: {} is {}, but {} is given, which wins", from, meant, flag));
}

}  // namespace

Variables environment_variables() {
  Variables variables;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view text(*at);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

std::vector<std::string> read_environment(OptionSet& set, const Variables& variables) {
  std::vector<std::string> notes;
  read_slices(set, variables, notes);
  std::vector<std::string> ignored;
  for (const VariableGroup& group : kTable) {
    if (group.kind != VariableKind::kIgnored) continue;
    const std::vector<std::string> names = names_of(group);
    for (const auto& [name, value] : variables) {
      const bool is_one = std::ranges::any_of(
          names, [&name = name](const std::string& pattern) { return matches(pattern, name); });
      if (is_one) ignored.push_back(name);
    }
  }
  std::ranges::sort(ignored);
  if (!ignored.empty()) {
    notes.push_back(fmt::format("environment: ignored here: {}", fmt::join(ignored, ", ")));
  }
  return notes;
}

std::string world_size_note(const Variables& variables, int ranks) {
  const auto found = variables.find("WORLD_SIZE");
  if (found == variables.end() || found->second.empty() || found->second == std::to_string(ranks)) {
    return "";
  }
  return fmt::format(
      "environment: WORLD_SIZE={}, but the run has {} rank{}; the launcher's number counts",
      found->second, ranks, ranks == 1 ? "" : "s");
}

std::string environment_page() {
  std::string page =
      "\n## Environment variables\n\n"
      "Flags and files win over variables. A run names in one line those that it ignores.\n\n"
      "| variables | what becomes of them |\n| --- | --- |\n";
  for (const VariableGroup& group : kTable) {
    std::vector<std::string> names;
    for (const std::string& name : names_of(group)) names.push_back(fmt::format("`{}`", name));
    const char* const kind = group.kind == VariableKind::kIgnored ? "ignored: "
                             : group.kind == VariableKind::kRead  ? "read: "
                                                                  : "";
    page += fmt::format("| {} | {}{} |\n", fmt::join(names, ", "), kind, group.note);
  }
  return page;
}

}  // namespace piton::cli
