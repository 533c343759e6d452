// Options of distillation: a second model whose distribution is learned with the labels
// (kernels/loss.h has the formula).
#pragma once

#include <string>

#include "base/options/options.h"

namespace piton {

struct TeachingOptions {
  std::string teacher_model;
  double temperature = 1;
  double weight = 0.5;

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"teacher-model",
             "second model, of the same tokens, whose distribution is learned with the labels",
             {.placeholder = "DIR"}},
      teacher_model);
    v(Option{"distillation-temperature",
             "divisor of the logits of both models in the divergence from the teacher", same},
      temperature);
    v(Option{"distillation-weight",
             "share of that divergence in the loss; the rest is the cross entropy of the labels",
             same},
      weight);
  }

  bool given() const { return !teacher_model.empty(); }
  // Throws Error(kUsage) for a value out of its range, and for one without a teacher.
  void check() const;
};

}  // namespace piton
