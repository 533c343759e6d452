#include "train/run_stage.h"

#include "base/json.h"
#include "base/listed.h"
#include "checkpoint/collective.h"
#include "data/labels/found_labels.h"
#include "model/label_head.h"
#include "rollouts/reward_program.h"
#include "train/record_files.h"
#include "train/reference_model.h"
#include "train/run/foreign_model.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostNamed = 40;

// The files of records that say the labels; none if something else does.
std::vector<std::string> files_with_labels(const PretrainOptions& options) {
  const LabelOptions& labels = options.model.labels;
  if (!options.preferences.classifies() || labels.number() > 0 || has_labels_of_own(options))
    return {};
  return record_files_of(options);
}

}  // namespace

void settle_stage(PretrainOptions& options, Communicator& everyone, Log& log) {
  phase(everyone, std::nullopt, [&] {
    options.apply_stage();
    check_preference_options(options);
    set_head_of_stage(options);
  });
  // The first rank alone starts it.
  const std::string& command = options.rollouts.reward_command;
  if (!command.empty()) phase(everyone, 0, [&] { check_reward_command(command); });
  LabelOptions& labels = options.model.labels;
  const Json found = read_json<Json>(found_by_first(everyone, [&] {
    const std::vector<std::string> files = files_with_labels(options);
    if (files.empty()) return Json(nullptr).dump();
    const FoundLabels all =
        labels_of_records(files, options.records.map_keys, labels.several(), log);
    return Json{{"count", all.count}, {"names", all.names}}.dump(-1, ' ', false,
                                                                 Json::error_handler_t::replace);
  }));
  if (found.is_null()) return;
  labels.names = found.at("names").get<std::vector<std::string>>();
  if (labels.names.empty()) labels.count = found.at("count").get<std::int64_t>();
  log.info(fmt::format("labels: {}, those of the records: {}", labels.number(),
                       labels.names.empty() ? fmt::format("0 to {}", *labels.count - 1)
                                            : listed(labels.names, kMostNamed)));
}

}  // namespace piton
