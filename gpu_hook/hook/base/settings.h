/* The hook's environment, read once: a kernel that changes its environment later changes
 * nothing. */
#ifndef ALIQUOT_SETTINGS_H
#define ALIQUOT_SETTINGS_H

#include <stdbool.h>

struct settings {
    bool is_on;             /* false: pure forwarding (no kernel folder, or ALIQUOT_HOOK=off) */
    const char *kernel_dir; /* ALIQUOT_KERNEL_DIR: holds hook.sock; NULL outside a kernel */
    const char *real_cuda;  /* ALIQUOT_REAL_CUDA */
    const char *real_nvml;  /* ALIQUOT_REAL_NVML */
    /* ALIQUOT_VISIBLE_DEVICES: UUIDs of the grant; NULL: nothing is translated */
    const char *visible_devices;
    const char *log_path;   /* ALIQUOT_HOOK_LOG */
};

const struct settings *settings(void);

#endif
