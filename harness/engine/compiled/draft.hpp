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
    float temperature;       // of the drafter's softmax; 0 counts as 1
    float min_confidence;    // a chain ends where the likeliest next token would bring the product of its probabilities below
    int32_t unused;
    const double* uniform;   // [batch, longest] in [0, 1); null takes the likeliest
    int64_t* drafted;        // [batch, longest]
    int32_t* lengths;        // [batch] tokens drafted, from 0
    float* probs;            // [batch, longest, head.out] what was drawn from; null with the likeliest
};

// One forward of the drafter: level 0 reads committed tokens, level j the j-th drafted ones.
struct Level {
    RowTable table;
    std::vector<int32_t> sequences;  // that draft a token from it
    std::vector<int32_t> last;       // row of each of them
};

inline Level first_level(const Batch& fed, const Chains& chains) {
    Level level;
    level.table = RowTable(fed);
    for (int s = 0, row = 0; s < fed.size; ++s) {
        row += fed.counts[s];
        if (chains.limits[s] == 0) continue;
        level.sequences.push_back(s);
        level.last.push_back(row - 1);
    }
    return level;
}

// Of those that got their `depth`-th token and are to get another.
inline Level next_level(const Batch& fed, const Chains& chains, const Level& level, int depth) {
    Level next;
    for (const int s : level.sequences) {
        if (chains.lengths[s] < depth || chains.limits[s] == depth) continue;
        const int slot = fed.lengths[s] + fed.counts[s] + depth - 1;
        next.last.push_back(next.table.count());
        next.sequences.push_back(s);
        next.table.add(s, slot, slot);
    }
    return next;
}

// Memory of a call that isn't the layers' own.
struct DraftSpace {
    std::vector<float> pairs, inputs, states, before, confidences;
    std::vector<int64_t> tokens;
    Level levels[2];  // the one that runs, and the next
};

class ChainDraft {
  public:
    ChainDraft(const Drafter& drafter, const Batch& fed, const Chains& chains, const LayerCache* caches, CacheShape shape, Workspace& space,
               DraftSpace& own, const Member& me)
        : drafter_(drafter), fed_(fed), chains_(chains), caches_(caches), shape_(shape), space_(space), own_(own), me_(me), size_(drafter.model->hidden) {}

    void run() {
        const int64_t* tokens = chains_.tokens;
        const float* hidden = chains_.hidden;
        for (int depth = 1;; ++depth) {
            const Level& level = own_.levels[(depth + 1) % 2];
            Level& next = own_.levels[depth % 2];
            const Rows rows = level.table.rows();
            if (drafter_.fuse) fuse(rows.count, tokens, hidden);
            Pass(*drafter_.model, rows, caches_, shape_, space_, me_, level.table.longest()).run(tokens, drafter_.fuse ? own_.inputs.data() : nullptr, own_.states.data());
            me_.meet();
            choose(level, depth - 1);
            if (me_.index == 0) next = next_level(fed_, chains_, level, depth);
            me_.meet();
            if (next.sequences.empty()) return;
            hand_on(level, next, depth - 1);
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

    // One token for each sequence that is sure enough of it.
    void choose(const Level& level, int depth) {
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
        for (int i = begin; i < end; ++i) choose_one(space_.logits.data() + static_cast<size_t>(i) * head.out, level.sequences[i], depth);
        me_.meet();
    }

    void choose_one(const float* logits, int s, int depth) {
        const int size = drafter_.head->out;
        const int64_t place = static_cast<int64_t>(s) * chains_.longest + depth;
        const float temperature = chains_.temperature > 0 ? chains_.temperature : 1.0f;
        float* probs = nullptr;
        if (chains_.uniform) {
            probs = chains_.probs + place * size;
            soften(logits, size, temperature, probs);
        }
        float& confidence = own_.confidences[s];
        const float highest = chains_.min_confidence > 0 ? highest_probability(logits, size, temperature) : 1.0f;
        // decided before the token is drawn: what is drawn keeps its distribution
        if (confidence * highest < chains_.min_confidence) return;
        const int column = probs ? draw(probs, size, chains_.uniform[place]) : likeliest(logits, size);
        confidence *= probs ? probs[column] : highest;
        chains_.drafted[place] = drafter_.vocab ? drafter_.vocab[column] : column;
        chains_.lengths[s] = depth + 1;
    }

    // What the next level starts from.
    void hand_on(const Level& level, const Level& next, int depth) {
        int begin, end;
        me_.share(next.table.count(), 1, begin, end);
        for (int row = begin; row < end; ++row) {
            const int s = next.sequences[row];
            const auto at = std::lower_bound(level.sequences.begin(), level.sequences.end(), s) - level.sequences.begin();
            own_.tokens[row] = chains_.drafted[static_cast<int64_t>(s) * chains_.longest + depth];
            std::copy(state(level.last[at]), state(level.last[at]) + size_, own_.before.data() + static_cast<size_t>(row) * size_);
        }
        me_.meet();
    }

    const float* state(int row) const { return own_.states.data() + static_cast<size_t>(row) * size_; }

    const Drafter& drafter_;
    const Batch& fed_;
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
    own.levels[0] = first_level(fed, chains);
    int longest = own.levels[0].table.longest();
    for (int s = 0; s < fed.size; ++s) longest = std::max(longest, fed.lengths[s] + fed.counts[s] + chains.limits[s] - 1);
    const int rows = std::max(own.levels[0].table.count(), fed.size);
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
    own.confidences.assign(fed.size, 1.0f);
    grow(space.logits, static_cast<size_t>(fed.size) * drafter.head->out);
    run_team(drafter.model->threads, [&](Member me) { ChainDraft(drafter, fed, chains, caches, shape, space, own, me).run(); });
}

}  // namespace harness
