// Which rows one forward computes, from what each sequence of a batch gets.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention.hpp"

namespace harness {

// Sequence s gets `counts[s]` new tokens behind its `lengths[s]` committed ones. Tokens follow each other unless `positions` and
// `branches` [size, stride] place the nodes of draft trees, the first of them `first` rows behind the committed ones.
struct Batch {
    int32_t size;
    int32_t capacity;  // padding past it goes to the row behind it
    int32_t first;
    int32_t stride;
    const int32_t* counts;
    const int32_t* lengths;
    const int64_t* positions;  // null for chains
    const int64_t* branches;
};

class RowTable {
  public:
    explicit RowTable(const Batch& batch) {
        for (int s = 0; s < batch.size; ++s) {
            for (int place = 0; place < batch.counts[s]; ++place) {
                if (!batch.branches) {
                    add(s, batch.lengths[s], std::min(batch.lengths[s] + place, batch.capacity));
                    continue;
                }
                const int64_t at = static_cast<int64_t>(s) * batch.stride + place;
                add(s, batch.lengths[s], batch.lengths[s] + batch.first + place);
                position_.back() = static_cast<int32_t>(batch.positions[at]);
                tree_.push_back(static_cast<uint64_t>(batch.branches[at]));
            }
        }
    }

    RowTable() = default;

    // A token of a chain.
    void add(int sequence, int committed, int slot) {
        sequence_.push_back(sequence);
        committed_.push_back(committed);
        slot_.push_back(slot);
        position_.push_back(slot);
        longest_ = std::max(longest_, slot + 1);
    }

    Rows rows() const {
        return {count(), 0, sequence_.data(), position_.data(), slot_.data(), committed_.data(), tree_.empty() ? nullptr : tree_.data()};
    }

    int count() const { return static_cast<int>(slot_.size()); }

    // Cache rows that some row may see.
    int longest() const { return longest_; }

  private:
    std::vector<int32_t> sequence_, position_, slot_, committed_;
    std::vector<uint64_t> tree_;
    int longest_ = 0;
};

}  // namespace harness
