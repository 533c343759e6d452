// An NVIDIA GPU as a device: its memory, its streams and their events.
//
// This header and kernels.h are all that `api` sees of CUDA, and name no CUDA type. A build without
// CUDA links kernels/no_cuda in the place of this folder: there are no devices then, and the makers
// refuse with Error(kUsage).
#pragma once

#include <memory>

#include "device/device.h"

namespace piton::cuda {

// True where this build has the back end.
bool is_built();

// How many devices this process can use; 0 without a driver or a GPU. Throws nothing.
int cuda_devices();

// Device `index` of cuda_devices(). Throws Error(kUsage) where there is no such device, or where it
// is older than compute capability 8.0.
//
// upload() copies through pinned memory of the device's own, so it waits only while all of that is
// in flight. A wait of its streams for an event of CUDA is ordered on the GPU and returns at once;
// a wait for an event of another origin (a message of MPI) blocks the caller until it is complete,
// as a host stream does, because CUDA may run the host functions of all streams on one thread. An
// exception of work that was put on a stream by enqueue() is thrown again by the next call on that
// stream, and by the wait for an event recorded after it.
std::unique_ptr<Device> make_device(int index = 0);

}  // namespace piton::cuda
