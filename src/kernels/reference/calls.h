// One function per call. Each runs at once, on host tensors that check() has accepted.
#pragma once

#include "kernels/kernels.h"

namespace piton::reference {

void execute(const LinearForward& call);
void execute(const GatedLinear& call);
void execute(const LinearBackwardInput& call);
void execute(const LinearBackwardWeight& call);
void execute(const PackWeight& call);
void execute(const ExpandWeight& call);
void execute(const NormForward& call);
void execute(const NormBackward& call);
void execute(const NormProducts& call);
void execute(const Rotary& call);
void execute(const AttentionForward& call);
void execute(const AttentionBackward& call);
void execute(const AttentionMerge& call);
void execute(const AttentionSink& call);
void execute(const AttentionSinkBackward& call);
void execute(const CacheAppend& call);
void execute(const CachedAttention& call);
void execute(const ConvolutionForward& call);
void execute(const ConvolutionBackward& call);
void execute(const DeltaRuleForward& call);
void execute(const DeltaRuleBackward& call);
void execute(const ActivationForward& call);
void execute(const ActivationBackward& call);
void execute(const DropoutAddForward& call);
void execute(const DropoutAddBackward& call);
void execute(const EmbeddingForward& call);
void execute(const EmbeddingBackward& call);
void execute(const AddNoise& call);
void execute(const RouteTokens& call);
void execute(const RouteBackward& call);
void execute(const RouterZLoss& call);
void execute(const RouterZLossBackward& call);
void execute(const LimitChoices& call);
void execute(const ExcessChoices& call);
void execute(const SortByExpert& call);
void execute(const SortByRank& call);
void execute(const CombineExperts& call);
void execute(const CombineExpertsBackward& call);
void execute(const LossStatistics& call);
void execute(const LargestLogits& call);
void execute(const LossCombine& call);
void execute(const SquaredLoss& call);
void execute(const LossBackward& call);
void execute(const BinaryLossStatistics& call);
void execute(const BinaryLossBackward& call);
void execute(const TeacherStatistics& call);
void execute(const TeacherCombine& call);
void execute(const TeacherBackward& call);
void execute(const ChangeLogits& call);
void execute(const DrawTokens& call);
void execute(const Copy& call);
void execute(const Add& call);
void execute(const Scale& call);
void execute(const SoftCapForward& call);
void execute(const SoftCapBackward& call);
void execute(const GatedSumForward& call);
void execute(const GatedSumBackward& call);
void execute(const JoinHeads& call);
void execute(const SplitHeads& call);
void execute(const RowSquares& call);
void execute(const MagnitudeForward& call);
void execute(const MagnitudeGradient& call);
void execute(const AdamwUpdate& call);
void execute(const SgdUpdate& call);
void execute(const SignUpdate& call);
void execute(const MovingAverage& call);
void execute(const SquareSums& call);
void execute(const BeginUpdate& call);
void execute(const MuonMomentum& call);
void execute(const MuonNormalize& call);
void execute(const SymmetricProduct& call);
void execute(const MuonUpdate& call);
void execute(const CadamMaxima& call);
void execute(const CadamUpdate& call);

}  // namespace piton::reference
