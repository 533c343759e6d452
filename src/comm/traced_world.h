// Records the collectives, messages and waits of another world as events of a trace.
//
// A collective is an event of its group's row, from the time when all that it waits for on this
// rank is done, and the collective before it in the group, to its end: this contains the time for
// which the other members were late. Messages overlap each other. What a thread of the host waits
// for is an event of that thread's row.
#pragma once

#include <memory>

#include "base/trace_events.h"
#include "comm/communicator.h"

namespace piton {

// `inner` must outlive it.
std::unique_ptr<World> make_traced_world(World& inner, std::shared_ptr<TraceEvents> events);

}  // namespace piton
