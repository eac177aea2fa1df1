// Rotary positions and attention of new rows over cached keys and values in bfloat16.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "matrix.hpp"

namespace harness {

constexpr int kTogether = 12;       // queries that read keys and values together
constexpr int kMostHeadDim = 256;

// Keys and values of one layer: [batch, kv_heads, capacity, head_dim] bfloat16.
struct LayerCache {
    uint16_t* keys;
    uint16_t* values;
};

struct CacheShape {
    int64_t batch_stride;  // in numbers
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
    if (left >= kLanes) return 0xffff;
    return left <= 0 ? 0 : static_cast<__mmask16>((1u << left) - 1);
}

// Scores of one query against keys `first` to `end` of those that are seen, scaled; past the last of all minus infinity. P registers
// hold a head, `first` is a multiple of 16.
template <int P>
inline void score(const uint16_t* query, const uint16_t* keys, const View& view, int first, int end, float* scores) {
    constexpr int kSize = 2 * P * kLanes;
    const __m512 scale = _mm512_set1_ps(1.0f / std::sqrt(static_cast<float>(kSize)));
    __m512bh q[P];
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) q[p] = (__m512bh)_mm512_loadu_si512(query + 2 * p * kLanes);
    for (; first < end; first += kLanes) {
        __m512 dots[kLanes];
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
            // past the end the last key stands in; its score is masked
            const uint16_t* key = keys + static_cast<int64_t>(view[first + i < view.count ? first + i : view.count - 1]) * kSize;
            dots[i] = _mm512_setzero_ps();
#pragma GCC unroll 8
            for (int p = 0; p < P; ++p) dots[i] = _mm512_dpbf16_ps(dots[i], q[p], (__m512bh)_mm512_loadu_si512(key + 2 * p * kLanes));
        }
        _mm512_storeu_ps(scores + first, _mm512_mask_mul_ps(_mm512_set1_ps(-INFINITY), real_keys(view.count - first), sum_each(dots), scale));
    }
}

// Scores become weights in bfloat16 in the same memory, zeros up to the next 32; they sum to the number whose inverse is returned.
inline float exponentiate(float* scores, int count) {
    __m512 largest = _mm512_set1_ps(-INFINITY);
    for (int i = 0; i < count; i += kLanes) largest = _mm512_max_ps(largest, _mm512_loadu_ps(scores + i));
    const __m512 top = _mm512_set1_ps(_mm512_reduce_max_ps(largest));
    const auto weigh = [&](int i) {
        return _mm512_maskz_mov_ps(real_keys(count - i), exponential(_mm512_sub_ps(_mm512_maskz_loadu_ps(real_keys(count - i), scores + i), top)));
    };
    auto* weights = reinterpret_cast<uint16_t*>(scores);
    __m512 total = _mm512_setzero_ps();
    for (int i = 0; i < count; i += 2 * kLanes) {
        const __m512 low = weigh(i), high = weigh(i + kLanes);
        total = _mm512_add_ps(_mm512_add_ps(total, low), high);
        _mm512_storeu_si512(weights + i, round_to_bfloat16(low, high));
    }
    return 1.0f / _mm512_reduce_add_ps(total);
}

// Adds values `first`, an even number, to `end` of those that are seen, weighted, to `sums`: two values at once, so that the lanes of
// each pair of registers are their numbers in the order of `straighten`.
template <int P>
inline void blend(const uint16_t* values, const View& view, int first, int end, const uint16_t* weights, float* out) {
    constexpr int kSize = 2 * P * kLanes;
    __m512 sums[2 * P];
#pragma GCC unroll 16
    for (int c = 0; c < 2 * P; ++c) sums[c] = _mm512_loadu_ps(out + c * kLanes);
    for (int i = first; i < end; i += 2) {
        // an odd one out is paired with itself, at a weight of 0
        const uint16_t* one = values + static_cast<int64_t>(view[i]) * kSize;
        const uint16_t* other = values + static_cast<int64_t>(view[i + 1 < view.count ? i + 1 : i]) * kSize;
        const auto weight = (__m512bh)_mm512_set1_epi32(load_int32(weights + i));
#pragma GCC unroll 8
        for (int p = 0; p < P; ++p) {
            const __m512i a = _mm512_loadu_si512(one + 2 * p * kLanes), b = _mm512_loadu_si512(other + 2 * p * kLanes);
            sums[2 * p] = _mm512_dpbf16_ps(sums[2 * p], (__m512bh)_mm512_unpacklo_epi16(a, b), weight);
            sums[2 * p + 1] = _mm512_dpbf16_ps(sums[2 * p + 1], (__m512bh)_mm512_unpackhi_epi16(a, b), weight);
        }
    }
#pragma GCC unroll 16
    for (int c = 0; c < 2 * P; ++c) _mm512_storeu_ps(out + c * kLanes, sums[c]);
}

// Brings what `blend` made into the order of the head's numbers, and multiplies it. Its first register holds numbers 0 to 3, 8 to 11,
// 16 to 19 and 24 to 27 of 32, its second one the others.
inline void straighten(float* x, float factor, int size) {
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i second = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    const __m512 by = _mm512_set1_ps(factor);
    for (int i = 0; i < size; i += 2 * kLanes) {
        const __m512 low = _mm512_loadu_ps(x + i), high = _mm512_loadu_ps(x + i + kLanes);
        _mm512_storeu_ps(x + i, _mm512_mul_ps(_mm512_permutex2var_ps(low, first, high), by));
        _mm512_storeu_ps(x + i + kLanes, _mm512_mul_ps(_mm512_permutex2var_ps(low, second, high), by));
    }
}

// One query head of one row.
struct Query {
    const View* view;
    const uint16_t* query;  // bfloat16
    float* scores;          // as many as the row sees, rounded up to 32
    float* out;
};

// Queries that share keys and values take them block by block, so that each block comes from memory once.
template <int P>
inline void attend_sized(const Query* queries, int num_queries, const uint16_t* keys, const uint16_t* values) {
    constexpr int kBlock = 64, kSize = 2 * P * kLanes;
    int longest = 0;
    for (int n = 0; n < num_queries; ++n) longest = std::max(longest, queries[n].view->count);
    const auto each_block = [&](auto work) {
        for (int first = 0; first < longest; first += kBlock) {
            for (int n = 0; n < num_queries; ++n) work(queries[n], first, std::min(first + kBlock, queries[n].view->count));
        }
    };
    each_block([&](const Query& q, int first, int end) { score<P>(q.query, keys, *q.view, first, end, q.scores); });
    float inverses[kTogether];
    for (int n = 0; n < num_queries; ++n) {
        inverses[n] = exponentiate(queries[n].scores, queries[n].view->count);
        std::fill(queries[n].out, queries[n].out + kSize, 0.0f);
    }
    each_block([&](const Query& q, int first, int end) {
        blend<P>(values, *q.view, first, end, reinterpret_cast<const uint16_t*>(q.scores), q.out);
    });
    for (int n = 0; n < num_queries; ++n) straighten(queries[n].out, inverses[n], kSize);
}

// At most `kTogether` queries over the keys and values of one head of one sequence.
inline void attend(const Query* queries, int num_queries, const uint16_t* keys, const uint16_t* values, int head_dim) {
    switch (head_dim / (2 * kLanes)) {
        case 1: return attend_sized<1>(queries, num_queries, keys, values);
        case 2: return attend_sized<2>(queries, num_queries, keys, values);
        case 3: return attend_sized<3>(queries, num_queries, keys, values);
        case 4: return attend_sized<4>(queries, num_queries, keys, values);
        default: return attend_sized<8>(queries, num_queries, keys, values);
    }
}

}  // namespace harness
