/* NVML's connection to the node agent: it only reads the agent's page. Owns one connection and no thread; a lost
 * one is made again at a later question, at most once a second. */
#ifndef ALIQUOT_OBSERVER_H
#define ALIQUOT_OBSERVER_H

#include <stdbool.h>
#include <stdint.h>

struct observer_view {
    uint64_t quota_bytes;
    uint64_t charged_bytes; /* by all processes of the kernel */
};

/* Connects if that is due. */
void observer_begin(void);

/* False: no agent, or the device is not granted; then the real numbers are the answer. */
bool observer_view(const uint8_t uuid[16], struct observer_view *view);

#endif
