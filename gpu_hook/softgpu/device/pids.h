/* Process ids across pid namespaces. A slot holds the id that its process has for itself. Its id
 * in our namespace, if it is visible from here at all, is found in /proc once and remembered. */
#ifndef SOFTGPU_PIDS_H
#define SOFTGPU_PIDS_H

#include "device/machine.h"

/* Of this process: its namespace by the inode of /proc/self/ns/pid (0: not to be had), and field 22
 * of its stat. */
uint64_t pids_own_namespace(void);
uint64_t pids_own_start_ticks(void);
/* The id of a slot's process in our namespace. 0 when the slot is free, or when the process cannot
 * be seen from here because its namespace is neither ours nor below it. Cheap while no process
 * joins: reads /proc at most once a second. */
int32_t pids_of_slot(const struct machine *machine, int slot);

#endif
