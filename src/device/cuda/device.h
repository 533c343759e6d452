// An NVIDIA GPU as a device: its memory, its streams and their events.
//
// `api` includes only this header and kernels/cuda/kernels.h, which use no CUDA types. A build
// without CUDA links device/no_cuda and kernels/no_cuda instead of these folders: then there are no
// devices, and make_device() and make_kernels() throw Error(kUsage).
#pragma once

#include <memory>
#include <string>

#include "device/device.h"

namespace piton::cuda {

// True where this build has the back end.
bool is_built();

// How many devices this process can use; 0 without a driver or a GPU. Throws nothing.
int cuda_devices();

// What is wrong with the driver of this machine: none is there, or it is older than CUDA of this
// build. "" if it is right, and in a build without CUDA.
std::string driver_obstacle();

// Device `index` of cuda_devices(). Throws Error(kUsage) if there is no such device, or if its
// compute capability is below 8.0.
//
// upload() copies through pinned buffers of the device, so it blocks only while all of them are in
// use. If a stream waits for a CUDA event, the GPU does the waiting, and the call returns at once.
// A wait for any other event (an MPI message) blocks the caller until the event is complete, as a
// host stream does, because CUDA may run the host functions of all streams on one thread. An
// exception of work enqueued by enqueue() is rethrown by the next call on that stream, and by the
// wait for an event recorded after it.
std::unique_ptr<Device> make_device(int index = 0);

}  // namespace piton::cuda
