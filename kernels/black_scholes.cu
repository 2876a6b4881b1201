// black_scholes: prices of European calls and puts after Black and Scholes, for one rate and one volatility
//
// One thread per option. Both prices come from the same two probabilities, of the tail that is needed: taking 1 - p for a small
// price would lose it to rounding.

// How likely a standard normal variable is below the bound.
static __device__ float normal_below(float bound) {
    return 0.5f * erfcf(-0.70710678f * bound);
}

extern "C" __global__ void black_scholes(const float* __restrict__ spot, const float* __restrict__ strike,
                                         const float* __restrict__ years, float* __restrict__ calls, float* __restrict__ puts,
                                         float rate, float volatility, unsigned long long n) {
    const unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    const float deviation = volatility * sqrtf(years[i]);
    const float d1 = (logf(spot[i] / strike[i]) + (rate + 0.5f * volatility * volatility) * years[i]) / deviation;
    const float d2 = d1 - deviation;
    const float discounted = strike[i] * expf(-rate * years[i]);
    calls[i] = spot[i] * normal_below(d1) - discounted * normal_below(d2);
    puts[i] = discounted * normal_below(-d2) - spot[i] * normal_below(-d1);
}
