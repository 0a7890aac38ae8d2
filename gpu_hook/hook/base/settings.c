#include "base/settings.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct {
    pthread_once_t once;
    struct settings values;
} state = {.once = PTHREAD_ONCE_INIT};

/* In a setuid program, which ld.so.preload reaches as well, the environment is another user's:
 * the hook opens no library that it names, and writes no file that it names. */
static const char *read_variable(const char *name)
{
    const char *value = secure_getenv(name);
    return value && *value ? strdup(value) : NULL;
}

static void read_environment(void)
{
    const char *hook = secure_getenv("ALIQUOT_HOOK");
    state.values.kernel_dir = read_variable("ALIQUOT_KERNEL_DIR");
    state.values.real_cuda = read_variable("ALIQUOT_REAL_CUDA");
    state.values.real_nvml = read_variable("ALIQUOT_REAL_NVML");
    state.values.visible_devices = read_variable("ALIQUOT_VISIBLE_DEVICES");
    state.values.log_path = read_variable("ALIQUOT_HOOK_LOG");
    state.values.is_on = state.values.kernel_dir && !(hook && strcmp(hook, "off") == 0);
}

const struct settings *settings(void)
{
    pthread_once(&state.once, read_environment);
    return &state.values;
}
