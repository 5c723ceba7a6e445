// What one kernel for a whole run would give: a prototype to measure, not a second bandit.
//
//   nvcc -O3 -arch=native -o persistent benchmarks/persistent_kernel.cu && ./persistent
//
// LinUCB without noise as `benchmarks/replicates.py` plays it: d = 5, 20 arms redrawn from the unit ball, rewards of
// plus or minus one, a model posted ever more rarely. One warp plays one replicate, one lane scores one arm, and
// nothing leaves the registers before the end. Prints microseconds per round and the mean regret, which must be that
// of the library up to its standard error: the random numbers are others.

#include <cstdint>
#include <cstdio>
#include <cmath>
#include <cstdlib>

constexpr int D = 5, K = 20, LANES = 32;

__device__ uint4 philox(uint2 key, uint4 c) {
  for (int i = 0; i < 7; ++i) {
    uint64_t a = 0xD2511F53ull * c.x, b = 0xCD9E8D57ull * c.z;
    c = make_uint4(uint32_t(b >> 32) ^ c.y ^ key.x, uint32_t(b), uint32_t(a >> 32) ^ c.w ^ key.y, uint32_t(a));
    key.x += 0x9E3779B9u; key.y += 0xBB67AE85u;
  }
  return c;
}

__device__ float unit(uint32_t word) { return (word >> 8) * 0x1p-24f + 0x1p-25f; }

__device__ void in_ball(uint2 key, uint32_t lane, uint32_t round, uint32_t stream, float *x) {
  float z[8];
  for (int block = 0; block < 2; ++block) {
    uint4 w = philox(key, make_uint4(lane, round, stream, block));
    float r = sqrtf(-2 * __logf(unit(w.x))), s = sqrtf(-2 * __logf(unit(w.z)));
    __sincosf(6.2831853f * unit(w.y), &z[4 * block], &z[4 * block + 1]);
    __sincosf(6.2831853f * unit(w.w), &z[4 * block + 2], &z[4 * block + 3]);
    z[4 * block] *= r; z[4 * block + 1] *= r; z[4 * block + 2] *= s; z[4 * block + 3] *= s;
  }
  float square = z[5] * z[5] + z[6] * z[6];  // two further coordinates, dropped
  for (int i = 0; i < D; ++i) square += z[i] * z[i];
  for (int i = 0; i < D; ++i) x[i] = z[i] * rsqrtf(square);
}

__global__ void play(int horizon, float exploration, double *regrets) {
  const int lane = threadIdx.x % LANES, replicate = (blockIdx.x * blockDim.x + threadIdx.x) / LANES;
  const uint2 key = make_uint2(7, replicate);
  float theta[D], inverse[D][D], estimate[D], width;
  double gram[D][D], moment[D], regret = 0;
  in_ball(key, 0, 0, 1, theta);
  float length = 0;
  for (int i = 0; i < D; ++i) length += theta[i] * theta[i];
  for (int i = 0; i < D; ++i) {
    theta[i] *= rsqrtf(length);
    estimate[i] = 0; moment[i] = 0;
    for (int j = 0; j < D; ++j) { gram[i][j] = i == j; inverse[i][j] = i == j; }
  }
  width = exploration * (0.5f + sqrtf(float(D)));
  for (int round = 0; round < horizon; ++round) {
    float x[D], value = 0, square = 0, score = 0;
    in_ball(key, lane, round, 2, x);
    for (int i = 0; i < D; ++i) {
      float row = 0;
      for (int j = 0; j < D; ++j) row += inverse[i][j] * x[j];
      square += row * x[i]; score += estimate[i] * x[i]; value += theta[i] * x[i];
    }
    float upper = lane < K ? score + width * sqrtf(fmaxf(square, 0)) : -INFINITY;
    float best = lane < K ? value : -INFINITY, top = upper;
    int chosen = lane;
    for (int step = 16; step; step /= 2) {
      float other = __shfl_xor_sync(~0u, top, step); int who = __shfl_xor_sync(~0u, chosen, step);
      if (other > top || (other == top && who < chosen)) { top = other; chosen = who; }
      best = fmaxf(best, __shfl_xor_sync(~0u, best, step));
    }
    float mean = __shfl_sync(~0u, value, chosen), picked[D];
    for (int i = 0; i < D; ++i) picked[i] = __shfl_sync(~0u, x[i], chosen);
    regret += best - mean;
    uint4 coin = philox(key, make_uint4(0, round, 3, 0));
    double reward = unit(coin.x) <= (1 + mean) / 2 ? 1 : -1;
    for (int i = 0; i < D; ++i) {
      moment[i] += reward * picked[i];
      for (int j = 0; j < D; ++j) gram[i][j] += double(picked[i]) * picked[j];
    }
    int now = round + 1, gap = max(1, int(0.01f * now));
    if (now % (1 << (31 - __clz(gap))) == 0) {
      double left[D][D];
      for (int i = 0; i < D; ++i) for (int j = 0; j < D; ++j) left[i][j] = gram[i][j];
      for (int k = 0; k < D; ++k) {
        double pivot = 1 / left[k][k];
        for (int j = 0; j < D; ++j) left[k][j] = j == k ? pivot : left[k][j] * pivot;
        for (int i = 0; i < D; ++i) if (i != k) {
          double factor = left[i][k];
          for (int j = 0; j < D; ++j) left[i][j] = (j == k ? 0 : left[i][j]) - factor * left[k][j];
        }
      }
      for (int i = 0; i < D; ++i) {
        double sum = 0;
        for (int j = 0; j < D; ++j) { inverse[i][j] = float(left[i][j]); sum += left[i][j] * moment[j]; }
        estimate[i] = float(sum);
      }
    }
  }
  if (lane == 0) regrets[replicate] = regret;
}

int main(int count, char **given) {
  const int horizon = 20000, replicates = 1000;
  const float exploration = count > 1 ? atof(given[1]) : 0.5f;
  double *regrets;
  cudaMallocManaged(&regrets, replicates * sizeof(double));
  cudaEvent_t start, end;
  cudaEventCreate(&start); cudaEventCreate(&end);
  for (int turn = 0; turn < 3; ++turn) {
    cudaEventRecord(start);
    play<<<replicates / 4, 4 * LANES>>>(horizon, exploration, regrets);
    cudaEventRecord(end);
    cudaEventSynchronize(end);
    float milliseconds;
    cudaEventElapsedTime(&milliseconds, start, end);
    double sum = 0, squares = 0;
    for (int i = 0; i < replicates; ++i) { sum += regrets[i]; squares += regrets[i] * regrets[i]; }
    double mean = sum / replicates, error = sqrt((squares / replicates - mean * mean) / replicates);
    printf("%.2f us per round, regret %.1f +- %.1f (%s)\n", 1e3 * milliseconds / horizon, mean, error,
           cudaGetErrorString(cudaGetLastError()));
  }
}
