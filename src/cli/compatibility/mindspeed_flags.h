// Flags of MindSpeed-LLM that describe a model, as options here:
//
//   --spec MODULE layer_spec      a module of MindSpeed-LLM whose layers other flags describe
//   --n-group, --topk-group       --moe-router-num-groups, --moe-router-group-topk; the first is
//                                 --expert-model-parallel-size where it is not given
//   --routed-scaling-factor       --moe-router-topk-scaling-factor
//   --seq-aux                     of noaux_tc, none and group_limited_greedy: the balance is of
//                                 each sample
//
//   --moe-router-load-balancing-type
//                          weights of a token's experts         balance in the loss
//   softmax_topk           those among all experts              none
//   pai_megatron_aux_loss  those among all experts              of a micro-batch
//   noaux_tc               as Megatron-core's                   none
//   group_limited_greedy   those among all experts times the    of a micro-batch
//                          factor, or with --norm-topk-prob
//                          their shares without it
//
// group_limited_greedy ranks groups by their best expert, the others by the sum of several. The
// first two have neither groups nor a factor. With --norm-topk-prob weights of aux_loss add up to 1
// with --moe-router-pre-softmax too.
//
// Sources: mindspeed_llm/core/transformer/moe/router.py, tasks/models/common/pai_megatron.py and
// tasks/models/spec of MindSpeed-LLM 2.
#pragma once

#include <string>
#include <vector>

#include "base/options/options.h"
#include "cli/compatibility/megatron_flags.h"
#include "parallel/parallel_options.h"

namespace piton::cli {

// Where the flags are read into: `model` and `parallel` are those of `set`.
struct ReadOptions {
  OptionSet& set;
  ModelOptions& model;
  const ParallelOptions& parallel;
};

// `notes`: a line for the log for each flag without effect. Throws Error(kUsage) that names the
// flag if another one contradicts it.
void read_mindspeed_flags(const MegatronFlags& given, const ReadOptions& options,
                          std::vector<std::string>& notes);

}  // namespace piton::cli
