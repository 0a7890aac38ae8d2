/* The settings of the software GPU, read from the environment in one function. Nothing else calls
 * getenv, except for CUDA_VISIBLE_DEVICES. */
#ifndef SOFTGPU_SETTINGS_H
#define SOFTGPU_SETTINGS_H

#include <stddef.h>
#include <stdint.h>

struct settings {
    char state_path[512];
    uint32_t device_count;
    uint32_t sm_count; /* of each device */
    uint32_t domain_devices; /* of each NVLink domain; 0: all devices are in one */
    uint64_t memory_bytes; /* of each device */
    uint64_t link_bytes_per_second;
    uint64_t launch_nanoseconds; /* of a launch that names no duration of its own */
    uint64_t slice_nanoseconds;  /* of a process while others want the engine */
    uint64_t switch_nanoseconds; /* from one process to another */
    uint64_t teardown_nanoseconds; /* of the memory of a process that died */
    uint64_t pool_chunk_bytes; /* pools reserve in multiples of this */
    uint64_t fault_nanoseconds; /* of a device, at a block of managed memory that is not there */
    uint64_t context_bytes; /* that each context takes of its device */
    uint64_t resource_bytes; /* that each stream, event and registration takes of its device */
    /* that one stream may have outstanding before calls into it wait; 0: any number */
    uint32_t queue_items;
    uint32_t is_strict; /* ends the process where a real driver is free to crash */
    /* what a process that was restored on another device is told of the one before: 0 nothing,
     * 1 its PCI bus id, 2 its UUID, too */
    uint32_t stale;
    const char *faults;
    const char *hold; /* a file: calls with the fault `hold` wait while it exists */
    const char *log;
    const char *cgroup; /* NULL: the process's own */
    const char *node; /* that the devices' UUIDs are made of; NULL: the machine */
};

/* 0, or -1 with a sentence in `problem`. */
int settings_read(struct settings *settings, char *problem, size_t problem_bytes);

#endif
