/* Finds a process of another pid namespace. /proc tells the ids that it has in each namespace from
 * ours down to its own. The last id, the namespace and the start time together identify it. */
#include "device/pids.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_NANOSECONDS 1000000000ull
#define STATUS_BYTES 8192

struct known {
    uint64_t joined; /* of which owner of the slot */
    int32_t pid;     /* 0: not found at the last look */
};

static struct {
    pthread_mutex_t mutex; /* guards the rest */
    uint64_t namespace;    /* that the rest is about: a forked child may be in another */
    uint64_t looked;       /* when /proc was read last */
    struct known known[MACHINE_SLOTS];
} cache = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static uint64_t namespace_of(const char *process)
{
    char path[300];
    struct stat found;
    snprintf(path, sizeof path, "/proc/%s/ns/pid", process);
    return stat(path, &found) == 0 ? found.st_ino : 0;
}

/* Reads a small file of /proc; what came, with a zero behind it. */
static ssize_t read_file(const char *process, const char *name, char *text, size_t room)
{
    char path[300];
    snprintf(path, sizeof path, "/proc/%s/%s", process, name);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = descriptor < 0 ? -1 : read(descriptor, text, room - 1);
    if (descriptor >= 0)
        close(descriptor);
    text[length > 0 ? length : 0] = '\0';
    return length;
}

/* The name in field 2 may hold spaces and parentheses, so count from the last one. */
static uint64_t start_ticks_of(const char *process)
{
    char text[1024];
    if (read_file(process, "stat", text, sizeof text) <= 0)
        return 0;
    char *field = strrchr(text, ')');
    for (int i = 2; field && i < 22; i++) {
        field = strchr(field, ' ');
        field = field ? field + 1 : NULL;
    }
    return field ? strtoull(field, NULL, 10) : 0;
}

uint64_t pids_own_namespace(void)
{
    return namespace_of("self");
}

uint64_t pids_own_start_ticks(void)
{
    return start_ticks_of("self");
}

/* The id that a process has for itself; 0 when it is in no namespace below ours, or gone. */
static int32_t innermost_id(const char *process)
{
    char text[STATUS_BYTES];
    if (read_file(process, "status", text, sizeof text) <= 0)
        return 0;
    char *at = strstr(text, "\nNSpid:");
    if (at == NULL)
        return 0;
    int count = 0;
    int32_t last = 0;
    for (at += sizeof "\nNSpid:" - 1; *at == ' ' || *at == '\t'; count++)
        last = (int32_t)strtol(at, &at, 10);
    return count > 1 ? last : 0;
}

/* A namespace that may not be looked at is let pass: two processes that share both numbers started
 * in one tick. */
static int is_same(const struct slot *slot, const char *process)
{
    uint64_t namespace = namespace_of(process);
    return (namespace == 0 || namespace == slot->pid_namespace) && start_ticks_of(process) == slot->start_ticks;
}

static int is_elsewhere(const struct slot *slot)
{
    return cache.namespace && slot->pid_namespace && slot->pid_namespace != cache.namespace;
}

/* Under the mutex: looks once at every process, for all slots that are not known. */
static void look(const struct machine *machine)
{
    DIR *folder = opendir("/proc");
    if (folder == NULL)
        return;
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        int32_t inside = isdigit((unsigned char)entry->d_name[0]) ? innermost_id(entry->d_name) : 0;
        for (int i = 0; inside && i < MACHINE_SLOTS; i++) {
            const struct slot *slot = &machine->slots[i];
            uint64_t joined = atomic_load_explicit(&slot->joined, memory_order_acquire);
            if (atomic_load_explicit(&slot->pid, memory_order_acquire) == inside && is_elsewhere(slot) &&
                (cache.known[i].joined != joined || cache.known[i].pid == 0) && is_same(slot, entry->d_name))
                cache.known[i] = (struct known){joined, (int32_t)strtol(entry->d_name, NULL, 10)};
        }
    }
    closedir(folder);
}

/* Under the mutex. */
static int32_t find(const struct machine *machine, int index)
{
    struct known *known = &cache.known[index];
    uint64_t joined = atomic_load_explicit(&machine->slots[index].joined, memory_order_acquire), now = machine_now();
    int is_new = known->joined != joined;
    if (!is_new && (known->pid || now - cache.looked < LOOK_NANOSECONDS))
        return known->pid;
    look(machine);
    cache.looked = now;
    if (known->joined != joined)
        *known = (struct known){joined, 0};
    return known->pid;
}

int32_t pids_of_slot(const struct machine *machine, int index)
{
    const struct slot *slot = &machine->slots[index];
    int32_t pid = atomic_load_explicit(&slot->pid, memory_order_acquire);
    if (pid == 0)
        return 0;
    uint64_t own = pids_own_namespace();
    pthread_mutex_lock(&cache.mutex);
    if (cache.namespace != own) {
        memset(cache.known, 0, sizeof cache.known);
        cache.namespace = own;
        cache.looked = 0;
    }
    if (is_elsewhere(slot))
        pid = find(machine, index);
    pthread_mutex_unlock(&cache.mutex);
    return pid;
}
