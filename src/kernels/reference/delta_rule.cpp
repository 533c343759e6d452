// The gated delta rule and that of a state space, row by row.
#include "kernels/recurrent/delta_rule.h"

#include <cmath>
#include <vector>

#include "kernels/reference/calls.h"
#include "kernels/reference/recurrent.h"
#include "kernels/reference/values.h"

namespace piton::reference {
namespace {

using Vector = std::vector<double>;

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// A row of a head over its length, times `factor`; of a state space the row itself.
struct KeyRow {
  Vector x;
  double inverse = 1;
  bool unit = true;

  KeyRow(const Values& rows, std::int64_t row, std::int64_t head, double factor, bool is_unit)
      : unit(is_unit) {
    double squares = kDeltaNormEps;
    const std::int64_t d = rows.shape()[2];
    for (std::int64_t i = 0; i < d; ++i) squares += rows(row, head, i) * rows(row, head, i);
    if (unit) inverse = 1 / std::sqrt(squares);
    for (std::int64_t i = 0; i < d; ++i) x.push_back(rows(row, head, i) * inverse * factor);
  }

  // Adds to the gradient of the row, from `d` of x.
  void add_gradient(const Vector& d, double factor, Values& to, std::int64_t row,
                    std::int64_t head) const {
    double along = 0;
    for (std::size_t i = 0; unit && i < d.size(); ++i) along += d[i] * x[i];
    along /= factor;
    for (std::size_t i = 0; i < d.size(); ++i) {
      to(row, head, static_cast<std::int64_t>(i)) +=
          unit ? inverse * factor * (d[i] - x[i] / factor * along) : d[i];
    }
  }
};

struct Inputs {
  explicit Inputs(const DeltaRuleInput& in)
      : q(Values::read(in.q)),
        k(Values::read(in.k)),
        v(Values::read(in.v)),
        decay(Values::read(in.decay)),
        strength(Values::read(in.strength)),
        rate(Values::read(in.rate)),
        bias(Values::read(in.bias)),
        skip(Values::read(in.skip)),
        segments(Values::read(in.segments)),
        n(in.q.dim(0)),
        keys(in.q.dim(2)),
        values(in.v.dim(2)),
        heads(in.v.dim(1)),
        shared(in.v.dim(1) / in.q.dim(1)),
        corrects(in.rule == StateRule::kDelta),
        factor(corrects ? 1 / std::sqrt(static_cast<double>(in.q.dim(2))) : 1) {}

  double step(std::int64_t row, std::int64_t head) const {
    const double x = decay(row, head) + bias(head);
    return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
  }
  // The logarithm of `keep`.
  double log_keep(std::int64_t row, std::int64_t head) const {
    return -std::exp(rate(head)) * step(row, head);
  }
  // What d is times the error.
  double gate(std::int64_t row, std::int64_t head) const {
    return corrects ? logistic(strength(row, head)) : step(row, head);
  }
  KeyRow query_row(std::int64_t row, std::int64_t head) const {
    return {q, row, head / shared, factor, corrects};
  }
  KeyRow key_row(std::int64_t row, std::int64_t head) const {
    return {k, row, head / shared, 1, corrects};
  }
  bool begins(std::int64_t row, std::int64_t first) const {
    return row == first || (segments.given() && segments(row) != segments(row - 1));
  }

  Values q, k, v, decay, strength, rate, bias, skip, segments;
  std::int64_t n, keys, values, heads, shared;
  bool corrects;
  double factor;
};

// One head of one text: its state [dk, dv].
class State {
 public:
  State(const Inputs& in, std::int64_t head)
      : in_(in), head_(head), s_(static_cast<std::size_t>(in.keys * in.values)) {}

  double& at(std::int64_t i, std::int64_t j) {
    return s_[static_cast<std::size_t>(i * in_.values + j)];
  }

  // What a row did, for its backward.
  struct Step {
    Vector kept;   // keep S
    Vector error;  // v - u; of a state space v
    Vector d;
  };
  // `begins`: the state before the row is 0.
  Step step(std::int64_t row, bool begins) {
    const KeyRow k = in_.key_row(row, head_);
    const double keep = std::exp(in_.log_keep(row, head_));
    const double gate = in_.gate(row, head_);
    Step step;
    for (double& one : s_) one = begins ? 0 : one * keep;
    step.kept = s_;
    for (std::int64_t j = 0; j < in_.values; ++j) {
      double u = 0;
      for (std::int64_t i = 0; in_.corrects && i < in_.keys; ++i)
        u += at(i, j) * k.x[static_cast<std::size_t>(i)];
      step.error.push_back(in_.v(row, head_, j) - u);
      step.d.push_back(gate * step.error.back());
      for (std::int64_t i = 0; i < in_.keys; ++i)
        at(i, j) += k.x[static_cast<std::size_t>(i)] * step.d.back();
    }
    return step;
  }

 private:
  const Inputs& in_;
  std::int64_t head_;
  Vector s_;
};

// The gradients of one head of one sample.
class HeadGradient {
 public:
  HeadGradient(const Inputs& in, const Values& dout, std::int64_t head)
      : in_(in), dout_(dout), head_(head), ds_(static_cast<std::size_t>(in.keys * in.values)) {}

  struct Outputs {
    Values &dq, &dk, &dv, &ddecay, &dstrength, &drate, &dbias, &dskip;
  };

  void run(const TextStretch& rows, Outputs& to) {
    std::vector<State::Step> steps;
    State state(in_, head_);
    for (std::int64_t t = rows.begin; t < rows.end; ++t) {
      steps.push_back(state.step(t, in_.begins(t, rows.begin)));
    }
    for (std::int64_t t = rows.end - 1; t >= rows.begin; --t) {
      step_back(t, steps[static_cast<std::size_t>(t - rows.begin)], to);
      if (in_.begins(t, rows.begin)) ds_.assign(ds_.size(), 0.0);
    }
  }

 private:
  void step_back(std::int64_t t, const State::Step& step, Outputs& to) {
    const std::int64_t key_head = head_ / in_.shared;
    const KeyRow q = in_.query_row(t, head_);
    const KeyRow k = in_.key_row(t, head_);
    const double log_keep = in_.log_keep(t, head_);
    const double gate = in_.gate(t, head_);
    Vector dq(static_cast<std::size_t>(in_.keys));
    Vector dk(static_cast<std::size_t>(in_.keys));
    double dgate = 0;
    double dlog = 0;
    for (std::int64_t j = 0; j < in_.values; ++j) {
      const auto column = static_cast<std::size_t>(j);
      const double dout = dout_(t, head_, j);
      const double d = step.d[column];
      double dd = 0;
      for (std::int64_t i = 0; i < in_.keys; ++i) {
        const auto row = static_cast<std::size_t>(i);
        double& ds = ds_[static_cast<std::size_t>(i * in_.values + j)];
        const double kept = step.kept[static_cast<std::size_t>(i * in_.values + j)];
        ds += q.x[row] * dout;
        dq[row] += (kept + k.x[row] * d) * dout;
        dd += ds * k.x[row];
        dk[row] += ds * d;
      }
      to.dv(t, head_, j) = gate * dd;
      dgate += dd * step.error[column];
      if (!in_.corrects) {
        to.dv(t, head_, j) += in_.skip(head_) * dout;
        if (to.dskip.given()) to.dskip(head_) += dout * step.error[column];
      }
      const double du = -gate * dd;
      for (std::int64_t i = 0; i < in_.keys; ++i) {
        const auto row = static_cast<std::size_t>(i);
        double& ds = ds_[static_cast<std::size_t>(i * in_.values + j)];
        const double kept = step.kept[static_cast<std::size_t>(i * in_.values + j)];
        if (in_.corrects) {
          ds += k.x[row] * du;
          dk[row] += kept * du;
        }
        dlog += ds * kept;
        ds *= std::exp(log_keep);
      }
    }
    q.add_gradient(dq, in_.factor, to.dq, t, key_head);
    k.add_gradient(dk, 1, to.dk, t, key_head);
    const double slope = logistic(in_.decay(t, head_) + in_.bias(head_));  // of the step
    double ddecay = -dlog * std::exp(in_.rate(head_)) * slope;
    if (in_.corrects) {
      to.dstrength(t, head_) = dgate * gate * (1 - gate);
    } else {
      ddecay += dgate * slope;
    }
    to.ddecay(t, head_) = ddecay;
    if (to.drate.given()) to.drate(head_) += dlog * log_keep;
    if (to.dbias.given()) to.dbias(head_) += ddecay;
  }

  const Inputs& in_;
  const Values& dout_;
  std::int64_t head_;
  Vector ds_;
};

}  // namespace

void execute(const DeltaRuleForward& call) {
  const Inputs in(call.in);
  Values out(call.out.shape());
  Values states = Values::read(call.state);
  for (const TextStretch& text : rows_of_texts(call.texts, call.in.samples, in.n)) {
    for (std::int64_t head = 0; head < in.heads; ++head) {
      State state(in, head);
      const auto for_each = [&](const auto& body) {
        for (std::int64_t i = 0; i < in.keys; ++i) {
          for (std::int64_t j = 0; j < in.values; ++j)
            body(state.at(i, j), states(text.slot, head, i, j));
        }
      };
      if (text.continues) for_each([](double& one, double stored) { one = stored; });
      for (std::int64_t t = text.begin; t < text.end; ++t) {
        state.step(t, !text.continues && in.begins(t, text.begin));
        const KeyRow q = in.query_row(t, head);
        for (std::int64_t j = 0; j < in.values; ++j) {
          double sum = in.corrects ? 0 : in.skip(head) * in.v(t, head, j);
          for (std::int64_t i = 0; i < in.keys; ++i)
            sum += state.at(i, j) * q.x[static_cast<std::size_t>(i)];
          out(t, head, j) = sum;
        }
      }
      if (text.slot >= 0) for_each([](double one, double& stored) { stored = one; });
    }
  }
  out.write(call.out);
  if (call.state.defined()) states.write(call.state);
}

void execute(const DeltaRuleBackward& call) {
  const Inputs in(call.in);
  const Values dout = Values::read(call.dout);
  Values dq(call.dq.shape());
  Values dk(call.dk.shape());
  Values dv(call.dv.shape());
  Values ddecay(call.ddecay.shape());
  Values dstrength(in.corrects ? call.dstrength.shape() : Shape{0});
  Values drate = Values::read(call.drate);
  Values dbias = Values::read(call.dbias);
  Values dskip = Values::read(call.dskip);
  HeadGradient::Outputs to{dq, dk, dv, ddecay, dstrength, drate, dbias, dskip};
  for (const TextStretch& rows : rows_of_texts({}, call.in.samples, in.n)) {
    for (std::int64_t head = 0; head < in.heads; ++head) HeadGradient(in, dout, head).run(rows, to);
  }
  dq.write(call.dq);
  dk.write(call.dk);
  dv.write(call.dv);
  ddecay.write(call.ddecay);
  if (in.corrects) dstrength.write(call.dstrength);
  if (drate.given()) drate.write(call.drate);
  if (dbias.given()) dbias.write(call.dbias);
  if (dskip.given()) dskip.write(call.dskip);
}

}  // namespace piton::reference
