#include "train/held_out.h"

#include <algorithm>

#include "session/label_counts.h"
#include "session/objective.h"
#include "session/session.h"

namespace piton {
namespace {

struct Sums {
  double loss = 0;
  double tokens = 0;
  std::vector<ObjectiveFigure> figures;
  LabelCounts labels;

  void add(const Sums& more) {
    loss += more.loss;
    tokens += more.tokens;
    add_figures(more.figures, figures);
    labels.add(more.labels);
  }
  RunValidation result(HeldOutSet set, const std::string& name, std::int64_t iteration) const {
    RunValidation result{.set = set, .name = name, .iteration = iteration, .figures = figures};
    if (!labels.empty()) add_figures(labels.figures(), result.figures);
    if (tokens > 0) result.loss = loss / tokens;
    return result;
  }
};

}  // namespace

std::vector<RunValidation> evaluate_held_out(OpenedRun& run, HeldOutSet set,
                                             const std::function<void(std::int64_t)>& at_batch) {
  const LoopOptions& loop = run.settled.loop;
  const std::int64_t iteration = run.state.iteration;
  const std::int64_t round = std::max<std::int64_t>(iteration - 1, 0) / loop.eval_interval;
  const bool anew = loop.full_validation || set == HeldOutSet::kTest;
  const std::vector<RunData::HeldOut>& sets = run.data->held_out(set);
  std::vector<RunValidation> results;
  Sums all;
  std::int64_t batch = 0;
  for (const RunData::HeldOut& one : sets) {
    Sums sums;
    const std::int64_t first = anew ? 0 : round * one.batches;
    for (std::int64_t i = 0; i < one.batches; ++i) {
      at_batch(++batch);
      const std::int64_t consumed = (first + i) * run.plan.global_batch;
      const Session::Evaluation part =
          run.session->evaluate(run.data->held_out_batch(one, *run.mesh, consumed));
      sums.add({part.loss_sum, part.loss_tokens, part.figures, part.labels});
    }
    if (sets.size() > 1) results.push_back(sums.result(set, one.name, iteration));
    all.add(sums);
  }
  results.push_back(all.result(set, "", iteration));
  return results;
}

}  // namespace piton
