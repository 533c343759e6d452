#include "rollouts/answer_losses.h"

#include "rollouts/value_bytes.h"

namespace piton {

std::vector<std::vector<double>> answer_losses(Session& session,
                                               std::span<const std::vector<MicroBatch>> parts,
                                               const LossPass& pass, std::int64_t answers,
                                               Communicator& everyone) {
  const bool tells =
      session.pipeline().on_last_stage() && session.mesh().coordinate(Axis::kTensor) == 0;
  std::vector<double> own;  // the number of an answer, how many tokens it has, and their losses
  for (const std::vector<MicroBatch>& part : parts) {
    const std::vector<std::vector<double>> losses = session.token_losses(part, pass);
    if (!tells) continue;
    for (std::size_t i = 0; i < part.size(); ++i) {
      const MicroBatch& batch = part[i];
      for (std::int64_t sample = 0; sample < batch.samples; ++sample) {
        own.push_back(static_cast<double>(batch.sample_index + sample));
        const std::size_t count = own.size();
        own.push_back(0);
        const auto begin = static_cast<std::size_t>(sample * batch.sequence);
        const auto end = begin + static_cast<std::size_t>(batch.sequence);
        for (std::size_t row = begin; row < end; ++row) {
          if (batch.labels[row] < 0) continue;
          own.push_back(losses[i][row]);
          own[count] += 1;
        }
      }
    }
  }
  std::vector<std::vector<double>> all(static_cast<std::size_t>(answers));
  for (const std::string& bytes : everyone.gather_bytes(bytes_of_values(own))) {
    const auto told = values_in<double>(bytes);
    for (auto at = told.begin(); at != told.end();) {
      std::vector<double>& answer = all.at(static_cast<std::size_t>(*at++));
      const auto count = static_cast<std::ptrdiff_t>(*at++);
      answer.assign(at, at + count);
      at += count;
    }
  }
  return all;
}

}  // namespace piton
