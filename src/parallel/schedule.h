// A pipeline schedule: for each stage, the list of its steps in order, as plain data.
//
// A schedule is computed from integers before training starts, without tensors, devices or
// messages. parallel/pipeline.h executes it. parallel/simulate.h computes its bubble and peak of
// activations, and finds deadlocks.
//
// A model is divided into chunks 0 .. C-1, in order; chunk c is on stage stage_of_chunk[c].
// The messages follow from the lists. After the forward of chunk c, its output (the boundary) is
// sent to the stage of chunk c + 1. After the backward of chunk c, the gradients of its inputs are
// sent to the stage of chunk c - 1.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace piton {

enum class Pass : std::uint8_t {
  kForward,
  kBackward,        // input and weight gradients
  kBackwardInput,   // input gradients only; the weight gradients are deferred
  kBackwardWeight,  // the deferred weight gradients
};

struct Step {
  Pass pass = Pass::kForward;
  int micro_batch = 0;  // 0 .. micro_batches-1
  int chunk = 0;        // index among the chunks of the whole model
  bool operator==(const Step&) const = default;
};

std::string_view name(Pass pass);  // "forward", "backward", "input backward", "weight backward"
std::string to_string(const Step& step);  // "forward of micro-batch 2 in chunk 1", for messages

struct Schedule {
  std::string name;
  int stages = 1;
  int micro_batches = 1;
  std::vector<int> stage_of_chunk;       // [chunks]
  std::vector<std::vector<Step>> steps;  // [stages][steps of the stage]

  int chunks() const { return static_cast<int>(stage_of_chunk.size()); }
  std::vector<int> chunks_of_stage(int stage) const;
};

// A schedule without steps. Throws Error(kUsage) unless there are a stage and a micro-batch.
Schedule empty_schedule(std::string name, std::vector<int> stage_of_chunk, int stages,
                        int micro_batches);

// 1F1B (Narayanan et al. 2019, PipeDream-flush; arXiv:2104.04473): first as many forwards as are
// needed to fill the pipeline, then one forward and one backward alternately, then the remaining
// backwards. With p stages and M micro-batches, stage r warms up with min(p - r - 1, M) forwards
// and holds the activations of at most min(p - r, M) micro-batches. If all stages are equal, the
// idle time is (p - 1) / M of the ideal time.
Schedule one_forward_one_backward(int stages, int micro_batches);

// ZB-H1 (Qi et al. 2023, arXiv:2401.10241, section 2.2): 1F1B with the backward pass split in two.
// On stage r the weight gradients are computed r micro-batches later, so that they fill the idle
// time at the end. F, B and W are the times of forward, input backward and weight backward. With
// M >= p, W <= F and W <= B, the bubble is (p - 1) (F + B - W) instead of (p - 1) (F + B + W).
// Every stage holds at most min(p, M) tapes, as many as stage 0 under 1F1B; some of them hold only
// what the weight gradients need.
Schedule zero_bubble_h1(int stages, int micro_batches);

enum class ScheduleKind : std::uint8_t {
  kOneForwardOneBackward,
  kZeroBubbleH1,
  kInterleaved,  // these four: parallel/chunked_schedules.h
  kAllInAllOut,
  kZeroBubbleV,
  kDualPipeV,
};

// What a schedule is made from, but for the numbers of stages and micro-batches.
struct ScheduleSettings {
  ScheduleKind kind = ScheduleKind::kOneForwardOneBackward;
  int chunks = 1;  // of each stage, under kInterleaved and kAllInAllOut; the others have their own
  int group = 0;   // kInterleaved: micro-batches that pass one chunk before the next; 0: p
};

int chunks_of_each_stage(const ScheduleSettings& settings);
// The stage of each chunk of the model, in order.
std::vector<int> stages_of_chunks(const ScheduleSettings& settings, int stages);
// Throws Error(kUsage) naming flags if the kind cannot have so many micro-batches.
void check_micro_batches(const ScheduleSettings& settings, int stages, int micro_batches);
// Throws Error(kUsage) as check_micro_batches() does.
Schedule make_schedule(const ScheduleSettings& settings, int stages, int micro_batches);

// Throws Error(kUsage) unless every micro-batch has, in every chunk, one forward and then one
// backward (kBackward, or kBackwardInput and later kBackwardWeight), all on the stage of the chunk.
void check(const Schedule& schedule);

}  // namespace piton
