// libraries: piton_pickle
// Any bytes as a file of torch.save, and as its pickle: read, or refused with an Error. Every
// tensor that was read is inside the file.
#include <cstdint>

#include "base/error.h"
#include "fuzz/scratch_files.h"
#include "pickle/pickle.h"
#include "pickle/torch_file.h"

namespace {

template <typename Work>
void must_refuse_or_read(Work&& work) {
  try {
    work();
  } catch (const piton::Error& error) {
    PITON_ASSERT(error.fault() == piton::Fault::kData, "{}", error.what());
  }
}

void look_at(const piton::TorchFile& file, const piton::PickleValue& value) {
  if (value.kind != piton::PickleValue::Kind::kTensor) return;
  must_refuse_or_read([&] {
    const piton::TorchTensor tensor = file.tensor(value, "x");
    PITON_ASSERT(tensor.offset >= 0 && tensor.offset <= file.file().size_bytes());
    std::int64_t last = tensor.offset;
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      if (tensor.shape[i] == 0) return;
      last += (tensor.shape[i] - 1) * tensor.strides[i] * piton::torch_width(tensor.dtype);
    }
    PITON_ASSERT(last + piton::torch_width(tensor.dtype) <= file.file().size_bytes());
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  must_refuse_or_read([&] { piton::read_pickle(bytes, "x"); });
  must_refuse_or_read([&] {
    const piton::TorchFile file(piton::scratch_file("x.pt", bytes));
    look_at(file, file.root());
    for (const auto& [key, value] : file.root().pairs) look_at(file, *value);
    for (const piton::PickleValue* value : file.root().items) look_at(file, *value);
  });
  return 0;
}
