template <typename T> __global__ void k(T *y) {}
