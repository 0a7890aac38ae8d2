/* The process's sparse file, and files that are shared. Pieces of the sparse file lie at offsets; a
 * freed piece becomes a hole. So neither `ulimit -n` nor, while successive pieces are mapped in
 * order, vm.max_map_count bounds the number of handles. A shared file takes a descriptor. */
#include "device/backing.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/machine.h"
#include "device/ranges.h"

#define FILE_BYTES (1ull << 46)
#define SHARED_MAGIC 0x31455241485351ull /* "QSHARE1" */
#define SHARED_TAIL 4096ull

struct tail {
    uint64_t magic, bytes, identity;
    unsigned char note[BACKING_NOTE_BYTES];
};

static struct {
    pthread_mutex_t mutex; /* guards the file and its pieces */
    int descriptor;
    struct ranges pieces;
} file = {.mutex = PTHREAD_MUTEX_INITIALIZER, .descriptor = -1};

/* The soft limit is raised only when it is met: a program that counts on it keeps it. */
static int raise_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
        return -1;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit);
}

static int new_file(unsigned flags)
{
    int descriptor = memfd_create("aliquot-softgpu", MFD_CLOEXEC | flags);
    if (descriptor < 0 && errno == EMFILE && raise_limit() == 0)
        descriptor = memfd_create("aliquot-softgpu", MFD_CLOEXEC | flags);
    return descriptor;
}

/* Under the mutex. */
static int open_file(void)
{
    if (file.descriptor >= 0)
        return 0;
    int descriptor = new_file(0);
    if (descriptor < 0 || ftruncate(descriptor, (off_t)FILE_BYTES) != 0 ||
        (file.pieces.root == NULL &&
         ranges_insert(&file.pieces, MACHINE_LARGE_UNIT, FILE_BYTES - MACHINE_LARGE_UNIT, NULL) != 0)) {
        if (descriptor >= 0)
            close(descriptor);
        return -1;
    }
    file.descriptor = descriptor;
    return 0;
}

int backing_open(uint64_t bytes, struct backing *backing)
{
    *backing = (struct backing){.descriptor = -1, .bytes = bytes};
    pthread_mutex_lock(&file.mutex);
    if (open_file() == 0)
        backing->offset = ranges_take(&file.pieces, bytes, &file);
    pthread_mutex_unlock(&file.mutex);
    return backing->offset ? 0 : -1;
}

int backing_open_shared(uint64_t bytes, const void *note, struct backing *backing)
{
    struct tail tail = {.magic = SHARED_MAGIC, .bytes = bytes};
    memcpy(tail.note, note, sizeof tail.note);
    if (getrandom(&tail.identity, sizeof tail.identity, 0) != sizeof tail.identity)
        return -1;
    int descriptor = new_file(MFD_ALLOW_SEALING);
    if (descriptor < 0)
        return -1;
    /* Sealed in size: no importer can make another's access a SIGBUS. */
    if (ftruncate(descriptor, (off_t)(bytes + SHARED_TAIL)) != 0 ||
        pwrite(descriptor, &tail, sizeof tail, (off_t)bytes) != (ssize_t)sizeof tail ||
        fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        close(descriptor);
        return -1;
    }
    *backing = (struct backing){.descriptor = descriptor, .bytes = bytes, .identity = tail.identity};
    return 0;
}

int backing_adopt(int descriptor, void *note, struct backing *backing)
{
    struct stat found;
    struct tail tail;
    int seals = fcntl(descriptor, F_GET_SEALS);
    if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW) ||
        fstat(descriptor, &found) != 0 || found.st_size <= (off_t)SHARED_TAIL)
        return -1;
    uint64_t bytes = (uint64_t)found.st_size - SHARED_TAIL;
    if (pread(descriptor, &tail, sizeof tail, (off_t)bytes) != (ssize_t)sizeof tail || tail.magic != SHARED_MAGIC ||
        tail.bytes != bytes)
        return -1;
    memcpy(note, tail.note, sizeof tail.note);
    *backing = (struct backing){.descriptor = descriptor, .bytes = bytes, .identity = tail.identity};
    backing->descriptor = backing_duplicate(backing);
    return backing->descriptor < 0 ? -1 : 0;
}

int backing_duplicate(const struct backing *backing)
{
    int copy = fcntl(backing->descriptor, F_DUPFD_CLOEXEC, 0);
    return copy < 0 && errno == EMFILE && raise_limit() == 0 ? fcntl(backing->descriptor, F_DUPFD_CLOEXEC, 0) : copy;
}

void backing_close(struct backing *backing)
{
    uint64_t free_start, free_end;
    if (backing->descriptor >= 0) {
        close(backing->descriptor);
        return;
    }
    pthread_mutex_lock(&file.mutex);
    fallocate(file.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)backing->offset,
              (off_t)backing->bytes);
    ranges_give_back(&file.pieces, backing->offset, &free_start, &free_end);
    pthread_mutex_unlock(&file.mutex);
}

int backing_map(const struct backing *backing, void *address, uint64_t bytes, int protection)
{
    int descriptor = backing->descriptor >= 0 ? backing->descriptor : file.descriptor;
    void *mapped = mmap(address, bytes, protection, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, descriptor,
                        (off_t)backing->offset);
    if (mapped == MAP_FAILED)
        return -1;
    madvise(address, bytes, MADV_DONTFORK);
    madvise(address, bytes, MADV_DONTDUMP);
    return 0;
}

void backing_forget(void)
{
    if (file.descriptor >= 0)
        close(file.descriptor);
    file.descriptor = -1;
}
