// The configuration of DeepSpeed as options of a run: --deepspeed --deepspeed_config FILE, as
// scripts of AscendSpeed have it.
//
// Keys of which something here depends become options; keys that only concern how DeepSpeed
// communicates are checked and have no effect. "auto" is the value of the flag, as in
// Transformers. Source: deepspeed.ai/docs/config-json, and deepspeed/runtime/config.py of 0.9.2.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/options/options.h"
#include "cli/compatibility/megatron_flags.h"
#include "parallel/parallel_options.h"

namespace piton::cli {

class DeepSpeedConfig {
 public:
  // Reads the file. Throws Error(kUsage) with every key that is unknown, has a wrong value, or asks
  // for what there is not; Error(kData) if the file cannot be read.
  explicit DeepSpeedConfig(const std::filesystem::path& file);

  // Sets the options that the keys mean. Throws Error(kUsage) with every key that contradicts a
  // given flag.
  void apply(OptionSet& set) const;

  // train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x data-parallel
  // ranks: sets what two of them say of the third, as DeepSpeed does. After apply(). Throws
  // Error(kUsage) if they contradict each other.
  void settle_batch(OptionSet& set, std::int64_t data_ranks) const;

 private:
  struct Meant {
    std::string key;
    std::string flag;
    std::string value;
  };
  void read(const nlohmann::json& object, const std::string& path);
  void read_value(const nlohmann::json& value, const std::string& path);
  void mean(const std::string& key, const char* flag, const std::string& value);
  void read_optimizer(const nlohmann::json& optimizer);
  void read_scheduler(const nlohmann::json& scheduler);
  void read_offloading(const nlohmann::json& target, const std::string& path);

  std::string file_;
  std::vector<Meant> meant_;
  std::vector<std::string> mistakes_;
  std::optional<bool> fp16_;  // empty: "auto"
  std::optional<std::int64_t> accumulation_;
  bool derives_micro_batch_ = false;  // the key is absent
};

// What --deepspeed and its companions ask for, applied to the options; nothing without --deepspeed.
// Throws Error(kUsage) if one of them lacks another, or if --no-pipeline-parallel is given with
// several stages.
std::optional<DeepSpeedConfig> read_deepspeed(const MegatronFlags& given, OptionSet& set,
                                              const ParallelOptions& parallel);

}  // namespace piton::cli
