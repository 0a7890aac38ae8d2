/* The rate of a swap's copies alone: the hook's own mover, without its gate and its agent,
 * against a pinned copy and against plain memory copies of the same kind. Linked to the driver.
 * `copies MIB PIECE_MIB THREADS`; then one question a line, in the form of measure.h: each
 * answer is in GB/s. */
#include "direct_driver.h"

#include "copy_twice.h"
#include "../hook/measure.h"
#include "contexts/contexts.h"
#include "copy_engine/mover.h"
#include "agent_link/page.h"
#include "copy_engine/extent.h"
#include "copy_engine/segments.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define SEGMENT_BYTES (1024 * MIB)
#define MADVISE_POPULATE_WRITE 23

static struct {
    struct extent *extents;
    CUmemGenericAllocationHandle *handles;
    size_t count, bytes;
    unsigned threads;
    CUcontext context;
    struct aliquot_agent_page page;
    struct aliquot_hook_page reports; /* the mover writes its progress here; no agent reads it */
    int *segments; /* warm: populated once */
    unsigned segment_count;
    char *pinned;
    CUstream streams[2];
    struct mover_timing timing;
} bench;

/* The functions that the hook's sources need from the rest of it. */
const struct aliquot_agent_page *page_agent(void)
{
    return &bench.page;
}

struct aliquot_hook_page *page_hook(void)
{
    return &bench.reports;
}

int page_install(int agent_descriptor, int hook_descriptor)
{
    return ENOSYS; /* no process registers here */
}

CUcontext contexts_find(CUdevice device)
{
    return bench.context;
}

static double gigabytes_a_second(uint64_t nanoseconds)
{
    return (double)bench.bytes / (double)nanoseconds;
}

static void map_piece(size_t index)
{
    struct extent *extent = &bench.extents[index];
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = extent->device}};
    CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemCreate(&bench.handles[index], extent->bytes, &properties, 0));
    MUST(cuMemMap(extent->address, extent->bytes, 0, bench.handles[index], 0));
    MUST(cuMemSetAccess(extent->address, extent->bytes, &access, 1));
}

static void unmap_piece(size_t index)
{
    MUST(cuMemUnmap(bench.extents[index].address, bench.extents[index].bytes));
    MUST(cuMemRelease(bench.handles[index]));
}

/* New device memory, as it is at a swap-in. */
static void renew_pieces(void)
{
    for (size_t i = 0; i < bench.count; i++)
        unmap_piece(i);
    for (size_t i = 0; i < bench.count; i++)
        map_piece(i);
}

static void fill_pieces(void)
{
    for (size_t i = 0; i < bench.count; i++)
        MUST(cuMemsetD32_v2(bench.extents[i].address, (unsigned)i, bench.extents[i].bytes / 4));
    MUST(cuCtxSynchronize());
}

static int make_segment(size_t bytes)
{
    int descriptor = memfd_create("segment", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    if (descriptor < 0 || ftruncate(descriptor, (off_t)bytes) ||
        fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)) {
        perror("segment");
        exit(1);
    }
    void *view = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (view == MAP_FAILED || madvise(view, bytes, MADV_HUGEPAGE) < -1 ||
        madvise(view, bytes, MADVISE_POPULATE_WRITE)) {
        perror("populate");
        exit(1);
    }
    munmap(view, bytes);
    return descriptor;
}

static void make_segments(int *segments)
{
    for (unsigned i = 0; i < bench.segment_count; i++) {
        size_t left = bench.bytes - i * SEGMENT_BYTES;
        segments[i] = make_segment(left < SEGMENT_BYTES ? left : SEGMENT_BYTES);
    }
}

static void give_segments(const int *segments)
{
    segments_drop();
    segments_sweep();
    for (unsigned i = 0; i < bench.segment_count; i++) {
        size_t left = bench.bytes - i * SEGMENT_BYTES;
        if (segments_add(dup(segments[i]), i, left < SEGMENT_BYTES ? left : SEGMENT_BYTES))
            exit(1);
    }
    if (segments_keep(bench.segment_count))
        exit(1);
}

static double move(enum mover_direction direction)
{
    uint64_t begin = now_nanoseconds();
    int failure = mover_copy(bench.extents, bench.count, direction, &bench.timing);
    if (failure) {
        fprintf(stderr, "copy: %d at %s\n", failure, bench.timing.failed_step);
        exit(1);
    }
    return gigabytes_a_second(now_nanoseconds() - begin);
}

static double time_out(unsigned long unused)
{
    give_segments(bench.segments);
    return move(MOVER_OUT);
}

static double time_in(unsigned long unused)
{
    renew_pieces();
    return move(MOVER_IN);
}

/* Copies into new host memory; asked first, with a ring that is made for this copy. */
static double time_out_cold(unsigned long unused)
{
    int segments[bench.segment_count];
    uint64_t begin = now_nanoseconds();
    make_segments(segments);
    give_segments(segments);
    move(MOVER_OUT);
    double speed = gigabytes_a_second(now_nanoseconds() - begin);
    for (unsigned i = 0; i < bench.segment_count; i++)
        close(segments[i]);
    return speed;
}


/* One copy between the device and locked memory, of the same extents. */
static double time_pinned(enum mover_direction direction)
{
    uint64_t begin = now_nanoseconds();
    for (size_t i = 0; i < bench.count; i++) {
        const struct extent *extent = &bench.extents[i];
        char *slot = bench.pinned + i % 4 * bench.extents[0].bytes;
        if (direction == MOVER_OUT)
            MUST(cuMemcpyDtoHAsync_v2(slot, extent->address, extent->bytes, bench.streams[i % 2]));
        else
            MUST(cuMemcpyHtoDAsync_v2(extent->address, slot, extent->bytes, bench.streams[i % 2]));
    }
    for (int i = 0; i < 2; i++)
        MUST(cuStreamSynchronize(bench.streams[i]));
    return gigabytes_a_second(now_nanoseconds() - begin);
}

static double time_pinned_out(unsigned long unused)
{
    return time_pinned(MOVER_OUT);
}

static double time_pinned_in(unsigned long is_fresh)
{
    if (is_fresh > 1)
        renew_pieces();
    return time_pinned(MOVER_IN);
}

/* Copies with processors alone, as often and into pages in the same state. */
static double time_twice_out(unsigned long unused)
{
    return gigabytes_a_second(copy_twice(bench.bytes, bench.threads, false));
}

static double time_twice_in(unsigned long unused)
{
    return gigabytes_a_second(copy_twice(bench.bytes, bench.threads, true));
}

static const struct measure measures[] = {
    {"out", NULL, NULL, time_out},
    {"in", NULL, NULL, time_in},
    {"out_cold", NULL, NULL, time_out_cold},
    {"pinned_out", NULL, NULL, time_pinned_out},
    {"pinned_in", NULL, NULL, time_pinned_in},
    {"twice_out", NULL, NULL, time_twice_out},
    {"twice_in", NULL, NULL, time_twice_in},
    {NULL, NULL, NULL, NULL},
};

int main(int count, char **arguments)
{
    if (count != 4)
        return 2;
    size_t piece_bytes = strtoul(arguments[2], NULL, 10) * MIB;
    bench.count = strtoul(arguments[1], NULL, 10) * MIB / piece_bytes;
    bench.bytes = bench.count * piece_bytes;
    bench.threads = (unsigned)strtoul(arguments[3], NULL, 10);
    bench.page = (struct aliquot_agent_page){.copy_threads = bench.threads, .copy_streams = 2, .ring_bytes = 256 * MIB};
    bench.extents = calloc(bench.count, sizeof *bench.extents);
    bench.handles = calloc(bench.count, sizeof *bench.handles);
    bench.segment_count = (unsigned)((bench.bytes + SEGMENT_BYTES - 1) / SEGMENT_BYTES);
    bench.segments = calloc(bench.segment_count, sizeof *bench.segments);
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&bench.context, 0));
    MUST(cuCtxSetCurrent(bench.context));
    for (size_t i = 0; i < bench.count; i++) {
        bench.extents[i] = (struct extent){0, piece_bytes, 0, i * piece_bytes};
        MUST(cuMemAddressReserve(&bench.extents[i].address, piece_bytes, 0, 0, 0));
        map_piece(i);
    }
    fill_pieces();
    MUST(cuMemHostAlloc((void **)&bench.pinned, 4 * piece_bytes, CU_MEMHOSTALLOC_PORTABLE));
    memset(bench.pinned, 1, 4 * piece_bytes);
    for (int i = 0; i < 2; i++)
        MUST(cuStreamCreate(&bench.streams[i], CU_STREAM_NON_BLOCKING));
    make_segments(bench.segments);
    return answer_questions(measures);
}
