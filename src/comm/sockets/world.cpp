#include "comm/sockets/world.h"

#include "comm/sockets/transport.h"

namespace piton {

std::unique_ptr<World> make_socket_world(Device& device, const RankOptions& options,
                                         const MeetingPlace& place) {
  return make_rank_world(device, make_socket_transport(place, options.timeout_seconds), options);
}

}  // namespace piton
