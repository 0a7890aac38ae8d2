#include "copy_engine/segments.h"

#include "base/log.h"
#include "agent_link/socket.h"
#include "base/stream_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEGMENTS_MAX 4096u
#define UNIT_BYTES (2ull << 20) /* of sizes, and of a huge page: mappings begin at one */
#ifndef MADV_POPULATE_READ      /* Linux 5.14 */
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

struct segment {
    struct socket_owned file;
    char *view; /* NULL: no such number */
    uint64_t bytes, first; /* of the whole copy */
    bool is_memory;        /* may be touched; else by pread and pwrite */
};

/* Guarded by the mutex until a copy is kept; from then on nothing changes before segments_drop, and
 * the mover's threads read without it. */
static struct {
    pthread_mutex_t mutex;
    struct segment *segments;
    uint32_t capacity;
    uint32_t kept; /* 0: no copy */
    struct segment *dropped; /* of no more use, and still mapped */
    uint32_t dropped_count;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void let_go(struct segment *segment)
{
    if (!segment->view)
        return;
    munmap(segment->view, segment->bytes);
    socket_close(&segment->file);
    *segment = (struct segment){.file = SOCKET_NONE};
}

/* With the mutex. */
static int make_place(uint32_t number)
{
    if (number < state.capacity)
        return 0;
    uint32_t capacity = state.capacity ? state.capacity : 16;
    while (capacity <= number)
        capacity *= 2;
    struct segment *larger = malloc(capacity * sizeof *larger), *before = state.segments;
    if (!larger)
        return ENOMEM;
    for (uint32_t i = 0; i < capacity; i++)
        larger[i] = i < state.capacity ? before[i] : (struct segment){.file = SOCKET_NONE};
    state.segments = larger; /* before the old one goes: a fork handler may look at any moment */
    state.capacity = capacity;
    free(before);
    return 0;
}

/* Check a segment: memory must have a sealed size and all its pages, so that touching it raises
 * no signal. A spill file's pages are read and written by calls, which can report that the disk
 * is full. */
static int look_at(int descriptor, uint64_t bytes, bool *is_memory)
{
    struct statx found;
    if (statx(descriptor, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE | STATX_BLOCKS, &found) != 0)
        return errno;
    if (!S_ISREG(found.stx_mode) || found.stx_size < bytes)
        return EINVAL;
    int seals = fcntl(descriptor, F_GET_SEALS);
    *is_memory = seals >= 0 && (seals & F_SEAL_SHRINK);
    return *is_memory && found.stx_blocks * 512 < bytes ? EINVAL : 0;
}

/* At the start of a huge page, so that a memory file made of them is mapped by them. */
static char *map_aligned(int descriptor, uint64_t bytes)
{
    char *range = mmap(NULL, bytes + UNIT_BYTES, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED)
        return NULL;
    char *start = range + (UNIT_BYTES - (uint64_t)range % UNIT_BYTES) % UNIT_BYTES;
    char *end = range + bytes + UNIT_BYTES;
    if (mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor, 0) ==
        MAP_FAILED) {
        munmap(range, bytes + UNIT_BYTES);
        return NULL;
    }
    if (start > range)
        munmap(range, (size_t)(start - range));
    if (end > start + bytes)
        munmap(start + bytes, (size_t)(end - start - bytes));
    madvise(start, bytes, MADV_DONTFORK);
    madvise(start, bytes, MADV_DONTDUMP);
    return start;
}

/* With the mutex. */
static int put(int descriptor, uint32_t number, uint64_t bytes)
{
    bool is_memory;
    if (state.kept)
        return EBUSY;
    if (number >= SEGMENTS_MAX)
        return EMFILE;
    if (descriptor < 0 || bytes == 0 || bytes % UNIT_BYTES || bytes > INT64_MAX / 2)
        return EINVAL;
    int failure = look_at(descriptor, bytes, &is_memory);
    failure = failure ? failure : make_place(number);
    if (failure)
        return failure;
    let_go(&state.segments[number]);
    char *view = map_aligned(descriptor, bytes);
    if (!view)
        return errno;
    state.segments[number] = (struct segment){socket_own(descriptor), view, bytes, 0, is_memory};
    return 0;
}

int segments_add(int descriptor, uint32_t number, uint64_t bytes)
{
    descriptor = socket_move_away(descriptor);
    pthread_mutex_lock(&state.mutex);
    int failure = put(descriptor, number, bytes);
    pthread_mutex_unlock(&state.mutex);
    if (failure && descriptor >= 0)
        close(descriptor);
    if (failure)
        LOG("event=segment_refused number=%u bytes=%llu reason=\"%s\"", number,
            (unsigned long long)bytes, strerror(failure));
    return failure;
}

/* With the mutex. */
static uint64_t count_bytes(uint32_t count)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (i >= state.capacity || !state.segments[i].view)
            return 0;
        bytes += state.segments[i].bytes;
    }
    return bytes;
}

uint64_t segments_bytes(uint32_t count)
{
    pthread_mutex_lock(&state.mutex);
    uint64_t bytes = count_bytes(count);
    pthread_mutex_unlock(&state.mutex);
    return bytes;
}

int segments_keep(uint32_t count)
{
    pthread_mutex_lock(&state.mutex);
    bool is_complete = count == 0 || count_bytes(count) > 0;
    for (uint32_t i = count; is_complete && i < state.capacity; i++)
        let_go(&state.segments[i]);
    uint64_t first = 0;
    for (uint32_t i = 0; is_complete && i < count; i++) {
        state.segments[i].first = first;
        first += state.segments[i].bytes;
    }
    if (is_complete)
        state.kept = count;
    pthread_mutex_unlock(&state.mutex);
    return is_complete ? 0 : EINVAL;
}

static void let_go_all(struct segment *segments, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        let_go(&segments[i]);
    free(segments);
}

void segments_drop(void)
{
    segments_sweep();
    pthread_mutex_lock(&state.mutex);
    state.dropped = state.segments;
    state.dropped_count = state.capacity;
    state.segments = NULL;
    state.capacity = state.kept = 0;
    pthread_mutex_unlock(&state.mutex);
}

void segments_sweep(void)
{
    pthread_mutex_lock(&state.mutex);
    struct segment *dropped = state.dropped;
    uint32_t count = state.dropped_count;
    state.dropped = NULL;
    state.dropped_count = 0;
    pthread_mutex_unlock(&state.mutex);
    let_go_all(dropped, count);
}

/* The mappings are not there in a child. */
static void leave(struct segment *segments, uint32_t count)
{
    for (uint32_t i = 0; segments && i < count; i++)
        if (segments[i].view) {
            segments[i].view = NULL;
            socket_close(&segments[i].file);
        }
}

void segments_leave(void)
{
    leave(state.segments, state.capacity);
    leave(state.dropped, state.dropped_count);
}

void segments_reset(void)
{
    segments_leave();
    pthread_mutex_init(&state.mutex, NULL);
    state.kept = state.dropped_count = 0;
    state.dropped = NULL;
}

/* Returns 0 or an errno. Beyond RLIMIT_FSIZE a write would raise SIGXFSZ. */
static int write_file(const struct segment *segment, uint64_t at, const char *from, size_t bytes)
{
    struct rlimit limit;
    if (!socket_is_ours(&segment->file))
        return EBADF;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        at + bytes > limit.rlim_cur)
        return EFBIG;
    while (bytes) {
        ssize_t done = pwrite(segment->file.descriptor, from, bytes, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? errno : ENOSPC;
        from += done;
        at += (uint64_t)done;
        bytes -= (size_t)done;
    }
    return 0;
}

/* A file that the program closed is still mapped, and was written whole. */
static int read_file(const struct segment *segment, uint64_t at, char *to, size_t bytes)
{
    if (!socket_is_ours(&segment->file)) {
        memcpy(to, segment->view + at, bytes);
        return 0;
    }
    while (bytes) {
        ssize_t done = pread(segment->file.descriptor, to, bytes, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? errno : EIO;
        to += done;
        at += (uint64_t)done;
        bytes -= (size_t)done;
    }
    return 0;
}

/* Map the pages at once, instead of one fault each: a lack of memory is an error here and would
 * be a signal there. A kernel that does not know the advice (EINVAL) faults them one by one. */
static int prepare_pages(const struct segment *segment, uint64_t at, size_t bytes, int advice)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), first = at / page * page;
    int failed = madvise(segment->view + first, at + bytes - first, advice);
    while (failed && (errno == EINTR || errno == EAGAIN))
        failed = madvise(segment->view + first, at + bytes - first, advice);
    return failed && errno != EINVAL ? errno : 0;
}

static int write_one(const struct segment *segment, uint64_t at, void *host, size_t bytes)
{
    if (!segment->is_memory)
        return write_file(segment, at, host, bytes);
    int failure = prepare_pages(segment, at, bytes, MADV_POPULATE_WRITE);
    if (!failure)
        stream_copy(segment->view + at, host, bytes);
    return failure;
}

static int read_one(const struct segment *segment, uint64_t at, void *host, size_t bytes)
{
    if (!segment->is_memory)
        return read_file(segment, at, host, bytes);
    int failure = prepare_pages(segment, at, bytes, MADV_POPULATE_READ);
    if (!failure)
        stream_copy(host, segment->view + at, bytes);
    return failure;
}

static int each(uint64_t offset, char *host, size_t bytes,
                int (*one)(const struct segment *, uint64_t, void *, size_t))
{
    int failure = 0;
    for (uint32_t i = 0; i < state.kept && bytes && !failure; i++) {
        const struct segment *segment = &state.segments[i];
        if (offset >= segment->first + segment->bytes)
            continue;
        uint64_t at = offset - segment->first, rest = segment->bytes - at;
        size_t part = bytes < rest ? bytes : (size_t)rest;
        failure = one(segment, at, host, part);
        host += part;
        offset += part;
        bytes -= part;
    }
    return failure ? failure : bytes ? EINVAL : 0;
}

int segments_write(uint64_t offset, const void *from, size_t bytes)
{
    return each(offset, (char *)from, bytes, write_one);
}

int segments_read(uint64_t offset, void *to, size_t bytes)
{
    return each(offset, to, bytes, read_one);
}
