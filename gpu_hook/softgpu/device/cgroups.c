/* The cgroups of a process, by inode numbers: a container sees its own cgroup as the root, and its
 * path there means nothing outside. */
#include "device/cgroups.h"
#include "device/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPEN_FOLDER (O_RDONLY | O_DIRECTORY | O_CLOEXEC)

int cgroups_of(const char *path, struct cgroup chain[MACHINE_CGROUPS])
{
    struct stat found;
    memset(chain, 0, MACHINE_CGROUPS * sizeof *chain);
    int folder = open(path, OPEN_FOLDER);
    if (folder < 0)
        return errno;
    for (int i = 0; i < MACHINE_CGROUPS && fstat(folder, &found) == 0; i++) {
        bool is_top = i > 0 && (found.st_dev != chain[0].device || found.st_ino == chain[i - 1].inode);
        if (is_top)
            break;
        chain[i] = (struct cgroup){found.st_dev, found.st_ino};
        int parent = openat(folder, "..", OPEN_FOLDER);
        close(folder);
        folder = parent;
        if (folder < 0)
            return 0;
    }
    close(folder);
    return 0;
}

/* The path in the line of /proc/self/cgroup that has this controller; "" is version 2. Cuts `text`
 * at its end. */
static char *find_path(char *text, const char *controller)
{
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (path == NULL)
            continue;
        *path++ = '\0';
        names++;
        const char *at = *controller ? strstr(names, controller) : NULL;
        size_t length = strlen(controller);
        bool is_listed = at && (at == names || at[-1] == ',') && (at[length] == '\0' || at[length] == ',');
        if (*controller ? is_listed : *names == '\0')
            return path;
    }
    return NULL;
}

int cgroups_of_self(const char *chosen, struct cgroup chain[MACHINE_CGROUPS])
{
    static const struct {
        const char *controller, *mount, *witness;
    } places[] = {{"", "/sys/fs/cgroup", "/sys/fs/cgroup/cgroup.controllers"},
                  {"memory", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory"},
                  {"", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified"}};
    char text[4096], copy[4096], path[4200];
    if (chosen)
        return cgroups_of(chosen, chain);
    memset(chain, 0, MACHINE_CGROUPS * sizeof *chain);
    int descriptor = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
    ssize_t length = descriptor < 0 ? 0 : read(descriptor, text, sizeof text - 1);
    if (descriptor >= 0)
        close(descriptor);
    text[length > 0 ? length : 0] = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        memcpy(copy, text, sizeof copy);
        const char *own = access(places[i].witness, F_OK) == 0 ? find_path(copy, places[i].controller) : NULL;
        if (own && snprintf(path, sizeof path, "%s%s", places[i].mount, own) < (int)sizeof path &&
            cgroups_of(path, chain) == 0)
            return 0;
    }
    return 0;
}

int cgroups_contain(const struct cgroup chain[MACHINE_CGROUPS], const struct cgroup *wanted)
{
    for (int i = 0; i < MACHINE_CGROUPS && chain[i].inode; i++)
        if (chain[i].inode == wanted->inode && chain[i].device == wanted->device)
            return 1;
    return 0;
}

uint64_t cgroups_used_bytes(const struct machine *machine, const struct cgroup *cgroup, unsigned device)
{
    uint64_t used = 0;
    for (int i = 0; i < MACHINE_SLOTS; i++) {
        const struct slot *slot = &machine->slots[i];
        if (atomic_load_explicit(&slot->pid, memory_order_acquire) && cgroups_contain(slot->cgroups, cgroup))
            used += atomic_load_explicit(&slot->devices[device].bytes, memory_order_relaxed);
    }
    return used;
}

int cgroups_allow(const struct machine *machine, const struct slot *slot, unsigned device, uint64_t bytes)
{
    if (atomic_load_explicit(&machine->limit_count, memory_order_relaxed) == 0)
        return 1;
    for (int i = 0; i < MACHINE_LIMITS; i++) {
        const struct limit *limit = &machine->limits[i];
        uint64_t hard = limit->cgroup.inode ? limit->hard[device] : MACHINE_NO_LIMIT;
        if (hard == MACHINE_NO_LIMIT || !cgroups_contain(slot->cgroups, &limit->cgroup))
            continue;
        uint64_t used = cgroups_used_bytes(machine, &limit->cgroup, device);
        if (bytes > hard || used > hard - bytes)
            return 0;
    }
    return 1;
}
