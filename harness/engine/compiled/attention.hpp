// Rotary positions and attention of new rows over cached keys and values in float32.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "matrix.hpp"

namespace harness {

constexpr int kTogether = 12;  // queries that read keys and values together

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

// The cache rows that a row sees, in order: all below `straight`, then those listed.
struct View {
    int count;
    int straight;
    int32_t listed[64];  // as many as a tree has nodes

    int operator[](int i) const { return i < straight ? i : listed[i - straight]; }
};

inline void look(const Rows& rows, int m, View& view) {
    const int committed = rows.committed[m], slot = rows.slot[m];
    view.count = view.straight = rows.tree ? committed : slot + 1;
    for (int row = view.straight; row <= slot; ++row) {
        if (rows.tree[m] >> (row - committed) & 1) view.listed[view.count++ - committed] = row;
    }
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

// Scores of one query against keys `first` to `end` of those that are seen, scaled; past the last of all minus infinity. C registers
// hold a head, `first` is a multiple of 16.
template <int C>
inline void score(const float* query, const float* keys, const View& view, int first, int end, float* scores) {
    const __m512 scale = _mm512_set1_ps(1.0f / std::sqrt(static_cast<float>(C * kLanes)));
    __m512 q[C];
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) q[c] = _mm512_loadu_ps(query + c * kLanes);
    for (; first < end; first += kLanes) {
        __m512 dots[kLanes];
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
            // past the end the last key stands in; its score is masked
            const float* key = keys + static_cast<int64_t>(view[first + i < view.count ? first + i : view.count - 1]) * C * kLanes;
            dots[i] = _mm512_mul_ps(q[0], _mm512_loadu_ps(key));
#pragma GCC unroll 16
            for (int c = 1; c < C; ++c) dots[i] = _mm512_fmadd_ps(q[c], _mm512_loadu_ps(key + c * kLanes), dots[i]);
        }
        _mm512_storeu_ps(scores + first, _mm512_mask_mul_ps(_mm512_set1_ps(-INFINITY), real_keys(view.count - first), sum_each(dots), scale));
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

// Adds values `first` to `end` of those that are seen, weighted, to `out`.
template <int C>
inline void blend(const float* values, const View& view, int first, int end, const float* weights, float* out) {
    __m512 sums[C];
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) sums[c] = _mm512_loadu_ps(out + c * kLanes);
    for (int i = first; i < end; ++i) {
        const float* value = values + static_cast<int64_t>(view[i]) * C * kLanes;
        const __m512 weight = _mm512_set1_ps(weights[i]);
#pragma GCC unroll 16
        for (int c = 0; c < C; ++c) sums[c] = _mm512_fmadd_ps(weight, _mm512_loadu_ps(value + c * kLanes), sums[c]);
    }
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) _mm512_storeu_ps(out + c * kLanes, sums[c]);
}

inline void multiply(float* x, float factor, int size) {
    for (int i = 0; i < size; i += kLanes) _mm512_storeu_ps(x + i, _mm512_mul_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(factor)));
}

// One query head of one row.
struct Query {
    const View* view;
    const float* query;
    float* scores;  // as many as the row sees, rounded up to 16
    float* out;
};

// Queries that share keys and values take them block by block, so that each block comes from memory once.
template <int C>
inline void attend_sized(const Query* queries, int num_queries, const float* keys, const float* values) {
    constexpr int kBlock = 64;
    int longest = 0;
    for (int n = 0; n < num_queries; ++n) longest = std::max(longest, queries[n].view->count);
    const auto each_block = [&](auto work) {
        for (int first = 0; first < longest; first += kBlock) {
            for (int n = 0; n < num_queries; ++n) work(queries[n], first, std::min(first + kBlock, queries[n].view->count));
        }
    };
    each_block([&](const Query& q, int first, int end) { score<C>(q.query, keys, *q.view, first, end, q.scores); });
    float inverses[kTogether];
    for (int n = 0; n < num_queries; ++n) {
        inverses[n] = exponentiate(queries[n].scores, queries[n].view->count);
        std::fill(queries[n].out, queries[n].out + C * kLanes, 0.0f);
    }
    each_block([&](const Query& q, int first, int end) { blend<C>(values, *q.view, first, end, q.scores, q.out); });
    for (int n = 0; n < num_queries; ++n) multiply(queries[n].out, inverses[n], C * kLanes);
}

// At most `kTogether` queries over the keys and values of one head of one sequence.
inline void attend(const Query* queries, int num_queries, const float* keys, const float* values, int head_dim) {
    switch (head_dim / kLanes) {
        case 2: return attend_sized<2>(queries, num_queries, keys, values);
        case 4: return attend_sized<4>(queries, num_queries, keys, values);
        case 6: return attend_sized<6>(queries, num_queries, keys, values);
        case 8: return attend_sized<8>(queries, num_queries, keys, values);
        default: return attend_sized<16>(queries, num_queries, keys, values);
    }
}

}  // namespace harness
