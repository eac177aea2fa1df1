// Weight matrices and their products with a few rows of activations.
//
// Each output is one dot product, accumulated over the input in one fixed order, so a row's result doesn't depend on how many
// other rows are computed with it: verifying k + 1 tokens gives the same bits as decoding them one by one.
#pragma once

#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace harness {

constexpr int kLanes = 16;  // floats in a 512-bit register
constexpr int kGroup = 32;  // int4 weights and quantised activations that share a scale

enum Kind : int { kBfloat16 = 0, kInt8 = 1, kInt4 = 2 };

// Laid out as harness.engine.compiled.packing says; a plain struct shared with Python. Outputs come in blocks of 16, one per
// lane, padded with zeros; a block's weights lie in the order of their inputs.
struct Matrix {
    int32_t kind;
    int32_t out;
    int32_t in;            // a multiple of 32
    int32_t unused;
    const void* weights;   // bfloat16 [blocks, in / 2, 16, 2] | uint8 [blocks, in / 4, 16, 4] | uint8 [blocks, in / 8, 16, 4], two nibbles each
    const void* scales;    // null | float32 [blocks * 16] | float16 [blocks, in / 32, 2, 16]: scales, then offsets
    const float* bias;     // float32 [blocks * 16] or null
};

// Activations as a matrix's kind wants them.
struct Activations {
    const uint16_t* bf16 = nullptr;   // [rows, in]
    const int8_t* int8 = nullptr;     // [rows, in]
    const float* scales = nullptr;    // [rows, in / 32]
    const int32_t* sums = nullptr;    // [rows, in / 32]
};

inline uint16_t to_bfloat16(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);  // to nearest, ties to even
}

inline float from_bfloat16(uint16_t value) {
    const uint32_t bits = static_cast<uint32_t>(value) << 16;
    float out;
    std::memcpy(&out, &bits, sizeof out);
    return out;
}

inline __m512i round_to_bfloat16(__m512 low, __m512 high) {
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

inline void row_to_bfloat16(const float* x, int size, uint16_t* out) {
    for (int i = 0; i < size; i += 32) {
        _mm512_storeu_si512(out + i, round_to_bfloat16(_mm512_loadu_ps(x + i), _mm512_loadu_ps(x + i + kLanes)));
    }
}

// Symmetric per group of 32: x = scale * int8.
inline void quantise_row(const float* x, int size, int8_t* out, float* scales, int32_t* sums) {
    for (int group = 0; group < size / kGroup; ++group) {
        const __m512 low = _mm512_loadu_ps(x + group * kGroup), high = _mm512_loadu_ps(x + group * kGroup + kLanes);
        const float largest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high)));
        const __m512 inverse = _mm512_set1_ps(largest > 0 ? 127.0f / largest : 0.0f);
        const __m512i a = _mm512_cvtps_epi32(_mm512_mul_ps(low, inverse)), b = _mm512_cvtps_epi32(_mm512_mul_ps(high, inverse));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + group * kGroup), _mm512_cvtsepi32_epi8(a));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + group * kGroup + kLanes), _mm512_cvtsepi32_epi8(b));
        scales[group] = largest / 127.0f;
        sums[group] = _mm512_reduce_add_epi32(_mm512_add_epi32(a, b));
    }
}

inline __m512 bias_of(const Matrix& w, int block) {
    return w.bias ? _mm512_loadu_ps(w.bias + block * kLanes) : _mm512_setzero_ps();
}

inline int32_t load_int32(const void* at) {
    int32_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

// sums + the dot products of 4 unsigned and 4 signed bytes a lane. In assembly, because the compiler copies all sums in every turn of
// a loop over its own, and runs out of registers.
inline void add_dot(__m512i& sums, __m512i weights, __m512i inputs) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(weights), "v"(inputs));
}

// R blocks of outputs, `stride` apart.
template <int R>
struct Blocks {
    int first;
    int stride;

    int operator[](int r) const { return first + r * stride; }
};

// Sums of a tile that are only touched once per group stay in memory: what is added in between needs all registers.
#define HARNESS_KEEP_IN_MEMORY(sums) asm volatile("" : "+m"(sums))

// R blocks x M rows; `store(block, row, sums)` takes 16 sums.
template <int R, int M, class Store>
inline void tile_bfloat16(const Matrix& w, const Activations& x, Blocks<R> blocks, int first_row, Store store) {
    const auto* weights = static_cast<const uint16_t*>(w.weights) + static_cast<int64_t>(blocks.first) * kLanes * w.in;
    const int64_t next = static_cast<int64_t>(blocks.stride) * kLanes * w.in;
    const uint16_t* inputs = x.bf16 + static_cast<int64_t>(first_row) * w.in;
    __m512 sums[R][M];
    for (int r = 0; r < R; ++r) for (auto& sum : sums[r]) sum = bias_of(w, blocks[r]);
    for (int i = 0; i < w.in; i += 2) {
        __m512bh b[R];
        for (int r = 0; r < R; ++r) b[r] = (__m512bh)_mm512_loadu_si512(weights + r * next + i * kLanes);
        for (int m = 0; m < M; ++m) {
            const auto a = (__m512bh)_mm512_set1_epi32(load_int32(inputs + static_cast<int64_t>(m) * w.in + i));
            for (int r = 0; r < R; ++r) sums[r][m] = _mm512_dpbf16_ps(sums[r][m], b[r], a);
        }
    }
    for (int r = 0; r < R; ++r) for (int m = 0; m < M; ++m) store(blocks[r], first_row + m, sums[r][m]);
}

// w = scale * (byte - 128), one scale per output.
template <int R, int M, class Store>
inline void tile_int8(const Matrix& w, const Activations& x, Blocks<R> blocks, int first_row, Store store) {
    const auto* weights = static_cast<const uint8_t*>(w.weights) + static_cast<int64_t>(blocks.first) * kLanes * w.in;
    const int64_t next = static_cast<int64_t>(blocks.stride) * kLanes * w.in;
    const int8_t* inputs = x.int8 + static_cast<int64_t>(first_row) * w.in;
    const int groups = w.in / kGroup;
    __m512 sums[R][M];
    for (auto& row : sums) for (auto& sum : row) sum = _mm512_setzero_ps();
    for (int group = 0; group < groups; ++group) {
        __m512i dots[R][M];
        for (int m = 0; m < M; ++m) {
            const __m512i start = _mm512_set1_epi32(-128 * x.sums[static_cast<int64_t>(first_row + m) * groups + group]);
            for (int r = 0; r < R; ++r) dots[r][m] = start;
        }
        for (int i = group * kGroup; i < (group + 1) * kGroup; i += 4) {
            __m512i b[R];
            for (int r = 0; r < R; ++r) b[r] = _mm512_loadu_si512(weights + r * next + i * kLanes);
            for (int m = 0; m < M; ++m) {
                const __m512i a = _mm512_set1_epi32(load_int32(inputs + static_cast<int64_t>(m) * w.in + i));
                for (int r = 0; r < R; ++r) add_dot(dots[r][m], b[r], a);
            }
        }
        HARNESS_KEEP_IN_MEMORY(sums);
        for (int m = 0; m < M; ++m) {
            const __m512 scale = _mm512_set1_ps(x.scales[static_cast<int64_t>(first_row + m) * groups + group]);
            for (int r = 0; r < R; ++r) sums[r][m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[r][m]), scale, sums[r][m]);
        }
        HARNESS_KEEP_IN_MEMORY(sums);
    }
    for (int r = 0; r < R; ++r) {
        const __m512 scale = _mm512_loadu_ps(static_cast<const float*>(w.scales) + blocks[r] * kLanes);
        const __m512 bias = bias_of(w, blocks[r]);
        for (int m = 0; m < M; ++m) store(blocks[r], first_row + m, _mm512_fmadd_ps(scale, sums[r][m], bias));
    }
}

inline __m512 load_float16(const uint16_t* at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}

// w = scale * nibble + offset, both per group of 32 inputs of an output.
template <int R, int M, class Store>
inline void tile_int4(const Matrix& w, const Activations& x, Blocks<R> blocks, int first_row, Store store) {
    const auto* weights = static_cast<const uint8_t*>(w.weights) + static_cast<int64_t>(blocks.first) * kLanes * w.in / 2;
    const int64_t next = static_cast<int64_t>(blocks.stride) * kLanes * w.in / 2;
    const int8_t* inputs = x.int8 + static_cast<int64_t>(first_row) * w.in;
    const int groups = w.in / kGroup;
    const auto* factors = static_cast<const uint16_t*>(w.scales);
    const __m512i mask = _mm512_set1_epi8(0xf);
    __m512 sums[R][M];
    for (int r = 0; r < R; ++r) for (auto& sum : sums[r]) sum = bias_of(w, blocks[r]);
    for (int group = 0; group < groups; ++group) {
        __m512i dots[R][M];
        for (auto& row : dots) for (auto& dot : row) dot = _mm512_setzero_si512();
        for (int i = group * kGroup; i < (group + 1) * kGroup; i += 8) {
            __m512i both[R];
            for (int r = 0; r < R; ++r) both[r] = _mm512_loadu_si512(weights + r * next + i * kLanes / 2);
            for (const int half : {0, 1}) {
                __m512i b[R];
                for (int r = 0; r < R; ++r) b[r] = _mm512_and_si512(half ? _mm512_srli_epi16(both[r], 4) : both[r], mask);
                for (int m = 0; m < M; ++m) {
                    const __m512i a = _mm512_set1_epi32(load_int32(inputs + static_cast<int64_t>(m) * w.in + i + 4 * half));
                    for (int r = 0; r < R; ++r) dots[r][m] = _mm512_dpbusd_epi32(dots[r][m], b[r], a);
                }
            }
        }
        HARNESS_KEEP_IN_MEMORY(sums);
        for (int r = 0; r < R; ++r) {
            const uint16_t* factor = factors + (static_cast<int64_t>(blocks[r]) * groups + group) * 2 * kLanes;
            const __m512 scale = load_float16(factor), offset = load_float16(factor + kLanes);
            for (int m = 0; m < M; ++m) {
                const int64_t at = static_cast<int64_t>(first_row + m) * groups + group;
                const __m512 dot = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[r][m]), scale, _mm512_mul_ps(offset, _mm512_set1_ps(static_cast<float>(x.sums[at]))));
                sums[r][m] = _mm512_fmadd_ps(dot, _mm512_set1_ps(x.scales[at]), sums[r][m]);
            }
        }
        HARNESS_KEEP_IN_MEMORY(sums);
    }
    for (int r = 0; r < R; ++r) for (int m = 0; m < M; ++m) store(blocks[r], first_row + m, sums[r][m]);
}

template <int R, int M, class Store>
inline void tile(const Matrix& w, const Activations& x, Blocks<R> blocks, int first_row, Store store) {
    if (w.kind == kBfloat16) tile_bfloat16<R, M>(w, x, blocks, first_row, store);
    else if (w.kind == kInt8) tile_int8<R, M>(w, x, blocks, first_row, store);
    else tile_int4<R, M>(w, x, blocks, first_row, store);
}

template <int R, class Store>
inline void tile_rows(const Matrix& w, const Activations& x, Blocks<R> blocks, int first_row, int rows, Store store) {
    int row = first_row, left = rows;
    const auto some = [&](auto count) {
        tile<R, count>(w, x, blocks, row, store);
        row += count;
        left -= count;
    };
    while (left == 4 || left > 6) some(std::integral_constant<int, 4>{});
    if (w.kind != kInt4) {  // has no registers to spare for more rows in one reading of the weights
        if (left == 6) some(std::integral_constant<int, 6>{});
        if (left == 5) some(std::integral_constant<int, 5>{});
    }
    while (left >= 3) some(std::integral_constant<int, 3>{});
    if (left == 2) some(std::integral_constant<int, 2>{});
    if (left == 1) some(std::integral_constant<int, 1>{});
}

// Output blocks `begin` to `end` for all rows; weights are read once per 64 rows. They are read in four streams, each a quarter of
// the blocks: that hides more of the memory's latency than one or two do, and the longer a stream, the better prefetching works.
template <class Store>
void product(const Matrix& w, const Activations& x, int rows, int begin, int end, Store store) {
    const int quarter = (end - begin) / 4, rest = begin + 4 * quarter;
    for (int row = 0; row < rows; row += 64) {
        const int some = rows - row < 64 ? rows - row : 64;
        for (int block = begin; block < begin + quarter; ++block) tile_rows<4>(w, x, {block, quarter}, row, some, store);
        int block = rest;
        for (; block + 2 <= end; block += 2) tile_rows<2>(w, x, {block, 1}, row, some, store);
        for (; block < end; ++block) tile_rows<1>(w, x, {block, 1}, row, some, store);
    }
}

// Asks for the first weights that `product` will read, so that they arrive while the team meets.
inline void expect(const Matrix& w, int begin, int end) {
    constexpr int kAhead = 512;  // bytes of each stream
    const int64_t block = static_cast<int64_t>(kLanes) * w.in * (w.kind == kBfloat16 ? 4 : w.kind == kInt8 ? 2 : 1) / 2;
    for (int stream = 0; stream < 4; ++stream) {
        const char* at = static_cast<const char*>(w.weights) + (begin + static_cast<int64_t>(stream) * ((end - begin) / 4)) * block;
        for (int i = 0; i < kAhead; i += 64) _mm_prefetch(at + i, _MM_HINT_T0);
    }
}

inline int num_blocks(const Matrix& w) { return (w.out + kLanes - 1) / kLanes; }

// Lanes of a block that are outputs.
inline __mmask16 real_lanes(const Matrix& w, int block) {
    const int left = w.out - block * kLanes;
    return left >= kLanes ? 0xffff : static_cast<__mmask16>((1u << left) - 1);
}

}  // namespace harness
