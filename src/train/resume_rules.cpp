#include "train/resume_rules.h"

#include <vector>

#include "base/error.h"
#include "checkpoint/store.h"

namespace piton {

std::string configuration_of(PretrainOptions& settled) {
  OptionSet set;
  settled.add_to(set);
  return set.to_toml();
}

std::string compare_options(const std::filesystem::path& checkpoint, PretrainOptions& settled) {
  read_config(checkpoint, read_manifest(checkpoint));  // its hash, before it is believed
  OptionSet set;
  settled.add_to(set);
  const std::filesystem::path stored = checkpoint / kConfigName;
  const std::vector<std::string> differences = set.differences(stored);
  if (!differences.empty()) {
    throw Error(
        Fault::kUsage,
        "--load: {} is another experiment: {}; use its values, or start anew with another --save "
        "(--finetune starts from its weights)",
        checkpoint.string(), fmt::join(differences, "; "));
  }
  const std::vector<std::string> schedule = set.differences(stored, Resume::kSchedule);
  if (!schedule.empty() && !settled.loop.override_scheduler) {
    throw Error(Fault::kUsage,
                "--load: {} has another learning rate ahead: {}; use its values, or give "
                "--override-opt_param-scheduler to go on with this run's",
                checkpoint.string(), fmt::join(schedule, "; "));
  }
  return fmt::format("{}", fmt::join(schedule, "; "));
}

}  // namespace piton
