// A team of OpenMP threads that meet at spinning barriers: a decode step has hundreds, each a fraction of a microsecond.
#pragma once

#include <immintrin.h>
#include <omp.h>

#include <atomic>

namespace harness {

constexpr int kSpins = 4000;  // some tens of microseconds

class Barrier {
  public:
    explicit Barrier(int size) : size_(size) {}

    void wait() {
        const int phase = phase_.load(std::memory_order_relaxed);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
            arrived_.store(0, std::memory_order_relaxed);
            phase_.store(phase + 1, std::memory_order_release);
            phase_.notify_all();
            return;
        }
        for (int turn = 0; turn < kSpins; ++turn) {
            if (phase_.load(std::memory_order_acquire) != phase) return;
            _mm_pause();
        }
        // another process has the core of the one that is missing: sleep, so that it may have ours
        phase_.wait(phase, std::memory_order_acquire);
    }

  private:
    const int size_;
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<int> phase_{0};
};

// A thread's place in the team and its share of some work.
struct Member {
    int index;
    int size;
    Barrier* barrier;

    void meet() const {
        if (size > 1) barrier->wait();
    }

    // Bounds of this thread's part of `count` items, cut at multiples of `step`.
    void share(int count, int step, int& begin, int& end) const {
        const int blocks = (count + step - 1) / step;
        begin = blocks * index / size * step;
        end = blocks * (index + 1) / size * step;
        if (begin > count) begin = count;
        if (end > count) end = count;
    }
};

template <class Work>
void run_team(int size, Work work) {
    Barrier barrier(size);
    if (size == 1) {
        work(Member{0, 1, &barrier});
        return;
    }
#pragma omp parallel num_threads(size)
    work(Member{omp_get_thread_num(), size, &barrier});
}

}  // namespace harness
