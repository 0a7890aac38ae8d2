/* Control groups by their folders: cgroup v2, or the memory controller's hierarchy of version 1. */
#ifndef SOFTGPU_CGROUPS_H
#define SOFTGPU_CGROUPS_H

#include "device/layout.h"

/* Lists the cgroup of a folder and those above it on its file system, nearest first. 0, or an errno
 * when the folder cannot be opened. */
int cgroups_of(const char *path, struct cgroup chain[MACHINE_CGROUPS]);
/* The same for this process, or for the folder `chosen`. 0, or an errno for `chosen`; all zero
 * where no hierarchy is seen. */
int cgroups_of_self(const char *chosen, struct cgroup chain[MACHINE_CGROUPS]);
/* The bytes that the processes of a cgroup, and of those below it, hold of a device. */
uint64_t cgroups_used_bytes(const struct machine *machine, const struct cgroup *cgroup, unsigned device);
/* Under the machine's lock: whether the limits of its cgroups let a process take so much more. */
int cgroups_allow(const struct machine *machine, const struct slot *slot, unsigned device, uint64_t bytes);
int cgroups_contain(const struct cgroup chain[MACHINE_CGROUPS], const struct cgroup *wanted);

#endif
