/* A driver that changes the list of visible devices in its cuInit, as another thread of the
 * program may do. */
#include <stdlib.h>

int cuInit(unsigned flags)
{
    const char *chosen = getenv("CHOSEN_MEANWHILE");
    return chosen ? setenv("CUDA_VISIBLE_DEVICES", chosen, 1) : unsetenv("CUDA_VISIBLE_DEVICES");
}
