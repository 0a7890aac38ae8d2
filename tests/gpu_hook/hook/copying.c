/* Copies random extents of every device out to segments and back, linked with the hook's own sources: `copying ROUNDS SEED
 * memory|FOLDER [close|limit|few]`. A copy that fails is tried once more: whatever failed, nothing may be lost. Prints how many
 * copies succeeded and failed, and the last failure. `close`: the program closes what it did not open while its memory is
 * out; `limit`: its files may not grow beyond 10 MiB; `few`: a quarter of the extents, for sanitizers. */
#include "contexts/contexts.h"
#include "copy_engine/mover.h"
#include "swap/extents.h"
#include "gate/residency.h"
#include "copy_engine/segments.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define UNIT (2u << 20)
#define EXTENTS_MAX 24
#define LARGEST 12 /* units of one extent */
/* The loops over every word of what is copied are this program's own, and would be most of a sanitizer's time. */
#define UNWATCHED __attribute__((no_sanitize("thread", "address", "undefined")))

static struct {
    struct extent extents[EXTENTS_MAX];
    CUmemGenericAllocationHandle handles[EXTENTS_MAX];
    size_t count, most;
    CUcontext contexts[4];
    int devices;
    unsigned seed;
    unsigned long *host; /* of the largest extent */
    unsigned succeeded, failed;
    unsigned round; /* contents differ from round to round */
    int last_failure;
} test;

static void expect(int is_true, const char *claim)
{
    if (!is_true) {
        fprintf(stderr, "not so: %s\n", claim);
        exit(1);
    }
}

static void check(CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "%s: %d\n", call, result);
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

static void begin(void)
{
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&test.devices));
    test.devices = test.devices < 4 ? test.devices : 4;
    for (int i = 0; i < test.devices; i++)
        CHECK(cuDevicePrimaryCtxRetain(&test.contexts[i], i));
    test.host = malloc((size_t)LARGEST * UNIT);
}

static void map(size_t index)
{
    struct extent *extent = &test.extents[index];
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = extent->device}};
    CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(cuMemCreate(&test.handles[index], extent->bytes, &properties, 0));
    CHECK(cuMemMap(extent->address, extent->bytes, 0, test.handles[index], 0));
    CHECK(cuMemSetAccess(extent->address, extent->bytes, &access, 1));
}

static void unmap(size_t index)
{
    CHECK(cuMemUnmap(test.extents[index].address, test.extents[index].bytes));
    CHECK(cuMemRelease(test.handles[index]));
}

UNWATCHED static unsigned long word_of(size_t index, size_t place)
{
    unsigned long value = (index + 1) * 0x9e3779b97f4a7c15ul + place * 0xbf58476d1ce4e5b9ul + test.round;
    return value ^ value >> 29;
}

UNWATCHED static void write_words(size_t index, size_t count)
{
    for (size_t i = 0; i < count; i++)
        test.host[i] = word_of(index, i);
}

UNWATCHED static int are_words(size_t index, size_t count)
{
    size_t i = 0;
    while (i < count && test.host[i] == word_of(index, i))
        i++;
    return i == count;
}

static void fill(size_t index)
{
    const struct extent *extent = &test.extents[index];
    write_words(index, extent->bytes / sizeof *test.host);
    CHECK(cuCtxSetCurrent(test.contexts[extent->device]));
    CHECK(cuMemcpyHtoD_v2(extent->address, test.host, extent->bytes));
}

static void verify(size_t index)
{
    const struct extent *extent = &test.extents[index];
    CHECK(cuCtxSetCurrent(test.contexts[extent->device]));
    CHECK(cuMemcpyDtoH_v2(test.host, extent->address, extent->bytes));
    expect(are_words(index, extent->bytes / sizeof *test.host), "the bytes are what they were");
}

/* By device, as extents_list gives them; one in six has a gap before it in the host copy, where
 * a part was freed. */
static uint64_t make_pieces(void)
{
    uint64_t offset = 0;
    test.count = 0;
    for (int device = 0; device < test.devices; device++)
        for (int i = 1 + rand_r(&test.seed) % (test.most / test.devices); i > 0; i--) {
            struct extent *extent = &test.extents[test.count];
            if (rand_r(&test.seed) % 6 == 0)
                offset += (1 + (uint64_t)rand_r(&test.seed) % 3) * UNIT;
            *extent = (struct extent){0, (1 + (size_t)rand_r(&test.seed) % LARGEST) * UNIT, device, offset};
            offset += extent->bytes;
            CHECK(cuMemAddressReserve(&extent->address, extent->bytes, 0, 0, 0));
            map(test.count);
            fill(test.count++);
        }
    return offset;
}

static int make_segment(const char *kind, uint64_t bytes)
{
    int is_memory = strcmp(kind, "memory") == 0;
    int descriptor =
        is_memory ? memfd_create("segment", MFD_ALLOW_SEALING) : open(kind, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    expect(descriptor >= 0 && ftruncate(descriptor, (off_t)bytes) == 0, "a segment is made");
    if (is_memory) {
        expect(fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0, "it is sealed");
        expect(segments_add(dup(descriptor), 0, bytes) == EINVAL, "memory that is not populated is refused");
        expect(posix_fallocate(descriptor, 0, (off_t)bytes) == 0, "it is populated");
    }
    return descriptor;
}

static void make_segments(const char *kind, uint64_t bytes)
{
    uint32_t number = 0;
    for (uint64_t made = 0; made < bytes; number++) {
        uint64_t part = (1 + (uint64_t)rand_r(&test.seed) % 40) * UNIT;
        int descriptor = make_segment(kind, part);
        expect(segments_add(dup(descriptor), number, part + UNIT) == EINVAL, "a short file is refused");
        expect(segments_add(descriptor, number, part) == 0, "a segment is taken");
        made += part;
        expect(segments_bytes(number + 1) == made, "segments add up");
    }
    expect(segments_bytes(number + 1) == 0, "a missing segment is seen");
    expect(segments_keep(number + 1) == EINVAL && segments_keep(number) == 0, "whole copies are kept");
    expect(segments_add(-1, 0, UNIT) == EBUSY, "a kept copy does not change");
}

static int copy(enum mover_direction direction)
{
    struct mover_timing timing;
    residency_hold();
    contexts_hold();
    int failure = mover_copy(test.extents, test.count, direction, &timing);
    contexts_release();
    residency_release();
    expect(!failure == !timing.failed_step, "a failure names its step");
    test.succeeded += failure == 0;
    test.failed += failure != 0;
    test.last_failure = failure ? failure : test.last_failure;
    return failure;
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit = {bytes, RLIM_INFINITY};
    expect(setrlimit(RLIMIT_FSIZE, &limit) == 0, "files are limited");
}

static void run_round(const char *kind, const char *option)
{
    int closes = strcmp(option, "close") == 0;
    uint64_t bytes = make_pieces();
    int first = dup(0);
    make_segments(kind, bytes);
    if (strcmp(option, "limit") == 0)
        limit_files(10 << 20);
    int failure = copy(MOVER_OUT);
    for (size_t i = 0; i < test.count; i++)
        verify(i);
    if (failure && copy(MOVER_OUT)) {
        segments_drop();
    } else {
        if (closes) /* what was opened before is the driver's */
            close_range((unsigned)first, ~0u, 0);
        for (size_t i = 0; i < test.count; i++) {
            unmap(i);
            map(i);
            CHECK(cuCtxSetCurrent(test.contexts[test.extents[i].device]));
            CHECK(cuMemsetD8_v2(test.extents[i].address, 0x5a, test.extents[i].bytes));
        }
        if (copy(MOVER_IN))
            expect(copy(MOVER_IN) == 0, "a copy in that failed can be repeated");
        segments_drop();
    }
    if (!closes)
        close(first);
    for (size_t i = 0; i < test.count; i++) {
        verify(i);
        unmap(i);
        CHECK(cuMemAddressFree(test.extents[i].address, test.extents[i].bytes));
    }
}

int main(int count, char **arguments)
{
    expect(count >= 4, "usage: copying ROUNDS SEED memory|FOLDER [close|limit|few]");
    test.seed = (unsigned)strtoul(arguments[2], NULL, 10);
    begin();
    test.most = count > 4 && strcmp(arguments[4], "few") == 0 ? EXTENTS_MAX / 4 : EXTENTS_MAX;
    for (test.round = (unsigned)atoi(arguments[1]); test.round > 0; test.round--)
        run_round(arguments[3], count > 4 ? arguments[4] : "");
    printf("%u %u %d\n", test.succeeded, test.failed, test.last_failure);
    return 0;
}
