// The math library, in single and in double precision.
#define FUNCTIONS(T, S) \
    extern "C" __global__ void functions_##T(const T* a, T* o, int n) { \
        int i = blockIdx.x * blockDim.x + threadIdx.x; \
        if (i >= n) return; \
        T x = a[i], p = fabs##S(x) + (T)0.125, whole, s, c; \
        int e, quotient; \
        sincos##S(x, &s, &c); \
        T fraction = modf##S(x, &whole), significand = frexp##S(x, &e), rest = remquo##S(x, (T)0.75, &quotient); \
        T r[44] = { \
            exp##S(x), exp2##S(x), exp10##S(x), expm1##S(x), log##S(p), log2##S(p), log10##S(p), log1p##S(p), \
            sin##S(x), cos##S(x), tan##S(x), asin##S(x / 8), acos##S(x / 8), atan##S(x), sinh##S(x), cosh##S(x), \
            tanh##S(x), asinh##S(x), acosh##S(p + 1), atanh##S(x / 8), pow##S(p, x), cbrt##S(x), hypot##S(x, p), rhypot##S(x, p), \
            erf##S(x), erfc##S(x), erfinv##S(x / 8), tgamma##S(p), lgamma##S(p), sinpi##S(x), cospi##S(x), j0##S(p), \
            fmod##S(x, p), remainder##S(x, (T)0.75), fdim##S(x, 1), nextafter##S(x, 100), significand + e, ldexp##S(x, 5), fraction + whole * 2, logb##S(p), \
            s + 2 * c, rest + (quotient & 7), normcdf##S(x), rsqrt##S(p) }; \
        for (int k = 0; k < 44; ++k) o[i * 44 + k] = r[k]; \
    }
FUNCTIONS(float, f)
FUNCTIONS(double, )
