#include "missing.h"
extern "C" __global__ void k(float *y) {
}
