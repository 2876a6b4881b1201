// nbody_step: one step of bodies that attract each other, with the gravitational constant 1
//
// A position is x, y, z and the body's mass; a velocity is x, y, z and a fourth number that is kept as it is. First the velocities
// change, then the positions by the new velocities: semi-implicit Euler, which keeps orbits from growing. Softening keeps close
// encounters, and a body's pull on itself, finite.
//
// One thread per body. A block reads the others a tile at a time into shared memory, where every thread uses each of them.

#define TILE 128

extern "C" __global__ void __launch_bounds__(TILE)
    nbody_step(const float4* __restrict__ positions, const float4* __restrict__ velocities, float4* __restrict__ new_positions,
               float4* __restrict__ new_velocities, float dt, float softening, unsigned n) {
    __shared__ float4 tile[TILE];
    const unsigned long long body = (unsigned long long)blockIdx.x * TILE + threadIdx.x;
    // Threads beyond the last body help to fill the tiles.
    const float4 position = positions[body < n ? body : n - 1];
    float3 acceleration = make_float3(0.0f, 0.0f, 0.0f);

    for (unsigned long long first = 0; first < n; first += TILE) {
        if (first + threadIdx.x < n) {
            tile[threadIdx.x] = positions[first + threadIdx.x];
        }
        __syncthreads();
        const unsigned count = (unsigned)min((unsigned long long)TILE, n - first);
        for (unsigned i = 0; i < count; ++i) {
            const float4 other = tile[i];
            const float x = other.x - position.x;
            const float y = other.y - position.y;
            const float z = other.z - position.z;
            const float square = x * x + y * y + z * z + softening * softening;
            const float inverse = rsqrtf(square);
            const float pull = other.w * inverse * inverse * inverse;
            acceleration.x += pull * x;
            acceleration.y += pull * y;
            acceleration.z += pull * z;
        }
        // All threads must have read the tile before any thread refills it.
        __syncthreads();
    }

    if (body < n) {
        float4 velocity = velocities[body];
        velocity.x += acceleration.x * dt;
        velocity.y += acceleration.y * dt;
        velocity.z += acceleration.z * dt;
        new_velocities[body] = velocity;
        new_positions[body] = make_float4(position.x + velocity.x * dt, position.y + velocity.y * dt,
                                          position.z + velocity.z * dt, position.w);
    }
}
