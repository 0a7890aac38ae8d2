#include "device/limits.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "device/cgroups.h"
#include "device/log.h"
#include "device/slots.h"

static bool is_same(const struct cgroup *left, const struct cgroup *right)
{
    return left->inode == right->inode && left->device == right->device;
}

static struct limit *find(struct machine *machine, const struct cgroup *cgroup)
{
    if (atomic_load_explicit(&machine->limit_count, memory_order_acquire) == 0 || cgroup->inode == 0)
        return NULL;
    for (int i = 0; i < MACHINE_LIMITS; i++)
        if (is_same(&machine->limits[i].cgroup, cgroup))
            return &machine->limits[i];
    return NULL;
}

/* Under the machine's lock, as those after it. */
static void forget(struct machine *machine, struct limit *limit)
{
    memset(limit, 0, sizeof *limit);
    atomic_fetch_sub_explicit(&machine->limit_count, 1, memory_order_release);
}

static struct limit *find_free(struct machine *machine)
{
    for (int i = 0; i < MACHINE_LIMITS; i++)
        if (machine->limits[i].cgroup.inode == 0)
            return &machine->limits[i];
    return NULL;
}

/* When the table is full: limits of cgroups that were removed went with them. */
static void sweep(struct machine *machine)
{
    struct cgroup chain[MACHINE_CGROUPS];
    for (int i = 0; i < MACHINE_LIMITS; i++)
        if (cgroups_of(machine->limits[i].path, chain) == ENOENT)
            forget(machine, &machine->limits[i]);
}

static struct limit *take_entry(struct machine *machine, const struct cgroup *cgroup, const char *path)
{
    struct limit *entry = find_free(machine);
    if (entry == NULL) {
        sweep(machine);
        entry = find_free(machine);
    }
    if (entry == NULL)
        return NULL;
    for (int d = 0; d < MACHINE_DEVICES; d++)
        entry->hard[d] = MACHINE_NO_LIMIT;
    entry->cgroup = *cgroup;
    snprintf(entry->path, sizeof entry->path, "%s", path);
    atomic_fetch_add_explicit(&machine->limit_count, 1, memory_order_release);
    return entry;
}

static void drop_if_empty(struct machine *machine, struct limit *limit)
{
    for (int d = 0; d < MACHINE_DEVICES; d++)
        if (limit->soft[d] || limit->hard[d] != MACHINE_NO_LIMIT)
            return;
    forget(machine, limit);
}

int limits_set(struct attachment *attachment, unsigned device, const char *path, uint64_t soft, uint64_t hard)
{
    struct cgroup chain[MACHINE_CGROUPS];
    struct machine *machine = attachment->machine;
    int failed = strlen(path) < MACHINE_LIMIT_PATH ? cgroups_of(path, chain) : ENAMETOOLONG;
    if (!failed)
        failed = machine_lock(machine);
    if (failed)
        return failed;
    struct limit *limit = find(machine, &chain[0]);
    if (limit == NULL)
        limit = take_entry(machine, &chain[0], path);
    if (limit) {
        limit->soft[device] = soft;
        limit->hard[device] = hard;
        drop_if_empty(machine, limit);
        log_line("event=memory_limit cgroup=%s device=%u soft=%llu hard=%llu", path, device, (unsigned long long)soft,
                 (unsigned long long)hard);
    }
    machine_unlock(machine);
    return limit ? 0 : ENOSPC;
}

int limits_get(struct attachment *attachment, unsigned device, const char *path, struct limits_reading *reading)
{
    struct cgroup chain[MACHINE_CGROUPS];
    int failed = cgroups_of(path, chain);
    if (failed)
        return failed;
    slots_reap(attachment);
    failed = machine_lock(attachment->machine);
    if (failed)
        return failed;
    const struct limit *limit = find(attachment->machine, &chain[0]);
    reading->soft = limit ? limit->soft[device] : 0;
    reading->hard = limit ? limit->hard[device] : MACHINE_NO_LIMIT;
    reading->used = cgroups_used_bytes(attachment->machine, &chain[0], device);
    machine_unlock(attachment->machine);
    return 0;
}

/* Reads without the lock, which a stopped process may hold: the view may be a moment old. */
struct limits_view limits_view(struct attachment *attachment, unsigned device)
{
    struct machine *machine = attachment->machine;
    device = slots_place(attachment, device);
    struct limits_view view = {machine->memory_bytes, slots_used(machine, device), 0};
    view.free_bytes = view.total_bytes - view.used_bytes;
    const struct limit *limit = find(machine, &attachment->cgroups[0]);
    uint64_t hard = limit ? limit->hard[device] : MACHINE_NO_LIMIT;
    if (hard >= view.total_bytes)
        return view;
    view.total_bytes = hard;
    view.used_bytes = cgroups_used_bytes(machine, &attachment->cgroups[0], device);
    if (view.used_bytes > hard) /* the limit was lowered */
        view.used_bytes = hard;
    uint64_t left = hard - view.used_bytes;
    view.free_bytes = left < view.free_bytes ? left : view.free_bytes;
    return view;
}
