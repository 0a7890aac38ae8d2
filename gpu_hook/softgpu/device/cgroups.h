/* Control groups by their folders: cgroup v2, or the memory controller's hierarchy of version 1. */
#ifndef SOFTGPU_CGROUPS_H
#define SOFTGPU_CGROUPS_H

#include "device/machine.h"

/* A folder and those above it on its file system, nearest first. 0, or an errno when it cannot be opened. */
int cgroups_of(const char *path, struct cgroup chain[MACHINE_CGROUPS]);
/* This process's, or those of the folder `chosen`. 0, or an errno for `chosen`; all zero where no hierarchy is seen. */
int cgroups_of_self(const char *chosen, struct cgroup chain[MACHINE_CGROUPS]);
int cgroups_contain(const struct cgroup chain[MACHINE_CGROUPS], const struct cgroup *wanted);

#endif
