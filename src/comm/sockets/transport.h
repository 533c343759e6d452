// Sockets as what joins ranks: a rendezvous over TCP, memory of a host, and messages over TCP.
#pragma once

#include <memory>

#include "comm/ranks/transport.h"
#include "comm/rendezvous/meeting_place.h"

namespace piton {

// Returns when all ranks are there. Throws what Rendezvous throws.
std::unique_ptr<Transport> make_socket_transport(const MeetingPlace& place, double timeout_seconds);

}  // namespace piton
