// Work of streams that are captured: it is kept in a graph, and done when the graph is launched.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace piton::emulator {

// Does `work`, or keeps it if `stream` is captured.
void run_or_record(cudaStream_t stream, std::function<void()> work);

// Whether a stream is captured.
bool captures();

// Launches of graphs so far.
int graph_launches();

}  // namespace piton::emulator
