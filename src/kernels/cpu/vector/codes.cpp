// Products with weights held as codes, for one instruction set.
#include "kernels/cpu/vector/codes_loops.h"
