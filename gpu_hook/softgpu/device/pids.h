/* Process ids across pid namespaces. A slot holds the id that its process has for itself; what it is in ours, if it is
 * seen from here at all, is found in /proc once and remembered. */
#ifndef SOFTGPU_PIDS_H
#define SOFTGPU_PIDS_H

#include "device/machine.h"

/* Of this process: its namespace by the inode of /proc/self/ns/pid (0: not to be had), and field 22 of its stat. */
uint64_t pids_own_namespace(void);
uint64_t pids_own_start_ticks(void);
/* The id of a slot's process in our namespace; 0 when the slot is free, or its process not seen from here: it lives in a
 * namespace that is neither ours nor below it. Cheap when nobody joined: at most one look at /proc in a second. */
int32_t pids_of_slot(const struct machine *machine, int slot);

#endif
