// What a session says of the labels of a classifier's texts.
#include <cstring>

#include "base/error.h"
#include "session/session.h"

namespace piton {
namespace {

// The rows of a micro-batch that have a label.
std::vector<std::int32_t> rows_with_label(const MicroBatch& batch) {
  std::vector<std::int32_t> rows;
  for (std::size_t row = 0; row < batch.labels.size(); ++row) {
    if (batch.labels[row] >= 0) rows.push_back(static_cast<std::int32_t>(row));
  }
  return rows;
}

std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

std::string bytes_of(const std::vector<double>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)};
}

}  // namespace

void Session::ask_for_labels(const std::vector<MicroBatch>& batches,
                             std::vector<ModelInput>& inputs) {
  if (!settings_.model.classifies() || !pipeline_->on_last_stage()) return;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<std::int32_t> rows = rows_with_label(batches[i]);
    if (rows.empty()) continue;
    Wanted& wanted = inputs[i].wanted;
    wanted.logits = true;
    wanted.rows = put_input(DType::kI32, {std::ssize(rows)}, rows.data());
  }
}

std::vector<std::vector<float>> Session::rows_of_labels(const Tensor& logits) {
  const auto rows = static_cast<std::size_t>(logits.dim(0));
  const auto width = static_cast<std::size_t>(logits.dim(1));
  std::vector<float> own(rows * width);
  if (logits.dtype() == DType::kF64) {
    std::vector<double> wide(own.size());
    machine_.device.download(logits, wide.data(), machine_.stream);
    for (std::size_t i = 0; i < own.size(); ++i) own[i] = static_cast<float>(wide[i]);
  } else {
    machine_.device.download(logits, own.data(), machine_.stream);
  }
  // Of a decoder, the tensor ranks have parts of the labels (Head::logits).
  std::vector<std::string> parts{bytes_of(own)};
  if (!settings_.model.encoder && mesh_->size(Axis::kTensor) > 1)
    parts = mesh_->group(Axis::kTensor).gather_bytes(parts.front());
  const auto labels = static_cast<std::size_t>(settings_.model.labels);
  std::vector<std::vector<float>> all(rows);
  for (const std::string& part : parts) {
    std::memcpy(own.data(), part.data(), part.size());
    for (std::size_t row = 0; row < rows; ++row) {
      const auto begin = own.begin() + static_cast<std::ptrdiff_t>(row * width);
      all[row].insert(all[row].end(), begin, begin + static_cast<std::ptrdiff_t>(width));
    }
  }
  for (std::vector<float>& row : all) row.resize(labels);  // without padding
  return all;
}

LabelCounts Session::counts_of(const std::vector<MicroBatch>& batches,
                               const std::vector<Tensor>& logits) {
  const std::int64_t labels = settings_.model.labels;
  if (!settings_.model.classifies()) return {};
  LabelCounts own;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!logits[i].defined()) continue;
    const std::vector<std::int32_t> rows = rows_with_label(batches[i]);
    const std::vector<std::vector<float>> found = rows_of_labels(logits[i]);
    for (std::size_t k = 0; k < rows.size(); ++k) {
      const auto row = static_cast<std::size_t>(rows[k]);
      if (settings_.model.regression) {
        own.numbers.push_back({batches[i].targets[row], found[k][0]});
      } else if (settings_.model.several_labels) {
        const auto width = static_cast<std::size_t>(labels);
        own.add_set(std::span(batches[i].label_sets)
                        .subspan(static_cast<std::size_t>(batches[i].labels[row]) * width, width),
                    found[k]);
      } else {
        own.add(batches[i].labels[row], largest(found[k]), labels);
      }
    }
  }
  return over_all_ranks(std::move(own));
}

LabelCounts Session::over_all_ranks(LabelCounts own) {
  Communicator& ranks = mesh_->group(kLossAxes);
  if (settings_.model.regression) {
    if (ranks.size() == 1) return own;
    std::string numbers;
    for (const NumberOfText& one : own.numbers) {
      numbers.append(reinterpret_cast<const char*>(&one), sizeof one);
    }
    LabelCounts all;
    for (const std::string& bytes : ranks.gather_bytes(numbers)) {
      std::vector<NumberOfText> some(bytes.size() / sizeof(NumberOfText));
      if (!some.empty()) std::memcpy(some.data(), bytes.data(), bytes.size());
      all.numbers.insert(all.numbers.end(), some.begin(), some.end());
    }
    return all;
  }
  const std::int64_t labels = settings_.model.labels;
  std::vector<double> sent;
  for (std::vector<double>* counts : {&own.wanted, &own.predicted, &own.right}) {
    counts->resize(static_cast<std::size_t>(labels));
    sent.insert(sent.end(), counts->begin(), counts->end());
  }
  sent.insert(sent.end(), {own.sets, own.exact});
  if (ranks.size() == 1) return own;
  LabelCounts all;
  for (const std::string& bytes : ranks.gather_bytes(bytes_of(sent))) {
    std::vector<double> values(sent.size());
    PITON_ASSERT(bytes.size() == values.size() * sizeof(double), "{} bytes", bytes.size());
    std::memcpy(values.data(), bytes.data(), bytes.size());
    const auto part = [&](std::int64_t index) {
      const auto begin = values.begin() + index * labels;
      return std::vector<double>(begin, begin + labels);
    };
    all.add(LabelCounts{.wanted = part(0),
                        .predicted = part(1),
                        .right = part(2),
                        .sets = values[values.size() - 2],
                        .exact = values.back()});
  }
  return all;
}

std::vector<std::vector<std::vector<float>>> Session::label_logits(
    const std::vector<MicroBatch>& batches) {
  std::vector<ModelInput> inputs;
  inputs.reserve(batches.size());
  for (const MicroBatch& batch : batches) {
    inputs.push_back(upload(batch, {}));
    inputs.back().wanted.loss = false;
  }
  ask_for_labels(batches, inputs);
  std::vector<std::vector<std::vector<float>>> all(batches.size());
  pipeline_->forward(context(false), inputs, [&](int micro_batch, ChunkOutput& output) {
    all[static_cast<std::size_t>(micro_batch)] = rows_of_labels(output.logits);
  });
  return all;
}

}  // namespace piton
