// One function per call. Each enqueues work on the stream of the context, whose device is selected,
// and returns.
#pragma once

#include "kernels/cuda/context.h"
#include "kernels/kernels.h"

namespace piton::cuda {

void execute(const LinearForward& call, const CallContext& context);
void execute(const GatedLinear& call, const CallContext& context);
void execute(const LinearBackwardInput& call, const CallContext& context);
void execute(const LinearBackwardWeight& call, const CallContext& context);
void execute(const PackWeight& call, const CallContext& context);
void execute(const ExpandWeight& call, const CallContext& context);
// The weight as it is, or the plain rows of its codes in scratch.
WeightView plain_rows(const WeightView& weight, const CallContext& context);
void execute(const NormForward& call, const CallContext& context);
void execute(const NormBackward& call, const CallContext& context);
void execute(const NormProducts& call, const CallContext& context);
void execute(const Rotary& call, const CallContext& context);
void execute(const AttentionForward& call, const CallContext& context);
void execute(const AttentionBackward& call, const CallContext& context);
void execute(const AttentionMerge& call, const CallContext& context);
void execute(const AttentionSink& call, const CallContext& context);
void execute(const AttentionSinkBackward& call, const CallContext& context);
void execute(const CacheAppend& call, const CallContext& context);
void execute(const CachedAttention& call, const CallContext& context);
void execute(const ConvolutionForward& call, const CallContext& context);
void execute(const ConvolutionBackward& call, const CallContext& context);
void execute(const DeltaRuleForward& call, const CallContext& context);
void execute(const DeltaRuleBackward& call, const CallContext& context);
void execute(const ActivationForward& call, const CallContext& context);
void execute(const ActivationBackward& call, const CallContext& context);
void execute(const DropoutAddForward& call, const CallContext& context);
void execute(const DropoutAddBackward& call, const CallContext& context);
void execute(const EmbeddingForward& call, const CallContext& context);
void execute(const EmbeddingBackward& call, const CallContext& context);
void execute(const AddNoise& call, const CallContext& context);
void execute(const RouteTokens& call, const CallContext& context);
void execute(const RouteBackward& call, const CallContext& context);
void execute(const RouterZLoss& call, const CallContext& context);
void execute(const RouterZLossBackward& call, const CallContext& context);
void execute(const LimitChoices& call, const CallContext& context);
void execute(const ExcessChoices& call, const CallContext& context);
void execute(const SortByExpert& call, const CallContext& context);
void execute(const SortByRank& call, const CallContext& context);
void execute(const CombineExperts& call, const CallContext& context);
void execute(const CombineExpertsBackward& call, const CallContext& context);
void execute(const LossStatistics& call, const CallContext& context);
void execute(const LargestLogits& call, const CallContext& context);
void execute(const LossCombine& call, const CallContext& context);
void execute(const SquaredLoss& call, const CallContext& context);
void execute(const LossBackward& call, const CallContext& context);
void execute(const BinaryLossStatistics& call, const CallContext& context);
void execute(const BinaryLossBackward& call, const CallContext& context);
void execute(const TeacherStatistics& call, const CallContext& context);
void execute(const TeacherCombine& call, const CallContext& context);
void execute(const TeacherBackward& call, const CallContext& context);
void execute(const ChangeLogits& call, const CallContext& context);
void execute(const DrawTokens& call, const CallContext& context);
void execute(const Copy& call, const CallContext& context);
void execute(const Add& call, const CallContext& context);
void execute(const Scale& call, const CallContext& context);
void execute(const SoftCapForward& call, const CallContext& context);
void execute(const SoftCapBackward& call, const CallContext& context);
void execute(const GatedSumForward& call, const CallContext& context);
void execute(const GatedSumBackward& call, const CallContext& context);
void execute(const JoinHeads& call, const CallContext& context);
void execute(const SplitHeads& call, const CallContext& context);
void execute(const RowSquares& call, const CallContext& context);
void execute(const MagnitudeForward& call, const CallContext& context);
void execute(const MagnitudeGradient& call, const CallContext& context);
void execute(const AdamwUpdate& call, const CallContext& context);
void execute(const SgdUpdate& call, const CallContext& context);
void execute(const SignUpdate& call, const CallContext& context);
void execute(const MovingAverage& call, const CallContext& context);
void execute(const SquareSums& call, const CallContext& context);
void execute(const BeginUpdate& call, const CallContext& context);
void execute(const MuonMomentum& call, const CallContext& context);
void execute(const MuonNormalize& call, const CallContext& context);
void execute(const SymmetricProduct& call, const CallContext& context);
void execute(const MuonUpdate& call, const CallContext& context);
void execute(const CadamMaxima& call, const CallContext& context);
void execute(const CadamUpdate& call, const CallContext& context);

}  // namespace piton::cuda
