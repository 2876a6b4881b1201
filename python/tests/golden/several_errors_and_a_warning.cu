extern "C" __global__ void k(float *y) {
    int unused;
    y[0] = "text";
    foo(1, 2);
}
