/* NVML's connection to the node agent, which only reads the agent's page. It owns one connection
 * and no thread. A lost connection is made again at a later question: at most once a second, and
 * ever more rarely while an agent is stopped, because each attempt costs a wait there. */
#ifndef ALIQUOT_OBSERVER_H
#define ALIQUOT_OBSERVER_H

#include "aliquot_protocol.h"

#include <stdbool.h>
#include <stdint.h>

/* The agent's last words about a device. */
struct observer_view {
    bool is_granted;     /* false: the device is not this kernel's, and all below is 0 */
    uint32_t index;      /* in the agent's page */
    uint32_t enforcer;   /* enum aliquot_enforcer */
    uint32_t utilization_percent;
    uint64_t quota_bytes;
    uint64_t charged_bytes; /* by all processes of the kernel */
};

/* Connect if that is due. */
void observer_begin(void);

/* Read the agent's words about a device. False: there was never an agent; then the real numbers
 * are the answer. */
bool observer_view(const uint8_t uuid[16], struct observer_view *view);

/* Read the kernel's device. False: there was never an agent, or the kernel has several. */
bool observer_only_device(uint8_t uuid[16]);

/* Read the kernel's processes on all its devices; returns how many. */
unsigned observer_processes(struct aliquot_agent_process processes[ALIQUOT_MAX_PROCESSES]);

#endif
