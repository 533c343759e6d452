// Copies whole storages, so that views keep their offsets, strides and neighbors.
#include "call_runner.h"

#include <cstring>
#include <map>

#include "device/host_device.h"
#include "kernels/reference/kernels.h"
#include "support/compare.h"

namespace piton::test {
namespace {

using StorageMap = std::map<Storage*, Tensor>;  // a storage, and its copy as bytes elsewhere

// Points every tensor of `call` into the copy of its storage.
void redirect(KernelCall& call, const StorageMap& copies) {
  for_each_tensor(call, [&](std::string_view, Tensor& tensor, Access) {
    tensor = tensor.with_storage(copies.at(tensor.storage().get()).storage());
  });
}

// The weight of a linear, and the packed form that the call could take; null for other calls, and
// in FP8, of which weights are plain rows.
WeightView* weight_of(KernelCall& call, WeightForm* form) {
  if (auto* forward = std::get_if<LinearForward>(&call); forward != nullptr) {
    if (forward->float8.given()) return nullptr;
    *form = WeightForm::kForward;
    return &forward->weight;
  }
  if (auto* gated = std::get_if<GatedLinear>(&call); gated != nullptr) {
    *form = WeightForm::kForward;
    return &gated->weight;
  }
  if (auto* backward = std::get_if<LinearBackwardInput>(&call); backward != nullptr) {
    if (backward->float8.given()) return nullptr;
    *form = WeightForm::kBackward;
    return &backward->weight;
  }
  return nullptr;
}

::testing::AssertionResult only_outputs_changed(const KernelCall& before, const KernelCall& after) {
  // Each storage as it was, with what was written put in.
  std::map<Storage*, std::pair<std::vector<std::byte>, Storage*>> wanted;
  std::vector<std::pair<Tensor, Access>> old_tensors;
  for_each_tensor(before, [&](std::string_view, const Tensor& tensor, Access access) {
    old_tensors.emplace_back(tensor, access);
  });
  std::size_t index = 0;
  for_each_tensor(after, [&](std::string_view, const Tensor& tensor, Access) {
    Storage* old = old_tensors[index++].first.storage().get();
    std::vector<std::byte> bytes(old->data(), old->data() + old->bytes());
    wanted.try_emplace(tensor.storage().get(), std::move(bytes), old);
  });
  for_each_tensor(after, [&](std::string_view, const Tensor& tensor, Access access) {
    if (access == Access::kRead) return;
    auto& bytes = wanted.at(tensor.storage().get()).first;
    const std::int64_t begin = tensor.raw() - tensor.storage()->data();
    const std::int64_t size = size_bytes(tensor.dtype());
    for (const std::int64_t offset : offsets(tensor)) {
      std::memcpy(bytes.data() + begin + offset * size, tensor.raw() + offset * size,
                  static_cast<std::size_t>(size));
    }
  });
  for (const auto& [storage, expected] : wanted) {
    if (std::memcmp(storage->data(), expected.first.data(), expected.first.size()) != 0) {
      return ::testing::AssertionFailure() << "bytes outside of the outputs were changed";
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace

bool CallRunner::packs(const KernelCall& call) const {
  KernelCall copy = call;
  WeightForm form = WeightForm::kRows;
  const WeightView* weight = weight_of(copy, &form);
  return weight != nullptr && weight->form != WeightForm::kCodes &&
         kernels_.packed_bytes(form, weight->out, weight->in, weight->dtype) > 0;
}

KernelCall CallRunner::run(const KernelCall& call, WeightUse use) {
  Arena arena(device_, std::int64_t{1} << 16);
  const auto stream = device_.make_stream();
  StorageMap on_device;
  for_each_tensor(call, [&](std::string_view, const Tensor& tensor, Access) {
    Storage* storage = tensor.storage().get();
    if (on_device.contains(storage)) return;
    const Tensor bytes = arena.allocate(DType::kU8, {storage->bytes()}, MemoryKind::kWorkspace);
    device_.upload(storage->data(), bytes, *stream);
    on_device[storage] = bytes;
  });
  KernelCall moved = call;
  redirect(moved, on_device);
  Tensor packed;
  WeightForm form = WeightForm::kRows;
  if (use == WeightUse::kPacked && packs(call)) {
    WeightView* weight = weight_of(moved, &form);
    const std::int64_t size =
        weight->matrices * kernels_.packed_bytes(form, weight->out, weight->in, weight->dtype);
    packed = arena.allocate(DType::kU8, {size}, MemoryKind::kWorkspace);
    kernels_.run(
        PackWeight{
            .packed = packed, .rows = weight->tensor, .form = form, .matrices = weight->matrices},
        *stream);
    weight->form = form;
    weight->tensor = packed;
  }
  kernels_.run(moved, *stream);
  StorageMap on_host;
  for (const auto& [storage, bytes] : on_device) {
    on_host[storage] = host_tensor(DType::kU8, {storage->bytes()});
    device_.download(bytes.slice(0, 0, storage->bytes()), on_host[storage].raw(), *stream);
  }
  KernelCall result = call;
  redirect(result, on_host);
  return result;
}

KernelCall run_reference(const KernelCall& call) {
  HostDevice device;
  const auto kernels = make_reference_kernels();
  return CallRunner(*kernels, device).run(call);
}

std::vector<std::pair<std::string, Tensor>> outputs(const KernelCall& call) {
  std::vector<std::pair<std::string, Tensor>> result;
  for_each_tensor(call, [&](std::string_view name, const Tensor& tensor, Access access) {
    if (access != Access::kRead) result.emplace_back(name, tensor);
  });
  return result;
}

::testing::AssertionResult same_bits(const KernelCall& actual, const KernelCall& expected) {
  const auto got = outputs(actual);
  const auto wanted = outputs(expected);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto result = bit_equal(got[i].second, wanted[i].second);
    if (!result)
      return ::testing::AssertionFailure() << wanted[i].first << ": " << result.message();
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult agrees(const CallCase& call_case, CallRunner& tested, WeightUse use) {
  const KernelCall expected = run_reference(call_case.call);
  const KernelCall actual = tested.run(call_case.call, use);
  const auto got = outputs(actual);
  const auto wanted = outputs(expected);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto result =
        close(got[i].second, wanted[i].second, tolerance_of(call_case, wanted[i].second));
    if (!result) {
      return ::testing::AssertionFailure()
             << call_case.name << ": " << wanted[i].first << ": " << result.message();
    }
  }
  const auto untouched = only_outputs_changed(call_case.call, actual);
  if (!untouched)
    return ::testing::AssertionFailure() << call_case.name << ": " << untouched.message();
  return ::testing::AssertionSuccess();
}

void expect_agreement(Kernels& kernels, Device& device, const std::vector<CallCase>& cases) {
  CallRunner runner(kernels, device);
  for (const CallCase& call_case : cases) {
    EXPECT_TRUE(agrees(call_case, runner));
    if (runner.packs(call_case.call)) {
      EXPECT_TRUE(agrees(call_case, runner, WeightUse::kPacked)) << "packed weight";
    }
  }
}

}  // namespace piton::test
