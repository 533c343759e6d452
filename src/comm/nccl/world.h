// Ranks that each have an NVIDIA GPU, as a World: NCCL moves and sums tensors between the GPUs, and
// a rendezvous over TCP joins the ranks and carries small texts. No MPI.
//
// Each group has a communicator of NCCL and a stream, so that groups do not wait for each other.
// Sums have NCCL's order and precision: a sum of 16-bit numbers over more than two ranks is rounded
// several times. All members get the same bits; other layouts give other rounding. A maximum with a
// NaN may be another number.
//
// A watch looks at all pending operations. If a rank is lost or has failed, NCCL reports an error,
// or an operation does not finish within the timeout after its input is ready, it ends all
// operations, and all calls and waits on streams of the device throw Error(kPeer) with the reason.
//
// NCCL matches messages by their order alone: they need lanes (comm/message_lanes.h), each of which
// is a communicator of two ranks with a stream, so that no message waits for another one. Exchanges
// need none: their sends and receives are one operation of the group. Messages without a lane, and
// symmetric memory, throw Error(kUsage).
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/rendezvous/meeting_place.h"

namespace piton {

struct NcclOptions {
  MeetingPlace place;
  double timeout_seconds = 600;
  std::string library;  // file of NCCL; "": libnccl.so.2
};

// Collective over all ranks of `options.place`. `device` holds the tensors: a GPU that no other
// rank uses. Throws Error(kUsage) if NCCL is missing, and what Rendezvous throws.
std::unique_ptr<World> make_nccl_world(Device& device, const NcclOptions& options);

// Why make_nccl_world() would fail because the library is missing; "" if it would not, and in a
// build without CUDA.
std::string nccl_obstacle();

}  // namespace piton
