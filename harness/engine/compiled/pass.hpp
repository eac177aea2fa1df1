// The layers of a Llama-family model over a few rows, run by each thread of a team.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "attention.hpp"
#include "matrix.hpp"
#include "team.hpp"

namespace harness {

struct Layer {
    const float* input_norm;  // null for an EAGLE layer
    const float* post_norm;
    const float* query_norm;  // null without per-head norms
    const float* key_norm;
    Matrix qkv;
    Matrix output;
    Matrix gate_up;
    Matrix down;
};

struct Model {
    int32_t hidden;
    int32_t intermediate;
    int32_t heads;
    int32_t kv_heads;
    int32_t head_dim;
    int32_t num_layers;
    float eps;
    int32_t threads;
    const Layer* layers;
    const float* norm;             // null leaves the last norm to the caller
    const uint16_t* embeddings;    // bfloat16 [vocab, hidden]
    const float* rotations;        // [positions, head_dim / 2] pairs of cosine and sine
};

// Room for a row's scores, in whole registers of bfloat16.
inline int scores_of(int longest) { return longest + 2 * kLanes; }

template <class T>
inline void grow(std::vector<T>& buffer, size_t size) {
    if (buffer.size() < size) buffer.resize(size);
}

// A product's inputs, as its matrix wants them.
struct Inputs {
    std::vector<uint16_t> bf16;
    std::vector<int8_t> int8;
    std::vector<float> scales, normed;
    std::vector<int32_t> sums;

    void fit_activations(int rows, int width) {
        grow(bf16, static_cast<size_t>(rows) * width);
        grow(int8, static_cast<size_t>(rows) * width);
        grow(scales, static_cast<size_t>(rows) * width / kGroup);
        grow(sums, static_cast<size_t>(rows) * width / kGroup);
    }

    // Converts columns `begin` to `end` of one row of a product's input.
    void convert(const Matrix& w, const float* x, int row, int begin, int end) {
        const size_t start = static_cast<size_t>(row) * w.in + begin;
        if (w.kind == kBfloat16) row_to_bfloat16(x + begin, end - begin, bf16.data() + start);
        else quantise_row(x + begin, end - begin, int8.data() + start, scales.data() + start / kGroup, sums.data() + start / kGroup);
    }

    Activations activations() const { return {bf16.data(), int8.data(), scales.data(), sums.data()}; }
};

constexpr int kFew = 4;  // rows that each thread prepares for itself rather than wait for another's

// Buffers that grow to the largest forward of the process and stay; the team's common inputs, and each thread's own.
struct Workspace : Inputs {
    std::vector<float> stream, heads, gated, scores, logits;
    std::vector<Inputs> own;

    void fit(const Model& model, int rows, int longest) {
        const int widest = std::max({model.hidden, model.intermediate, model.heads * model.head_dim});
        const size_t all_heads = static_cast<size_t>(model.heads + 2 * model.kv_heads) * model.head_dim;
        grow(stream, static_cast<size_t>(rows) * model.hidden);
        grow(normed, static_cast<size_t>(rows) * widest);
        grow(heads, rows * all_heads);
        grow(gated, static_cast<size_t>(rows) * 2 * model.intermediate);
        grow(scores, static_cast<size_t>(model.threads) * kTogether * scores_of(longest));
        fit_activations(rows, widest);
        grow(own, static_cast<size_t>(model.threads));
        for (Inputs& inputs : own) {
            grow(inputs.normed, static_cast<size_t>(kFew) * model.hidden);
            inputs.fit_activations(kFew, model.hidden);
        }
    }
};

inline Workspace& workspace() {
    static thread_local Workspace space;
    return space;
}

// Stores a block's sums in rows of `width` floats.
struct Writer {
    const Matrix* w;
    float* out;
    int64_t width;

    void operator()(int block, int row, __m512 sums) const {
        _mm512_mask_storeu_ps(out + row * width + block * kLanes, real_lanes(*w, block), sums);
    }
};

class Pass {
  public:
    Pass(const Model& model, const Rows& rows, const LayerCache* caches, CacheShape shape, Workspace& space, const Member& me, int longest)
        : model_(model), rows_(rows), caches_(caches), shape_(shape), space_(space), me_(me), longest_(longest) {}

    void run(const int64_t* tokens, const float* inputs, float* out) {
        embed(tokens, inputs);
        for (int index = 0; index < model_.num_layers; ++index) {
            const Layer& layer = model_.layers[index];
            norm(layer.input_norm, layer.qkv);
            project_heads(layer.qkv);
            mix(layer, caches_[index]);
            add(layer.output, [&] { expect_gate(layer.gate_up); });
            norm(layer.post_norm, layer.gate_up);
            gate(layer);
            add(layer.down, [&] { if (index + 1 < model_.num_layers) expect_share(model_.layers[index + 1].qkv, 2); });
        }
        int begin, end;
        me_.share(rows_.count, 1, begin, end);
        for (int row = begin; row < end; ++row) {
            const float* x = stream(row);
            float* target = out + static_cast<size_t>(row) * model_.hidden;
            if (model_.norm) rms_norm(x, model_.norm, model_.hidden, model_.eps, target);
            else std::copy(x, x + model_.hidden, target);
        }
    }

  private:
    float* stream(int row) const { return space_.stream.data() + static_cast<size_t>(row) * model_.hidden; }
    int head_floats() const { return (model_.heads + 2 * model_.kv_heads) * model_.head_dim; }
    float* head(int row, int index) const {
        return space_.heads.data() + static_cast<size_t>(row) * head_floats() + static_cast<size_t>(index) * model_.head_dim;
    }

    void embed(const int64_t* tokens, const float* inputs) {
        int begin, end;
        me_.share(rows_.count, 1, begin, end);
        for (int row = begin; row < end; ++row) {
            float* x = stream(row);
            if (inputs) std::copy(inputs + static_cast<size_t>(row) * model_.hidden, inputs + static_cast<size_t>(row + 1) * model_.hidden, x);
            else for (int i = 0; i < model_.hidden; ++i) x[i] = from_bfloat16(model_.embeddings[tokens[row] * model_.hidden + i]);
        }
        me_.meet();
    }

    bool few() const { return rows_.count <= kFew; }

    // What `norm` made: each thread's own of a few rows, else the team's.
    Inputs& normed() const { return few() ? space_.own[me_.index] : space_; }

    void norm(const float* weight, const Matrix& next) {
        Inputs& inputs = normed();
        int begin = 0, end = rows_.count;
        if (!few()) me_.share(rows_.count, 1, begin, end);
        for (int row = begin; row < end; ++row) {
            float* x = inputs.normed.data() + static_cast<size_t>(row) * model_.hidden;
            if (weight) rms_norm(stream(row), weight, model_.hidden, model_.eps, x);
            inputs.convert(next, weight ? x : stream(row), row, 0, model_.hidden);
        }
        if (!few()) me_.meet();
    }

    void project_heads(const Matrix& w) {
        int begin, end;
        me_.share(num_blocks(w), 2, begin, end);
        product(w, normed().activations(), rows_.count, begin, end, Writer{&w, space_.heads.data(), w.out});
        me_.meet();
    }

    // Store every new key and value first: a row may see any row before it.
    void mix(const Layer& layer, const LayerCache& cache) {
        const int group = model_.heads / model_.kv_heads, units = rows_.count * group;
        int begin, end;
        if (!few()) {
            me_.share(rows_.count * model_.kv_heads, 1, begin, end);
            for (int unit = begin; unit < end; ++unit) store(layer, cache, unit / model_.kv_heads, unit % model_.kv_heads);
            me_.meet();
        }
        // head by head and not row by row: keys and values come from memory, and each thread should read its own
        me_.share(rows_.count * model_.heads, 1, begin, end);
        // of a few rows each thread stores what it will see; two that share a head write the same
        if (few()) {
            for (int unit = begin / units * units; unit < end; unit += group) store(layer, cache, unit % units / group, unit / units);
        }
        while (begin < end) {
            const int kv_head = begin / units, sequence = rows_.sequence[begin % units / group];
            int after = begin + 1;
            while (after < end && after < begin + kTogether && after / units == kv_head && rows_.sequence[after % units / group] == sequence) ++after;
            attend_together(layer, cache, kv_head, begin % units, begin % units + after - begin);
            begin = after;
        }
        expect_share(layer.output, 1);
        me_.meet();
    }

    // Units `begin` to `end`, each a row and one of its query heads, of one key-value head and one sequence.
    void attend_together(const Layer& layer, const LayerCache& cache, int kv_head, int begin, int end) {
        const int size = model_.head_dim, group = model_.heads / model_.kv_heads;
        Query queries[kTogether];
        View views[kTogether];
        uint16_t rounded[kTogether][kMostHeadDim];
        float* scores = space_.scores.data() + static_cast<size_t>(me_.index) * kTogether * scores_of(longest_);
        const auto mixed = [&](int unit) { return space_.normed.data() + (static_cast<size_t>(unit / group) * model_.heads + kv_head * group + unit % group) * size; };
        for (int unit = begin; unit < end; ++unit) {
            const int n = unit - begin, row = unit / group;
            const bool known = n > 0 && unit % group > 0;
            if (!known) look(rows_, row, views[n]);
            float* query = head(row, kv_head * group + unit % group);
            if (layer.query_norm) rms_norm(query, layer.query_norm, size, model_.eps, query);
            rotate(query, model_.rotations + static_cast<size_t>(rows_.position[row]) * size, size);
            row_to_bfloat16(query, size, rounded[n]);
            queries[n] = {known ? queries[n - 1].view : &views[n], rounded[n], scores + static_cast<size_t>(n) * scores_of(longest_), mixed(unit)};
        }
        const int64_t place = rows_.sequence[begin / group] * shape_.batch_stride + kv_head * shape_.head_stride;
        attend(queries, end - begin, cache.keys + place, cache.values + place, size);
        for (int unit = begin; unit < end; ++unit) {
            const int start = (kv_head * group + unit % group) * size;
            space_.convert(layer.output, mixed(unit) - start, unit / group, start, start + size);
        }
    }

    void store(const Layer& layer, const LayerCache& cache, int row, int kv_head) {
        const int size = model_.head_dim;
        alignas(64) float key[kMostHeadDim];
        const float* projected = head(row, model_.heads + kv_head);
        const float* value = head(row, model_.heads + model_.kv_heads + kv_head);
        if (layer.key_norm) rms_norm(projected, layer.key_norm, size, model_.eps, key);
        else std::copy(projected, projected + size, key);
        rotate(key, model_.rotations + static_cast<size_t>(rows_.position[row]) * size, size);
        const int64_t place = rows_.sequence[row] * shape_.batch_stride + kv_head * shape_.head_stride + static_cast<int64_t>(rows_.slot[row]) * size;
        row_to_bfloat16(key, size, cache.keys + place);
        row_to_bfloat16(value, size, cache.values + place);
    }

    void expect_share(const Matrix& w, int step) const {
        int begin, end;
        me_.share(num_blocks(w), step, begin, end);
        expect(w, begin, end);
    }

    void expect_gate(const Matrix& w) const {
        int begin, end;
        me_.share(model_.intermediate, 2 * kGroup, begin, end);
        expect(w, begin / kLanes, end / kLanes);
    }

    template <class Before>
    void add(const Matrix& w, Before before_meeting) {
        int begin, end;
        me_.share(num_blocks(w), 1, begin, end);
        float* x = space_.stream.data();
        product(w, space_.activations(), rows_.count, begin, end, [&w, x](int block, int row, __m512 sums) {
            float* at = x + static_cast<int64_t>(row) * w.out + block * kLanes;
            const __mmask16 real = real_lanes(w, block);
            _mm512_mask_storeu_ps(at, real, _mm512_add_ps(_mm512_maskz_loadu_ps(real, at), sums));
        });
        before_meeting();
        me_.meet();
    }

    void gate(const Layer& layer) {
        const int size = model_.intermediate;
        int begin, end;
        me_.share(size, 2 * kGroup, begin, end);
        float* gated = space_.gated.data();
        const int64_t width = 2 * size;
        const Writer write{&layer.gate_up, gated, width};
        product(layer.gate_up, normed().activations(), rows_.count, begin / kLanes, end / kLanes, write);
        product(layer.gate_up, normed().activations(), rows_.count, (size + begin) / kLanes, (size + end) / kLanes, write);
        // common inputs are read to the end by all before the outputs take their place
        if (!few()) me_.meet();
        for (int row = 0; row < rows_.count; ++row) {
            float* gates = gated + row * width;
            for (int i = begin; i < end; i += kLanes) {
                const __m512 x = _mm512_loadu_ps(gates + i), up = _mm512_loadu_ps(gates + size + i);
                const __m512 small = exponential(_mm512_sub_ps(_mm512_setzero_ps(), _mm512_abs_ps(x)));
                const __m512 one = _mm512_set1_ps(1.0f);
                const __mmask16 negative = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
                const __m512 sigmoid = _mm512_div_ps(_mm512_mask_mov_ps(one, negative, small), _mm512_add_ps(one, small));
                _mm512_storeu_ps(gates + i, _mm512_mul_ps(_mm512_mul_ps(x, sigmoid), up));
            }
            space_.convert(layer.down, gates, row, begin, end);
        }
        expect_share(layer.down, 1);
        me_.meet();
    }

    const Model& model_;
    const Rows& rows_;
    const LayerCache* caches_;
    const CacheShape shape_;
    Workspace& space_;
    const Member me_;
    const int longest_;
};

}  // namespace harness
