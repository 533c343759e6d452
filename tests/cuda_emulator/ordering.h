// Which accesses of different blocks of a launch are ordered: those before a barrier, a fence and
// an atomic of one block, and those after an atomic of the same word that comes later, a fence and
// a barrier of the other block. So a block that is the last to arrive may read what the others
// left.
#pragma once

#include "cuda_emulator/launcher.h"

namespace piton::emulator {

void forget_launch();  // nothing is ordered yet
void forget_block();   // another block runs

// The running thread did this.
void note_fence();
void note_atomic(const void* address);

// Whether an access of another block at `before` is ordered before one of the running thread now.
bool is_ordered(const Moment& before);

}  // namespace piton::emulator
