// The interface to the back ends: each of them executes exactly the calls listed in KernelCall.
//
// A call is checked here, once, so that back ends receive only valid input and error messages do
// not depend on the back end. Back ends: kernels/reference (plain loops; the specification that
// tests compare with), kernels/cpu, kernels/cuda, and kernels/meta (computes nothing, counts
// operations and bytes). A new call is a struct, a line in AnyKernelCall, and an execute() in each
// back end: the compiler reports a missing one.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "device/device.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/attention_merge.h"
#include "kernels/attention_sink.h"
#include "kernels/cached_attention.h"
#include "kernels/cadam.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/experts.h"
#include "kernels/linear.h"
#include "kernels/loss.h"
#include "kernels/magnitude.h"
#include "kernels/muon.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/recurrent/convolution.h"
#include "kernels/recurrent/delta_rule.h"
#include "kernels/rotary.h"
#include "kernels/sampling.h"

namespace piton {

using AnyKernelCall = std::variant<
    LinearForward, GatedLinear, LinearBackwardInput, LinearBackwardWeight, PackWeight, ExpandWeight,
    NormForward, NormBackward, NormProducts, Rotary, AttentionForward, AttentionBackward,
    AttentionMerge, AttentionSink, AttentionSinkBackward, CacheAppend, CachedAttention,
    ConvolutionForward, ConvolutionBackward, DeltaRuleForward, DeltaRuleBackward, ActivationForward,
    ActivationBackward, DropoutAddForward, DropoutAddBackward, EmbeddingForward, EmbeddingBackward,
    AddNoise, RouteTokens, RouteBackward, RouterZLoss, RouterZLossBackward, LimitChoices,
    ExcessChoices, SortByExpert, SortByRank, CombineExperts, CombineExpertsBackward, LossStatistics,
    LargestLogits, LossCombine, SquaredLoss, LossBackward, BinaryLossStatistics, BinaryLossBackward,
    TeacherStatistics, TeacherCombine, TeacherBackward, ChangeLogits, DrawTokens, Copy, Add, Scale,
    SoftCapForward, SoftCapBackward, GatedSumForward, GatedSumBackward, JoinHeads, SplitHeads,
    RowSquares, MagnitudeForward, MagnitudeGradient, AdamwUpdate, SgdUpdate, SignUpdate,
    MovingAverage, SquareSums, BeginUpdate, MuonMomentum, MuonNormalize, SymmetricProduct,
    MuonUpdate, CadamMaxima, CadamUpdate>;

// Any one of these calls. To copy, move and destroy one of 74 structs is much code, so it is
// compiled once, in kernels.cpp, not in every source that runs a call.
class KernelCall : public AnyKernelCall {
 public:
  // A call is given where any call is asked for.
  template <typename Call>
  requires(!std::is_base_of_v<AnyKernelCall, std::remove_cvref_t<Call>>)
      KernelCall(Call&& call)  // NOLINT(google-explicit-constructor)
      : AnyKernelCall(std::in_place_type<std::remove_cvref_t<Call>>, std::forward<Call>(call)) {}
  KernelCall(const KernelCall& other);
  KernelCall(KernelCall&& other) noexcept;
  KernelCall& operator=(const KernelCall& other);
  KernelCall& operator=(KernelCall&& other) noexcept;
  ~KernelCall();
};

// These four forward to the call that the variant holds (kernels/call.h).
std::string_view name(const KernelCall& call);
void check(const KernelCall& call);
double flops(const KernelCall& call);
// Bytes read plus bytes written. A tensor that is updated counts twice.
std::int64_t bytes_moved(const KernelCall& call);

// Calls visitor(std::string_view name, const Tensor& tensor, Access access) for every tensor of the
// call that is not empty.
template <typename Call, typename Visitor>
void for_each_tensor(Call& call, Visitor&& visitor) {
  std::visit(
      [&](auto& one) {
        one.tensors(one, [&](std::string_view name, auto& tensor, Access access) {
          if (tensor.defined()) visitor(name, tensor, access);
        });
      },
      call);
}

// Calls that run in order.
using CallChain = std::vector<KernelCall>;

class Kernels {
 public:
  virtual ~Kernels() = default;

  // Checks the call and enqueues it on `stream`.
  void run(const KernelCall& call, Stream& stream) {
    check(call);
    submit(call, stream);
  }

  // The same for chains that do not depend on each other: no call writes what one of another chain
  // reads or writes. A back end may run them at the same time. The bits are those of run() for each
  // call.
  void run_chains(const std::vector<CallChain>& chains, Stream& stream) {
    for (const CallChain& chain : chains) {
      for (const KernelCall& call : chain) check(call);
    }
    submit_chains(chains, stream);
  }

  // Equal names mean equal bits: "cpu: x86-64-v4 with bf16".
  virtual std::string name() const = 0;
  // The code path chosen for this processor and why, for a log; empty if there was no choice.
  virtual std::string choice() const { return {}; }

  // Size in bytes of a weight [out, in] in a packed form; 0 if this back end reads its plain rows.
  virtual std::int64_t packed_bytes(WeightForm form, std::int64_t out, std::int64_t in,
                                    DType dtype) const = 0;

  // kForward or kRows: the form of a weight [out, in] that y = x W^T with `rows` rows of x reads
  // fastest. Both give the same bits.
  virtual WeightForm forward_form(std::int64_t rows, std::int64_t in, DType dtype) const {
    (void)rows, (void)in, (void)dtype;
    return WeightForm::kForward;
  }

  // The form in which to hold a weight that does not change and is read in both directions: kRows
  // if products of many rows read plain rows about as fast as `form`, else `form`. Both give the
  // same bits.
  virtual WeightForm frozen_form(WeightForm form, DType dtype) const {
    (void)dtype;
    return form;
  }

  // Whether linears accept a weight as kCodes. If not, ExpandWeight computes its plain rows first.
  virtual bool reads_codes() const { return false; }

  // Whether CacheAppend and CachedAttention take latents of so many channels, in rows with `shared`
  // more (kernels/cached_attention.h). If not, a cache holds whole keys and values.
  virtual bool attends_to_latents(std::int64_t latents, std::int64_t shared) const {
    (void)latents, (void)shared;
    return false;
  }

  // Why linears do not multiply in FP8 by this recipe, for a message; empty if they do.
  virtual std::string float8_obstacle(Float8Recipe recipe) const {
    (void)recipe;
    return {};
  }

  // Whether a GatedLinear of `rows` rows is faster than its product and its end as two calls.
  virtual bool gates_in_product(std::int64_t rows, DType dtype) const {
    (void)rows, (void)dtype;
    return false;
  }

  // Bytes that the call takes at once of the memory that set_workspace() names, while it is
  // enqueued. 0: the calls of this back end take none of it.
  virtual std::int64_t workspace_bytes(const KernelCall& call) const {
    (void)call;
    return 0;
  }

  // From now on calls take their scratch from `workspace`, as an Arena gives memory to a stream.
  // Returns what they took it from before; null: this back end had none, or wants none.
  virtual Arena* set_workspace(Arena* workspace) {
    (void)workspace;
    return nullptr;
  }

  // Linears compute tiles of this many rows of x. If x is cut only at multiples of it, the parts
  // have the same bits as the whole.
  virtual std::int64_t row_tile() const = 0;

  // Rows of x for which products of linears run at full speed.
  virtual std::int64_t full_speed_rows() const { return 1024; }

 protected:
  // The calls one by one, unless a back end can do better.
  virtual void submit_chains(const std::vector<CallChain>& chains, Stream& stream) {
    for (const CallChain& chain : chains) {
      for (const KernelCall& call : chain) submit(call, stream);
    }
  }

 private:
  virtual void submit(const KernelCall& call, Stream& stream) = 0;
};

// While it exists, calls take their scratch from `workspace`.
class WorkspaceScope {
 public:
  WorkspaceScope(Kernels& kernels, Arena& workspace)
      : kernels_(kernels), before_(kernels.set_workspace(&workspace)) {}
  ~WorkspaceScope() { kernels_.set_workspace(before_); }
  WorkspaceScope(const WorkspaceScope&) = delete;
  WorkspaceScope& operator=(const WorkspaceScope&) = delete;

 private:
  Kernels& kernels_;
  Arena* before_;
};

}  // namespace piton
