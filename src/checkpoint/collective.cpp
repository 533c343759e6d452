#include "checkpoint/collective.h"

#include "base/reported_elsewhere.h"

namespace piton {

void agree(Communicator& ranks, const FirstFault& fault) {
  // "" without a fault, else the fault's code, a space, and the message.
  std::string mine;
  if (fault.error()) {
    mine = fmt::format("{} {}", static_cast<int>(fault.error()->fault()), fault.error()->what());
  }
  const std::vector<std::string> all = ranks.gather_bytes(mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    if (static_cast<int>(rank) == ranks.rank()) throw *fault.error();
    const std::size_t space = all[rank].find(' ');
    const auto code = static_cast<Fault>(std::stoi(all[rank].substr(0, space)));
    throw ReportedByAnotherRank(code, "[rank {}] {}", rank, all[rank].substr(space + 1));
  }
}

HostBytes::HostBytes(const Tensor& tensor, Device& device, Stream& stream) : tensor_(tensor) {
  PITON_ASSERT(tensor.contiguous(), "{}", to_string(tensor));
  if (tensor.place().kind == DeviceKind::kHost) {
    stream.synchronize();
    data_ = tensor.raw();
    return;
  }
  copy_.resize(static_cast<std::size_t>(tensor.bytes()));
  device.download(tensor, copy_.data(), stream);
  data_ = copy_.data();
}

}  // namespace piton
