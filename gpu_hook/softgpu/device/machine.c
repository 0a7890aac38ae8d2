/* Opens and creates the state file, and has its lock. Refuses files of another version, and file
 * systems without room: its blocks are reserved here, so that a full /dev/shm is an error and not a
 * SIGBUS later. */
#include "device/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "device/cgroups.h"
#include "device/log.h"
#include "device/requests.h"

#define LOCK_SECONDS 10
#define LOOK_NANOSECONDS 2000000

uint64_t machine_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* The name that the agent gave the node, else the machine's. */
static void identify_node(char *identity, size_t bytes, const struct settings *settings)
{
    memset(identity, 0, bytes);
    if (settings->node) {
        snprintf(identity, bytes, "%s", settings->node);
        return;
    }
    int descriptor = open("/etc/machine-id", O_RDONLY | O_CLOEXEC);
    if (descriptor < 0 || read(descriptor, identity, bytes - 1) <= 0)
        gethostname(identity, bytes - 1);
    if (descriptor >= 0)
        close(descriptor);
}

/* "aliquot", a zero, four bytes of the node's identity, the index: evidently ours, stable across
 * restarts. */
static void name_device(uint8_t uuid[16], unsigned index, const char *identity)
{
    uint32_t hash = 2166136261u;
    for (const char *c = identity; *c; c++)
        hash = (hash ^ (uint8_t)*c) * 16777619u;
    memcpy(uuid, "aliquot\0", 8);
    for (int i = 0; i < 4; i++)
        uuid[8 + i] = (uint8_t)(hash >> (8 * i));
    memset(uuid + 12, 0, 3);
    uuid[15] = (uint8_t)index;
}

static int build_machine(struct machine *machine, const struct settings *settings)
{
    pthread_mutexattr_t attributes;
    char identity[256];
    identify_node(identity, sizeof identity, settings);
    memset(machine, 0, sizeof *machine);
    machine->version = MACHINE_VERSION;
    machine->bytes = sizeof *machine;
    machine->device_count = settings->device_count;
    machine->sm_count = settings->sm_count;
    machine->domain_devices = settings->domain_devices;
    machine->memory_bytes = settings->memory_bytes;
    machine->link_bytes_per_second = settings->link_bytes_per_second;
    machine->launch_nanoseconds = settings->launch_nanoseconds;
    machine->slice_nanoseconds = settings->slice_nanoseconds;
    machine->switch_nanoseconds = settings->switch_nanoseconds;
    machine->teardown_nanoseconds = settings->teardown_nanoseconds;
    for (unsigned i = 0; i < machine->device_count; i++)
        name_device(machine->devices[i].uuid, i, identity);
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    int failed = pthread_mutex_init(&machine->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    if (!failed)
        atomic_store_explicit(&machine->magic, MACHINE_MAGIC, memory_order_release);
    return failed;
}

static int take_file_lock(int descriptor)
{
    struct timespec pause = {0, 2000000};
    for (int i = 0; i < LOCK_SECONDS * 500; i++) {
        if (flock(descriptor, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -1;
        nanosleep(&pause, NULL);
    }
    return -1;
}

/* Magic 0 is a file whose creator died half-way: it is built anew. Called with the file lock
 * held. */
static enum machine_failure map_machine(struct attachment *attachment, const struct settings *settings, off_t found_bytes)
{
    const char *path = settings->state_path;
    if (found_bytes != 0 && found_bytes != (off_t)sizeof(struct machine)) {
        log_failure("state file %s has %lld bytes and this library's has %zu: it belongs to another version; end the "
                    "processes that use it and remove it", path, (long long)found_bytes, sizeof(struct machine));
        return MACHINE_OTHER_VERSION;
    }
    int failed = posix_fallocate(attachment->descriptor, 0, sizeof(struct machine));
    if (failed) {
        if (found_bytes == 0 && ftruncate(attachment->descriptor, 0) == 0)
            unlink(path);
        log_failure("state file %s needs %zu bytes: %s; make room, or set ALIQUOT_SOFTGPU_STATE to another file system",
                    path, sizeof(struct machine), strerror(failed));
        return MACHINE_NO_SPACE;
    }
    void *memory = mmap(NULL, sizeof(struct machine), PROT_READ | PROT_WRITE, MAP_SHARED, attachment->descriptor, 0);
    if (memory == MAP_FAILED) {
        log_failure("state file %s cannot be mapped: %s", path, strerror(errno));
        return MACHINE_NO_ACCESS;
    }
    attachment->machine = memory;
    uint64_t magic = atomic_load_explicit(&attachment->machine->magic, memory_order_acquire);
    if (magic == 0 && build_machine(attachment->machine, settings) == 0)
        return MACHINE_OK;
    if (magic == MACHINE_MAGIC && attachment->machine->version == MACHINE_VERSION &&
        attachment->machine->bytes == sizeof(struct machine))
        return MACHINE_OK;
    log_failure("state file %s is of version %u, this library speaks version %u; end the processes that use it and "
                "remove it", path, magic == MACHINE_MAGIC ? attachment->machine->version : 0, MACHINE_VERSION);
    return MACHINE_OTHER_VERSION;
}

enum machine_failure machine_open(struct attachment *attachment, const struct settings *settings)
{
    struct stat found;
    attachment->machine = NULL;
    attachment->slot = -1;
    if (cgroups_of_self(settings->cgroup, attachment->cgroups) != 0) {
        attachment->descriptor = -1;
        log_failure("ALIQUOT_SOFTGPU_CGROUP=%s: expected the path of a folder", settings->cgroup);
        return MACHINE_BAD_SETTINGS;
    }
    attachment->descriptor = open(settings->state_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (attachment->descriptor < 0) {
        int problem = errno;
        log_failure("state file %s cannot be opened: %s", settings->state_path, strerror(problem));
        return problem == ENOSPC ? MACHINE_NO_SPACE : MACHINE_NO_ACCESS;
    }
    enum machine_failure failure;
    if (take_file_lock(attachment->descriptor) != 0) {
        log_failure("state file %s is locked by another process for %d s", settings->state_path, LOCK_SECONDS);
        failure = MACHINE_STUCK;
    } else if (fstat(attachment->descriptor, &found) != 0 || !S_ISREG(found.st_mode)) {
        log_failure("state file %s is not a plain file", settings->state_path);
        failure = MACHINE_NO_ACCESS;
    } else {
        failure = map_machine(attachment, settings, found.st_size);
    }
    if (failure == MACHINE_OK) {
        flock(attachment->descriptor, LOCK_UN);
    } else {
        machine_close(attachment);
    }
    return failure;
}

void machine_close(struct attachment *attachment)
{
    if (attachment->machine)
        munmap(attachment->machine, sizeof *attachment->machine);
    if (attachment->descriptor >= 0)
        close(attachment->descriptor);
    attachment->machine = NULL;
    attachment->descriptor = -1;
}

void machine_recount(struct machine *machine)
{
    for (unsigned d = 0; d < machine->device_count; d++) {
        uint64_t used = 0;
        for (int s = 0; s < MACHINE_SLOTS; s++)
            if (atomic_load_explicit(&machine->slots[s].pid, memory_order_relaxed))
                used += atomic_load_explicit(&machine->slots[s].devices[d].bytes, memory_order_relaxed);
        machine->devices[d].used_bytes = used;
    }
}

/* Waits on a word of ours and not in the mutex: the mutex knows threads by their ids, which in two
 * pid namespaces may be the same, and one that was killed while it waits there would be taken for
 * the holder that has its id. */
static int wait_for_lock(struct machine *machine)
{
    const struct timespec look = {0, LOOK_NANOSECONDS}; /* a holder that dies wakes no waiter */
    uint64_t start = machine_now();
    for (;;) {
        uint32_t releases = atomic_load(&machine->releases);
        atomic_store(&machine->has_waiters, 1);
        int failed = pthread_mutex_trylock(&machine->lock);
        if (failed != EBUSY)
            return failed;
        if (machine_now() - start > LOCK_SECONDS * 1000000000ull)
            return ETIMEDOUT;
        syscall(SYS_futex, &machine->releases, FUTEX_WAIT, releases, &look, NULL, 0);
    }
}

/* Judges an attempt to lock: a lock whose holder died is repaired and taken. */
static int settle_lock(struct machine *machine, int failed)
{
    if (failed != EOWNERDEAD)
        return failed;
    log_line("event=machine_lock_recovered");
    machine_recount(machine);
    for (unsigned d = 0; d < machine->device_count; d++)
        requests_repair(&machine->devices[d].engine);
    pthread_mutex_consistent(&machine->lock);
    return 0;
}

int machine_try_lock(struct machine *machine)
{
    return settle_lock(machine, pthread_mutex_trylock(&machine->lock));
}

int machine_lock(struct machine *machine)
{
    int failed = pthread_mutex_trylock(&machine->lock);
    failed = settle_lock(machine, failed == EBUSY ? wait_for_lock(machine) : failed);
    if (failed)
        log_line("event=machine_lock_failed error=%d", failed);
    return failed;
}

void machine_unlock(struct machine *machine)
{
    pthread_mutex_unlock(&machine->lock);
    atomic_fetch_add(&machine->releases, 1);
    if (atomic_load(&machine->has_waiters) && atomic_exchange(&machine->has_waiters, 0))
        syscall(SYS_futex, &machine->releases, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}
