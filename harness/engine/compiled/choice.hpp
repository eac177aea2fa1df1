// Choose a token from logits.
#pragma once

#include <immintrin.h>

#include <cmath>
#include <cstdint>

#include "attention.hpp"

namespace harness {

inline __m512 load_or(const float* at, int left, float otherwise) {
    return _mm512_mask_loadu_ps(_mm512_set1_ps(otherwise), real_keys(left), at);
}

inline float largest_of(const float* logits, int count) {
    __m512 largest = _mm512_set1_ps(-INFINITY);
    for (int i = 0; i < count; i += kLanes) largest = _mm512_max_ps(largest, load_or(logits + i, count - i, -INFINITY));
    return _mm512_reduce_max_ps(largest);
}

// Index of the largest, the first of equals.
inline int likeliest(const float* logits, int count) {
    const __m512 top = _mm512_set1_ps(largest_of(logits, count));
    for (int i = 0; i < count; i += kLanes) {
        const __mmask16 equal = _mm512_cmp_ps_mask(load_or(logits + i, count - i, -INFINITY), top, _CMP_EQ_OQ) & real_keys(count - i);
        if (equal) return i + __builtin_ctz(equal);
    }
    return 0;
}

// The sum of e^((logit - the largest) / temperature); `each(index, real lanes, weights)` takes the summands.
template <class Each>
inline float sum_weights(const float* logits, int count, float temperature, Each each) {
    const __m512 divisor = _mm512_set1_ps(temperature);
    const __m512 top = _mm512_div_ps(_mm512_set1_ps(largest_of(logits, count)), divisor);
    __m512 total = _mm512_setzero_ps();
    for (int i = 0; i < count; i += kLanes) {
        const __m512 scaled = _mm512_div_ps(load_or(logits + i, count - i, -INFINITY), divisor);
        const __m512 weight = _mm512_maskz_mov_ps(real_keys(count - i), exponential(_mm512_sub_ps(scaled, top)));
        each(i, real_keys(count - i), weight);
        total = _mm512_add_ps(total, weight);
    }
    return _mm512_reduce_add_ps(total);
}

// probs = softmax(logits / temperature).
inline void soften(const float* logits, int count, float temperature, float* probs) {
    const float total = sum_weights(logits, count, temperature, [&](int i, __mmask16 real, __m512 weight) { _mm512_mask_storeu_ps(probs + i, real, weight); });
    const __m512 inverse = _mm512_set1_ps(1.0f / total);
    for (int i = 0; i < count; i += kLanes) {
        const __mmask16 real = real_keys(count - i);
        _mm512_mask_storeu_ps(probs + i, real, _mm512_mul_ps(_mm512_maskz_loadu_ps(real, probs + i), inverse));
    }
}

// The largest of softmax(logits / temperature).
inline float highest_probability(const float* logits, int count, float temperature) {
    return 1.0f / sum_weights(logits, count, temperature, [](int, __mmask16, __m512) {});
}

// The index whose share of the running sum, in double, holds `uniform` in [0, 1); never one of weight 0.
inline int draw(const float* weights, int count, double uniform) {
    double total = 0;
    for (int i = 0; i < count; ++i) total += weights[i];
    const double sought = uniform * total;
    double sum = 0;
    int last = 0;
    for (int i = 0; i < count; ++i) {
        sum += weights[i];
        if (weights[i] > 0) {
            last = i;
            if (sum > sought) return i;
        }
    }
    return last;
}

}  // namespace harness
