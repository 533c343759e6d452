# Each row of the table of refused layouts in docs/parallelism.md, with command lines that are refused for its reason.
include(${CMAKE_CURRENT_LIST_DIR}/../support/rule.cmake)
file(STRINGS ${SOURCE}/docs/parallelism.md lines REGEX "^##|^\\| ")
set(rows "")
set(in_table OFF)
foreach(line IN LISTS lines)
  if(line MATCHES "^##")
    string(COMPARE EQUAL "${line}" "## Refused" in_table)
  elseif(in_table AND line MATCHES "^\\| (.*) \\| [^|]* \\|$")
    string(REPLACE ";" "," row "${CMAKE_MATCH_1}")  # a list ends its elements there
    list(APPEND rows "${row}")
  endif()
endforeach()
list(REMOVE_ITEM rows flags ---)

# row(TEXT the row's first cell, with "," for ";"). The rules that follow are its tests.
function(row text)
  list(FIND rows "${text}" place)
  if(place EQUAL -1)
    message(SEND_ERROR "docs/parallelism.md refuses no such flags: ${text}")
  endif()
  list(REMOVE_ITEM rows "${text}")
  set(rows "${rows}" PARENT_SCOPE)
endfunction()

set(two_stages --pipeline-model-parallel-size 2 --num-layers 4 --global-batch-size 4)

row("ranks that are no multiple of tensor x context x pipeline ranks")
rule(ranks PLAN ACCEPTS --world-size 4 --tensor-model-parallel-size 2 REJECTS --world-size 3 --tensor-model-parallel-size 2
     SAYS "mesh: 3 processes cannot form tensor 2 x pipeline 1; start a multiple of 2")

row("heads, groups of keys or columns of the MLP that the tensor ranks do not divide")
rule(heads PLAN REJECTS --tensor-model-parallel-size 3 SAYS "4 attention heads cannot be split over 3 tensor ranks")
rule(groups PLAN REJECTS --tensor-model-parallel-size 4 --num-query-groups 2
     SAYS "2 query groups cannot be split over 4 tensor ranks")
rule(columns PLAN REJECTS --tensor-model-parallel-size 2 --ffn-hidden-size 33
     SAYS "33 columns of the MLP cannot be split over 2 tensor ranks")

row("fewer layers than chunks of the pipeline")
rule(stages PLAN REJECTS --pipeline-model-parallel-size 3 SAYS "2 layers cannot fill 3 pipeline stages")
rule(chunks PLAN REJECTS --pipeline-model-parallel-size 2 --pipeline-schedule zb-v
     SAYS "4 chunks of a model \\(2 on each of 2 stages\\) need a layer each: got 2 layers")

row("`--distribute-saved-activations` without full recomputation, with one tensor rank or with `--sequence-parallel`")
set(divided --distribute-saved-activations --tensor-model-parallel-size 2)
rule(divided-inputs PLAN ACCEPTS ${divided} --recompute-granularity full REJECTS ${divided}
     SAYS "--distribute-saved-activations: needs --recompute-granularity full")
rule(divided-by-one PLAN REJECTS --distribute-saved-activations --recompute-granularity full
     SAYS "--distribute-saved-activations: needs --tensor-model-parallel-size of 2 or more")
rule(divided-twice PLAN REJECTS ${divided} --recompute-granularity full --sequence-parallel
     SAYS "--sequence-parallel divides them already")

row("`--num-layers-per-virtual-pipeline-stage` with one stage, `zb-h1`, `zb-v` or `dualpipe-v`")
set(chunked --num-layers-per-virtual-pipeline-stage 1)
rule(interleaved PLAN ACCEPTS ${two_stages} ${chunked} REJECTS ${chunked}
     SAYS "--num-layers-per-virtual-pipeline-stage: needs --pipeline-model-parallel-size of 2 or more")
foreach(schedule zb-h1 zb-v dualpipe-v)
  rule(chunks-of-${schedule} PLAN REJECTS ${two_stages} ${chunked} --pipeline-schedule ${schedule}
       SAYS "--num-layers-per-virtual-pipeline-stage: needs --pipeline-schedule interleaved")
endforeach()

row("`--foldx-mode` without several chunks a stage")
rule(fold PLAN ACCEPTS ${two_stages} ${chunked} --foldx-mode aiao REJECTS ${two_stages} --foldx-mode aiao
     SAYS "--foldx-mode: needs several chunks a stage")

row("`--optimized-pipeline` with several chunks a stage, another schedule, or one stage")
set(unequal --optimized-pipeline --manual-mbs 1 1 1 1)
rule(unequal PLAN ACCEPTS ${two_stages} ${unequal} REJECTS ${unequal} --global-batch-size 4
     SAYS "--optimized-pipeline: needs --pipeline-model-parallel-size of 2 or more")
foreach(more IN ITEMS "--pipeline-schedule;zb-h1" "${chunked}")
  rule(unequal-alone PLAN REJECTS ${two_stages} ${unequal} ${more}
       SAYS "--optimized-pipeline: needs --pipeline-schedule 1f1b with one chunk a stage")
endforeach()

row("`--enable-recompute-layers-per-pp-rank` with several chunks a stage")
set(by_stage --enable-recompute-layers-per-pp-rank --recompute-granularity full --recompute-method block
    --recompute-num-layers 1)
rule(layers-of-stages PLAN ACCEPTS ${two_stages} ${by_stage} REJECTS ${two_stages} ${chunked} ${by_stage}
     SAYS "--enable-recompute-layers-per-pp-rank: needs stages of one chunk")

row("micro-batches that a schedule cannot have, at any size of `--rampup-batch-size`")
rule(two-directions PLAN ACCEPTS ${two_stages} --pipeline-schedule dualpipe-v
     REJECTS --pipeline-model-parallel-size 2 --num-layers 4 --global-batch-size 2 --pipeline-schedule dualpipe-v
     SAYS "dualpipe-v: got 2 micro-batches a step on 2 stages, wanted at least 4")
rule(groups-of-micro-batches PLAN
     REJECTS --pipeline-model-parallel-size 2 --num-layers 4 --global-batch-size 1 ${chunked}
     SAYS "interleaved stages take micro-batches in groups of 2: got 1 micro-batches a step on 2 stages, wanted a multiple of 2;")
rule(fold-in-groups PLAN
     REJECTS --pipeline-model-parallel-size 2 --num-layers 4 --global-batch-size 3 ${chunked} --foldx-mode aiao
     SAYS "--foldx-mode aiao: got 3 micro-batches a step on 2 stages, wanted a multiple")

row("`--num-slices` or `--coc-mode` outside their sets, malformed keys of `--customized-coc`")
rule(slices PLAN REJECTS --num-slices 3 SAYS "--num-slices: got 3, wanted 1, 2, 4 or 8")
rule(coc-mode PLAN REJECTS --coc-mode 3 SAYS "--coc-mode: got 3, wanted -1, 0, 1 or 2")
rule(shapes PLAN REJECTS --customized-coc "{\"[16384, 5120]\": 8}" SAYS "--customized-coc: a shape: got")

row("tokens of a micro-batch on a tensor rank that are no multiple of the slices")
rule(rows-of-slices PLAN ACCEPTS --num-slices 8 --tensor-model-parallel-size 2 --seq-length 16
     REJECTS --num-slices 8 --tensor-model-parallel-size 2 --seq-length 12
     SAYS "--num-slices: 12 tokens of a micro-batch cannot be cut into 8 slices")
rule(rows-of-ranks PLAN REJECTS --num-slices 4 --tensor-model-parallel-size 2 --sequence-parallel --seq-length 14
     SAYS "--num-slices: 7 tokens of a micro-batch on each tensor rank cannot be cut into 4 slices")

row("`--enable-coc-in-column-backward` without fused linears")
rule(column-backward PLAN REJECTS --enable-coc-in-column-backward SAYS "needs --fused-linears")

# Hosts and GPUs: tests/unit/session and tests/ranks.
row("`--fused-linears` with tensor ranks on several hosts, on a GPU, or more than 21 of them")
rule(fused PLAN REJECTS --fused-linears --tensor-model-parallel-size 32 --num-attention-heads 32 --hidden-size 64
     SAYS "--fused-linears: 32 tensor ranks, wanted at most 21")

row("`--seq-length` that is no multiple of 2c, with dropout of attention and a ring of r ranks, of 8r")
set(context --context-parallel-size 2)
rule(stretches PLAN ACCEPTS ${context} --seq-length 12 --attention-dropout 0
     REJECTS ${context} --seq-length 14 --attention-dropout 0 SAYS "--seq-length: got 14, wanted a multiple of 4")
rule(masks PLAN REJECTS ${context} --seq-length 12 --attention-dropout 0.1
     SAYS "--seq-length: got 12, wanted a multiple of 16")

row("`--cp-comm-type a2a` with heads of queries or keys on a tensor rank that c does not divide, `a2a+p2p`: the ranks that exchange heads")
rule(heads-of-context PLAN ACCEPTS ${context} --cp-comm-type a2a
     REJECTS ${context} --cp-comm-type a2a --tensor-model-parallel-size 4
     SAYS "--cp-comm-type a2a: 4 attention heads cannot be split over tensor 4 x context 2 ranks")
set(both --context-parallel-size 4 --cp-comm-type a2a+p2p)
set(sizes --hierarchical-context-parallel-sizes)
rule(heads-of-both PLAN ACCEPTS ${both} ${sizes} 2 2 REJECTS ${both} ${sizes} 2 2 --tensor-model-parallel-size 4
     SAYS "--cp-comm-type a2a\\+p2p: 4 attention heads cannot be split over tensor 4 x context 2 ranks")

row("heads of keys of the gated delta rule on a tensor rank that c does not divide")
set(states --swiglu --normalization RMSNorm --disable-bias-linear --linear-attention-freq 2 --linear-num-value-heads 4
    --linear-key-head-dim 8 --linear-value-head-dim 8 --linear-conv-kernel-dim 4 --linear-num-key-heads)
rule(heads-of-states PLAN ACCEPTS ${context} ${states} 2 REJECTS ${context} ${states} 1
     SAYS "1 heads of keys of the gated delta rule cannot be split over tensor 1 x context 2 ranks")

row("heads of Mamba-2 on a tensor rank that c does not divide, or its groups if there are several")
set(states --swiglu --normalization RMSNorm --disable-bias-linear --hybrid-override-pattern M-*- --num-layers 2 --mamba-num-heads 6
    --mamba-head-dim 8 --mamba-state-dim 8 --mamba-num-groups)
rule(groups-of-states PLAN ACCEPTS ${context} ${states} 1 REJECTS ${context} ${states} 3
     SAYS "6 heads of Mamba-2 in 3 groups cannot be split over tensor 1 x context 2 ranks")

row("channels of short convolutions on a tensor rank that c does not divide")
set(states --swiglu --normalization RMSNorm --disable-bias-linear --hybrid-override-pattern C-*- --num-layers 2 --num-attention-heads 4
    --kv-channels 8 --hidden-size)
rule(channels-of-states PLAN ACCEPTS ${context} ${states} 34 REJECTS ${context} ${states} 33
     SAYS "33 channels of short convolutions cannot be split over tensor 1 x context 2 ranks")

row("`--hierarchical-context-parallel-sizes` without `a2a+p2p`, or whose product is not the context size, `a2a+p2p` without it")
rule(sizes-of-both PLAN REJECTS ${both} ${sizes} 2 3 SAYS "got 2 3, wanted two numbers whose product is --context-parallel-size")
rule(sizes-of-none PLAN REJECTS ${context} ${sizes} 2 1 SAYS "${sizes}: needs --cp-comm-type a2a\\+p2p")
rule(both-without-sizes PLAN REJECTS ${both} SAYS "a2a\\+p2p: needs ${sizes}")

row("`--cp-comm-type` with several types that are not one for each layer")
rule(types-of-layers PLAN ACCEPTS ${context} --cp-comm-type p2p allgather --num-layers 2
     REJECTS ${context} --cp-comm-type p2p allgather --num-layers 3 SAYS "got 2 types, wanted 1, or 3, one for each layer")

row("`--context-parallel-size` with BERT, or with `--stage` of preferences")
rule(context-of-encoders PLAN REJECTS ${context} --model-family bert
     SAYS "--context-parallel-size divides the rows of decoders")
rule(context-of-preferences PLAN REJECTS ${context} --stage dpo SAYS "--context-parallel-size: divides samples, and --stage")

row("`--expert-model-parallel-size` that does not divide the data-parallel ranks or the experts, or without experts")
set(divided --disable-bias-linear --num-experts 4 --world-size 4 --expert-model-parallel-size)
rule(ranks-of-experts PLAN ACCEPTS ${divided} 2 REJECTS ${divided} 3
     SAYS "--expert-model-parallel-size: got 3, wanted a number that divides the 4 data-parallel ranks")
rule(experts-of-ranks PLAN ACCEPTS ${divided} 4 REJECTS ${divided} 4 --num-experts 6
     SAYS "6 experts cannot be divided over 4 ranks")
rule(no-experts PLAN REJECTS --world-size 2 --expert-model-parallel-size 2
     SAYS "--expert-model-parallel-size divides the experts of a mixture, and the model has none")

row("`--expert-model-parallel-size` with `--variable-seq-lengths`, or with `--stage` of preferences")
rule(lengths-of-experts PLAN REJECTS ${divided} 2 --is-instruction-dataset --variable-seq-lengths
     SAYS "gathers equal numbers of rows of its ranks, and --variable-seq-lengths")
rule(experts-of-preferences PLAN REJECTS ${divided} 2 --stage dpo SAYS "gathers equal numbers of rows of its ranks, and --stage")

row("`--expert-model-parallel-size` with `--step-time` or `--search` of `plan`")
rule(time-of-experts PLAN REJECTS ${divided} 2 --step-time SAYS "the time of a step with --expert-model-parallel-size depends")

row("`--num-distributed-optimizer-instances` without ZeRO, or that does not divide the data-parallel ranks")
set(instances --world-size 4 --num-distributed-optimizer-instances)
rule(instances PLAN ACCEPTS ${instances} 2 --zero-stage 1 REJECTS ${instances} 2
     SAYS "--num-distributed-optimizer-instances: needs --use-distributed-optimizer or --zero-stage")
rule(unequal-instances PLAN REJECTS ${instances} 3 --zero-stage 1
     SAYS "got 3, wanted a number that divides the 4 data-parallel ranks")

if(rows)
  message(SEND_ERROR "docs/parallelism.md: rows without a rule here: ${rows}")
endif()
