// Rotary positions and attention of new rows over cached keys and values in float32.
#pragma once

#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "matrix.hpp"

namespace harness {

// Keys and values of one layer: [batch, kv_heads, capacity, head_dim] float32.
struct LayerCache {
    float* keys;
    float* values;
};

struct CacheShape {
    int64_t batch_stride;  // in floats
    int64_t head_stride;
};

// What one forward computes. Row m of sequence `sequence[m]` is stored at cache row `slot[m]` and sees the cache rows below
// `committed[m]`, and of those at and past it either all up to its own, or those whose bit is set in `tree[m]`.
struct Rows {
    int32_t count;
    int32_t unused;
    const int32_t* sequence;
    const int32_t* position;
    const int32_t* slot;
    const int32_t* committed;
    const uint64_t* tree;  // null for chains
};

inline void rms_norm(const float* x, const float* weight, int size, float eps, float* out) {
    __m512 squares = _mm512_setzero_ps();
    for (int i = 0; i < size; i += kLanes) {
        const __m512 value = _mm512_loadu_ps(x + i);
        squares = _mm512_fmadd_ps(value, value, squares);
    }
    const __m512 scale = _mm512_set1_ps(1.0f / std::sqrt(_mm512_reduce_add_ps(squares) / size + eps));
    for (int i = 0; i < size; i += kLanes) {
        _mm512_storeu_ps(out + i, _mm512_mul_ps(_mm512_mul_ps(_mm512_loadu_ps(x + i), scale), _mm512_loadu_ps(weight + i)));
    }
}

// Rotates pairs of neighbours by (cos, sin) pairs.
inline void rotate(float* head, const float* rotations, int head_dim) {
    for (int i = 0; i < head_dim; i += kLanes) {
        const __m512 x = _mm512_loadu_ps(head + i), turn = _mm512_loadu_ps(rotations + i);
        const __m512 swapped = _mm512_permute_ps(x, 0xb1);
        _mm512_storeu_ps(head + i, _mm512_fmaddsub_ps(x, _mm512_moveldup_ps(turn), _mm512_mul_ps(swapped, _mm512_movehdup_ps(turn))));
    }
}

// e^x to about two units in the last place for x <= 0: 2^n times a polynomial on the rest.
inline __m512 exponential(__m512 x) {
    x = _mm512_max_ps(x, _mm512_set1_ps(-87.0f));
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
    __m512 rest = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    rest = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), rest);
    __m512 value = _mm512_set1_ps(1.0f / 720);
    for (const float term : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) value = _mm512_fmadd_ps(value, rest, _mm512_set1_ps(term));
    return _mm512_scalef_ps(value, n);
}

// The cache rows that row m sees, in order.
inline int visible_rows(const Rows& rows, int m, int32_t* out) {
    const int committed = rows.committed[m], slot = rows.slot[m];
    int count = 0;
    for (; count < committed; ++count) out[count] = count;
    for (int row = committed; row <= slot; ++row) {
        if (!rows.tree || (rows.tree[m] >> (row - committed) & 1)) out[count++] = row;
    }
    return count;
}

// Lane i of the result is the sum over the lanes of part i.
inline __m512 sum_each(__m512 (&parts)[kLanes]) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) parts[i] = _mm512_add_ps(_mm512_unpacklo_ps(parts[2 * i], parts[2 * i + 1]), _mm512_unpackhi_ps(parts[2 * i], parts[2 * i + 1]));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) parts[i] = _mm512_add_ps(_mm512_shuffle_ps(parts[2 * i], parts[2 * i + 1], 0x44), _mm512_shuffle_ps(parts[2 * i], parts[2 * i + 1], 0xee));
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) parts[i] = _mm512_add_ps(_mm512_shuffle_f32x4(parts[2 * i], parts[2 * i + 1], 0x88), _mm512_shuffle_f32x4(parts[2 * i], parts[2 * i + 1], 0xdd));
    return _mm512_add_ps(_mm512_shuffle_f32x4(parts[0], parts[1], 0x88), _mm512_shuffle_f32x4(parts[0], parts[1], 0xdd));
}

inline __mmask16 real_keys(int left) {
    return left >= kLanes ? 0xffff : static_cast<__mmask16>((1u << left) - 1);
}

// Scores of one query against all keys that are seen, scaled; past the end minus infinity. C registers hold a head.
template <int C>
inline void score(const float* query, const float* keys, const int32_t* seen, int count, float* scores) {
    const __m512 scale = _mm512_set1_ps(1.0f / std::sqrt(static_cast<float>(C * kLanes)));
    __m512 q[C];
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) q[c] = _mm512_loadu_ps(query + c * kLanes);
    for (int first = 0; first < count; first += kLanes) {
        __m512 dots[kLanes];
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
            // past the end the last key stands in; its score is masked
            const float* key = keys + static_cast<int64_t>(seen[first + i < count ? first + i : count - 1]) * C * kLanes;
            dots[i] = _mm512_mul_ps(q[0], _mm512_loadu_ps(key));
#pragma GCC unroll 16
            for (int c = 1; c < C; ++c) dots[i] = _mm512_fmadd_ps(q[c], _mm512_loadu_ps(key + c * kLanes), dots[i]);
        }
        _mm512_storeu_ps(scores + first, _mm512_mask_mul_ps(_mm512_set1_ps(-INFINITY), real_keys(count - first), sum_each(dots), scale));
    }
}

// Scores become weights that sum to the number whose inverse is returned.
inline float exponentiate(float* scores, int count) {
    __m512 largest = _mm512_set1_ps(-INFINITY);
    for (int i = 0; i < count; i += kLanes) largest = _mm512_max_ps(largest, _mm512_loadu_ps(scores + i));
    const __m512 top = _mm512_set1_ps(_mm512_reduce_max_ps(largest));
    __m512 total = _mm512_setzero_ps();
    for (int i = 0; i < count; i += kLanes) {
        const __m512 weight = _mm512_maskz_mov_ps(real_keys(count - i), exponential(_mm512_sub_ps(_mm512_loadu_ps(scores + i), top)));
        _mm512_storeu_ps(scores + i, weight);
        total = _mm512_add_ps(total, weight);
    }
    return 1.0f / _mm512_reduce_add_ps(total);
}

template <int C>
inline void blend(const float* values, const int32_t* seen, int count, const float* weights, float inverse, float* out) {
    __m512 sums[C];
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) sums[c] = _mm512_setzero_ps();
    for (int i = 0; i < count; ++i) {
        const float* value = values + static_cast<int64_t>(seen[i]) * C * kLanes;
        const __m512 weight = _mm512_set1_ps(weights[i]);
#pragma GCC unroll 16
        for (int c = 0; c < C; ++c) sums[c] = _mm512_fmadd_ps(weight, _mm512_loadu_ps(value + c * kLanes), sums[c]);
    }
    const __m512 factor = _mm512_set1_ps(inverse);
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) _mm512_storeu_ps(out + c * kLanes, _mm512_mul_ps(sums[c], factor));
}

template <int C>
inline void attend_sized(const float* query, const float* keys, const float* values, const int32_t* seen, int count, float* scores, float* out) {
    score<C>(query, keys, seen, count, scores);
    const float inverse = exponentiate(scores, count);
    blend<C>(values, seen, count, scores, inverse, out);
}

// One query head of one row; `scores` holds `count` rounded up to 16.
inline void attend(const float* query, const float* keys, const float* values, const int32_t* seen, int count, int head_dim,
                   float* scores, float* out) {
    switch (head_dim / kLanes) {
        case 2: return attend_sized<2>(query, keys, values, seen, count, scores, out);
        case 4: return attend_sized<4>(query, keys, values, seen, count, scores, out);
        case 6: return attend_sized<6>(query, keys, values, seen, count, scores, out);
        case 8: return attend_sized<8>(query, keys, values, seen, count, scores, out);
        default: return attend_sized<16>(query, keys, values, seen, count, scores, out);
    }
}

}  // namespace harness
