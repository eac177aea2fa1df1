// What Python calls: one forward pass, one product, one draft.
#include <cstdint>

#include "choice.hpp"
#include "draft.hpp"
#include "pass.hpp"
#include "rows.hpp"

namespace harness {

// out[rows, w.out] = x[rows, w.in] w^T + bias; the inputs were written before the team last met.
void project(const Matrix& w, const float* x, int rows, float* out, Workspace& space, const Member& me) {
    int begin, end;
    me.share(rows, 1, begin, end);
    for (int row = begin; row < end; ++row) space.convert(w, x + static_cast<size_t>(row) * w.in, row, 0, w.in);
    me.meet();
    me.share(num_blocks(w), 2, begin, end);
    product(w, space.activations(), rows, begin, end, Writer{&w, out, w.out});
}

// Where a forward's results go.
struct Results {
    float* hidden;       // [rows, hidden] after the last norm
    const Matrix* head;  // null stops there
    float* logits;       // [rows, head.out]; null keeps none
    int64_t* choices;    // [rows] the likeliest tokens; may be null
};

}  // namespace harness

extern "C" {

// `tokens` or `inputs` [rows, hidden] start the residual stream.
void harness_forward(const harness::Model* model, const harness::Batch* batch, const harness::LayerCache* caches, harness::CacheShape shape,
                     const int64_t* tokens, const float* inputs, const harness::Results* results) {
    using namespace harness;
    const RowTable table(*batch);
    const Rows rows = table.rows();
    Workspace& space = workspace();
    space.fit(*model, rows.count, table.longest());
    float* logits = results->logits;
    if (results->head && !logits) {
        grow(space.logits, static_cast<size_t>(rows.count) * results->head->out);
        logits = space.logits.data();
    }
    run_team(model->threads, [&](Member me) {
        Pass(*model, rows, caches, shape, space, me, table.longest()).run(tokens, inputs, results->hidden);
        if (!results->head) return;
        me.meet();
        project(*results->head, results->hidden, rows.count, logits, space, me);
        if (!results->choices) return;
        me.meet();
        int begin, end;
        me.share(rows.count, 1, begin, end);
        const int size = results->head->out;
        for (int row = begin; row < end; ++row) results->choices[row] = likeliest(logits + static_cast<size_t>(row) * size, size);
    });
}

// out[rows, w.out] = x[rows, w.in] w^T + bias, all float32.
void harness_project(const harness::Matrix* w, const float* x, int32_t rows, float* out, int32_t threads) {
    using namespace harness;
    Workspace& space = workspace();
    space.fit_activations(rows, w->in);
    run_team(threads, [&](Member me) { project(*w, x, rows, out, space, me); });
}

void harness_draft(const harness::Drafter* drafter, const harness::Batch* fed, const harness::LayerCache* caches, harness::CacheShape shape,
                   const harness::Chains* chains) {
    harness::draft_chains(*drafter, *fed, *chains, caches, shape);
}
}
