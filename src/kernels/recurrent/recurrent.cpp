// Checks of the calls of layers with a state of fixed size.
#include "kernels/expect.h"
#include "kernels/recurrent/convolution.h"
#include "kernels/recurrent/delta_rule.h"

namespace piton {

void expect_rows(std::string_view call, const TextRows& texts, const Tensor& segments,
                 std::int64_t samples, std::int64_t n) {
  if (!texts.given()) {
    PITON_ASSERT(samples > 0 && n % samples == 0, "{}: {} rows of {} samples", call, n, samples);
    if (segments.defined())
      Operand{call, "segments", segments}.shape({n}).dtype(DType::kI32).contiguous();
    return;
  }
  PITON_ASSERT(!segments.defined(), "{}: segments of texts that are continued", call);
  const std::int64_t b = texts.begins.dim(0) - 1;
  Operand{call, "begins", texts.begins}.shape({b + 1}).dtype(DType::kI32).contiguous();
  Operand{call, "lengths", texts.lengths}.shape({b}).dtype(DType::kI32).contiguous();
  Operand{call, "slots", texts.slots}.shape({b}).dtype(DType::kI32).contiguous();
}

void ConvolutionForward::check() const {
  expect_one_place(*this);
  Operand{kName, "x", x}.given().floating().rows();
  PITON_ASSERT(x.ndim() == 2, "{}: x is {}, wanted [n, c]", kName, to_string(x));
  const std::int64_t n = x.dim(0);
  const std::int64_t c = x.dim(1);
  Operand{kName, "y", y}.shape({n, c}).dtype(x.dtype()).contiguous();
  Operand{kName, "weight", weight}.given();
  Operand{kName, "weight", weight}.shape({c, weight.dim(1)}).dtype(x.dtype()).contiguous();
  PITON_ASSERT(weight.dim(1) > 0, "{}: a width of 0", kName);
  if (bias.defined()) Operand{kName, "bias", bias}.shape({c}).dtype(x.dtype()).contiguous();
  expect_rows(kName, texts, segments, samples, n);
  PITON_ASSERT(texts.given() == state.defined(), "{}: a state without texts, or none", kName);
  if (!texts.given()) return;
  Operand{kName, "state", state}
      .shape({state.dim(0), weight.dim(1) - 1, c})
      .dtype(x.dtype())
      .contiguous();
}

void ConvolutionBackward::check() const {
  expect_one_place(*this);
  Operand{kName, "x", x}.given().floating().rows();
  PITON_ASSERT(x.ndim() == 2, "{}: x is {}, wanted [n, c]", kName, to_string(x));
  const std::int64_t n = x.dim(0);
  const std::int64_t c = x.dim(1);
  Operand{kName, "dx", dx}.shape({n, c}).dtype(x.dtype()).rows();
  Operand{kName, "dy", dy}.shape({n, c}).dtype(x.dtype()).contiguous();
  Operand{kName, "weight", weight}.given();
  Operand{kName, "weight", weight}.shape({c, weight.dim(1)}).dtype(x.dtype()).contiguous();
  PITON_ASSERT(weight.dim(1) > 0, "{}: a width of 0", kName);
  if (bias.defined()) Operand{kName, "bias", bias}.shape({c}).dtype(x.dtype()).contiguous();
  if (dweight.defined())
    Operand{kName, "dweight", dweight}
        .shape(weight.shape())
        .dtype(sum_dtype(x.dtype()))
        .contiguous();
  PITON_ASSERT(bias.defined() || !dbias.defined(), "{}: the gradient of no bias", kName);
  if (dbias.defined())
    Operand{kName, "dbias", dbias}.shape({c}).dtype(sum_dtype(x.dtype())).contiguous();
  expect_rows(kName, {}, segments, samples, n);
}

void DeltaRuleInput::check(std::string_view call, const TextRows& texts) const {
  Operand{call, "q", q}.given().floating().rows();
  Operand{call, "v", v}.given();
  PITON_ASSERT(q.ndim() == 3 && v.ndim() == 3, "{}: q is {} and v {}, wanted [n, heads, d]", call,
               to_string(q), to_string(v));
  const std::int64_t n = q.dim(0);
  const std::int64_t heads = v.dim(1);
  PITON_ASSERT(q.dim(1) > 0 && heads % q.dim(1) == 0, "{}: {} heads of keys, {} of values", call,
               q.dim(1), heads);
  const DType dtype = q.dtype();
  Operand{call, "k", k}.shape(q.shape()).dtype(dtype).rows();
  Operand{call, "v", v}.shape({n, heads, v.dim(2)}).dtype(dtype).rows();
  Operand{call, "decay", decay}.shape({n, heads}).dtype(dtype).rows();
  Operand{call, "rate", rate}.shape({heads}).dtype(dtype).contiguous();
  Operand{call, "bias", bias}.shape({heads}).dtype(dtype).contiguous();
  if (rule == StateRule::kDelta) {
    Operand{call, "strength", strength}.shape({n, heads}).dtype(dtype).rows();
    PITON_ASSERT(!skip.defined(), "{}: skip of the delta rule", call);
  } else {
    Operand{call, "skip", skip}.shape({heads}).dtype(dtype).contiguous();
    PITON_ASSERT(!strength.defined(), "{}: strength of a state space", call);
  }
  expect_rows(call, texts, segments, samples, n);
}

void DeltaRuleForward::check() const {
  expect_one_place(*this);
  in.check(kName, texts);
  Operand{kName, "out", out}.shape(in.v.shape()).dtype(in.q.dtype()).contiguous();
  PITON_ASSERT(texts.given() == state.defined(), "{}: a state without texts, or none", kName);
  if (!texts.given()) return;
  Operand{kName, "state", state}
      .shape({state.dim(0), in.v.dim(1), in.q.dim(2), in.v.dim(2)})
      .dtype(sum_dtype(in.q.dtype()))
      .contiguous();
}

void DeltaRuleBackward::check() const {
  expect_one_place(*this);
  in.check(kName, {});
  const DType dtype = in.q.dtype();
  const DType sums = sum_dtype(dtype);
  Operand{kName, "dq", dq}.shape(in.q.shape()).dtype(dtype).rows();
  Operand{kName, "dk", dk}.shape(in.q.shape()).dtype(dtype).rows();
  Operand{kName, "dv", dv}.shape(in.v.shape()).dtype(dtype).rows();
  Operand{kName, "ddecay", ddecay}.shape(in.decay.shape()).dtype(dtype).rows();
  if (in.rule == StateRule::kDelta)
    Operand{kName, "dstrength", dstrength}.shape(in.decay.shape()).dtype(dtype).rows();
  PITON_ASSERT(in.rule == StateRule::kDelta ? !dskip.defined() : !dstrength.defined(),
               "{}: a gradient of the other rule", kName);
  Operand{kName, "dout", dout}.shape(in.v.shape()).dtype(dtype).contiguous();
  if (drate.defined())
    Operand{kName, "drate", drate}.shape(in.rate.shape()).dtype(sums).contiguous();
  if (dbias.defined())
    Operand{kName, "dbias", dbias}.shape(in.rate.shape()).dtype(sums).contiguous();
  if (dskip.defined())
    Operand{kName, "dskip", dskip}.shape(in.rate.shape()).dtype(sums).contiguous();
}

}  // namespace piton
