// Schedules of stages that have several chunks each.
//
// In the letters of docs/notation.md: p stages, v chunks a stage, M micro-batches, and F, B, W the
// times of forward, input backward and weight backward of one chunk. Bubbles are idle time as a
// share of the work of a stage; tests/unit/parallel/chunked_schedules_test.cpp holds each figure.
//
//   schedule        chunk c is on stage       bubble                  most chunks kept on stage r
//   interleaved     c mod p                   (p-1) / (v M)           2 (p-r-1) + (v-1) G + 1
//   all in all out  c mod p                   (p-1) / (v M)           v M
//   ZB-V            c, or 2p-1-c from p on    (p-1) / (6 M), F=B=W    2 p
//   DualPipe-V      c, or 2p-1-c from p on    (p-1) / (6 M), F=B=W    2 p + 1
#pragma once

#include <vector>

#include "parallel/schedule.h"

namespace piton {

// The stage of each chunk: 0 1 .. p-1, `chunks` times.
std::vector<int> round_robin(int stages, int chunks);
// 0 1 .. p-1 p-1 .. 1 0: the first and the last chunk of the model are on stage 0.
std::vector<int> v_stages(int stages);

// Interleaved 1F1B (Narayanan et al. 2021, arXiv:2104.04473, section 2.2), in the order of
// Megatron-core 0.16. `group` (G) micro-batches pass a chunk of a stage before it turns to its next
// chunk; backward has the chunks in reverse. Stage r warms up with 2 (p-r-1) + (v-1) G forwards.
Schedule interleaved(int stages, int chunks, int micro_batches, int group);
// Throws Error(kUsage) unless G is p to M, and what is left of M after whole groups is 0 or at
// least p; interleaved() too.
void check_groups(int stages, int micro_batches, int group);

// Fold3D, "all in, all out" (Li et al. 2023, IEEE TPDS 34(5)): every micro-batch passes chunk 0 of
// each stage, then all pass the next chunk; backward has the chunks in reverse. The gradients of a
// chunk are complete long before the step ends, so their sum over data ranks runs under the
// backward of the chunk below. (The other mode of Fold3D, "FIFO", has the order of interleaved().)
Schedule all_in_all_out(int stages, int chunks, int micro_batches);
// Throws Error(kUsage) unless M is a multiple of p; all_in_all_out() too.
void check_multiple(int stages, int micro_batches);

// ZB-V (Qi et al. 2023, arXiv:2401.10241, section 6). If F = B = W and M >= 2p - 1, no stage waits
// between its first and its last step, and it keeps as much as stage 0 under 1F1B does: 2p chunks,
// each half as large as a stage. The time is 6 M + p - 1 passes: stage r starts r passes later.
Schedule zero_bubble_v(int stages, int micro_batches);

// DualPipe-V ("cut in half" of DeepSeek's DualPipe, 2024, arXiv:2412.19437, section 3.2.1): in the
// middle, forwards and whole backwards of the two chunks of a stage take turns. Only passes at the
// ends have their weight backward postponed.
Schedule dual_pipe_v(int stages, int micro_batches);
// Throws Error(kUsage) unless M >= 2p; dual_pipe_v() too.
void check_both_ways(int stages, int micro_batches);

}  // namespace piton
