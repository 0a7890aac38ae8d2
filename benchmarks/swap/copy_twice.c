#include "copy_twice.h"

#include "../../gpu_hook/hook/contexts/contexts.h"
#include "../../gpu_hook/hook/base/guest_thread.h"
#include "../../gpu_hook/hook/base/stream_copy.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SLOT_BYTES ((size_t)8 << 20)
#define SLOTS 4
#define THREADS_MAX 16
#define POPULATE_WRITE 23 /* MADV_POPULATE_WRITE */

/* Defined by the hook for the copying sources: this program has one context, until its end. */
void contexts_hold(void)
{
}

void contexts_release(void)
{
}

bool guest_threads_are_over(void)
{
    return false;
}

struct work {
    char *from, *to, *slots;
    size_t bytes, first, step;
    bool prepares; /* the target's page-table entries, at once */
};

static struct {
    char *device; /* stands for the device's memory: shared, of ordinary pages */
    char *view;   /* of the file, which stands for segments */
    size_t bytes;
    int file;
    char *slots;
} state;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static char *map(int file, size_t bytes)
{
    char *view = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (file < 0 ? MAP_ANONYMOUS : 0), file, 0);
    if (view == MAP_FAILED) {
        perror("map");
        exit(1);
    }
    return view;
}

static void *run(void *argument)
{
    const struct work *work = argument;
    size_t number = 0;
    for (size_t at = work->first; at < work->bytes; at += work->step, number++) {
        char *slot = work->slots + number % SLOTS * SLOT_BYTES;
        size_t part = work->bytes - at < SLOT_BYTES ? work->bytes - at : SLOT_BYTES;
        if (work->prepares) {
            memcpy(slot, work->from + at, part);
            madvise(work->to + at, part, POPULATE_WRITE);
            stream_copy(work->to + at, slot, part);
        } else {
            stream_copy(slot, work->from + at, part);
            memcpy(work->to + at, slot, part);
        }
    }
    return NULL;
}

static void run_all(char *from, char *to, size_t bytes, unsigned threads, bool prepares)
{
    pthread_t started[THREADS_MAX];
    struct work works[THREADS_MAX];
    for (unsigned i = 0; i < threads; i++) {
        works[i] = (struct work){from, to, state.slots + i * SLOTS * SLOT_BYTES, bytes, i * SLOT_BYTES,
                                 threads * SLOT_BYTES, prepares};
        pthread_create(&started[i], NULL, run, &works[i]);
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_join(started[i], NULL);
}

static void begin(size_t bytes)
{
    state.slots =
        mmap(NULL, THREADS_MAX * SLOTS * SLOT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(state.slots, THREADS_MAX * SLOTS * SLOT_BYTES, MADV_HUGEPAGE);
    memset(state.slots, 1, THREADS_MAX * SLOTS * SLOT_BYTES);
    state.bytes = bytes;
    state.device = map(-1, bytes);
    state.file = memfd_create("copies", MFD_CLOEXEC);
    if (state.file < 0 || ftruncate(state.file, (off_t)bytes)) {
        perror("file");
        exit(1);
    }
    state.view = map(state.file, bytes);
    memset(state.view, 1, bytes);
}

uint64_t copy_twice(size_t bytes, unsigned threads, bool to_fresh)
{
    threads = threads < THREADS_MAX ? threads : THREADS_MAX;
    if (!state.slots)
        begin(bytes);
    if (to_fresh) {
        madvise(state.view, state.bytes, POPULATE_WRITE);
        madvise(state.device, state.bytes, MADV_REMOVE);
    } else {
        munmap(state.view, state.bytes);
        state.view = map(state.file, state.bytes);
        madvise(state.device, state.bytes, POPULATE_WRITE);
    }
    uint64_t begin_time = now();
    if (to_fresh)
        run_all(state.view, state.device, state.bytes, threads, false);
    else
        run_all(state.device, state.view, state.bytes, threads, true);
    return now() - begin_time;
}
