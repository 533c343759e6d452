#include "train/replica_hashes.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hash.h"

namespace piton {
namespace {

constexpr std::size_t kHexDigits = 32;

// Zeros for what is held as codes alone, which no step changes.
std::string hash_of_value(Session& session, Parameter& parameter, const Machine& machine) {
  if (!parameter.value.defined()) return std::string(kHexDigits, '0');
  // Waits for what is gathered during the next forward pass.
  const Tensor value = session.sharded().whole_value(parameter, machine.stream);
  std::vector<std::byte> bytes(static_cast<std::size_t>(value.bytes()));
  if (!bytes.empty()) machine.device.download(value, bytes.data(), machine.stream);
  StreamHash hash;
  hash.add(bytes);
  return hash.hex();
}

}  // namespace

void check_replica_hashes(Session& session, Mesh& mesh, const Machine& machine,
                          std::int64_t iteration) {
  Communicator& replicas = mesh.group(Axis::kData);
  if (replicas.size() == 1) return;
  std::string mine;
  for (Parameter* parameter : session.parameters())
    mine += hash_of_value(session, *parameter, machine);
  mine += fmt::format("{}", machine.world.rank());
  const std::vector<std::string> all = replicas.gather_bytes(mine);
  const std::size_t digits = session.parameters().size() * kHexDigits;
  for (std::size_t i = 0; i < session.parameters().size(); ++i) {
    std::map<std::string, std::int64_t> holders;
    const auto hash = [&](const std::string& one) {
      return one.substr(i * kHexDigits, kHexDigits);
    };
    for (const std::string& one : all) ++holders[hash(one)];
    if (holders.size() == 1) continue;
    const auto fewer = [&](const std::string& a, const std::string& b) {
      return holders[hash(a)] < holders[hash(b)];
    };
    // Of equals the last: the first rank is what others are compared with.
    const auto odd = std::min_element(all.rbegin(), all.rend(), fewer);
    const auto usual = std::max_element(all.begin(), all.end(), fewer);
    throw Error(Fault::kData,
                "iteration {}: {} on rank {} differs from that on rank {}: replicas have the same "
                "bits unless the memory or the processor of a rank is faulty; continue from an "
                "earlier checkpoint without that host",
                iteration, session.parameters()[i]->name, odd->substr(digits),
                usual->substr(digits));
  }
}

}  // namespace piton
