#include "preferences/checked_answers.h"

#include <algorithm>

#include "base/error.h"

namespace piton {

void check_answers(const PreferenceOptions& options, const std::vector<MicroBatch>& batches) {
  for (const MicroBatch& batch : batches) {
    const bool padding =
        std::ranges::all_of(batch.labels, [](std::int32_t label) { return label == kNoLabel; });
    if (batch.answers.empty() && padding) continue;  // of CompletedSamples
    if (batch.answers.empty()) {
      throw Error(Fault::kData,
                  "--stage {}: a batch has no answers to compare; wanted preference data "
                  "(--is-pairwise-dataset)",
                  name(options.stage));
    }
    if ((batch.answers[0].role == AnswerRole::kChosen) != options.by_pairs()) {
      throw Error(Fault::kData, "--stage {}: wanted {}, got {}; give other data or another --stage",
                  name(options.stage), options.by_pairs() ? "pairs of answers" : "judged answers",
                  options.by_pairs() ? "judged answers" : "pairs of answers");
    }
  }
}

}  // namespace piton
