#include "ops/offloading_keeper.h"

#include <utility>

namespace piton {

// A storage of kept tensors: here, elsewhere, or on the way. Its handles own it.
class OffloadingKeeper::Moved {
 public:
  Moved(const std::shared_ptr<Storage>& storage, std::size_t block)
      : origin(storage),
        block(block),
        here(storage, 0, DType::kU8, {storage->bytes()}),
        ghost(std::make_shared<Storage>(nullptr, storage->bytes(), storage->place())) {}

  std::weak_ptr<Storage> origin;  // as forward has it
  std::size_t block;              // the last one that kept it
  Tensor here;                    // [bytes]; empty while it is elsewhere
  Tensor away;                    // [bytes]; empty if it was not written
  Event written;
  Event arrived;
  // Replaces the storage in shapes, so that they do not keep the memory.
  std::shared_ptr<Storage> ghost;
};

// A kept tensor in such a storage.
class OffloadingKeeper::View final : public KeptTensor {
 public:
  View(OffloadingKeeper& keeper, std::shared_ptr<Moved> moved, const Tensor& tensor)
      : keeper_(keeper), moved_(std::move(moved)), shape_(tensor.with_storage(moved_->ghost)) {}

  Tensor get() override {
    if (!moved_->here.defined()) keeper_.fetch(moved_->block);
    keeper_.stream_.wait(moved_->arrived);
    return shape_.with_storage(moved_->here.storage());
  }

 private:
  OffloadingKeeper& keeper_;
  std::shared_ptr<Moved> moved_;
  Tensor shape_;
};

namespace {

class StayingTensor final : public KeptTensor {
 public:
  explicit StayingTensor(Tensor tensor) : tensor_(std::move(tensor)) {}
  Tensor get() override { return tensor_; }

 private:
  Tensor tensor_;
};

}  // namespace

std::shared_ptr<KeptTensor> OffloadingKeeper::keep(const Tensor& tensor) {
  if (stays_ || tensor.storage()->bytes() < smallest_ ||
      lanes_.arena_.kind_of(tensor) != MemoryKind::kActivations) {
    return std::make_shared<StayingTensor>(tensor);
  }
  const std::size_t open = blocks_.size() - 1;
  std::weak_ptr<Moved>& known = known_[tensor.storage().get()];
  std::shared_ptr<Moved> moved = known.lock();
  if (moved != nullptr && moved->origin.lock() != tensor.storage()) moved = nullptr;
  if (moved == nullptr) {
    known = moved = std::make_shared<Moved>(tensor.storage(), open);
    blocks_[open].push_back(moved);
  } else if (moved->block != open) {
    // Bytes that were not kept before may have been written since: it is written once more.
    moved->here = Tensor(tensor.storage(), 0, DType::kU8, {tensor.storage()->bytes()});
    moved->away = {};
    moved->block = open;
    blocks_[open].push_back(moved);
  }
  return std::make_shared<View>(*this, std::move(moved), tensor);
}

void OffloadingKeeper::begin_block(std::optional<std::int64_t> layer) {
  for (const auto& known : blocks_.back()) {
    if (const auto moved = known.lock()) write(*moved);
  }
  blocks_.emplace_back();
  fetched_.push_back(false);
  stays_ = stays_ || (layer && *layer >= layers_);
}

void OffloadingKeeper::write(Moved& moved) {
  Device& carrier = lanes_.target_.carrier();
  Arena& target = lanes_.target_.arena();
  Stream& writes = *lanes_.writes_;
  writes.wait(stream_.record());
  moved.away = target.allocate(DType::kU8, moved.here.shape(), MemoryKind::kActivations, writes);
  carrier.copy(moved.away, moved.here, writes);
  moved.written = writes.record();
  lanes_.arena_.hold(moved.here, moved.written.fence());
  target.hold(moved.away, moved.written.fence());
  moved.here = {};
}

void OffloadingKeeper::read(Moved& moved) {
  Stream& reads = *lanes_.reads_;
  // Memory of the compute stream, which uses it from the arrival on.
  moved.here =
      lanes_.arena_.allocate(DType::kU8, moved.away.shape(), MemoryKind::kActivations, stream_);
  reads.wait(stream_.record());
  reads.wait(moved.written);
  lanes_.target_.carrier().copy(moved.here, moved.away, reads);
  moved.arrived = reads.record();
  lanes_.arena_.hold(moved.here, moved.arrived.fence());
  lanes_.target_.arena().hold(moved.away, moved.arrived.fence());
  moved.away = {};
}

// Reads what `block` has kept, and then, ahead of its use, the block before.
void OffloadingKeeper::fetch(std::size_t block) {
  const std::size_t first = block > 0 ? block - 1 : 0;
  for (std::size_t i = block + 1; i-- > first;) {
    if (fetched_[i]) continue;
    fetched_[i] = true;
    for (const auto& known : blocks_[i]) {
      const auto moved = known.lock();
      if (moved != nullptr && !moved->here.defined()) read(*moved);
    }
  }
}

}  // namespace piton
