// Chains of drafted tokens in one call: read what was committed, then feed each drafted token back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "choice.hpp"
#include "pass.hpp"
#include "rows.hpp"

namespace harness {

struct Drafter {
    const Model* model;
    const Matrix* head;
    const Matrix* fuse;    // null for a model that reads tokens alone; else maps [embedding ; hidden state] to the layer's input
    const int64_t* vocab;  // target ids of the head's outputs; null where they're the same
};

struct Chains {
    const int64_t* tokens;   // [all new tokens] committed since the last call
    const float* hidden;     // [all new tokens, hidden] the target's, with `fuse` alone
    const int32_t* limits;   // [batch] tokens to draft
    int32_t longest;         // of `limits`
    float temperature;       // 0 takes the likeliest
    const double* uniform;   // [batch, longest] in [0, 1); null takes the likeliest
    int64_t* drafted;        // [batch, longest]
    float* probs;            // [batch, longest, head.out] what was drawn from; null with the likeliest
};

// One forward of the drafter: level 0 reads committed tokens, level j the j-th drafted ones.
struct Level {
    RowTable table;
    std::vector<int32_t> sequences;  // that draft a token from it
    std::vector<int32_t> last;       // row of each of them
};

inline std::vector<Level> levels_of(const Batch& fed, const Chains& chains) {
    std::vector<Level> levels(1);
    levels[0].table = RowTable(fed);
    for (int s = 0, row = 0; s < fed.size; ++s) {
        row += fed.counts[s];
        if (chains.limits[s] == 0) continue;
        levels[0].sequences.push_back(s);
        levels[0].last.push_back(row - 1);
    }
    for (int j = 1; j < chains.longest; ++j) {
        Level level;
        for (int s = 0; s < fed.size; ++s) {
            if (chains.limits[s] <= j) continue;
            const int slot = fed.lengths[s] + fed.counts[s] + j - 1;
            level.last.push_back(level.table.count());
            level.sequences.push_back(s);
            level.table.add(s, slot, slot);
        }
        levels.push_back(std::move(level));
    }
    return levels;
}

// Memory of a call that isn't the layers' own.
struct DraftSpace {
    std::vector<float> pairs, inputs, states, before;
    std::vector<int64_t> tokens;
};

class ChainDraft {
  public:
    ChainDraft(const Drafter& drafter, const Chains& chains, const LayerCache* caches, CacheShape shape, Workspace& space, DraftSpace& own, const Member& me)
        : drafter_(drafter), chains_(chains), caches_(caches), shape_(shape), space_(space), own_(own), me_(me), size_(drafter.model->hidden) {}

    void run(const std::vector<Level>& levels) {
        const int64_t* tokens = chains_.tokens;
        const float* hidden = chains_.hidden;
        for (size_t j = 0; j < levels.size(); ++j) {
            const Level& level = levels[j];
            const Rows rows = level.table.rows();
            if (drafter_.fuse) fuse(rows.count, tokens, hidden);
            Pass(*drafter_.model, rows, caches_, shape_, space_, me_, level.table.longest()).run(tokens, drafter_.fuse ? own_.inputs.data() : nullptr, own_.states.data());
            me_.meet();
            choose(level, static_cast<int>(j), j + 1 < levels.size() ? &levels[j + 1] : nullptr);
            tokens = own_.tokens.data();
            hidden = own_.before.data();
        }
    }

  private:
    void fuse(int count, const int64_t* tokens, const float* hidden) {
        int begin, end;
        me_.share(count, 1, begin, end);
        for (int row = begin; row < end; ++row) {
            float* pair = own_.pairs.data() + static_cast<size_t>(row) * 2 * size_;
            const uint16_t* embedding = drafter_.model->embeddings + tokens[row] * size_;
            for (int i = 0; i < size_; ++i) pair[i] = from_bfloat16(embedding[i]);
            for (int i = 0; i < size_; ++i) pair[size_ + i] = from_bfloat16(to_bfloat16(hidden[static_cast<size_t>(row) * size_ + i]));
            space_.convert(*drafter_.fuse, pair, row, 0, 2 * size_);
        }
        me_.meet();
        me_.share(num_blocks(*drafter_.fuse), 1, begin, end);
        product(*drafter_.fuse, space_.activations(), count, begin, end, Writer{drafter_.fuse, own_.inputs.data(), size_});
        me_.meet();
    }

    // One token for each open sequence, and what the next level starts from.
    void choose(const Level& level, int depth, const Level* next) {
        const int open = static_cast<int>(level.sequences.size());
        const Matrix& head = *drafter_.head;
        int begin, end;
        me_.share(open, 1, begin, end);
        for (int i = begin; i < end; ++i) space_.convert(head, state(level.last[i]), i, 0, size_);
        me_.meet();
        me_.share(num_blocks(head), 2, begin, end);
        product(head, space_.activations(), open, begin, end, Writer{&head, space_.logits.data(), head.out});
        me_.meet();
        me_.share(open, 1, begin, end);
        for (int i = begin; i < end; ++i) {
            const int s = level.sequences[i];
            const int64_t token = chosen(space_.logits.data() + static_cast<size_t>(i) * head.out, static_cast<int64_t>(s) * chains_.longest + depth);
            if (!next) continue;
            const auto at = std::lower_bound(next->sequences.begin(), next->sequences.end(), s);
            if (at == next->sequences.end() || *at != s) continue;
            const size_t row = at - next->sequences.begin();
            own_.tokens[row] = token;
            std::copy(state(level.last[i]), state(level.last[i]) + size_, own_.before.data() + row * size_);
        }
        me_.meet();
    }

    int64_t chosen(const float* logits, int64_t place) {
        const int size = drafter_.head->out;
        int column;
        if (chains_.uniform) {
            float* probs = chains_.probs + place * size;
            soften(logits, size, chains_.temperature, probs);
            column = draw(probs, size, chains_.uniform[place]);
        } else column = likeliest(logits, size);
        return chains_.drafted[place] = drafter_.vocab ? drafter_.vocab[column] : column;
    }

    const float* state(int row) const { return own_.states.data() + static_cast<size_t>(row) * size_; }

    const Drafter& drafter_;
    const Chains& chains_;
    const LayerCache* caches_;
    const CacheShape shape_;
    Workspace& space_;
    DraftSpace& own_;
    const Member me_;
    const int size_;
};

inline void draft_chains(const Drafter& drafter, const Batch& fed, const Chains& chains, const LayerCache* caches, CacheShape shape) {
    static thread_local DraftSpace kept;
    DraftSpace& own = kept;  // the whole team uses the caller's
    const std::vector<Level> levels = levels_of(fed, chains);
    int rows = 0, longest = 0;
    for (const Level& level : levels) {
        rows = std::max(rows, level.table.count());
        longest = std::max(longest, level.table.longest());
    }
    const size_t hidden = static_cast<size_t>(rows) * drafter.model->hidden;
    Workspace& space = workspace();
    space.fit(*drafter.model, rows, longest);
    if (drafter.fuse) {
        space.fit_activations(rows, drafter.fuse->in);
        grow(own.pairs, 2 * hidden);
        grow(own.inputs, hidden);
    }
    grow(own.states, hidden);
    grow(own.before, hidden);
    grow(own.tokens, static_cast<size_t>(rows));
    grow(space.logits, static_cast<size_t>(fed.size) * drafter.head->out);
    run_team(drafter.model->threads, [&](Member me) { ChainDraft(drafter, chains, caches, shape, space, own, me).run(levels); });
}

}  // namespace harness
